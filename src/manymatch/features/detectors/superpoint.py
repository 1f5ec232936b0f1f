"""SuperPoint, in the implementation of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from manymatch._optional import require
from manymatch.features.detectors._network import NetworkDetector

if TYPE_CHECKING:
    import torch

_CELL = 8
_GREY = (0.299, 0.587, 0.114)


class SuperPoint(NetworkDetector):
    """Keypoints at whole pixels.

    As in the published code, the rows and columns beyond the last complete cell of 8 pixels are
    not looked at, and the border counts from there.
    """

    default_threshold: ClassVar[float] = 0.0005
    default_nms_radius: ClassVar[int] = 4
    nms_rounds: ClassVar[int] = 2

    def build(self) -> torch.nn.Module:
        """Make the network without weights, and without a choice of keypoints of its own.

        That of transformers leaves the border at the right and the bottom, and keeps ties.
        """
        transformers = require("transformers", f"the detector {self.name!r}", "features")
        settings = transformers.SuperPointConfig(
            keypoint_threshold=-1.0, max_keypoints=-1, nms_radius=0, border_removal_distance=0
        )
        network: torch.nn.Module = transformers.SuperPointForKeypointDetection(settings)
        return network

    def maps(self, pixels: torch.Tensor) -> tuple[torch.Tensor, None, torch.Tensor]:
        """Score of every pixel and the encoding of every cell."""
        rows, columns = (length // _CELL for length in pixels.shape[-2:])
        if rows == 0 or columns == 0:
            return pixels.new_zeros(0, 0), None, pixels
        weights = pixels.new_tensor(_GREY).reshape(1, 3, 1, 1)
        encoded = self.module.encoder((pixels * weights).sum(dim=1, keepdim=True))[0]
        _, scores = self.module.keypoint_decoder(encoded)
        return scores.reshape(rows * _CELL, columns * _CELL), None, encoded

    def describe(
        self, features: torch.Tensor, points: torch.Tensor, size: tuple[int, int]
    ) -> torch.Tensor:
        """Descriptors, bilinear between cells."""
        del size
        descriptors: torch.Tensor = self.module.descriptor_decoder(features, points[None])
        return descriptors
