"""Lists of matched points as graphs of candidates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

import manymatch
from manymatch import AssociationGraph, Options
from manymatch.compat.correspondences import (
    correspondences,
    given_camera,
    make_options,
    rotation_vector,
    unknown_focal,
)
from tests.support.matched_points import K, matched

SMALL = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20)


@given(SMALL)
def test_equal_points_are_one_vertex(pairs):
    """Against the definition: rows to points and back, ranks by place, the best first."""
    table = np.random.default_rng(0).uniform(0, 9, (5, 2))
    first = table[[i for i, _ in pairs]].reshape(-1, 2)
    second = table[[j for _, j in pairs]].reshape(-1, 2)
    rows = correspondences(first, second)
    graph = rows.graph
    assert len(graph.points0) == len({i for i, _ in pairs})
    assert len(graph.points1) == len({j for _, j in pairs})
    assert graph.num_edges == len(set(pairs))
    assert graph.num_duplicates == 0
    ends = graph.edges[rows.edge_of_row]
    assert np.array_equal(graph.points0[ends[:, 0]], first)
    assert np.array_equal(graph.points1[ends[:, 1]], second)
    seen, places = [], {}
    for pair in pairs:
        if pair not in seen:
            seen.append(pair)
            places[pair] = sum(i == pair[0] for i, _ in seen)
    # Only edges are listed best first.
    assert (graph.rank is None) == (max(places.values(), default=1) > 1)
    again = correspondences(table, table, np.array(pairs).reshape(-1, 2))
    rank = again.graph.rank
    assert rank[again.edge_of_row].tolist() == [places[pair] for pair in pairs]
    assert np.all(np.diff(rank) >= 0)


def test_list_without_repetition_is_the_graph_of_its_matches():
    data = matched()
    rows = correspondences(data.points0.astype(np.float32)[:, None], data.points1[None])
    points0 = data.points0.astype(np.float32)
    assert rows.graph == AssociationGraph.from_matches(points0, data.points1)
    assert np.array_equal(rows.edge_of_row, np.arange(len(points0)))
    assert correspondences([], []).graph.num_edges == 0
    signed = correspondences([[0.0, 1.0], [-0.0, 1.0]], [[1, 2], [3, 4]])
    assert len(signed.graph.points0) == 1


@pytest.mark.parametrize("place", [0, 2, 4])
def test_list_without_edges_is_solved_in_any_order(place):
    data = matched(400, 200, seed=3)
    rng = np.random.default_rng(0)
    others = [rng.choice(np.delete(np.arange(400), i), 4, replace=False) for i in range(400)]
    edges = np.array([(i, j) for i in range(400) for j in np.insert(others[i], place, i)])
    right = (edges[:, 0] == edges[:, 1]) & (edges[:, 0] < 200)
    rows = correspondences(data.points0[edges[:, 0]], data.points1[edges[:, 1]])
    estimate, mask = rows.solve(
        manymatch.estimate_relative_pose, K, K, options=Options(max_iterations=2000)
    )
    assert mask.sum() == estimate.num_inliers
    assert mask[right].mean() > 0.9


def test_ranks_may_be_given():
    points = np.random.default_rng(0).uniform(0, 9, (4, 2))
    edges = [(0, 1), (0, 2), (1, 1), (0, 1)]
    rows = correspondences(points, points, edges, [3, 1, 2, 1])
    assert rows.graph.edges.tolist() == [[0, 2], [1, 1], [0, 1]]
    assert rows.graph.rank.tolist() == [1, 2, 3]
    assert rows.edge_of_row.tolist() == [2, 0, 1, 2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"points1": np.zeros((3, 2))}, "points1 must hold 4 points, one for each of points0, got"),
        ({"points0": [[1, 2], [3]]}, "points0 must be an .N, 2. array of finite numbers"),
        ({"points0": np.full((4, 2), np.nan)}, "points0 must hold finite numbers"),
        ({"points0": np.zeros((4, 3))}, "points0 must be an .N, 2. array"),
        ({"points0": "points"}, "points0 must be an .N, 2. array"),
        ({"edges": [[0, 9]]}, "edges must hold indices into points1"),
        ({"edges": [[0.5, 1]]}, "edges must hold whole numbers"),
        ({"edges": 3}, "edges must be an .E, 2. array of indices or None"),
        ({"rank": [1, 2]}, "rank must be an array of 4 whole numbers"),
        ({"rank": [1, 2, 0, 1]}, "rank must hold ranks from 1"),
    ],
)
def test_bad_lists_are_one_sentence(given, message):
    points = np.random.default_rng(0).uniform(0, 9, (4, 2))
    with pytest.raises(ValueError, match=message):
        correspondences(**{"points0": points, "points1": points, **given})


def test_options_have_a_minimum_of_iterations_below_their_limit():
    assert make_options({}, max_iterations=50).min_iterations == 50
    assert make_options({}, min_iterations=10, max_iterations=5000).min_iterations == 1000
    assert make_options({}, min_iterations=2000).min_iterations == 2000
    assert 0.999 < make_options({}, confidence=1.0).confidence < 1
    names = {"max_iterations": "maxIters"}
    assert make_options(names, max_iterations=None) == manymatch.Options()
    for value in ("many", 0, 2.5):
        with pytest.raises(ValueError, match=r"^maxIters must be an integer"):
            make_options(names, max_iterations=value)


def test_camera_keeps_its_numbers():
    params = [800.0, 790.0, 320.0, 240.0]
    for size in ({}, {"width": -1, "height": -1}, {"width": 0, "height": 0}):
        camera = given_camera({"model": "PINHOLE", "params": params, **size, "id": 3}, "camera")
        assert (camera.width, camera.params) == (None, tuple(params))
    assert given_camera(K, "camera").params == tuple(params)
    with pytest.raises(ValueError, match=r"^camera2 must be a valid camera, but its model must be"):
        given_camera({"model": "LENS", "params": params}, "camera2")
    with pytest.raises(ValueError, match=r"^camera2 must be"):
        given_camera(None, "camera2")


def test_unknown_focal_length_has_the_prior_of_the_size():
    data = matched()
    sized = manymatch.Camera("PINHOLE", 640, 480, (1.0, 1.0, 310.0, 240.0))
    camera = unknown_focal(sized, data.points0)
    assert camera.params[2:] == (310.0, 240.0)
    usual = manymatch.Camera.unknown(640, 480)
    assert (camera.focal, camera.focal_sigma) == (usual.focal, usual.focal_sigma)
    centred = manymatch.Camera("SIMPLE_PINHOLE", None, None, (1.0, 0.0, 0.0))
    for points, edge in ((data.points0 - (320, 240), 640), (np.zeros((0, 2)), 1)):
        assert unknown_focal(centred, points).focal == pytest.approx(edge, rel=0.2)
    bent = manymatch.Camera("SIMPLE_RADIAL", 640, 480, (500, 320, 240, 0.1))
    with pytest.raises(ValueError, match=r"camera must have no distortion .* got SIMPLE_RADIAL"):
        unknown_focal(bent, data.points0)


def test_rotation_vector():
    for vector in ([0.1, -0.2, 0.3], [0.0, 0.0, 0.0], [0.0, np.pi - 1e-6, 0.0]):
        R = Rotation.from_rotvec(vector).as_matrix()
        np.testing.assert_allclose(rotation_vector(R), vector, atol=1e-9)
