import numpy as np
import pytest

from manymatch import evaluate
from manymatch.evaluate import (
    Interval,
    bootstrap_interval,
    paired_bootstrap_interval,
    pose_auc,
    pose_error_deg,
    rotation_error_deg,
    translation_error_deg,
)
from manymatch.geometry.pose import RelativePose


def about_z(degrees):
    a = np.deg2rad(degrees)
    return np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])


@pytest.mark.parametrize("degrees", [0.0, 1e-9, 1e-5, 0.3, 45.0, 90.0, 179.0, 180 - 1e-6, 180.0])
def test_rotation_error_is_the_angle_also_where_it_is_tiny_or_straight(degrees):
    base = about_z(20.0)
    assert rotation_error_deg(base @ about_z(degrees), base) == pytest.approx(degrees, abs=2e-14)


@pytest.mark.parametrize("degrees", [0.0, 1e-9, 1e-5, 0.3, 45.0, 90.0])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("length", [1.0, 1e-200, 1e200])
def test_translation_error_is_the_angle_of_the_lines(degrees, sign, length):
    t = about_z(degrees) @ np.array([1.0, 0.0, 0.0])
    error = translation_error_deg(sign * length * t, [1.0, 0.0, 0.0])
    assert error == pytest.approx(degrees, abs=2e-14)


def test_translation_error_folds_at_a_right_angle():
    assert translation_error_deg(about_z(130.0)[:, 0], [1, 0, 0]) == pytest.approx(50.0)


def test_pose_error_is_the_larger_of_the_two():
    t = np.array([0.0, 0.0, 1.0])
    tilted = np.array([0.0, np.sin(np.deg2rad(7)), np.cos(np.deg2rad(7))])
    assert pose_error_deg(RelativePose(about_z(3), t), np.eye(3), t) == pytest.approx(3)
    assert pose_error_deg(RelativePose(about_z(3), tilted), np.eye(3), t) == pytest.approx(7)
    assert pose_error_deg(RelativePose(np.eye(3), -t), np.eye(3), 5 * t) == 0.0


def test_no_pose_counts_as_half_a_turn():
    assert pose_error_deg(None, np.eye(3), [0, 0, 1]) == 180.0 == evaluate.FAILURE_DEG


def test_auc_of_hand_made_errors():
    # Recall rises from 0 to 1/2 over [0, 2] and stays there: (0.5 + 8 * 0.5) / 10.
    assert pose_auc([2.0, 30.0], (10,)) == pytest.approx([45.0])
    assert pose_auc([0.0, 0.0]).tolist() == [100.0, 100.0, 100.0]
    assert pose_auc([180.0, np.inf]).tolist() == [0.0, 0.0, 0.0]
    # An error at the threshold is not below it.
    assert pose_auc([5.0], (5,)).tolist() == [0.0]


@pytest.mark.parametrize(
    ("errors", "thresholds", "message"),
    [
        ([], (5,), "errors_deg must be"),
        ([[1.0]], (5,), "errors_deg must be"),
        ([-1.0], (5,), "errors_deg must hold"),
        ([np.nan], (5,), "errors_deg must hold"),
        ([1.0], (0.0,), "thresholds must hold"),
        ([1.0], (np.nan,), "thresholds must hold"),
        ([1.0], 5, "thresholds must be"),
    ],
)
def test_auc_names_what_is_wrong(errors, thresholds, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        pose_auc(errors, thresholds)


@pytest.mark.parametrize(
    ("R", "t", "message"),
    [
        (2 * np.eye(3), [0, 0, 1], "R_true must be a 3x3 rotation matrix"),
        (np.diag([1, 1, -1]), [0, 0, 1], "R_true must be a 3x3 rotation matrix"),
        (np.eye(4), [0, 0, 1], "R_true must be a 3x3 rotation matrix"),
        (np.full((3, 3), np.nan), [0, 0, 1], "R_true must hold finite numbers"),
        (np.eye(3), [0, 0, 0], "t_true must be a vector"),
        (np.eye(3), [0, 0], "t_true must be a vector"),
    ],
)
@pytest.mark.parametrize("pose", [None, RelativePose(np.eye(3), [0, 0, 1])])
def test_a_bad_truth_is_named_whether_or_not_there_is_a_pose(pose, R, t, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        pose_error_deg(pose, R, t)


def test_bootstrap_interval_of_a_mean_is_near_the_normal_one():
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    interval = bootstrap_interval(values, np.mean, resamples=4000)
    half = 1.96 * values.std() / np.sqrt(400)
    assert interval.value == values.mean()
    assert interval.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.1 * half)
    wide = bootstrap_interval(values, np.mean, level=0.99)
    assert wide.low < interval.low < interval.high < wide.high


def test_bootstrap_depends_on_the_seed_only_and_keeps_units_together():
    values = np.random.default_rng(2).normal(size=(50, 3))
    assert bootstrap_interval(values, np.mean) == bootstrap_interval(values, np.mean)
    assert bootstrap_interval(values, np.mean) != bootstrap_interval(values, np.mean, seed=1)

    def equal_columns(array):
        assert array.shape == (50, 3)
        return float(np.all(array[:, :1] == array))

    repeated = np.repeat(values[:, :1], 3, axis=1)
    assert bootstrap_interval(repeated, equal_columns) == Interval(1.0, 1.0, 1.0)


def test_paired_bootstrap_cancels_what_both_share():
    rng = np.random.default_rng(3)
    hard = rng.exponential(20.0, 200)
    a, b = hard + 1.0, hard + rng.normal(0, 0.1, 200)
    paired = paired_bootstrap_interval(a, b, np.mean)
    assert paired.value == pytest.approx(1.0, abs=0.05)
    assert paired.high - paired.low < 0.1
    assert bootstrap_interval(a, np.mean).touches(bootstrap_interval(b, np.mean))


def test_intervals_touch_when_they_share_a_point():
    assert Interval(1, 0, 2).touches(Interval(3, 2, 4))
    assert not Interval(1, 0, 2).touches(Interval(3, 2.1, 4))
    assert not Interval(3, 2.1, 4).touches(Interval(1, 0, 2))
    assert f"{Interval(1.04, 0.5, 2.0):.1f}" == "1.0 [0.5, 2.0]"
    assert str(Interval(1.5, 0.5, 2.0)) == "1.5 [0.5, 2]"


@pytest.mark.parametrize(
    ("keywords", "message"),
    [({"level": 1.0}, "level"), ({"resamples": 0}, "resamples"), ({"seed": -1}, "seed")],
)
def test_bootstrap_names_what_is_wrong(keywords, message):
    with pytest.raises(ValueError, match=f"^{message} must be"):
        bootstrap_interval([1.0, 2.0], np.mean, **keywords)


def test_bootstrap_refuses_nothing_and_unequal_lists():
    with pytest.raises(ValueError, match=r"^values must be"):
        bootstrap_interval([], np.mean)
    with pytest.raises(ValueError, match=r"^second must have the shape of first"):
        paired_bootstrap_interval([1.0, 2.0], [1.0], np.mean)
