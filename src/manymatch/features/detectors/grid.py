"""Keypoints on a regular grid: the centres of patches, for diagnostics of dense features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import integer
from manymatch.features.detectors.base import Detector, Keypoints
from manymatch.features.registry import Model, register_detector

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STRIDE = 16


@register_detector(Model("grid", "detector", "grid", licence="BSD-3-Clause", libraries=()))
class Grid(Detector):
    """Centres of the complete square patches of an image, in reading order.

    Where there are more than `max_keypoints`, every second row and column is taken, or every
    third, and so on, until there are few enough: the grid stays regular, its points stay centres.
    The variant is the number of pixels per patch. Scores do not exist, nor does a threshold.
    """

    def __init__(self, *arguments: Any, variant: str = "", **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.stride = integer(int(variant or _STRIDE), "stride", 1, 65_536)

    @classmethod
    def is_variant(cls, variant: str) -> bool:
        """Tell whether a text is a number of pixels."""
        return variant.isdecimal()

    def detect(self, image: NDArray[np.uint8]) -> Keypoints:
        """Return the centres, all with score 1."""
        height, width = image.shape[:2]
        x, y = (self._centres(length) for length in (width, height))
        step = 1
        while len(x[::step]) * len(y[::step]) > self.selection.max_keypoints:
            step += 1
        columns, rows = np.meshgrid(x[::step], y[::step])
        points = np.stack([columns.ravel(), rows.ravel()], axis=1)
        return Keypoints(points, np.ones(len(points), dtype=np.float32))

    def settings(self) -> dict[str, object]:
        """Everything that changes a number."""
        return {
            "name": self.name,
            "stride": self.stride,
            "max_keypoints": self.selection.max_keypoints,
            "border": self.selection.border,
        }

    def _centres(self, length: int) -> NDArray[np.float64]:
        """Centres along one axis that are not in the border."""
        centres = np.arange(length // self.stride, dtype=np.float64) * self.stride
        centres += (self.stride - 1) / 2
        border = self.selection.border
        return centres[(centres >= border) & (centres <= length - 1 - border)]
