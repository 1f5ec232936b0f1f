"""SigLIP 2 in its NaFlex form, which keeps an image's shape within a budget of patches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch.features.backbones.transformers import (
    TokenBackbone,
    published_network,
    register_network,
)
from manymatch.features.device import require_torch
from manymatch.features.resize import Resize

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from manymatch.features.registry import Model

_HALF = (0.5, 0.5, 0.5)
_BUDGET = 1024
# The text encoder, and what compares the two.
_SPARE = ("text_model.", "logit_")


class Naflex(TokenBackbone):
    """An image encoder that is given patches instead of pixels."""

    def inputs(self, pixels: torch.Tensor) -> dict[str, Any]:
        """Cut (B, 3, H, W) pixels into (B, N, 3 * patch ** 2) patches, colours innermost."""
        torch = require_torch()
        patch = self.patch_size
        rows, columns = (length // patch for length in pixels.shape[2:])
        cells = pixels.unflatten(3, (columns, patch)).unflatten(2, (rows, patch))
        patches = cells.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
        size, device = len(pixels), pixels.device
        return {
            "pixel_values": patches,
            "pixel_attention_mask": torch.ones(size, rows * columns, dtype=torch.int32).to(device),
            "spatial_shapes": torch.tensor([[rows, columns]] * size, device=device),
        }


def load_siglip2(
    model: Model, settings: Mapping[str, Any], weights: object = None, offline: bool = False
) -> Naflex:
    """Make an image encoder; it has no prefix tokens."""
    module: Any = published_network(
        model, "Siglip2Vision", settings, weights, offline, spare=_SPARE
    )
    return Naflex(
        model.name,
        module,
        module.encoder.layers,
        module.post_layernorm,
        patch_size=module.config.patch_size,
        dim=module.config.hidden_size,
        prefix=0,
        licence=model.licence,
        mean=_HALF,
        std=_HALF,
        resize=Resize.budget(_BUDGET),
    )


#: Stem of the class in transformers and configuration of every model, by name.
CONFIGURATIONS: dict[str, tuple[str, dict[str, Any]]] = {}

# Commits of the hub's repositories, and the SHA-256 of ``model.safetensors`` where it is known.
_REVISIONS = {
    "base": "b53b807d3a2d5e2b3911292f2d69e5341cdc064c",
    "so400m": "cc24074f717b612951c2dead130904ab9b65a81e",
}
_HASHES = {"so400m": "11a61a2068800d5f4f35cb041c1fea25de86ce87725e4c97a9ed046d0b22c076"}

# (size, width, hidden width, blocks, heads, parameters, those of the file with the text encoder)
for _size, _dim, _hidden, _layers, _heads, _parameters, _downloaded in (
    ("base", 768, 3072, 12, 12, 92_930_304, 375_234_050),
    ("so400m", 1152, 4304, 27, 16, 427_888_064, 1_135_670_962),
):
    _name = f"siglip2-{_size}-naflex"
    _settings = {
        "patch_size": 16,
        "num_patches": 256,
        "hidden_size": _dim,
        "intermediate_size": _hidden,
        "num_hidden_layers": _layers,
        "num_attention_heads": _heads,
    }
    CONFIGURATIONS[_name] = ("Siglip2Vision", _settings)
    register_network(
        _name,
        load_siglip2,
        _settings,
        family="siglip2",
        hub_id=f"google/siglip2-{_size}-patch16-naflex",
        revision=_REVISIONS[_size],
        sha256={"model.safetensors": _HASHES[_size]} if _size in _HASHES else {},
        licence="Apache-2.0",
        parameters=_parameters,
        downloaded=_downloaded,
        dim=_dim,
        num_layers=_layers,
        patch_size=16,
        alternative="efficientnet-lite0",
    )
