"""Confidence in an estimated pose: chance, parallax, planarity and covariance, and a verdict.

The chance compares the matching with those that the same search finds where there is no pose: on
rearranged graphs. Image 1 is cut into nine parts of equally many keypoints, the parts trade places,
and each is turned by a random number of quarter turns. Every keypoint keeps its candidates, and
everything within a part stays as it is. Moving every keypoint on its own would be too weak a null:
candidates that look alike lie together (and a filter such as GMS keeps those that do), so that a
pose which fits two or three patches by accident has many times the matches that scattered points
allow.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from manymatch import _core
from manymatch._validate import FloatArray, IndexArray, checked_method, count, read_only, refusal
from manymatch.estimate.options import core_options, num_threads
from manymatch.estimate.relative_pose import prepare, sampson_distances
from manymatch.estimate.result import Estimate
from manymatch.estimate.uncertainty import Planarity, PoseCovariance, planarity, pose_covariance
from manymatch.estimate.words import angle, confidence_rows, probability_text, verdict_sentence

if TYPE_CHECKING:
    from manymatch.estimate.prepare import PreparedPair

Verdict: TypeAlias = Literal["solved", "weak", "degenerate", "failed"]

# A matching that arises at random with a larger probability than this is not trusted. The limit is
# far below the usual levels of significance, since repeated structure gives larger matchings than
# random points do: one of 200 clutter scenes full of it has a chance of 2e-5.
CHANCE_LIMIT = 1e-4

# Twice the claimed standard deviation has to stay below this for a pose to count as determined.
ERROR_LIMIT_DEG = 5.0

# Share of the matches that a simpler model has to explain for the pose to count as degenerate.
DEGENERATE_SHARE = 0.9

# Searches on rearranged graphs, and the iterations of each: about 2 ms a search with its
# refinements, and enough to estimate the spread of the maximum.
RUNS, ITERATIONS = 6, 250

# Parts per side of image 1.
SIDE = 3

# The spread of so few maxima is itself uncertain. It is mixed with a typical one, which counts as
# _PRIOR_RUNS further runs and whose variance is _PRIOR_VARIANCE times the mean, and made _CAUTION
# times as large; docs/confidence.md has the measured calibration.
_PRIOR_RUNS, _PRIOR_VARIANCE, _CAUTION = 4, 0.09, 1.4

# A pose can be fitted to any five candidates, so that as few matches are no evidence.
SAMPLE = 5

_EULER = 0.5772156649015329
_STREAM = 0x6D61746368


@dataclasses.dataclass(frozen=True, eq=False)
class Confidence:
    """How far an estimate can be trusted.

    Attributes
    ----------
    verdict : {"solved", "weak", "degenerate", "failed"}
        "weak": too few matches, a matching that could arise by chance, or a pose that the matches
        hardly determine. "degenerate": enough matches, but low parallax, or a plane that a second
        pose explains as well. "failed": there is no pose.
    reason : str
        The verdict's reason, one sentence.
    num_matches : int
        Resolved matches, the size of the matching.
    chance : float
        Probability that the same search finds as large a matching at random: on the same graph
        after the parts of image 1 have traded places. 1 for matches at five places or fewer.
    chance_matches : float
        Size of the matching that such a search typically finds; NaN if nothing was searched.
    parallax_deg : float
        Median angle between the rays of a match, in degrees; NaN without matches.
    low_parallax : bool
        Whether that is too little for a direction of translation.
    rotation_only, planar, planar_twin : float
        Shares, from 0 to 1, of the matches that are explained by the rotation alone, by one plane
        seen with the found pose, and by that plane's second pose; NaN with fewer than 3 matches.
    covariance : (5, 5) float64 ndarray
        Covariance of the pose in radians². The first three are the vector w of a rotation applied
        on the right, ``R exp([w]x)``, that is in the frame of camera 0; the last two move t along
        the rows of `translation_basis`. NaN if the matches do not determine the pose.
    translation_basis : (2, 3) float64 ndarray
        Orthonormal directions across t, in the frame of camera 1. NaN without a pose.
    rotation_sd_deg, translation_sd_deg : float
        Root mean square error of the rotation angle and of the direction of translation that the
        covariance claims, in degrees; infinite if the matches do not determine them.
    noise_px : float
        Estimated noise of a keypoint in pixels, at most twice the threshold; NaN if unknown.
    """

    verdict: Verdict
    reason: str
    num_matches: int
    chance: float
    chance_matches: float
    parallax_deg: float
    low_parallax: bool
    rotation_only: float
    planar: float
    planar_twin: float
    covariance: FloatArray
    translation_basis: FloatArray
    rotation_sd_deg: float
    translation_sd_deg: float
    noise_px: float

    def __str__(self) -> str:
        rows = [f"  {name:<20}{value:<10} {text}" for name, value, text in confidence_rows(self)]
        return "\n".join([verdict_sentence(self), *rows])

    def __repr__(self) -> str:
        return (
            f"Confidence({self.verdict}: {count(self.num_matches, 'match', 'matches')}, "
            f"chance {self.chance:.1e}, "
            f"parallax {self.parallax_deg:.2f} deg, sd {self.rotation_sd_deg:.2g} / "
            f"{self.translation_sd_deg:.2g} deg)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain values for JSON; what is not finite is None."""
        record: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            record[field.name] = _plain(value.tolist() if isinstance(value, np.ndarray) else value)
        return record


def assess(estimate: Estimate) -> Confidence:
    """Assess how far an estimated relative pose can be trusted.

    Parameters
    ----------
    estimate : Estimate
        Result of `estimate_relative_pose`, which knows the graph and the cameras that it was made
        from.

    Returns
    -------
    Confidence
        A function of the estimate alone; randomness comes from `estimate.options.seed`.

    Raises
    ------
    ValueError
        If the argument is something else, or the estimate of another problem.

    Examples
    --------
    >>> from manymatch import estimate_relative_pose
    >>> from manymatch.datasets.synthetic import EASY, make_scene
    >>> scene = make_scene(EASY, seed=1)
    >>> assess(estimate_relative_pose(scene.graph, scene.camera0, scene.camera1)).verdict
    'solved'
    """
    if not isinstance(estimate, Estimate):
        raise refusal("estimate", "an Estimate", estimate)
    graph, cameras = estimate._graph, estimate._cameras  # noqa: SLF001
    if cameras is None:
        raise ValueError("estimate must be one of a relative pose, got one of a homography")
    scale = estimate._working_scale  # noqa: SLF001
    pair = prepare(graph, *cameras, estimate.options, working_scale=scale)
    pose, matches = estimate.pose, estimate.matches
    shape, places = Planarity(math.nan, math.nan, math.nan), 0
    spread = PoseCovariance(
        np.full((5, 5), math.nan), np.full((2, 3), math.nan), math.nan, math.inf, math.inf
    )
    if pose is not None:
        x0, x1 = _distinct(pair.x0[matches[:, 0]], pair.x1[matches[:, 1]])
        places = len(x0)
        distances = sampson_distances(pair, pose.R, pose.t)
        in_front = distances[np.isfinite(distances)]
        spread = pose_covariance(x0, x1, pose, pair.eps, in_front)
        shape = planarity(x0, x1, pose, pair.eps, estimate.options.seed)
    chance, typical = chance_of_matching(pair, estimate, places)
    verdict, reason = _judge(estimate, places, chance, typical, shape, spread)
    return Confidence(
        verdict=verdict,
        reason=reason,
        num_matches=len(matches),
        chance=chance,
        chance_matches=typical,
        parallax_deg=estimate.parallax_deg,
        low_parallax=estimate.low_parallax,
        rotation_only=shape.rotation,
        planar=shape.plane,
        planar_twin=shape.twin,
        covariance=read_only(spread.matrix),
        translation_basis=read_only(spread.basis),
        rotation_sd_deg=math.degrees(spread.rotation_sd),
        translation_sd_deg=math.degrees(spread.translation_sd),
        noise_px=spread.noise / pair.eps * estimate.options.threshold_px,
    )


def chance_of_matching(
    pair: PreparedPair, estimate: Estimate, num_places: int
) -> tuple[float, float]:
    """Chance that a search like the estimate's finds as large a matching at random.

    Returns the probability that a matching of at least `estimate.cardinality` is found on the
    rearranged graph in `estimate.iterations` iterations, and the mean size of the matching found
    in this way; NaN if nothing was searched. `num_places` counts matches at places of their own,
    since coincident keypoints agree with each other anyway.
    """
    if not estimate.success or num_places <= SAMPLE:
        return 1.0, math.nan
    iterations = min(ITERATIONS, max(estimate.iterations, 1))
    sizes = random_matchings(pair, estimate, RUNS, iterations)
    return tail(sizes, estimate.cardinality, max(estimate.iterations, 1) / iterations)


def random_matchings(
    pair: PreparedPair, estimate: Estimate, runs: int, iterations: int
) -> IndexArray:
    """Search as many rearrangements, in so many iterations each; matching sizes (runs,)."""
    options = estimate.options
    rng = np.random.default_rng(np.random.SeedSequence([options.seed, _STREAM]))
    used = np.unique(pair.edges[:, 1])
    # Pixels that cannot be undistorted are NaN, take no part in the search and would spread.
    used = used[np.isfinite(pair.x1[used]).all(axis=1)]
    moved, settings = [], []
    for _ in range(runs):
        x1 = pair.x1.copy()
        x1[used] = rearrange(pair.x1[used], rng)
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
    results = _core.estimate_relative_pose([pair.for_core(moved[0])], method, settings[:1], threads)
    # The filter uses the pixels, which have not moved, so that it has to run only once.
    kept = results[0].kept if len(results[0].kept) else None
    pairs = [pair.for_core(x1, kept) for x1 in moved[1:]]
    results += _core.estimate_relative_pose(pairs, method, settings[1:], threads)
    return np.array([result.cardinality for result in results], dtype=np.int64)


def rearrange(points: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Let the parts of an image trade places, each turned by quarter turns about its middle.

    The points (N, 2) are on the normalised plane, where moved points need no camera model to be
    legal.
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


def _distinct(x0: FloatArray, x1: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Leave one of several matches between the same two places, in order."""
    first = np.sort(np.unique(np.column_stack([x0, x1]), axis=0, return_index=True)[1])
    return np.ascontiguousarray(x0[first]), np.ascontiguousarray(x1[first])


def _judge(
    estimate: Estimate,
    places: int,
    chance: float,
    typical: float,
    shape: Planarity,
    spread: PoseCovariance,
) -> tuple[Verdict, str]:
    """Return the verdict and its reason; the most serious objection comes first."""
    number = len(estimate.matches)
    matches = count(number, "match", "matches")
    if estimate.pose is None:
        return "failed", f"No pose was found: {estimate.failure.rstrip('.')}."
    if places <= SAMPLE:
        return "weak", (
            f"The number of distinct matches is {places}, and a pose can be fitted to any {SAMPLE}."
        )
    if chance > CHANCE_LIMIT:
        return "weak", (
            f"{matches} could arise by chance, which gives about {typical:z,.0f}, and {number:,} "
            f"or more with probability {probability_text(chance)}."
        )
    if estimate.low_parallax or shape.rotation >= DEGENERATE_SHARE:
        return "degenerate", (
            f"The camera hardly moved, the rays of the matches meet at only "
            f"{angle(estimate.parallax_deg)}: trust the rotation, not the direction of translation."
        )
    if shape.plane >= DEGENERATE_SHARE and shape.twin >= DEGENERATE_SHARE:
        return "degenerate", (
            f"{100.0 * shape.plane:.0f} % of the matches lie on one plane, and a second pose "
            f"explains {100.0 * shape.twin:.0f} % of them as well."
        )
    largest_sd = max(spread.rotation_sd, spread.translation_sd)
    if not math.isfinite(largest_sd):
        return "weak", f"{matches} agree on one pose but do not determine it."
    if not 2.0 * math.degrees(largest_sd) <= ERROR_LIMIT_DEG:
        return "weak", (
            f"The matches hardly determine the pose: its standard deviation is "
            f"{angle(math.degrees(spread.rotation_sd))} in rotation and "
            f"{angle(math.degrees(spread.translation_sd))} in the direction of translation."
        )
    return "solved", f"{matches} agree on one pose, where chance gives about {typical:z,.0f}."


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
