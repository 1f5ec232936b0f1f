"""The layers of V-JEPA 2.1; imports torch, so is imported only when a network is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Sequence

PATCH = 16
_HEAD = 64
# Channels of a head that turn with time, height and width each; four remain as they are.
_TURNING = 20
# Positions run from 0 to this along either axis, whatever the grid: the one of the pretraining.
_LAST_POSITION = 15.0


class Size(NamedTuple):
    """Shape of one published network."""

    dim: int
    hidden: int
    #: Blocks, counted from 1, after which a norm of its own exists; the last is the depth.
    normed: tuple[int, int, int, int]

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self.normed[-1]


class Network(nn.Module):  # type: ignore[misc]
    """Encoder for single frames, with the names of the published weights.

    The tokeniser and the embedding of videos are there, so that nothing of a checkpoint is left
    over, but are not used.
    """

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.patch_embed = _Tokens(size.dim, frames=2)
        self.patch_embed_img = _Tokens(size.dim, frames=1)
        self.img_mod_embed = nn.Parameter(torch.zeros(1, 1, size.dim))
        self.video_mod_embed = nn.Parameter(torch.zeros(1, 1, size.dim))
        self.blocks = nn.ModuleList(_Block(size) for _ in range(size.depth))
        self.norms_block = nn.ModuleList(_norm(size.dim) for _ in size.normed)

    def forward(
        self, pixels: torch.Tensor, layers: Sequence[int], norm: bool
    ) -> dict[int, torch.Tensor]:
        """Return (B, dim, rows, columns) outputs of some blocks, counted from 1."""
        embedded = self.patch_embed_img(pixels)
        rows, columns = embedded.shape[2:]
        x = embedded.flatten(2).transpose(1, 2) + self.img_mod_embed
        turn = rotation(rows, columns, device=x.device)
        found = {}
        for k, block in enumerate(self.blocks[: max(layers)], start=1):
            x = block(x, turn)
            if k in layers:
                y = self.norm_of(k)(x) if norm else x
                found[k] = y.transpose(1, 2).unflatten(2, (rows, columns))
        return found

    def norm_of(self, layer: int) -> nn.LayerNorm:
        """Return the block's own norm, or the last one where it has none."""
        normed = self.size.normed
        return self.norms_block[normed.index(layer) if layer in normed else -1]


class _Tokens(nn.Module):  # type: ignore[misc]
    """One vector per patch of 16 x 16 pixels."""

    def __init__(self, dim: int, frames: int) -> None:
        super().__init__()
        shape = (frames, PATCH, PATCH)
        self.proj = nn.Conv3d(3, dim, shape, shape)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        # A kernel of one frame on one frame is an ordinary, and faster, convolution.
        return functional.conv2d(pixels, self.proj.weight[:, :, 0], self.proj.bias, stride=PATCH)


class _Block(nn.Module):  # type: ignore[misc]
    """Attention and a perceptron, each behind a norm and beside a shortcut."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.norm1 = _norm(size.dim)
        self.attn = _Attention(size.dim)
        self.norm2 = _norm(size.dim)
        self.mlp = _Perceptron(size.dim, size.hidden)

    def forward(self, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        x = x + self.attn(self.norm1(x), turn)
        return x + self.mlp(self.norm2(x))


class _Attention(nn.Module):  # type: ignore[misc]
    """Attention whose queries and keys are turned by their positions."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        # (B, tokens, 3 * dim) to three of (B, heads, tokens, channels of a head).
        heads = self.qkv(x).unflatten(2, (3, -1, _HEAD)).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        mixed = functional.scaled_dot_product_attention(
            rotate(query, *turn), rotate(key, *turn), value
        )
        return self.proj(mixed.transpose(1, 2).flatten(2))


class _Perceptron(nn.Module):  # type: ignore[misc]
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(functional.gelu(self.fc1(x)))


def _norm(dim: int) -> nn.LayerNorm:
    return nn.LayerNorm(dim, eps=1e-6)


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

    def angles(length: int) -> torch.Tensor:
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
