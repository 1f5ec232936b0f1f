"""What a detector is: an image in, keypoints with scores out."""

from __future__ import annotations

import abc
import dataclasses
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from manymatch._validate import FloatArray, IndexArray


@dataclasses.dataclass(frozen=True, eq=False)
class Keypoints:
    """What a detector found, best first.

    Attributes
    ----------
    points : (N, 2) float64 ndarray
        Pixels (x, y) of the image that was given; the centre of its top-left pixel is (0, 0).
    scores : (N,) float32 ndarray
        Falling.
    descriptors : (N, D) float32 ndarray or None
        The detector's own, of length one, where it has them.
    further : (M, D) float32 ndarray or None
        More descriptors of some of these keypoints, where a place was described in several ways
        (SIFT with several orientations); see `manymatch.associate_owned.associate_owned`.
    owners : (M,) int64 ndarray or None
        The keypoint that each row of `further` belongs to.
    """

    points: FloatArray
    scores: NDArray[np.float32]
    descriptors: NDArray[np.float32] | None = None
    further: NDArray[np.float32] | None = None
    owners: IndexArray | None = None

    def __len__(self) -> int:
        return len(self.points)

    def take(self, which: NDArray[np.int64] | NDArray[np.bool_]) -> Keypoints:
        """Keep some, by index or mask."""
        own = None if self.descriptors is None else self.descriptors[which]
        points, scores = self.points[which], self.scores[which]
        if self.further is None or self.owners is None:
            return Keypoints(points, scores, own)
        number = np.full(len(self), -1, dtype=np.int64)
        number[which] = np.arange(len(points))
        owners = number[self.owners]
        return Keypoints(points, scores, own, self.further[owners >= 0], owners[owners >= 0])


class Detector(abc.ABC):
    """Finds keypoints.

    Attributes
    ----------
    name : str
        Under which it is chosen.
    dim : int or None
        Length of its own descriptors; None when it only detects.
    licence : str
        Of code and weights.
    module : torch.nn.Module or None
        The network, where there is one: moved between devices, and hashed for the cache.
    """

    name: str
    dim: int | None = None
    licence: str = "unknown"
    module: torch.nn.Module | None = None

    @abc.abstractmethod
    def detect(self, image: NDArray[np.uint8]) -> Keypoints:
        """Find keypoints.

        Parameters
        ----------
        image : (H, W, 3) uint8 ndarray
            RGB, already resized.
        """

    @abc.abstractmethod
    def settings(self) -> dict[str, object]:
        """Everything that changes a number, for records and cache keys."""
