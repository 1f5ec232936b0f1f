"""Uncertainty of a model: its covariance, and planes and rotations that leave a pose open."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from manymatch import _core

if TYPE_CHECKING:
    from collections.abc import Callable

    from manymatch._validate import FloatArray, IndexArray
    from manymatch.estimate.problem import GeometricProblem, PreparedPair
    from manymatch.geometry.pose import RelativePose

PARAMETERS = 5
# Residuals of matches are not independent: this many of their nats count as one, as for the
# probabilities of alternatives (benchmarks/results/confidence.md, measured in
# benchmarks/results/unknown_focal.md).
NATS_PER_ODDS = 16.0
# Focal lengths at which the pose is found again: values along each direction of their covariance,
# for one and for two unknown ones, up to this many standard deviations.
_HELD, _HELD_DEVIATIONS = (13, 7), 2.5
# Least noise that is assumed then, in thresholds.
_LEAST_NOISE = 1e-3

# The noise is estimated from all candidates within this many thresholds of the pose, less the wrong
# ones among them, whose density is that between the two further distances. The residuals of the
# matches alone are too small: they end at the threshold, and the search makes them small.
_WINDOW, _BACKGROUND = 3.0, (5.0, 15.0)
# Larger noise, in thresholds, cannot be measured from the matches and is taken to be this.
_MOST_NOISE = 2.0
# A match whose leverage (from 0 to 1, PARAMETERS / M on average) is above this, and above three
# times the average, decides a direction on its own: if it is wrong, the pose follows it and its
# residual stays small. Such matches, as those off a plane that holds all others, are left out.
_LEVERAGE, _LEVERAGE_ROUNDS = 0.2, 3
# A match lies on a plane if the plane puts it within this many thresholds of where it is seen:
# noise of half a threshold in each coordinate of both images stays below it in 98 of 100 cases.
_TOLERANCE = 2.0
# Planes tried: with half of the matches on a plane, the chance to miss it is 2e-4.
_PLANES, _REFITS = 64, 3
_PLANE_STREAM = 0x706C616E65
# Step of central differences, for models of the size one.
_STEP = 1e-6
# Relative size of an eigenvalue of J'J below which a direction is open.
_UNDETERMINED = 1e-12


@dataclasses.dataclass(frozen=True, eq=False)
class Covariance:
    """Covariance of a model as in `Confidence`, but with angles in radians.

    NaN and infinite where the matches do not determine the model. `error_sd` belongs to a `Chart`,
    the deviations of rotation and translation to poses, the other numbers to a relative pose.
    """

    matrix: FloatArray
    basis: FloatArray = dataclasses.field(default_factory=lambda: np.full((2, 3), math.nan))
    noise: float = math.nan
    rotation_sd: float = math.nan
    translation_sd: float = math.nan
    error_sd: float = math.nan

    @classmethod
    def of_pose(cls, matrix: FloatArray, basis: FloatArray, noise: float) -> Covariance:
        """Make the covariance of a relative pose of its matrix (5, 5)."""
        matrix = 0.5 * (matrix + matrix.T)
        parts = (matrix[:3, :3], matrix[3:, 3:])
        return cls(matrix, basis, noise, *(math.sqrt(float(np.trace(part))) for part in parts))


def rotation(w: FloatArray) -> FloatArray:
    """Rotation matrix of a rotation vector."""
    angle = float(np.linalg.norm(w))
    x, y, z = w
    skew = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    # sin(a)/a and (1 - cos(a))/a²
    first, second = np.sinc(angle / math.pi), 0.5 * np.sinc(0.5 * angle / math.pi) ** 2
    return np.asarray(np.eye(3) + first * skew + second * skew @ skew)


def rotation_vector(R: FloatArray) -> FloatArray:
    """Rotation vector of a rotation matrix, exact for small angles."""
    sine = 0.5 * np.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]])
    length = float(np.linalg.norm(sine))
    angle = math.atan2(length, 0.5 * (float(np.trace(R)) - 1.0))
    if length < 1e-9:  # none, or half a turn about any axis
        return sine if angle < 1.0 else np.array([angle, 0.0, 0.0])
    return np.asarray(sine * (angle / length))


def tangent_basis(t: FloatArray) -> FloatArray:
    """Orthonormal basis (2, 3) across the unit vector t, as in the core's refinement."""
    axis = np.zeros(3)
    axis[int(np.argmin(np.abs(t)))] = 1.0
    first = axis - t * (t @ axis)
    first /= np.linalg.norm(first)
    return np.stack([first, _cross(t, first)])


def _cross(a: FloatArray, b: FloatArray) -> FloatArray:
    """Cross product of two vectors, ten times as fast as that of NumPy."""
    (ax, ay, az), (bx, by, bz) = a.tolist(), b.tolist()
    return np.array([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx])


class FocalPosterior(NamedTuple):
    """Free logarithms (K,) of unknown focal lengths, relative to those found.

    `into` (K, 2) turns them into those of both cameras; `offset` and `sigma` are medians and
    standard deviations of the prior, `deviations` and `covariance` (K, K) those of the posterior.
    """

    into: FloatArray
    offset: FloatArray
    sigma: FloatArray
    deviations: FloatArray
    covariance: FloatArray


class HeldPose(NamedTuple):
    """Weight of some focal lengths, covariance of their pose, and its angles from the chosen."""

    weight: float
    spread: Covariance
    rotation: float
    translation: float


def over_focals(
    x0: FloatArray,
    x1: FloatArray,
    pose: RelativePose,
    eps: float,
    spread: Covariance,
    focals: FocalPosterior,
) -> tuple[list[HeldPose], Covariance]:
    """Find the pose of the matches x0, x1 (M, 2) again for focal lengths all over their posterior.

    Also returns the covariance over all of them. Everything is on the normalised planes of the
    focal lengths found, as in `pose_covariance`, whose result is `spread`. The weights are those of
    prior and residuals. Points on the epipolar lines of a zoom are on those of a motion along the
    optical axis too, forward or backward: the sign of t is chosen again.
    """
    values, vectors = np.linalg.eigh(focals.covariance)
    axis = np.linspace(-_HELD_DEVIATIONS, _HELD_DEVIATIONS, _HELD[len(values) - 1])
    grid = np.stack(np.meshgrid(*[axis] * len(values)), axis=-1).reshape(-1, len(values))
    # From the centre outwards, so that each pose can start from its nearest neighbour.
    grid = grid[np.argsort(np.sum(grid**2, axis=1), kind="stable")]
    noise, ones = max(spread.noise, _LEAST_NOISE * eps), np.ones(len(x0))
    most = (eps / noise) ** 2
    found = [(pose.R, pose.t)]
    held, errors, normals, logs = [], [], [], np.zeros(len(grid))
    steps = (grid * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    for k, (place, step) in enumerate(zip(grid, steps, strict=True)):
        f = np.exp(step @ focals.into)
        near = found[1 + int(np.argmin(np.sum((grid[:k] - place) ** 2, axis=1))) if k else 0]
        fixed = np.array([f[0], 0.0, f[1], 0.0, 0.0])
        R, t = _core.refine_focal(x0, x1, ones, *near, f, fixed, noise, "cauchy", 25)[:2]
        seen = np.ascontiguousarray(x0 / f[0]), np.ascontiguousarray(x1 / f[1])
        front = _core.sampson(*seen, R, t)[1]
        if 2 * front.sum() < len(front):
            behind = _core.sampson(*seen, R, -t)[1]
            if behind.sum() > front.sum():
                t, front = -t, behind
        found.append((R, t))
        residual, jacobian = _core.focal_jacobian(x0, x1, R, t, f)
        # A match behind a camera can still be one at infinity.
        turned = np.column_stack([x0, f[0] * ones]) @ R.T
        with np.errstate(all="ignore"):
            gap = np.sum((f[1] * turned[:, :2] / turned[:, 2:] - x1) ** 2, axis=1)
            squared = np.where(front, residual**2, np.maximum(residual**2, gap)) / noise**2
        cost = np.where(squared < most, squared, most).sum()
        prior = np.sum(((step - focals.offset) / focals.sigma) ** 2)
        logs[k] = -0.5 * (cost / NATS_PER_ODDS + prior)
        rows = jacobian[np.isfinite(jacobian).all(axis=1), :PARAMETERS]
        normals.append(rows.T @ rows)
        away = spread.basis @ t
        sine = float(np.linalg.norm(away))
        angle = math.atan2(sine, float(t @ pose.t))
        shift = angle * (away / sine if sine > 1e-12 else np.array([1.0, 0.0]))
        turn = rotation_vector(pose.R.T @ R)
        errors.append(np.concatenate([turn, shift]))
        held.append((float(np.linalg.norm(turn)), angle))
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    scale = kept_share(1.0 / most) / noise**2
    information, axes = np.linalg.eigh(np.stack(normals) * scale)
    floored = np.maximum(information, math.pi**-2)[:, None]
    matrices = (axes / floored) @ axes.transpose(0, 2, 1)
    poses = [
        HeldPose(float(w), Covariance.of_pose(matrix, spread.basis, noise), *angles)
        for w, matrix, angles in zip(weights, matrices, held, strict=True)
    ]
    offsets = np.stack(errors)
    total = np.tensordot(weights, matrices, 1) + offsets.T @ (weights[:, None] * offsets)
    return poses, Covariance.of_pose(total, spread.basis, noise)


def pose_covariance(
    x0: FloatArray, x1: FloatArray, pose: RelativePose, eps: float, distances: FloatArray
) -> Covariance:
    """Covariance of a pose that was refined on the matches x0, x1, (M, 2) each.

    Everything is on the normalised planes: also the threshold `eps`, at which residuals are cut
    off, and the `distances` (E,) from the pose of all candidates in front of both cameras.

    With J the derivatives of the residuals r, sigma² the variance of the noise and s² that of its
    part below the threshold, the covariance is ``(sigma⁴ / s²) (J'J)⁻¹ + d d'``. One factor
    sigma²/s² corrects for the cut at the threshold; the other accounts for matches close to it,
    which leave when the pose moves while others enter. ``d = (J'J)⁻¹ J'r`` is the distance to the
    pose that fits the matches best, from which wrong candidates pulled the refinement.
    """
    basis = tangent_basis(pose.t)
    unknown = Covariance(np.full((5, 5), math.nan), basis, math.nan, math.inf, math.inf)
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
        return unknown
    variance = float(residual @ residual) / (freedom * eps**2)
    noise2 = max(variance, wide_variance(distances / eps, len(residual)))
    noise = eps * math.sqrt(noise2)
    inverse = _inverse(jacobian.T @ jacobian)
    if inverse is None:
        # Equal images, or exactly a rotation: every direction of translation fits, no other turn.
        turn = _inverse(jacobian[:, :3].T @ jacobian[:, :3])
        if turn is None or np.abs(jacobian[:, 3:]).max() > _STEP * np.abs(jacobian).max():
            return dataclasses.replace(unknown, noise=noise)
        sd = noise * _deviation(turn.diagonal())
        return dataclasses.replace(unknown, noise=noise, rotation_sd=sd)
    pull = inverse @ (jacobian.T @ residual)
    matrix = (noise**2 / kept_share(noise2)) * inverse + np.outer(pull, pull)
    return Covariance.of_pose(matrix, basis, noise)


def model_covariance(
    problem: GeometricProblem[Any],
    pair: PreparedPair,
    model: Any,
    edges: IndexArray,
    noise: float,
    shift: FloatArray | None = None,
) -> Covariance:
    """Covariance of a model that was refined on the matched candidates `edges` (M,).

    It is ``sigma² (J'J)⁻¹ + d d'`` as for a pose; sigma² is the variance of the residuals, or of
    the `noise` that was estimated from all candidates if that is larger. A standard deviation of
    the focal length changes the residuals by `shift`, and the model follows.
    """
    chart, parameters = problem.chart, problem.parameters
    if chart is None:
        raise TypeError(f"{problem.name} has no chart")

    def derivative(function: Callable[[Any], FloatArray]) -> FloatArray:
        columns = []
        for k in range(parameters):
            step = np.zeros(parameters)
            step[k] = _STEP
            ahead, behind = function(chart.move(model, step)), function(chart.move(model, -step))
            columns.append((ahead - behind).ravel() / (2.0 * _STEP))
        return np.stack(columns, axis=1)

    numbers = derivative(lambda moved: chart.numbers(pair, moved, model))
    open_ = math.inf if chart.limits else math.nan
    unknown = Covariance(
        np.full((len(numbers), len(numbers)), math.nan),
        rotation_sd=open_,
        translation_sd=open_,
        error_sd=math.inf,
    )
    residual = chart.residuals(pair, model, edges)
    jacobian = derivative(lambda moved: chart.residuals(pair, moved, edges))
    freedom = problem.dimensions * len(residual) - parameters
    if freedom <= 0 or not np.isfinite(jacobian).all():
        return unknown
    inverse = _inverse(jacobian.T @ jacobian)
    if inverse is None:
        return unknown
    pull = inverse @ (jacobian.T @ residual.ravel())
    variance = max(float(np.sum(residual**2)) / freedom, noise**2 if noise > 0.0 else 0.0)
    steps = variance * inverse + np.outer(pull, pull)
    if shift is not None:
        follows = inverse @ (jacobian.T @ shift.ravel())
        steps = steps + np.outer(follows, follows)
    errors = derivative(lambda moved: chart.error(pair, moved, model))
    matrix = numbers @ steps @ numbers.T
    variances = np.sum((errors @ steps) * errors, axis=1)
    of_turn, of_shift = chart.limits or (math.nan, math.nan)
    return Covariance(
        0.5 * (matrix + matrix.T),
        rotation_sd=of_turn * _deviation(variances[:3]),
        translation_sd=of_shift * _deviation(variances[3:]),
        error_sd=_deviation(variances),
    )


def _deviation(variances: FloatArray) -> float:
    """Root of the sum of variances, infinite if it is not finite."""
    total = float(np.sum(variances))
    return math.sqrt(max(total, 0.0)) if math.isfinite(total) else math.inf


def _inverse(normal: FloatArray) -> FloatArray | None:
    """Inverse of J'J, None if the matches leave a direction open."""
    values, vectors = np.linalg.eigh(normal)
    determined = values[0] > _UNDETERMINED * values[-1]
    return (vectors / values) @ vectors.T if determined else None


def leverage(jacobian: FloatArray) -> FloatArray:
    """Leverage (M,) of each row of the derivatives (M, 5): its weight in its own fitted value."""
    basis = np.linalg.svd(jacobian, full_matrices=False)[0]
    return np.asarray(np.sum(basis**2, axis=1), dtype=np.float64)


def wide_variance(distances: FloatArray, num_matches: int) -> float:
    """Variance of the noise, in thresholds², from the distances (E,) of all candidates."""
    near = distances[distances < _WINDOW]
    first, last = _BACKGROUND
    density = float(np.count_nonzero((distances >= first) & (distances < last))) / (last - first)
    count = max(len(near) - density * _WINDOW, 1.0)
    square = max(float(near @ near) - density * _WINDOW**3 / 3.0, 0.0)
    fitted = num_matches / max(num_matches - PARAMETERS, 1)
    return untruncated_variance(fitted * square / count, _WINDOW)


def untruncated_variance(variance: float, limit: float) -> float:
    """Variance of a normal variable whose part within ±limit has this one, within `_MOST_NOISE`."""
    if variance >= _MOST_NOISE**2 * kept_share(_MOST_NOISE**2, limit):
        return _MOST_NOISE**2
    low, high = variance, _MOST_NOISE**2
    for _ in range(50):
        middle = 0.5 * (low + high)
        if middle * kept_share(middle, limit) < variance:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def kept_share(variance: float, limit: float = 1.0) -> float:
    """Share of the variance of centred normal noise that is left when it is cut at ±limit."""
    if variance <= 0:
        return 1.0
    k = limit / math.sqrt(variance)
    density = math.exp(-0.5 * k * k) / math.sqrt(2.0 * math.pi)
    return 1.0 - 2.0 * k * density / math.erf(k / math.sqrt(2.0))


@dataclasses.dataclass(frozen=True)
class Planarity:
    """As in `Confidence`; `second` (R, t) is the second pose of the plane, refined, if any."""

    rotation: float = math.nan
    plane: float = math.nan
    twin: float = math.nan
    second: tuple[FloatArray, FloatArray] | None = None


def planarity(
    x0: FloatArray, x1: FloatArray, pose: RelativePose, eps: float, seed: int
) -> Planarity:
    """Test matches (M, 2) for planarity; all on the normalised planes, `eps` is the threshold."""
    if len(x0) < 3:
        return Planarity()
    rays = np.column_stack([x0, np.ones(len(x0))])
    turned = rays @ pose.R.T
    tolerance = _TOLERANCE * eps

    def share(plane: FloatArray) -> float:
        """Share of the matches that are seen where a plane puts them."""
        # A plane v . X = 1 gives the ray x the inverse depth v . x, in units of the baseline.
        moved = turned + (rays @ plane)[:, None] * pose.t
        depth = np.where(moved[:, 2] > 0, moved[:, 2], np.nan)
        gap = moved[:, :2] / depth[:, None] - x1
        return float(np.mean(np.sum(gap**2, axis=1) < tolerance**2))

    inverse_depth, speed = _inverse_depths(turned, x1, pose.t)
    plane = _best_plane(rays, inverse_depth, tolerance / np.maximum(speed, 1e-12), seed)
    rotation = share(np.zeros(3))
    flat = max(share(plane), rotation)
    return Planarity(rotation, flat, *_twin(x0, x1, pose, plane, eps))


def _inverse_depths(
    turned: FloatArray, x1: FloatArray, t: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Inverse depth (M,) of every match, and how far it moves the point in image 1 per unit."""
    along = x1 * t[2] - t[:2]
    off = x1 * turned[:, 2:] - turned[:, :2]
    speed2 = np.sum(along**2, axis=1)
    rho = -np.sum(along * off, axis=1) / np.maximum(speed2, 1e-12)
    depth = np.abs(turned[:, 2] + rho * t[2])
    return rho, np.sqrt(speed2) / np.maximum(depth, 1e-6)


def _best_plane(
    rays: FloatArray, inverse_depth: FloatArray, tolerance: FloatArray, seed: int
) -> FloatArray:
    """Plane (3,) that most matches lie on, each within its own tolerance, fitted to them."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, _PLANE_STREAM]))
    # Coincident picks give a singular system and drop out.
    three = rng.integers(0, len(rays), (_PLANES, 3))
    systems, depths = rays[three], inverse_depth[three]
    regular = np.abs(np.linalg.det(systems)) > 1e-9
    planes = np.zeros((1, 3))
    if regular.any():
        solved = np.linalg.solve(systems[regular], depths[regular][:, :, None])
        planes = np.concatenate([planes, solved[:, :, 0]])
    inside = np.abs(planes @ rays.T - inverse_depth) < tolerance
    best = int(np.argmax(inside.sum(axis=1)))
    plane, mask = planes[best], inside[best]
    for _ in range(_REFITS):
        weight = 1.0 / tolerance[mask]
        refit = np.linalg.lstsq(
            rays[mask] * weight[:, None], inverse_depth[mask] * weight, rcond=None
        )[0]
        again = np.abs(rays @ refit - inverse_depth) < tolerance
        if again.sum() < mask.sum():
            break
        plane, mask = refit, again
    return np.asarray(plane, dtype=np.float64)


def _twin(
    x0: FloatArray, x1: FloatArray, pose: RelativePose, plane: FloatArray, eps: float
) -> tuple[float, tuple[FloatArray, FloatArray] | None]:
    """Share of the matches that the other pose with the same homography explains, and that pose."""
    twin = planar_twin(pose.R, pose.t, plane, x0)
    if twin is None:
        return 0.0, None
    candidates = [twin]
    R, t = _core.refine(x0, x1, np.ones(len(x0)), *twin, eps, "truncated", 25)[:2]
    # Matches off the plane can pull the twin back to the found pose, which then explains itself.
    if np.linalg.norm(R - twin[0]) < np.linalg.norm(R - pose.R):
        candidates.append((R, t))
    shares = []
    for R, t in candidates:
        r2, in_front = _core.sampson(x0, x1, R, t)
        shares.append(float(np.mean((r2 < eps**2) & in_front)))
    best = int(np.argmax(shares))
    return shares[best], candidates[best]


def planar_twin(
    R: FloatArray, t: FloatArray, plane: FloatArray, x0: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Find the second pose (R, t) under which a plane looks the same in both images.

    Two poses and planes have the homography ``R + t plane'``. The vectors whose length it keeps
    form two planes, and each solution maps one of them rigidly. ``plane . X = 1`` for points X of
    the plane in camera 0, in units of the baseline; the points x0 (M, 2) that see it choose the
    side. None if the camera moved along the plane's normal or not at all.
    """
    homography = R + np.outer(t, plane)
    _, values, vt = np.linalg.svd(homography)
    if not values[1] > 1e-9:
        return None
    homography, values = homography / values[1], values / values[1]
    gain, loss = values[0] ** 2 - 1.0, 1.0 - values[2] ** 2
    if gain + loss < 1e-9:
        return None
    first, second, third = vt
    rays = np.column_stack([x0, np.ones(len(x0))])
    found = []
    for sign in (1.0, -1.0):
        kept = math.sqrt(max(loss, 0)) * first + sign * math.sqrt(max(gain, 0)) * third
        kept = kept / math.sqrt(gain + loss)
        normal = _cross(second, kept)
        before = np.stack([second, kept, normal], axis=1)
        moved = homography @ before[:, :2]
        after = np.column_stack([moved, _cross(moved[:, 0], moved[:, 1])])
        rotation = after @ before.T
        step = (homography - rotation) @ normal
        # The plane is in front of camera 0 where its points are.
        if np.median(rays @ normal) < 0:
            step = -step
        found.append((rotation, step))
    rotation, step = max(found, key=lambda solution: float(np.linalg.norm(solution[0] - R)))
    length = float(np.linalg.norm(step))
    if length < 1e-9 or np.linalg.norm(found[0][0] - found[1][0]) < 1e-6:
        return None
    u, _, wt = np.linalg.svd(rotation)
    return np.ascontiguousarray(u @ wt), np.ascontiguousarray(step / length)
