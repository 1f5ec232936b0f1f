"""How likely each resolved match is to be right, given everything the estimate of a pair shows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch import _core
from manymatch.options import Options

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from manymatch._validate import BoolArray, FloatArray, IndexArray
    from manymatch.estimate.prepare import PreparedPair

# Wrong candidates do not end at the threshold: those at 2 to 5 times its distance tell how many
# there are by chance within it.
_RING = (2.0, 5.0)
# Chances of a level are mixed with those of all levels, which count as so many inliers.
_SHRINK = 4.0


@dataclasses.dataclass(frozen=True)
class ProbabilityModel:
    """What the probability of a match depends on besides the data.

    Attributes
    ----------
    sample_size : int
        Candidates that any model fits.
    dimensions : int
        Dimensions of the error: chance agreements within a distance grow with this power of it.
    coefficients : tuple of float
        Log-odds of a match: a constant, and one slope a column of `match_features`.
    """

    sample_size: int
    dimensions: int
    coefficients: tuple[float, ...]


#: Distance from an epipolar line. Fitted by benchmarks/accuracy/fit_probability.py; docs/auto.md
#: has the measured reliability.
RELATIVE_POSE = ProbabilityModel(5, 1, (1.651, -0.820, 1.074, 1.994, 0.724, 0.786))
#: Distance from a point. Coefficients of an earlier fit to relative poses; docs/homography.md has
#: the measured reliability.
HOMOGRAPHY = ProbabilityModel(4, 2, (0.173, -0.299, 0.955, 1.559, 0.446, 0.0))
#: Distance from an epipolar line. Fitted by benchmarks/accuracy/fundamental_probability.py;
#: docs/fundamental.md has the measured reliability.
FUNDAMENTAL = ProbabilityModel(7, 1, (1.464, 0.095, 0.285, 1.676, 0.445, 0.412))
#: Distance from a point in space. docs/registration.md has the measured reliability.
RIGID = ProbabilityModel(3, 3, HOMOGRAPHY.coefficients)
#: Distance from a point. docs/absolute_pose.md has the measured reliability.
ABSOLUTE_POSE = ProbabilityModel(3, 2, (0.173, -0.299, 0.955, 1.559, 0.446, 0.0))


def probability_of(
    pair: PreparedPair, result: Any, distance: FloatArray, model: ProbabilityModel = RELATIVE_POSE
) -> FloatArray:
    """Probability (M,) of each match of what the core found; `distance` as in `match_probability`.

    Candidates of several sources count as far as these are trusted.
    """
    source = pair.graph.source
    weight = None if source is None or not len(result.trust) else result.trust[source]
    known = pair.edges, pair.graph.rank, result.kept, distance, result.inliers, result.matched
    return match_probability(*known, pair.options.q, model, weight)


def match_probability(
    edges: NDArray[np.int32],
    rank: NDArray[np.int32] | None,
    kept: BoolArray,
    distance: FloatArray,
    inliers: BoolArray,
    matched: IndexArray,
    q: float = Options.q,
    model: ProbabilityModel = RELATIVE_POSE,
    weight: FloatArray | None = None,
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
        Errors of the candidates in units of the threshold, infinite where there is none (behind a
        camera).
    inliers : (E,) bool
        Candidates consistent with the geometry.
    matched : (M,) int64
        Candidates that are the matches.
    q : float
        `Options.q` of the run; the prior of a candidate is that of the estimator.
    model : ProbabilityModel
        That of the geometric problem.
    weight : (E,) float64, optional
        What each candidate counts; one by default.
    """
    constant, *slopes = model.coefficients
    features = match_features(edges, rank, kept, distance, inliers, matched, q, model, weight)
    return np.asarray(1.0 / (1.0 + np.exp(-constant - features @ slopes)), dtype=np.float64)


def match_features(
    edges: NDArray[np.int32],
    rank: NDArray[np.int32] | None,
    kept: BoolArray,
    distance: FloatArray,
    inliers: BoolArray,
    matched: IndexArray,
    q: float = Options.q,
    model: ProbabilityModel = RELATIVE_POSE,
    weight: FloatArray | None = None,
) -> FloatArray:
    """Logarithms (M, 5) of what speaks for and against each match; arguments as above.

    Columns: competition by other inliers at its two keypoints, how far the inliers of the pair
    exceed chance, how many matches there are for the size of the graph, prior by rank and filter,
    and how many rank-one candidates are inliers for each that is not. All but the first and the
    fourth are those of the pair: they tell how likely the geometry is right.
    """
    level, prior = _core.levels(len(edges), rank, kept if len(kept) else None, q)
    weight = np.ones(len(edges)) if weight is None else weight
    found = np.bincount(level[inliers], weight[inliers], _core.NUM_LEVELS).astype(np.float64)
    ring = (distance > _RING[0]) & (distance < _RING[1])
    size_of_ring = _RING[1] ** model.dimensions - _RING[0] ** model.dimensions
    chance = np.bincount(level[ring], weight[ring], _core.NUM_LEVELS) / size_of_ring
    odds = np.where(inliers, _odds(found, chance)[level], 0.0)
    competition = np.ones(len(matched))
    for side in (0, 1):
        vertex = edges[:, side]
        total = np.bincount(vertex, odds)
        competition *= 1.0 + np.maximum(total[vertex[matched]] - odds[matched], 0.0)
    spare = model.sample_size
    excess = max(found.sum() - spare - chance.sum(), 1.0) / (np.sqrt(chance.sum()) + 3.0)
    size = max(weight[matched].sum() - spare, 1) / np.sqrt(max(weight.sum(), 1))
    # Levels 0 and 1 are of rank one.
    rank_one, agree = weight[level < 2].sum(), found[:2].sum()
    share = (agree + 0.5) / (rank_one - agree + 1.0)
    whole = np.ones(len(matched))
    columns = (competition, excess * whole, size * whole, prior[matched], share * whole)
    return np.asarray(np.log(np.stack(columns, axis=1)))


def _odds(found: FloatArray, chance: FloatArray) -> FloatArray:
    """Odds (L,) that an inlier of a level is true: those beyond chance against those by chance."""
    pooled = (chance.sum() + 0.5) / (found.sum() + 1.0)
    wrong = np.clip((chance + _SHRINK * pooled) / (found + _SHRINK), 1e-3, 0.98)
    return np.asarray((1.0 - wrong) / wrong)
