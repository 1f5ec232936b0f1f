"""RelativePose: bad input, conversions, and what holds for every pose."""

import copy
import dataclasses
import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given

from manymatch.geometry.pose import RelativePose
from tests.oracles.geometry import rotation_from_quaternion

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


@pytest.mark.parametrize("R", BAD_R, ids=range(len(BAD_R)))
def test_bad_rotation_names_it(R):
    with pytest.raises(ValueError, match=r"^R must .*, got "):
        RelativePose(R, X)


@pytest.mark.parametrize("t", BAD_T, ids=range(len(BAD_T)))
def test_bad_translation_names_it(t):
    with pytest.raises(ValueError, match=r"^t must .*, got "):
        RelativePose(I3, t)


def test_rotation_is_projected_to_the_nearest_one():
    R = about_z(30.0)
    noisy = R + 2e-7 * np.array([[1, -1, 1], [1, 1, -1], [-1, 1, 1]])
    pose = RelativePose(noisy, X)
    np.testing.assert_allclose(pose.R.T @ pose.R, I3, atol=1e-15)
    # Nearest means that what was removed is symmetric in the frame of the rotation.
    removed = pose.R.T @ noisy
    np.testing.assert_allclose(removed, removed.T, atol=1e-15)


def test_float32_rotation_is_accepted():
    R = about_z(30.0).astype(np.float32)
    np.testing.assert_allclose(RelativePose(R, X).R, about_z(30.0), atol=1e-7)


@pytest.mark.parametrize("scale", [1.0, 5.0, 1e-300, 5e-324, 1e300])
def test_translation_is_normalised_whatever_its_length(scale):
    pose = RelativePose(I3, np.array([0.0, 0.0, scale]))
    assert pose.t.tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e200])
def test_direction_survives_extreme_lengths(scale):
    np.testing.assert_allclose(
        RelativePose(I3, np.array([3.0, 0.0, -4.0]) * scale).t, [0.6, 0.0, -0.8], rtol=1e-3
    )


def test_lists_and_integers_are_accepted():
    pose = RelativePose([[1, 0, 0], [0, 1, 0], [0, 0, 1]], (0, 2, 0))
    assert pose.t.tolist() == [0.0, 1.0, 0.0]


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


def test_essential_sign_is_that_of_the_cross_product():
    pose = RelativePose(I3, [1, 0, 0])
    np.testing.assert_array_equal(pose.essential() @ [0, 1, 0], [0, 0, 1])


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


def test_immutable():
    pose = RelativePose(I3, X)
    for array in (pose.R, pose.t):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 2.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        pose.t = X


def test_input_is_copied():
    R, t = np.eye(3), np.array([0.0, 1.0, 0.0])
    pose = RelativePose(R, t)
    R[0, 0], t[1] = 7.0, 7.0
    assert pose.R[0, 0] == 1.0
    assert pose.t[1] == 1.0
    assert R.flags.writeable
    assert t.flags.writeable


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
def test_exact_after_construction_and_unchanged_by_another(q, t):
    pose = make(q, t)
    np.testing.assert_allclose(pose.R.T @ pose.R, np.eye(3), atol=1e-14)
    assert abs(np.linalg.norm(pose.t) - 1.0) < 1e-14
    assert RelativePose(pose.R, pose.t) == pose


@given(quaternions, vectors)
def test_inverse_undoes_the_map(q, t):
    pose = make(q, t)
    np.testing.assert_allclose(pose.inverse().matrix() @ pose.matrix(), np.eye(4), atol=1e-14)


@given(quaternions, vectors)
def test_essential_of_the_inverse_is_the_transpose(q, t):
    # Swapping the images transposes E; the sign follows from E = [t]x R on both sides.
    pose = make(q, t)
    np.testing.assert_allclose(pose.inverse().essential(), pose.essential().T, atol=1e-13)


@given(quaternions, vectors)
def test_angle_and_axis_give_the_rotation_back(q, t):
    pose = make(q, t)
    angle, (x, y, z) = np.radians(pose.angle_deg), pose.axis
    K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    rebuilt = np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K
    np.testing.assert_allclose(rebuilt, pose.R, atol=1e-14)
    assert 0.0 <= pose.angle_deg <= 180.0
    assert abs(np.linalg.norm(pose.axis) - 1.0) < 1e-14
