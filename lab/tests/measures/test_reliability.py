"""Reliability of probabilities, against the sums written out one entry at a time."""

import json
import math

import numpy as np
import pytest

from manymatch_lab.measures.reliability import reliability


def plain_reliability(probability, truth, bins, weight):
    """Bins, ECE and Brier score as the definitions say, without arrays."""
    found = []
    whole = sum(weight)
    ece = brier = 0.0
    for b in range(bins):
        low, high = b / bins, (b + 1) / bins
        inside = [
            i for i, p in enumerate(probability) if low <= p < high or (b == bins - 1 and p == high)
        ]
        total = sum(weight[i] for i in inside)
        if total == 0:
            found.append((len(inside), math.nan, math.nan))
            continue
        said = sum(weight[i] * probability[i] for i in inside) / total
        share = sum(weight[i] for i in inside if truth[i]) / total
        found.append((len(inside), said, share))
        ece += total / whole * abs(said - share)
    for p, y, w in zip(probability, truth, weight, strict=True):
        brier += w / whole * (p - (1.0 if y else 0.0)) ** 2
    return found, ece, brier


def entries(seed, size=300, groups=12):
    """Entries whose truth depends on their group, so that they are not independent."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, size)
    probability = rng.random(size)
    truth = rng.random(size) < np.clip(probability + 0.3 * np.sin(group), 0.0, 1.0)
    return probability, truth, group


@pytest.mark.parametrize("bins", [1, 2, 7, 10, 64])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_slow_twin(bins, weighted):
    probability, truth, _ = entries(bins)
    rng = np.random.default_rng(1)
    # Some on the ends of bins, and some without weight.
    probability[:40] = rng.integers(0, bins + 1, 40) / bins
    weight = rng.integers(0, 3, 300).astype(float) if weighted else np.ones(300)
    found = reliability(probability, truth, bins, weight if weighted else None)
    rows, ece, brier = plain_reliability(
        probability.tolist(), truth.tolist(), bins, weight.tolist()
    )
    assert found.count.tolist() == [row[0] for row in rows]
    np.testing.assert_allclose(found.probability, [row[1] for row in rows])
    np.testing.assert_allclose(found.share, [row[2] for row in rows])
    assert found.ece == pytest.approx(ece)
    assert found.brier == pytest.approx(brier)
    assert found.total == 300
    assert found.weight.sum() == pytest.approx(1.0)
    assert found.mean_truth == pytest.approx((weight * truth).sum() / weight.sum())
    assert found.mean_probability == pytest.approx((weight * probability).sum() / weight.sum())


def test_calibrated_and_constant_probabilities():
    rng = np.random.default_rng(0)
    probability = rng.random(200_000)
    truth = rng.random(200_000) < probability
    assert reliability(probability, truth).ece < 0.01
    # Saying p + 0.2 where p is so.
    assert reliability(np.clip(probability + 0.2, 0, 1), truth).ece == pytest.approx(0.18, abs=0.01)
    share = truth.mean()
    constant = reliability(np.full(200_000, share), truth)
    assert constant.ece == pytest.approx(0.0, abs=1e-9)
    assert constant.brier == pytest.approx(share * (1 - share))


def plain_intervals(probability, truth, group, stratum, bins, resamples, seed):
    """Resample by copying the entries of the drawn groups, one resampling after the other."""
    names = sorted(set(stratum.tolist()))
    streams = np.random.SeedSequence(seed).spawn(len(names))
    times = []
    for name, stream in zip(names, streams, strict=True):
        units = sorted(set(group[stratum == name].tolist()))
        size = len(units)
        counts = np.random.default_rng(stream).multinomial(
            size, np.full(size, 1 / size), size=resamples
        )
        times.append((name, units, counts))
    ece, brier, shares = [], [], [[] for _ in range(bins)]
    for r in range(resamples):
        picked = []
        for name, units, counts in times:
            for unit, count in zip(units, counts[r].tolist(), strict=True):
                own = np.flatnonzero((stratum == name) & (group == unit)).tolist()
                picked += own * count
        rows, one, two = plain_reliability(
            probability[picked].tolist(), truth[picked].tolist(), bins, [1.0] * len(picked)
        )
        ece.append(one)
        brier.append(two)
        for b, row in enumerate(rows):
            if row[0]:
                shares[b].append(row[2])
    return [np.quantile(draws, (0.05, 0.95)).tolist() for draws in (ece, brier, *shares)]


@pytest.mark.parametrize("layered", [False, True])
def test_intervals_equal_the_slow_twin(layered):
    probability, truth, group = entries(3, size=60, groups=5)
    stratum = np.random.default_rng(4).integers(0, 2, 60) if layered else np.zeros(60, int)
    found = reliability(
        probability,
        truth,
        4,
        groups=[f"pair {g}" for g in group],
        strata=stratum if layered else None,
        level=0.9,
        resamples=60,
        seed=9,
    )
    ece, brier, *shares = plain_intervals(probability, truth, group, stratum, 4, 60, 9)
    assert (found.ece_interval.low, found.ece_interval.high) == pytest.approx(tuple(ece))
    assert found.ece_interval.value == found.ece
    assert (found.brier_interval.low, found.brier_interval.high) == pytest.approx(tuple(brier))
    np.testing.assert_allclose(np.stack([found.low, found.high]).T, shares)


def test_groups_make_intervals_wider_than_lone_entries():
    # Twenty pairs, in each of which everything is true or everything is false.
    rng = np.random.default_rng(2)
    group = np.repeat(np.arange(20), 50)
    truth = np.repeat(rng.random(20) < 0.5, 50)
    probability = np.full(1000, 0.5)
    by_pair = reliability(probability, truth, 1, groups=group)
    alone = reliability(probability, truth, 1, groups=np.arange(1000))
    width = by_pair.high[0] - by_pair.low[0]
    # Standard deviations: 0.5 / sqrt(20) and 0.5 / sqrt(1000).
    assert width == pytest.approx(4 * 0.5 / 20**0.5, rel=0.2)
    assert alone.high[0] - alone.low[0] == pytest.approx(4 * 0.5 / 1000**0.5, rel=0.2)


def test_one_group_has_no_interval():
    probability, truth = [0.9, 0.9, 0.2, 0.2], [True, False, False, False]
    alone = reliability(probability, truth, 2, groups=["a"] * 4)
    assert alone.ece_interval is None
    assert alone.brier_interval is None
    assert np.isnan(alone.low).all()
    # One group of each stratum: there is nothing to put in its place.
    assert reliability(probability, truth, groups=[0] * 4, strata=[0, 0, 1, 1]).ece_interval is None
    # Two groups, of which one is in the second bin.
    two = reliability([0.9, 0.9, 0.2, 0.2], truth, 2, groups=[0, 0, 0, 1])
    assert two.ece_interval is not None
    assert np.isfinite(two.low).tolist() == [True, False]
    assert np.isfinite(two.high).tolist() == [True, False]


def test_strata_are_not_mixed():
    # Nothing varies within a stratum, so there is nothing to resample.
    truth = np.repeat([True, False], 40)
    group = np.tile(np.arange(8), 10)
    stratum = np.repeat([0, 1], 40)
    fixed = reliability(np.full(80, 0.7), truth, groups=group, strata=stratum)
    assert fixed.ece_interval.low == pytest.approx(0.2)
    assert fixed.ece_interval.high == pytest.approx(0.2)
    loose = reliability(np.full(80, 0.7), truth, groups=group + 8 * stratum)
    assert loose.ece_interval.high - loose.ece_interval.low > 0.2


def test_a_function_of_the_arguments_alone():
    probability, truth, group = entries(5)
    first = reliability(probability, truth, groups=group, seed=1).to_dict()
    order = np.random.default_rng(0).permutation(300)
    again = reliability(probability[order], truth[order], groups=group[order], seed=1).to_dict()
    assert first["ece_interval"] == pytest.approx(again["ece_interval"])
    other = reliability(probability, truth, groups=group, seed=2).to_dict()
    assert first["ece_interval"] != pytest.approx(other["ece_interval"], rel=1e-9)


def test_json():
    probability, truth, group = [0.95, 0.9, 0.1], [True, False, False], [0, 0, 1]
    found = reliability(probability, truth, groups=group)
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["count"] == [0, 1, 0, 0, 0, 0, 0, 0, 0, 2]
    assert data["share"] == [None, 0.0, *[None] * 7, 0.5]
    assert data["total"] == 3
    assert data["ece"] == found.ece
    assert data["ece_interval"] == [found.ece_interval.low, found.ece_interval.high]
    assert reliability(probability, truth).to_dict()["low"] is None
    with pytest.raises(ValueError, match="read-only"):
        found.share[0] = 1.0


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (([], []), "probability must be at least one number"),
        (([1.1], [True]), r"probability must hold numbers in \[0, 1\], got 1.1 in row 0"),
        (([math.nan], [True]), "probability must hold finite numbers"),
        (([0.5], [1]), "truth must be a boolean array"),
        (([0.5], [True, False]), r"truth must be a boolean array of shape \(1,\)"),
        (([0.5], [True], 0), "bins must be an integer of at least 1"),
        (([0.5], [True], 10, [-1.0]), "weight must hold numbers of at least 0"),
        (([0.5], [True], 10, [0.0]), "weight must hold a number above 0"),
    ],
)
def test_refuses(arguments, part):
    with pytest.raises(ValueError, match=part):
        reliability(*arguments)


def test_refuses_labels():
    with pytest.raises(ValueError, match=r"groups must be labels of shape \(2,\)"):
        reliability([0.1, 0.2], [True, False], groups=[1])
    with pytest.raises(ValueError, match="strata must be None without groups"):
        reliability([0.1], [True], strata=[1])
    with pytest.raises(ValueError, match="level must be a number"):
        reliability([0.1], [True], groups=[1], level=1.0)


def test_entries_without_weight_do_not_count():
    probability, truth, group = entries(6)
    weight = (group > 3).astype(float)
    kept = group > 3
    found = reliability(probability, truth, weight=weight, groups=group)
    expected = reliability(probability[kept], truth[kept], groups=group[kept])
    assert found.ece == pytest.approx(expected.ece)
    assert found.ece_interval.high == pytest.approx(expected.ece_interval.high)
