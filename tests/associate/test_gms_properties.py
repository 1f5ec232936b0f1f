"""The compiled GMS filter against its quadratic twin, on random and on unpleasant graphs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manymatch
from manymatch import _core
from tests.oracles.gms import gms
from tests.oracles.problems import unique_edges

# Small lattices: coincident points, borders of cells and equal supports are the rule.
LATTICE = st.integers(0, 24).map(float)
ANYWHERE = st.floats(-30.0, 60.0, width=32)


@st.composite
def graphs(draw, coordinate=LATTICE, max_points=12, max_edges=30):
    points0, points1 = (
        draw(st.lists(st.tuples(coordinate, coordinate), min_size=1, max_size=max_points))
        for _ in range(2)
    )
    edge = st.tuples(st.integers(0, len(points0) - 1), st.integers(0, len(points1) - 1))
    edges = unique_edges(draw(st.lists(edge, max_size=max_edges)))
    return manymatch.AssociationGraph(points0, points1, edges)


options = st.fixed_dictionaries(
    {
        "threshold": st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 4.0]),
        "grid": st.integers(2, 7),
        "scales": st.booleans(),
        "rotations": st.booleans(),
        "crop": st.booleans(),
        "integer_mean": st.booleans(),
    }
)
sizes = st.tuples(st.integers(1, 40), st.integers(1, 40))


def assert_equals_twin(graph, size0, size1, **chosen):
    """Mask and winning setting are those of the twin; returns the result."""
    result = manymatch.gms_filter(graph, size0, size1, **chosen)
    mask, scale, rotation = gms(graph.points0, graph.points1, graph.edges, size0, size1, **chosen)
    np.testing.assert_array_equal(result.mask, mask)
    assert (result.num_kept, result.rotation) == (mask.sum(), rotation)
    assert result.scale == (None if scale is None else pytest.approx(scale, rel=1e-15))
    return result


@settings(max_examples=120, deadline=None)
@given(graphs(), sizes, sizes, options)
def test_lattices(graph, size0, size1, chosen):
    assert_equals_twin(graph, size0, size1, **chosen)


@settings(max_examples=60, deadline=None)
@given(graphs(ANYWHERE), sizes, sizes, options)
def test_points_anywhere(graph, size0, size1, chosen):
    assert_equals_twin(graph, size0, size1, **chosen)


@settings(max_examples=60, deadline=None)
@given(graphs(st.sampled_from([0.0, 1.0, 9.0]), max_edges=60), sizes, sizes, options)
def test_many_edges_in_few_cells(graph, size0, size1, chosen):
    assert_equals_twin(graph, size0, size1, **chosen)


def moved_scene(rng, count, turn=0.0, zoom=1.0, noise=3.0, clutter=1.0, candidates=1):
    """Points that move together in a 640 x 480 image, each with some candidates, and clutter."""
    centre = np.array([320.0, 240.0])
    points0 = centre + rng.uniform(-150.0, 150.0, size=(count, 2))
    c, s = zoom * np.cos(turn), zoom * np.sin(turn)
    points1 = centre + (points0 - centre) @ np.array([[c, s], [-s, c]])
    points1 += rng.normal(scale=noise, size=points1.shape)
    true = [(i, i) for i in range(count)]
    wrong = rng.integers(0, count, size=(int(clutter * count * candidates), 2))
    edges = unique_edges([*true, *wrong.tolist()])
    edges = edges[rng.permutation(len(edges))]
    return manymatch.AssociationGraph(points0, points1, edges)


@pytest.mark.parametrize("seed", range(4))
def test_scenes(seed):
    rng = np.random.default_rng([seed, 5])
    graph = moved_scene(rng, 90, seed * np.pi / 4, (1.0, 1.4, 0.7, 0.5)[seed], candidates=2)
    chosen = {"threshold": 1.5, "crop": seed % 2 == 0, "integer_mean": seed < 2}
    result = assert_equals_twin(graph, (640, 480), (640, 480), **chosen)
    assert 0 < result.num_kept < graph.num_edges


def test_hubs():
    rng = np.random.default_rng(8)
    graph = moved_scene(rng, 60)
    hubs = [(i, 0) for i in range(40)] + [(1, j) for j in range(40)]
    edges = unique_edges([*graph.edges.tolist(), *hubs])
    graph = manymatch.AssociationGraph(graph.points0, graph.points1, edges)
    for threshold in (0.0, 1.0, 3.0):
        assert_equals_twin(graph, (640, 480), (640, 480), threshold=threshold, grid=6)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 150), st.integers(1, 150), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_support_is_the_size_of_a_maximum_matching(n0, n1, degree, seed):
    # Everything lies in the middle cell of nine, so the score is m and the mean is n / 9.
    rng = np.random.default_rng(seed)
    edges = unique_edges([(i, int(j)) for i in range(n0) for j in rng.integers(0, n1, size=degree)])
    graph = manymatch.AssociationGraph(np.full((n0, 2), 12.0), np.full((n1, 2), 12.0), edges)
    m = _core.cardinality(edges, np.ones(len(edges), dtype=bool))
    fixed = {"grid": 3, "scales": False, "rotations": False, "crop": False, "integer_mean": False}
    for slack, kept in ((1.0 - 1e-9, len(edges)), (1.0 + 1e-9, 0)):
        threshold = slack * m / np.sqrt(n0 / 9.0)
        result = manymatch.gms_filter(graph, (30, 30), (30, 30), threshold, **fixed)
        assert result.num_kept == kept


@settings(max_examples=80, deadline=None)
@given(graphs(), options, st.integers(0, 2**32 - 1))
def test_names_of_keypoints_and_order_of_edges_mean_nothing(graph, chosen, seed):
    rng = np.random.default_rng(seed)
    new0, new1 = rng.permutation(len(graph.points0)), rng.permutation(len(graph.points1))
    order = rng.permutation(graph.num_edges)
    points0, points1 = np.empty_like(graph.points0), np.empty_like(graph.points1)
    points0[new0], points1[new1] = graph.points0, graph.points1
    edges = np.column_stack([new0[graph.edges[:, 0]], new1[graph.edges[:, 1]]])[order]
    other = manymatch.AssociationGraph(points0, points1, edges)
    before = manymatch.gms_filter(graph, (25, 25), (25, 25), **chosen)
    after = manymatch.gms_filter(other, (25, 25), (25, 25), **chosen)
    np.testing.assert_array_equal(after.mask, before.mask[order])
    assert (after.scale, after.rotation) == (before.scale, before.rotation)


@settings(max_examples=60, deadline=None)
@given(graphs(), options)
def test_isolated_keypoints_play_no_part(graph, chosen):
    far = [[-1e4, 3e4]]
    more = manymatch.AssociationGraph(
        np.concatenate([graph.points0, far]), np.concatenate([graph.points1, far]), graph.edges
    )
    before = manymatch.gms_filter(graph, (25, 25), (25, 25), **chosen)
    after = manymatch.gms_filter(more, (25, 25), (25, 25), **chosen)
    np.testing.assert_array_equal(after.mask, before.mask)


def opencv_mask(graph, size0, size1, threshold, scales, rotations):
    """Mask of OpenCV's one-to-one filter, or skip where it is not installed."""
    cv2 = pytest.importorskip("cv2", reason="needs OpenCV with its contributed modules")
    match_gms = getattr(getattr(cv2, "xfeatures2d", None), "matchGMS", None)
    if match_gms is None:
        pytest.skip("the installed OpenCV has no xfeatures2d.matchGMS (opencv-contrib-python)")
    keypoints = [
        [cv2.KeyPoint(float(x), float(y), 1.0) for x, y in points]
        for points in (graph.points0, graph.points1)
    ]
    matches = [cv2.DMatch(int(i), int(j), 0.0) for i, j in graph.edges]
    kept = match_gms(size0, size1, *keypoints, matches, rotations, scales, threshold)
    pairs = {(match.queryIdx, match.trainIdx) for match in kept}
    return np.array([(int(i), int(j)) in pairs for i, j in graph.edges], dtype=bool)


@pytest.mark.parametrize("seed", range(12))
def test_one_to_one_agrees_with_opencv(seed):
    rng = np.random.default_rng([seed, 9])
    scene = moved_scene(rng, 700, seed * np.pi / 4, (1.0, 1.4, 0.7)[seed % 3], clutter=0.0)
    partner = np.arange(700)
    lost = rng.choice(700, size=350, replace=False)
    partner[lost] = rng.permutation(partner[lost])
    points0, points1 = (
        np.clip(points, 0.0, [639.5, 479.5]).astype(np.float32)
        for points in (scene.points0, scene.points1)
    )
    edges = np.column_stack([np.arange(700), partner])
    graph = manymatch.AssociationGraph(points0, points1, edges)
    size = (640, 480)
    for scales, rotations in ((False, False), (False, True), (True, False), (True, True)):
        for threshold in (1.0, 2.0, 6.0):
            result = manymatch.gms_filter(
                graph, size, size, threshold, 20, scales, rotations, crop=False, integer_mean=False
            )
            expected = opencv_mask(graph, size, size, threshold, scales, rotations)
            np.testing.assert_array_equal(result.mask, expected)
