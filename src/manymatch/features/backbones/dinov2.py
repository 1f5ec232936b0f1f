"""DINOv2, with and without registers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch.features.backbones._transformers import TokenBackbone, catalogued_network
from manymatch.features.catalogue import MODELS
from manymatch.features.registry import register_backbone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from manymatch.features.backbone import Backbone
    from manymatch.features.catalogue import Model


def _vit(dim: int, layers: int, heads: int, swiglu: bool = False) -> dict[str, Any]:
    return {
        "patch_size": 14,
        "image_size": 518,
        "hidden_size": dim,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "use_swiglu_ffn": swiglu,
    }


_SIZES = {
    "s": _vit(384, 12, 6),
    "b": _vit(768, 12, 12),
    "l": _vit(1024, 24, 16),
    "g": _vit(1536, 40, 24, swiglu=True),
}
#: Configuration of every model, by name.
VITS: dict[str, dict[str, Any]] = {
    f"dinov2-vit{size}14": settings for size, settings in _SIZES.items()
} | {
    f"dinov2-vit{size}14-reg": settings | {"num_register_tokens": 4}
    for size, settings in _SIZES.items()
}


def load_vit(
    model: Model, settings: Mapping[str, Any], weights: object = None, offline: bool = False
) -> TokenBackbone:
    """Make a ViT; its learned position embedding is resized to the grid of every image."""
    registers = settings.get("num_register_tokens", 0)
    network = "Dinov2WithRegisters" if registers else "Dinov2"
    module: Any = catalogued_network(model, network, settings, weights, offline)
    return TokenBackbone(
        model.name,
        module,
        module.encoder.layer,
        module.layernorm,
        patch_size=module.config.patch_size,
        dim=module.config.hidden_size,
        prefix=1 + registers,
        licence=model.licence,
    )


def _register(name: str, settings: Mapping[str, Any]) -> None:
    @register_backbone(name)
    def factory(weights: object = None, offline: bool = False) -> Backbone:
        return load_vit(MODELS[name], settings, weights, offline)


for _name, _settings in VITS.items():
    _register(_name, _settings)
