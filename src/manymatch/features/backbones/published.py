"""DINOv2, DINOv3 (ViTs and the ConvNeXts distilled from them) and SigLIP 2 in its NaFlex form.

Their weights load from the hub's files and from the ``.pth`` files that Meta publishes, whose names
are translated to the hub's. Shapes, revisions and hashes are in ``models.toml``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from manymatch.features.backbones import Backbone
from manymatch.features.backbones.transformers import TokenBackbone, published_network, run_blocks
from manymatch.features.device import require_torch
from manymatch.features.resize import Resize
from manymatch.features.tensors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from manymatch.features.registry import Model
    from manymatch.features.tensors import State

# Names of tensors in Meta's files, as expressions, and those of the hub; each is applied in turn.
_DINOV2_NAMES = (
    (r"^(cls_token|mask_token|register_tokens)$", r"embeddings.\1"),
    (r"^pos_embed$", "embeddings.position_embeddings"),
    (r"^patch_embed\.proj\.", "embeddings.patch_embeddings.projection."),
    (r"^blocks\.(\d+)\.", r"encoder.layer.\1."),
    (r"\.attn\.([qkv])\.", r".attention.attention.\1."),
    (r"\.attention\.q\.", ".attention.query."),
    (r"\.attention\.k\.", ".attention.key."),
    (r"\.attention\.v\.", ".attention.value."),
    (r"\.attn\.proj\.", ".attention.output.dense."),
    (r"\.ls([12])\.gamma$", r".layer_scale\1.lambda1"),
    (r"\.mlp\.w12\.", ".mlp.weights_in."),
    (r"\.mlp\.w3\.", ".mlp.weights_out."),
    (r"^norm\.", "layernorm."),
)
_DINOV3_NAMES = (
    (r"^(cls_token|mask_token)$", r"embeddings.\1"),
    (r"^storage_tokens$", "embeddings.register_tokens"),
    (r"^patch_embed\.proj\.", "embeddings.patch_embeddings."),
    (r"^blocks\.(\d+)\.", r"layer.\1."),
    (r"\.attn\.([qkv])\.", r".attention.\1_proj."),
    (r"\.attn\.proj\.", ".attention.o_proj."),
    (r"\.ls([12])\.gamma$", r".layer_scale\1.lambda1"),
    (r"\.mlp\.(fc1|w2)\.", ".mlp.up_proj."),
    (r"\.mlp\.(fc2|w3)\.", ".mlp.down_proj."),
    (r"\.mlp\.w1\.", ".mlp.gate_proj."),
)
_CONVNEXT_NAMES = (
    (r"^downsample_layers\.(\d+)\.", r"stages.\1.downsample_layers."),
    (r"^stages\.(\d+)\.(\d+)\.", r"stages.\1.layers.\2."),
    (r"\.dwconv\.", ".depthwise_conv."),
    (r"(\.layers\.\d+)\.norm\.", r"\1.layer_norm."),
    (r"\.pwconv([12])\.", r".pointwise_conv\1."),
    (r"^norm\.", "layer_norm."),
)
# A norm for crops, which only training uses, and the last norm under a second name.
_TRAINING = ("local_cls_norm.", "norms.3.")
# Frequencies of DINOv3's rotary positions, which its files hold as they were in training: rounded.
_PERIODS = "rope_embed.periods"
# What SigLIP 2's files hold beside the image encoder.
_TEXT = ("text_model.", "logit_")
_HALF = (0.5, 0.5, 0.5)
_BUDGET = 1024


def load_dinov2(model: Model, weights: object = None, offline: bool = False) -> TokenBackbone:
    """Make a ViT; its learned position embedding is resized to the grid of every image."""
    module: Any = published_network(model, weights, offline, convert=from_meta_dinov2)
    prefix = 1 + getattr(module.config, "num_register_tokens", 0)
    return TokenBackbone.of(model, module, module.encoder.layer, module.layernorm, prefix)


def load_dinov3(model: Model, weights: object = None, offline: bool = False) -> TokenBackbone:
    """Make a ViT with rotary positions; layer k is the output of block k.

    Meta's files hold the frequencies of the rotary positions, rounded to bfloat16, and the
    published network uses them so; the hub's files do not, and transformers computes them exactly.
    Here every file gives what its publisher's code gives.
    """
    periods: list[torch.Tensor] = []

    def convert(state: State) -> State:
        periods.extend(value for key, value in state.items() if key == _PERIODS)
        return from_meta_dinov3(state)

    module: Any = published_network(model, weights, offline, convert=convert)
    if periods:
        own = module.rope_embeddings.inv_freq
        if periods[0].shape != own.shape:
            raise WeightsError(
                f"weights must be those of {model.name!r}, got a file with {_PERIODS!r} of shape "
                f"{tuple(periods[0].shape)} instead of {tuple(own.shape)}"
            )
        # A part of the state from now on, so that the hash of the weights knows of it.
        module.rope_embeddings.register_buffer("inv_freq", 1.0 / periods[0].float())
    prefix = 1 + module.config.num_register_tokens
    return TokenBackbone.of(model, module, module.model.layer, module.norm, prefix)


def load_convnext(model: Model, weights: object = None, offline: bool = False) -> ConvNext:
    """Make a ConvNeXt."""
    return ConvNext(model, published_network(model, weights, offline, convert=from_meta_convnext))


def load_siglip2(model: Model, weights: object = None, offline: bool = False) -> Naflex:
    """Make an image encoder; it has no prefix tokens."""
    module: Any = published_network(model, weights, offline, spare=_TEXT)
    backbone = Naflex.of(model, module, module.encoder.layers, module.post_layernorm, prefix=0)
    backbone.mean = backbone.std = _HALF
    backbone.resize = Resize.budget(_BUDGET)
    return backbone


def from_meta_dinov2(state: State) -> State:
    """Translate the names of Meta's DINOv2 files; other states are returned as they are."""
    if "blocks.0.attn.qkv.weight" not in state:
        return state
    return _renamed(_split(state), _DINOV2_NAMES)


def from_meta_dinov3(state: State) -> State:
    """Translate the names of Meta's DINOv3 files; other states are returned as they are.

    Keys have no bias there: one is stored, and a mask that switches it off.
    """
    if "blocks.0.attn.qkv.weight" not in state:
        return state
    kept = {}
    for key, value in _split(state).items():
        if key.endswith(".attn.k.bias"):
            if value.any():
                raise WeightsError(
                    f"weights must be those of DINOv3, got a file with a bias of keys ({key!r})"
                )
        elif key != _PERIODS:
            kept[key] = value.reshape(1, 1, -1) if key == "mask_token" else value
    return _renamed(kept, _DINOV3_NAMES)


def from_meta_convnext(state: State) -> State:
    """Translate the names of Meta's ConvNeXt files; other states are returned as they are."""
    if "downsample_layers.0.0.weight" not in state:
        return state
    return _renamed(state, _CONVNEXT_NAMES)


def _split(state: State) -> State:
    """Give queries, keys and values, stored one above the other, names of their own.

    A bias counts where its mask is not zero, as the published layer multiplies the two. Masks of
    keys may be NaN: there they were never set, and count as zero.
    """
    torch = require_torch()
    split = {}
    for key, value in state.items():
        stem, fused, kind = key.rpartition(".attn.qkv.")
        if not fused:
            split[key] = value
        if not fused or kind == "bias_mask":
            continue
        parts = list(value.chunk(3))
        mask = state.get(f"{stem}.attn.qkv.bias_mask")
        if kind == "bias" and mask is not None:
            if mask.shape != value.shape:
                raise WeightsError(
                    f"weights must have a mask for every bias, got a file in which {key!r} has "
                    f"{len(value)} numbers and its mask the shape {tuple(mask.shape)}"
                )
            on = [part.ne(0) for part in mask.chunk(3)]
            on[1] &= ~mask.chunk(3)[1].isnan()
            parts = [torch.where(let, part, 0.0) for let, part in zip(on, parts, strict=True)]
        for letter, part in zip("qkv", parts, strict=False):
            split[f"{stem}.attn.{letter}.{kind}"] = part
    return split


def _renamed(state: State, names: tuple[tuple[str, str], ...]) -> State:
    renamed = {}
    for key, value in state.items():
        if not key.startswith(_TRAINING):
            name = key
            for pattern, replacement in names:
                name = re.sub(pattern, replacement, name)
            renamed[name] = value
    return renamed


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


class ConvNext(Backbone):
    """A ConvNeXt, whose layers are its four stages, at strides 4, 8, 16 and 32.

    The final norm belongs to the last stage; the others are returned as they are.
    """

    dim_varies: ClassVar[bool] = True

    def __init__(self, model: Model, module: Any) -> None:
        self.name, self.licence, self.module = model.name, model.licence, module
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
