"""SuperPoint, whose network torch runs in the code of transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manymatch._validate import FloatArray, require
from manymatch.features.detectors.networks import NetworkDetector
from manymatch.features.device import inference, works_now
from manymatch.features.weights import load_weights

_Map = NDArray[np.float32]

# There is one score map of this many pixels squared per cell.
_CELL = 8


class SuperPoint(NetworkDetector):
    """Keypoints at whole pixels.

    As in the published code, the rows and columns beyond the last complete cell of 8 pixels are
    not looked at, and the border counts from there.
    """

    default_threshold = 0.0005
    default_nms_radius = 4
    nms_rounds = 2

    def open(self, weights: object, offline: bool) -> None:
        """Load the network."""
        self.module = load_weights(self.model, self._build, weights, offline)

    def _build(self) -> Any:
        """Make the network without weights, and without a choice of keypoints of its own.

        That of transformers leaves the border at the right and the bottom, and keeps ties.
        """
        transformers = require("transformers", f"the detector {self.name!r}", "features", works_now)
        settings = transformers.SuperPointConfig(
            keypoint_threshold=-1.0, max_keypoints=-1, nms_radius=0, border_removal_distance=0
        )
        # Kernels channels last keep all maps so, which is faster on CPUs.
        network = transformers.SuperPointForKeypointDetection(settings)
        return network.to(memory_format=torch.channels_last)

    def maps(self, image: NDArray[np.uint8]) -> tuple[_Map, Tensor]:
        """Score of every pixel and the encoding of every cell."""
        module: Any = self.module
        device = next(module.parameters()).device
        rows, columns = (length // _CELL for length in image.shape[:2])
        with inference(device):
            whole = torch.from_numpy(np.ascontiguousarray(image)).to(device)
            pixels = whole.permute(2, 0, 1)[None].to(torch.float32) / 255.0
            if rows == 0 or columns == 0:
                return np.zeros((0, 0), np.float32), pixels
            weights = pixels.new_tensor((0.299, 0.587, 0.114)).reshape(1, 3, 1, 1)
            encoded = module.encoder((pixels * weights).sum(dim=1, keepdim=True))[0]
            _, scores = module.keypoint_decoder(encoded)
            return scores.reshape(rows * _CELL, columns * _CELL).cpu().numpy(), encoded

    def describe(self, features: Tensor, points: FloatArray) -> _Map:
        """Descriptors of length one, bilinear between cells."""
        module: Any = self.module
        with inference(features.device):
            places = torch.from_numpy(points).to(features.device, torch.float32)
            found: _Map = module.descriptor_decoder(features, places[None]).cpu().numpy()
            return found
