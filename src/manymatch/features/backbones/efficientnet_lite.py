"""EfficientNet-Lite0: a small convolutional network whose weights install with pip.

Trained to classify ImageNet; its middle blocks are a general-purpose representation of 0.7 million
parameters that runs anywhere. Layer k is block k as the published weights count them, from 0; block
0 belongs to the stem and has no number of its own. The last blocks of their strides are the ones to
use: 4 (stride 8, 40 channels) and 10 (stride 16, 112 channels).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from manymatch.features.backbone import Backbone
from manymatch.features.catalogue import MODELS
from manymatch.features.device import require_torch
from manymatch.features.registry import register_backbone
from manymatch.features.weights import (
    RANDOM,
    find_weights,
    load_state,
    load_strictly,
    random_weights,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

NAME = "efficientnet-lite0"
# (last layer, stride, where cell 0 looks at) in input pixels. The padding is lopsided, and the
# weights have learned to make up for part of it, so the last is no matter of arithmetic: it is the
# centroid of the input gradient, averaged over real images, both axes, cells and projections.
_GEOMETRY = ((2, 4, 2.5), (4, 8, 3.6), (7, 16, 10.0), (10, 16, 9.6), (15, 32, 18.0))
# What only classification needs.
_HEAD = re.compile(r"^(conv_head|bn1|fc)\.")


@register_backbone(NAME)
class EfficientNetLite0(Backbone):
    """EfficientNet-Lite0 up to its last block, without the classifier."""

    name = NAME
    patch_size = 32
    dim = 320
    num_layers = 15
    # Bytes are brought to (value - 127) / 128.
    mean = (127 / 255,) * 3
    std = (128 / 255,) * 3
    licence = MODELS[NAME].licence
    has_norm = False
    margin = 16
    multiple = 32
    dim_varies = True

    def __init__(self, weights: object = None, offline: bool = False) -> None:
        found = find_weights(MODELS[NAME], weights, offline)
        require_torch()
        from manymatch.features.backbones._efficientnet_lite import Network

        module = Network()
        if found == RANDOM:
            self.module = random_weights(module)
        else:
            self.module = load_strictly(module, _renamed(load_state(found)), NAME)

    def forward(
        self,
        pixels: torch.Tensor,
        layers: Sequence[int],
        norm: bool,  # noqa: ARG002 - there is none
    ) -> dict[int, torch.Tensor]:
        """Compute the blocks' outputs, (B, channels, H // stride, W // stride)."""
        found: dict[int, torch.Tensor] = self.module(pixels, layers)
        return found

    def stride_of(self, layer: int) -> int:
        """Input pixels per cell: 4 for layers 1 and 2, 8 to 4, 16 to 10, 32 to 15."""
        return _stage(layer)[1]

    def origin_of(self, layer: int) -> float:
        """Where cell 0 looks at, in input pixels."""
        return _stage(layer)[2]


def _stage(layer: int) -> tuple[int, int, float]:
    return next(stage for stage in _GEOMETRY if layer <= stage[0])


def _renamed(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Drop the underscores with which published names begin, and the classifier."""
    names = {key: re.sub(r"(^|\.)_", r"\1", key) for key in state}
    return {names[key]: value for key, value in state.items() if not _HEAD.match(names[key])}
