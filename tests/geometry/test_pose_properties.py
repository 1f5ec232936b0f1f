"""RelativePose: what holds for every rotation and direction."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import assume, given, settings

from manymatch.geometry.pose import RelativePose

no_deadline = settings(deadline=None)

numbers = st.floats(-1.0, 1.0)
quaternions = st.tuples(numbers, numbers, numbers, numbers)
vectors = st.tuples(*[st.floats(-1e6, 1e6)] * 3)


def rotation(q):
    q = np.array(q)
    assume(np.linalg.norm(q) > 1e-3)
    w, x, y, z = q / np.linalg.norm(q)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def make(q, t):
    assume(np.any(t))
    return RelativePose(rotation(q), t)


@no_deadline
@given(quaternions, vectors)
def test_exact_after_construction_and_unchanged_by_another(q, t):
    pose = make(q, t)
    np.testing.assert_allclose(pose.R.T @ pose.R, np.eye(3), atol=1e-14)
    assert abs(np.linalg.norm(pose.t) - 1.0) < 1e-14
    assert RelativePose(pose.R, pose.t) == pose


@no_deadline
@given(quaternions, vectors)
def test_inverse_twice_is_the_pose(q, t):
    pose = make(q, t)
    back = pose.inverse().inverse()
    np.testing.assert_allclose(back.matrix(), pose.matrix(), atol=1e-14)


@no_deadline
@given(quaternions, vectors)
def test_essential_of_the_inverse_is_the_transpose(q, t):
    # Swapping the images transposes E; the sign follows from E = [t]x R on both sides.
    pose = make(q, t)
    np.testing.assert_allclose(pose.inverse().essential(), pose.essential().T, atol=1e-13)


@no_deadline
@given(quaternions, vectors)
def test_angle_and_axis_give_the_rotation_back(q, t):
    pose = make(q, t)
    angle, (x, y, z) = np.radians(pose.angle_deg), pose.axis
    K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    rebuilt = np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K
    np.testing.assert_allclose(rebuilt, pose.R, atol=1e-14)
    assert 0.0 <= pose.angle_deg <= 180.0
    assert abs(np.linalg.norm(pose.axis) - 1.0) < 1e-14


@no_deadline
@given(quaternions, vectors, vectors)
def test_nearest_rotation_of_a_slightly_wrong_matrix(q, t, noise):
    R = rotation(q)
    assume(np.any(t))
    wrong = R @ (np.eye(3) + 1e-13 * np.outer(noise, [1.0, -0.5, 0.25]))
    pose = RelativePose(wrong, t)
    np.testing.assert_allclose(pose.R.T @ pose.R, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(pose.R, R, atol=1e-6)
