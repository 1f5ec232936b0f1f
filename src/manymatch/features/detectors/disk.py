"""DISK: a U-Net trained by policy gradient, with the layers of kornia."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from manymatch._optional import require
from manymatch.features.detectors._network import NetworkDetector, pad_to

if TYPE_CHECKING:
    import torch

# Four halvings of the image.
_MULTIPLE = 16
# The normalisation of the smallest level needs more than one pixel.
_SMALLEST = 32


class Disk(NetworkDetector):
    """Keypoints at whole pixels; the scores are logits.

    A peak's pixel is taken as its position. Measured on photographs and their halves, and by
    epipolar errors on pairs of known pose, positions are about 0.3 px too large in x and y: a habit
    of the training, far below the spread of the positions, and left as it is.
    """

    default_threshold: ClassVar[float] = 0.0
    default_nms_radius: ClassVar[int] = 2
    state_key: ClassVar[str | None] = "extractor"

    def build(self) -> torch.nn.Module:
        """Make the network without weights."""
        network: torch.nn.Module = require(
            "kornia.feature", f"the detector {self.name!r}", "features"
        ).DISK()
        return network

    def maps(self, pixels: torch.Tensor) -> tuple[torch.Tensor, None, torch.Tensor]:
        """Score of every pixel, and what goes into the last convolution.

        That convolution has one output for the score and 128 for the descriptor, which are wanted
        at few pixels: computing them there alone takes 0.4 of the time and a third of the memory
        (1024 x 768, one core).
        """
        from torch import cat
        from torch.nn.functional import conv2d

        height, width = pixels.shape[-2:]
        levels = [pad_to(pixels, _MULTIPLE, _SMALLEST)]
        for block in self.module.unet.path_down:
            levels.append(block(levels[-1]))
        values = levels.pop()
        *blocks, last = self.module.unet.path_up
        for block in blocks:
            values = block(values, levels.pop())
        *before, convolution = last.conv
        values = cat([last.upsample(values), levels.pop()], dim=1)
        for step in before:
            values = step(values)
        scores = conv2d(values, convolution.weight[-1:], convolution.bias[-1:], padding="same")
        return scores[0, 0, :height, :width], None, values[0]

    def describe(
        self, features: torch.Tensor, points: torch.Tensor, size: tuple[int, int]
    ) -> torch.Tensor:
        """Descriptors of whole pixels: the last convolution there."""
        import torch
        from torch.nn.functional import normalize, pad

        del size
        convolution = self.module.unet.path_up[-1].conv[-1]
        weight, bias = convolution.weight[:-1], convolution.bias[:-1]
        radius = weight.shape[-1] // 2
        offsets = torch.arange(2 * radius + 1, device=points.device)
        x, y = points.long().T
        padded = pad(features, (radius,) * 4)
        # (C, N, size, size): the window of every keypoint.
        windows = padded[:, (y[:, None] + offsets)[:, :, None], (x[:, None] + offsets)[:, None, :]]
        flat = windows.transpose(0, 1).reshape(len(points), -1)
        return normalize(flat @ weight.reshape(len(weight), -1).T + bias, dim=1)
