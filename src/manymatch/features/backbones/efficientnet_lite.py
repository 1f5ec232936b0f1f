"""EfficientNet-Lite0: a small convolutional network whose weights install with pip.

Trained to classify ImageNet; its middle blocks are a general-purpose representation of 0.7 million
parameters that runs anywhere. Layer k is block k as the published weights count them, from 0; block
0 belongs to the stem and has no number of its own. The last blocks of their strides are the ones to
use: 4 (stride 8, 40 channels) and 10 (stride 16, 112 channels).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from manymatch.features.backbones import Backbone, Maps
from manymatch.features.weights import for_inference, load_weights

if TYPE_CHECKING:
    from manymatch.features.registry import Model

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
# (last layer, stride, centre of cell 0) in input pixels. The padding is asymmetric, and the weights
# partly compensate for it, so the centre was measured: it is the centroid of the input gradient,
# averaged over real images, both axes, cells and projections.
_GEOMETRY = ((2, 4, 2.5), (4, 8, 3.6), (7, 16, 10.0), (10, 16, 9.6), (15, 32, 18.0))


class EfficientNetLite0(Backbone):
    """EfficientNet-Lite0 up to its last block, without the classifier."""

    patch_size = 32
    dim = 320
    num_layers = 15
    # Bytes are brought to (value - 127) / 128.
    mean = (127 / 255,) * 3
    std = (128 / 255,) * 3
    has_norm = False
    margin = 16
    multiple = 32
    dim_varies = True

    def __init__(self, model: Model, weights: object = None, offline: bool = False) -> None:
        self.name, self.licence = model.name, model.licence
        network = load_weights(model, build_network, weights, offline)
        self.module = _padding_folded(for_inference(network))

    def forward(self, pixels: torch.Tensor, layers: Sequence[int], norm: bool) -> Maps:  # noqa: ARG002
        """Compute the blocks' outputs, (B, channels, H // stride, W // stride)."""
        network: Any = self.module
        relu6 = nn.ReLU6(inplace=True)
        x = relu6(network["conv_stem"](pixels))
        found = {}
        for k, block in enumerate(network["blocks"][: max(layers) + 1]):
            y = x
            if "expand_conv" in block:
                y = relu6(block["expand_conv"](y))
            y = relu6(block["depthwise_conv"](y))
            y = block["project_conv"](y)
            # A shortcut where the shapes allow it.
            x = y.add_(x) if x.shape == y.shape else y
            if k in layers:
                found[k] = x
        return found

    def stride_of(self, layer: int) -> int:
        """Input pixels per cell: 4 for layers 1 and 2, 8 to 4, 16 to 10, 32 to 15."""
        return next(stride for last, stride, _ in _GEOMETRY if layer <= last)

    def origin_of(self, layer: int) -> float:
        """Centre of the first cell of a layer in input pixels."""
        return next(centre for last, _, centre in _GEOMETRY if layer <= last)


def build_network() -> torch.nn.Module:
    """Make stem and blocks, with the names of the published weights less their underscores.

    A block is an inverted bottleneck: widen, filter each channel, narrow.
    """
    norm = functools.partial(nn.BatchNorm2d, eps=1e-3)
    blocks = []
    channels = _STEM
    for count, kernel, first_stride, expansion, out in _STAGES:
        for i in range(count):
            wide = channels * expansion
            stride = first_stride if i == 0 else 1
            widen = {"expand_conv": nn.Conv2d(channels, wide, 1, bias=False), "bn0": norm(wide)}
            filters = {
                "depthwise_conv": nn.Conv2d(wide, wide, kernel, stride, groups=wide, bias=False),
                "bn1": norm(wide),
                "project_conv": nn.Conv2d(wide, out, 1, bias=False),
                "bn2": norm(out),
            }
            blocks.append(nn.ModuleDict({**(widen if expansion > 1 else {}), **filters}))
            channels = out
    stem = {"conv_stem": nn.Conv2d(3, _STEM, 3, 2, bias=False), "bn0": norm(_STEM)}
    return nn.ModuleDict({**stem, "blocks": nn.ModuleList(blocks)})


def _padding_folded(network: torch.nn.Module) -> torch.nn.Module:
    """Let every convolution turn n cells into n // stride, with zeros around the map.

    With stride 2 the odd zero goes to the right and bottom. Torch pads both sides alike, so such a
    kernel begins with a row and a column of zeros, over a zero too many: cheaper than a padded copy
    of the map.
    """
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            size = layer.kernel_size[0]
            layer.padding = (size // 2, size // 2)
            if layer.stride[0] == 2:
                padded = nn.functional.pad(layer.weight, (1, 0, 1, 0))
                layer.weight = nn.Parameter(padded, requires_grad=False)
                layer.kernel_size = (size + 1, size + 1)
    return network
