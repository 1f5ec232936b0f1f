"""Detectors without a network: SIFT of OpenCV with RootSIFT descriptors, and a regular grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import integer, require
from manymatch.features.detectors import Detector, Keypoints, by_score, first_places, suppress

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Without the precise enlargement every position is 0.25 px too large in x and in y: OpenCV maps
# positions of the enlarged image back by x / 2 only.
_SIFT: dict[str, Any] = {
    "nOctaveLayers": 3,
    "edgeThreshold": 10.0,
    "sigma": 1.6,
    "enable_precise_upscale": True,
}
# Below this the pyramid has no level with room for an extremum, and OpenCV may fail.
_SMALLEST = 16
_LENGTH = 128
# Keypoints that are described, for each that is wanted.
_SPARE = 2
# Pixels per patch of a grid.
_STRIDE = 16


class Sift(Detector):
    """Corners and blobs of a difference-of-Gaussians pyramid.

    One keypoint a position. Where OpenCV reports several orientations, which all have the same
    score, the keypoint's descriptor is that of the first and those of the others are in `further`.
    The threshold is OpenCV's contrast threshold; the scores are contrasts.
    """

    #: Half of OpenCV's contrast threshold: images of low contrast (thermal) keep enough keypoints,
    #: and others take the best of more.
    default_threshold = 0.02
    default_nms_radius = 0

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._cv2 = require("cv2", f"the detector {self.name!r}", "images")

    def detect(self, image: NDArray[np.uint8]) -> Keypoints:
        """Find keypoints of an (H, W, 3) RGB image."""
        height, width = image.shape[:2]
        none = np.zeros((0, 2)), np.zeros(0, np.float32), np.zeros((0, _LENGTH), np.float32)
        if min(height, width) < _SMALLEST:
            return Keypoints(*none)
        grey = self._cv2.cvtColor(image, self._cv2.COLOR_RGB2GRAY)
        wanted = self.selection.max_keypoints
        # Most of the time goes to descriptors, so they are computed for the best only, if these
        # are enough: some have several orientations, and those at the border are dropped.
        # OpenCV keeps the best, with all that are as good; 0 keeps all.
        for most in (_SPARE * wanted, 0):
            limits = {"nfeatures": most, "contrastThreshold": self.selection.threshold}
            found, descriptors = self._cv2.SIFT_create(**limits, **_SIFT).detectAndCompute(
                grey, None
            )
            if not found:
                return Keypoints(*none)
            points = self._cv2.KeyPoint.convert(found).astype(np.float64)
            size, angle, octave, response = (
                np.array([getattr(keypoint, name) for keypoint in found])
                for name in ("size", "angle", "octave", "response")
            )
            scores = response.astype(np.float32)
            # OpenCV's order where it keeps all, which does not depend on how many are kept.
            listed = np.lexsort((-octave, -scores, angle, -size, points[:, 1], points[:, 0]))
            order = listed[by_score(scores[listed])]
            order = order[suppress(points[order], self.selection.nms_radius)]
            chosen = order[self.selection.choose(points[order], (width, height))]
            if len(chosen) == wanted or len(found) < most:
                break
        # Orientations of one place are equal to the last bit.
        first, place = first_places(points)
        owner = np.full(len(first), -1)
        owner[place[chosen]] = np.arange(len(chosen))
        owners = owner[place]
        owners[chosen] = -1
        others = listed[owners[listed] >= 0]
        own, further = (root_sift(descriptors[rows]) for rows in (chosen, others))
        return Keypoints(points[chosen], scores[chosen], own, further, owners[others])

    def settings(self) -> dict[str, object]:
        """Everything that changes a number."""
        return {**super().settings(), **_SIFT}


def root_sift(descriptors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale (N, D) histograms to sum one, take roots: Hellinger similarity as cosine.

    The result has length one; a row of zeros stays.
    """
    total = descriptors.sum(axis=1, keepdims=True, dtype=np.float64)
    shares = descriptors / np.where(total > 0.0, total, 1.0)
    return np.sqrt(shares).astype(np.float32)


class Grid(Detector):
    """Centres of the complete square patches of an image, in reading order.

    Where there are more than `max_keypoints`, every second row and column is taken, or every
    third, and so on, until there are few enough: the grid stays regular, its points stay centres.
    The variant is the number of pixels per patch. Scores do not exist, nor does a threshold.
    """

    def __init__(self, *arguments: Any, variant: str = "", **settings: Any) -> None:
        super().__init__(*arguments, variant=variant, **settings)
        self.stride = integer(int(variant or _STRIDE), "stride", 1, 65_536)

    @classmethod
    def is_variant(cls, variant: str) -> bool:
        """Tell whether a text is a number of pixels."""
        return variant.isdecimal()

    def detect(self, image: NDArray[np.uint8]) -> Keypoints:
        """Return the centres that are not in the border, all with score 1."""
        axes, border = [], self.selection.border
        for length in (image.shape[1], image.shape[0]):
            centres = np.arange(length // self.stride) * self.stride + (self.stride - 1) / 2
            axes.append(centres[(centres >= border) & (centres <= length - 1 - border)])
        step = 1
        while len(axes[0][::step]) * len(axes[1][::step]) > self.selection.max_keypoints:
            step += 1
        columns, rows = np.meshgrid(*(axis[::step] for axis in axes))
        points = np.stack([columns.ravel(), rows.ravel()], axis=1)
        return Keypoints(points, np.ones(len(points), dtype=np.float32))

    def settings(self) -> dict[str, object]:
        """Everything that changes a number."""
        return {**super().settings(), "stride": self.stride}
