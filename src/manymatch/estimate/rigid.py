"""Resolve: rigid transform or similarity, and 1-to-1 matches, of two clouds of points."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np

from manymatch import _core
from manymatch._validate import FloatArray, IndexArray, Method, float_array, read_only, real
from manymatch.estimate.homography import HOMOGRAPHY, RIGHT_THRESHOLDS
from manymatch.estimate.problem import (
    Chart,
    GeometricProblem,
    PreparedPair,
    checked_graph,
    errors_by,
    open_on_a_line,
)
from manymatch.estimate.result import Estimate
from manymatch.estimate.uncertainty import rotation, rotation_vector
from manymatch.options import AUTO

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from manymatch.graph import AssociationGraph, GraphLike
    from manymatch.options import OptionKeywords, Options

# The threshold in the unit of the core, whose square is an ordinary number.
_THRESHOLDS = (1e-100, 1e100)
# A graph holds clouds, and not only matches, if at least this share of the points of a side has no
# candidate. Points closer than this many thresholds are near each other however dense clouds are.
_LEAST_UNMATCHED, _LEAST_SPACING = 0.1, 1.0 / 3.0
# Gap between surfaces, in spacings of their points, below which it says no more. Share of points in
# front of what a sensor saw that right transforms do not exceed, and what is added to it.
_LEAST_GAP, _MOST_IN_FRONT, _LEAST_IN_FRONT = 0.4, 0.12, 0.02


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TransformEstimate(Estimate):
    """Estimate in space: `Estimate` with `transform`; lengths are in the unit of the points."""

    model: FloatArray | None = None
    threshold: float
    noise: float = math.nan
    noise_sd: float = math.nan

    model_name: ClassVar[str] = "transform"
    length_suffix: ClassVar[str] = ""

    @property
    def transform(self) -> FloatArray | None:
        """The transform (4, 4), ``x1 = transform @ x0`` in homogeneous coordinates; or None."""
        return self.model


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RigidEstimate(TransformEstimate):
    """Estimate of a rigid transform: `Estimate` with the attribute `transform`."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SimilarityEstimate(TransformEstimate):
    """Estimate of a similarity: `Estimate` with the attributes `transform` and `scale`."""

    @property
    def scale(self) -> float:
        """Scale s of the transform, ``x1 = s R @ x0 + t``; NaN without one."""
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
    viewpoints: ArrayLike | None = None,
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
    method, options, proposals, **settings
        As in `estimate_relative_pose`. The filter of "auto" looks for candidates that keep their
        distances to each other. `options.threshold_px` is not used.
    viewpoints : (2, 3) array, optional
        Where the sensor stood that saw points0, and the one that saw points1, each in the
        coordinates of its cloud; NaN if unknown. `assess` then also looks whether points of one
        cloud lie in front of what the sensor of the other saw.

    Returns
    -------
    RigidEstimate
        ``transform`` (4, 4) maps points0 to points1, ``x1 = R @ x0 + t`` with a proper rotation R;
        `threshold` and `noise` are in the unit of the points. Matches on a line have no transform.

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
    given = (graph, threshold), method, options, proposals, settings
    return RIGID.solve(*given, viewpoints=viewpoints)


def estimate_similarity(
    graph: GraphLike,
    threshold: float,
    method: Method = "auto",
    options: Options | None = None,
    proposals: ArrayLike | None = None,
    viewpoints: ArrayLike | None = None,
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
    method, options, proposals, viewpoints, **settings
        As in `estimate_rigid_transform`.

    Returns
    -------
    SimilarityEstimate
        ``transform`` (4, 4) maps points0 to points1, ``x1 = s R @ x0 + t``, and ``scale`` is s;
        everything else as in `estimate_rigid_transform`.
    """
    given = (graph, threshold), method, options, proposals, settings
    return SIMILARITY.solve(*given, viewpoints=viewpoints)


def _prepare(
    graph: object,
    threshold: object,
    options: Options,
    proposals: object = None,
    where: str = "",
    viewpoints: object = None,
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
    pair = PreparedPair(
        *(checked, x0, x1, unit, options, proposals, where), threshold=number, frame=frame
    )
    if viewpoints is not None:
        want = "the places (2, 3) of the two sensors"
        places = float_array(viewpoints, f"{where}viewpoints", want, (2, 3), finite=False)
        both = [frame.into(places[[side]], side) for side in (0, 1)]
        pair.viewpoints = np.concatenate(both)
    return pair


class Frame:
    """Coordinates in which the transform is found.

    Each cloud about the median of its points that have an edge, in a unit of about its size: the
    median of their largest coordinates. A rigid transform needs one unit for both, the larger.
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


def _move(model: FloatArray, step: FloatArray) -> FloatArray:
    """Move a transform (4, 4) by rotation, translation and, if there is one, logarithm of scale."""
    moved = model.copy()
    moved[:3, :3] = model[:3, :3] @ rotation(step[:3]) * math.exp(sum(step[6:]))
    moved[:3, 3] += step[3:6]
    return moved


def _scale(transform: FloatArray) -> float:
    return float(np.cbrt(np.linalg.det(transform[:3, :3])))


def _residuals(pair: PreparedPair, model: FloatArray, edges: IndexArray) -> FloatArray:
    x0, x1 = pair.ends(edges)
    return np.asarray((x0 @ model[:3, :3].T + model[:3, 3] - x1) / math.sqrt(_scale(model)))


def _similarity_numbers(pair: PreparedPair, model: FloatArray, base: FloatArray) -> FloatArray:
    scale, scale0 = _scale(model), _scale(base)
    turn = rotation_vector(base[:3, :3].T @ model[:3, :3] / (scale * scale0))
    return np.concatenate([turn, pair.frame.out_of(model)[:3, 3], [math.log(scale / scale0)]])


def _rigid_numbers(pair: PreparedPair, model: FloatArray, base: FloatArray) -> FloatArray:
    return _similarity_numbers(pair, model, base)[:6]


def _error(pair: PreparedPair, model: FloatArray, base: FloatArray) -> FloatArray:
    used = pair.x0[np.unique(pair.edges[:, 0])]
    gap = used @ (model - base)[:3, :3].T + (model - base)[:3, 3]
    return np.asarray(gap.ravel() / (math.sqrt(len(used)) * RIGHT_THRESHOLDS * pair.eps))


def _surfaces(pair: PreparedPair, model: FloatArray) -> FloatArray:
    """Logarithms (2,) of how closely the surfaces of two clouds fit, and of the free space.

    The gap between the surfaces, and the share of points in front of what a sensor saw as far as
    it exceeds that of right transforms; with minus signs. Empty for plain matches and small clouds.
    """
    matched = (len(np.unique(e)) for e in pair.edges.T)
    shares = (n / max(len(x), 1) for n, x in zip(matched, (pair.x0, pair.x1), strict=True))
    if min(shares) > 1.0 - _LEAST_UNMATCHED:
        return np.zeros(0)
    places = np.full((2, 3), np.nan) if pair.viewpoints is None else pair.viewpoints
    spacing = _LEAST_SPACING * pair.eps
    found = _core.cloud_surfaces(pair.x0, pair.x1, spacing, model[None], places)
    if not len(found):
        return np.zeros(0)
    gap, front = max(found[0, 0], _LEAST_GAP), found[0, 1:].max() + _LEAST_IN_FRONT
    return -np.log([gap, max(front / _MOST_IN_FRONT, 1.0)])


_SHARED: dict[str, Any] = {
    "evidence": _surfaces,
    "public": lambda pair, model: read_only(pair.frame.out_of(model)),
    "sample_size": 3,
    "dimensions": 3,
    "match_coefficients": HOMOGRAPHY.match_coefficients,
    "open": open_on_a_line("clouds"),
    "noise_scale": math.sqrt(2.0),  # a distance has the noise of both points, taken to be alike
}
#: benchmarks/results/registration.md has the measured reliability of the probabilities of matches.
RIGID = GeometricProblem(
    name="rigid",
    noun="rigid transform",
    estimate=estimate_rigid_transform,
    result=RigidEstimate,
    core="estimate_rigid",
    prepare=functools.partial(_prepare, free_scale=False),
    errors=errors_by("score_rigid"),
    parameters=6,
    model_coefficients=(4.208, 0.532, 0.916, 1.087),
    evidence_coefficients=(0.899, 0.293, 0.661, 0.690, 10.401, 6.0),
    chart=Chart(_move, _residuals, _rigid_numbers, _error),
    **_SHARED,
)
SIMILARITY = GeometricProblem(
    name="similarity",
    noun="similarity",
    estimate=estimate_similarity,
    result=SimilarityEstimate,
    core="estimate_similarity",
    prepare=functools.partial(_prepare, free_scale=True),
    errors=errors_by("score_similarity"),
    parameters=7,
    model_coefficients=(5.958, 1.127, 1.206, 1.584),
    evidence_coefficients=(1.980, 0.744, 0.909, 0.642, 8.709, 6.0),
    chart=Chart(_move, _residuals, _similarity_numbers, _error),
    **_SHARED,
)
