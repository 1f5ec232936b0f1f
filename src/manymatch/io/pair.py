"""One pair of images, with whatever is known about it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import FloatArray, float_array, integer, read_only, refusal
from manymatch.geometry.camera import Camera

if TYPE_CHECKING:
    from collections.abc import Mapping

# Lists round their matrices, some to four decimals; more than that is another mistake.
_ROTATION_TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """Two images to match, with cameras and true pose where they are known.

    Everything is for the images as `manymatch.io.image.load_image` returns them, that is with
    EXIF orientation undone: the cameras, the pose and the quarter turns.

    Parameters
    ----------
    name0, name1 : str
        As the list calls the images.
    path0, path1 : Path
        Their files, which need not exist.
    camera0, camera1 : Camera, optional
        Intrinsics in pixels of the images.
    R, t : (3, 3) and (3,) array_like, optional
        True pose, ``x1 = R @ x0 + t``, both or neither. R may be rounded, the nearest rotation is
        kept; t has any length but zero.
    rot0, rot1 : int
        Quarter turns, 0 to 3, counter-clockwise, that put the images upright for a network. Only
        features are computed on turned images; cameras, pose and keypoints are those of the
        images as they are.
    scene : str
        Pairs of one scene are not independent; for intervals.
    extra : mapping
        What else a data set knows, by name.

    Raises
    ------
    ValueError
        If a turn is out of its range, R is no rotation, t is zero, or one of R and t is missing.
    """

    name0: str
    name1: str
    path0: Path
    path1: Path
    camera0: Camera | None = None
    camera1: Camera | None = None
    R: FloatArray | None = None
    t: FloatArray | None = None
    rot0: int = 0
    rot1: int = 0
    scene: str = ""
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("name0", "name1"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise refusal(name, "the name of an image", getattr(self, name))
        for name in ("path0", "path1"):
            if not isinstance(getattr(self, name), Path):
                raise refusal(name, "a Path", getattr(self, name))
        for name in ("camera0", "camera1"):
            if not isinstance(getattr(self, name), Camera | None):
                raise refusal(name, "a Camera or None", getattr(self, name))
        for name in ("rot0", "rot1"):
            integer(getattr(self, name), name, 0, 3)
        if (self.R is None) != (self.t is None):
            missing, given = ("R", "t") if self.R is None else ("t", "R")
            raise ValueError(f"{missing} must be given together with {given}, got None")
        if self.R is not None:
            object.__setattr__(self, "R", read_only(_nearest_rotation(self.R)))
            object.__setattr__(self, "t", read_only(_direction(self.t)))

    @property
    def has_truth(self) -> bool:
        """Whether the true pose is known."""
        return self.R is not None

    def __repr__(self) -> str:
        known = [
            *(["cameras"] if self.camera0 is not None and self.camera1 is not None else []),
            *(["pose"] if self.has_truth else []),
        ]
        return f"Pair({self.name0} - {self.name1}{': ' if known else ''}{', '.join(known)})"


def _nearest_rotation(value: object) -> FloatArray:
    """Check a rounded rotation and make it exact."""
    R = float_array(value, "R", "a 3x3 rotation matrix", (3, 3))
    deviation = float(np.max(np.abs(R.T @ R - np.eye(3))))
    if not deviation <= _ROTATION_TOLERANCE or np.linalg.det(R) < 0:
        raise ValueError(
            f"R must be a rotation matrix within {_ROTATION_TOLERANCE:g}, got {R.tolist()}"
        )
    u, _, vt = np.linalg.svd(R)
    return np.ascontiguousarray(u @ vt)


def _direction(value: object) -> FloatArray:
    t = float_array(value, "t", "three numbers, not all zero", (3,))
    if not t.any():
        raise refusal("t", "three numbers, not all zero", t.tolist())
    return t
