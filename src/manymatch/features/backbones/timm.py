"""Any vision transformer of timm, as ``timm:<model>``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from manymatch._validate import suggest
from manymatch.features.backbones import Backbone
from manymatch.features.device import require_torch
from manymatch.features.registry import Model
from manymatch.features.weights import load_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from manymatch.features.tensors import State


class TimmBackbone(Backbone):
    """A vision transformer of timm, which itself knows how to return its blocks."""

    def __init__(self, name: str, module: Any, licence: str) -> None:
        self.name, self.module, self.licence = name, module, licence
        self.patch_size = int(module.patch_embed.patch_size[0])
        self.dim = int(module.embed_dim)
        self.num_layers = len(module.blocks)
        self.mean = tuple(module.pretrained_cfg["mean"])
        self.std = tuple(module.pretrained_cfg["std"])

    def forward(
        self, pixels: torch.Tensor, layers: Sequence[int], norm: bool
    ) -> dict[int, torch.Tensor]:
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
    require_torch()
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
        dropped = tuple(f"{head}." for head in heads) or ("\0",)
        state = state if convert is None else convert(state, module)
        return {key: value for key, value in state.items() if not key.startswith(dropped)}

    load_weights(record, lambda: module, weights, offline, convert=own_keys)
    return TimmBackbone(record.name, module, licence)


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
    if not why and patch[0] != patch[1]:
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
