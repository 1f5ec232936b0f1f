"""Where the reference data is, if it is here at all."""

import os
from pathlib import Path

import numpy as np

from manymatch import AssociationGraph

ROOT = Path(__file__).resolve().parents[2]


def data_folder() -> Path | None:
    """Folder named by MANYMATCH_DATA, or ../shared/data beside the checkout; None when absent."""
    path = Path(os.environ.get("MANYMATCH_DATA", ROOT.parent / "shared" / "data"))
    return path if path.is_dir() else None


def stored_graph(pattern, number=0, points=("points0", "points1")):
    """Graph and all arrays of a file of the reference data, without which the test is skipped.

    The file is the one of that number, in the order of names, that matches the pattern.
    """
    import pytest

    data = data_folder()
    paths = [] if data is None else sorted(data.glob(pattern))
    if not paths:
        pytest.skip("the reference data is not here")
    with np.load(paths[number]) as file:
        arrays = dict(file)
    ends = (arrays[name].astype(float) for name in points)
    ranks = arrays["rank"].astype(np.int32)
    return AssociationGraph(*ends, arrays["edges"].astype(np.int64), rank=ranks), arrays
