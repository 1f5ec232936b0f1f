"""The two photographs that come with the package, for the demo and for examples."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from manymatch.io.pairs import read_pairs

if TYPE_CHECKING:
    from manymatch.io.pairs import Pair

_FOLDER = Path(__file__).parent / "demo_photos"


def demo_pair() -> Pair:
    """Return the demo's pair: a street with a long front of nearly equal windows, seen twice.

    The photographs are rendered (``tools/street`` makes them again), so the cameras and the pose
    are exact; the translation is in metres.

    Examples
    --------
    >>> pair = demo_pair()
    >>> pair.name0, pair.path0.is_file(), pair.has_truth
    ('street0.jpg', True, True)
    """
    (pair,) = read_pairs(_FOLDER / "pairs.txt", _FOLDER)
    return dataclasses.replace(pair, scene="demo")
