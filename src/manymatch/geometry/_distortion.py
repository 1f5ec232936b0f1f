"""Polynomials of lens distortion in the squared radius: values, roots, inverses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from manymatch._validate import FloatArray

    #: A function of radii (N,) that returns its values and slopes, both (N,).
    Excess = Callable[[FloatArray], tuple[FloatArray, FloatArray]]

EPS = float(np.finfo(np.float64).eps)
_ITERATIONS = 100
# Enough factors of two to go from any number to any other.
_BRACKET_STEPS = 2200
# Radii up to here have finite squares; nothing beyond is looked at.
_LARGEST_RADIUS = 1e150


def even(s: FloatArray, k: Sequence[float]) -> FloatArray:
    """Evaluate ``1 + k1 s + k2 s^2 + ...``."""
    value = np.zeros_like(s)
    for coefficient in reversed(k):
        value = (value + coefficient) * s
    return 1.0 + value


def least_quadratic(a: float, b: float, end: float) -> float:
    """Return the least value of ``1 + a s + b s^2`` for s in [0, end]."""
    least = min(1.0, 1.0 + end * (a + end * b))
    if b > 0.0 and 0.0 < -0.5 * a / b < end:
        least = min(least, 1.0 - 0.25 * a * a / b)
    return least


def _slope_coefficients(k: Sequence[float]) -> tuple[float, ...]:
    """Coefficients of the derivative ``1 + 3 k1 s + 5 k2 s^2 + ...`` of the odd polynomial."""
    return tuple((2 * power + 1) * c for power, c in enumerate(k, start=1))


def first_critical_radius(k: Sequence[float]) -> float:
    """Return the smallest r > 0 at which ``r (1 + k1 r^2 + ...)`` stops growing, or infinity."""
    return math.sqrt(min(positive_roots([1.0, *_slope_coefficients(k)]), default=math.inf))


def positive_roots(c: ArrayLike) -> FloatArray:
    """Return the s > 0 at which ``c0 + c1 s + c2 s^2 + ...`` is zero.

    The roots are sought in ``w = 1 / s``, for which the polynomial of a distortion has leading
    coefficient 1 whatever its k are, zero included.
    """
    c = np.array(c, dtype=np.float64)
    # Quotients of the rest stay finite.
    c[np.abs(c) < 1e-200 * np.max(np.abs(c))] = 0.0
    w = np.roots(c)
    # A double root, where the slope only touches zero, splits into a pair by round-off.
    real = w.real[(np.abs(w.imag) <= 1e-7 * np.abs(w)) & (w.real > _LARGEST_RADIUS**-2)]
    return np.asarray(1.0 / real, dtype=np.float64)


def invert_odd(y: FloatArray, k: Sequence[float], limit: float, upper: FloatArray) -> FloatArray:
    """Solve ``r (1 + k1 r^2 + k2 r^4 + ...) = y`` for r in [0, limit), NaN where there is none."""
    slope = _slope_coefficients(k)
    reach = _LARGEST_RADIUS
    if limit < math.inf:
        reach = limit * float(even(np.array(limit * limit), k))
    inside = y < reach
    target = np.where(inside, y, 0.0)

    def excess(r: FloatArray) -> tuple[FloatArray, FloatArray]:
        s = r * r
        return r * even(s, k) - target, even(s, slope)

    high = np.where(inside, upper, 0.0)
    r = solve_growing(excess, np.minimum(target, high), np.zeros_like(y), high)
    return np.where(inside & np.isfinite(y), r, np.nan)


def bracket(excess: Excess, y: FloatArray, limit: float) -> tuple[FloatArray, FloatArray]:
    """Find radii low and high around the root of `excess`, at most `limit`, by factors of two."""
    high = np.minimum(y, limit)
    for _ in range(_BRACKET_STEPS):
        short = (excess(high)[0] < 0.0) & (high < min(limit, _LARGEST_RADIUS))
        if not short.any():
            break
        high = np.where(short, np.minimum(2.0 * high, limit), high)
    low = high
    for _ in range(_BRACKET_STEPS):
        far = excess(low)[0] > 0.0
        if not far.any():
            break
        low = np.where(far, 0.5 * low, low)
    return low, np.minimum(high, np.where(low < high, 2.0 * low, high))


def solve_growing(
    excess: Excess, start: FloatArray, low: FloatArray, high: FloatArray
) -> FloatArray:
    """Find the zeros of a function that returns its values and slopes and grows at them.

    Newton's method inside a shrinking bracket [low, high], with bisection where Newton leaves it
    or is slow.
    """
    r = start
    previous = high - low
    done = high == 0.0
    for _ in range(_ITERATIONS):
        value, slope = excess(r)
        low = np.where(value <= 0.0, r, low)
        high = np.where(value >= 0.0, r, high)
        step = value / slope
        newton = r - step
        use = (newton >= low) & (newton <= high) & (np.abs(step) <= 0.5 * previous)
        following = np.where(use, newton, 0.5 * (low + high))
        previous = np.abs(following - r)
        r = np.where(done, r, following)
        done |= previous <= 2.0 * EPS * r
        if done.all():
            break
    return r
