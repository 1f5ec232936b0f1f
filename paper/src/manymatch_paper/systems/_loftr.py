"""Coarse-to-fine matching of Efficient LoFTR, from the features of the two images.

The networks are those of transformers. Its own matching (5.22) is not used: it lists coarse matches
by image 1 for one image and by image 0 for the other, so that windows which do not belong together
are compared, and it takes the first place of every window. What follows is the published method.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from manymatch.features.device import require_torch

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True)
class LoftrSettings:
    """Constants of the method, as published.

    Attributes
    ----------
    temperature : float
        Of the coarse similarities.
    threshold : float
        A coarse match must be more probable.
    border : int
        Cells along the edges without matches.
    second : int
        Channels of the fine features that the second stage compares.
    second_temperature : float
        Of the second stage.
    """

    temperature: float = 0.1
    threshold: float = 0.2
    border: int = 2
    second: int = 8
    second_temperature: float = 10.0


def coarse_matches(
    features0: torch.Tensor, features1: torch.Tensor, settings: LoftrSettings
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Find the cells that match: mutual maxima of the dual softmax.

    Parameters
    ----------
    features0, features1 : (C, h, w) tensor
        Of one grid of cells.
    settings : LoftrSettings
        Constants.

    Returns
    -------
    cells0, cells1 : (M,) tensors of int64
        Cells, counted row by row.
    scores : (M,) tensor
        Their probability.
    """
    torch = require_torch()
    channels, height, width = features0.shape
    flat0, flat1 = (f.reshape(channels, -1).T for f in (features0, features1))
    similarity = flat0 @ flat1.T / (channels * settings.temperature)
    confidence = similarity.softmax(dim=0).mul_(similarity.softmax(dim=1))
    best, cells1 = confidence.max(dim=1)
    mutual = confidence.argmax(dim=0)[cells1] == torch.arange(len(cells1), device=cells1.device)
    inner = torch.zeros(height, width, dtype=torch.bool, device=cells1.device)
    b = settings.border
    inner[b : height - b, b : width - b] = True
    inner = inner.reshape(-1)
    (cells0,) = torch.where(mutual & (best > settings.threshold) & inner & inner[cells1])
    return cells0, cells1[cells0], best[cells0]


def fine_offsets(
    windows0: torch.Tensor, windows1: torch.Tensor, settings: LoftrSettings
) -> tuple[torch.Tensor, torch.Tensor]:
    """Find where in their windows cells match.

    Parameters
    ----------
    windows0 : (M, n * n, C) tensor
        Features of the cells of image 0, row by row.
    windows1 : (M, (n + 2) * (n + 2), C) tensor
        Of those of image 1, with a margin of one place.
    settings : LoftrSettings
        Constants.

    Returns
    -------
    places0, places1 : (M, 2) tensors
        (x, y) from the first place of the window without margin, whole numbers in image 0.
    """
    torch = require_torch()
    count, _, channels = windows0.shape
    n, m = (round(w.shape[1] ** 0.5) for w in (windows0, windows1))
    split = channels - settings.second
    first = windows0[..., :split] @ windows1[..., :split].transpose(1, 2) / split
    first = first.softmax(dim=1) * first.softmax(dim=2)
    inner = first.reshape(count, n * n, m, m)[..., 1:-1, 1:-1].reshape(count, -1)
    best = inner.argmax(dim=1)
    place0, place1 = best // (n * n), best % (n * n)
    rows = torch.arange(count, device=best.device)
    second = windows0[rows, place0, None, split:] @ windows1[..., split:].transpose(1, 2)
    second = second[:, 0].reshape(count, m, m) / settings.second**0.5
    step = torch.arange(3, device=best.device)
    y, x = place1 // n, place1 % n
    around = second[
        rows[:, None, None], (y[:, None] + step)[:, :, None], (x[:, None] + step)[:, None]
    ]
    weight = (around.reshape(count, 9) / settings.second_temperature).softmax(dim=1)
    weight = weight.reshape(count, 3, 3)
    towards = (step - 1).to(weight.dtype)
    shift = torch.stack([weight.sum(dim=1) @ towards, weight.sum(dim=2) @ towards], dim=1)
    whole0, whole1 = (
        torch.stack([place % n, place // n], dim=1).to(weight.dtype) for place in (place0, place1)
    )
    return whole0, whole1 + shift
