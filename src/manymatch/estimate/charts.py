"""How the models of each problem move, for their covariance and confidence.

A relative pose has functions of its own, in `uncertainty`. Derivatives are central differences:
they are taken once per estimate, and need no formulas besides those of the residuals.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from manymatch._validate import FloatArray, IndexArray
    from manymatch.estimate.prepare import PreparedPair
    from manymatch.estimate.result import Estimate

# A homography is right if it puts the corners of the keypoints where they belong up to so many
# thresholds, root mean square; a fundamental matrix, if points all over the right epipolar lines
# are no farther from its own; a transform in space, if it does so with the points.
_RIGHT_THRESHOLDS = 3.0

# An absolute pose is right if its rotation is off by less than so many degrees and its centre by
# less than this part of the depth of the points.
_RIGHT_DEG, _RIGHT_DEPTH = 5.0, 0.05


@dataclasses.dataclass(frozen=True)
class Chart:
    """How a model of a problem moves, for its covariance and its confidence.

    Models, points and residuals are those of the core.

    Attributes
    ----------
    noun : str
        What a model is called, such as "homography".
    sample_size : int
        Candidates that any model fits.
    parameters : int
        Numbers of a step, P.
    dimensions : int
        Independent residuals of a match.
    move : callable
        (model, step (P,)) to the model moved by that step.
    residuals : callable
        (pair, model, edges (M,)) to the residuals (M, K) of these candidates.
    numbers : callable
        (pair, model, base) to the numbers (Q,) whose covariance is told: entries of the public
        model, or how it is moved from the base.
    error : callable
        (pair, model, base) to numbers whose root sum of squares is how far a model is from the
        base, in units of what counts as right.
    coefficients : tuple of float
        Log-odds that a model is the right one: a constant, and slopes as those of
        `confidence.COEFFICIENTS`.
    """

    noun: str
    sample_size: int
    parameters: int
    dimensions: int
    move: Callable[[Any, FloatArray], Any]
    residuals: Callable[[PreparedPair, Any, IndexArray], FloatArray]
    numbers: Callable[[PreparedPair, Any, Any], FloatArray]
    error: Callable[[PreparedPair, Any, Any], FloatArray]
    coefficients: tuple[float, ...]


def _homogeneous(points: FloatArray) -> FloatArray:
    return np.column_stack([points, np.ones(len(points))])


def _box(points: FloatArray) -> FloatArray:
    """Corners (2^D, D) of the smallest box around points (N, D)."""
    low, high = points.min(axis=0), points.max(axis=0)
    sides = np.meshgrid(*zip(low, high, strict=True), indexing="ij")
    return np.stack([side.ravel() for side in sides], axis=1)


def _ends(pair: PreparedPair, edges: IndexArray | slice = slice(None)) -> tuple[Any, Any]:
    """Points of either side of some candidates."""
    return pair.x0[pair.edges[edges, 0]], pair.x1[pair.edges[edges, 1]]


def _transfer(H: FloatArray, points: FloatArray) -> FloatArray:
    moved = _homogeneous(points) @ H.T
    return np.asarray(moved[:, :2] / moved[:, 2:])


def _move_homography(H: FloatArray, step: FloatArray) -> FloatArray:
    """Move a homography by eight numbers, an affine map by six."""
    return np.asarray(H @ (np.eye(3) + np.append(step, np.zeros(9 - len(step))).reshape(3, 3)))


def _homography_residuals(pair: PreparedPair, H: FloatArray, edges: IndexArray) -> FloatArray:
    x0, x1 = _ends(pair, edges)
    back = np.asarray(np.linalg.inv(H), dtype=np.float64)
    return np.asarray(math.sqrt(0.5) * np.hstack([_transfer(H, x0) - x1, _transfer(back, x1) - x0]))


def _homography_numbers(pair: PreparedPair, H: FloatArray, base: FloatArray) -> FloatArray:  # noqa: ARG001
    return np.asarray(pair.frame.to_pixels(H).ravel()[:8])


def _homography_error(pair: PreparedPair, H: FloatArray, base: FloatArray) -> FloatArray:
    corners = _box(_ends(pair)[0])
    gap = _transfer(H, corners) - _transfer(base, corners)
    return np.asarray(gap.ravel() / (math.sqrt(len(corners)) * _RIGHT_THRESHOLDS * pair.eps))


def _move_fundamental(model: Any, step: FloatArray) -> Any:
    """Turn the two epipoles by two numbers each, and move the rest by three."""
    F, e = model
    U, values, Vt = np.linalg.svd(F)
    turn1, turn0 = _rotation(U[:, :2] @ step[:2]), _rotation(Vt[:2].T @ step[2:4])
    s0, s1 = values[:2] / np.hypot(*values[:2])
    # Directions of a 2x2 matrix of norm one that keep the norm.
    inner = np.array([[s0 - step[4] * s1, step[5]], [step[6], s1 + step[4] * s0]])
    moved = turn1 @ U[:, :2] @ inner @ Vt[:2] @ turn0.T
    return moved / np.linalg.norm(moved), turn1 @ e


def _signed_sampson(F: FloatArray, x0: FloatArray, x1: FloatArray) -> FloatArray:
    """Signed Sampson distances (N,)."""
    a, b = _homogeneous(x0), _homogeneous(x1)
    lines1, lines0 = a @ F.T, b @ F
    squared = np.sum(lines1[:, :2] ** 2, axis=1) + np.sum(lines0[:, :2] ** 2, axis=1)
    return np.asarray(np.sum(b * lines1, axis=1) / np.sqrt(np.maximum(squared, 1e-300)))


def _fundamental_residuals(pair: PreparedPair, model: Any, edges: IndexArray) -> FloatArray:
    return _signed_sampson(model[0], *_ends(pair, edges))[:, None]


def _fundamental_numbers(pair: PreparedPair, model: Any, base: Any) -> FloatArray:  # noqa: ARG001
    F = pair.frame.matrix(1).T @ model[0] @ pair.frame.matrix(0)
    return np.asarray((F / np.linalg.norm(F)).ravel())


def _fundamental_error(pair: PreparedPair, model: Any, base: Any) -> FloatArray:
    """Sampson distances of points on the base's epipolar lines, all over the two images."""
    boxes = [_box(points) for points in _ends(pair)]
    grids = [np.linspace(box[0], box[-1], 5) for box in boxes]
    first, second = (
        np.stack([axis.ravel() for axis in np.meshgrid(*grid.T, indexing="ij")], axis=1)
        for grid in grids
    )
    x0, x1 = np.repeat(first, len(second), axis=0), np.tile(second, (len(first), 1))
    lines = _homogeneous(x0) @ base[0].T
    off = np.sum(_homogeneous(x1) * lines, axis=1) / np.sum(lines[:, :2] ** 2, axis=1)
    x1 = x1 - off[:, None] * lines[:, :2]
    inside = np.all((x1 >= boxes[1][0]) & (x1 <= boxes[1][-1]), axis=1)
    if not inside.any():
        inside[:] = True
    errors = _signed_sampson(model[0], x0[inside], x1[inside])
    return np.asarray(errors / (math.sqrt(len(errors)) * _RIGHT_THRESHOLDS * pair.eps))


def _rotation(w: FloatArray) -> FloatArray:
    """Rotation matrix of a rotation vector."""
    angle = float(np.linalg.norm(w))
    x, y, z = w
    skew = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    # sin(a)/a and (1 - cos(a))/a²
    first, second = np.sinc(angle / math.pi), 0.5 * np.sinc(0.5 * angle / math.pi) ** 2
    return np.asarray(np.eye(3) + first * skew + second * skew @ skew)


def _rotation_vector(R: FloatArray) -> FloatArray:
    """Rotation vector of a rotation matrix, exact for small angles."""
    sine = 0.5 * np.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]])
    length = float(np.linalg.norm(sine))
    angle = math.atan2(length, 0.5 * (float(np.trace(R)) - 1.0))
    if length < 1e-9:  # none, or half a turn about any axis
        return sine if angle < 1.0 else np.array([angle, 0.0, 0.0])
    return np.asarray(sine * (angle / length))


def _move_absolute_pose(model: Any, step: FloatArray) -> Any:
    R, t, f = model
    turn = _rotation(step[:3])
    return turn @ R, turn @ t + step[3:], f


def _absolute_residuals(pair: PreparedPair, model: Any, edges: IndexArray | slice) -> FloatArray:
    R, t, f = model
    x0, x1 = _ends(pair, edges)
    seen = x1 @ R.T + t
    return np.asarray(f * seen[:, :2] / seen[:, 2:] - x0)


def _turn_and_shift(model: Any, base: Any) -> tuple[FloatArray, FloatArray]:
    """Rotation vector from the base in the frame of the camera, and how the centre moves."""
    (R, t, _), (R0, t0, _) = model, base
    return _rotation_vector(R @ R0.T), R0.T @ t0 - R.T @ t


def _absolute_numbers(pair: PreparedPair, model: Any, base: Any) -> FloatArray:
    turn, shift = _turn_and_shift(model, base)
    return np.concatenate([turn, pair.frame.unit * shift])


def _absolute_error(pair: PreparedPair, model: Any, base: Any) -> FloatArray:
    turn, shift = _turn_and_shift(model, base)
    R, t, _ = base
    depths = _ends(pair)[1] @ R[2] + t[2]
    near = np.linalg.norm(_absolute_residuals(pair, base, slice(None)), axis=1) < pair.eps
    seen = depths[(depths > 0.0) & near]
    depth = float(np.median(seen)) if len(seen) else 1.0
    return np.concatenate([np.degrees(turn) / _RIGHT_DEG, shift / (_RIGHT_DEPTH * depth)])


def _move_transform(model: FloatArray, step: FloatArray) -> FloatArray:
    """Move a transform (4, 4) by rotation, translation and, if there is one, logarithm of scale."""
    moved = model.copy()
    moved[:3, :3] = model[:3, :3] @ _rotation(step[:3]) * math.exp(sum(step[6:]))
    moved[:3, 3] += step[3:6]
    return moved


def _scale(transform: FloatArray) -> float:
    return float(np.cbrt(np.linalg.det(transform[:3, :3])))


def _transform_residuals(pair: PreparedPair, model: FloatArray, edges: IndexArray) -> FloatArray:
    x0, x1 = _ends(pair, edges)
    return np.asarray((x0 @ model[:3, :3].T + model[:3, 3] - x1) / math.sqrt(_scale(model)))


def _transform_numbers(pair: PreparedPair, model: FloatArray, base: FloatArray) -> FloatArray:
    scale, scale0 = _scale(model), _scale(base)
    turn = _rotation_vector(base[:3, :3].T @ model[:3, :3] / (scale * scale0))
    return np.concatenate([turn, pair.frame.out_of(model)[:3, 3], [math.log(scale / scale0)]])


def _rigid_numbers(pair: PreparedPair, model: FloatArray, base: FloatArray) -> FloatArray:
    return _transform_numbers(pair, model, base)[:6]


def _transform_error(pair: PreparedPair, model: FloatArray, base: FloatArray) -> FloatArray:
    used = pair.x0[np.unique(pair.edges[:, 0])]
    gap = used @ (model - base)[:3, :3].T + (model - base)[:3, 3]
    return np.asarray(gap.ravel() / (math.sqrt(len(used)) * _RIGHT_THRESHOLDS * pair.eps))


def chart_of(estimate: Estimate) -> Chart:
    """Return the chart of the model that was estimated."""
    chart = CHARTS[estimate.problem]
    if estimate.problem == "homography" and estimate._pair.parameters is not None:  # noqa: SLF001
        return dataclasses.replace(chart, noun="affine map", sample_size=3, parameters=6)
    return chart


#: By `Estimate.problem`. Their coefficients are fitted by benchmarks/accuracy/model_confidence.py;
#: docs/confidence.md has the measured reliability.
CHARTS = {
    "absolute": Chart(
        noun="pose",
        sample_size=3,
        parameters=6,
        dimensions=2,
        move=_move_absolute_pose,
        residuals=_absolute_residuals,
        numbers=_absolute_numbers,
        error=_absolute_error,
        coefficients=(3.285, 0.630, 0.579, 0.674, 0.133, 0.869, 0.518, 0.440, 0.362),
    ),
    "fundamental": Chart(
        noun="fundamental matrix",
        sample_size=7,
        parameters=7,
        dimensions=1,
        move=_move_fundamental,
        residuals=_fundamental_residuals,
        numbers=_fundamental_numbers,
        error=_fundamental_error,
        coefficients=(-2.811, 0.749, 0.737, 0.000, 0.000, 0.689, 0.000, 0.861, 0.344),
    ),
    "homography": Chart(
        noun="homography",
        sample_size=4,
        parameters=8,
        dimensions=2,
        move=_move_homography,
        residuals=_homography_residuals,
        numbers=_homography_numbers,
        error=_homography_error,
        coefficients=(-0.503, 2.470, 2.513, 2.894, 0.877, 1.087, 1.137, 1.222, 1.380),
    ),
    "rigid": Chart(
        noun="rigid transform",
        sample_size=3,
        parameters=6,
        dimensions=3,
        move=_move_transform,
        residuals=_transform_residuals,
        numbers=_rigid_numbers,
        error=_transform_error,
        coefficients=(7.584, 0.000, 2.168, 0.000, 0.000, 2.923, 0.000, 1.226, 0.000),
    ),
}
CHARTS["similarity"] = dataclasses.replace(
    CHARTS["rigid"],
    noun="similarity",
    parameters=7,
    numbers=_transform_numbers,
    coefficients=(9.540, 1.517, 2.878, 3.931, 0.881, 0.000, 0.000, 3.205, 0.000),
)
