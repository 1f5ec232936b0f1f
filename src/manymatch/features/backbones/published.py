"""Vision networks of transformers and timm: those of the catalogue, and any other by its name.

In the catalogue are DINOv2, DINOv3 (ViTs and ConvNeXts) and SigLIP 2 NaFlex. Their weights load
from the hub's files and from the ``.pth`` files that Meta publishes, whose names are translated to
the hub's. Shapes, revisions and hashes are in ``models.toml``. Other vision transformers are
``hf:<id or folder>`` and ``timm:<model>``.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch

from manymatch._validate import require, suggest
from manymatch.features.backbones import Backbone, Maps
from manymatch.features.device import works_now
from manymatch.features.registry import Model
from manymatch.features.resize import Resize
from manymatch.features.weight_files import State, WeightsError, first_line, load_state
from manymatch.features.weights import (
    RANDOM,
    check_keys,
    find_weights,
    freeze,
    load_weights,
    random_weights,
    renamed,
)
from manymatch.io.files import read_json

# Frequencies of DINOv3's rotary positions, which its files hold as they were in training: rounded.
_PERIODS = "rope_embed.periods"
# What SigLIP 2's files hold beside the image encoder.
_TEXT = ("text_model.", "logit_")
# Names of the norm after the last block.
_NORMS = ("layernorm", "norm", "post_layernorm", "layer_norm")
# Never read without a training mask, and left out of some files.
_UNUSED = ("mask_token",)
# Parts behind the last block, which no map needs.
_HEADS = ("pooler.", "head.", "classifier.")
_UNIT = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def load_dinov2(model: Model, weights: object = None, offline: bool = False) -> TokenBackbone:
    """Make a ViT; its learned position embedding is resized to the grid of every image."""
    return TokenBackbone(model, published_network(model, weights, offline, convert=split))


def load_dinov3(model: Model, weights: object = None, offline: bool = False) -> TokenBackbone:
    """Make a ViT with rotary positions; layer k is the output of block k.

    Meta's files hold the frequencies of the rotary positions, rounded to bfloat16, and the
    published network uses them so; the hub's files do not, and transformers computes them exactly.
    Here every file gives what its publisher's code gives.
    """
    periods: list[torch.Tensor] = []

    def convert(state: State) -> State:
        periods.extend(state[key] for key in state.keys() & {_PERIODS})
        return without_key_bias(state)

    module: Any = published_network(model, weights, offline, convert=convert)
    for values in periods:
        # A part of the state from now on, so that the hash of the weights knows of it.
        module.rope_embeddings.register_buffer("inv_freq", 1.0 / values.float())
    return TokenBackbone(model, module)


def load_convnext(model: Model, weights: object = None, offline: bool = False) -> ConvNext:
    """Make a ConvNeXt."""
    return ConvNext(model, published_network(model, weights, offline))


def load_siglip2(model: Model, weights: object = None, offline: bool = False) -> Naflex:
    """Make an image encoder; it has no prefix tokens."""
    return Naflex(model, published_network(model, weights, offline, spare=_TEXT))


def without_key_bias(state: State) -> State:
    """Convert the tensors of Meta's DINOv3 files; those of the hub's files stay as they are.

    Keys have no bias there: one is stored, and a mask that switches it off.
    """
    kept = split({key: value for key, value in state.items() if key != _PERIODS})
    for key in [key for key in kept if key.endswith(".attn.k.bias")]:
        if kept.pop(key).any():
            raise WeightsError(
                f"weights must be those of DINOv3, got a file with a bias of keys ({key!r})"
            )
    if "mask_token" in kept:
        kept["mask_token"] = kept["mask_token"].reshape(1, 1, -1)
    return kept


def split(state: State) -> State:
    """Give queries, keys and values, stored one above the other, names of their own.

    A bias counts where its mask is not zero, as the published layer multiplies the two. Masks of
    keys may be NaN: there they were never set, and count as zero.
    """
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
            on = [part.ne(0) for part in mask.chunk(3)]
            on[1] &= ~mask.chunk(3)[1].isnan()
            parts = [torch.where(let, part, 0.0) for let, part in zip(on, parts, strict=True)]
        for letter, part in zip("qkv", parts, strict=False):
            split[f"{stem}.attn.{letter}.{kind}"] = part
    return split


class _Stop(Exception):  # noqa: N818 (no error: it ends a pass)
    """Raised by the last block that is needed."""


def run_blocks(
    module: torch.nn.Module, blocks: Any, layers: Sequence[int], inputs: Mapping[str, Any]
) -> Maps:
    """Run a network up to the last wanted block and return the outputs of the wanted ones.

    Nothing after that block is computed and no other output is kept. Hooks do this, so the
    network's own loop over its blocks does not matter.
    """
    outputs: Maps = {}

    def keep(layer: int) -> Any:
        def hook(_module: object, _inputs: object, output: Any) -> None:
            outputs[layer] = output[0] if isinstance(output, tuple) else output
            if layer == max(layers):
                raise _Stop

        return hook

    handles = [blocks[layer - 1].register_forward_hook(keep(layer)) for layer in layers]
    try:
        with contextlib.suppress(_Stop):
            module(**inputs)
    finally:
        for handle in handles:
            handle.remove()
    return outputs


class TokenBackbone(Backbone):
    """A vision transformer of transformers: one sequence of tokens, the patches row by row at last.

    Its blocks, its final norm and the number of tokens before the patches are found by looking at
    it, and by running it once.
    """

    module: torch.nn.Module

    def __init__(self, model: Model, module: Any) -> None:
        self.name, self.licence, self.module = model.name, model.licence, module
        patch, depth = module.config.patch_size, module.config.num_hidden_layers
        self.patch_size = patch if isinstance(patch, int) else patch[0]
        self.dim = module.config.hidden_size
        lists = [
            part
            for part in module.modules()
            if isinstance(part, torch.nn.ModuleList)
            and len(part) == depth
            and len({type(block) for block in part}) == 1
        ]
        if len(lists) != 1:
            raise ValueError(f"it has {len(lists)} lists of {depth} blocks")
        norms = (getattr(module, name) for name in _NORMS if hasattr(module, name))
        self.blocks, self.final_norm = lists[0], next(norms, None)
        self.has_norm, self.num_layers = self.final_norm is not None, depth
        rows, columns = 3, 4
        black = torch.zeros(1, 3, rows * self.patch_size, columns * self.patch_size)
        with torch.inference_mode():
            ends = run_blocks(module, self.blocks, [1, depth], self.inputs(black))
        shapes = {tuple(tokens.shape) for tokens in ends.values()}
        self.prefix = min(shape[1] for shape in shapes) - rows * columns
        if self.prefix < 0 or shapes != {(1, self.prefix + rows * columns, self.dim)}:
            found = " and ".join(map(str, sorted(shapes)))
            raise ValueError(f"for {rows} x {columns} patches its blocks return shapes {found}")

    def inputs(self, pixels: torch.Tensor) -> dict[str, Any]:
        """Return the keyword arguments of the network for (B, 3, H, W) pixels."""
        takes = inspect.signature(type(self.module).forward).parameters
        arguments: dict[str, Any] = {"pixel_values": pixels}
        if "interpolate_pos_encoding" in takes:
            arguments["interpolate_pos_encoding"] = True
        if "noise" in takes:
            # Masked autoencoders sort their tokens by this noise: it keeps their order.
            rows, columns = (length // self.patch_size for length in pixels.shape[2:])
            order = torch.arange(rows * columns, dtype=torch.float32, device=pixels.device)
            arguments["noise"] = order.expand(len(pixels), -1)
        return arguments

    def forward(self, pixels: torch.Tensor, layers: Sequence[int], norm: bool) -> Maps:
        """Compute maps; see `Backbone.forward`."""
        rows, columns = (length // self.patch_size for length in pixels.shape[2:])
        outputs = run_blocks(self.module, self.blocks, layers, self.inputs(pixels))
        maps = {}
        for layer in layers:
            tokens = outputs.pop(layer)
            if norm and self.final_norm is not None:
                tokens = self.final_norm(tokens)
            if tokens.ndim != 3 or tokens.shape[1] != self.prefix + rows * columns:
                raise ValueError(
                    f"backbone {self.name!r} must return {rows * columns} tokens after "
                    f"{self.prefix} others for this image, got blocks of shape "
                    f"{tuple(tokens.shape)}"
                )
            patches = tokens[:, self.prefix :].transpose(1, 2)
            maps[layer] = patches.unflatten(2, (rows, columns))
        return maps


class Naflex(TokenBackbone):
    """An image encoder that is given patches instead of pixels."""

    mean = std = (0.5, 0.5, 0.5)
    resize = Resize.budget(1024)

    def inputs(self, pixels: torch.Tensor) -> dict[str, Any]:
        """Cut (B, 3, H, W) pixels into (B, N, 3 * patch ** 2) patches, colours innermost."""
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

    Stem and downsampling have kernels as wide as their stride. The final norm belongs to the last
    stage; the others are returned as they are.
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

    def forward(self, pixels: torch.Tensor, layers: Sequence[int], norm: bool) -> Maps:
        """Compute maps; see `Backbone.forward`."""
        module: Any = self.module
        maps = run_blocks(module, self.stages, layers, {"pixel_values": pixels})
        if norm and self.num_layers in maps:
            last = maps[self.num_layers].permute(0, 2, 3, 1)
            maps[self.num_layers] = module.layer_norm(last).permute(0, 3, 1, 2)
        return maps


def published_network(
    model: Model,
    weights: object,
    offline: bool,
    *,
    spare: tuple[str, ...] = (),
    convert: Callable[[State], State] | None = None,
) -> torch.nn.Module:
    """Make a network of the catalogue; its config.json, if there is one, is not read.

    Of `model.settings`, "network" is the stem of its class in transformers, such as "Dinov2" for
    ``Dinov2Config`` and ``Dinov2Model``, and the rest are fields of the configuration. The other
    arguments are as in `load_network`.
    """
    transformers = require("transformers", "this network", "features", works_now)
    source = find_weights(model, weights, offline)
    settings = dict(model.settings)
    stem = settings.pop("network")
    config = getattr(transformers, f"{stem}Config")(**settings)
    network = getattr(transformers, f"{stem}Model")
    return load_network(network, config, source, model, spare=spare, convert=convert)


def load_network(
    network: Any,
    config: Any,
    source: Path | Literal["random"],
    model: Model,
    spare: tuple[str, ...] = (),
    dispensable: tuple[str, ...] = (),
    convert: Callable[[State], State] | None = None,
) -> torch.nn.Module:
    """Make a network of a class of transformers and load every one of its weights, or refuse.

    `source` is what `find_weights` returns. Tensors of the file that begin with `spare` are not
    used, and those of the network that begin with `dispensable` may be missing. `convert` changes
    the tensors of the authors' own file before their names are translated.
    """
    if source == RANDOM:
        from transformers.initialization import no_init_weights

        # Its own initialisation takes several times as long and would be overwritten.
        with no_init_weights():
            module = network(config)
        return random_weights(module)
    state = load_state(source, model.entry)
    with quiet():
        # Through transformers, as it knows under which names older files hold the same weights.
        module, info = network.from_pretrained(
            None,
            config=config,
            state_dict=renamed(state if convert is None else convert(state), model),
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            dtype=torch.float32,
        )
    missing = (key for key in info["missing_keys"] if not key.endswith(_UNUSED))
    check_keys(
        model.name,
        total=len(module.state_dict()),
        missing=(key for key in missing if not key.startswith(dispensable)),
        unexpected=(key for key in info["unexpected_keys"] if not key.startswith(spare)),
        mismatched=(key for key, *_ in info["mismatched_keys"]),
    )
    return freeze(module)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence progress bars and reports: what matters is checked and raised."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def load_hub(model: str, weights: object = None, offline: bool = False) -> TokenBackbone:
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
        network = transformers.MODEL_MAPPING[type(config)]
        # Files hold text encoders and heads under many names, which are not used.
        module = load_network(network, config, source, record, ("",), _HEADS)
        backbone = TokenBackbone(record, module)
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
    hub_id = facts.get("hf_hub_id") or None
    if hub_id and hub_id.endswith("/"):
        # The slash stands for the model's own name.
        hub_id = ".".join(filter(None, (hub_id + facts["architecture"], facts.get("tag"))))
    record = Model(f"timm:{model}", "backbone", "timm", hub_id=hub_id, licence=licence)

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
