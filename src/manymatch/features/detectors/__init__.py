"""Detectors: what a detector is, and the choice of detections that all of them share."""

from __future__ import annotations

import abc
import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import FloatArray, IndexArray, integer, real

if TYPE_CHECKING:
    from manymatch.features.registry import Model

# Larger radii and borders than any image are typing errors.
_LARGEST = 65_536


@dataclasses.dataclass(frozen=True, eq=False)
class Keypoints:
    """Keypoints that a detector found, best first.

    `points` (N, 2) are float64 pixels (x, y) of the image that was given. `descriptors` are the
    detector's own, or None. The arrays are otherwise as in `Features`.
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


@dataclasses.dataclass(frozen=True)
class Selection:
    """Settings of a detector's last steps."""

    #: Keypoints that are kept, those of the largest scores; equal scores in reading order.
    max_keypoints: int
    #: Of two detections whose x and y both differ by at most this many pixels, one stays.
    nms_radius: int
    #: Keypoints nearer than this many pixels to the centres of the outermost pixels are dropped.
    border: int
    #: Scores must be larger.
    threshold: float

    def __post_init__(self) -> None:
        integer(self.max_keypoints, "max_keypoints", 1)
        integer(self.nms_radius, "nms_radius", 0, _LARGEST)
        integer(self.border, "border", 0, _LARGEST)
        real(self.threshold, "threshold")

    def choose(self, points: FloatArray, size: tuple[int, int]) -> IndexArray:
        """Return which of the (N, 2) pixels, best first, are kept; `size` is width and height."""
        last = np.array(size) - 1 - self.border
        inside = ((points >= self.border) & (points <= last)).all(axis=1)
        return np.flatnonzero(inside)[: self.max_keypoints]


class Detector(abc.ABC):
    """Finds keypoints.

    `weights` and `offline` are as in `find_weights`. `dim` is the length of its own descriptors, or
    None when it only detects. `module` is the network, if any: moved between devices, and hashed
    for the cache.
    """

    #: Settings of the published code; None where the detector has no such setting.
    default_threshold: ClassVar[float | None] = None
    default_nms_radius: ClassVar[int | None] = None
    module: Any = None

    def __init__(
        self, model: Model, selection: Selection, *, weights: object = None, offline: bool = False
    ) -> None:
        self.model, self.selection = model, selection
        self.name, self.dim, self.licence = model.name, model.dim, model.licence
        self.open(weights, offline)

    def open(self, weights: object, offline: bool) -> None:  # noqa: B027 - most have something
        """Load what it needs."""

    @abc.abstractmethod
    def detect(self, image: NDArray[np.uint8]) -> Keypoints:
        """Find keypoints of an (H, W, 3) uint8 RGB image, already resized."""

    def settings(self) -> dict[str, object]:
        """Everything that changes a number, apart from the weights, for records and cache keys."""
        return {"name": self.name, **dataclasses.asdict(self.selection)}


def by_score(scores: NDArray[np.float32]) -> IndexArray:
    """Order of falling scores, where equal ones stay as they are."""
    return np.argsort(-scores, kind="stable").astype(np.int64, copy=False)


def first_places(points: FloatArray) -> tuple[IndexArray, IndexArray]:
    """Return the first of the (N, 2) points at every place, and for each point which of these.

    Places are in the order of their first points.
    """
    # Sorting complex numbers sorts by both coordinates; adding zero makes -0 and 0 one place.
    places = (points[:, 0] + 0.0) + 1j * (points[:, 1] + 0.0)
    _, first, which = np.unique(places, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    return first[order].astype(np.int64), number[which.reshape(-1)].astype(np.int64)
