"""Lens distortions of COLMAP's camera models, and their inverses."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike

from manymatch._validate import BoolArray, FloatArray

_EPS = float(np.finfo(np.float64).eps)
# Iterations of the solvers: along a radius, in the plane, and steps from the centre outwards.
_RADIUS_ITERATIONS, _PLANE_ITERATIONS, _CONTINUATION_STEPS = 100, 60, 32
# Largest radius with a finite square; beyond it the result is NaN.
_LARGEST_RADIUS = 1e150


@dataclasses.dataclass(frozen=True)
class _Lens:
    """A lens without distortion, the base of the others.

    `distort` maps points (N, 2) of the normalised plane with the coefficients k, `undistort` maps
    them back, to NaN where there is no inverse. `fields` names the parameters in COLMAP's order: f
    or fx and fy, then cx and cy, then k.
    """

    fields: tuple[str, ...]

    @property
    def num_focal(self) -> int:
        return 1 if self.fields[0] == "f" else 2

    def distort(self, xn: FloatArray, k: Sequence[float]) -> FloatArray:  # noqa: ARG002
        return xn.copy()

    def undistort(self, xd: FloatArray, k: Sequence[float]) -> FloatArray:  # noqa: ARG002
        return xd.copy()


class _RadialLens(_Lens):
    """Polynomial radial distortion, ``xd = x (1 + k1 r^2 + k2 r^4)`` with ``r = |x|``."""

    def distort(self, xn: FloatArray, k: Sequence[float]) -> FloatArray:
        s = np.sum(xn * xn, axis=1, keepdims=True)
        return xn * _even(s, k)

    def undistort(self, xd: FloatArray, k: Sequence[float]) -> FloatArray:
        rd = _norm(xd)
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


class _OpenCvLens(_Lens):
    """Radial and tangential distortion of OpenCV, k1, k2, p1, p2 and perhaps k3, k4, k5, k6.

    The radial factor is ``N / D = (1 + k1 s + k2 s^2 + k3 s^3) / (1 + k4 s + k5 s^2 + k6 s^3)``
    with ``s = |x|^2``. From the first zero of D on there is no inverse.
    """

    def distort(self, xn: FloatArray, k: Sequence[float]) -> FloatArray:
        (p1, p2), (x, y) = k[2:4], xn.T
        s = x * x + y * y
        radial, _ = self._radial(s, k)
        xd = x * radial + 2.0 * p1 * x * y + p2 * (s + 2.0 * x * x)
        return np.stack([xd, y * radial + 2.0 * p2 * x * y + p1 * (s + 2.0 * y * y)], axis=1)

    def jacobian(self, xn: FloatArray, k: Sequence[float]) -> FloatArray:
        """Return the derivative (N, 2, 2) of `distort` at xn (N, 2)."""
        (p1, p2), (x, y) = k[2:4], xn.T
        radial, slope = self._radial(x * x + y * y, k)
        mixed = slope * x * y + 2.0 * p1 * x + 2.0 * p2 * y
        first = radial + slope * x * x + 2.0 * p1 * y + 6.0 * p2 * x
        last = radial + slope * y * y + 2.0 * p2 * x + 6.0 * p1 * y
        return np.stack([first, mixed, mixed, last], axis=1).reshape(-1, 2, 2)

    def undistort(self, xd: FloatArray, k: Sequence[float]) -> FloatArray:
        result, good = self._solve(xd, xd, k)
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

    def _radial(self, s: FloatArray, k: Sequence[float]) -> tuple[FloatArray, FloatArray]:
        """Return the radial factor at squared radii s and twice its derivative by s."""
        N, D = _fraction(k)
        bottom = _even(s, D[1:])
        factor = _even(s, N[1:]) / bottom
        return factor, 2.0 * (_slope(s, N) - factor * _slope(s, D)) / bottom

    def _pole(self, k: Sequence[float]) -> float:
        """Return the first radius at which the distortion is infinite."""
        return math.sqrt(min(_positive_roots(_fraction(k)[1]), default=math.inf))

    def _falling(self, k: Sequence[float]) -> FloatArray:
        """Return a radius of every range in which a larger radius has a smaller distorted one."""
        N, D = (Polynomial(c) for c in _fraction(k))
        slope = N * D + Polynomial([0.0, 2.0]) * (N.deriv() * D - N * D.deriv())
        s = np.sort(_positive_roots(slope.coef))
        first, last = s[::2], np.append(s[1::2], 3.0 * s[-1:] if len(s) % 2 else [])
        return np.sqrt(0.5 * (first + last)[last > (1.0 + 1e-3) * first])

    def _solve(
        self, xd: FloatArray, start: FloatArray, k: Sequence[float]
    ) -> tuple[FloatArray, BoolArray]:
        """Solve ``distort(x) = xd`` and return which solutions are exact and before the fold."""
        x, step = self._newton(xd, start, k, iterations=_PLANE_ITERATIONS)
        residual = _norm(self.distort(x, k) - xd)
        good = (_norm(step) <= 1e-13 * _norm(x)) | (residual <= 4.0 * _EPS * _norm(xd))
        return x, good & np.isfinite(_norm(xd)) & self._before_fold(x, k)

    def _before_fold(self, x: FloatArray, k: Sequence[float]) -> BoolArray:
        """Return which points (N, 2) can be reached from the centre without crossing the fold.

        The derivative is symmetric, and positive definite up to the fold.
        """
        length = _norm(x)
        before = length < self._pole(k)
        fractions = list(np.linspace(0.0, 1.0, _CONTINUATION_STEPS + 1)[1:, None, None])
        # At these radii the radial part falls; they may lie between the steps.
        fractions += [np.minimum(1.0, _ratio(length * 0.0 + r, length)) for r in self._falling(k)]
        for fraction in fractions:
            J = self.jacobian(fraction * x, k)
            before &= J[:, 0, 0] * J[:, 1, 1] > J[:, 0, 1] * J[:, 1, 0]
            before &= J[:, 0, 0] + J[:, 1, 1] > 0.0
        return before

    def _newton(
        self, xd: FloatArray, start: FloatArray, k: Sequence[float], *, iterations: int
    ) -> tuple[FloatArray, FloatArray]:
        """Run Newton's method with step control, return the points and their last full steps."""
        x, pole = start, self._pole(k)
        error = self.distort(x, k) - xd
        damping, step = np.ones(len(x)), np.zeros_like(x)
        for _ in range(iterations):
            (a, b, c, d), (e, f) = self.jacobian(x, k).reshape(-1, 4).T, error.T
            det = a * d - b * c
            step = np.stack([(d * e - b * f) / det, (a * f - c * e) / det], axis=1)
            candidate = x - damping[:, None] * step
            candidate_error = self.distort(candidate, k) - xd
            better = (_norm(candidate_error) < _norm(error)) & (_norm(candidate) < pole)
            x = np.where(better[:, None], candidate, x)
            error = np.where(better[:, None], candidate_error, error)
            damping = np.where(better, np.minimum(1.0, 2.0 * damping), 0.25 * damping)
            exact = _norm(error) <= 2.0 * _EPS * _norm(xd)
            # Either the residual is round-off, or no step in this direction can improve it.
            if np.all(exact | (_norm(step) <= _EPS * _norm(x)) | ~(damping >= 1e-6)):
                break
        return x, step


class _FisheyeLens(_Lens):
    """Equidistant fisheye of OpenCV, ``|xd| = a (1 + k1 a^2 + ... + k4 a^8)``, a = atan|x|."""

    def distort(self, xn: FloatArray, k: Sequence[float]) -> FloatArray:
        r = _norm(xn)
        angle = np.arctan(r)
        return xn * _ratio(angle * _even(angle * angle, k), r)

    def undistort(self, xd: FloatArray, k: Sequence[float]) -> FloatArray:
        rd = _norm(xd)
        limit = min(_first_critical_radius(k), 0.5 * math.pi)
        angle = _invert_odd(rd, k, limit, np.full_like(rd, limit))
        return xd * _ratio(np.tan(angle), rd)


def _norm(x: FloatArray) -> FloatArray:
    """Return the lengths (N,) of the rows of x (N, 2)."""
    return np.hypot(x[:, 0], x[:, 1])


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide two radii that go to zero together, as a column (N, 1) that is 1 at zero."""
    ratio = np.ones_like(numerator)
    np.divide(numerator, denominator, out=ratio, where=denominator != 0.0)
    return ratio[:, None]


def _fraction(k: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Coefficients (4,) of numerator and denominator by powers of s, of k1, k2, p1, p2, k3, ..."""
    k3, k4, k5, k6 = k[4:] or (0.0,) * 4
    return (1.0, k[0], k[1], k3), (1.0, k4, k5, k6)


def _slope(s: FloatArray, c: Sequence[float]) -> FloatArray:
    """Evaluate the derivative ``c1 + 2 c2 s + 3 c3 s^2`` of a cubic polynomial."""
    return c[1] + s * (2.0 * c[2] + s * (3.0 * c[3]))


def _even(s: FloatArray, k: Sequence[float]) -> FloatArray:
    """Evaluate ``1 + k1 s + k2 s^2 + ...``."""
    value = np.zeros_like(s)
    for coefficient in reversed(k):
        value = (value + coefficient) * s
    return 1.0 + value


def _slope_coefficients(k: Sequence[float]) -> tuple[float, ...]:
    """Coefficients of the derivative ``1 + 3 k1 s + 5 k2 s^2 + ...`` of the odd polynomial."""
    return tuple((2 * power + 1) * c for power, c in enumerate(k, start=1))


def _first_critical_radius(k: Sequence[float]) -> float:
    """Return the smallest r > 0 at which ``r (1 + k1 r^2 + ...)`` stops growing, or infinity."""
    return math.sqrt(min(_positive_roots([1.0, *_slope_coefficients(k)]), default=math.inf))


def _positive_roots(c: ArrayLike) -> FloatArray:
    """Return the s > 0 at which ``c0 + c1 s + c2 s^2 + ...`` is zero."""
    c = np.array(c, dtype=np.float64)
    # Quotients of the remaining coefficients stay finite.
    c[np.abs(c) < 1e-200 * np.max(np.abs(c))] = 0.0
    w = np.roots(c)  # of w = 1 / s: the leading coefficient of a distortion is then 1 for any k
    # A double root, where the slope only touches zero, splits into a pair by round-off.
    real = w.real[(np.abs(w.imag) <= 1e-7 * np.abs(w)) & (w.real > _LARGEST_RADIUS**-2)]
    return np.asarray(1.0 / real, dtype=np.float64)


def _invert_odd(y: FloatArray, k: Sequence[float], limit: float, upper: FloatArray) -> FloatArray:
    """Solve ``r (1 + k1 r^2 + k2 r^4 + ...) = y`` for r in [0, limit), NaN where there is none.

    Newton's method in a shrinking bracket; bisection where it leaves that or is slow.
    """
    slope = _slope_coefficients(k)
    reach = _LARGEST_RADIUS
    if limit < math.inf:
        reach = limit * float(_even(np.array(limit * limit), k))
    inside = y < reach
    target, low, high = np.where(inside, y, 0.0), np.zeros_like(y), np.where(inside, upper, 0.0)
    r, previous, done = np.minimum(target, high), high, high == 0.0
    for _ in range(_RADIUS_ITERATIONS):
        value = r * _even(r * r, k) - target
        low, high = np.where(value <= 0.0, r, low), np.where(value >= 0.0, r, high)
        step = value / _even(r * r, slope)
        newton = r - step
        use = (newton >= low) & (newton <= high) & (np.abs(step) <= 0.5 * previous)
        following = np.where(use, newton, 0.5 * (low + high))
        previous = np.abs(following - r)
        r = np.where(done, r, following)
        done |= previous <= 2.0 * _EPS * r
        if done.all():
            break
    return np.where(inside & np.isfinite(y), r, np.nan)


MODELS: dict[str, _Lens] = {
    "SIMPLE_PINHOLE": _Lens(("f", "cx", "cy")),
    "PINHOLE": _Lens(("fx", "fy", "cx", "cy")),
    "SIMPLE_RADIAL": _RadialLens(("f", "cx", "cy", "k")),
    "RADIAL": _RadialLens(("f", "cx", "cy", "k1", "k2")),
    "OPENCV": _OpenCvLens(("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2")),
    "OPENCV_FISHEYE": _FisheyeLens(("fx", "fy", "cx", "cy", "k1", "k2", "k3", "k4")),
    "FULL_OPENCV": _OpenCvLens(
        ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")
    ),
}
