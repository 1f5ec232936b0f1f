"""Reliability of probabilities, against the sums written out one entry at a time."""

import json
import math

import numpy as np
import pytest

from manymatch_lab.measures.reliability import reliability


def plain_reliability(probability, truth, bins):
    """Bins, ECE and Brier score as the definitions say, without arrays."""
    found, ece, whole = [], 0.0, len(probability)
    for b in range(bins):
        low, high = b / bins, (b + 1) / bins
        inside = [
            i for i, p in enumerate(probability) if low <= p < high or (b == bins - 1 and p == high)
        ]
        if not inside:
            found.append((0, math.nan, math.nan))
            continue
        said = sum(probability[i] for i in inside) / len(inside)
        share = sum(truth[i] for i in inside) / len(inside)
        found.append((len(inside), said, share))
        ece += len(inside) / whole * abs(said - share)
    brier = sum((p - float(y)) ** 2 for p, y in zip(probability, truth, strict=True)) / whole
    return found, ece, brier


def entries(seed, size=300, groups=12):
    """Entries whose truth depends on their group, so that they are not independent."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, size)
    probability = rng.random(size)
    truth = rng.random(size) < np.clip(probability + 0.3 * np.sin(group), 0.0, 1.0)
    return probability, truth, group


@pytest.mark.parametrize("bins", [1, 2, 7, 10, 64])
def test_equals_the_slow_twin(bins):
    probability, truth, _ = entries(bins)
    # Some on the ends of bins.
    probability[:40] = np.random.default_rng(1).integers(0, bins + 1, 40) / bins
    found = reliability(probability, truth, bins)
    rows, ece, brier = plain_reliability(probability.tolist(), truth.tolist(), bins)
    assert found.count.tolist() == [row[0] for row in rows]
    np.testing.assert_allclose(found.probability, [row[1] for row in rows])
    np.testing.assert_allclose(found.share, [row[2] for row in rows])
    assert (found.ece, found.brier) == pytest.approx((ece, brier))
    assert found.mean_truth == pytest.approx(truth.mean())


def test_calibrated_probabilities_have_a_small_error():
    rng = np.random.default_rng(0)
    probability = rng.random(200_000)
    truth = rng.random(200_000) < probability
    assert reliability(probability, truth).ece < 0.01
    assert reliability(np.clip(probability + 0.2, 0, 1), truth).ece == pytest.approx(0.18, abs=0.01)
    share = truth.mean()
    constant = reliability(np.full(200_000, share), truth)
    assert constant.brier == pytest.approx(share * (1 - share))


def test_intervals_equal_those_of_resampled_groups():
    probability, truth, group = entries(3)
    found = reliability(probability, truth, 4, groups=group, resamples=500, seed=7)
    stream = np.random.SeedSequence(7).spawn(1)[0]
    times = np.random.default_rng(stream).multinomial(12, np.full(12, 1 / 12), size=500)
    values = []
    for row in times:
        picked = np.repeat(np.arange(300), row[group])
        values.append(reliability(probability[picked], truth[picked], 4).ece)
    interval = found.ece_interval
    assert (interval.low, interval.high) == pytest.approx(np.quantile(values, (0.025, 0.975)))


def test_one_group_has_no_interval():
    truth = [True, True, False, False]
    alone = reliability([0.9, 0.8, 0.7, 0.6], truth, groups=[0] * 4)
    assert alone.ece_interval is None
    assert np.isnan(alone.low).all()
    # Two groups, of which one is in the second bin.
    two = reliability([0.9, 0.9, 0.2, 0.2], truth, 2, groups=[0, 0, 0, 1])
    assert np.isfinite(two.low).tolist() == np.isfinite(two.high).tolist() == [True, False]


def test_groups_are_resampled_within_their_stratum():
    truth = np.repeat([True, False], 40)
    group, stratum = np.tile(np.arange(8), 10), np.repeat([0, 1], 40)
    fixed = reliability(np.full(80, 0.7), truth, groups=group, strata=stratum).ece_interval
    assert (fixed.low, fixed.high) == pytest.approx((0.2, 0.2))
    loose = reliability(np.full(80, 0.7), truth, groups=group + 8 * stratum).ece_interval
    assert loose.high - loose.low > 0.2


def test_json_has_none_for_unknown_values():
    found = reliability([0.95, 0.9, 0.1], [True, False, False], groups=[0, 0, 1])
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["count"] == [0, 1, 0, 0, 0, 0, 0, 0, 0, 2]
    assert data["share"] == [None, 0.0, *[None] * 7, 0.5]
    assert data["ece_interval"] == [found.ece_interval.low, found.ece_interval.high]


@pytest.mark.parametrize(
    ("arguments", "keywords", "part"),
    [
        (([], []), {}, "probability must be at least one number"),
        (([1.1], [True]), {}, r"probability must hold numbers in \[0, 1\], got 1.1"),
        (([math.nan], [True]), {}, "probability must hold finite numbers"),
        (([0.5], [1]), {}, "truth must be a boolean array"),
        (([0.5], [True, False]), {}, r"truth must be a boolean array of shape \(1,\)"),
        (([0.5], [True], 0), {}, "bins must be an integer of at least 1"),
        (([0.1, 0.2], [True, False]), {"groups": [1]}, r"groups must be labels of shape \(2,\)"),
        (([0.1], [True]), {"strata": [1]}, "strata must be None without groups"),
    ],
)
def test_bad_input_is_named(arguments, keywords, part):
    with pytest.raises(ValueError, match=part):
        reliability(*arguments, **keywords)
