"""Resolve: fundamental matrix and 1-to-1 matches from a graph of candidates."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from manymatch import _core
from manymatch._validate import FloatArray, Method, checked_method, read_only
from manymatch.estimate import match_probability as probabilities
from manymatch.estimate.homography import Frame
from manymatch.estimate.prepare import PreparedPair, checked_graph
from manymatch.estimate.result import (
    GeometricProblem,
    PixelEstimate,
    common_fields,
    without_model,
)
from manymatch.options import checked_options

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import ArrayLike

    from manymatch.graph import GraphLike
    from manymatch.options import OptionKeywords, Options

    # F and the oriented epipole of image 1, as the core has them.
    CoreModel = tuple[FloatArray, FloatArray]

# Matches within so many thresholds of a homography count as on its plane. Some others always agree
# with some epipole; how many beyond those do by chance is known from the candidates at these
# distances from their epipolar lines, in thresholds.
_PLANE_REACH, _FREE_OFF_PLANE, _RING = 3.0, 3, (6.0, 16.0)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FundamentalEstimate(PixelEstimate):
    """Estimate of a fundamental matrix: that of `Estimate`, and the following.

    Attributes
    ----------
    fundamental : (3, 3) float64 ndarray or None
        ``x1^T F x0 = 0`` in pixels, with Frobenius norm one.
    """

    model: FloatArray | None = None
    model_name: ClassVar[str] = "fundamental"

    @property
    def fundamental(self) -> FloatArray | None:
        """The matrix (3, 3), ``x1^T F x0 = 0``, or None."""
        return self.model


def estimate_fundamental(
    graph: GraphLike,
    method: Method = "auto",
    options: Options | None = None,
    proposals: ArrayLike | None = None,
    **settings: Unpack[OptionKeywords],
) -> FundamentalEstimate:
    """Estimate the fundamental matrix of two images from candidate correspondences.

    For pinhole cameras of which nothing is known. With known cameras, or where only the focal
    length is unknown, `estimate_relative_pose` is far more accurate.

    Parameters
    ----------
    graph : AssociationGraph or Candidates
        Candidates, several per keypoint if there are, in pixels.
    method : {"auto", "hcm-mcm", "hcm", "mcm", "cm"}
        As in `estimate_relative_pose`.
    options : Options, optional
        Threshold, budget, seed and the rest. `threshold_px` bounds the Sampson distance.
    proposals : (E,) bool array, optional
        Draw minimal samples from these edges only; everything else sees the whole graph.
    **settings
        Fields of `Options` by keyword, such as ``threshold_px=2`` or ``seed=7``, in place of those
        of `options`.

    Returns
    -------
    FundamentalEstimate
        ``fundamental`` (3, 3) has ``x1^T F x0 = 0`` for pixels x0 of image 0 and x1 of image 1,
        rank two, Frobenius norm one, and a positive entry of largest magnitude. All its matches
        are on one side of their epipoles, as points that both cameras see are. The result is a
        function of the arguments alone: not of `options.threads`, not of earlier calls. A pair that
        cannot be solved has ``success=False`` and says why in ``failure``; so has a pair whose
        matches all lie on one plane, or were seen from one place, which leaves the matrix
        undetermined.

    Raises
    ------
    ValueError
        If an argument is not what it should be.

    Examples
    --------
    >>> import numpy as np
    >>> from manymatch import AssociationGraph
    >>> points = np.random.default_rng(0).uniform(0, 500, (50, 2))
    >>> shift = np.random.default_rng(1).uniform(5, 50, (50, 1)) * [1.0, 0.0]    # a stereo camera
    >>> estimate = estimate_fundamental(AssociationGraph.from_matches(points, points - shift))
    >>> np.allclose(np.abs(estimate.fundamental[[1, 2], [2, 1]]), np.sqrt(0.5), atol=1e-6)
    True
    """
    checked = checked_options(options, settings)
    pair = prepare(graph, checked, proposals)
    return FUNDAMENTAL.run([pair], checked_method(method), checked.threads)[0]


def prepare(
    graph: object, options: Options, proposals: object = None, where: str = ""
) -> PreparedPair:
    """Check a pair and bring its points to the frame in which the matrix is found."""
    checked = checked_graph(graph, options, where)
    frame = Frame(checked)
    x0, x1 = frame.into(checked.points0, 0), frame.into(checked.points1, 1)
    return PreparedPair(checked, x0, x1, 1.0 / frame.unit, options, proposals, where, frame=frame)


def _finish(
    pair: PreparedPair, result: _core.FundamentalEstimate, method: str
) -> FundamentalEstimate:
    """Turn the core's result into the public one."""
    pair.take_threshold(result.threshold)

    def public(model: CoreModel) -> FloatArray:
        F = pair.frame.matrix(1).T @ model[0] @ pair.frame.matrix(0)
        return read_only(F / (np.sign(F.flat[np.argmax(np.abs(F))]) * np.linalg.norm(F)))

    common = common_fields(FUNDAMENTAL, pair, result, public, method)
    if result.success:
        reason = _undetermined(pair, result)
        if reason:
            wanting = f"{reason}, which leaves the fundamental matrix undetermined"
            common |= without_model(pair, wanting)
    success = common["success"]
    probability = _match_probability(pair, result) if success else read_only(np.zeros(0))
    return FundamentalEstimate(
        **common,
        model=public(result.model) if success else None,
        match_probability=probability if method == "auto" else None,
    )


def _undetermined(pair: PreparedPair, result: _core.FundamentalEstimate) -> str:
    """Say why the matches do not determine the matrix; empty if they do.

    They do not if those of an image are on a line, or if most are on a plane and the others are no
    more than chance would give.
    """
    ends = pair.edges[result.matched]
    x0, x1 = (np.ascontiguousarray(x[ends[:, i]]) for i, x in enumerate((pair.x0, pair.x1)))
    reach = _PLANE_REACH * pair.eps
    for x in (x0, x1):
        across = np.linalg.svd(x - x.mean(axis=0), compute_uv=False)[1] / np.sqrt(len(x))
        if across <= reach:
            return "the matches are on a line"
    on_plane = _core.on_a_plane(x0, x1, reach, *result.model)
    off_plane = len(ends) - on_plane
    distance = epipolar_errors(pair, result.model)
    near, far = _RING
    chance = np.count_nonzero((distance > near) & (distance < far)) / (far - near)
    by_chance = _FREE_OFF_PLANE + chance + 4.0 * np.sqrt(chance)
    if off_plane <= min(by_chance, on_plane):
        return "the matches fit a homography, of a plane or of a camera that only turned"
    return ""


def epipolar_errors(pair: PreparedPair, model: CoreModel) -> FloatArray:
    """Sampson distances (E,) of all candidates, in units of the threshold.

    `model` is in the frame of the pair, as the core returns it. Infinite where undefined.
    """
    *_, r2 = _core.score_fundamental(
        pair.x0, pair.x1, pair.edges, pair.eps, pair.options.q, pair.options.delta, *model
    )
    return np.where(np.isfinite(r2), np.sqrt(r2), np.inf) / pair.eps


def _match_probability(pair: PreparedPair, result: _core.FundamentalEstimate) -> FloatArray:
    distances = epipolar_errors(pair, result.model)
    return read_only(
        probabilities.probability_of(pair, result, distances, probabilities.FUNDAMENTAL)
    )


FUNDAMENTAL = GeometricProblem(
    "fundamental", FundamentalEstimate, "estimate_fundamental", prepare, _finish
)
