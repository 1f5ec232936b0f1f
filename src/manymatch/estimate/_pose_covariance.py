"""Covariance of a refined relative pose, from its matches and their residuals."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from manymatch import _core

if TYPE_CHECKING:
    from manymatch._validate import FloatArray
    from manymatch.geometry.pose import RelativePose

PARAMETERS = 5

# The noise is read off all candidates within this many thresholds of the pose, less what the
# density of candidates between the two further distances says is there anyway. Matches alone end at
# the threshold, and a search for as many as possible makes them look better than they are.
_WINDOW, _BACKGROUND = 3.0, (5.0, 15.0)

# Where the noise is much larger than the threshold, matches no longer tell how large; it is then
# taken to be this many thresholds.
_MOST_NOISE = 2.0

# A match whose leverage (from 0 to 1, PARAMETERS / M on average) is above this, and above three
# times the average, decides a direction on its own: if it is wrong, the pose follows it and its
# residual tells nothing. On planes that is what the matches off the plane do. Such matches are not
# counted as information.
_LEVERAGE = 0.2
_LEVERAGE_ROUNDS = 3


@dataclasses.dataclass(frozen=True, eq=False)
class PoseCovariance:
    """Covariance of a pose, and the noise it rests on.

    Attributes
    ----------
    matrix : (5, 5) float64
        In radians²: rotation vector w of ``R exp([w]x)``, then translation along `basis`. NaN if
        the matches do not determine the pose.
    basis : (2, 3) float64
        Orthonormal directions, both across t.
    noise : float
        Standard deviation of the residuals of true candidates, normalised plane.
    rotation_sd, translation_sd : float
        Root mean square of the angle by which rotation and direction are off, in radians; infinite
        if the matches do not determine the pose.
    """

    matrix: FloatArray
    basis: FloatArray
    noise: float
    rotation_sd: float
    translation_sd: float


def tangent_basis(t: FloatArray) -> FloatArray:
    """Orthonormal basis (2, 3) across the unit vector t, as in the core's refinement."""
    axis = np.zeros(3)
    axis[int(np.argmin(np.abs(t)))] = 1.0
    first = axis - t * (t @ axis)
    first /= np.linalg.norm(first)
    return np.stack([first, np.cross(t, first)])


def pose_covariance(
    x0: FloatArray, x1: FloatArray, pose: RelativePose, eps: float, distances: FloatArray
) -> PoseCovariance:
    """Covariance of a pose that was refined on these matches.

    Parameters
    ----------
    x0, x1 : (M, 2) float64
        Resolved matches on the normalised planes.
    pose : RelativePose
        The refined pose.
    eps : float
        Inlier threshold on the normalised plane: residuals at or above it have been left out.
    distances : (E,) float64
        Distances of all candidates in front of both cameras from the pose, on the normalised plane.

    Notes
    -----
    With J the derivatives of the residuals r, sigma² the variance of the noise and s² that of its
    part below the threshold, the covariance is ``(sigma⁴ / s²) (J'J)⁻¹ + d d'``. One factor
    sigma²/s² undoes the cut; the other is there because a match at the edge says little: when the
    pose moves, it leaves and another one enters. ``d = (J'J)⁻¹ J'r`` is how far the pose is from
    the one that fits the matches best: wrong candidates pulled it there during refinement.
    """
    basis = tangent_basis(pose.t)
    unknown = np.full((PARAMETERS, PARAMETERS), math.nan)
    residual, jacobian = _core.sampson_jacobian(x0, x1, pose.R, pose.t)
    defined = np.isfinite(residual) & np.isfinite(jacobian).all(axis=1)
    residual, jacobian = residual[defined], jacobian[defined]
    for _ in range(_LEVERAGE_ROUNDS):
        shared = leverage(jacobian) <= max(_LEVERAGE, 3.0 * PARAMETERS / max(len(jacobian), 1))
        if shared.all():
            break
        residual, jacobian = residual[shared], jacobian[shared]
    freedom = len(residual) - PARAMETERS
    if freedom <= 1:
        return PoseCovariance(unknown, basis, math.nan, math.inf, math.inf)
    variance = float(residual @ residual) / (freedom * eps**2)
    noise2 = max(variance, wide_variance(distances / eps, len(residual)))
    noise = eps * math.sqrt(noise2)
    normal = jacobian.T @ jacobian
    values, vectors = np.linalg.eigh(normal)
    if not values[0] > 1e-12 * values[-1]:
        return PoseCovariance(unknown, basis, noise, math.inf, math.inf)
    inverse = (vectors / values) @ vectors.T
    pull = inverse @ (jacobian.T @ residual)
    matrix = (noise**2 / kept_share(noise2)) * inverse + np.outer(pull, pull)
    matrix = 0.5 * (matrix + matrix.T)
    return PoseCovariance(
        matrix,
        basis,
        noise,
        math.sqrt(float(np.trace(matrix[:3, :3]))),
        math.sqrt(float(np.trace(matrix[3:, 3:]))),
    )


def leverage(jacobian: FloatArray) -> FloatArray:
    """How much of its own fitted value each row (M,) of the derivatives (M, 5) decides."""
    basis = np.linalg.svd(jacobian, full_matrices=False)[0]
    return np.asarray(np.sum(basis**2, axis=1), dtype=np.float64)


def wide_variance(distances: FloatArray, num_matches: int) -> float:
    """Variance of the noise, in thresholds², from the candidates around the pose.

    Parameters
    ----------
    distances : (E,) float64
        Distances of all candidates from the pose in thresholds.
    num_matches : int
        Matches the pose was fitted to, for the degrees of freedom.
    """
    near = distances[distances < _WINDOW]
    first, last = _BACKGROUND
    density = float(np.count_nonzero((distances >= first) & (distances < last))) / (last - first)
    count = max(len(near) - density * _WINDOW, 1.0)
    square = max(float(near @ near) - density * _WINDOW**3 / 3.0, 0.0)
    fitted = num_matches / max(num_matches - PARAMETERS, 1)
    return untruncated_variance(fitted * square / count, _WINDOW)


def untruncated_variance(variance: float, limit: float) -> float:
    """Variance of a normal variable whose part within ±limit has the given variance.

    A variance that only a wider noise than `_MOST_NOISE` would explain counts as that.
    """
    if variance >= _MOST_NOISE**2 * kept_share(_MOST_NOISE**2, limit):
        return _MOST_NOISE**2
    low, high = variance, _MOST_NOISE**2
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (
            (middle, high) if middle * kept_share(middle, limit) < variance else (low, middle)
        )
    return 0.5 * (low + high)


def kept_share(variance: float, limit: float = 1.0) -> float:
    """Share of the variance of centred normal noise that is left when it is cut at ±limit."""
    if variance <= 0:
        return 1.0
    k = limit / math.sqrt(variance)
    density = math.exp(-0.5 * k * k) / math.sqrt(2.0 * math.pi)
    return 1.0 - 2.0 * k * density / math.erf(k / math.sqrt(2.0))
