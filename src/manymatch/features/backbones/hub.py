"""Any vision transformer of transformers (``hf:<id or folder>``) or of timm (``timm:<model>``)."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from manymatch._validate import suggest
from manymatch.features.backbones import Backbone, Maps
from manymatch.features.backbones.published import (
    TokenBackbone,
    load_network,
    read_config,
    require_transformers,
    run_blocks,
)
from manymatch.features.registry import Model
from manymatch.features.weights import (
    RANDOM,
    State,
    WeightsError,
    find_weights,
    first_line,
    load_weights,
)
from manymatch.io.files import read_json

_UNIT = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
_NORMS = ("layernorm", "norm", "post_layernorm", "layer_norm")
# More than any known network has besides its patches.
_MOST_PREFIX_TOKENS = 64
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
    transformers = require_transformers()
    name = f"hf:{model}"
    record = Model(name, "backbone", "hub", hub_id=model, licence=f"see its page ({model})")
    local = Path(model).expanduser()
    own = local.is_dir() and weights is None
    source = local if own else find_weights(record, weights, offline)
    folder = local if local.is_dir() or source == RANDOM else source
    if source == RANDOM and not local.is_dir():
        raise WeightsError(
            f"model must be a folder with a config.json where weights are random, got {name!r}"
        )
    if not (folder / "config.json").is_file():
        raise WeightsError(
            f"weights of {name!r} must be a folder with a config.json, got {str(folder)!r}"
        )
    config = read_config(transformers.AutoConfig, folder)
    # The image encoder may be a part of a larger model.
    config = getattr(config, "vision_config", config)
    if config.model_type == "vit_mae":
        config.mask_ratio = 0.0
    try:
        backbone = _made(transformers, config, source, record)
        backbone.mean, backbone.std = _normalisation(folder, config.model_type)
        backbone.prefix = _prefix_of(backbone)
    except _NotUnderstood as error:
        raise ValueError(
            f"model must be a vision transformer that transformers knows, got {name!r} ({error})"
        ) from None
    return backbone


class _NotUnderstood(Exception):  # noqa: N818 (its text is the end of another sentence)
    """A model is not a plain vision transformer; the text says why."""


def _made(transformers: Any, config: Any, source: Any, record: Model) -> HubBackbone:
    """Make the network, which must want nothing but pixels, and find its blocks."""
    kind = config.model_type
    try:
        network = transformers.MODEL_MAPPING[type(config)]
    except KeyError:
        raise _NotUnderstood(f"{kind} has no plain network") from None
    takes = inspect.signature(network.forward).parameters
    more = [
        name
        for name, p in takes.items()
        if p.default is p.empty
        and p.kind is p.POSITIONAL_OR_KEYWORD
        and name not in {"self", "pixel_values"}
    ]
    if "pixel_values" not in takes:
        raise _NotUnderstood(f"{kind} takes no images")
    if more:
        raise _NotUnderstood(f"{kind} also wants {', '.join(more)}")
    patch = getattr(config, "patch_size", None)
    sides = set(patch) if isinstance(patch, list | tuple) else {patch}
    if len(sides) != 1 or not all(isinstance(side, int) for side in sides):
        raise _NotUnderstood(f"its patch size is {patch!r}")
    # Files hold text encoders and heads under many names, which are not used.
    unused = ("",), _HEADS
    module: Any = load_network(network, config, source, record, *unused)
    depth, dim = (getattr(config, name, None) for name in ("num_hidden_layers", "hidden_size"))
    lists = [
        part
        for part in module.modules()
        if isinstance(part, torch.nn.ModuleList)
        and len(part) == depth
        and len({type(block) for block in part}) == 1
    ]
    if len(lists) != 1 or not isinstance(dim, int):
        raise _NotUnderstood(f"it has {len(lists)} lists of {depth} blocks")
    norm = next((getattr(module, name) for name in _NORMS if hasattr(module, name)), None)
    backbone = HubBackbone(record, module, lists[0], norm)
    backbone.patch_size = sides.pop()
    return backbone


def _prefix_of(backbone: HubBackbone) -> int:
    """Run a small black image through all blocks and count the tokens before the patches."""
    rows, columns = 3, 4
    size = (rows * backbone.patch_size, columns * backbone.patch_size)
    try:
        with torch.inference_mode():
            inputs = backbone.inputs(torch.zeros(1, 3, *size))
            ends = run_blocks(backbone.module, backbone.blocks, [1, backbone.num_layers], inputs)
    except (RuntimeError, ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
        raise _NotUnderstood(f"it does not run alone: {first_line(error)}") from None
    shapes: set[tuple[int, ...]] = {tuple(tokens.shape) for tokens in ends.values()}
    for prefix in range(_MOST_PREFIX_TOKENS + 1):
        if shapes == {(1, prefix + rows * columns, backbone.dim)}:
            return prefix
    found = " and ".join(map(str, sorted(shapes)))
    raise _NotUnderstood(f"for {rows} x {columns} patches its blocks return shapes {found}")


def _normalisation(folder: Path, kind: str) -> Any:
    """Mean and standard deviation that the network was trained with."""
    file = folder / "preprocessor_config.json"
    if kind == "radio":
        # It normalises inside; its processor is ignored.
        return _UNIT
    try:
        content = read_json(file, "a JSON file")
    except ValueError as error:
        raise _NotUnderstood(f"how images are normalised is unknown: {error}") from None
    if isinstance(content, dict) and not content.get("do_normalize", True):
        return _UNIT
    try:
        mean, std = (tuple(map(float, content[key])) for key in ("image_mean", "image_std"))
    except (KeyError, TypeError, ValueError):
        mean = std = ()
    if len(mean) != 3 or len(std) != 3:
        raise _NotUnderstood(f"its {file.name} lacks image_mean and image_std of RGB")
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
    patch = getattr(getattr(module, "patch_embed", None), "patch_size", None)
    plain = all(hasattr(module, part) for part in ("blocks", "embed_dim", "forward_intermediates"))
    why = "" if patch and plain else "it wants one size, or is built otherwise"
    if patch and not why and patch[0] != patch[1]:
        why = f"its patches are {patch[0]} x {patch[1]} pixels, not square"
    if why:
        raise ValueError(
            "model must be a vision transformer of timm for images of any size, got "
            f"{name!r} ({why})"
        )
    return module


def _hub_id(facts: Any) -> str | None:
    """Repository of the weights; a trailing slash stands for the model's own name."""
    hub_id = facts.get("hf_hub_id")
    if not hub_id or not hub_id.endswith("/"):
        return hub_id or None
    tag = facts.get("tag")
    return f"{hub_id}{facts['architecture']}{'.' + tag if tag else ''}"
