"""DINOv2, with and without registers, and DINOv3: ViTs and the ConvNeXts distilled from them.

Their weights load from the hub's files and from the ``.pth`` files that Meta publishes, whose names
are translated to the hub's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from manymatch.features.backbone import Backbone
from manymatch.features.backbones.transformers import (
    TokenBackbone,
    published_network,
    register_network,
    run_blocks,
)
from manymatch.features.device import require_torch
from manymatch.features.weights import WeightsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from manymatch.features.registry import Model

    State = dict[str, torch.Tensor]

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
# Frequencies of DINOv3's rotary positions, which its files hold as they were in training: rounded.
_PERIODS = "rope_embed.periods"
# A norm for crops, which only training uses, and the last norm under a second name.
_TRAINING = ("local_cls_norm.", "norms.3.")


def load_dinov2(
    model: Model, settings: Mapping[str, Any], weights: object = None, offline: bool = False
) -> TokenBackbone:
    """Make a ViT; its learned position embedding is resized to the grid of every image."""
    registers = settings.get("num_register_tokens", 0)
    network = "Dinov2WithRegisters" if registers else "Dinov2"
    module: Any = published_network(
        model, network, settings, weights, offline, convert=from_meta_dinov2
    )
    return _vit(model, module, module.encoder.layer, module.layernorm, registers)


def load_dinov3(
    model: Model, settings: Mapping[str, Any], weights: object = None, offline: bool = False
) -> TokenBackbone:
    """Make a ViT with rotary positions; layer k is the output of block k.

    Meta's files hold the frequencies of the rotary positions, rounded to bfloat16, and the
    published network uses them so; the hub's files do not, and transformers computes them exactly.
    Here every file gives what its publisher's code gives.
    """
    periods: list[torch.Tensor] = []

    def convert(state: State) -> State:
        periods.extend(value for key, value in state.items() if key == _PERIODS)
        return from_meta_dinov3(state)

    module: Any = published_network(model, "DINOv3ViT", settings, weights, offline, convert=convert)
    if periods:
        own = module.rope_embeddings.inv_freq
        if periods[0].shape != own.shape:
            raise WeightsError(
                f"weights must be those of {model.name!r}, got a file with {_PERIODS!r} of shape "
                f"{tuple(periods[0].shape)} instead of {tuple(own.shape)}"
            )
        # A part of the state from now on, so that the hash of the weights knows of it.
        module.rope_embeddings.register_buffer("inv_freq", 1.0 / periods[0].float())
    registers = module.config.num_register_tokens
    return _vit(model, module, module.model.layer, module.norm, registers)


def load_convnext(
    model: Model, settings: Mapping[str, Any], weights: object = None, offline: bool = False
) -> ConvNext:
    """Make a ConvNeXt."""
    module = published_network(
        model, "DINOv3ConvNext", settings, weights, offline, convert=from_meta_convnext
    )
    return ConvNext(model.name, module, model.licence)


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
        elif key == "mask_token":
            kept[key] = value.reshape(1, 1, -1)
        elif key != _PERIODS:
            kept[key] = value
    return _renamed(kept, _DINOV3_NAMES)


def from_meta_convnext(state: State) -> State:
    """Translate the names of Meta's ConvNeXt files; other states are returned as they are."""
    if "downsample_layers.0.0.weight" not in state:
        return state
    return _renamed(state, _CONVNEXT_NAMES)


def _split(state: State) -> State:
    """Give queries, keys and values, stored one above the other, names of their own.

    A bias counts where its mask is not zero, as the published layer multiplies the two.
    """
    torch = require_torch()
    split = {}
    for key, value in state.items():
        stem, fused, kind = key.rpartition(".attn.qkv.")
        if not fused:
            split[key] = value
        elif kind != "bias_mask":
            mask = state.get(f"{stem}.attn.qkv.bias_mask")
            if kind == "bias" and mask is not None:
                if mask.shape != value.shape:
                    raise WeightsError(
                        f"weights must have a mask for every bias, got a file in which {key!r} has "
                        f"{len(value)} numbers and its mask the shape {tuple(mask.shape)}"
                    )
                value = torch.where(_is_on(mask), value, 0.0)  # noqa: PLW2901
            for letter, part in zip("qkv", value.chunk(3), strict=False):
                split[f"{stem}.attn.{letter}.{kind}"] = part
    return split


def _is_on(mask: torch.Tensor) -> torch.Tensor:
    """Tell where a mask lets a bias through: not at zeros, nor where it was never set for keys."""
    torch = require_torch()
    keys = torch.zeros(len(mask), dtype=torch.bool)
    keys[len(mask) // 3 : 2 * len(mask) // 3] = True
    return mask.ne(0) & ~(mask.isnan() & keys)


def _renamed(state: State, names: tuple[tuple[str, str], ...]) -> State:
    renamed = {}
    for key, value in state.items():
        if key.startswith(_TRAINING):
            continue
        name = key
        for pattern, replacement in names:
            name = re.sub(pattern, replacement, name)
        renamed[name] = value
    return renamed


def _vit(model: Model, module: Any, blocks: Any, final_norm: Any, registers: int) -> TokenBackbone:
    return TokenBackbone(
        model.name,
        module,
        blocks,
        final_norm,
        patch_size=module.config.patch_size,
        dim=module.config.hidden_size,
        # A CLS token comes first.
        prefix=1 + registers,
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


#: Stem of the class in transformers and configuration of every model, by name.
CONFIGURATIONS: dict[str, tuple[str, dict[str, Any]]] = {}

# (size, name on the hub, width, blocks, heads, parameters without registers)
_DINOV2 = (
    ("s", "small", 384, 12, 6, 22_056_576),
    ("b", "base", 768, 12, 12, 86_580_480),
    ("l", "large", 1024, 24, 16, 304_368_640),
    ("g", "giant", 1536, 40, 24, 1_136_480_768),
)
# Commits of the hub's repositories, without registers and with them.
_DINOV2_REVISIONS = {
    ("s", 0): "ed25f3a31f01632728cabb09d1542f84ab7b0056",
    ("b", 0): "f9e44c814b77203eaa57a6bdbbd535f21ede1415",
    ("l", 0): "47b73eefe95e8d44ec3623f8890bd894b6ea2d6c",
    ("g", 0): "611a9d42f2335e0f921f1e313ad3c1b7178d206d",
    ("s", 4): "0d9846e56b43a21fa46d7f3f5070f0506a5795a9",
    ("b", 4): "a1d738ccfa7ae170945f210395d99dde8adb1805",
    ("l", 4): "e4c89a4e05589de9b3e188688a303d0f3c04d0f3",
    ("g", 4): "8d0d49f77fb8b5dd78842496ff14afe7dd4d85cb",
}
for _registers in (0, 4):
    for _size, _hub, _dim, _layers, _heads, _parameters in _DINOV2:
        _name = f"dinov2-vit{_size}14{'-reg' if _registers else ''}"
        _settings: dict[str, Any] = {
            "patch_size": 14,
            "image_size": 518,
            "hidden_size": _dim,
            "num_hidden_layers": _layers,
            "num_attention_heads": _heads,
            "use_swiglu_ffn": _size == "g",
        }
        if _registers:
            _settings["num_register_tokens"] = _registers
        _stem = f"dinov2_vit{_size}14"
        CONFIGURATIONS[_name] = ("Dinov2WithRegisters" if _registers else "Dinov2", _settings)
        register_network(
            _name,
            load_dinov2,
            _settings,
            family="dinov2",
            hub_id=f"facebook/dinov2-{'with-registers-' if _registers else ''}{_hub}",
            revision=_DINOV2_REVISIONS[_size, _registers],
            url=f"https://dl.fbaipublicfiles.com/dinov2/{_stem}/"
            f"{_stem}{'_reg4' if _registers else ''}_pretrain.pth",
            licence="Apache-2.0",
            parameters=_parameters + _registers * _dim,
            dim=_dim,
            num_layers=_layers,
            patch_size=14,
            alternative="efficientnet-lite0",
        )


# Of Meta's files: the first digits of their SHA-256, which are a part of their names, or all of
# them; of the hub's: commits of the repositories, and the SHA-256 of ``model.safetensors``. Where
# there is none, it is not known.
_DINOV3_HASHES = {
    "vits16": "08c60483",
    "vits16plus": "4057cbaa",
    "vitb16": "73cec8be7427c8655ceced13ce62f6e20a1fa90d1b4d4a550df17a1144081a7c",
    "vitl16": "8aa4cbddda325040fc78db2c272754af6ebe8ff2c55f6ec4f1964d8890f66035",
    "vith16plus": "7c1da9a5",
    "vit7b16": "a955f4ea",
    "convnext-tiny": "21b726bb",
    "convnext-small": "296db49d",
    "convnext-base": "801f2ba9",
    "convnext-large": "61fa432d",
}
_DINOV3_REVISIONS = {
    "vits16": "114c1379950215c8b35dfcd4e90a5c251dde0d32",
    "vits16plus": "c93d816fc9e567563bc068f01475bec89cc634a6",
    "vitb16": "5931719e67bbdb9737e363e781fb0c67687896bc",
    "vitl16": "ea8dc2863c51be0a264bab82070e3e8836b02d51",
    "vith16plus": "c807c9eeea853df70aec4069e6f56b28ddc82acc",
    "convnext-tiny": "10d30274b4d445111e2d5bf75ac93bbd94db274b",
}
_DINOV3_HUB_HASHES = {
    "vits16": "4610ad75edef83e75afdebf162d148dc628045ea6cbb83d67d4708c709c4f91d",
    "vitl16": "dcb2e45127cccbf1601e5f42fef165eea275c8e5213197e8dcf3f48822718179",
}


def _register_dinov3(
    name: str, stem: str, hub: str, settings: dict[str, Any], parameters: int, **facts: Any
) -> None:
    CONFIGURATIONS[name] = (stem, settings)
    published = _DINOV3_HASHES[hub]
    checkpoint = f"dinov3_{hub.replace('-', '_')}_pretrain_lvd1689m-{published[:8]}.pth"
    hashes = {checkpoint: published}
    if hub in _DINOV3_HUB_HASHES:
        hashes["model.safetensors"] = _DINOV3_HUB_HASHES[hub]
    register_network(
        name,
        load_convnext if stem == "DINOv3ConvNext" else load_dinov3,
        settings,
        family="dinov3",
        hub_id=f"facebook/dinov3-{hub}-pretrain-lvd1689m",
        revision=_DINOV3_REVISIONS.get(hub),
        checkpoint=checkpoint,
        sha256=hashes,
        licence="DINOv3 License",
        gated=True,
        parameters=parameters,
        alternative="dinov2-vitl14-reg",
        **facts,
    )


_GATED = {"use_gated_mlp": True, "hidden_act": "silu"}
# (size, name on the hub, width, hidden width, blocks, heads, parameters, further settings)
_DINOV3: tuple[tuple[str, str, int, int, int, int, int, dict[str, Any]], ...] = (
    ("s", "s16", 384, 1536, 12, 6, 21_596_544, {}),
    ("splus", "s16plus", 384, 1536, 12, 6, 28_692_864, _GATED),
    ("b", "b16", 768, 3072, 12, 12, 85_660_416, {}),
    ("l", "l16", 1024, 4096, 24, 16, 303_129_600, {}),
    ("hplus", "h16plus", 1280, 5120, 32, 20, 840_592_640, _GATED),
    (
        *("7b", "7b16", 4096, 8192, 40, 32, 6_716_035_072),
        {**_GATED, "query_bias": False, "value_bias": False},
    ),
)
for _size, _hub, _dim, _hidden, _layers, _heads, _parameters, _more in _DINOV3:
    _settings = {
        "patch_size": 16,
        "hidden_size": _dim,
        "intermediate_size": _hidden,
        "num_hidden_layers": _layers,
        "num_attention_heads": _heads,
        "num_register_tokens": 4,
        **_more,
    }
    _register_dinov3(
        f"dinov3-vit{_size}16",
        "DINOv3ViT",
        f"vit{_hub}",
        _settings,
        _parameters,
        dim=_dim,
        num_layers=_layers,
        patch_size=16,
    )

# (size, width of the first stage, blocks of the third stage, parameters)
_CONVNEXTS = (
    ("tiny", 96, 9, 27_820_128),
    ("small", 96, 27, 49_454_688),
    ("base", 128, 27, 87_566_464),
    ("large", 192, 27, 196_230_336),
)
for _size, _dim, _depth, _parameters in _CONVNEXTS:
    _register_dinov3(
        f"dinov3-convnext-{_size}",
        "DINOv3ConvNext",
        f"convnext-{_size}",
        {"hidden_sizes": [_dim, 2 * _dim, 4 * _dim, 8 * _dim], "depths": [3, 3, _depth, 3]},
        _parameters,
        dim=8 * _dim,
        num_layers=4,
        patch_size=32,
    )
