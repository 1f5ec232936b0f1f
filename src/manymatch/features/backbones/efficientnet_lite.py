"""EfficientNet-Lite0: a small convolutional network whose weights install with pip.

Trained to classify ImageNet; its middle blocks are a general-purpose representation of 0.7 million
parameters that runs anywhere. Layer k is block k as the published weights count them, from 0; block
0 belongs to the stem and has no number of its own. The last blocks of their strides are the ones to
use: 4 (stride 8, 40 channels) and 10 (stride 16, 112 channels).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from manymatch.features.backbones import Backbone
from manymatch.features.network import Network, Tensors
from manymatch.features.weights import load_network

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
        self.module, self.values = load_network(model, build_network, weights, offline)

    def stride_of(self, layer: int) -> int:
        """Input pixels per cell: 4 for layers 1 and 2, 8 to 4, 16 to 10, 32 to 15."""
        return next(stride for last, stride, _ in _GEOMETRY if layer <= last)

    def origin_of(self, layer: int) -> float:
        """Centre of the first cell of a layer in input pixels."""
        return next(centre for last, _, centre in _GEOMETRY if layer <= last)


def build_network(tensors: Tensors) -> tuple[Network, dict[int, str]]:
    """Write down stem and blocks, and return the values of the numbered blocks.

    Names of tensors are those of the published weights less their underscores. A block is an
    inverted bottleneck: widen, filter each channel, narrow; it is added to its input where the
    shapes allow it.
    """
    network = Network(tensors)

    def convolve(x: str, name: str, norm: str, shape: tuple[int, ...], stride: int = 1) -> str:
        # Every convolution turns n cells into n // stride. The odd zero goes to the right and the
        # bottom.
        around = shape[2] - stride
        before, after = around // 2, around - around // 2
        return network.convolve(
            x, name, shape, norm=norm, eps=1e-3, pads=(before, before, after, after),
            strides=(stride, stride), group=1 if shape[1] > 1 else shape[0],
        )  # fmt: skip

    def relu6(x: str) -> str:
        return network.add("Clip", x, np.float32(0.0), np.float32(6.0))

    x = network.input("pixels", 4)
    x = relu6(convolve(x, "conv_stem", "bn0", (_STEM, 3, 3, 3), 2))
    values: dict[int, str] = {}
    channels = _STEM
    for count, kernel, first_stride, expansion, out in _STAGES:
        for i in range(count):
            block, stride = f"blocks.{len(values)}", first_stride if i == 0 else 1
            wide, y = channels * expansion, x
            if expansion > 1:
                shape = (wide, channels, 1, 1)
                y = relu6(convolve(y, f"{block}.expand_conv", f"{block}.bn0", shape))
            filters = (wide, 1, kernel, kernel)
            y = relu6(convolve(y, f"{block}.depthwise_conv", f"{block}.bn1", filters, stride))
            y = convolve(y, f"{block}.project_conv", f"{block}.bn2", (out, wide, 1, 1))
            x = network.add("Add", y, x) if (channels, stride) == (out, 1) else y
            values[len(values)], channels = x, out
    return network, values
