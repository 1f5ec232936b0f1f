"""Versions of the packages that compute numbers."""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, version

# A change of any of them may make other features.
_LIBRARIES = ("numpy", "torch", "transformers", "timm", "kornia")


@functools.cache
def library_versions() -> dict[str, str]:
    """Return the versions of those that are installed."""
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    try:
        # Installed under several names.
        import cv2
    except ModuleNotFoundError:
        return found
    return {**found, "opencv": cv2.__version__}
