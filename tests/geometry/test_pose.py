"""Poses: bad input, conversions, what holds for every pose; their errors and AUC."""

import copy
import dataclasses
import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given

from manymatch.geometry.pose import (
    AbsolutePose,
    RelativePose,
    pose_auc,
    pose_error_deg,
    rotation_error_deg,
    translation_error_deg,
)
from tests.oracles.geometry import rotation_from_quaternion, rotation_from_vector

I3 = np.eye(3)
X = np.array([1.0, 0.0, 0.0])


def about_z(degrees):
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


BAD_R = [
    None, "abc", 1.0, I3[:2], I3[None], np.eye(4), [[1, 0], [0, 1, 0], [0]], I3 > 0, I3 * 1j,
    I3.astype(object), [], np.full((3, 3), np.nan), np.where(I3 > 0, np.inf, 0.0),
    np.zeros((3, 3)), 2 * I3, 1e300 * I3, I3 + 1e-5, -I3, np.diag([1.0, 1.0, -1.0]),
]  # fmt: skip
BAD_T = [
    None, "abc", 1.0, X[:2], X[:, None], np.ones(4), [1, [2], 3], X > 0, X * 1j, X.astype(object),
    [], [0, 0, 0], [0.0, np.nan, 1.0], [np.inf, 0, 0],
]  # fmt: skip


BAD = [("R", R, X) for R in BAD_R] + [("t", I3, t) for t in BAD_T]


@pytest.mark.parametrize(("name", "R", "t"), BAD, ids=range(len(BAD)))
def test_bad_rotation_or_translation_is_named(name, R, t):
    with pytest.raises(ValueError, match=rf"^{name} must .*, got "):
        RelativePose(R, t)


def test_rotation_is_projected_to_the_nearest_one():
    R = about_z(30.0)
    noisy = R + 2e-7 * np.array([[1, -1, 1], [1, 1, -1], [-1, 1, 1]])
    pose = RelativePose(noisy, X)
    np.testing.assert_allclose(pose.R.T @ pose.R, I3, atol=1e-15)
    # Nearest means that what was removed is symmetric in the frame of the rotation.
    removed = pose.R.T @ noisy
    np.testing.assert_allclose(removed, removed.T, atol=1e-15)


@pytest.mark.parametrize("scale", [1, 5.0, 1e-320, 5e-324, 1e-200, 1e200, 1e300])
def test_translation_of_any_length_is_normalised(scale):
    assert RelativePose(I3.tolist(), [0, 0, scale]).t.tolist() == [0.0, 0.0, 1.0]
    if 1e-320 <= scale <= 1e200:
        t = RelativePose(I3.astype(np.float32), np.array([3.0, 0.0, -4.0]) * scale).t
        np.testing.assert_allclose(t, [0.6, 0.0, -0.8], rtol=1e-3)


def test_maps_camera_0_to_camera_1():
    pose = RelativePose(about_z(90.0), [0.0, 0.0, 1.0])
    np.testing.assert_allclose(pose.matrix() @ [1, 0, 0, 1], [0, 1, 1, 1], atol=1e-15)


def test_essential_vanishes_on_the_two_images_of_a_point():
    pose = RelativePose(about_z(20.0), [0.5, -0.2, 0.1])
    x0 = np.array([0.3, -0.4, 2.0])
    x1 = pose.R @ x0 + pose.t
    assert abs(x1 @ pose.essential() @ x0) < 1e-15
    np.testing.assert_allclose(
        np.linalg.svd(pose.essential(), compute_uv=False), [1, 1, 0], atol=1e-15
    )


@pytest.mark.parametrize("degrees", [1e-10, 1e-3, 30.0, 90.0, 179.0, 180.0 - 1e-7])
def test_angle_and_axis(degrees):
    pose = RelativePose(about_z(degrees), X)
    assert pose.angle_deg == pytest.approx(degrees, rel=1e-9, abs=1e-13)
    np.testing.assert_allclose(pose.axis, [0, 0, 1], atol=1e-12)


def test_axis_of_a_half_turn_and_of_no_turn():
    half = RelativePose(np.diag([-1.0, 1.0, -1.0]), X)
    assert half.angle_deg == 180.0
    np.testing.assert_allclose(np.abs(half.axis), [0, 1, 0])
    assert RelativePose(I3, X).angle_deg == 0.0
    assert RelativePose(I3, X).axis.tolist() == [0.0, 0.0, 1.0]


def test_axis_of_a_rotation_whose_square_underflows():
    w = np.array([[0.0, -3e-160, 0.0], [3e-160, 0.0, -4e-160], [0.0, 4e-160, 0.0]])
    np.testing.assert_allclose(RelativePose(I3 + w, X).axis, [0.8, 0.0, 0.6], atol=1e-12)


def test_poses_are_immutable():
    for cls in (RelativePose, AbsolutePose):
        pose = cls(I3, X)
        for array in (pose.R, pose.t):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 2.0
        with pytest.raises(dataclasses.FrozenInstanceError):
            pose.t = X


def test_absolute_poses_keep_the_length_of_the_translation():
    pose = AbsolutePose([[0, -1, 0], [1, 0, 0], [0, 0, 1]], [2, 0, 5])
    point = np.array([0.3, -0.2, 0.7])
    np.testing.assert_allclose(pose.matrix() @ [*point, 1], [*(pose.R @ point + pose.t), 1])
    np.testing.assert_allclose(pose.matrix() @ [*pose.center, 1], [0, 0, 0, 1], atol=1e-15)
    np.testing.assert_allclose(pose.inverse().matrix() @ pose.matrix(), np.eye(4), atol=1e-15)
    assert pose == AbsolutePose(pose.R, pose.t) == through_pickle(pose)
    assert pose != RelativePose(pose.R, pose.t)
    turn = "90.0000 deg about (+0.0000, +0.0000, +1.0000)"
    assert repr(pose) == f"AbsolutePose({turn}, center (0, 2, -5))"
    with pytest.raises(ValueError, match="R must be a rotation matrix"):
        AbsolutePose(2 * np.eye(3), [0, 0, 0])
    with pytest.raises(ValueError, match="t must hold finite numbers"):
        AbsolutePose(np.eye(3), [0, np.nan, 0])


def test_input_is_copied():
    R, t = np.eye(3), np.array([0.0, 1.0, 0.0])
    pose = RelativePose(R, t)
    R[0, 0], t[1] = 7.0, 7.0  # still writeable
    assert pose == RelativePose(I3, [0, 1, 0])


def test_equality_is_by_content():
    pose = RelativePose(about_z(10.0), X)
    assert pose == RelativePose(about_z(10.0), 3 * X)
    assert pose != RelativePose(about_z(11.0), X)
    assert pose != RelativePose(about_z(10.0), -X)
    assert pose != "pose"
    with pytest.raises(TypeError, match="unhashable"):
        hash(pose)


def through_pickle(pose):
    return pickle.loads(pickle.dumps(pose))  # noqa: S301


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, through_pickle])
def test_copies_are_equal_and_read_only(again):
    pose = RelativePose(about_z(10.0) @ np.diag([-1.0, -1.0, 1.0]), [0.3, 0.2, 0.1])
    other = again(pose)
    assert other == pose
    assert not other.R.flags.writeable
    assert not other.t.flags.writeable


numbers = st.floats(-1.0, 1.0)
quaternions = st.tuples(numbers, numbers, numbers, numbers)
vectors = st.tuples(*[st.floats(-1e6, 1e6)] * 3)


def make(q, t):
    assume(np.linalg.norm(q) > 1e-3 and np.any(t))
    return RelativePose(rotation_from_quaternion(q), t)


@given(quaternions, vectors)
def test_every_pose_is_exact_and_invertible(q, t):
    pose = make(q, t)
    np.testing.assert_allclose(pose.R.T @ pose.R, np.eye(3), atol=1e-14)
    assert abs(np.linalg.norm(pose.t) - 1.0) < 1e-14
    assert RelativePose(pose.R, pose.t) == pose
    np.testing.assert_allclose(pose.inverse().matrix() @ pose.matrix(), np.eye(4), atol=1e-14)
    # Swapping the images transposes E; the sign follows from E = [t]x R on both sides.
    np.testing.assert_allclose(pose.inverse().essential(), pose.essential().T, atol=1e-13)
    angle = np.radians(pose.angle_deg)
    np.testing.assert_allclose(rotation_from_vector(angle * pose.axis), pose.R, atol=1e-14)
    assert 0.0 <= pose.angle_deg <= 180.0
    assert abs(np.linalg.norm(pose.axis) - 1.0) < 1e-14


errors = st.lists(
    st.one_of(st.floats(0, 25), st.sampled_from([0.0, 5.0, 10.0, 180.0, float("inf")])),
    min_size=1,
    max_size=30,
)
turns = st.tuples(*[st.floats(-3, 3)] * 3)


@pytest.mark.parametrize("degrees", [0.0, 1e-9, 1e-5, 0.3, 45.0, 90.0, 179.0, 180 - 1e-6, 180.0])
def test_rotation_error_is_the_angle_also_where_it_is_tiny_or_straight(degrees):
    base = about_z(20.0)
    assert rotation_error_deg(base @ about_z(degrees), base) == pytest.approx(degrees, abs=2e-14)


@pytest.mark.parametrize("degrees", [0.0, 1e-9, 1e-5, 0.3, 45.0, 90.0, 130.0])
@pytest.mark.parametrize("length", [1.0, -1.0, 1e-200, -1e200])
def test_translation_error_is_the_angle_of_the_lines(degrees, length):
    error = translation_error_deg(length * about_z(degrees)[:, 0], [1.0, 0.0, 0.0])
    assert error == pytest.approx(min(degrees, 180.0 - degrees), abs=5e-14)


def test_pose_error_is_the_larger_of_the_two():
    t = np.array([0.0, 0.0, 1.0])
    tilted = np.array([0.0, np.sin(np.deg2rad(7)), np.cos(np.deg2rad(7))])
    assert pose_error_deg(RelativePose(about_z(3), t), np.eye(3), t) == pytest.approx(3)
    assert pose_error_deg(RelativePose(about_z(3), tilted), np.eye(3), t) == pytest.approx(7)
    assert pose_error_deg(RelativePose(np.eye(3), -t), np.eye(3), 5 * t) == 0.0


def test_no_pose_counts_as_half_a_turn():
    assert pose_error_deg(None, np.eye(3), [0, 0, 1]) == 180.0
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
        (2 * np.eye(3), [0, 0, 1], "R_true must be a (3x3 )?rotation matrix"),
        (np.diag([1, 1, -1]), [0, 0, 1], "R_true must be a (3x3 )?rotation matrix"),
        (np.eye(4), [0, 0, 1], "R_true must be a (3x3 )?rotation matrix"),
        (np.full((3, 3), np.nan), [0, 0, 1], "R_true must hold finite numbers"),
        (np.eye(3), [0, 0, 0], "t_true must be a (vector|direction)"),
        (np.eye(3), [0, 0], "t_true must be a (vector|direction)"),
    ],
)
@pytest.mark.parametrize("pose", [None, RelativePose(np.eye(3), [0, 0, 1])])
def test_bad_true_pose_is_named(pose, R, t, message):
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


@given(turns, turns, turns)
def test_rotation_error_is_a_distance_that_frames_do_not_change(a, b, c):
    A, B, C = map(rotation_from_vector, map(np.array, (a, b, c)))
    error = rotation_error_deg(A, B)
    assert 0 <= error <= 180
    assert rotation_error_deg(B, A) == pytest.approx(error, abs=1e-6)
    assert rotation_error_deg(C @ A, C @ B) == pytest.approx(error, abs=1e-6)
    assert error <= rotation_error_deg(A, C) + rotation_error_deg(C, B) + 1e-6
