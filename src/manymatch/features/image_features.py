"""What is computed of one image: keypoints with descriptors."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from manymatch._validate import FloatArray, IndexArray


@dataclasses.dataclass(frozen=True, eq=False)
class Features:
    """Keypoints of one image with their descriptors, best first.

    Attributes
    ----------
    points : (N, 2) float64 ndarray
        Pixels (x, y) of the user's image; the centre of its top-left pixel is (0, 0).
    scores : (N,) float32 ndarray
        The detector's, falling.
    descriptors : (N, D) float32 ndarray
        Of length one.
    size : (int, int)
        Width and height of the user's image.
    further, owners : (M, D) float32 and (M,) int64 ndarrays, or None
        More descriptors of some keypoints (SIFT with several orientations), and whose they are.
    provenance : dict
        Everything that went into them.
    """

    points: FloatArray
    scores: NDArray[np.float32]
    descriptors: NDArray[np.float32]
    size: tuple[int, int]
    further: NDArray[np.float32] | None = None
    owners: IndexArray | None = None
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        width, height = self.size
        return (
            f"Features({len(self)} keypoints, descriptors of length "
            f"{self.descriptors.shape[1]}, image {width} x {height})"
        )

    def all_descriptors(self) -> tuple[NDArray[np.float32], IndexArray]:
        """Return all rows, (N + M, D), and the keypoint that each belongs to."""
        own = np.arange(len(self))
        if self.further is None or self.owners is None:
            return self.descriptors, own
        return np.concatenate([self.descriptors, self.further]), np.concatenate([own, self.owners])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what a cache keeps."""
        arrays: dict[str, NDArray[Any]] = {
            "points": self.points,
            "scores": self.scores,
            "descriptors": self.descriptors,
            "size": np.array(self.size, dtype=np.int64),
        }
        if self.further is not None and self.owners is not None:
            arrays |= {"further": self.further, "owners": self.owners}
        return arrays

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], provenance: dict[str, Any]
    ) -> Features:
        """Make features of what `to_arrays` returned."""
        width, height = arrays["size"]
        return cls(
            arrays["points"],
            arrays["scores"],
            arrays["descriptors"],
            (int(width), int(height)),
            arrays.get("further"),
            arrays.get("owners"),
            provenance,
        )
