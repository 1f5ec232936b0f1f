"""What speaks for and against an estimate, from which the probability of a model follows.

The probability is a product of three: that the search found the right geometry, by a logistic model
of the matches and of what a short second search finds; that no other model is the right one; and
that the error is below what counts as right (`ERROR_LIMIT_DEG` for a relative pose, `Chart.error`
for other problems), by the covariance.
"""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np

from manymatch import _core
from manymatch._validate import FloatArray, read_only
from manymatch.estimate.many import PROBLEMS
from manymatch.estimate.relative_pose import (
    RELATIVE_POSE,
    RelativePoseEstimate,
    sampson_distances,
    squared_distances,
)
from manymatch.estimate.result import Alternative, Estimate, PoseEstimate
from manymatch.estimate.uncertainty import (
    Covariance,
    HeldPose,
    Planarity,
    model_covariance,
    over_focals,
    planarity,
    pose_covariance,
)
from manymatch.geometry.pose import RelativePose
from manymatch.options import AUTO, core_options, num_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from manymatch.estimate.problem import GeometricProblem, PreparedPair

T = TypeVar("T")

# A pose is right if rotation and direction of translation are off by less than this.
ERROR_LIMIT_DEG = 5.0
# Another pose makes the chosen one wrong if they differ by this much: the true one can lie between
# two that are closer. Poses with such a neighbour are right as often as those without.
RIVAL_APART_DEG = 8.0
# Most iterations and most refined seeds of the second search, which also has at most half of the
# iterations of the estimate. A longer one tells less: it ends in the same wrong optimum.
SECOND_ITERATIONS, SECOND_POOL = 500, 10
# The same of the search for another motion. Candidates within this many thresholds of the chosen
# pose are left out, wrong ones are counted between two distances in thresholds. There is a motion
# if rank-one candidates exceed chance by this many deviations, with this scale of the log-odds: 10
# is exceeded by 1 % of the right poses of static scenes and by all pairs with two motions.
OTHER_ITERATIONS, OTHER_POOL, OTHER_AWAY, OTHER_RING = 300, 5, 3.0, (2.0, 5.0)
OTHER_EXCESS, OTHER_EXCESS_SCALE = 10.0, 1.5
# Shape of the tails of errors in units of their claimed deviations: half the degrees of freedom of
# Student's distribution. With a normal one 5° are promised too often
# (benchmarks/results/confidence.md).
_ERROR_TAIL = 2.0
# Errors above the limit are as rare as with this share of the claimed deviation.
_DEVIATION_SCALE = 0.7
# Cosines of the directions of an error by which its probability is integrated.
_DIRECTIONS = np.cos(np.linspace(0.0, math.pi, 65)[1::2])
# The second pose of a plane is as probable as the chosen one if it has this share of its matches,
# and its log-odds rise by one for each further share of the second number.
_EVEN_SHARE, _SHARE_SCALE = 0.93, 0.03
# Neighbours of a match that are looked at, of how many matches, and what is added to shares.
_NEIGHBOURS, _MOST_NEIGHBOURS, _LEAST_SHARE = 6, 200, 0.05
# Poses that differ by this many degrees count half as one.
_SAME_DEG = 3.0
_STREAM = 0x6D61746368
PARTS = ("rotation", "translation")


@dataclasses.dataclass(frozen=True)
class PartConfidence:
    """What is known of the rotation or of the translation of a pose.

    Attributes
    ----------
    probability : float
        Probability that it is off by less than what counts as right: 5 degrees, and for the centre
        of an absolute pose 5 % of the median depth.
    sd_deg : float
        Root mean square error that the covariance claims, in degrees; infinite if the matches do
        not determine it. That of the centre of an absolute pose is seen from the median depth.
    """

    probability: float
    sd_deg: float


class Rival(NamedTuple):
    """The likeliest other pose: its probability, and its distance from the chosen one.

    `any` is the probability that any of the other poses is the right one, `turned` and `moved` that
    of one with another rotation or another direction of translation.
    """

    probability: float = 0.0
    apart_deg: float = 0.0
    any: float = 0.0
    turned: float = 0.0
    moved: float = 0.0

    def beside(self, motion: float) -> Rival:
        """Add another motion with this probability, which differs in both."""
        others = (1.0 - (1.0 - other) * (1.0 - motion) for other in self[2:])
        return Rival(self.probability, self.apart_deg, *others)


@dataclasses.dataclass(frozen=True, eq=False)
class Evidence:
    """What the verdict on an estimate follows from.

    `places` counts matches at different places, `shape` belongs to relative poses. `odds` is the
    logarithm of the odds of the right geometry by the `features`, `accurate` the probability of a
    small error then, and `parts` those of rotation and translation alone.
    """

    places: int
    shape: Planarity
    spread: Covariance
    features: FloatArray
    odds: float
    rival: Rival
    accurate: float
    parts: Mapping[str, float] = dataclasses.field(default_factory=dict)
    motion: Alternative | None = None

    @property
    def geometry(self) -> float:
        """Probability of the right geometry."""
        return logistic(self.odds)

    @property
    def right(self) -> float:
        """Probability that the model is right."""
        return self.geometry * (1.0 - self.rival.any) * self.accurate

    @property
    def log_odds(self) -> float:
        """Logarithm of the odds of that, exact where the probability rounds to 1."""
        given = (1.0 - self.rival.any) * self.accurate
        wrong = logistic(-self.odds) + self.geometry * (1.0 - given)
        return math.log(self.right / wrong) if self.right > 0.0 else -math.inf

    def part(self, name: str) -> PartConfidence | None:
        """Return what is known of the rotation or of the translation, by `name`."""
        deviation = float(getattr(self.spread, f"{name}_sd"))
        if math.isnan(deviation):
            return None
        # A rival with the same rotation speaks for the rotation.
        other = self.rival.turned if name == "rotation" else self.rival.moved
        probability = self.geometry * (1.0 - other) * self.parts.get(name, 0.0)
        return PartConfidence(probability, math.degrees(deviation))


def evidence(estimate: Estimate) -> Evidence:
    """Collect what the probability of a model follows from."""
    pair, matches = estimate._pair, estimate.matches  # noqa: SLF001
    if not estimate.success:
        size = 5 if isinstance(estimate, RelativePoseEstimate) else 0
        spread = Covariance(np.full((size, size), math.nan), error_sd=math.inf)
        if isinstance(estimate, PoseEstimate):
            spread = dataclasses.replace(spread, rotation_sd=math.inf, translation_sd=math.inf)
        if size:
            spread = dataclasses.replace(spread, error_sd=math.nan)
        return Evidence(0, Planarity(), spread, np.zeros(0), -math.inf, Rival(), 0.0)
    problem = PROBLEMS[estimate.problem].of(pair)
    x0, x1 = _distinct(pair.x0[matches[:, 0]], pair.x1[matches[:, 1]])
    threads = num_threads(estimate.options.threads)
    search = _meanwhile(threads, functools.partial(second_search, estimate, threads))
    motion = None
    if isinstance(estimate, RelativePoseEstimate):
        other = _meanwhile(threads, functools.partial(other_motion, estimate, threads))
        shape, spread, rival, accurate, apart, parts = _pose_evidence(estimate, x0, x1, search)
        motion = other()
        rival = rival if motion is None else rival.beside(motion.probability)
        own = [neighbour_agreement(x0, x1)]
    else:
        shape, spread, rival, accurate, apart, parts = _model_evidence(estimate, problem, search())
        own = problem.evidence(pair, estimate._model).tolist()  # noqa: SLF001
    features = features_of(estimate, len(x0) - problem.sample_size, search(), apart)
    features = np.concatenate([features, own])
    odds = -math.inf if len(x0) <= problem.sample_size else geometry_odds(problem, features)
    return Evidence(len(x0), shape, spread, features, odds, rival, accurate, parts, motion)


def _meanwhile(threads: int, call: Callable[[], T]) -> Callable[[], T]:
    """Start a call in a thread of its own if there may be several; return what gives its result."""
    if threads == 1:
        return functools.cache(call)
    pool = ThreadPoolExecutor(1, "manymatch-assess")
    future = pool.submit(contextvars.copy_context().run, call)
    pool.shutdown(wait=False)
    return future.result


def geometry_odds(problem: GeometricProblem[Any], features: FloatArray) -> float:
    """Log-odds that the geometry is right, by the model that was fitted for the problem."""
    coefficients = problem.model_coefficients
    if len(features) >= len(coefficients):
        coefficients = problem.evidence_coefficients
    constant, *slopes = coefficients
    return constant + float(features @ slopes)


# The last number is the distance of the second search's model, in degrees or a like scale.
_Parts: TypeAlias = tuple[Planarity, Covariance, Rival, float, float, dict[str, float]]


def _pose_evidence(
    estimate: RelativePoseEstimate, x0: FloatArray, x1: FloatArray, search: Callable[[], Any]
) -> _Parts:
    """Collect what is known of a relative pose from its distinct matches x0, x1.

    `search` returns the result of the second search.
    """
    pair, pose = estimate._pair, cast("RelativePose", estimate.pose)  # noqa: SLF001
    distances = sampson_distances(pair, pose.R, pose.t)
    in_front = distances[np.isfinite(distances)]
    spread = pose_covariance(x0, x1, pose, pair.eps, in_front)
    shape = planarity(x0, x1, pose, pair.eps, estimate.options.seed)
    deviations = spread.rotation_sd, spread.translation_sd
    held: list[HeldPose] = []
    if pair.focals is not None and math.isfinite(spread.rotation_sd):
        held, spread = over_focals(x0, x1, pose, pair.eps, spread, pair.focals)
    second, apart = search(), 0.0
    if second.success:
        parts = angles_deg(second.model[0], second.model[1], pose)
        # A difference that the covariance leaves open counts less.
        apart = max(
            part * min(1.0, ERROR_LIMIT_DEG / max(math.degrees(deviation), 1e-9))
            for part, deviation in zip(parts, deviations, strict=True)
        )
    spread = dataclasses.replace(spread, noise=spread.noise * (estimate.threshold_px / pair.eps))
    return (
        shape,
        spread,
        likeliest_rival(estimate, pose, shape),
        accuracy(spread, held),
        apart,
        {name: accuracy(spread, held, (name,)) for name in PARTS},
    )


def _model_evidence(estimate: Estimate, problem: GeometricProblem[Any], second: Any) -> _Parts:
    """Collect the same for a problem with a chart."""
    pair, model = estimate._pair, estimate._model  # noqa: SLF001
    width = len(pair.x1)
    keys, chosen = (
        ends[:, 0].astype(np.int64) * width + ends[:, 1] for ends in (pair.edges, estimate.matches)
    )
    edges = np.flatnonzero(np.isin(keys, chosen))
    noise = estimate.length("noise") * pair.eps / estimate.length("threshold")
    shift = None
    if isinstance(estimate, PoseEstimate) and estimate.focal_sd_px:
        # How far the points move in the image if the focal length is one deviation longer.
        shift = pair.ends(edges)[0] * (estimate.focal_sd_px[0] / estimate.camera0.focal)
    spread = model_covariance(problem, pair, model, edges, noise, shift)
    apart = 0.0
    if second.success and problem.chart is not None:
        error = float(np.linalg.norm(problem.chart.error(pair, second.model, model)))
        apart = ERROR_LIMIT_DEG * error * min(1.0, 1.0 / max(spread.error_sd, 1e-9))
        apart = apart if math.isfinite(apart) else 180.0
    rivals = [other.probability for other in estimate.alternatives]
    total = min(sum(rivals), 1.0)
    rival = Rival(max(rivals, default=0.0), 0.0, total, total, total)
    accurate = float(_below_limit(spread.error_sd))
    limits = (problem.chart and problem.chart.limits) or ()
    sds = (spread.rotation_sd, spread.translation_sd)
    parts = {
        name: float(_below_limit(sd, limit))
        for name, sd, limit in zip(PARTS, sds, limits, strict=False)
    }
    return Planarity(), spread, rival, accurate, apart, parts


def second_search(estimate: Estimate, threads: int = 1) -> Any:
    """Search once more with other samples, for a part of the iterations and without the polish."""
    pair = estimate._pair  # noqa: SLF001
    return _search(estimate, pair, slice(None), SECOND_ITERATIONS, SECOND_POOL, threads)


def _search(
    estimate: Estimate, pair: PreparedPair, edges: Any, iterations: int, pool: int, threads: int
) -> Any:
    """Search on a pair that has some edges of the estimate's, with at most half of its effort."""
    options, kept = pair.options, estimate._kept  # noqa: SLF001
    kept = kept[edges] if len(kept) else kept
    iterations = max(1, min(iterations, estimate.iterations // 2))
    state = np.random.SeedSequence([options.seed, _STREAM]).generate_state(1, np.uint64)
    if options.threshold_px == AUTO:
        options = options.replace(threshold_px=estimate.length("threshold"))
    settings = options.replace(
        min_iterations=iterations,
        max_iterations=iterations,
        pool_size=min(options.pool_size, pool),
        seed=int(state[0]),
        disable=(*options.disable, "polish", "residuals"),
    )
    # The motion filter need not run again.
    given = [pair.for_core(kept=kept if len(kept) else None)]
    solver = getattr(_core, PROBLEMS[estimate.problem].of(pair).core)
    return solver(given, estimate.method, [core_options(settings)], threads)[0]


def other_motion(estimate: RelativePoseEstimate, threads: int = 1) -> Alternative | None:
    """Search for a second motion among the keypoints that the chosen pose does not match.

    It is one if the rank-one candidates that agree with it clearly exceed chance. Its probability
    of being the camera's motion is its share of the matches of both. Candidates near the chosen
    pose are left out: they may be true matches with more noise.
    """
    pair, pose = estimate._pair, cast("RelativePose", estimate.pose)  # noqa: SLF001
    free = np.ones(len(pair.edges), dtype=np.bool_)
    for side, points in enumerate((pair.x0, pair.x1)):
        used = np.zeros(len(points), dtype=np.bool_)
        used[estimate.matches[:, side]] = True
        free &= ~used[pair.edges[:, side]]
    # Points at infinity are as often behind the cameras as in front.
    free &= squared_distances(pair, pose.R, pose.t)[0] > (OTHER_AWAY * pair.eps) ** 2
    rest = np.flatnonzero(free)
    if not len(rest):
        return None
    part = pair.changed(
        graph=pair.graph.filter(free), edges=np.ascontiguousarray(pair.edges[rest]), proposals=None
    )
    found = _search(estimate, part, rest, OTHER_ITERATIONS, OTHER_POOL, threads)
    if not found.success or max(angles_deg(found.model[0], found.model[1], pose)) < ERROR_LIMIT_DEG:
        return None
    rank = pair.graph.rank
    first = np.ones(len(rest), dtype=np.bool_) if rank is None else rank[rest] == 1
    distance = sampson_distances(part, *found.model[:2]) / pair.eps
    ring = first & (distance > OTHER_RING[0]) & (distance < OTHER_RING[1])
    # Sources see the same places again, so counts are those of one source: all over the number of
    # sources, where small ones count less.
    ids = pair.graph.source
    source = np.zeros(1, dtype=np.int32) if ids is None else ids[rest[first]]
    sizes = np.bincount(source).astype(np.float64)
    sources = max(sizes.sum(), 1.0) ** 2 / max(float(sizes @ sizes), 1.0)
    chance = np.count_nonzero(ring) / (sources * (OTHER_RING[1] - OTHER_RING[0]))
    agree = np.count_nonzero(first[found.matched]) / sources - RELATIVE_POSE.sample_size
    excess = max(agree - chance, 0.0) / math.sqrt(chance + 1.0)
    if excess < OTHER_EXCESS:
        return None
    clear = logistic((excess - OTHER_EXCESS) / OTHER_EXCESS_SCALE)
    size = len(found.matched)
    return Alternative(
        RelativePose(*found.model[:2]),
        clear * size / (size + len(estimate.matches)),
        size,
        read_only(pair.graph.edges[rest[found.matched]]),
        math.nan,
    )


def neighbour_agreement(x0: FloatArray, x1: FloatArray) -> float:
    """Log-odds that neighbours of a match in image 0 are its neighbours in image 1, beyond chance.

    A pose sees only how far matches are from their epipolar lines; wrong ones are scattered along
    them. Of many matches x0, x1 (M, 2) some are looked at.
    """
    some = np.linspace(0, len(x0) - 1, min(len(x0), _MOST_NEIGHBOURS)).astype(np.int64)
    if len(some) <= 2 * _NEIGHBOURS:
        return math.log(_LEAST_SHARE / (1.0 + _LEAST_SHARE))
    squared = []
    for points in (x0[some], x1[some]):
        length = np.sum(points**2, axis=1)
        squared.append(length[:, None] + length - 2.0 * points @ points.T)
    # Each match is the nearest to itself.
    near = np.argpartition(squared[0], _NEIGHBOURS, axis=1)[:, : _NEIGHBOURS + 1]
    reach = np.partition(squared[1], 2 * _NEIGHBOURS, axis=1)[:, 2 * _NEIGHBOURS, None]
    both = np.count_nonzero(np.take_along_axis(squared[1], near, axis=1) <= reach, axis=1) - 1
    chance = 2 * _NEIGHBOURS / len(some)
    share = max((float(both.mean()) / _NEIGHBOURS - chance) / (1.0 - chance), 0.0)
    return math.log((share + _LEAST_SHARE) / (1.0 - share + _LEAST_SHARE))


def features_of(estimate: Estimate, spare: int, second: Any, apart: float) -> FloatArray:
    """Numbers (3,) that tell right from wrong geometry; a larger one always speaks for it.

    Number of matches for the size of the graph (`spare` counts those at different places, less a
    sample); share of the rank-one edges that agree; nearness of the second search's model, weighted
    by its matches.
    """
    pair, rank = estimate._pair, estimate._pair.rank  # noqa: SLF001
    first = np.ones(len(pair.edges), dtype=np.bool_) if rank is None else rank == 1
    agree = float(np.count_nonzero(first & estimate.inliers))
    share = second.cardinality / max(estimate.cardinality, 1) if second.success else 0.0
    return np.array(
        [
            math.log(max(spare, 1) / math.sqrt(max(len(pair.edges), 1))),
            math.log((agree + 0.5) / (float(np.count_nonzero(first)) - agree + 1.0)),
            -min(share, 1.0) * math.log1p(apart / _SAME_DEG),
        ]
    )


def likeliest_rival(estimate: Estimate, pose: RelativePose, shape: Planarity) -> Rival:
    """Find the likeliest of the other poses: the alternatives, or the second pose of a plane.

    The alternatives of "auto" include that pose. For other methods its probability follows from the
    number of its matches in the whole graph.
    """
    found = [
        (other.probability, *angles_deg(other.model.R, other.model.t, pose))
        for other in estimate.alternatives
        if isinstance(other.model, RelativePose)
    ]
    second = None if estimate.method == "auto" else shape.second
    if second is not None:
        pair, options = estimate._pair, estimate.options  # noqa: SLF001
        points = pair.x0, pair.x1, pair.edges, pair.eps
        cardinality = _core.score(*points, options.q, options.delta, *second)[1]
        share = cardinality / max(estimate.cardinality, 1)
        probability = logistic((share - _EVEN_SHARE) / _SHARE_SCALE)
        found.append((probability, *angles_deg(*second, pose)))
    apart = [(p, max(angles)) for p, *angles in found if max(angles) >= RIVAL_APART_DEG]
    totals = (
        sum(p for p, *angles in found if max(angles[part]) >= RIVAL_APART_DEG)
        for part in (slice(2), slice(1), slice(1, 2))
    )
    return Rival(*max(apart, default=(0.0, 0.0)), *(min(total, 1.0) for total in totals))


def accuracy(
    spread: Covariance, held: Sequence[HeldPose] = (), parts: Sequence[str] = PARTS
) -> float:
    """Probability that the errors of a right pose are below the limit.

    They follow from the covariance, or from all poses that unknown focal lengths leave possible.
    """
    poses = held or [HeldPose(1.0, spread, 0.0, 0.0)]
    below = np.array([one.weight for one in poses])
    for part in parts:
        sd = [getattr(one.spread, f"{part}_sd") for one in poses]
        shift = [getattr(one, part) for one in poses]
        below = below * _below_limit(np.degrees(sd), ERROR_LIMIT_DEG, np.degrees(shift))
    return min(float(below.sum()), 1.0)


def _below_limit(deviation: Any, limit: float = 1.0, shift: Any = 0.0) -> FloatArray:
    """Probability that an error with two dimensions, whose mean is a shift, is below the limit.

    Errors are Student's: their variance is known only by its order of magnitude, as what is wrong
    with cameras, lenses and matches is not in the covariance. Deviations and shifts may be arrays.
    """
    deviation = _DEVIATION_SCALE * np.asarray(deviation) / limit
    scale = np.maximum(deviation, 1e-6)[..., None] * math.sqrt(_ERROR_TAIL)
    # By the direction of the deviation: from where to where the sum is below the limit.
    moved = np.asarray(shift)[..., None] / limit
    along = moved * _DIRECTIONS
    inside = 1.0 - moved**2 + along**2
    ends = (sign * np.sqrt(np.maximum(inside, 0.0)) - along for sign in (-1.0, 1.0))
    near, far = ((1.0 + (np.maximum(end, 0.0) / scale) ** 2) ** -_ERROR_TAIL for end in ends)
    return np.asarray(np.where(inside > 0.0, near - far, 0.0).mean(axis=-1))


def angles_deg(R: FloatArray, t: FloatArray, pose: RelativePose) -> tuple[float, float]:
    """Angles of rotation and of direction of translation between (R, t) and a pose, in degrees."""
    cosines = 0.5 * (float(np.sum(R * pose.R)) - 1.0), float(t @ pose.t)
    first, second = (math.degrees(math.acos(min(1.0, max(-1.0, c)))) for c in cosines)
    return first, second


def logistic(x: float) -> float:
    """Probability of log-odds."""
    return 1.0 / (1.0 + math.exp(-x)) if x > -700.0 else 0.0


def _distinct(x0: FloatArray, x1: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Leave one of several matches between the same two places, in order."""
    # A pixel is one complex number, which NumPy sorts faster than rows.
    if x0.shape[1] == 2 and len(np.unique(np.ascontiguousarray(x0).view(np.complex128))) == len(x0):
        return x0, x1  # all are at different places of the first image
    first = np.sort(np.unique(np.column_stack([x0, x1]), axis=0, return_index=True)[1])
    return np.ascontiguousarray(x0[first]), np.ascontiguousarray(x1[first])
