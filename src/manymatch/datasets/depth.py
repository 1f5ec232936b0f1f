"""Depth of one view, and the points it puts into a frame that both views share."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from manymatch._validate import BoolArray, FloatArray, bool_array, float_array, read_only, refusal
from manymatch.geometry.camera import Camera

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True, eq=False)
class DepthView:
    """What is known about the surface that one image of a pair shows.

    Parameters
    ----------
    depth : (H, W) float32
        Depth (z, along the optical axis) in metres at the pixel centres; NaN where it is unknown.
        What is not positive or not finite becomes NaN.
    mask : (H, W) bool or None
        Pixels of the object, None if all count.
    camera : Camera
        Intrinsics in pixels of the depth image, which is that of the photograph.
    to_common : (4, 4) float64
        Rigid map of this camera's coordinates in metres to those of a frame that both views of
        the pair share.

    Raises
    ------
    ValueError
        If the shapes do not fit each other or `to_common` is no rigid map.
    """

    depth: NDArray[np.float32]
    mask: BoolArray | None
    camera: Camera
    to_common: FloatArray

    def __post_init__(self) -> None:
        depth = np.array(self.depth, dtype=np.float32, order="C")
        if depth.ndim != 2 or not depth.size:
            raise refusal("depth", "an (H, W) array of metres", self.depth)
        with np.errstate(invalid="ignore"):
            depth[~((depth > 0.0) & np.isfinite(depth))] = np.nan
        object.__setattr__(self, "depth", read_only(depth))
        height, width = depth.shape
        if self.mask is not None:
            want = f"None or an array of booleans of the depth's shape {depth.shape}"
            mask = bool_array(self.mask, "mask", want, (height, width))
            object.__setattr__(self, "mask", read_only(mask))
        if not isinstance(self.camera, Camera):
            raise refusal("camera", "a Camera", self.camera)
        if self.camera.width is not None and (self.camera.height, self.camera.width) != depth.shape:
            raise ValueError(
                f"camera must be of the depth's size {width} x {height}, "
                f"got {self.camera.width} x {self.camera.height}"
            )
        object.__setattr__(self, "to_common", read_only(rigid(self.to_common, "to_common")))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.depth.shape[1], self.depth.shape[0]

    def points(self, pixels: ArrayLike) -> FloatArray:
        """Put pixels into space.

        Parameters
        ----------
        pixels : (N, 2) array_like
            Pixels (x, y) of the image, the centre of the top-left one at (0, 0).

        Returns
        -------
        (N, 3) float64 ndarray
            Points of the common frame in metres: the ray of the pixel itself at the depth of the
            nearest pixel centre. NaN where that one is outside the image, outside the mask, or
            has no depth.
        """
        xy = float_array(pixels, "pixels", "an (N, 2) array of pixels", (None, 2), finite=False)
        width, height = self.size
        # NaN fails both comparisons; halves go up, the last half pixel still counts.
        inside: BoolArray = np.all((xy >= -0.5) & (xy < (width - 0.5, height - 0.5)), axis=1)
        nearest = np.floor(np.where(inside[:, None], xy, 0.0) + 0.5).astype(np.int64)
        column, row = nearest[:, 0], nearest[:, 1]
        z = np.where(inside, self.depth[row, column], np.nan).astype(np.float64)
        if self.mask is not None:
            z[~self.mask[row, column]] = np.nan
        ray = self.camera.unproject(xy)
        local = np.column_stack([ray * z[:, None], z])
        moved: FloatArray = local @ self.to_common[:3, :3].T + self.to_common[:3, 3]
        moved[~np.isfinite(moved).all(axis=1)] = np.nan
        return moved

    def __repr__(self) -> str:
        width, height = self.size
        known = np.isfinite(self.depth)
        if self.mask is not None:
            known &= self.mask
        return f"DepthView({width} x {height}, {known.mean():.0%} with depth)"


def rigid(value: object, name: str) -> FloatArray:
    """Check a (4, 4) rigid transform."""
    want = "a rigid 4x4 transform"
    T = float_array(value, name, want, (4, 4))
    R = T[:3, :3]
    off = max(np.max(np.abs(R.T @ R - np.eye(3))), np.max(np.abs(T[3] - (0.0, 0.0, 0.0, 1.0))))
    if not off <= _TOLERANCE or np.linalg.det(R) < 0:
        raise ValueError(f"{name} must be {want} within {_TOLERANCE:g}, got {T.tolist()}")
    return T
