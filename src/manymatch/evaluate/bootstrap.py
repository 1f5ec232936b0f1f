"""Percentile bootstrap intervals, seeded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from manymatch._validate import FloatArray, integer, real, refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    Statistic = Callable[[FloatArray], float]


@dataclass(frozen=True)
class Interval:
    """A value and the range that resampling gives it."""

    value: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        spec = spec or ".1f"
        return f"{self.value:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"

    def __str__(self) -> str:
        return f"{self:.3g}"

    def touches(self, other: Interval) -> bool:
        """Whether the two ranges have a point in common."""
        return self.low <= other.high and other.low <= self.high


def bootstrap_interval(
    values: ArrayLike,
    statistic: Statistic,
    *,
    level: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> Interval:
    """Interval of a statistic of ``values`` under resampling with replacement.

    Parameters
    ----------
    values : (n, ...) array
        One entry of the first axis a unit that is resampled, for example one pair of images; what
        belongs to one pair (several seeds) stays together.
    statistic : callable
        Maps a resampled array of the same shape to a number.
    level : float
        Coverage, between 0 and 1.
    resamples : int
        How often to resample.
    seed : int
        The result is a function of the arguments only.
    """
    array = _values(values, "values")
    draws = [statistic(array[pick]) for pick in _picks(len(array), resamples, seed)]
    return _interval(statistic(array), draws, level)


def paired_bootstrap_interval(
    first: ArrayLike,
    second: ArrayLike,
    statistic: Statistic,
    *,
    level: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> Interval:
    """Interval of ``statistic(first) - statistic(second)``, both resampled alike.

    ``first`` and ``second`` hold the same units in the same order, for example the errors of two
    methods on the same pairs, so that what is hard for both cancels.
    """
    a, b = _values(first, "first"), _values(second, "second")
    if a.shape != b.shape:
        raise ValueError(f"second must have the shape of first, {a.shape}, got {b.shape}")
    draws = [statistic(a[pick]) - statistic(b[pick]) for pick in _picks(len(a), resamples, seed)]
    return _interval(statistic(a) - statistic(b), draws, level)


def _values(values: ArrayLike, name: str) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0 or len(array) == 0:
        raise refusal(name, "an array with at least one entry", array)
    return array


def _picks(count: int, resamples: int, seed: int) -> NDArray[np.int64]:
    size = (integer(resamples, "resamples", 1), count)
    return np.random.default_rng(integer(seed, "seed", 0)).integers(0, count, size)


def _interval(value: float, draws: list[float], level: float) -> Interval:
    tail = (1.0 - real(level, "level", 0.0, 1.0)) / 2.0
    low, high = np.quantile(draws, (tail, 1.0 - tail))
    return Interval(float(value), float(low), float(high))
