"""Where the reference data is, if it is here at all."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def data_folder() -> Path | None:
    """Folder named by MANYMATCH_DATA, or ../shared/data beside the checkout; None when absent."""
    path = Path(os.environ.get("MANYMATCH_DATA", ROOT.parent / "shared" / "data"))
    return path if path.is_dir() else None
