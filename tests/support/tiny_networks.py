"""Networks of the real architectures, small enough to make in milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers.utils import logging

from manymatch.features.backbones.published import load_dinov2, load_dinov3, load_siglip2
from manymatch.features.registry import Model, models
from manymatch.features.weights import random_weights

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

logging.disable_progress_bar()

LAYERS, DIM = 3, 32
_SMALL = {"hidden_size": DIM, "num_hidden_layers": LAYERS, "num_attention_heads": 2}

_DINOV3 = {**_SMALL, "patch_size": 16, "intermediate_size": 64, "num_register_tokens": 4}
_GATED = {"use_gated_mlp": True, "hidden_act": "silu", "query_bias": False, "value_bias": False}
_DINOV2 = {**_SMALL, "patch_size": 14, "image_size": 56}
_SIGLIP2 = {**_SMALL, "patch_size": 16, "intermediate_size": 64, "num_patches": 16}
# Stem of the class in transformers, settings, and our loader.
FAMILIES: dict[str, tuple[str, dict[str, Any], Callable[..., Any]]] = {
    "dinov3": ("DINOv3ViT", _DINOV3, load_dinov3),
    "dinov3-gated": ("DINOv3ViT", {**_DINOV3, **_GATED}, load_dinov3),
    "dinov2": ("Dinov2", _DINOV2, load_dinov2),
    "dinov2-reg": ("Dinov2WithRegisters", {**_DINOV2, "num_register_tokens": 4}, load_dinov2),
    "siglip2": ("Siglip2Vision", _SIGLIP2, load_siglip2),
}
CONVNEXT = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]}


def record(
    name: str = "tiny", stem: str = "", settings: dict[str, Any] | None = None, **facts: Any
) -> Model:
    """A catalogue entry for a network that is not in the catalogue."""
    fields = {"network": stem, **(settings or {})}
    alike = (m for m in models().values() if m.settings.get("network") == stem)
    facts = {"tensors": getattr(next(alike, None), "tensors", ()), **facts}
    return Model(name, "backbone", "test", hub_id=f"some/{name}", settings=fields, **facts)


def backbone(family: str, weights: object = "random") -> Any:
    stem, settings, load = FAMILIES[family]
    return load(record(family, stem, settings), weights)


def network(family: str, **changes: Any) -> Any:
    stem, settings, _ = FAMILIES[family]
    config = getattr(transformers, f"{stem}Config")(**settings | changes)
    return random_weights(getattr(transformers, f"{stem}Model")(config))


def save(family: str, folder: Path, **changes: Any) -> Path:
    """Write the network as transformers does, under the names that files on the hub have."""
    network(family, **changes).save_pretrained(folder)
    return folder


def pixels(patch: int, rows: int, columns: int, *, batch: int = 1, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, 3, rows * patch, columns * patch, generator=generator)


def same(backbone: Any, family: str = "dinov3") -> bool:
    """Whether a backbone has exactly the weights that `save` writes."""
    expected, got = network(family).state_dict(), backbone.module.state_dict()
    return expected.keys() == got.keys() and all(torch.equal(expected[k], got[k]) for k in got)


def one_sentence(error: Any) -> str:
    """Text of a caught error, which must be short and on one line."""
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 900
    return text
