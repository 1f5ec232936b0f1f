"""How large a matching the same search finds where there is nothing to find.

The null keeps the graph and everything local and destroys what a pose needs: image 1 is cut into
nine parts of equally many keypoints, the parts trade places and each is turned by a random number
of quarter turns. Every keypoint keeps its candidates. Moving every keypoint on its own would be a
null that real candidates beat without any pose: candidates that look alike lie together (and a
filter such as GMS keeps those that do), so that a pose which fits two or three patches by accident
has many times the matches that scattered points allow.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from manymatch import _core
from manymatch._validate import checked_method
from manymatch.estimate.problem import Problem, core_options, num_threads

if TYPE_CHECKING:
    from manymatch._validate import FloatArray, IndexArray
    from manymatch.estimate.relative_pose import Estimate

# Searches on rearranged graphs, and the iterations of each: together 2 ms a run, refinement
# included, and enough to see how the maximum spreads.
RUNS, ITERATIONS = 6, 250

# Parts per side of image 1.
SIDE = 3

# The spread of so few maxima is itself uncertain. It is mixed with a typical one, which counts as
# _PRIOR_RUNS further runs and whose variance is _PRIOR_VARIANCE times the mean, and made _CAUTION
# times as large; docs/confidence.md has the measured calibration.
_PRIOR_RUNS, _PRIOR_VARIANCE, _CAUTION = 4, 0.09, 1.4

# A pose fits any five candidates: so many matches say nothing.
SAMPLE = 5

_EULER = 0.5772156649015329
_STREAM = 0x6D61746368


def chance_of_matching(
    problem: Problem, estimate: Estimate, num_places: int
) -> tuple[float, float]:
    """Chance that a search like the estimate's finds as large a matching at random.

    Parameters
    ----------
    problem : Problem
        The pair that was solved, with the estimate's options.
    estimate : Estimate
        Its cardinality, iterations, method and options are used.
    num_places : int
        Matches at places of their own; coincident keypoints agree with each other anyway.

    Returns
    -------
    chance : float
        Probability in [0, 1] that a matching of at least `estimate.cardinality` is found on the
        rearranged graph in `estimate.iterations` iterations.
    typical : float
        Size of the matching that is typically (in the mean) found so; NaN if nothing was searched.
    """
    if not estimate.success or num_places <= SAMPLE:
        return 1.0, math.nan
    iterations = min(ITERATIONS, max(estimate.iterations, 1))
    sizes = random_matchings(problem, estimate, RUNS, iterations)
    return tail(sizes, estimate.cardinality, max(estimate.iterations, 1) / iterations)


def random_matchings(
    problem: Problem, estimate: Estimate, runs: int, iterations: int
) -> IndexArray:
    """Search as many rearrangements, in so many iterations each; matching sizes (runs,)."""
    options = estimate.options
    rng = np.random.default_rng(np.random.SeedSequence([options.seed, _STREAM]))
    used = np.unique(problem.edges[:, 1])
    # Pixels that cannot be undistorted are NaN, take no part in the search and would spread.
    used = used[np.isfinite(problem.x1[used]).all(axis=1)]
    moved, settings = [], []
    for _ in range(runs):
        x1 = problem.x1.copy()
        x1[used] = rearrange(problem.x1[used], rng)
        moved.append(x1)
        settings.append(
            core_options(
                options.replace(
                    min_iterations=iterations,
                    max_iterations=iterations,
                    seed=int(rng.integers(2**63)),
                )
            )
        )
    method, threads = checked_method(estimate.method), num_threads(options.threads)
    results = _core.estimate([problem.with_points1(moved[0])], method, settings[:1], threads)
    # The filter looks at the pixels, which have not moved: once is enough.
    kept = results[0].kept if len(results[0].kept) else None
    pairs = [problem.with_points1(x1, kept) for x1 in moved[1:]]
    results += _core.estimate(pairs, method, settings[1:], threads)
    return np.array([result.cardinality for result in results], dtype=np.int64)


def rearrange(points: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Let the parts of an image trade places, each turned by quarter turns about its middle.

    Parameters
    ----------
    points : (N, 2) float64
        Points on the normalised plane, where moved points need no camera model to be legal.
    rng : Generator
        Draws which part goes where and how it is turned.

    Returns
    -------
    (N, 2) float64
        Distances within a part are as before.
    """
    part = parts_of(points)
    count = np.maximum(np.bincount(part, minlength=SIDE**2), 1)
    middle = np.stack(
        [np.bincount(part, axis, minlength=SIDE**2) / count for axis in points.T], axis=1
    )
    place, turns = rng.permutation(SIDE**2), rng.integers(0, 4, SIDE**2)
    cosine, sine = np.array([1, 0, -1, 0])[turns][part], np.array([0, 1, 0, -1])[turns][part]
    x, y = (points - middle[part]).T
    turned = np.stack([cosine * x - sine * y, sine * x + cosine * y], axis=1)
    return np.asarray(middle[place[part]] + turned, dtype=np.float64)


def parts_of(points: FloatArray) -> IndexArray:
    """Part 0 to 8 of every point: three columns of equally many points, each in three."""
    column = _thirds(points[:, 0])
    part = np.zeros(len(points), dtype=np.int64)
    for c in range(SIDE):
        here = np.flatnonzero(column == c)
        part[here] = SIDE * c + _thirds(points[here, 1])
    return part


def _thirds(values: FloatArray) -> IndexArray:
    """Third, 0 to 2, that each value belongs to by its place in ascending order."""
    place = np.empty(len(values), dtype=np.int64)
    place[np.argsort(values, kind="stable")] = np.arange(len(values))
    return place * SIDE // max(len(values), 1)


def tail(sizes: IndexArray, size: int, ratio: float) -> tuple[float, float]:
    """Chance of `size` or more in `ratio` times the iterations, and the mean size then.

    The largest of many is close to a Gumbel variable, which moves by scale * log(ratio) when there
    are `ratio` times as many; its location and scale come from mean and variance of `sizes`.
    """
    mean = float(np.mean(sizes))
    weight = len(sizes) - 1
    variance = (_PRIOR_RUNS * _PRIOR_VARIANCE * mean + weight * float(np.var(sizes, ddof=1))) / (
        _PRIOR_RUNS + weight
    )
    scale = math.sqrt(6.0 * max(variance, 1e-12)) / math.pi
    location = mean - _EULER * scale
    cautious = _CAUTION * scale
    # Sizes are whole numbers: "at least m" begins half way from m - 1.
    distance = (size - 0.5 - location) / cautious - math.log(ratio)
    chance = -math.expm1(-math.exp(-distance)) if distance > -30.0 else 1.0
    return chance, mean + scale * math.log(ratio)
