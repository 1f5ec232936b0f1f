"""A dense map of descriptors that knows where its cells are."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from manymatch._validate import BoolArray, FloatArray, refusal
from manymatch.features.resize import keypoints

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from manymatch.features.resize import Frame

_Float = TypeVar("_Float", np.float32, np.float64)
# Cells within this many of the hull's edge count as on it: rounding in the change of frames.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureMap:
    """Descriptors on a regular grid over the user's image.

    Attributes
    ----------
    values : (D, rows, columns) float32 ndarray
        One descriptor per cell.
    origin : (float, float)
        Centre (x, y) of cell (0, 0) in pixels of the user's image; the centre of its top-left
        pixel is (0, 0).
    stride : (float, float)
        Pixels of the user's image per cell, along x and y.
    """

    values: NDArray[np.float32]
    origin: tuple[float, float]
    stride: tuple[float, float]

    def __post_init__(self) -> None:
        if self.values.ndim != 3 or 0 in self.values.shape:
            raise refusal("values", "a (D, rows, columns) array without empty axes", self.values)
        if not min(self.stride) > 0.0:
            raise refusal("stride", "two positive numbers of pixels", self.stride)

    @classmethod
    def of_network(
        cls, values: NDArray[np.float32], frame: Frame, patch: float, origin: float
    ) -> FeatureMap:
        """Place a network's output on the image that went into it.

        Parameters
        ----------
        values : (D, rows, columns) ndarray
            Output, padding already cut off.
        frame : Frame
            How the user's image became the input.
        patch : float
            Input pixels per cell.
        origin : float
            Centre of the first cell along either axis in input pixels; a patch of p pixels that
            starts at pixel 0 has (p - 1) / 2.
        """
        first = frame.to_original(np.array([[origin, origin]]))[0]
        stride = patch / frame.scale
        return cls(values, (float(first[0]), float(first[1])), (float(stride[0]), float(stride[1])))

    @property
    def dim(self) -> int:
        """Length of a descriptor."""
        return int(self.values.shape[0])

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns."""
        return int(self.values.shape[1]), int(self.values.shape[2])

    def cells(self, points: ArrayLike) -> FloatArray:
        """Map (N, 2) pixels to (column, row) coordinates, whole numbers at the centres."""
        return (keypoints(points) - self.origin) / self.stride

    def centres(self) -> FloatArray:
        """Centres of all cells, (rows * columns, 2) pixels, row by row."""
        rows, columns = self.grid
        y, x = np.mgrid[0:rows, 0:columns]
        return np.stack([x.ravel(), y.ravel()], axis=1) * self.stride + self.origin

    def inside(self, points: ArrayLike) -> BoolArray:
        """Tell which points lie in the hull of the cell centres, where sampling interpolates."""
        rows, columns = self.grid
        cells = self.cells(points)
        low, high = -_ROUNDING, np.array([columns - 1, rows - 1]) + _ROUNDING
        return np.asarray(((cells >= low) & (cells <= high)).all(axis=1))

    def sample(self, points: ArrayLike) -> NDArray[np.float32]:
        """Interpolate bilinearly.

        Parameters
        ----------
        points : (N, 2) array_like
            Pixels (x, y) of the user's image; those outside the hull of the cell centres take
            the value at the nearest point of the hull (see `inside`).

        Returns
        -------
        (N, D) float32 ndarray
            Not normalised.
        """
        rows, columns = self.grid
        cells = np.clip(self.cells(points), 0.0, [columns - 1, rows - 1])
        # The last cell is reached with weight 1 from the one before it, where there is one.
        corner = np.minimum(cells.astype(np.int64), np.maximum([columns - 2, rows - 2], 0))
        x, y = corner[:, 0], corner[:, 1]
        right, below = np.minimum(x + 1, columns - 1), np.minimum(y + 1, rows - 1)
        u, v = (cells - corner).T.astype(np.float32)[:, :, None]
        flat = self.values.reshape(self.dim, -1).T
        upper = (1 - u) * flat[y * columns + x] + u * flat[y * columns + right]
        lower = (1 - u) * flat[below * columns + x] + u * flat[below * columns + right]
        return np.ascontiguousarray((1 - v) * upper + v * lower, dtype=np.float32)


def unit_rows(rows: NDArray[_Float]) -> NDArray[_Float]:
    """Scale (N, D) rows to length one; a row of zeros stays."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(length > 0.0, length, 1.0)).astype(rows.dtype)
