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

# A homography is right if it puts the corners of the keypoints where they belong up to so many
# thresholds, root mean square.
_RIGHT_THRESHOLDS = 3.0

#: Fitted by benchmarks/accuracy/model_confidence.py; docs/confidence.md has the measured
#: reliability.
COEFFICIENTS = (-0.503, 2.470, 2.513, 2.894, 0.877, 1.087, 1.137, 1.222, 1.380)


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
    return np.asarray(H @ (np.eye(3) + np.append(step, 0.0).reshape(3, 3)))


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


#: By `Estimate.problem`.
CHARTS = {
    "homography": Chart(
        noun="homography",
        sample_size=4,
        parameters=8,
        dimensions=2,
        move=_move_homography,
        residuals=_homography_residuals,
        numbers=_homography_numbers,
        error=_homography_error,
        coefficients=COEFFICIENTS,
    ),
}
