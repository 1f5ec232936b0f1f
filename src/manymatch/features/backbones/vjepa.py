"""V-JEPA 2.1: transformers pretrained on videos, used on one frame.

No library has them, so the networks are written out here and take the published checkpoints. Four
blocks have norms of their own (6, 12, 18 and 24 of ViT-L); any other layer is normed by the last
one, which is not what the network was trained with: compare such layers with ``norm=False`` too.

A network is a tree of torch's own modules with the names of the published tensors, made by
`build_network`; `VJepa.forward` runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from manymatch.features.backbones import Backbone, Maps
from manymatch.features.weights import load_weights

if TYPE_CHECKING:
    from manymatch.features.registry import Model

_PATCH = 16
_HEAD = 64
# Channels of a head that turn with time, height and width each; four remain as they are.
_TURNING = 20
# Positions run from 0 to this along either axis on every grid, as they did in pretraining.
_LAST_POSITION = 15.0


def build_network(dim: int, hidden: int, normed: Sequence[int]) -> torch.nn.Module:
    """Make an encoder without weights.

    `normed` are the blocks, counted from 1, after which a norm of its own exists; the last is the
    depth. The tokeniser and the embedding of videos are there, so that nothing of a checkpoint is
    left over, but are not used.
    """

    def norm() -> Any:
        return nn.LayerNorm(dim, eps=1e-6)

    def tokens(frames: int) -> Any:
        shape = (frames, _PATCH, _PATCH)
        return nn.ModuleDict({"proj": nn.Conv3d(3, dim, shape, shape)})

    def block() -> Any:
        attention = {"qkv": nn.Linear(dim, 3 * dim), "proj": nn.Linear(dim, dim)}
        perceptron = {"fc1": nn.Linear(dim, hidden), "fc2": nn.Linear(hidden, dim)}
        parts = {"attn": nn.ModuleDict(attention), "mlp": nn.ModuleDict(perceptron)}
        return nn.ModuleDict({"norm1": norm(), "norm2": norm(), **parts})

    network = nn.ModuleDict(
        {
            "patch_embed": tokens(frames=2),
            "patch_embed_img": tokens(frames=1),
            "blocks": nn.ModuleList(block() for _ in range(normed[-1])),
            "norms_block": nn.ModuleList(norm() for _ in normed),
        }
    )
    for name in ("img_mod_embed", "video_mod_embed"):
        network.register_parameter(name, nn.Parameter(torch.zeros(1, 1, dim)))
    return network


class VJepa(Backbone):
    """One of the published encoders, or any network of `build_network`."""

    patch_size = _PATCH

    def __init__(self, model: Model, normed: Sequence[int], module: Any) -> None:
        self.name, self.licence, self.module = model.name, model.licence, module
        self.dim, self.num_layers = module.img_mod_embed.shape[-1], normed[-1]
        self.normed = list(normed)

    def forward(self, pixels: torch.Tensor, layers: Sequence[int], norm: bool) -> Maps:
        """Compute maps; see `Backbone.forward`."""
        network: Any = self.module
        # A kernel of one frame on one frame is an ordinary, and faster, convolution.
        proj = network["patch_embed_img"]["proj"]
        embedded = functional.conv2d(pixels, proj.weight[:, :, 0], proj.bias, stride=_PATCH)
        rows, columns = embedded.shape[2:]
        x = embedded.flatten(2).transpose(1, 2) + network.img_mod_embed
        turn = rotation(rows, columns, device=x.device)
        found = {}
        for k, block in enumerate(network["blocks"][: max(layers)], start=1):
            x = x + _attend(block["attn"], block["norm1"](x), turn)
            hidden = functional.gelu(block["mlp"]["fc1"](block["norm2"](x)))
            x = x + block["mlp"]["fc2"](hidden)
            if k in layers:
                # The block's own norm, or the last one where it has none.
                own = self.normed.index(k) if k in self.normed else -1
                y = network["norms_block"][own](x) if norm else x
                found[k] = y.transpose(1, 2).unflatten(2, (rows, columns))
        return found


def _attend(attention: Any, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> Any:
    """Attention whose queries and keys are turned by their positions."""
    # (B, tokens, 3 * dim) to three of (B, heads, tokens, channels of a head).
    heads = attention["qkv"](x).unflatten(2, (3, -1, _HEAD)).permute(2, 0, 3, 1, 4)
    query, key, value = heads.unbind(0)
    turned = rotate(query, *turn), rotate(key, *turn)
    mixed = functional.scaled_dot_product_attention(*turned, value)
    return attention["proj"](mixed.transpose(1, 2).flatten(2))


def rotation(
    rows: int, columns: int, device: torch.device | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute cosine and sine of every channel's angle, each (rows * columns, 64) float32.

    Channels come in adjacent pairs that share an angle. The first 20 belong to time, which stands
    still at 0 for an image, 20 to height, 20 to width, and the last 4 do not turn. Positions are
    those of the pretraining grid: a step is ``15 / (size - 1)``, and a single row or column is 0.
    """
    half = _TURNING // 2
    speed = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)

    def angles(length: int) -> Any:
        step = _LAST_POSITION / max(length - 1, 1)
        steps = step * torch.arange(length, dtype=torch.float64)
        return torch.outer(steps, speed).repeat_interleave(2, dim=1)

    whole = torch.zeros(rows, columns, _HEAD, dtype=torch.float64)
    whole[:, :, _TURNING : 2 * _TURNING] = angles(rows)[:, None]
    whole[:, :, 2 * _TURNING : 3 * _TURNING] = angles(columns)[None]
    flat = whole.flatten(0, 1)
    return flat.cos().float().to(device), flat.sin().float().to(device)


def rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Turn every adjacent pair of channels by its angle."""
    first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
    quarter = torch.stack((-second, first), dim=-1).flatten(-2)
    return x * cosine + quarter * sine


def load_vjepa(model: Model, weights: object = None, offline: bool = False) -> VJepa:
    """Make an encoder."""
    normed = model.settings["normed"]

    def build() -> torch.nn.Module:
        # Every number is set later: drawing a billion of them first would be a waste.
        with torch.device("meta"):
            network = build_network(model.dim or 0, model.settings["hidden"], normed)
        return network.to_empty(device="cpu")

    return VJepa(model, normed, load_weights(model, build, weights, offline))
