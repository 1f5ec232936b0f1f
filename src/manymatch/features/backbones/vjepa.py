"""V-JEPA 2.1: transformers pretrained on videos, used on one frame.

No library has them, so the networks are written out here and take the published checkpoints. Four
blocks have norms of their own (6, 12, 18 and 24 of ViT-L); any other layer is normed by the last
one, which is not what the network was trained with: compare such layers with ``norm=False`` too.
"""

from __future__ import annotations

import functools
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
    from pathlib import Path

    import torch

# (width, hidden width, blocks with norms of their own, entry of the checkpoint). The two smaller
# ones are distilled, and published as a moving average.
_SIZES = {
    "vjepa2.1-vitb16": (768, 3072, (3, 6, 9, 12), "ema_encoder"),
    "vjepa2.1-vitl16": (1024, 4096, (6, 12, 18, 24), "ema_encoder"),
    "vjepa2.1-vitg16": (1408, 6144, (10, 20, 30, 40), "target_encoder"),
    "vjepa2.1-vitG16": (1664, 8192, (12, 24, 38, 48), "target_encoder"),
}
_PREFIXES = re.compile(r"^(module\.|backbone\.)+")


class VJepa(Backbone):
    """One of the published encoders."""

    patch_size = 16

    def __init__(self, name: str, weights: object = None, offline: bool = False) -> None:
        self.name = name
        self.licence = MODELS[name].licence
        dim, hidden, normed, entry = _SIZES[name]
        self.dim, self.num_layers = dim, normed[-1]
        found = find_weights(MODELS[name], weights, offline)
        torch = require_torch()
        from manymatch.features.backbones._vjepa import Network, Size

        with torch.device("meta"):
            empty = Network(Size(dim, hidden, normed))
        # Every number is set below: drawing a billion of them first would be a waste.
        module = empty.to_empty(device="cpu")
        if found == RANDOM:
            self.module = random_weights(module)
        else:
            self.module = load_strictly(module, _encoder(found, entry), name)

    def forward(
        self, pixels: torch.Tensor, layers: Sequence[int], norm: bool
    ) -> dict[int, torch.Tensor]:
        """Compute maps; see `Backbone.forward`."""
        maps: dict[int, torch.Tensor] = self.module(pixels, layers, norm)
        return maps


def _encoder(path: Path, entry: str) -> dict[str, torch.Tensor]:
    """Read the tensors of the encoder, and drop what training put before their names."""
    # Only checkpoints hold several networks, of which one is wanted.
    several = path.is_file() and path.suffix.lower() != ".safetensors"
    state = load_state(path, entry if several else None)
    return {_PREFIXES.sub("", key): value for key, value in state.items()}


for _name in _SIZES:
    register_backbone(_name)(functools.partial(VJepa, _name))
