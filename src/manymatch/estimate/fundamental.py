"""Resolve: fundamental matrix and 1-to-1 matches from a graph of candidates."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, ClassVar, TypeAlias, Unpack

import numpy as np

from manymatch import _core
from manymatch._validate import FloatArray, IndexArray, Method, read_only
from manymatch.estimate.homography import RIGHT_THRESHOLDS, box, homogeneous, prepare
from manymatch.estimate.problem import Chart, GeometricProblem, PreparedPair, errors_by, on_a_line
from manymatch.estimate.result import PixelEstimate
from manymatch.estimate.uncertainty import rotation

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from manymatch.graph import GraphLike
    from manymatch.options import OptionKeywords, Options

# F and the oriented epipole of image 1, as the core has them.
CoreModel: TypeAlias = tuple[FloatArray, FloatArray]

_errors = errors_by("score_fundamental")
# Matches within this many thresholds of a homography count as on its plane. A few others always
# agree with some epipole; how many more do by chance follows from the number of candidates at the
# distances of the ring, in thresholds, from their epipolar lines.
_PLANE_REACH, _FREE_OFF_PLANE, _RING = 3.0, 3, (6.0, 16.0)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FundamentalEstimate(PixelEstimate):
    """Estimate of a fundamental matrix: `Estimate` with the attribute `fundamental`."""

    model: FloatArray | None = None
    model_name: ClassVar[str] = "fundamental"

    @property
    def fundamental(self) -> FloatArray | None:
        """The matrix (3, 3), ``x1^T F x0 = 0`` in pixels, of Frobenius norm one; or None."""
        return self.model


def estimate_fundamental(
    graph: GraphLike,
    method: Method = "auto",
    options: Options | None = None,
    proposals: ArrayLike | None = None,
    **settings: Unpack[OptionKeywords],
) -> FundamentalEstimate:
    """Estimate the fundamental matrix of two images from candidate correspondences.

    For unknown pinhole cameras. With known cameras, or if only the focal length is unknown,
    `estimate_relative_pose` is far more accurate.

    Parameters
    ----------
    graph : AssociationGraph or Candidates
        Candidates, several per keypoint if there are, in pixels.
    method, options, proposals, **settings
        As in `estimate_relative_pose`. `threshold_px` bounds the Sampson distance.

    Returns
    -------
    FundamentalEstimate
        ``fundamental`` (3, 3) has ``x1^T F x0 = 0`` for pixels x0 of image 0 and x1 of image 1,
        rank two, Frobenius norm one, and a positive entry of largest magnitude. All its matches
        are on one side of their epipoles, as points that both cameras see are. Matches that all
        lie on one plane, or were seen from one place, leave the matrix undetermined: no success.

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
    return FUNDAMENTAL.solve((graph,), method, options, proposals, settings)


def _to_pixels(pair: PreparedPair, model: CoreModel) -> FloatArray:
    return np.asarray(pair.frame.matrix(1).T @ model[0] @ pair.frame.matrix(0))


def _public(pair: PreparedPair, model: CoreModel) -> FloatArray:
    F = _to_pixels(pair, model)
    return read_only(F / (np.sign(F.flat[np.argmax(np.abs(F))]) * np.linalg.norm(F)))


def _open(pair: PreparedPair, result: _core.FundamentalEstimate) -> str:
    """Say that the matches are on a line, or on a plane but for some by chance, if they are."""
    undetermined = "which leaves the fundamental matrix undetermined"
    x0, x1 = pair.ends(result.matched)
    reach = _PLANE_REACH * pair.eps
    if on_a_line(x0, reach) or on_a_line(x1, reach):
        return f"the matches are on a line, {undetermined}"
    on_plane = _core.on_a_plane(x0, x1, reach, *result.model)
    distance = _errors(pair, result.model)
    near, far = _RING
    chance = np.count_nonzero((distance > near) & (distance < far)) / (far - near)
    by_chance = _FREE_OFF_PLANE + chance + 4.0 * np.sqrt(chance)
    if len(x0) - on_plane <= min(by_chance, on_plane):
        return (
            "the matches fit a homography, of a plane or of a camera that only turned, "
            f"{undetermined}"
        )
    return ""


def _move(model: CoreModel, step: FloatArray) -> CoreModel:
    """Turn the two epipoles by two numbers each, and move the rest by three."""
    F, e = model
    U, values, Vt = np.linalg.svd(F)
    turn1, turn0 = rotation(U[:, :2] @ step[:2]), rotation(Vt[:2].T @ step[2:4])
    s0, s1 = values[:2] / np.hypot(*values[:2])
    # Directions of a 2x2 matrix of norm one that keep the norm.
    inner = np.array([[s0 - step[4] * s1, step[5]], [step[6], s1 + step[4] * s0]])
    moved = turn1 @ U[:, :2] @ inner @ Vt[:2] @ turn0.T
    return moved / np.linalg.norm(moved), turn1 @ e


def _signed_sampson(F: FloatArray, x0: FloatArray, x1: FloatArray) -> FloatArray:
    """Signed Sampson distances (N,)."""
    a, b = homogeneous(x0), homogeneous(x1)
    lines1, lines0 = a @ F.T, b @ F
    squared = np.sum(lines1[:, :2] ** 2, axis=1) + np.sum(lines0[:, :2] ** 2, axis=1)
    return np.asarray(np.sum(b * lines1, axis=1) / np.sqrt(np.maximum(squared, 1e-300)))


def _residuals(pair: PreparedPair, model: CoreModel, edges: IndexArray) -> FloatArray:
    return _signed_sampson(model[0], *pair.ends(edges))[:, None]


def _numbers(pair: PreparedPair, model: CoreModel, _base: CoreModel) -> FloatArray:
    F = _to_pixels(pair, model)
    return np.asarray((F / np.linalg.norm(F)).ravel())


def _error(pair: PreparedPair, model: CoreModel, base: CoreModel) -> FloatArray:
    """Sampson distances of points on the base's epipolar lines, all over the two images."""
    boxes = [box(points) for points in pair.ends()]
    grids = [np.linspace(corners[0], corners[-1], 5) for corners in boxes]
    first, second = (
        np.stack([axis.ravel() for axis in np.meshgrid(*grid.T, indexing="ij")], axis=1)
        for grid in grids
    )
    x0, x1 = np.repeat(first, len(second), axis=0), np.tile(second, (len(first), 1))
    lines = homogeneous(x0) @ base[0].T
    off = np.sum(homogeneous(x1) * lines, axis=1) / np.sum(lines[:, :2] ** 2, axis=1)
    x1 = x1 - off[:, None] * lines[:, :2]
    inside = np.all((x1 >= boxes[1][0]) & (x1 <= boxes[1][-1]), axis=1)
    if not inside.any():
        inside[:] = True
    errors = _signed_sampson(model[0], x0[inside], x1[inside])
    return np.asarray(errors / (math.sqrt(len(errors)) * RIGHT_THRESHOLDS * pair.eps))


#: The coefficients of matches are fitted by benchmarks/accuracy/fit_constants.py;
#: benchmarks/results/fundamental.md has the measured reliability.
FUNDAMENTAL = GeometricProblem(
    name="fundamental",
    noun="fundamental matrix",
    clause="a fundamental matrix relates image 0 and image 1",
    estimate=estimate_fundamental,
    result=FundamentalEstimate,
    core="estimate_fundamental",
    prepare=prepare,
    public=_public,
    errors=_errors,
    sample_size=7,
    parameters=7,
    dimensions=1,
    match_coefficients=(-0.293, -0.129, 1.174, 0.336, 0.512, 0.438),
    model_coefficients=(2.360, 0.940, 0.729, 1.237),
    chart=Chart(_move, _residuals, _numbers, _error),
    open=_open,
)
