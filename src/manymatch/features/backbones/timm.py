"""Any vision transformer of timm, as ``timm:<model>``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from manymatch._validate import suggest
from manymatch.features.backbone import Backbone
from manymatch.features.device import require_torch
from manymatch.features.registry import Model, register_backbone
from manymatch.features.weights import load_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


class TimmBackbone(Backbone):
    """A vision transformer of timm, which knows itself how to return its blocks."""

    def __init__(self, name: str, module: Any, licence: str) -> None:
        self.name = name
        self.module = module
        self.licence = licence
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


@register_backbone("timm", prefix=True)
def load_timm(model: str, weights: object = None, offline: bool = False) -> TimmBackbone:
    """Make a model of timm by its name there, with a tag for particular weights or without."""
    timm = _require_timm()
    module = _create(timm, model)
    facts = module.pretrained_cfg
    licence = str(facts.get("license") or "unknown")
    record = Model(f"timm:{model}", "backbone", "timm", hub_id=_hub_id(module), licence=licence)
    load_weights(
        record, lambda: module, weights, offline, convert=lambda state: _own_keys(module, state)
    )
    return TimmBackbone(record.name, module, licence)


def _require_timm() -> Any:
    require_torch()
    try:
        import timm
    except (ImportError, RuntimeError) as error:
        raise ModuleNotFoundError(
            "backbones of timm need timm and a torchvision that fits torch: "
            f'pip install "manymatch[timm]" ({error})'
        ) from error
    return timm


def _create(timm: Any, name: str) -> Any:
    """Make the network without its classifier, if it is a plain ViT for images of any size."""
    if not timm.is_model(name):
        known = timm.list_models()
        raise ValueError(f"model must be one that timm lists{suggest(name, known)}, got {name!r}")
    why = "it wants one size, or is built otherwise"
    try:
        module = timm.create_model(name, num_classes=0, dynamic_img_size=True)
    except TypeError:
        raise _refuse(name, why) from None
    patch = getattr(getattr(module, "patch_embed", None), "patch_size", None)
    plain = all(hasattr(module, part) for part in ("blocks", "embed_dim", "forward_intermediates"))
    if patch is None or not plain:
        raise _refuse(name, why)
    if patch[0] != patch[1]:
        raise _refuse(name, f"its patches are no squares but {patch[0]} x {patch[1]} pixels")
    return module


def _refuse(name: str, why: str) -> ValueError:
    return ValueError(
        f"model must be a vision transformer of timm for images of any size, got {name!r} ({why})"
    )


def _hub_id(module: Any) -> str | None:
    """Repository of the weights; a trailing slash stands for the model's own name."""
    hub_id = module.pretrained_cfg.get("hf_hub_id")
    if not hub_id:
        return None
    if not hub_id.endswith("/"):
        return str(hub_id)
    facts = module.pretrained_cfg
    tag = facts.get("tag")
    return f"{hub_id}{facts['architecture']}{'.' + tag if tag else ''}"


def _own_keys(module: Any, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Bring a checkpoint to the keys and sizes of the network, and drop its classifier."""
    convert = getattr(sys.modules[type(module).__module__], "checkpoint_filter_fn", None)
    if convert is not None:
        state = convert(state, module)
    heads = module.pretrained_cfg.get("classifier") or ()
    prefixes = tuple(f"{head}." for head in ((heads,) if isinstance(heads, str) else heads))
    return {
        key: value for key, value in state.items() if not (prefixes and key.startswith(prefixes))
    }
