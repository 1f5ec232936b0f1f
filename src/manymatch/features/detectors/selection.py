"""Which detections are kept: what all detectors share."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from manymatch._validate import BoolArray, FloatArray, IndexArray, integer, real

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Larger radii and borders than any image are typing errors.
_LARGEST = 65_536


@dataclasses.dataclass(frozen=True)
class Selection:
    """Settings of a detector's last steps.

    Attributes
    ----------
    max_keypoints : int
        Keypoints that are kept, those of the largest scores; equal scores in reading order.
    nms_radius : int
        Of two detections whose x and y both differ by at most this many pixels, only the one with
        the larger score stays.
    border : int
        Keypoints nearer than this many pixels to the centres of the outermost pixels are dropped.
    threshold : float
        Scores must be larger.
    """

    max_keypoints: int
    nms_radius: int
    border: int
    threshold: float

    @classmethod
    def checked(
        cls,
        max_keypoints: object,
        nms_radius: object,
        border: object,
        threshold: object,
    ) -> Selection:
        """Check what a caller gave."""
        return cls(
            integer(max_keypoints, "max_keypoints", 1),
            integer(nms_radius, "nms_radius", 0, _LARGEST),
            integer(border, "border", 0, _LARGEST),
            real(threshold, "threshold"),
        )

    def inside(self, points: FloatArray, size: tuple[int, int]) -> BoolArray:
        """Tell which of (N, 2) pixels are not in the border of an image of (width, height)."""
        x, y = points.T
        low = self.border
        across: BoolArray = (x >= low) & (x <= size[0] - 1 - low)
        along: BoolArray = (y >= low) & (y <= size[1] - 1 - low)
        return across & along

    def choose(self, points: FloatArray, size: tuple[int, int]) -> IndexArray:
        """Drop the border and cut to the number of keypoints.

        Parameters
        ----------
        points : (N, 2) ndarray
            Pixels (x, y), best first.
        size : (int, int)
            Width and height of the image.

        Returns
        -------
        (M,) int64 ndarray
            Which ones are kept, best first.
        """
        return np.flatnonzero(self.inside(points, size))[: self.max_keypoints]


def by_score(scores: NDArray[np.float32]) -> IndexArray:
    """Order of falling scores, where equal ones stay as they are."""
    return np.argsort(-scores, kind="stable").astype(np.int64, copy=False)


def suppress(points: FloatArray, radius: float) -> IndexArray:
    """Keep what is more than `radius` pixels, along x or along y, from everything better.

    Parameters
    ----------
    points : (N, 2) ndarray
        Pixels, best first.
    radius : float
        Zero keeps everything but repeated positions.

    Returns
    -------
    (M,) int64 ndarray
        Which ones are kept, best first.
    """
    # Cells of the radius' size: what is near enough lies in one of nine.
    cells = np.floor(points / (radius if radius > 0.0 else 1.0)).astype(np.int64).tolist()
    kept_in: dict[tuple[int, int], list[int]] = {}
    kept = []
    positions = points.tolist()
    for i, ((x, y), (column, row)) in enumerate(zip(positions, cells, strict=True)):
        rivals = (
            positions[j]
            for c in (column - 1, column, column + 1)
            for r in (row - 1, row, row + 1)
            for j in kept_in.get((c, r), ())
        )
        if all(abs(x - u) > radius or abs(y - v) > radius for u, v in rivals):
            kept.append(i)
            kept_in.setdefault((column, row), []).append(i)
    return np.array(kept, dtype=np.int64)
