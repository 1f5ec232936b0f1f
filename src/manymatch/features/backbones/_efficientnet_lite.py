"""The layers of EfficientNet-Lite0; imports torch, so is imported only when a network is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

_STEM = 32
# (blocks, kernel, stride of the first block, expansion, channels) of each stage.
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class Network(nn.Module):  # type: ignore[misc]
    """Stem and blocks, with the names of the published weights less their underscores."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_stem = nn.Conv2d(3, _STEM, 3, 2, bias=False)
        self.bn0 = _norm(_STEM)
        blocks = []
        channels = _STEM
        for count, kernel, stride, expansion, out in _STAGES:
            for i in range(count):
                blocks.append(_Block(channels, out, kernel, stride if i == 0 else 1, expansion))
                channels = out
        self.blocks = nn.ModuleList(blocks)

    def forward(self, pixels: torch.Tensor, layers: Sequence[int]) -> dict[int, torch.Tensor]:
        """Return the outputs of some blocks, counted from 0, and stop at the last of them."""
        x = functional.relu6(self.bn0(_padded(self.conv_stem, pixels)))
        found = {}
        for k, block in enumerate(self.blocks[: max(layers) + 1]):
            x = block(x)
            if k in layers:
                found[k] = x
        return found


class _Block(nn.Module):  # type: ignore[misc]
    """Inverted bottleneck: widen, filter each channel, narrow; a shortcut where shapes allow."""

    def __init__(self, into: int, out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = into * expansion
        self.shortcut = stride == 1 and into == out
        self.expand_conv = nn.Conv2d(into, wide, 1, bias=False) if expansion > 1 else None
        self.bn0 = _norm(wide) if expansion > 1 else None
        self.depthwise_conv = nn.Conv2d(wide, wide, kernel, stride, groups=wide, bias=False)
        self.bn1 = _norm(wide)
        self.project_conv = nn.Conv2d(wide, out, 1, bias=False)
        self.bn2 = _norm(out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        if self.expand_conv is not None and self.bn0 is not None:
            y = functional.relu6(self.bn0(self.expand_conv(y)))
        y = functional.relu6(self.bn1(_padded(self.depthwise_conv, y)))
        y = self.bn2(self.project_conv(y))
        return x + y if self.shortcut else y


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


def _padded(convolution: nn.Conv2d, x: torch.Tensor) -> torch.Tensor:
    """Convolve so that n cells become n // stride; the odd zero goes to the right and bottom."""
    missing = convolution.kernel_size[0] - convolution.stride[0]
    before, after = missing // 2, missing - missing // 2
    return convolution(functional.pad(x, (before, after, before, after)))
