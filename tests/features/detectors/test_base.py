"""What detectors share: peaks, suppression, border, number; against slow obvious twins."""

import dataclasses

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from manymatch.features.detectors import Keypoints, Selection, by_score, first_places
from manymatch.features.registry import load_detector


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(0, 60))
def test_first_places_are_the_first_of_equal_points(seed, count):
    # Halves, and both zeros, make equal positions common.
    points = np.random.default_rng(seed).integers(-4, 4, (count, 2)) / 2.0 * -1.0
    first, which = first_places(points)
    seen = list(dict.fromkeys(map(tuple, (points + 0.0).tolist())))
    assert (points[first] + 0.0).tolist() == [list(place) for place in seen]
    assert [seen[k] for k in which] == list(map(tuple, (points + 0.0).tolist()))
    assert all(first[k] <= i for i, k in enumerate(which))


def slow_peaks(scores, radius, threshold, rounds):
    """Local maxima by looking at every window; the order breaks ties."""
    height, width = scores.shape
    order = sorted(
        ((y, x) for y in range(height) for x in range(width) if scores[y, x] > threshold),
        key=lambda p: (-scores[p], p),
    )
    place = {p: i for i, p in enumerate(order)}
    near = {
        p: [q for q in order if q != p and max(abs(p[0] - q[0]), abs(p[1] - q[1])) <= radius]
        for p in order
    }
    found = set()
    for _ in range(rounds + 1):
        left = {p for p in order if p not in found and not any(q in found for q in near[p])}
        found |= {p for p in left if all(place[p] < place[q] for q in near[p] if q in left)}
    return [[x, y] for y, x in order if (y, x) in found]


@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(0, 4),
    st.integers(0, 3),
)
def test_peaks(seed, height, width, radius, rounds):
    pytest.importorskip("cv2")
    from manymatch.features.detectors.networks import find_peaks

    # Few values, so that there are plateaus.
    scores = np.random.default_rng(seed).integers(0, 9, (height, width)).astype(np.float32)
    found = find_peaks(scores, radius, 1.5, rounds)
    assert found.tolist() == slow_peaks(scores, radius, 1.5, rounds)


def test_choice_keeps_the_border_free_and_the_best():
    selection = Selection(3, 0, 4, 0.0)
    points = np.array([[4, 4], [3.9, 10], [95, 45], [95.1, 10], [10, 45.1], [10, 10], [20, 20.0]])
    assert selection.choose(points, (100, 50)).tolist() == [0, 2, 5]
    assert selection.choose(points, (8, 8)).tolist() == []
    assert dataclasses.replace(selection, border=0, max_keypoints=9).choose(
        points, (100, 50)
    ).tolist() == list(range(7))


def test_equal_scores_stay_in_order():
    assert by_score(np.array([1, 3, 1, 3, 2], np.float32)).tolist() == [1, 3, 4, 0, 2]


def test_take_keeps_further_descriptors_with_their_keypoints():
    keypoints = Keypoints(
        np.arange(8.0).reshape(4, 2),
        np.arange(4, 0, -1).astype(np.float32),
        np.arange(4, dtype=np.float32)[:, None],
        np.array([[30.0], [10.0], [31.0]], np.float32),
        np.array([3, 1, 3]),
    )
    taken = keypoints.take(np.array([3, 0]))
    assert taken.descriptors.ravel().tolist() == [3, 0]
    assert taken.further.ravel().tolist() == [30, 31]
    assert taken.owners.tolist() == [0, 0]
    masked = keypoints.take(np.array([True, True, False, False]))
    assert masked.further.ravel().tolist() == [10]
    assert masked.owners.tolist() == [1]


def test_grid_centres():
    grid = load_detector("grid", border=0)
    found = grid.detect(np.zeros((33, 50, 3), np.uint8))
    assert found.points.tolist() == [[x, y] for y in (7.5, 23.5) for x in (7.5, 23.5, 39.5)]
    assert found.descriptors is None
    assert (found.scores == 1).all()
    bordered = load_detector("grid", border=8).detect(np.zeros((33, 50, 3), np.uint8))
    assert bordered.points.tolist() == [[23.5, 23.5], [39.5, 23.5]]


@settings(max_examples=50)
@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 300))
def test_grid_stays_regular_within_its_number(width, height, count):
    grid, stride = load_detector("grid", border=0, max_keypoints=count), 16
    points = grid.detect(np.zeros((height, width, 3), np.uint8)).points
    assert len(points) <= count
    assert (len(points) == 0) == (min(width, height) < stride)
    cells = (points - (stride - 1) / 2) / stride
    assert (cells == np.round(cells)).all()
    for axis in range(2):
        steps = np.diff(np.unique(cells[:, axis]))
        assert len(set(steps.tolist())) <= 1


@pytest.mark.parametrize("name", ["shift", "SIFT", "", "grid:8", "aliked-n17", "disk"])
def test_unknown_names(name):
    with pytest.raises(ValueError, match=r"^detector must be one of .*sift, .*, got '") as caught:
        load_detector(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("max_keypoints", 0),
        ("max_keypoints", 2.5),
        ("border", -1),
        ("border", True),
        ("threshold", float("nan")),
        ("threshold", "low"),
        ("weights", "a.pth"),
    ],
)
def test_bad_settings_are_named(argument, value):
    pytest.importorskip("cv2")
    with pytest.raises(ValueError, match=rf"^{argument} must be"):
        load_detector("sift", **{argument: value})


def test_detectors_of_opencv_have_no_radius():
    with pytest.raises(ValueError, match=r"^nms_radius must be left out for the detector 'sift'"):
        load_detector("sift", nms_radius=3)


@pytest.mark.parametrize("setting", ["threshold", "nms_radius", "weights"])
def test_a_grid_has_no_such_setting(setting):
    with pytest.raises(ValueError, match=rf"^{setting} must be left out for the detector 'grid'"):
        load_detector("grid", **{setting: 1})
