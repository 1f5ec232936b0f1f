"""Detectors without a network: SIFT (with RootSIFT descriptors) and ORB of OpenCV, and a grid."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import IndexArray, require
from manymatch.features.detectors import Detector, Keypoints, by_score, first_places

# Without the precise enlargement every position is 0.25 px too large in x and in y: OpenCV maps
# positions of the enlarged image back by x / 2 only.
_SIFT: dict[str, Any] = {
    "nOctaveLayers": 3,
    "edgeThreshold": 10.0,
    "sigma": 1.6,
    "enable_precise_upscale": True,
}
# All keypoints: fewer would be shared out among the levels of the pyramid.
_ORB: dict[str, Any] = {"nfeatures": 1_000_000, "scaleFactor": 1.2, "nlevels": 8}
# Below this the pyramid has no level with room for an extremum, and OpenCV may fail.
_SMALLEST = 16
# OpenCV counts orientations, not keypoints, and a fifth of the keypoints has several. We ask for
# 1.4 descriptors per wanted keypoint, then for 2, then for all, until there are enough keypoints.
_SPARE = (1.4, 2.0)
# Pixels per patch of a grid.
_STRIDE = 16


class _OfOpenCv(Detector):
    """What the detectors of OpenCV have in common."""

    def open(self, weights: object, offline: bool) -> None:  # noqa: ARG002
        """Import OpenCV."""
        self._cv2 = require("cv2", f"the detector {self.name!r}", "images")

    def _run(self, engine: Any, image: NDArray[np.uint8]) -> tuple[Any, Any, Any, Any]:
        """Return points, scores, pyramid levels and descriptors of all keypoints.

        Their order is that of OpenCV where it keeps all, which does not depend on how many it
        keeps: by position, falling size, angle, falling score, falling level.
        """
        found: Any = ()
        descriptors = None
        if min(image.shape[:2]) >= _SMALLEST:
            grey = self._cv2.cvtColor(image, self._cv2.COLOR_RGB2GRAY)
            found, descriptors = engine.detectAndCompute(grey, None)
        if descriptors is None:
            descriptors = np.zeros((0, self.dim or 0), np.uint8)
        points = np.array([keypoint.pt for keypoint in found]).reshape(-1, 2)
        size, angle, octave, response = (
            np.array([getattr(keypoint, name) for keypoint in found])
            for name in ("size", "angle", "octave", "response")
        )
        order = np.lexsort((-octave, -response, angle, -size, points[:, 1], points[:, 0]))
        scores = response[order].astype(np.float32)
        return points[order], scores, octave[order], descriptors[order]

    def _choose(self, points: Any, scores: Any, image: NDArray[np.uint8]) -> IndexArray:
        order = by_score(scores)
        order = order[first_places(points[order])[0]]
        return order[self.selection.choose(points[order], (image.shape[1], image.shape[0]))]


class Sift(_OfOpenCv):
    """Corners and blobs of a difference-of-Gaussians pyramid.

    One keypoint a position. Where OpenCV reports several orientations, which all have the same
    score, the keypoint's descriptor is that of the first and those of the others are in `further`.
    The threshold is OpenCV's contrast threshold; the scores are contrasts.
    """

    #: Half of OpenCV's contrast threshold: images of low contrast (thermal) keep enough keypoints,
    #: and others take the best of more.
    default_threshold = 0.02

    def detect(self, image: NDArray[np.uint8]) -> Keypoints:
        """Find keypoints of an (H, W, 3) RGB image."""
        wanted = self.selection.max_keypoints
        # Most of the time goes to descriptors, so they are computed for the best only, if these
        # are enough: some have several orientations, and those at the border are dropped.
        # OpenCV keeps the best, with all that are as good; 0 keeps all.
        for most in (*(round(spare * wanted) for spare in _SPARE), 0):
            limits = {"nfeatures": most, "contrastThreshold": self.selection.threshold}
            engine = self._cv2.SIFT_create(**limits, **_SIFT)
            points, scores, _, descriptors = self._run(engine, image)
            chosen = self._choose(points, scores, image)
            if len(chosen) == wanted or len(points) < most:
                break
        # Orientations of one place are equal to the last bit.
        first, place = first_places(points)
        owner = np.full(len(first), -1)
        owner[place[chosen]] = np.arange(len(chosen))
        owners = owner[place]
        owners[chosen] = -1
        others = np.flatnonzero(owners >= 0)
        own, further = (root_sift(descriptors[rows]) for rows in (chosen, others))
        return Keypoints(points[chosen], scores[chosen], own, further, owners[others])

    def settings(self) -> dict[str, object]:
        """Everything that changes a number."""
        return {**super().settings(), **_SIFT}


class Orb(_OfOpenCv):
    """FAST corners in a pyramid, with binary descriptors: 256 bits packed into 32 bytes (uint8).

    The threshold is that of FAST in grey levels, the scores are Harris responses. OpenCV maps
    positions back by ``x * 1.2 ** level``; here they are mapped as the levels were resized, which
    removes an offset of up to a pixel.
    """

    default_threshold = 20.0

    def detect(self, image: NDArray[np.uint8]) -> Keypoints:
        """Find keypoints of an (H, W, 3) RGB image."""
        engine = self._cv2.ORB_create(**_ORB, fastThreshold=round(self.selection.threshold))
        points, scores, level, descriptors = self._run(engine, image)
        scale = _ORB["scaleFactor"] ** level[:, None]
        size = np.array([image.shape[1], image.shape[0]])
        points = (points / scale + 0.5) * (size / np.rint(size / scale)) - 0.5
        chosen = self._choose(points, scores, image)
        return Keypoints(points[chosen], scores[chosen], descriptors[chosen])

    def settings(self) -> dict[str, object]:
        """Everything that changes a number."""
        return {**super().settings(), **_ORB}


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
    Scores do not exist, nor does a threshold.
    """

    def detect(self, image: NDArray[np.uint8]) -> Keypoints:
        """Return the centres that are not in the border, all with score 1."""
        axes, border = [], self.selection.border
        for length in (image.shape[1], image.shape[0]):
            centres = np.arange(length // _STRIDE) * _STRIDE + (_STRIDE - 1) / 2
            axes.append(centres[(centres >= border) & (centres <= length - 1 - border)])
        step = 1
        while len(axes[0][::step]) * len(axes[1][::step]) > self.selection.max_keypoints:
            step += 1
        columns, rows = np.meshgrid(*(axis[::step] for axis in axes))
        points = np.stack([columns.ravel(), rows.ravel()], axis=1)
        return Keypoints(points, np.ones(len(points), dtype=np.float32))

    def settings(self) -> dict[str, object]:
        """Everything that changes a number."""
        return {**super().settings(), "stride": _STRIDE}
