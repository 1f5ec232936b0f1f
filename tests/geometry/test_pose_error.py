import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manymatch.geometry import pose_error
from manymatch.geometry.pose import RelativePose
from manymatch.geometry.pose_error import (
    pose_auc,
    pose_error_deg,
    rotation_error_deg,
    translation_error_deg,
)
from tests.oracles.geometry import rotation_from_vector

errors = st.lists(
    st.one_of(st.floats(0, 25), st.sampled_from([0.0, 5.0, 10.0, 180.0, float("inf")])),
    min_size=1,
    max_size=30,
)
vectors = st.tuples(*[st.floats(-3, 3)] * 3)


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
    assert pose_error_deg(None, np.eye(3), [0, 0, 1]) == 180.0 == pose_error.FAILURE_DEG
    with pytest.raises(ValueError, match=r"^pose must be a RelativePose or None, got"):
        pose_error_deg(np.eye(4), np.eye(3), [0, 0, 1])


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


def slow_auc(values, tau):
    """Walk along the recall curve, one error after the other."""
    area, x, recall = 0.0, 0.0, 0.0
    for seen, error in enumerate(sorted(values), start=1):
        if error >= tau:
            break
        area += (error - x) * (recall + seen / len(values)) / 2
        x, recall = error, seen / len(values)
    return 100 * (area + (tau - x) * recall) / tau


@given(errors, st.lists(st.floats(0.01, 30), min_size=1, max_size=4))
def test_auc_equals_a_walk_along_the_curve(values, thresholds):
    expected = [slow_auc(values, tau) for tau in thresholds]
    assert pose_auc(values, thresholds) == pytest.approx(expected, abs=1e-9)


@given(errors, st.randoms(use_true_random=False))
def test_auc_is_a_percentage_that_ignores_order_and_falls_with_errors(values, random):
    auc = pose_auc(values)
    assert np.all((auc >= 0) & (auc <= 100 + 1e-9))
    shuffled = list(values)
    random.shuffle(shuffled)
    assert np.array_equal(pose_auc(shuffled), auc)
    worse = [value + 1.0 for value in values]
    assert np.all(pose_auc(worse) <= auc + 1e-9)


@given(vectors, vectors, vectors)
def test_rotation_error_is_a_distance_that_frames_do_not_change(a, b, c):
    A, B, C = map(rotation_from_vector, map(np.array, (a, b, c)))
    error = rotation_error_deg(A, B)
    assert 0 <= error <= 180
    assert rotation_error_deg(B, A) == pytest.approx(error, abs=1e-6)
    assert rotation_error_deg(C @ A, C @ B) == pytest.approx(error, abs=1e-6)
    assert error <= rotation_error_deg(A, C) + rotation_error_deg(C, B) + 1e-6
