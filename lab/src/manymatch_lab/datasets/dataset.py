"""A data set: pairs in a fixed order with their true poses, and the depth of their views."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

import numpy as np

from manymatch._validate import (
    BoolArray,
    FloatArray,
    bool_array,
    count,
    float_array,
    integer,
    read_only,
    refusal,
)
from manymatch.geometry.camera import Camera
from manymatch.io.pairs import Pair

if TYPE_CHECKING:
    from collections.abc import Callable

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
        """Compute the 3D points that pixels show.

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


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Dataset(Sequence[Pair]):
    """Pairs of images with known pose.

    Parameters
    ----------
    name : str
        As the registry calls it: lower case, hyphens.
    title : str
        As papers call it.
    pairs : tuple of Pair
        In the order of the lists. ``pair.extra["seed_index"]`` counts from 1 within each list;
        ``extra["bin"]`` and ``extra["angle_deg"]`` are there where the data set has such bins.
    longest0, longest1 : int or None
        Working size of the first and second images where it is not the preset's, as
        `Matcher.match` takes it; 0 keeps the images' own size.
    depth : callable or None
        ``depth(pair, side)`` reads the depth of image 0 or 1 of a pair and returns a `DepthView`;
        both views of a pair have the same common frame. None where there is no depth.
    notes : tuple of str
        What one should know before comparing numbers.
    """

    name: str
    title: str
    pairs: tuple[Pair, ...]
    longest0: int | None = None
    longest1: int | None = None
    depth: Callable[[Pair, int], DepthView] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", tuple(self.pairs))
        object.__setattr__(self, "notes", tuple(self.notes))
        for pair in self.pairs:
            if not isinstance(pair, Pair):
                raise refusal("pairs", "a sequence of Pair", pair)
        for name in ("longest0", "longest1"):
            if getattr(self, name) is not None:
                integer(getattr(self, name), name, 0)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Pair, ...]: ...
    def __getitem__(self, index: int | slice) -> Pair | tuple[Pair, ...]:
        return self.pairs[index]

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def set_name(self) -> str:
        """Name under which results are stored; for a folder, the name of that folder."""
        return self.title if self.name == "folder" else self.name

    def require_truth(self) -> None:
        """Raise `ValueError` unless every pair has its true pose."""
        without = [pair for pair in self.pairs if not pair.has_truth]
        if without:
            raise ValueError(
                f"set must have the true pose of every pair, got {self.set_name!r} without that of "
                f"{len(without):,} of {len(self.pairs):,}, the first {without[0].name0} and "
                f"{without[0].name1}; manymatch batch needs none"
            )

    def __repr__(self) -> str:
        depth = ", depth" if self.depth else ""
        return f"Dataset({self.name}: {count(len(self.pairs), 'pair')}{depth})"


def rigid(value: object, name: str) -> FloatArray:
    """Check a (4, 4) rigid transform."""
    want = "a rigid 4x4 transform"
    T = float_array(value, name, want, (4, 4))
    R = T[:3, :3]
    off = max(np.max(np.abs(R.T @ R - np.eye(3))), np.max(np.abs(T[3] - (0.0, 0.0, 0.0, 1.0))))
    if not off <= _TOLERANCE or np.linalg.det(R) < 0:
        raise ValueError(f"{name} must be {want} within {_TOLERANCE:g}, got {T.tolist()}")
    return T
