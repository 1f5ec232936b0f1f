"""What the backbones of transformers have in common: loading, and blocks run up to the last one."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from manymatch._validate import require
from manymatch.features.backbones import Backbone
from manymatch.features.device import require_torch, works_now
from manymatch.features.tensors import (
    WeightsError,
    check_keys,
    first_line,
    freeze,
    load_state,
    random_weights,
)
from manymatch.features.weights import RANDOM, find_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Literal, Self

    import torch

    from manymatch.features.registry import Model
    from manymatch.features.tensors import State

# Never read without a training mask, and left out of some files.
_UNUSED = ("mask_token",)


def require_transformers() -> Any:
    """Import transformers, or say how to get it."""
    require_torch()
    return require("transformers", "this representation", "features", works_now)


def published_network(
    model: Model,
    weights: object,
    offline: bool,
    *,
    spare: tuple[str, ...] = (),
    convert: Callable[[State], State] | None = None,
) -> torch.nn.Module:
    """Make a published network and load its weights.

    Of `model.settings`, "network" is the stem of its class in transformers, such as "Dinov2" for
    ``Dinov2Config`` and ``Dinov2Model``, and the rest are fields of the configuration. A
    ``config.json`` beside the weights must agree with these, and decides everything else. The other
    arguments are as in `load_network`.
    """
    transformers = require_transformers()
    source = find_weights(model, weights, offline)
    settings = dict(model.settings)
    stem = settings.pop("network")
    config_class = getattr(transformers, f"{stem}Config")
    config = config_class(**settings)
    if source != RANDOM and (source / "config.json").is_file():
        config = read_config(config_class, source)
        for name, value in settings.items():
            got = getattr(config, name, None)
            if got != value:
                raise WeightsError(
                    f"weights must be those of {model.name!r}, got {str(source)!r} (its "
                    f"config.json says {name} {got!r} instead of {value!r})"
                )
    network = getattr(transformers, f"{stem}Model")
    return load_network(network, config, source, model.name, spare=spare, convert=convert)


def load_network(
    network: Any,
    config: Any,
    source: Path | Literal["random"],
    name: str,
    *,
    spare: tuple[str, ...] = (),
    dispensable: tuple[str, ...] = (),
    convert: Callable[[State], State] | None = None,
) -> torch.nn.Module:
    """Make a network of a class of transformers and load every one of its weights, or refuse.

    `source` is what `find_weights` returns. Tensors of the file that begin with `spare` are not
    used, and those of the network that begin with `dispensable` may be missing. `convert` brings
    the names of the authors' own file to those of the hub, and leaves the hub's alone.
    """
    if source == RANDOM:
        from transformers.initialization import no_init_weights

        # Its own initialisation takes several times as long and would be overwritten.
        with no_init_weights():
            module = network(config)
        return random_weights(module)
    state = load_state(source)
    if convert is not None:
        state = convert(state)
    with quiet():
        # Through transformers, as it knows under which names older files hold the same weights.
        module, info = network.from_pretrained(
            None,
            config=config,
            state_dict=state,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            dtype=require_torch().float32,
        )
    missing = (key for key in info["missing_keys"] if not key.endswith(_UNUSED))
    check_keys(
        name,
        total=len(module.state_dict()),
        missing=(key for key in missing if not key.startswith(dispensable or ("\0",))),
        unexpected=(key for key in info["unexpected_keys"] if not key.startswith(spare or ("\0",))),
        mismatched=(key for key, *_ in info["mismatched_keys"]),
    )
    return freeze(module)


class _Stop(Exception):  # noqa: N818 (no error: it ends a pass)
    """Raised by the last block that is needed."""


def run_blocks(
    module: torch.nn.Module,
    blocks: Sequence[torch.nn.Module],
    layers: Sequence[int],
    inputs: Mapping[str, Any],
) -> dict[int, torch.Tensor]:
    """Run a network up to the last wanted block and return the outputs of the wanted ones.

    Nothing after that block is computed and no other output is kept. Hooks do this, so the
    network's own loop over its blocks does not matter.
    """
    outputs: dict[int, torch.Tensor] = {}

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


@dataclasses.dataclass(eq=False)
class TokenBackbone(Backbone):
    """A vision transformer: one sequence of tokens, prefix first, then the patches row by row.

    Attributes
    ----------
    blocks : sequence of torch.nn.Module
        The blocks of `module`, in order.
    final_norm : torch.nn.Module, optional
        Applied to every asked layer if a norm is wanted.
    prefix : int
        Number of tokens before the patches.
    """

    name: str
    module: torch.nn.Module
    blocks: Sequence[torch.nn.Module]
    final_norm: torch.nn.Module | None
    patch_size: int
    dim: int
    prefix: int
    licence: str

    def __post_init__(self) -> None:
        self.has_norm = self.final_norm is not None
        self.num_layers = len(self.blocks)

    @classmethod
    def of(cls, model: Model, module: Any, blocks: Any, final_norm: Any, prefix: int) -> Self:
        """Make the backbone of a model from its network."""
        size, dim = module.config.patch_size, module.config.hidden_size
        return cls(model.name, module, blocks, final_norm, size, dim, prefix, model.licence)

    def inputs(self, pixels: torch.Tensor) -> dict[str, Any]:
        """Return the keyword arguments of the network for (B, 3, H, W) pixels."""
        return {"pixel_values": pixels}

    def forward(
        self, pixels: torch.Tensor, layers: Sequence[int], norm: bool
    ) -> dict[int, torch.Tensor]:
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


def read_config(config_class: Any, folder: Path) -> Any:
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
