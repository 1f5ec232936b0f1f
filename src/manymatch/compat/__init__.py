"""Functions of PoseLib, pycolmap and OpenCV by name and signature, on this package's estimators.

``from manymatch.compat import cv2`` in place of ``import cv2`` is the whole switch: functions that
estimate one of our problems are ours, everything else is the original's. All take ``edges=``, and
without it lists in which a point occurs several times as graphs of candidates; see
docs/guides/switch.md.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["cv2", "poselib", "pycolmap"]


def __getattr__(name: str) -> Any:
    # So that `manymatch.compat.cv2` needs no import of its own.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return importlib.import_module(f"{__name__}.{name}")
