import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manymatch.evaluate import pose_auc, rotation_error_deg

errors = st.lists(
    st.one_of(st.floats(0, 25), st.sampled_from([0.0, 5.0, 10.0, 180.0, float("inf")])),
    min_size=1,
    max_size=30,
)
vectors = st.tuples(*[st.floats(-3, 3)] * 3)


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


def exponential(vector):
    angle = np.linalg.norm(vector)
    if angle == 0:
        return np.eye(3)
    x, y, z = np.asarray(vector) / angle
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * (k @ k)


@given(vectors, vectors, vectors)
def test_rotation_error_is_a_distance_that_frames_do_not_change(a, b, c):
    A, B, C = map(exponential, (a, b, c))
    error = rotation_error_deg(A, B)
    assert 0 <= error <= 180
    assert rotation_error_deg(B, A) == pytest.approx(error, abs=1e-6)
    assert rotation_error_deg(C @ A, C @ B) == pytest.approx(error, abs=1e-6)
    assert error <= rotation_error_deg(A, C) + rotation_error_deg(C, B) + 1e-6
