"""SigLIP 2 in its NaFlex form, which keeps an image's shape within a budget of patches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch.features.backbones._transformers import TokenBackbone, catalogued_network
from manymatch.features.catalogue import MODELS
from manymatch.features.device import require_torch
from manymatch.features.registry import register_backbone
from manymatch.features.resize import Resize

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from manymatch.features.backbone import Backbone
    from manymatch.features.catalogue import Model

_HALF = (0.5, 0.5, 0.5)
_BUDGET = 1024
# The text encoder, and what compares the two.
_SPARE = ("text_model.", "logit_")


def _vit(dim: int, hidden: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        "patch_size": 16,
        "num_patches": 256,
        "hidden_size": dim,
        "intermediate_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }


#: Configuration of every image encoder, by name.
VITS: dict[str, dict[str, Any]] = {
    "siglip2-base-naflex": _vit(768, 3072, 12, 12),
    "siglip2-so400m-naflex": _vit(1152, 4304, 27, 16),
}


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


def load_vit(
    model: Model, settings: Mapping[str, Any], weights: object = None, offline: bool = False
) -> Naflex:
    """Make an image encoder; it has no prefix tokens."""
    module: Any = catalogued_network(
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


def _register(name: str, settings: Mapping[str, Any]) -> None:
    @register_backbone(name)
    def factory(weights: object = None, offline: bool = False) -> Backbone:
        return load_vit(MODELS[name], settings, weights, offline)


for _name, _settings in VITS.items():
    _register(_name, _settings)
