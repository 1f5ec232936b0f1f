"""Any vision transformer of transformers (``hf:<id or folder>``) or of timm (``timm:<model>``)."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from manymatch._validate import require, suggest
from manymatch.features.backbones import Backbone, Maps
from manymatch.features.backbones.published import (
    TokenBackbone,
    load_network,
    quiet,
    run_blocks,
)
from manymatch.features.device import works_now
from manymatch.features.registry import Model
from manymatch.features.weight_files import State, WeightsError, first_line
from manymatch.features.weights import RANDOM, find_weights, load_weights
from manymatch.io.files import read_json

_UNIT = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
_NORMS = ("layernorm", "norm", "post_layernorm", "layer_norm")
# Parts behind the last block, which no map needs.
_HEADS = ("pooler.", "head.", "classifier.")


class HubBackbone(TokenBackbone):
    """A vision transformer of transformers, called with what its `forward` takes."""

    def inputs(self, pixels: torch.Tensor) -> dict[str, Any]:
        """Ask for resized positions, and for tokens in their order where training shuffles them."""
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
    transformers = require("transformers", "this network", "features", works_now)
    name, local = f"hf:{model}", Path(model).expanduser()
    record = Model(name, "backbone", "hub", hub_id=model, licence=f"see its page ({model})")
    own = local.is_dir() and weights is None
    source = local if own else find_weights(record, weights, offline)
    folder = local if local.is_dir() or source == RANDOM else source
    if not (folder / "config.json").is_file():
        raise WeightsError(
            f"weights of {name!r} must be a folder with a config.json, got {str(folder)!r}"
        )
    config = _read_config(transformers.AutoConfig, folder)
    # The image encoder may be a part of a larger model.
    config = getattr(config, "vision_config", config)
    if config.model_type == "vit_mae":
        config.mask_ratio = 0.0
    try:
        backbone = _made(transformers.MODEL_MAPPING[type(config)], config, source, record)
        backbone.mean, backbone.std = _normalisation(folder, config.model_type)
    except WeightsError:
        raise
    except (RuntimeError, ValueError, TypeError, AttributeError, LookupError) as error:
        raise ValueError(
            f"model must be a vision transformer that transformers knows, got {name!r} "
            f"({config.model_type}: {first_line(error)})"
        ) from None
    return backbone


def _read_config(config_class: Any, folder: Path) -> Any:
    """Read config.json; that of a larger model that contains this one gives its part."""
    try:
        with quiet():
            return config_class.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # noqa: BLE001 (its checks raise errors of a dozen kinds)
        raise WeightsError(
            f"weights must have a config.json that transformers reads, got {str(folder)!r} "
            f"({first_line(error)})"
        ) from None


def _made(network: Any, config: Any, source: Any, record: Model) -> HubBackbone:
    """Make the network, find its blocks, and count the tokens before the patches."""
    # Files hold text encoders and heads under many names, which are not used.
    module: Any = load_network(network, config, source, record, ("",), _HEADS)
    lists = [
        part
        for part in module.modules()
        if isinstance(part, torch.nn.ModuleList)
        and len(part) == config.num_hidden_layers
        and len({type(block) for block in part}) == 1
    ]
    if len(lists) != 1:
        raise ValueError(f"it has {len(lists)} lists of {config.num_hidden_layers} blocks")
    norm = next((getattr(module, name) for name in _NORMS if hasattr(module, name)), None)
    backbone = HubBackbone(record, module, lists[0], norm)
    patch = config.patch_size
    backbone.patch_size = patch if isinstance(patch, int) else patch[0]
    rows, columns = 3, 4
    black = torch.zeros(1, 3, rows * backbone.patch_size, columns * backbone.patch_size)
    with torch.inference_mode():
        inputs = backbone.inputs(black)
        ends = run_blocks(module, backbone.blocks, [1, backbone.num_layers], inputs)
    shapes = {tuple(tokens.shape) for tokens in ends.values()}
    backbone.prefix = min(shape[1] for shape in shapes) - rows * columns
    if backbone.prefix < 0 or shapes != {(1, backbone.prefix + rows * columns, backbone.dim)}:
        found = " and ".join(map(str, sorted(shapes)))
        raise ValueError(f"for {rows} x {columns} patches its blocks return shapes {found}")
    return backbone


def _normalisation(folder: Path, kind: str) -> Any:
    """Mean and standard deviation that the network was trained with."""
    if kind == "radio":
        # It normalises inside; its processor is ignored.
        return _UNIT
    content = read_json(folder / "preprocessor_config.json", "a JSON file of the normalisation")
    try:
        if not content.get("do_normalize", True):
            return _UNIT
        mean, std = (tuple(map(float, content[key])) for key in ("image_mean", "image_std"))
    except (AttributeError, KeyError, TypeError, ValueError):
        mean = std = ()
    if len(mean) != 3 or len(std) != 3:
        raise ValueError("its preprocessor_config.json lacks image_mean and image_std of RGB")
    return mean, std


class TimmBackbone(Backbone):
    """A vision transformer of timm, which itself knows how to return its blocks."""

    def __init__(self, model: Model, module: Any) -> None:
        self.name, self.licence, self.module = model.name, model.licence, module
        self.patch_size = int(module.patch_embed.patch_size[0])
        self.dim = int(module.embed_dim)
        self.num_layers = len(module.blocks)
        self.mean, self.std = (tuple(module.pretrained_cfg[name]) for name in ("mean", "std"))

    def forward(self, pixels: torch.Tensor, layers: Sequence[int], norm: bool) -> Maps:
        """Compute maps; see `Backbone.forward`."""
        module: Any = self.module
        maps = module.forward_intermediates(
            pixels,
            indices=[layer - 1 for layer in layers],
            norm=norm,
            stop_early=True,
            output_fmt="NCHW",
            intermediates_only=True,
        )
        return dict(zip(layers, maps, strict=True))


def load_timm(model: str, weights: object = None, offline: bool = False) -> TimmBackbone:
    """Make a model of timm by its name there, with a tag for particular weights or without."""
    try:
        import timm
    except (ImportError, RuntimeError) as error:
        raise ModuleNotFoundError(
            "backbones of timm need timm and a torchvision that fits torch: "
            f'pip install "manymatch[timm]" ({error})'
        ) from error
    module = _create(timm, model)
    facts = module.pretrained_cfg
    licence = str(facts.get("license") or "unknown")
    record = Model(f"timm:{model}", "backbone", "timm", hub_id=_hub_id(facts), licence=licence)

    def own_keys(state: State) -> State:
        """Bring a checkpoint to the keys and sizes of the network, and drop its classifier."""
        convert = getattr(sys.modules[type(module).__module__], "checkpoint_filter_fn", None)
        heads = facts.get("classifier") or ()
        heads = (heads,) if isinstance(heads, str) else heads
        dropped = tuple(f"{head}." for head in heads)
        state = state if convert is None else convert(state, module)
        return {key: value for key, value in state.items() if not key.startswith(dropped)}

    load_weights(record, lambda: module, weights, offline, convert=own_keys)
    return TimmBackbone(record, module)


def _create(timm: Any, name: str) -> Any:
    """Make the network without its classifier, if it is a plain ViT for images of any size."""
    if not timm.is_model(name):
        known = timm.list_models()
        raise ValueError(f"model must be one that timm lists{suggest(name, known)}, got {name!r}")
    try:
        module = timm.create_model(name, num_classes=0, dynamic_img_size=True)
    except TypeError:
        module = None
    patch = getattr(getattr(module, "patch_embed", None), "patch_size", (0, 1))
    plain = all(hasattr(module, part) for part in ("blocks", "embed_dim", "forward_intermediates"))
    if not plain or patch[0] != patch[1]:
        raise ValueError(
            "model must be a vision transformer of timm with square patches for images of any "
            f"size, got {name!r}"
        )
    return module


def _hub_id(facts: Any) -> str | None:
    """Repository of the weights; a trailing slash stands for the model's own name."""
    hub_id = facts.get("hf_hub_id")
    if not hub_id or not hub_id.endswith("/"):
        return hub_id or None
    tag = facts.get("tag")
    return f"{hub_id}{facts['architecture']}{'.' + tag if tag else ''}"
