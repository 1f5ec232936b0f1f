"""Graphs of all pairs of a place: tracks, overlap, the choice of pairs and the files."""

import itertools

import numpy as np
import pytest

from benchmarks.accuracy import all_pairs
from manymatch import AssociationGraph
from manymatch.io import load_graph

K = np.array([[400.0, 0.0, 159.5], [0.0, 400.0, 119.5], [0.0, 0.0, 1.0]])


def camera(x, turn_deg=0.0):
    c, s = np.cos(np.deg2rad(turn_deg)), np.sin(np.deg2rad(turn_deg))
    R = np.array([[c, 0.0, -s], [0.0, 1.0, 0.0], [s, 0.0, c]])
    return {"K": K, "R": R, "t": -R @ np.array([x, 0.0, 0.0]), "size": np.array([320.0, 240.0])}


@pytest.fixture
def place():
    """Four cameras in a row before 200 points, and one that looks away."""
    rng = np.random.default_rng(0)
    points = rng.uniform((-1.0, -0.8, 4.0), (1.0, 0.8, 6.0), (200, 3))
    cameras = {name: camera(x) for name, x in zip("abcd", (-0.3, -0.1, 0.1, 0.3), strict=True)}
    cameras["e"] = camera(0.0, 180.0)
    return cameras, points


def perfect_graph(cameras, points, first, second):
    pixels = [all_pairs.project(cameras[name], points)[0] for name in (first, second)]
    edges = np.repeat(np.arange(len(points))[:, None], 2, axis=1)
    return AssociationGraph(*pixels, edges, rank=np.ones(len(points), np.int32))


def test_true_matches_leave_out_what_is_off_the_epipolar_line(place):
    cameras, points = place
    graph = perfect_graph(cameras, points, "a", "b")
    moved = graph.points1 + np.where(np.arange(200) < 50, 6.0, 0.0)[:, None]
    mixed = AssociationGraph(graph.points0, moved, graph.edges, rank=graph.rank)
    kept = all_pairs.true_matches(mixed, cameras["a"], cameras["b"], 2.0)
    np.testing.assert_array_equal(kept[:, 0], np.arange(50, 200))


def test_tracks_give_points_and_overlap(place):
    cameras, points = place
    names = list(cameras)
    keypoints = [all_pairs.project(cameras[name], points)[0] for name in names]
    both = np.repeat(np.arange(200)[:, None], 2, axis=1)
    # The last camera matches nothing, and the keypoints of the others are followed in a chain.
    matches = {(0, 1): both, (1, 2): both[:150], (2, 3): both[:100]}
    tracks = all_pairs.find_tracks(names, keypoints, matches, cameras, 2.0)
    assert len(tracks) == 150
    found = np.array([X for X, _ in tracks])
    nearest = np.linalg.norm(found[:, None] - points[None], axis=2).min(axis=1)
    assert nearest.max() < 1e-6
    share, common = all_pairs.overlap_of_tracks(names, cameras, tracks)
    assert common[0, 1] == common[0, 2] == 150
    assert common[0, 3] == 100
    assert share[0, 3] > 0.9
    np.testing.assert_array_equal(share[:, 4], 0.0)
    np.testing.assert_array_equal(share[4], 0.0)


def test_track_with_two_places_in_an_image_is_dropped(place):
    cameras, points = place
    names = list(cameras)
    keypoints = [all_pairs.project(cameras[name], points)[0] for name in names]
    both = np.repeat(np.arange(200)[:, None], 2, axis=1)
    wrong = both.copy()
    wrong[:2, 1] = [1, 0]
    matches = {(0, 1): both, (1, 2): both, (0, 2): wrong}
    assert len(all_pairs.find_tracks(names, keypoints, matches, cameras, 2.0)) == 198


def test_choice_of_pairs_is_even_over_overlap_and_grows():
    rng = np.random.default_rng(1)
    share = np.where(rng.random((40, 40)) < 0.8, 0.0, rng.random((40, 40)))
    share = np.maximum(share, share.T)
    few, many = all_pairs.choose_pairs(share, 60), all_pairs.choose_pairs(share, 150)
    assert few == all_pairs.choose_pairs(share, 60)
    assert set(few) < set(many)
    overlap = np.array([share[i, j] for i, j in few])
    assert 0 < np.mean(overlap == 0.0) < 0.3
    assert all_pairs.choose_pairs(share, 1000) == list(itertools.combinations(range(40), 2))


def test_file_comes_back(tmp_path, place):
    cameras, points = place
    graph = perfect_graph(cameras, points, "a", "d")
    known = {name: np.zeros(3) for name in all_pairs.PAIR_ARRAYS}
    R, t = all_pairs.relative(cameras["a"], cameras["d"])
    known |= {"R": R, "t": t, "name0": "a", "name1": "d"}
    all_pairs.save_pair(graph, known, tmp_path / "a__d.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["a__d.npz"]
    again, values = all_pairs.read_pair(tmp_path / "a__d.npz")
    assert again == graph == load_graph(tmp_path / "a__d.npz")
    assert str(values["name1"]) == "d"
    np.testing.assert_array_equal(values["R"], R)
    np.testing.assert_allclose(values["t"], [-0.6, 0.0, 0.0], atol=1e-15)
