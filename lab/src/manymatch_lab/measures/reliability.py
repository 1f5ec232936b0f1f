"""Calibration of probabilities: reliability diagram, calibration error, Brier score."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manymatch_lab.checks import (
    BoolArray,
    FloatArray,
    bool_array,
    float_array,
    integer,
    read_only,
    refusal,
)
from manymatch_lab.evaluate.statistics import Interval

# Percentiles of a 95 % interval.
_ENDS = (0.025, 0.975)


@dataclasses.dataclass(frozen=True, eq=False)
class Reliability:
    """How often entries are true that were given some probability, in B bins."""

    #: (B + 1,) ends of the bins of the probability. A bin has its lower end, the last one both.
    edges: FloatArray
    count: NDArray[np.int64]  # (B,) entries in each bin
    weight: FloatArray  # (B,) share of the whole weight that is in each bin
    probability: FloatArray  # (B,) mean probability in each bin; NaN in an empty one
    share: FloatArray  # (B,) share of true entries in each bin; NaN in an empty one
    #: (B,) ends of the interval of `share`, NaN in bins with fewer than two groups; None without
    #: groups.
    low: FloatArray | None
    high: FloatArray | None
    mean_probability: float  # over all entries
    mean_truth: float
    ece: float  # expected calibration error: weighted mean of ``|probability - share|``
    #: Mean of ``(probability - truth)**2``; always saying the share s gives ``s (1 - s)``.
    brier: float
    ece_interval: Interval | None  # None without groups, or with nothing to resample

    @property
    def total(self) -> int:
        """Number of entries."""
        return int(self.count.sum())

    def __repr__(self) -> str:
        return (
            f"Reliability({self.total} entries in {len(self.count)} bins: mean probability "
            f"{self.mean_probability:.3f}, share true {self.mean_truth:.3f}, "
            f"ECE {self.ece_interval or self.ece:.3f}, Brier {self.brier:.3f})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON; what is not known is None."""
        record: dict[str, Any] = {"total": self.total}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Interval):
                value = [value.low, value.high]
            elif isinstance(value, np.ndarray):
                value = [v if np.isfinite(v) else None for v in value.tolist()]
            record[field.name] = value
        return record


def reliability(
    probability: ArrayLike,
    truth: ArrayLike,
    bins: int = 10,
    *,
    groups: ArrayLike | None = None,
    strata: ArrayLike | None = None,
    resamples: int = 2_000,
    seed: int = 0,
) -> Reliability:
    """Compare probabilities with what turned out to be true, in bins of equal width.

    `groups` are labels (M,) of entries that belong together, such as the matches of one pair of
    images, which are true or false together. Whole groups are resampled for the intervals, within
    their stratum, such as a data set, where `strata` (M,) are given; without groups there are no
    intervals, nor with one group only.

    Notes
    -----
    Intervals are percentiles of the resamplings. The ECE is a sum of distances, which chance makes
    larger and never smaller, in the data as in the resamplings: with few groups both the value
    and its interval are rather too high.

    Examples
    --------
    >>> found = reliability([0.75, 0.75, 0.75, 0.75], [True, True, False, False], bins=2)
    >>> found.ece
    0.25
    """
    p = float_array(probability, "probability", "numbers in [0, 1], one a match", (None,))
    if p.size == 0:
        raise refusal("probability", "at least one number", p)
    if np.any((p < 0.0) | (p > 1.0)):
        raise ValueError(f"probability must hold numbers in [0, 1], got {p.min():g} to {p.max():g}")
    y = bool_array(truth, "truth", f"a boolean array of shape ({p.size},)", (p.size,))
    integer(bins, "bins", 1)
    # The nearest numbers to the decimals, so that 0.3 is in the bin that begins at 0.3.
    edges = np.arange(bins + 1) / bins
    place = np.minimum(np.searchsorted(edges, p, side="right") - 1, bins - 1)
    # Number, probability, truth and squared error, summed in every bin. All results are made of
    # these sums, of the whole and of a resampling alike.
    parts = np.stack([np.ones(p.size), p, y, (p - y) ** 2])
    sums = _binned(parts, place, bins)
    values = _Values(sums[None])
    low = high = ece_interval = None
    if groups is not None:
        group = _labels(groups, "groups", p.size)
        layer = np.zeros_like(group) if strata is None else _labels(strata, "strata", p.size)
        # The number of every entry's group, and the stratum (G,) of every group.
        both, unit = np.unique(np.stack([layer, group]), axis=1, return_inverse=True)
        unit, stratum = unit.reshape(-1).astype(np.int64), both[0].astype(np.int64)
        count = integer(resamples, "resamples", 1)
        drawn = _Values(_resampled(parts, place, bins, unit, stratum, count, seed))
        # One group alone does not vary: bins need entries of two.
        cells = np.unique(unit * bins + place)
        low, high = _quantiles(drawn.share, np.bincount(cells % bins, minlength=bins) > 1)
        if np.bincount(stratum).max() > 1:
            ends = map(float, np.quantile(drawn.ece, _ENDS))
            ece_interval = Interval(float(values.ece[0]), *ends)
    elif strata is not None:
        raise ValueError("strata must be None without groups, got labels")
    return Reliability(
        edges=read_only(edges),
        count=read_only(np.bincount(place, minlength=bins).astype(np.int64)),
        weight=read_only(values.weight[0]),
        probability=read_only(values.probability[0]),
        share=read_only(values.share[0]),
        low=low,
        high=high,
        mean_probability=float(sums[1].sum() / sums[0].sum()),
        mean_truth=float(sums[2].sum() / sums[0].sum()),
        ece=float(values.ece[0]),
        brier=float(values.brier[0]),
        ece_interval=ece_interval,
    )


def _binned(parts: FloatArray, place: NDArray[Any], count: int) -> FloatArray:
    """Add up every row of parts (P, M) by place (M,), to (P, count)."""
    sums = np.empty((len(parts), count))
    for row, part in enumerate(parts):
        sums[row] = np.bincount(place, part, count)
    return sums


class _Values:
    """Numbers computed from the sums (R, 4, B) of R samples; NaN in empty bins."""

    def __init__(self, sums: FloatArray) -> None:
        inside, said, so, squared = np.moveaxis(sums, 1, 0)
        whole = inside.sum(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            self.weight = inside / whole
            self.probability = said / inside
            self.share = so / inside
            self.ece = np.abs(said - so).sum(axis=1) / whole[:, 0]
            self.brier = squared.sum(axis=1) / whole[:, 0]


def _labels(value: ArrayLike, name: str, size: int) -> NDArray[np.int64]:
    array = np.asarray(value)
    if array.shape != (size,):
        raise refusal(name, f"labels of shape ({size},)", array)
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


def _resampled(
    parts: FloatArray,
    place: NDArray[np.intp],
    bins: int,
    unit: NDArray[np.int64],
    stratum: NDArray[np.int64],
    resamples: int,
    seed: int,
) -> FloatArray:
    """Resample groups within their strata; return the sums (R, 4, B) of every resampling."""
    count = len(stratum)
    cell = unit * bins + place
    by_group = _binned(parts, cell, count * bins).reshape(len(parts), count, bins)
    names = np.unique(stratum)
    streams = np.random.SeedSequence(integer(seed, "seed", 0)).spawn(len(names))
    sums = np.zeros((resamples, len(parts), bins))
    for name, stream in zip(names, streams, strict=True):
        mine = by_group[:, stratum == name]
        size = mine.shape[1]
        times = np.random.default_rng(stream).multinomial(
            size, np.full(size, 1.0 / size), size=resamples
        )
        sums += np.einsum("rg,pgb->rpb", times.astype(np.float64), mine, optimize=True)
    return sums


def _quantiles(draws: FloatArray, wanted: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Find the ends of the interval of the wanted columns; NaN elsewhere."""
    result = np.full((2, draws.shape[1]), np.nan)
    for column in np.flatnonzero(wanted):
        known = draws[np.isfinite(draws[:, column]), column]
        if known.size:
            result[:, column] = np.quantile(known, _ENDS)
    return read_only(result[0]), read_only(result[1])
