"""AUC over repetitions, differences and intervals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from manymatch import pose_auc
from manymatch_lab.evaluate.statistics import (
    Interval,
    auc_by_seed,
    auc_spread,
    bootstrap_interval,
    macro_difference,
    macro_spread,
    paired_difference,
    resampled_auc,
)

ERRORS = arrays(
    np.float64,
    st.tuples(st.integers(1, 3), st.integers(1, 12)),
    elements=st.one_of(st.floats(0, 30), st.sampled_from([0.0, 5.0, 10.0, 20.0, 180.0])),
)


@given(ERRORS, st.integers(0, 5))
def test_closed_form_of_resampling_is_the_auc_of_the_resampled_errors(errors, seed):
    size = errors.shape[1]
    picks = np.random.default_rng(seed).integers(0, size, (3, size))
    counts = np.array([np.bincount(pick, minlength=size) for pick in picks])
    found = resampled_auc(errors, counts)
    for row, pick in zip(found, picks, strict=True):
        slow = np.mean([pose_auc(e[pick], (5, 10, 20)) for e in errors], axis=0)
        np.testing.assert_allclose(row, slow, atol=1e-9)


def test_spread_by_hand():
    errors = np.array([[1.0, 180.0], [3.0, 180.0]])
    by_seed = auc_by_seed(errors)
    # One error e of two below the limit: (limit - e + e / 2) / (2 limit).
    np.testing.assert_allclose(by_seed[:, 0], [100 * 4.5 / 10, 100 * 3.5 / 10])
    spread = auc_spread(errors)
    assert spread.mean[0] == pytest.approx(40.0)
    assert spread.sd[0] == pytest.approx(10.0 / np.sqrt(2.0))
    assert (spread.low[0], spread.high[0]) == pytest.approx((35.0, 45.0))


def test_paired_difference_cancels_what_is_hard_for_both():
    rng = np.random.default_rng(1)
    hard = rng.exponential(8.0, (2, 60))
    better = np.maximum(hard - 0.5, 0.0)
    difference = paired_difference(better, hard)
    assert all(low > 0 for low in difference.low)
    paired = difference.interval[2]
    alone = auc_spread(hard).interval[2]
    assert paired.high - paired.low < (alone.high - alone.low) / 4
    same = paired_difference(hard, hard)
    assert all(i.low == i.high == 0.0 for i in same.interval)


def test_macro_weights_sets_equally():
    good, bad = np.full((2, 100), 0.0), np.full((2, 3), 180.0)
    assert macro_spread([good, bad]).mean == pytest.approx((50.0, 50.0, 50.0))
    difference = macro_difference([good, bad], [bad[:, [0] * 100], bad])
    assert difference.mean == pytest.approx((50.0, 50.0, 50.0))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: auc_spread([1.0, 2.0]), "errors must be"),
        (lambda: auc_spread(np.empty((2, 0))), "errors must be"),
        (lambda: auc_spread([[np.nan]]), "errors must"),
        (lambda: paired_difference([[1.0]], [[1.0, 2.0]]), "second must have the shapes"),
        (lambda: macro_spread([[[1.0]], [[1.0], [2.0]]]), "same number of repetitions"),
        (lambda: bootstrap_interval([1.0, 2.0], np.mean, resamples=0), "^resamples must be"),
        (lambda: bootstrap_interval([1.0, 2.0], np.mean, seed=-1), "^seed must be"),
    ],
)
def test_bad_input_is_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_bootstrap_interval_of_a_mean_is_near_the_normal_one():
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    interval = bootstrap_interval(values, np.mean, resamples=4000)
    half = 1.96 * values.std() / np.sqrt(400)
    assert interval.value == values.mean()
    assert interval.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_bootstrap_depends_on_the_seed_only_and_keeps_units_together():
    values = np.random.default_rng(2).normal(size=(50, 3))
    assert bootstrap_interval(values, np.mean) == bootstrap_interval(values, np.mean)
    assert bootstrap_interval(values, np.mean) != bootstrap_interval(values, np.mean, seed=1)

    def equal_columns(array):
        assert array.shape == (50, 3)
        return float(np.all(array[:, :1] == array))

    repeated = np.repeat(values[:, :1], 3, axis=1)
    assert bootstrap_interval(repeated, equal_columns) == Interval(1.0, 1.0, 1.0)
