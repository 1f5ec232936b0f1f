"""How likely each resolved match is to be right, given everything the estimate of a pair shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from manymatch._validate import BoolArray, FloatArray, IndexArray

# Wrong candidates do not end at the threshold: those at 2 to 5 times its distance, per threshold,
# are as many as there are by chance within it.
_RING = (2.0, 5.0)
# A pose fits any five candidates.
_SAMPLE = 5
# Ranks above this count as this, and a candidate that the motion filter does not keep is worth
# less; both as the estimator has it.
_RANKS, _NOT_KEPT = 5, 0.3
# Chances of a level are mixed with those of all levels, which count as so many inliers.
_SHRINK = 4.0
# Log-odds of a match: constant, competition, excess over chance, size, prior. Fitted by
# benchmarks/accuracy/calibration.py; docs/auto.md has the measured reliability.
_COEFFICIENTS = (0.471, -0.419, 0.702, 1.76, 0.399)


def match_probability(
    edges: NDArray[np.int32],
    rank: NDArray[np.int32] | None,
    kept: BoolArray,
    distance: FloatArray,
    inliers: BoolArray,
    matched: IndexArray,
) -> FloatArray:
    """Probability (M,) that each match of a resolved pair is right.

    Parameters
    ----------
    edges : (E, 2) int32
        All candidates.
    rank : (E,) int32, optional
        Their ranks; None if unknown.
    kept : (E,) bool, or empty
        Candidates that the motion filter keeps; empty if it did not run.
    distance : (E,) float64
        Sampson distances from the pose in units of the threshold, infinite behind a camera.
    inliers : (E,) bool
        Candidates consistent with the pose.
    matched : (M,) int64
        Candidates that are the matches.
    """
    if len(matched) == 0:
        return np.zeros(0)
    ranks = np.ones(len(edges), np.int64) if rank is None else np.clip(rank, 1, _RANKS)
    doubtful = np.zeros(len(edges), bool) if len(kept) == 0 else ~kept
    prior = np.where(doubtful, _NOT_KEPT, 1.0) / ranks
    level = 2 * (ranks - 1) + doubtful
    found = np.bincount(level[inliers], minlength=2 * _RANKS).astype(float)
    ring = (distance > _RING[0]) & (distance < _RING[1])
    chance = np.bincount(level[ring], minlength=2 * _RANKS) / (_RING[1] - _RING[0])
    odds = np.where(inliers, _odds(found, chance)[level], 0.0)
    competition = np.ones(len(matched))
    for side in (0, 1):
        vertex = edges[:, side]
        total = np.bincount(vertex, odds)
        competition *= 1.0 + np.maximum(total[vertex[matched]] - odds[matched], 0.0)
    excess = max(found.sum() - _SAMPLE - chance.sum(), 1.0) / (np.sqrt(chance.sum()) + 3.0)
    size = max(len(matched) - _SAMPLE, 1) / np.sqrt(len(edges))
    constant, *slopes = _COEFFICIENTS
    log_odds = np.full(len(matched), constant)
    terms = (competition, excess, size, 0.3 * prior[matched])
    for slope, value in zip(slopes, terms, strict=True):
        log_odds += slope * np.log(value)
    return np.asarray(1.0 / (1.0 + np.exp(-log_odds)), dtype=np.float64)


def _odds(found: FloatArray, chance: FloatArray) -> FloatArray:
    """Odds (L,) that an inlier of a level is true: those beyond chance against those by chance."""
    pooled = (chance.sum() + 0.5) / (found.sum() + 1.0)
    wrong = np.clip((chance + _SHRINK * pooled) / (found + _SHRINK), 1e-3, 0.98)
    return np.asarray((1.0 - wrong) / wrong)
