"""Lens distortion of the common COLMAP camera models, both ways.

A model maps undistorted points of the normalised plane z = 1 to distorted ones and back. Both ways
take and return (N, 2) float64 arrays. `undistort` returns NaN where there is no inverse: beyond
the radius at which the image folds over, at a pole of the distortion, and at 90 degrees from the
optical axis.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from manymatch.geometry._distortion import (
    EPS,
    bracket,
    even,
    first_critical_radius,
    invert_odd,
    least_quadratic,
    positive_roots,
    solve_growing,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from manymatch._validate import BoolArray, FloatArray

_PLANE_ITERATIONS = 60
_CONTINUATION_STEPS = 32
# Largest error of an answer relative to the distorted radius; close to a pole no digits are left.
_RADIAL_TOLERANCE = 1e-11


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
        return xn * even(s, k)

    def undistort(self, xd: FloatArray, k: Sequence[float]) -> FloatArray:
        """Map distorted (N, 2) to undistorted (N, 2) points, NaN beyond the fold."""
        rd = np.hypot(xd[:, 0], xd[:, 1])
        limit = first_critical_radius(k)
        # Without a fold the factor 1 + k1 s + k2 s^2 is at least 4/9, and at least 4/9 of every
        # term of it that is positive; each gives an upper bound on the radius.
        upper = 2.25 * rd
        for power, coefficient in enumerate(k, start=1):
            if coefficient > 0.0 and math.isinf(limit):
                bound = (2.25 * rd / coefficient) ** (1.0 / (2 * power + 1))
                upper = np.minimum(upper, 1.001 * bound)
        r = invert_odd(rd, k, limit, np.minimum(upper, limit))
        return xd * _ratio(r, rd)


class BrownModel(CameraModel):
    """Radial and tangential distortion of OpenCV, coefficients k1, k2, p1, p2."""

    def distort(self, xn: FloatArray, k: Sequence[float]) -> FloatArray:
        """Map undistorted (N, 2) to distorted (N, 2) points with the coefficients k."""
        p1, p2 = k[2], k[3]
        x, y = xn[:, 0], xn[:, 1]
        s = x * x + y * y
        radial, _ = self._radial(s, k)
        return np.stack(
            [
                x * radial + 2.0 * p1 * x * y + p2 * (s + 2.0 * x * x),
                y * radial + 2.0 * p2 * x * y + p1 * (s + 2.0 * y * y),
            ],
            axis=1,
        )

    def jacobian(self, xn: FloatArray, k: Sequence[float]) -> FloatArray:
        """Return the derivative (N, 2, 2) of `distort` at xn (N, 2)."""
        p1, p2 = k[2], k[3]
        x, y = xn[:, 0], xn[:, 1]
        s = x * x + y * y
        radial, slope = self._radial(s, k)
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
        start = self._undistort_radial(xd, k)
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

    def _radial(self, s: FloatArray, k: Sequence[float]) -> tuple[FloatArray, FloatArray]:
        """Return the radial factor at squared radii s and twice its derivative by s."""
        return even(s, k[:2]), 2.0 * (k[0] + 2.0 * k[1] * s)

    def _undistort_radial(self, xd: FloatArray, k: Sequence[float]) -> FloatArray:
        """Invert the radial part alone, NaN where that is impossible."""
        return RadialModel("", ()).undistort(xd, k[:2])

    def _least_radial(self, radius: float, k: Sequence[float]) -> float:
        """Return the least eigenvalue of the radial part's derivative up to a radius."""
        s = radius * radius
        both = ((k[0], k[1]), (3.0 * k[0], 5.0 * k[1]))
        return min(least_quadratic(a, b, s) for a, b in both)

    def _pole(self, k: Sequence[float]) -> float:
        """Return the first radius at which the distortion is infinite."""
        del k
        return math.inf

    def _steep_radii(self, k: Sequence[float]) -> Sequence[float]:
        """Return the radii at which a fold may be too narrow for evenly spaced samples."""
        del k
        return ()

    def _solve(
        self, xd: FloatArray, start: FloatArray, k: Sequence[float]
    ) -> tuple[FloatArray, BoolArray]:
        """Solve ``distort(x) = xd`` and tell which solutions are exact and before the fold."""
        x, step = self._newton(xd, start, k, iterations=_PLANE_ITERATIONS)
        residual = _norm(self.distort(x, k) - xd)
        good = (_norm(step) <= 1e-13 * _norm(x)) | (residual <= 4.0 * EPS * _norm(xd))
        return x, good & self._before_fold(x, k)

    def _before_fold(self, x: FloatArray, k: Sequence[float]) -> BoolArray:
        """Tell which points (N, 2) can be reached from the centre without crossing the fold.

        The derivative is symmetric, so the map is one-to-one on every convex set on which the
        derivative is positive definite. Its eigenvalues are those of the radial part, plus at
        least ``-6 |p| r`` from the tangential part.
        """
        radius = float(np.fmax.reduce(_norm(x), initial=0.0))
        tangential = 6.0 * math.hypot(k[2], k[3]) * radius
        before = _norm(x) < self._pole(k)
        if self._least_radial(radius, k) > tangential:
            return before
        samples = [fraction * x for fraction in np.linspace(0.0, 1.0, 33)[1:]]
        samples += [x * np.fmin(1.0, r / _norm(x))[:, None] for r in self._steep_radii(k)]
        for sample in samples:
            J = self.jacobian(sample, k)
            before &= J[:, 0, 0] * J[:, 1, 1] > J[:, 0, 1] * J[:, 1, 0]
            before &= J[:, 0, 0] + J[:, 1, 1] > 0.0
        return before

    def _newton(
        self, xd: FloatArray, start: FloatArray, k: Sequence[float], *, iterations: int
    ) -> tuple[FloatArray, FloatArray]:
        """Run Newton's method with step control, return the points and their last full steps."""
        x = start
        pole = self._pole(k)
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
            better = (_norm(candidate_error) < _norm(error)) & (_norm(candidate) < pole)
            x = np.where(better[:, None], candidate, x)
            error = np.where(better[:, None], candidate_error, error)
            damping = np.where(better, np.minimum(1.0, 2.0 * damping), 0.25 * damping)
            exact = _norm(error) <= 2.0 * EPS * _norm(xd)
            # Either the residual is round-off, or no step in this direction can improve it.
            if np.all(exact | (_norm(step) <= EPS * _norm(x)) | ~(damping >= 1e-6)):
                break
        return x, step


class RationalModel(BrownModel):
    """Rational radial and tangential distortion of OpenCV, k1, k2, p1, p2, k3, k4, k5, k6.

    The radial factor is ``N / D = (1 + k1 s + k2 s^2 + k3 s^3) / (1 + k4 s + k5 s^2 + k6 s^3)``
    with ``s = |x|^2``. From the first zero of D on there is no inverse.
    """

    def _radial(self, s: FloatArray, k: Sequence[float]) -> tuple[FloatArray, FloatArray]:
        """Return the radial factor at squared radii s and twice its derivative by s."""
        N, D = _fraction(k)
        bottom = even(s, D[1:])
        factor = even(s, N[1:]) / bottom
        return factor, 2.0 * (_slope(s, N) - factor * _slope(s, D)) / bottom

    def _undistort_radial(self, xd: FloatArray, k: Sequence[float]) -> FloatArray:
        """Invert the radial part alone, NaN from the fold or the pole on."""
        N, D = _fraction(k)
        length = _norm(xd)
        y = np.where(np.isfinite(length), length, 0.0)
        fold = positive_roots(_growth(N, D))
        limit = min([self._pole(k), *np.sqrt(fold)])

        def excess(r: FloatArray) -> tuple[FloatArray, FloatArray]:
            # D times (distorted radius - y): of the same sign before the pole, finite at it.
            s = r * r
            top, bottom = even(s, N[1:]), even(s, D[1:])
            slope = top + 2.0 * s * _slope(s, N) - 2.0 * y * r * _slope(s, D)
            return r * top - y * bottom, slope

        low, high = bracket(excess, y, limit)
        found = np.isfinite(length) & (excess(high)[0] >= 0.0)
        r = solve_growing(excess, high, low, high)
        factor, _ = self._radial(r * r, k)
        found &= np.abs(r * factor - y) <= _RADIAL_TOLERANCE * y
        return xd * _ratio(np.where(found, r, np.nan), length)

    def _least_radial(self, radius: float, k: Sequence[float]) -> float:
        """Return the least eigenvalue of the radial part's derivative up to a radius."""
        if radius >= self._pole(k):
            return -math.inf
        steep = [r for r in self._steep_radii(k) if r < radius]
        s = np.square([0.0, *steep, radius])
        factor, slope = self._radial(s, k)
        return float(np.min([factor, factor + s * slope]))

    def _pole(self, k: Sequence[float]) -> float:
        """Return the first radius at which the distortion is infinite."""
        return math.sqrt(min(positive_roots(_fraction(k)[1]), default=math.inf))

    def _steep_radii(self, k: Sequence[float]) -> Sequence[float]:
        """Return the radii at which an eigenvalue of the radial part's derivative is extreme.

        The eigenvalues are ``N / D`` and ``G / D^2``, where G is `_growth`.
        """
        N, D = _fraction(k)
        G = _growth(N, D)
        of_factor = np.convolve(_by_log(N), D) - np.convolve(N, _by_log(D))
        of_growth = np.convolve(_by_log(G), D) - 2.0 * np.convolve(G, _by_log(D))
        roots = np.concatenate([positive_roots(of_factor), positive_roots(of_growth)])
        return [float(r) for r in np.sqrt(roots)]


class FisheyeModel(CameraModel):
    """Equidistant fisheye of OpenCV, ``|xd| = a (1 + k1 a^2 + ... + k4 a^8)``, a = atan|x|."""

    def distort(self, xn: FloatArray, k: Sequence[float]) -> FloatArray:
        """Map undistorted (N, 2) to distorted (N, 2) points with the coefficients k."""
        r = np.hypot(xn[:, 0], xn[:, 1])
        angle = np.arctan(r)
        return xn * _ratio(angle * even(angle * angle, k), r)

    def undistort(self, xd: FloatArray, k: Sequence[float]) -> FloatArray:
        """Map distorted (N, 2) to undistorted (N, 2) points, NaN from 90 degrees or the fold on."""
        rd = np.hypot(xd[:, 0], xd[:, 1])
        limit = min(first_critical_radius(k), 0.5 * math.pi)
        angle = invert_odd(rd, k, limit, np.full_like(rd, limit))
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
    return (1.0, k[0], k[1], k[4]), (1.0, k[5], k[6], k[7])


def _by_log(c: Sequence[float] | FloatArray) -> FloatArray:
    """Coefficients of ``s dc/ds``."""
    return np.asarray(np.arange(len(c)) * np.asarray(c), dtype=np.float64)


def _growth(N: Sequence[float], D: Sequence[float]) -> FloatArray:
    """Coefficients (7,) of ``D^2 d(r N / D) / dr`` by powers of ``s = r^2``."""
    change = np.convolve(_by_log(N), D) - np.convolve(N, _by_log(D))
    return np.asarray(np.convolve(N, D) + 2.0 * change, dtype=np.float64)


def _slope(s: FloatArray, c: Sequence[float]) -> FloatArray:
    """Evaluate the derivative ``c1 + 2 c2 s + 3 c3 s^2`` of a cubic polynomial."""
    return c[1] + s * (2.0 * c[2] + s * (3.0 * c[3]))


_MODELS = (
    CameraModel("SIMPLE_PINHOLE", ("f", "cx", "cy")),
    CameraModel("PINHOLE", ("fx", "fy", "cx", "cy")),
    RadialModel("SIMPLE_RADIAL", ("f", "cx", "cy", "k")),
    RadialModel("RADIAL", ("f", "cx", "cy", "k1", "k2")),
    BrownModel("OPENCV", ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2")),
    FisheyeModel("OPENCV_FISHEYE", ("fx", "fy", "cx", "cy", "k1", "k2", "k3", "k4")),
    RationalModel(
        "FULL_OPENCV",
        ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6"),
    ),
)

MODELS: dict[str, CameraModel] = {model.name: model for model in _MODELS}
