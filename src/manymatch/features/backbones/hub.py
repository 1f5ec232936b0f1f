"""Any vision transformer of transformers, as ``hf:<id>`` or ``hf:<folder>``."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manymatch.features.backbones import IMAGENET_MEAN, IMAGENET_STD
from manymatch.features.backbones.transformers import (
    TokenBackbone,
    load_network,
    read_config,
    require_transformers,
    run_blocks,
)
from manymatch.features.device import require_torch
from manymatch.features.registry import Model
from manymatch.features.tensors import WeightsError, first_line
from manymatch.features.weights import RANDOM, find_weights
from manymatch.io.files import read_text

if TYPE_CHECKING:
    import torch

_CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
_IMAGENET = (IMAGENET_MEAN, IMAGENET_STD)
_HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_UNIT = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))

# Mean and standard deviation of inputs, for folders without preprocessor_config.json.
_INPUTS = {
    "clip_vision_model": _CLIP,
    "dinov2": _IMAGENET,
    "dinov2_with_registers": _IMAGENET,
    "dinov3_vit": _IMAGENET,
    "radio": _UNIT,
    "siglip_vision_model": _HALF,
    "tipsv2_vision_model": _UNIT,
    "vit": _HALF,
    "vit_mae": _IMAGENET,
}
# These normalise inside; their processor is ignored.
_NORMALISE_THEMSELVES = ("radio",)
_NORMS = ("layernorm", "norm", "post_layernorm", "layer_norm")
# More than any known network has besides its patches.
_MOST_PREFIX_TOKENS = 64
# Parts behind the last block, which no map needs.
_HEADS = ("pooler.", "head.", "classifier.")


class HubBackbone(TokenBackbone):
    """A vision transformer of transformers, called with what its `forward` takes."""

    def inputs(self, pixels: torch.Tensor) -> dict[str, Any]:
        """Ask for resized positions, and for tokens in their order where training shuffles them."""
        torch = require_torch()
        takes = inspect.signature(type(self.module).forward).parameters
        arguments: dict[str, Any] = {"pixel_values": pixels}
        if "interpolate_pos_encoding" in takes:
            arguments["interpolate_pos_encoding"] = True
        if "noise" in takes:
            # Masked autoencoders sort their tokens by this noise.
            rows, columns = (length // self.patch_size for length in pixels.shape[2:])
            order = torch.arange(rows * columns, dtype=torch.float32, device=pixels.device)
            arguments["noise"] = order.expand(len(pixels), -1)
        return arguments


def load_hub(model: str, weights: object = None, offline: bool = False) -> HubBackbone:
    """Make a model by its id on the hub, or from a folder with a config.json."""
    transformers = require_transformers()
    name = f"hf:{model}"
    record = Model(name, "backbone", "hub", hub_id=model, licence=f"see its page ({model})")
    local = Path(model).expanduser()
    is_local = local.is_dir()
    own = is_local and weights is None
    source = local if own else find_weights(record, weights, offline)
    folder = local if is_local or source == RANDOM else source
    if source == RANDOM and not is_local:
        raise WeightsError(
            f"model must be a folder with a config.json where weights are random, got {name!r}"
        )
    config = _vision_config(transformers, folder, name)
    network = _network(transformers, config, name)
    mean, std = _normalisation(folder, config, name)
    patch_size = _patch_size(config, name)
    # Files hold text encoders and heads under many names: any key may be too many.
    module = load_network(network, config, source, name, spare=("",), dispensable=_HEADS)
    blocks = _blocks(module, config, name)
    parts = dict(module.named_children())
    norm = next((parts[name] for name in _NORMS if name in parts), None)
    dim, licence = config.hidden_size, record.licence
    backbone = HubBackbone(name, module, blocks, norm, patch_size, dim, 0, licence)
    backbone.mean, backbone.std = mean, std
    backbone.prefix = _try(backbone)
    return backbone


def _try(backbone: HubBackbone) -> int:
    """Run a small black image through all blocks and count the tokens before the patches."""
    torch = require_torch()
    rows, columns = 3, 4
    size = (rows * backbone.patch_size, columns * backbone.patch_size)
    try:
        with torch.inference_mode():
            inputs = backbone.inputs(torch.zeros(1, 3, *size))
            ends = run_blocks(backbone.module, backbone.blocks, [1, backbone.num_layers], inputs)
    except (RuntimeError, ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
        why = f"it does not run alone: {first_line(error)}"
        raise _not_understood(backbone.name, why) from None
    shapes: set[tuple[int, ...]] = {tuple(tokens.shape) for tokens in ends.values()}
    for prefix in range(_MOST_PREFIX_TOKENS + 1):
        if shapes == {(1, prefix + rows * columns, backbone.dim)}:
            return prefix
    found = " and ".join(map(str, sorted(shapes)))
    raise _not_understood(
        backbone.name, f"for {rows} x {columns} patches its blocks return shapes {found}"
    )


def _vision_config(transformers: Any, folder: Path, name: str) -> Any:
    """Read the configuration of the image encoder, which may be a part of a larger model."""
    if not (folder / "config.json").is_file():
        raise WeightsError(
            f"weights of {name!r} must be a folder with a config.json, got {str(folder)!r}"
        )
    config = read_config(transformers.AutoConfig, folder)
    config = getattr(config, "vision_config", config)
    if config.model_type == "vit_mae":
        config.mask_ratio = 0.0
    return config


def _network(transformers: Any, config: Any, name: str) -> Any:
    """Find the class, which must want nothing but pixels."""
    try:
        network = transformers.MODEL_MAPPING[type(config)]
    except KeyError:
        raise _not_understood(name, f"{config.model_type} has no plain network") from None
    takes = inspect.signature(network.forward).parameters
    more = [
        key
        for key, parameter in takes.items()
        if parameter.default is parameter.empty
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and key not in {"self", "pixel_values"}
    ]
    if "pixel_values" not in takes:
        raise _not_understood(name, f"{config.model_type} takes no images")
    if more:
        raise _not_understood(name, f"{config.model_type} also wants {', '.join(more)}")
    return network


def _patch_size(config: Any, name: str) -> int:
    patch = getattr(config, "patch_size", None)
    sides = set(patch) if isinstance(patch, list | tuple) else {patch}
    if len(sides) != 1 or not all(isinstance(side, int) for side in sides):
        raise _not_understood(name, f"its patch size is {patch!r}")
    return int(sides.pop())


def _blocks(module: torch.nn.Module, config: Any, name: str) -> Any:
    """Find the one list of blocks that is as long as the configuration says."""
    torch = require_torch()
    depth = getattr(config, "num_hidden_layers", None)
    lists = [
        part
        for part in module.modules()
        if isinstance(part, torch.nn.ModuleList)
        and len(part) == depth
        and len({type(block) for block in part}) == 1
    ]
    if len(lists) != 1 or not isinstance(getattr(config, "hidden_size", None), int):
        raise _not_understood(name, f"it has {len(lists)} lists of {depth} blocks")
    return lists[0]


def _normalisation(
    folder: Path, config: Any, name: str
) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Mean and standard deviation that the network was trained with."""
    if config.model_type in _NORMALISE_THEMSELVES:
        return _UNIT
    file = folder / "preprocessor_config.json"
    if file.is_file():
        try:
            content = json.loads(read_text(file, "a JSON file"))
        except (ValueError, RecursionError) as error:
            raise _not_understood(name, f"its {file.name} cannot be read: {error}") from None
        if isinstance(content, dict) and not content.get("do_normalize", True):
            return _UNIT
        try:
            mean, std = (tuple(map(float, content[key])) for key in ("image_mean", "image_std"))
        except (KeyError, TypeError, ValueError):
            mean = std = ()
        if len(mean) != 3 or len(std) != 3:
            raise _not_understood(name, f"its {file.name} lacks image_mean and image_std of RGB")
        return mean, std
    known = _INPUTS.get(config.model_type)
    if known is None:
        raise _not_understood(name, "no preprocessor_config.json says how images are normalised")
    return known


def _not_understood(name: str, why: str) -> ValueError:
    return ValueError(
        f"model must be a vision transformer that transformers knows, got {name!r} ({why})"
    )
