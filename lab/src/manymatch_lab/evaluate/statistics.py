"""Bootstrap intervals, and the pose AUC over repetitions with its spread and its interval."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manymatch.geometry.pose import pose_auc
from manymatch_lab.checks import FloatArray, float_array, integer, refusal

if TYPE_CHECKING:
    Statistic = Callable[[FloatArray], float]

#: Thresholds of the pose AUC in degrees.
THRESHOLDS = (5, 10, 20)


@dataclasses.dataclass(frozen=True)
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


def bootstrap_interval(
    values: ArrayLike, statistic: Statistic, *, resamples: int = 2_000, seed: int = 0
) -> Interval:
    """95 % interval of a statistic of ``values`` under resampling with replacement.

    An entry of the first axis of ``values`` (n, ...) is a unit that is resampled, for example one
    pair of images; what belongs to one pair (several seeds, or two methods whose difference is the
    statistic) stays together. The statistic maps a resampled array of the same shape to a number.
    The result is a function of the arguments only.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise refusal("values", "an array of numbers", values) from None
    if array.ndim == 0 or len(array) == 0:
        raise refusal("values", "an array with at least one entry", array)
    size = (integer(resamples, "resamples", 1), len(array))
    picks = np.random.default_rng(integer(seed, "seed", 0)).integers(0, len(array), size)
    draws = [statistic(array[pick]) for pick in picks]
    return _intervals([statistic(array)], np.array(draws)[:, None])[0]


def _intervals(values: Iterable[float], draws: FloatArray) -> tuple[Interval, ...]:
    """Make the 95 % interval of every value from the column of its resampled values in `draws`."""
    ends = np.quantile(draws, (0.025, 0.975), axis=0)
    return tuple(Interval(*map(float, found)) for found in zip(values, *ends, strict=True))


@dataclasses.dataclass(frozen=True)
class Spread:
    """A number per threshold: mean over repetitions, their spread, and an interval over pairs.

    `sd` is the sample standard deviation between repetitions (seeds), 0 for a single one; `low`
    and `high` are the least and the largest repetition. `interval` is the 95 % interval of the mean
    when pairs are resampled; the repetitions of one pair stay together.
    """

    mean: tuple[float, ...]
    sd: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    interval: tuple[Interval, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return {
            "mean": list(self.mean),
            "sd": list(self.sd),
            "min": list(self.low),
            "max": list(self.high),
            "interval": [[i.low, i.high] for i in self.interval],
        }


def auc_by_seed(errors: ArrayLike, thresholds: Sequence[float] = THRESHOLDS) -> FloatArray:
    """Pose AUC in percent of every repetition, (S, T), from errors (S, N) in degrees."""
    return np.array([pose_auc(row, thresholds) for row in _errors(errors, "errors")])


def auc_spread(errors: ArrayLike, thresholds: Sequence[float] = THRESHOLDS) -> Spread:
    """Pose AUC of one run: errors (S, N) in degrees, S repetitions of N pairs."""
    return macro_spread([errors], thresholds)


def paired_difference(
    first: ArrayLike, second: ArrayLike, thresholds: Sequence[float] = THRESHOLDS
) -> Spread:
    """AUC of `first` minus AUC of `second` on the same pairs with the same seeds, both (S, N)."""
    return macro_difference([first], [second], thresholds)


def macro_spread(
    sets: Sequence[ArrayLike], thresholds: Sequence[float] = THRESHOLDS, resamples: int = 2_000
) -> Spread:
    """Mean over sets, each (S, N_i), of their AUC; pairs are resampled within their set."""
    runs = [_errors(errors, "errors") for errors in sets]
    return _spread(_macro(runs, thresholds), _macro_draws(runs, thresholds, resamples))


def macro_difference(
    first: Sequence[ArrayLike],
    second: Sequence[ArrayLike],
    thresholds: Sequence[float] = THRESHOLDS,
) -> Spread:
    """Mean over sets of the difference of the AUC; both sides are resampled alike."""
    a = [_errors(errors, "first") for errors in first]
    b = [_errors(errors, "second") for errors in second]
    shapes = [[x.shape for x in side] for side in (a, b)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"second must have the shapes of first, {shapes[0]}, got {shapes[1]}")
    draws = _macro_draws(a, thresholds) - _macro_draws(b, thresholds)
    return _spread(_macro(a, thresholds) - _macro(b, thresholds), draws)


def resampled_auc(
    errors: ArrayLike, counts: NDArray[np.int64], thresholds: Sequence[float] = THRESHOLDS
) -> FloatArray:
    """AUC in percent, mean over repetitions, of many resamplings at once.

    The trapezoid of `pose_auc` has a closed form: with n errors and the largest one below the
    limit called m, its area is ``(sum of (limit - e) over errors e below it + m / 2) / n``.

    `errors` (S, N) are in degrees, and `counts` (B, N) says how often each resampling has each
    pair; the result is (B, T).
    """
    rows = _errors(errors, "errors")
    total = counts.sum(axis=1)
    result = np.empty((len(counts), len(thresholds)))
    for column, limit in enumerate(thresholds):
        area = np.zeros(len(counts))
        for row in rows:
            area += counts @ np.clip(limit - row, 0.0, None)
            falling = np.argsort(-row, kind="stable")
            below = falling[row[falling] < limit]
            if len(below):
                has = counts[:, below] > 0
                first = np.argmax(has, axis=1)
                area += np.where(has.any(axis=1), 0.5 * row[below[first]], 0.0)
        result[:, column] = 100.0 * area / (total * limit * len(rows))
    return result


def _macro(runs: Sequence[FloatArray], thresholds: Sequence[float]) -> FloatArray:
    """AUC of every repetition, (S, T), averaged over sets."""
    if not runs or len({len(run) for run in runs}) != 1:
        raise ValueError(
            f"sets must have the same number of repetitions, got {[len(run) for run in runs]}"
        )
    return np.asarray(np.mean([auc_by_seed(run, thresholds) for run in runs], axis=0))


def _macro_draws(
    runs: Sequence[FloatArray], thresholds: Sequence[float], resamples: int = 2_000
) -> FloatArray:
    """AUC of every resampling, (B, T), averaged over sets."""
    streams = np.random.SeedSequence(0).spawn(len(runs))
    draws = np.zeros((integer(resamples, "resamples", 1), len(thresholds)))
    for run, stream in zip(runs, streams, strict=True):
        size = run.shape[1]
        counts = np.random.default_rng(stream).multinomial(
            size, np.full(size, 1.0 / size), size=resamples
        )
        draws += resampled_auc(run, counts, thresholds)
    return draws / len(runs)


def _spread(values: FloatArray, draws: FloatArray) -> Spread:
    mean = values.mean(axis=0)
    sd = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    return Spread(
        mean=tuple(mean.tolist()),
        sd=tuple(sd.tolist()),
        low=tuple(values.min(axis=0).tolist()),
        high=tuple(values.max(axis=0).tolist()),
        interval=_intervals(mean, draws),
    )


def _errors(value: ArrayLike, name: str) -> FloatArray:
    want = "errors in degrees of shape (repetitions, pairs)"
    array = float_array(value, name, want, (None, None))
    if array.size == 0:
        raise refusal(name, want, array)
    return array
