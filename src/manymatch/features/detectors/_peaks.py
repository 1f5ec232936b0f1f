"""Peaks of a network's score map."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Integers up to here are exact in float32, the fastest type for pooling.
_EXACT_IN_FLOAT32 = 2**24


def find_peaks(
    scores: torch.Tensor, radius: int, threshold: float, rounds: int = 0
) -> torch.Tensor:
    """Find local maxima, best first.

    Parameters
    ----------
    scores : (H, W) tensor
        Score of every pixel.
    radius : int
        A peak is larger than all others in the square of ``2 radius + 1`` pixels around it; of
        equal ones the first in reading order counts as the largest. So no two peaks are within
        the radius, and the result does not depend on the machine.
    threshold : float
        Scores must be larger.
    rounds : int
        How often peaks are looked for again among the pixels outside the squares of those found,
        as SuperPoint does.

    Returns
    -------
    (N,) int64 tensor
        Indices into the flattened map, by falling score, equal ones in reading order.
    """
    import torch

    flat = scores.reshape(-1)
    candidates = torch.nonzero(flat > threshold)[:, 0]
    best = candidates[torch.sort(flat[candidates], descending=True, stable=True).indices]
    if radius == 0 or len(best) == 0:
        return best
    # Places in that order instead of scores, so that nothing ties; 0 is no candidate.
    exact = torch.float32 if len(best) < _EXACT_IN_FLOAT32 else torch.float64
    place = torch.zeros_like(flat, dtype=exact)
    place[best] = torch.arange(len(best), 0, -1, device=flat.device, dtype=exact)
    place = place.reshape(scores.shape)
    peaks = _largest(place, radius)
    for _ in range(rounds):
        outside = place.masked_fill(_pool(peaks.to(exact), radius) > 0, 0.0)
        peaks |= _largest(outside, radius)
    return best[peaks.reshape(-1)[best]]


def _largest(place: torch.Tensor, radius: int) -> torch.Tensor:
    """Tell which candidates are the largest of their squares."""
    return (place == _pool(place, radius)) & (place > 0)


def _pool(values: torch.Tensor, radius: int) -> torch.Tensor:
    """Maximum over squares, one axis after the other."""
    from torch.nn.functional import max_pool2d

    size = 2 * radius + 1
    along_x = max_pool2d(values[None, None], (1, size), stride=1, padding=(0, radius))
    return max_pool2d(along_x, (size, 1), stride=1, padding=(radius, 0))[0, 0]


def positions(indices: torch.Tensor, width: int) -> torch.Tensor:
    """Turn indices into a flattened map into (N, 2) pixels (x, y)."""
    import torch

    return torch.stack([indices % width, indices // width], dim=1)
