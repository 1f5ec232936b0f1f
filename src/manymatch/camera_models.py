"""Lens distortion of the common COLMAP camera models, both ways.

A model maps undistorted points of the normalised plane z = 1 to distorted ones and back. Both ways
take and return (N, 2) float64 arrays. `undistort` returns NaN where there is no inverse: beyond
the radius at which the image folds over, and at 90 degrees from the optical axis.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from manymatch._validate import BoolArray, FloatArray

_EPS = float(np.finfo(np.float64).eps)
_SCALAR_ITERATIONS = 100
_PLANE_ITERATIONS = 60
_CONTINUATION_STEPS = 32
# Radii up to here have finite squares; nothing beyond is looked at.
_LARGEST_RADIUS = 1e150


@dataclasses.dataclass(frozen=True)
class CameraModel:
    """Pinhole model without distortion, and the base of the others.

    Attributes
    ----------
    name : str
        COLMAP's name of the model.
    fields : tuple of str
        Names of the parameters in COLMAP's order: f or fx and fy, then cx and cy, then the
        coefficients of the distortion.
    """

    name: str
    fields: tuple[str, ...]

    @property
    def num_focal(self) -> int:
        """Number of focal lengths, 1 or 2."""
        return 1 if self.fields[0] == "f" else 2

    def distort(self, xn: FloatArray, k: Sequence[float]) -> FloatArray:
        """Map undistorted (N, 2) to distorted (N, 2) points with the coefficients k."""
        del k
        return xn.copy()

    def undistort(self, xd: FloatArray, k: Sequence[float]) -> FloatArray:
        """Map distorted (N, 2) to undistorted (N, 2) points, NaN where that is impossible."""
        del k
        return xd.copy()


class RadialModel(CameraModel):
    """Polynomial radial distortion, ``xd = x (1 + k1 r^2 + k2 r^4)`` with ``r = |x|``."""

    def distort(self, xn: FloatArray, k: Sequence[float]) -> FloatArray:
        """Map undistorted (N, 2) to distorted (N, 2) points with the coefficients k."""
        s = np.sum(xn * xn, axis=1, keepdims=True)
        return xn * _even(s, k)

    def undistort(self, xd: FloatArray, k: Sequence[float]) -> FloatArray:
        """Map distorted (N, 2) to undistorted (N, 2) points, NaN beyond the fold."""
        rd = np.hypot(xd[:, 0], xd[:, 1])
        limit = _first_critical_radius(k)
        # Without a fold the factor 1 + k1 s + k2 s^2 is at least 4/9, and at least 4/9 of every
        # term of it that is positive; each gives an upper bound on the radius.
        upper = 2.25 * rd
        for power, coefficient in enumerate(k, start=1):
            if coefficient > 0.0 and math.isinf(limit):
                bound = (2.25 * rd / coefficient) ** (1.0 / (2 * power + 1))
                upper = np.minimum(upper, 1.001 * bound)
        r = _invert_odd(rd, k, limit, np.minimum(upper, limit))
        return xd * _ratio(r, rd)


class BrownModel(CameraModel):
    """Radial and tangential distortion of OpenCV, coefficients k1, k2, p1, p2."""

    def distort(self, xn: FloatArray, k: Sequence[float]) -> FloatArray:
        """Map undistorted (N, 2) to distorted (N, 2) points with the coefficients k."""
        p1, p2 = k[2], k[3]
        x, y = xn[:, 0], xn[:, 1]
        s = x * x + y * y
        radial = _even(s, k[:2])
        return np.stack(
            [
                x * radial + 2.0 * p1 * x * y + p2 * (s + 2.0 * x * x),
                y * radial + 2.0 * p2 * x * y + p1 * (s + 2.0 * y * y),
            ],
            axis=1,
        )

    def jacobian(self, xn: FloatArray, k: Sequence[float]) -> FloatArray:
        """Return the derivative (N, 2, 2) of `distort` at xn (N, 2)."""
        k1, k2, p1, p2 = k
        x, y = xn[:, 0], xn[:, 1]
        s = x * x + y * y
        radial = _even(s, (k1, k2))
        slope = 2.0 * (k1 + 2.0 * k2 * s)
        mixed = slope * x * y + 2.0 * p1 * x + 2.0 * p2 * y
        return np.stack(
            [
                np.stack([radial + slope * x * x + 2.0 * p1 * y + 6.0 * p2 * x, mixed], axis=1),
                np.stack([mixed, radial + slope * y * y + 2.0 * p2 * x + 6.0 * p1 * y], axis=1),
            ],
            axis=1,
        )

    def undistort(self, xd: FloatArray, k: Sequence[float]) -> FloatArray:
        """Map distorted (N, 2) to undistorted (N, 2) points, NaN beyond the fold."""
        radial_only = RadialModel("", ())
        start = radial_only.undistort(xd, k[:2])
        if k[2] == 0.0 and k[3] == 0.0:
            return start
        start = np.where(np.isfinite(start), start, xd)
        result, good = self._solve(xd, start, k)
        if not good.all():
            # From far away Newton's method may land beyond the fold or nowhere. Following the
            # solution outwards from the centre stays on the near side, at more cost.
            rest = ~good & np.isfinite(xd).all(axis=1)
            x = np.zeros_like(xd[rest])
            for step in range(1, _CONTINUATION_STEPS):
                x, _ = self._newton(xd[rest] * (step / _CONTINUATION_STEPS), x, k, iterations=6)
            result[rest], good[rest] = self._solve(xd[rest], x, k)
        result[~good] = np.nan
        return result

    def _solve(
        self, xd: FloatArray, start: FloatArray, k: Sequence[float]
    ) -> tuple[FloatArray, BoolArray]:
        """Solve ``distort(x) = xd`` and tell which solutions are exact and before the fold."""
        x, step = self._newton(xd, start, k, iterations=_PLANE_ITERATIONS)
        residual = _norm(self.distort(x, k) - xd)
        good = (_norm(step) <= 1e-13 * _norm(x)) | (residual <= 4.0 * _EPS * _norm(xd))
        return x, good & self._before_fold(x, k)

    def _before_fold(self, x: FloatArray, k: Sequence[float]) -> BoolArray:
        """Tell which points (N, 2) can be reached from the centre without crossing the fold.

        The derivative is symmetric, so the map is one-to-one on every convex set on which the
        derivative is positive definite. Its eigenvalues are those of the radial part, plus at
        least ``-6 |p| r`` from the tangential part.
        """
        radius = float(np.fmax.reduce(_norm(x), initial=0.0))
        tangential = 6.0 * math.hypot(k[2], k[3]) * radius
        radial = min(
            _least_quadratic(k[0], k[1], radius * radius),
            _least_quadratic(3.0 * k[0], 5.0 * k[1], radius * radius),
        )
        before = np.ones(len(x), dtype=np.bool_)
        if radial > tangential:
            return before
        for fraction in np.linspace(0.0, 1.0, 33)[1:]:
            J = self.jacobian(fraction * x, k)
            before &= J[:, 0, 0] * J[:, 1, 1] > J[:, 0, 1] * J[:, 1, 0]
            before &= J[:, 0, 0] + J[:, 1, 1] > 0.0
        return before

    def _newton(
        self, xd: FloatArray, start: FloatArray, k: Sequence[float], *, iterations: int
    ) -> tuple[FloatArray, FloatArray]:
        """Run Newton's method with step control, return the points and their last full steps."""
        x = start
        error = self.distort(x, k) - xd
        damping = np.ones(len(x))
        step = np.zeros_like(x)
        for _ in range(iterations):
            J = self.jacobian(x, k)
            a, b, c, d = J[:, 0, 0], J[:, 0, 1], J[:, 1, 0], J[:, 1, 1]
            det = a * d - b * c
            step = np.stack(
                [
                    (d * error[:, 0] - b * error[:, 1]) / det,
                    (a * error[:, 1] - c * error[:, 0]) / det,
                ],
                axis=1,
            )
            candidate = x - damping[:, None] * step
            candidate_error = self.distort(candidate, k) - xd
            better = _norm(candidate_error) < _norm(error)
            x = np.where(better[:, None], candidate, x)
            error = np.where(better[:, None], candidate_error, error)
            damping = np.where(better, np.minimum(1.0, 2.0 * damping), 0.25 * damping)
            exact = _norm(error) <= 2.0 * _EPS * _norm(xd)
            # Either the residual is round-off, or no step in this direction can improve it.
            if np.all(exact | (_norm(step) <= _EPS * _norm(x)) | ~(damping >= 1e-6)):
                break
        return x, step


class FisheyeModel(CameraModel):
    """Equidistant fisheye of OpenCV, ``|xd| = a (1 + k1 a^2 + ... + k4 a^8)``, a = atan|x|."""

    def distort(self, xn: FloatArray, k: Sequence[float]) -> FloatArray:
        """Map undistorted (N, 2) to distorted (N, 2) points with the coefficients k."""
        r = np.hypot(xn[:, 0], xn[:, 1])
        angle = np.arctan(r)
        return xn * _ratio(angle * _even(angle * angle, k), r)

    def undistort(self, xd: FloatArray, k: Sequence[float]) -> FloatArray:
        """Map distorted (N, 2) to undistorted (N, 2) points, NaN from 90 degrees or the fold on."""
        rd = np.hypot(xd[:, 0], xd[:, 1])
        limit = min(_first_critical_radius(k), 0.5 * math.pi)
        angle = _invert_odd(rd, k, limit, np.full_like(rd, limit))
        return xd * _ratio(np.tan(angle), rd)


def _even(s: FloatArray, k: Sequence[float]) -> FloatArray:
    """Evaluate ``1 + k1 s + k2 s^2 + ...``."""
    value = np.zeros_like(s)
    for coefficient in reversed(k):
        value = (value + coefficient) * s
    return 1.0 + value


def _least_quadratic(a: float, b: float, end: float) -> float:
    """Return the least value of ``1 + a s + b s^2`` for s in [0, end]."""
    least = min(1.0, 1.0 + end * (a + end * b))
    if b > 0.0 and 0.0 < -0.5 * a / b < end:
        least = min(least, 1.0 - 0.25 * a * a / b)
    return least


def _norm(x: FloatArray) -> FloatArray:
    """Return the lengths (N,) of the rows of x (N, 2)."""
    return np.hypot(x[:, 0], x[:, 1])


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide two radii that go to zero together, as a column (N, 1) that is 1 at zero."""
    ratio = np.ones_like(numerator)
    np.divide(numerator, denominator, out=ratio, where=denominator != 0.0)
    return ratio[:, None]


def _slope_coefficients(k: Sequence[float]) -> tuple[float, ...]:
    """Coefficients of the derivative ``1 + 3 k1 s + 5 k2 s^2 + ...`` of the odd polynomial."""
    return tuple((2 * power + 1) * c for power, c in enumerate(k, start=1))


def _first_critical_radius(k: Sequence[float]) -> float:
    """Return the smallest r > 0 at which ``r (1 + k1 r^2 + ...)`` stops growing, or infinity.

    The roots are sought in ``w = 1 / r^2``, for which the polynomial has leading coefficient 1
    whatever the k are, zero included.
    """
    w = np.roots([1.0, *_slope_coefficients(k)])
    # A double root, where the slope only touches zero, splits into a pair by round-off.
    real = w.real[(np.abs(w.imag) <= 1e-7 * np.abs(w)) & (w.real > _LARGEST_RADIUS**-2)]
    return 1.0 / math.sqrt(float(real.max())) if real.size else math.inf


def _invert_odd(y: FloatArray, k: Sequence[float], limit: float, upper: FloatArray) -> FloatArray:
    """Solve ``r (1 + k1 r^2 + k2 r^4 + ...) = y`` for r in [0, limit), NaN where there is none.

    Newton's method inside a shrinking bracket [0, upper], with bisection where Newton leaves it
    or is slow.
    """
    slope = _slope_coefficients(k)
    reach = _LARGEST_RADIUS
    if limit < math.inf:
        reach = limit * float(_even(np.array(limit * limit), k))
    inside = y < reach
    target = np.where(inside, y, 0.0)
    low, high = np.zeros_like(y), np.where(inside, upper, 0.0)
    r = np.minimum(target, high)
    previous = high - low
    done = target == 0.0
    for _ in range(_SCALAR_ITERATIONS):
        s = r * r
        excess = r * _even(s, k) - target
        low = np.where(excess <= 0.0, r, low)
        high = np.where(excess >= 0.0, r, high)
        step = excess / _even(s, slope)
        newton = r - step
        use = (newton >= low) & (newton <= high) & (np.abs(step) <= 0.5 * previous)
        following = np.where(use, newton, 0.5 * (low + high))
        previous = np.abs(following - r)
        r = np.where(done, r, following)
        done |= previous <= 2.0 * _EPS * r
        if done.all():
            break
    return np.where(inside & np.isfinite(y), r, np.nan)


_MODELS = (
    CameraModel("SIMPLE_PINHOLE", ("f", "cx", "cy")),
    CameraModel("PINHOLE", ("fx", "fy", "cx", "cy")),
    RadialModel("SIMPLE_RADIAL", ("f", "cx", "cy", "k")),
    RadialModel("RADIAL", ("f", "cx", "cy", "k1", "k2")),
    BrownModel("OPENCV", ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2")),
    FisheyeModel("OPENCV_FISHEYE", ("fx", "fy", "cx", "cy", "k1", "k2", "k3", "k4")),
)

MODELS: dict[str, CameraModel] = {model.name: model for model in _MODELS}
