"""What all geometric problems share: checked pairs, the call of the core, its result."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import math
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar

import numpy as np

from manymatch import _core
from manymatch._validate import (
    BoolArray,
    FloatArray,
    IndexArray,
    Method,
    bool_array,
    checked_method,
    count,
    describe,
    read_only,
)
from manymatch.associate.gms import LARGEST_COORDINATE, at_working_size
from manymatch.estimate.result import LENGTHS, Alternative, Estimate, Model
from manymatch.graph import AssociationGraph, as_graph
from manymatch.options import Options, checked_options, core_options, num_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from manymatch.estimate.uncertainty import FocalPosterior
    from manymatch.geometry.camera import Camera

# Of either image, (x, y).
WorkingScale: TypeAlias = "tuple[ArrayLike, ArrayLike]"
E_co = TypeVar("E_co", bound=Estimate, covariant=True)

# Keypoints that span less than the first number are not in pixels. The motion filter, which counts
# in whole pixels, gets them enlarged to a span of the second number.
_SMALLEST_IMAGE, _ENLARGED_SPAN = 32.0, 1000.0
# Longest edge of the images in which most features are found.
_WORKING_EDGE = 1024.0
# Keypoints farther from the median than this many distances of the quartiles are not in the image.
_FAR_QUARTILES = 8.0
# Candidates at these distances, in thresholds, tell how many agree by chance.
_RING = (2.0, 5.0)
# Chances of a level are mixed with those of all levels, which have the weight of this many inliers.
_SHRINK = 4.0
# Fields of an `Estimate` that are taken from the result of the core as they are.
_FIELDS_OF_CORE = (
    *("success", "hcm", "cardinality", "num_inliers"),
    *("iterations", "refinements", "pooled", "worst_pooled"),
)


def checked_graph(
    graph: object, options: Options, where: str = "", dimensions: tuple[int, int] = (2, 2)
) -> AssociationGraph:
    """Check that a graph has what the options need, and points of these dimensions."""
    checked = as_graph(graph, f"{where}graph", dimensions)
    if options.guidance > 0 and checked.rank is None:
        raise ValueError(
            f"{where}graph must have ranks when options.guidance is above 0, got a graph "
            f"without ranks and guidance={options.guidance:g}"
        )
    return checked


def _nothing_to_match(graph: AssociationGraph) -> str:
    """Say why a graph has no candidates; empty if it has any."""
    if graph.num_edges:
        return ""
    both = (graph.points0, graph.points1)
    images = all(points.shape[1] == 2 for points in both)
    noun, where, place = ("keypoint", "in", "image") if images else ("point", "on", "side")
    without = [f"{place} {side}" for side in (0, 1) if not len(both[side])]
    if without:
        return f"no {noun}s {where} {' and '.join(without)}"
    first, second = (count(len(points), noun) for points in both)
    return f"no candidates between {first} {where} {place} 0 and {second} {where} {place} 1"


class PreparedPair:
    """One pair as the core takes it.

    `x0` (N0, 2 or 3) and `x1` (N1, 2 or 3) are the points of a checked graph in the coordinates in
    which the problem is solved, and `unit` is a pixel (or the unit of points in space) in them.
    `eps` is the inlier threshold in these coordinates, `threshold_px` the same in pixels, or in the
    unit of the points if `threshold` is given. An automatic threshold is one pixel of the working
    size until the core has chosen. `frame` brings models back, `parameters` are passed to the core.
    """

    focals: FocalPosterior | None = None  # of focal lengths that were found with a relative pose
    viewpoints: FloatArray | None = None  # (2, 3), of the sensors that saw two clouds
    distances: Any = None  # of `relative_pose.squared_distances`

    def __init__(
        self,
        graph: AssociationGraph,
        x0: FloatArray,
        x1: FloatArray,
        unit: float,
        options: Options,
        proposals: object = None,
        where: str = "",
        *,
        cameras: tuple[Camera, ...] = (),
        working_scale: WorkingScale | None = None,
        threshold: float | None = None,
        frame: Any = None,
        parameters: FloatArray | None = None,
    ) -> None:
        self.cameras, self.working_scale = cameras, working_scale
        self.graph, self.options = graph, options
        self.x0, self.x1 = x0, x1
        self.frame, self.parameters = frame, parameters
        chosen = options.threshold_px if threshold is None else threshold
        if isinstance(chosen, str):  # a pixel of the images in which the keypoints were found
            extent = max(_extent(graph.points0), _extent(graph.points1))
            chosen = max(extent / _WORKING_EDGE, 1.0)
            if working_scale is not None:
                chosen = float(1.0 / np.mean(np.asarray(working_scale, dtype=np.float64)))
            elif extent > LARGEST_COORDINATE:
                raise ValueError(
                    f"{where}options.threshold_px must be a number for keypoints that are spread "
                    f'over more than {LARGEST_COORDINATE:g} pixels, got "auto" and {extent:.3g}'
                )
        self.threshold_px = float(chosen)
        self.eps = unit * self.threshold_px
        self.edges: NDArray[np.int32] = np.ascontiguousarray(graph.edges, dtype=np.int32)
        self.proposals: BoolArray | None = None
        if proposals is not None:
            want = f"a boolean array of shape ({graph.num_edges},), one entry per edge"
            self.proposals = bool_array(proposals, f"{where}proposals", want, (graph.num_edges,))

    def changed(self, **values: Any) -> Self:
        """Return a copy with other attributes."""
        other = copy.copy(self)
        vars(other).update(values)
        return other

    def ends(self, edges: IndexArray | slice = slice(None)) -> tuple[FloatArray, FloatArray]:
        """Return the points of either side of some candidates, all by default."""
        i, j = self.edges[edges].T
        return np.take(self.x0, i, axis=0), np.take(self.x1, j, axis=0)

    def for_core(self, kept: BoolArray | None = None) -> _core.Pair:
        """Return the pair for the core; `kept` (E,) by the motion filter, if it ran before."""
        graph, (points0, points1) = self.graph, self._filter_points
        return _core.Pair(
            *(self.x0, self.x1, self.edges, graph.rank, self.proposals, self.eps),
            *(points0, points1, kept, self.parameters, graph.source, graph.prior),
            similarity=graph.similarity,
        )

    @functools.cached_property
    def rank(self) -> NDArray[np.int32] | None:
        """Rank (E,) of every edge from both sides, None if nothing tells it."""
        g = self.graph
        if g.rank is None and g.similarity is None:
            return None
        return _core.joint_ranks(self.edges, g.rank, g.similarity, g.source, g.prior)

    @functools.cached_property
    def _filter_points(self) -> tuple[FloatArray, FloatArray] | tuple[None, None]:
        """Points as the motion filter can take them, or None twice if it cannot."""
        seen = self.graph
        if not seen.points0.shape[1] == seen.points1.shape[1] == 2:
            return None, None  # the filter is one of two images
        if self.working_scale is not None:
            seen = at_working_size(seen, *self.working_scale)
        points = seen.points0, seen.points1
        if any(np.abs(side).max(initial=0.0) > LARGEST_COORDINATE for side in points):
            return None, None  # no image has such a point, and cells could not be told apart
        span = _span(*points)
        if not 0.0 < span < _SMALLEST_IMAGE:
            return points
        return points[0] * (_ENLARGED_SPAN / span), points[1] * (_ENLARGED_SPAN / span)


def _span(*both: FloatArray) -> float:
    """Largest extent of the points of either side along an axis."""
    return max((float(np.ptp(points, axis=0).max()) for points in both if len(points)), default=0.0)


def _extent(points: FloatArray) -> float:
    """Extent of points along an axis without the few that are far from all others."""
    if not len(points):
        return 0.0
    low, middle, high = 0.5 * np.quantile(points, (0.25, 0.5, 0.75), axis=0, method="nearest")
    reach = _FAR_QUARTILES * float((high - low).max())
    near = (np.abs(0.5 * points - middle) <= reach).all(axis=1)
    return 2.0 * _span(0.5 * points[near] if reach > 0.0 else 0.5 * points)


@dataclasses.dataclass(frozen=True)
class Chart:
    """How the models of a problem move, for their covariance by central differences.

    `move` returns the model moved by a step (P,), `residuals` those (M, K) of the candidates
    `edges` (M,), `numbers` what the covariance of `Confidence` is about (Q,), and `error` numbers
    whose root sum of squares is the distance from the base, over the largest that counts as right.
    The errors of a pose are three of the rotation and three of the centre, in units of `limits`:
    an angle in radians, and a share of the depth.
    """

    move: Callable[[Any, FloatArray], Any]
    residuals: Callable[[PreparedPair, Any, IndexArray], FloatArray]
    numbers: Callable[[PreparedPair, Any, Any], FloatArray]
    error: Callable[[PreparedPair, Any, Any], FloatArray]
    limits: tuple[float, float] | None = None


@functools.cache
def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """Parameters of a function; looking them up takes as long as a hundred iterations."""
    return tuple(inspect.signature(function).parameters.values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeometricProblem(Generic[E_co]):
    """A row of the table of problems: everything that differs between them."""

    name: str  # as in `Estimate.problem`
    noun: str  # what a model is called in sentences
    estimate: Callable[..., E_co]  # the public function
    result: type[E_co]  # the subclass of `Estimate` that it returns
    core: str  # name of the core's function: (pairs, method, options, threads) to results
    prepare: Callable[..., PreparedPair]  # of graph, arguments, options, proposals, where
    public: Callable[[PreparedPair, Any], Model]  # model of the core to the public one
    # Errors (E,) of all candidates in units of the threshold, infinite where there is none.
    errors: Callable[[PreparedPair, Any], FloatArray]
    sample_size: int  # candidates that any model fits
    parameters: int  # degrees of freedom of a model
    dimensions: int  # of the error of a candidate
    # Log-odds that a match, or a model, is right: a constant, and a slope for every feature of
    # `match_features`, or of `evidence.features_of`.
    match_coefficients: tuple[float, ...]
    model_coefficients: tuple[float, ...]
    # What else tells whether a model is right, (F,); empty for pairs without it. The coefficients
    # of a model have a slope for each of these numbers too.
    evidence: Callable[[PreparedPair, Any], FloatArray] = lambda *_: np.zeros(0)
    evidence_coefficients: tuple[float, ...] = ()
    clause: str = ""  # describes models whose numbers tell people nothing
    limit: str = "within 3 thresholds"  # what error counts as right
    chart: Chart | None = None  # a relative pose has functions of its own, in `uncertainty`
    # Why the matches of a result of the core do not determine its model; empty if they do.
    open: Callable[[PreparedPair, Any], str] = lambda _pair, _result: ""
    # Further fields of an estimate with a model, of pair, result of the core and fields so far.
    own: Callable[[PreparedPair, Any, dict[str, Any]], dict[str, Any]] = lambda *_: {}
    noise_scale: float = 1.0  # noise of an error over that of a coordinate of a point
    # Other values of these attributes, for pairs with parameters.
    variant: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of what the function needs after the graph, such as camera0 and camera1."""
        names = [parameter.name for parameter in _parameters(self.estimate)]
        return tuple(names[1 : names.index("method")])

    @property
    def keywords(self) -> tuple[str, ...]:
        """Names of what the function may be given besides method and options."""
        names = [p.name for p in _parameters(self.estimate) if p.kind is not p.VAR_KEYWORD]
        return tuple(names[names.index("proposals") :])

    def of(self, pair: PreparedPair) -> GeometricProblem[E_co]:
        """Return the variant of the problem that a pair is."""
        return self if pair.parameters is None else dataclasses.replace(self, **self.variant)

    def solve(
        self,
        arguments: tuple[Any, ...],
        method: object,
        options: object,
        proposals: object,
        settings: Mapping[str, Any],
        **keywords: Any,
    ) -> E_co:
        """Check the arguments of the public function and estimate one model."""
        if "threshold" in self.arguments and "threshold_px" in settings:
            raise ValueError(
                "threshold_px must be left out for points in space, whose threshold is the "
                f"argument threshold, got threshold_px={describe(settings['threshold_px'])}"
            )
        checked = checked_options(options, settings)
        pair = self.prepare(*arguments, checked, proposals, **keywords)
        return self.run([pair], checked_method(method), checked.threads)[0]

    def run(self, pairs: Sequence[PreparedPair], method: Method, threads: int) -> list[E_co]:
        """Estimate all pairs; one pair uses the threads within, several use one each."""
        by_core: dict[str, list[int]] = {}
        for i, pair in enumerate(pairs):
            by_core.setdefault(self.of(pair).core, []).append(i)
        found: dict[int, Any] = {}
        for name, chosen in by_core.items():
            given = [pairs[i].for_core() for i in chosen]
            options = [core_options(pairs[i].options) for i in chosen]
            results = getattr(_core, name)(given, method, options, num_threads(threads))
            found |= zip(chosen, results, strict=True)
        return [self._finish(pair, found[i], method) for i, pair in enumerate(pairs)]

    def _finish(self, pair: PreparedPair, result: Any, method: str) -> E_co:
        """Turn the core's result into the public one."""
        pair.threshold_px *= result.threshold  # the threshold used over the one given
        pair.eps *= result.threshold
        edges = pair.graph.edges
        known = method == "auto" and result.success and result.noise > 0.0
        unit = pair.threshold_px / pair.eps if known else math.nan
        noises = (
            unit * value / self.noise_scale for value in (result.noise, result.noise_deviation)
        )
        lengths = zip(LENGTHS, (pair.threshold_px, *noises), strict=True)
        fields: dict[str, Any] = {
            "problem": self.name,
            **{name: getattr(result, name) for name in _FIELDS_OF_CORE},
            "failure": _nothing_to_match(pair.graph) or result.failure,
            "inliers": read_only(result.inliers),
            "matches": read_only(edges[result.matched]),
            "match_probability": read_only(np.zeros(0)) if method == "auto" else None,
            **{f"{name}{self.result.length_suffix}": value for name, value in lengths},
            "support": result.support if known else math.nan,
            "alternatives": tuple(
                Alternative(
                    *(self.public(pair, model), probability, len(matched)),
                    *(read_only(edges[matched]), support),
                )
                for model, probability, support, matched in result.alternatives
            ),
            "source_trust": read_only(result.trust),
            "method": method,
            "options": pair.options,
            "timing": dict(result.timing),
            "_pair": pair,
            "_model": result.model,
            "_kept": read_only(result.kept),
            **{f"camera{i}": camera for i, camera in enumerate(pair.cameras)},
        }
        if result.success and (reason := self.open(pair, result)):
            none = self.result(**fields).refused(reason)
            return dataclasses.replace(none, match_probability=fields["match_probability"])
        if result.success:
            fields["model"] = self.public(pair, result.model)
            if method == "auto":
                # A candidate counts as far as its source is trusted.
                source = pair.graph.source
                trusted = source is not None and len(result.trust) > 0
                features = match_features(
                    *(pair.edges, pair.rank, result.kept, self.errors(pair, result.model)),
                    *(result.inliers, result.matched, pair.options.q),
                    *(self.sample_size, self.dimensions, result.trust[source] if trusted else None),
                )
                probability = probability_of(features, self.match_coefficients)
                fields["match_probability"] = read_only(probability)
            fields |= self.own(pair, result, fields)
        return self.result(**fields)


def errors_by(score: str) -> Callable[[PreparedPair, Any], FloatArray]:
    """Return the `errors` of a problem, by the name of the core's function that scores a model."""

    def errors(pair: PreparedPair, model: Any) -> FloatArray:
        parts = model if isinstance(model, tuple) else (model,)
        q, delta = pair.options.q, pair.options.delta
        *_, r2 = getattr(_core, score)(pair.x0, pair.x1, pair.edges, pair.eps, q, delta, *parts)
        return np.where(np.isfinite(r2), np.sqrt(r2), np.inf) / pair.eps

    return errors


def on_a_line(points: FloatArray, tolerance: float) -> bool:
    """Whether the root mean square distance of points from a line is below a tolerance."""
    across = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)[1]
    return bool(across / np.sqrt(len(points)) < tolerance)


def open_on_a_line(place: str) -> Callable[[PreparedPair, Any], str]:
    """Return the `open` of a problem that noise alone could make of matches near a line."""

    def why(pair: PreparedPair, result: Any) -> str:
        line = any(on_a_line(points, pair.eps / 3.0) for points in pair.ends(result.matched))
        return f"the matches lie on a line in one of the {place}" if line else ""

    return why


def probability_of(features: FloatArray, coefficients: tuple[float, ...]) -> FloatArray:
    """Probability (M,) that each match is right, from its features (M, 5)."""
    constant, *slopes = coefficients
    return np.asarray(1.0 / (1.0 + np.exp(-constant - features @ slopes)), dtype=np.float64)


def match_features(
    edges: NDArray[np.int32],
    rank: NDArray[np.int32] | None,
    kept: BoolArray,
    distance: FloatArray,
    inliers: BoolArray,
    matched: IndexArray,
    q: float = Options.q,
    sample_size: int = 5,
    dimensions: int = 1,
    weight: FloatArray | None = None,
) -> FloatArray:
    """Logarithms (M, 5) of what speaks for and against each match of a resolved pair.

    Columns: competition by other inliers at its two keypoints; of the pair, how far the inliers
    exceed chance, and how many matches there are for the size of the graph; prior by rank and
    filter; of the pair, how many rank-one candidates are inliers for each that is not.

    `kept` (by the motion filter) is empty if it did not run, `distance` (E,) is in thresholds,
    `matched` (M,) are the numbers of the matches.
    """
    level, prior = _core.levels(len(edges), rank, kept if len(kept) else None, q)
    weight = np.ones(len(edges)) if weight is None else weight
    found = np.bincount(level[inliers], weight[inliers], _core.NUM_LEVELS).astype(np.float64)
    ring = (distance > _RING[0]) & (distance < _RING[1])
    size_of_ring = _RING[1] ** dimensions - _RING[0] ** dimensions
    chance = np.bincount(level[ring], weight[ring], _core.NUM_LEVELS) / size_of_ring
    # Odds that an inlier of a level is true: those beyond chance against those by chance.
    pooled = (chance.sum() + 0.5) / (found.sum() + 1.0)
    wrong = np.clip((chance + _SHRINK * pooled) / (found + _SHRINK), 1e-3, 0.98)
    odds = np.where(inliers, ((1.0 - wrong) / wrong)[level], 0.0)
    competition = np.ones(len(matched))
    for side in (0, 1):
        vertex = edges[:, side]
        total = np.bincount(vertex, odds)
        competition *= 1.0 + np.maximum(total[vertex[matched]] - odds[matched], 0.0)
    excess = max(found.sum() - sample_size - chance.sum(), 1.0) / (np.sqrt(chance.sum()) + 3.0)
    size = max(weight[matched].sum() - sample_size, 1) / np.sqrt(max(weight.sum(), 1))
    # Levels 0 and 1 are of rank one.
    rank_one, agree = weight[level < 2].sum(), found[:2].sum()
    share = (agree + 0.5) / (rank_one - agree + 1.0)
    whole = np.ones(len(matched))
    columns = (competition, excess * whole, size * whole, prior[matched], share * whole)
    return np.asarray(np.log(np.stack(columns, axis=1)))
