"""Vision networks of transformers: DINOv2, DINOv3 (ViTs and ConvNeXts) and SigLIP 2 NaFlex.

Their weights load from the hub's files and from the ``.pth`` files that Meta publishes, whose names
are translated to the hub's. Shapes, revisions and hashes are in ``models.toml``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from manymatch._validate import require
from manymatch.features.backbones import Backbone, Maps
from manymatch.features.device import works_now
from manymatch.features.resize import Resize
from manymatch.features.weight_files import State, WeightsError, load_state
from manymatch.features.weights import (
    RANDOM,
    check_keys,
    find_weights,
    freeze,
    random_weights,
    renamed,
)

if TYPE_CHECKING:
    from manymatch.features.registry import Model

# Frequencies of DINOv3's rotary positions, which its files hold as they were in training: rounded.
_PERIODS = "rope_embed.periods"
# What SigLIP 2's files hold beside the image encoder.
_TEXT = ("text_model.", "logit_")
_HALF = (0.5, 0.5, 0.5)
_BUDGET = 1024
# Never read without a training mask, and left out of some files.
_UNUSED = ("mask_token",)


def load_dinov2(model: Model, weights: object = None, offline: bool = False) -> TokenBackbone:
    """Make a ViT; its learned position embedding is resized to the grid of every image."""
    module: Any = published_network(model, weights, offline, convert=split)
    prefix = 1 + getattr(module.config, "num_register_tokens", 0)
    return TokenBackbone(model, module, module.encoder.layer, module.layernorm, prefix)


def load_dinov3(model: Model, weights: object = None, offline: bool = False) -> TokenBackbone:
    """Make a ViT with rotary positions; layer k is the output of block k.

    Meta's files hold the frequencies of the rotary positions, rounded to bfloat16, and the
    published network uses them so; the hub's files do not, and transformers computes them exactly.
    Here every file gives what its publisher's code gives.
    """
    found: State = {}

    def convert(state: State) -> State:
        found.update(state)
        return without_key_bias(state)

    module: Any = published_network(model, weights, offline, convert=convert)
    if _PERIODS in found:
        # A part of the state from now on, so that the hash of the weights knows of it.
        module.rope_embeddings.register_buffer("inv_freq", 1.0 / found[_PERIODS].float())
    prefix = 1 + module.config.num_register_tokens
    return TokenBackbone(model, module, module.model.layer, module.norm, prefix)


def load_convnext(model: Model, weights: object = None, offline: bool = False) -> ConvNext:
    """Make a ConvNeXt."""
    return ConvNext(model, published_network(model, weights, offline))


def load_siglip2(model: Model, weights: object = None, offline: bool = False) -> Naflex:
    """Make an image encoder; it has no prefix tokens."""
    module: Any = published_network(model, weights, offline, spare=_TEXT)
    backbone = Naflex(model, module, module.encoder.layers, module.post_layernorm)
    backbone.mean = backbone.std = _HALF
    backbone.resize = Resize.budget(_BUDGET)
    return backbone


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
    """A vision transformer: one sequence of tokens, `prefix` others, then the patches row by row.

    `blocks` are those of `module`, in order. A `final_norm` is applied to every asked layer if a
    norm is wanted.
    """

    module: torch.nn.Module

    def __init__(
        self, model: Model, module: Any, blocks: Any, final_norm: Any, prefix: int = 0
    ) -> None:
        self.name, self.licence, self.module = model.name, model.licence, module
        self.blocks, self.final_norm, self.prefix = blocks, final_norm, prefix
        self.patch_size, self.dim = module.config.patch_size, module.config.hidden_size
        self.has_norm, self.num_layers = final_norm is not None, len(blocks)

    def inputs(self, pixels: torch.Tensor) -> dict[str, Any]:
        """Return the keyword arguments of the network for (B, 3, H, W) pixels."""
        return {"pixel_values": pixels}

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
    """Make a published network and load every one of its weights, or refuse.

    Of `model.settings`, "network" is the stem of its class in transformers, such as "Dinov2" for
    ``Dinov2Config`` and ``Dinov2Model``, and the rest are fields of the configuration; a
    ``config.json`` beside the weights is not read. Tensors of the file that begin with `spare` are
    not used. `convert` changes the tensors of the authors' own file before their names are
    translated.
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
