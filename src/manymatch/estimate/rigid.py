"""Resolve: rigid transform or similarity, and 1-to-1 matches, of two clouds of points."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from manymatch import _core
from manymatch._validate import FloatArray, Method, checked_method, describe, read_only, real
from manymatch.estimate import match_probability as probabilities
from manymatch.estimate.prepare import PreparedPair, checked_graph
from manymatch.estimate.result import (
    Estimate,
    GeometricProblem,
    common_fields,
    without_model,
)
from manymatch.options import AUTO, checked_options

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import ArrayLike

    from manymatch.estimate.result import E_co
    from manymatch.graph import AssociationGraph, GraphLike
    from manymatch.options import OptionKeywords, Options

# The threshold in the unit of the core, whose square is an ordinary number.
_THRESHOLDS = (1e-100, 1e100)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TransformEstimate(Estimate):
    """Estimate of a transform in space: that of `Estimate`, and the following.

    Attributes
    ----------
    transform : (4, 4) float64 ndarray or None
        ``x1 = transform @ x0`` in homogeneous coordinates.
    threshold, noise, noise_sd : float
        As in the notes of `Estimate`, in the unit of the points.
    """

    model: FloatArray | None = None
    threshold: float
    noise: float = math.nan
    noise_sd: float = math.nan

    model_name: ClassVar[str] = "transform"
    length_suffix: ClassVar[str] = ""

    @property
    def transform(self) -> FloatArray | None:
        """The transform (4, 4), ``x1 = transform @ x0``, or None."""
        return self.model


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RigidEstimate(TransformEstimate):
    """Estimate of a rigid transform, with the fields of `Estimate` and `TransformEstimate`."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SimilarityEstimate(TransformEstimate):
    """Estimate of a similarity: that of `TransformEstimate`, and the following.

    Attributes
    ----------
    scale : float
        Scale s of the transform, ``x1 = s R @ x0 + t``; NaN without one.
    """

    @property
    def scale(self) -> float:
        """Scale of the transform; NaN without one."""
        if self.model is None:
            return math.nan
        return float(np.linalg.norm(self.model[:3, :3]) / math.sqrt(3.0))

    def _own(self) -> dict[str, Any]:
        return {"scale": self.scale} if self.success else {}


def estimate_rigid_transform(
    graph: GraphLike,
    threshold: float,
    method: Method = "auto",
    options: Options | None = None,
    proposals: ArrayLike | None = None,
    **settings: Unpack[OptionKeywords],
) -> RigidEstimate:
    """Estimate the rotation and translation between two clouds from candidate correspondences.

    Parameters
    ----------
    graph : AssociationGraph or Candidates
        Candidates, several per point if there are; points0 and points1 are (N, 3), in one unit.
    threshold : float
        Largest distance of a mapped point from its partner, in the unit of the points; about three
        standard deviations of their noise, or 1.5 times the spacing of points that were thinned.
    method : {"auto", "hcm-mcm", "hcm", "mcm", "cm"}
        As in `estimate_relative_pose`. The filter of "auto" looks for candidates that keep their
        distances to each other.
    options : Options, optional
        Budget, seed and the rest. Its `threshold_px` is not used.
    proposals : (E,) bool array, optional
        Draw minimal samples from these edges only; everything else sees the whole graph.
    **settings
        Fields of `Options` by keyword, such as ``seed=7``, in place of those of `options`.

    Returns
    -------
    RigidEstimate
        ``transform`` (4, 4) maps points0 to points1, ``x1 = R @ x0 + t`` with a proper rotation R;
        `threshold` and `noise` are in the unit of the points. The result is a function of the
        arguments alone: not of `options.threads`, not of earlier calls.
        A pair that cannot be solved, also for matches on a line, has ``success=False`` and says why
        in ``failure``.

    Raises
    ------
    ValueError
        If an argument is not what it should be.

    Examples
    --------
    >>> import numpy as np
    >>> from manymatch import AssociationGraph
    >>> points = np.random.default_rng(0).uniform(0, 5, (50, 3))
    >>> turned = points @ np.array([[0, 1, 0], [-1, 0, 0], [0, 0, 1]]) + [1, 2, 3]
    >>> estimate = estimate_rigid_transform(AssociationGraph.from_matches(points, turned), 0.05)
    >>> np.allclose(estimate.transform[:3], [[0, -1, 0, 1], [1, 0, 0, 2], [0, 0, 1, 3]])
    True
    """
    return _estimate(RIGID, graph, threshold, method, options, proposals, settings)


def estimate_similarity(
    graph: GraphLike,
    threshold: float,
    method: Method = "auto",
    options: Options | None = None,
    proposals: ArrayLike | None = None,
    **settings: Unpack[OptionKeywords],
) -> SimilarityEstimate:
    """Estimate scale, rotation and translation between two clouds from candidates.

    Parameters
    ----------
    graph : AssociationGraph or Candidates
        As in `estimate_rigid_transform`; the two clouds may be in different units.
    threshold : float
        Largest distance of a mapped point from its partner, in the unit of points1. The error is
        symmetric, since otherwise a scale of zero would bring all points together: it is the
        distance times ``sqrt(s0 / s)``, s the scale and s0 the ratio of the sizes of the clouds
        (medians of the distances from their centres). Scales between s0 / 16 and 16 s0 are found.
    method, options, proposals, **settings
        As in `estimate_rigid_transform`.

    Returns
    -------
    SimilarityEstimate
        ``transform`` (4, 4) maps points0 to points1, ``x1 = s R @ x0 + t``, and ``scale`` is s;
        everything else as in `estimate_rigid_transform`.

    Raises
    ------
    ValueError
        If an argument is not what it should be.

    Examples
    --------
    >>> import numpy as np
    >>> from manymatch import AssociationGraph
    >>> points = np.random.default_rng(0).uniform(0, 5, (50, 3))
    >>> estimate = estimate_similarity(AssociationGraph.from_matches(points, 2 * points + 1), 0.05)
    >>> round(estimate.scale, 6)
    2.0
    """
    return _estimate(SIMILARITY, graph, threshold, method, options, proposals, settings)


def _estimate(
    problem: GeometricProblem[E_co],
    graph: object,
    threshold: object,
    method: object,
    options: object,
    proposals: object,
    settings: Any,
) -> E_co:
    if "threshold_px" in settings:
        raise ValueError(
            "threshold_px must be left out for points in space, whose threshold is the argument "
            f"threshold, got threshold_px={describe(settings['threshold_px'])}"
        )
    checked = checked_options(options, settings)
    pair = problem.prepare(graph, threshold, checked, proposals)
    return problem.run([pair], checked_method(method), checked.threads)[0]


def _prepare(
    graph: object,
    threshold: object,
    options: Options,
    proposals: object = None,
    where: str = "",
    *,
    free_scale: bool,
) -> PreparedPair:
    """Check a pair and bring its points to the frame in which the transform is found."""
    checked = checked_graph(graph, options, where, (3, 3))
    number = real(threshold, f"{where}threshold", 0.0)
    if options.threshold_px == AUTO:
        raise ValueError(
            f'{where}options.threshold_px must be a number for points in space, got "auto", which '
            "is for keypoints of images; the argument threshold is used"
        )
    frame = Frame(checked, free_scale)
    x0, x1 = frame.into(checked.points0, 0), frame.into(checked.points1, 1)
    unit = 1.0 / (2.0 * frame.half[1])
    unit = min(max(number * unit, _THRESHOLDS[0]), _THRESHOLDS[1]) / number
    return PreparedPair(
        *(checked, x0, x1, unit, options, proposals, where), threshold=number, frame=frame
    )


def _finish(pair: PreparedPair, result: Any, method: str, *, free_scale: bool) -> Any:
    """Turn the core's result into the public one."""

    def public(model: FloatArray) -> FloatArray:
        return read_only(pair.frame.out_of(model))

    problem: GeometricProblem[TransformEstimate] = SIMILARITY if free_scale else RIGID
    common = common_fields(problem, pair, result, public, method)
    # A distance has the noise of both points, which are taken to be alike.
    common |= {name: common[name] / math.sqrt(2.0) for name in ("noise", "noise_sd")}
    if result.success and _on_a_line(pair, common["matches"]):
        common |= without_model(pair, "the matches lie on a line in one of the clouds")
    success = common["success"]
    transform = public(result.model) if success else None
    probability = _match_probability(pair, result, free_scale) if success else np.zeros(0)
    return problem.result(
        **common,
        model=transform,
        match_probability=read_only(probability) if method == "auto" else None,
    )


class Frame:
    """Coordinates in which the transform is found.

    Each cloud about its centre, the median of its points that have an edge, and in a unit of about
    its size: the median of their distances from the centre, the largest of the three coordinates
    each. A rigid transform needs one unit for both, the larger.
    """

    def __init__(self, graph: AssociationGraph, free_scale: bool) -> None:
        self.centre: list[FloatArray] = []
        self.half: list[float] = []  # of the unit: points may differ by more than the largest float
        for points, ends in zip((graph.points0, graph.points1), graph.edges.T, strict=True):
            used = points[np.unique(ends)]
            centre = 2.0 * np.median(0.5 * used, axis=0) if len(used) else np.zeros(3)
            away = np.abs(0.5 * used - 0.5 * centre).max(axis=1, initial=0.0)
            size = float(np.median(away)) if len(used) else 0.0
            self.centre.append(centre)
            self.half.append(size or float(away.max(initial=0.0)) or 0.5)
        if not free_scale:
            self.half = [max(self.half)] * 2

    def into(self, points: FloatArray, side: int) -> FloatArray:
        """Bring points (N, 3) of side 0 or 1 to this frame."""
        with np.errstate(over="ignore"):  # a point far from all others is an outlier
            return np.ascontiguousarray((0.5 * points - 0.5 * self.centre[side]) / self.half[side])

    def out_of(self, transform: FloatArray) -> FloatArray:
        """Bring a transform (4, 4) of this frame to the unit of the points."""
        out = np.eye(4)
        out[:3, :3] = transform[:3, :3] * (self.half[1] / self.half[0])
        out[:3, 3] = 2.0 * self.half[1] * transform[:3, 3] + self.centre[1]
        out[:3, 3] -= out[:3, :3] @ self.centre[0]
        return out


def _on_a_line(pair: PreparedPair, matches: np.ndarray) -> bool:
    """Whether noise alone could explain how far the matches are from a line."""
    for points, column in zip((pair.x0, pair.x1), matches.T, strict=True):
        chosen = points[column]
        across = np.linalg.svd(chosen - chosen.mean(axis=0), compute_uv=False)[1]
        if across / np.sqrt(len(chosen)) < pair.eps / 3.0:
            return True
    return False


def distances(pair: PreparedPair, transform: FloatArray, free_scale: bool) -> FloatArray:
    """Errors (E,) of all candidates, in units of the threshold.

    `transform` is in the frame of the pair, as the core returns it.
    """
    score = _core.score_similarity if free_scale else _core.score_rigid
    *_, r2 = score(
        *(pair.x0, pair.x1, pair.edges, pair.eps, pair.options.q, pair.options.delta, transform)
    )
    return np.where(np.isfinite(r2), np.sqrt(r2), np.inf) / pair.eps


def _match_probability(pair: PreparedPair, result: Any, free_scale: bool) -> FloatArray:
    found = distances(pair, result.model, free_scale)
    return probabilities.probability_of(pair, result, found, probabilities.RIGID)


RIGID = GeometricProblem(
    *("rigid", RigidEstimate, "estimate_rigid"),
    functools.partial(_prepare, free_scale=False),
    functools.partial(_finish, free_scale=False),
)
SIMILARITY = GeometricProblem(
    *("similarity", SimilarityEstimate, "estimate_similarity"),
    functools.partial(_prepare, free_scale=True),
    functools.partial(_finish, free_scale=True),
)
