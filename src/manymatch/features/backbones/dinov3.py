"""DINOv3: vision transformers with rotary positions, and ConvNeXts distilled from the largest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from manymatch.features.backbone import Backbone
from manymatch.features.backbones._transformers import (
    TokenBackbone,
    catalogued_network,
    run_blocks,
)
from manymatch.features.catalogue import MODELS
from manymatch.features.registry import register_backbone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from manymatch.features.catalogue import Model

_GATED = {"use_gated_mlp": True, "hidden_act": "silu"}


def _vit(dim: int, hidden: int, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    return {
        "patch_size": 16,
        "hidden_size": dim,
        "intermediate_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_register_tokens": 4,
        **more,
    }


def _convnext(dim: int, depth: int) -> dict[str, Any]:
    return {"hidden_sizes": [dim, 2 * dim, 4 * dim, 8 * dim], "depths": [3, 3, depth, 3]}


#: Configuration of every ViT, by name.
VITS: dict[str, dict[str, Any]] = {
    "dinov3-vits16": _vit(384, 1536, 12, 6),
    "dinov3-vitsplus16": _vit(384, 1536, 12, 6, **_GATED),
    "dinov3-vitb16": _vit(768, 3072, 12, 12),
    "dinov3-vitl16": _vit(1024, 4096, 24, 16),
    "dinov3-vithplus16": _vit(1280, 5120, 32, 20, **_GATED),
    "dinov3-vit7b16": _vit(4096, 8192, 40, 32, **_GATED, query_bias=False, value_bias=False),
}
#: Configuration of every ConvNeXt, by name.
CONVNEXTS: dict[str, dict[str, Any]] = {
    "dinov3-convnext-tiny": _convnext(96, 9),
    "dinov3-convnext-small": _convnext(96, 27),
    "dinov3-convnext-base": _convnext(128, 27),
    "dinov3-convnext-large": _convnext(192, 27),
}


def load_vit(
    model: Model, settings: Mapping[str, Any], weights: object = None, offline: bool = False
) -> TokenBackbone:
    """Make a ViT; layer k is the output of block k, its prefix a CLS token and four registers."""
    module: Any = catalogued_network(model, "DINOv3ViT", settings, weights, offline)
    return TokenBackbone(
        model.name,
        module,
        module.model.layer,
        module.norm,
        patch_size=module.config.patch_size,
        dim=module.config.hidden_size,
        prefix=1 + module.config.num_register_tokens,
        licence=model.licence,
    )


class ConvNext(Backbone):
    """A ConvNeXt, whose layers are its four stages, at strides 4, 8, 16 and 32.

    The final norm belongs to the last stage; the others are returned as they are.
    """

    dim_varies: ClassVar[bool] = True

    def __init__(self, name: str, module: Any, licence: str) -> None:
        self.name = name
        self.module = module
        self.licence = licence
        self.stages = module.model.stages
        self.num_layers = len(self.stages)
        self.patch_size = self.stride_of(self.num_layers)
        self.dim = module.config.hidden_sizes[-1]

    def stride_of(self, layer: int) -> int:
        """Input pixels per cell of a stage."""
        return 4 << (layer - 1)

    def origin_of(self, layer: int) -> float:
        """Centre of the first cell: stem and downsampling have kernels as wide as their stride."""
        return (self.stride_of(layer) - 1) / 2

    def forward(
        self, pixels: torch.Tensor, layers: Sequence[int], norm: bool
    ) -> dict[int, torch.Tensor]:
        """Compute maps; see `Backbone.forward`."""
        module: Any = self.module
        maps = run_blocks(module, self.stages, layers, {"pixel_values": pixels})
        if norm and self.num_layers in maps:
            last = maps[self.num_layers].permute(0, 2, 3, 1)
            maps[self.num_layers] = module.layer_norm(last).permute(0, 3, 1, 2)
        return maps


def load_convnext(
    model: Model, settings: Mapping[str, Any], weights: object = None, offline: bool = False
) -> ConvNext:
    """Make a ConvNeXt."""
    module = catalogued_network(model, "DINOv3ConvNext", settings, weights, offline)
    return ConvNext(model.name, module, model.licence)


def _register(name: str, load: Callable[..., Backbone], settings: Mapping[str, Any]) -> None:
    @register_backbone(name)
    def factory(weights: object = None, offline: bool = False) -> Backbone:
        return load(MODELS[name], settings, weights, offline)


for _name, _settings in VITS.items():
    _register(_name, load_vit, _settings)
for _name, _settings in CONVNEXTS.items():
    _register(_name, load_convnext, _settings)
