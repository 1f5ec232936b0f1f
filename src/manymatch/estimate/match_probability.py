"""How likely each resolved match is to be right, given everything the estimate of a pair shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from manymatch import _core
from manymatch.estimate.options import Options

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from manymatch._validate import BoolArray, FloatArray, IndexArray

# Wrong candidates do not end at the threshold: those at 2 to 5 times its distance, per threshold,
# are as many as there are by chance within it.
_RING = (2.0, 5.0)
# A pose fits any five candidates.
_SAMPLE = 5
# Chances of a level are mixed with those of all levels, which count as so many inliers.
_SHRINK = 4.0
# Log-odds of a match: a constant, and one slope a column of `match_features`. Fitted by
# benchmarks/accuracy/fit_probability.py; docs/auto.md has the measured reliability.
_COEFFICIENTS = (0.173, -0.299, 0.955, 1.559, 0.446)


def match_probability(
    edges: NDArray[np.int32],
    rank: NDArray[np.int32] | None,
    kept: BoolArray,
    distance: FloatArray,
    inliers: BoolArray,
    matched: IndexArray,
    q: float = Options.q,
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
    q : float
        `Options.q` of the run; the prior of a candidate is that of the estimator.
    """
    constant, *slopes = _COEFFICIENTS
    features = match_features(edges, rank, kept, distance, inliers, matched, q)
    return np.asarray(1.0 / (1.0 + np.exp(-constant - features @ slopes)), dtype=np.float64)


def match_features(
    edges: NDArray[np.int32],
    rank: NDArray[np.int32] | None,
    kept: BoolArray,
    distance: FloatArray,
    inliers: BoolArray,
    matched: IndexArray,
    q: float = Options.q,
) -> FloatArray:
    """Logarithms (M, 4) of what speaks for and against each match; arguments as above.

    Columns: competition by other inliers at its two keypoints, how far the inliers of the pair
    exceed chance, how many matches there are for the size of the graph, prior by rank and filter.
    """
    level, prior = _core.levels(len(edges), rank, kept if len(kept) else None, q)
    found = np.bincount(level[inliers], minlength=_core.NUM_LEVELS).astype(float)
    ring = (distance > _RING[0]) & (distance < _RING[1])
    chance = np.bincount(level[ring], minlength=_core.NUM_LEVELS) / (_RING[1] - _RING[0])
    odds = np.where(inliers, _odds(found, chance)[level], 0.0)
    competition = np.ones(len(matched))
    for side in (0, 1):
        vertex = edges[:, side]
        total = np.bincount(vertex, odds)
        competition *= 1.0 + np.maximum(total[vertex[matched]] - odds[matched], 0.0)
    excess = max(found.sum() - _SAMPLE - chance.sum(), 1.0) / (np.sqrt(chance.sum()) + 3.0)
    size = max(len(matched) - _SAMPLE, 1) / np.sqrt(max(len(edges), 1))
    whole = np.ones(len(matched))
    columns = (competition, excess * whole, size * whole, prior[matched])
    return np.asarray(np.log(np.stack(columns, axis=1)))


def _odds(found: FloatArray, chance: FloatArray) -> FloatArray:
    """Odds (L,) that an inlier of a level is true: those beyond chance against those by chance."""
    pooled = (chance.sum() + 0.5) / (found.sum() + 1.0)
    wrong = np.clip((chance + _SHRINK * pooled) / (found + _SHRINK), 1e-3, 0.98)
    return np.asarray((1.0 - wrong) / wrong)
