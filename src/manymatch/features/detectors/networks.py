"""Detectors that are networks: the choice of keypoints from a map of scores."""

from __future__ import annotations

import abc
import itertools
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import FloatArray, IndexArray, require
from manymatch.features.detectors import Detector, Keypoints, by_score
from manymatch.features.weights import load_network

if TYPE_CHECKING:
    from manymatch.features.network import Network, Tensors

_Map = NDArray[np.float32]


class NetworkDetector(Detector):
    """A network that gives a map of scores of the image's size and descriptors at chosen pixels.

    A subclass writes `maps` and `describe`; the choice of keypoints is the same for all.
    """

    #: How often peaks are looked for again beside those found.
    nms_rounds: ClassVar[int] = 0

    @abc.abstractmethod
    def maps(self, image: NDArray[np.uint8]) -> tuple[_Map, Any]:
        """Run the network on an (H, W, 3) RGB image.

        Returns (h, w) scores with h <= H, w <= W in which peaks are found, and what the other
        methods need.
        """

    def ranking(self, scores: _Map, points: FloatArray, features: Any) -> _Map:  # noqa: ARG002
        """Return by what keypoints are sorted: their scores, unless a subclass knows better."""
        return scores

    def refine(self, scores: _Map, peaks: IndexArray) -> FloatArray:  # noqa: ARG002
        """Positions of (N, 2) peaks: whole pixels, unless a subclass refines them."""
        return peaks.astype(np.float64)

    @abc.abstractmethod
    def describe(self, features: Any, points: FloatArray) -> _Map:
        """Return (N, D) descriptors of length one at N > 0 pixels."""

    def detect(self, image: NDArray[np.uint8]) -> Keypoints:
        """Find keypoints of an (H, W, 3) RGB image, on the device on which the module is."""
        scores, features = self.maps(image)
        limits = self.selection.nms_radius, self.selection.threshold
        peaks = find_peaks(scores, *limits, self.nms_rounds)
        x, y = peaks.T
        values = self.ranking(scores[y, x], peaks.astype(np.float64), features)
        order = by_score(values)
        points = self.refine(scores, peaks[order])
        kept = self.selection.choose(points, (scores.shape[1], scores.shape[0]))
        descriptors: _Map = np.zeros((0, self.dim or 0), np.float32)
        if len(kept):
            descriptors = self.describe(features, points[kept])
        return Keypoints(
            points[kept],
            values[order][kept].astype(np.float32),
            np.ascontiguousarray(descriptors, dtype=np.float32),
        )

    def settings(self) -> dict[str, object]:
        """Everything that changes a number, apart from the weights."""
        return {**super().settings(), "nms_rounds": self.nms_rounds}


class OperatorDetector(NetworkDetector):
    """A detector whose network is a list of operators; a subclass writes `build` as well."""

    def open(self, weights: object, offline: bool) -> None:
        """Load the network, and the names of its values."""
        self.module, self.values = load_network(self.model, self.build, weights, offline)

    @abc.abstractmethod
    def build(self, tensors: Tensors) -> tuple[Network, dict[str, str]]:
        """Write the network down; return also the names of its values."""


def find_peaks(scores: _Map, radius: int, threshold: float, rounds: int = 0) -> IndexArray:
    """Find the local maxima above a threshold of an (H, W) map, best first.

    A peak is larger than all others in the square of ``2 radius + 1`` pixels around it; of equal
    ones the first in reading order counts as the largest. Then, `rounds` times, peaks are looked
    for again outside the squares of those found, as SuperPoint does. Returns (N, 2) pixels (x, y)
    by falling score, equal ones in reading order.
    """
    cv2 = require("cv2", "finding keypoints", "images")
    square = np.ones((2 * radius + 1, 2 * radius + 1), np.uint8)
    # Squares reach beyond the map.
    left = np.pad(scores, radius, constant_values=-np.inf)
    left[~(left > threshold)] = -np.inf
    found = np.zeros(left.shape, bool)
    for _ in range(rounds + 1):
        found |= _largest(left, cv2.dilate(left, square) if radius else left, radius)
        if rounds:
            left[cv2.dilate(found.view(np.uint8), square) > 0] = -np.inf
    y, x = (places - radius for places in np.nonzero(found))
    return np.stack([x, y], axis=1)[by_score(scores[y, x])]


def _largest(scores: _Map, highest: _Map, radius: int) -> NDArray[np.bool_]:
    """Tell which pixels are the largest of their squares, or the first of those."""
    largest = (scores == highest) & (scores > -np.inf)
    y, x = np.nonzero(largest)
    around = range(-radius, radius + 1)
    for dy, dx in itertools.product(around, around):
        if (dy, dx) < (0, 0):
            largest[y, x] &= scores[y + dy, x + dx] < scores[y, x]
    return np.asarray(largest)
