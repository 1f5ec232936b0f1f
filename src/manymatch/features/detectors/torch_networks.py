"""Detectors whose networks torch runs: SuperPoint in the code of transformers, DISK in kornia's."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from manymatch._validate import FloatArray, require
from manymatch.features.detectors.networks import NetworkDetector
from manymatch.features.device import inference, works_now
from manymatch.features.weights import load_weights

if TYPE_CHECKING:
    from manymatch.features.detectors import Selection
    from manymatch.features.registry import Model

_Map = NDArray[np.float32]

# SuperPoint has one score map of this many pixels squared per cell.
_CELL = 8


class TorchDetector(NetworkDetector):
    """A detector in torch; a subclass writes `build`, `run` and `sample`."""

    module: torch.nn.Module

    def __init__(
        self, model: Model, selection: Selection, *, weights: object, offline: bool
    ) -> None:
        super().__init__(model, selection, weights=weights, offline=offline)
        self.module = load_weights(model, self.build, weights, offline)

    @abc.abstractmethod
    def build(self) -> Any:
        """Make the network without weights."""

    @abc.abstractmethod
    def run(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Run the network on (1, 3, H, W) pixels, RGB in [0, 1].

        Returns (h, w) scores, and what `sample` needs.
        """

    @abc.abstractmethod
    def sample(self, features: Tensor, points: Tensor) -> Any:
        """Return (N, D) descriptors of length one at N > 0 pixels."""

    def maps(self, image: NDArray[np.uint8]) -> tuple[_Map, Tensor]:
        """Run the network on the device on which it is."""
        device = next(self.module.parameters()).device
        with inference(device):
            whole = torch.from_numpy(np.ascontiguousarray(image)).to(device)
            pixels = whole.permute(2, 0, 1)[None].to(torch.float32) / 255.0
            scores, features = self.run(pixels)
            return scores.cpu().numpy(), features

    def describe(self, features: Tensor, points: FloatArray) -> _Map:
        """Return descriptors of length one."""
        with inference(features.device):
            places = torch.from_numpy(points).to(features.device, torch.float32)
            found: _Map = self.sample(features, places).cpu().numpy()
            return found


class SuperPoint(TorchDetector):
    """Keypoints at whole pixels.

    As in the published code, the rows and columns beyond the last complete cell of 8 pixels are
    not looked at, and the border counts from there.
    """

    default_threshold = 0.0005
    default_nms_radius = 4
    nms_rounds = 2

    def build(self) -> Any:
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

    def run(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Score of every pixel and the encoding of every cell."""
        rows, columns = (length // _CELL for length in pixels.shape[-2:])
        if rows == 0 or columns == 0:
            return pixels.new_zeros(0, 0), pixels
        weights = pixels.new_tensor((0.299, 0.587, 0.114)).reshape(1, 3, 1, 1)
        encoded = self.module.encoder((pixels * weights).sum(dim=1, keepdim=True))[0]
        _, scores = self.module.keypoint_decoder(encoded)
        return scores.reshape(rows * _CELL, columns * _CELL), encoded

    def sample(self, features: Tensor, points: Tensor) -> Any:
        """Descriptors, bilinear between cells."""
        return self.module.descriptor_decoder(features, points[None])


class Disk(TorchDetector):
    """Keypoints at whole pixels; the scores are logits.

    Measured on photographs and their halves, and by epipolar errors on pairs of known pose,
    positions are about 0.3 px too large in x and y. This effect of the training is far smaller than
    the spread of the positions, and is not corrected.
    """

    default_threshold = 0.0
    default_nms_radius = 2

    def build(self) -> Any:
        """Make the network without weights."""
        kornia = require("kornia.feature", f"the detector {self.name!r}", "features", works_now)
        return kornia.DISK()

    def run(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Score and descriptor of every pixel."""
        height, width = pixels.shape[-2:]
        # Four halvings of the image; the normalisation of the smallest level needs more than one
        # pixel.
        padded = pad_to(pixels, 16, smallest=32)
        scores, descriptors = self.module.heatmap_and_dense_descriptors(padded)
        return scores[0, 0, :height, :width], descriptors[0]

    def sample(self, features: Tensor, points: Tensor) -> Any:
        """Descriptors of whole pixels."""
        x, y = points.long().T
        return functional.normalize(features[:, y, x].T, dim=1)


def pad_to(pixels: Tensor, multiple: int, smallest: int = 1) -> Tensor:
    """Repeat the last row and column of (B, C, H, W) pixels up to a multiple of some length.

    An edge to black would attract keypoints and change the mean that these networks normalise by.
    """
    height, width = pixels.shape[-2:]
    right, bottom = (
        max(-(-length // multiple) * multiple, smallest) - length for length in (width, height)
    )
    return (
        functional.pad(pixels, (0, right, 0, bottom), mode="replicate")
        if right or bottom
        else pixels
    )
