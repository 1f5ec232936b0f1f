"""Scores, priors and matchings of the core against slow twins."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manymatch import AssociationGraph, _core
from manymatch.estimate.relative_pose import estimate_relative_pose, score_pose
from manymatch.geometry.pose import rotation_error_deg
from manymatch_lab.datasets.synthetic import CONFIGS, EASY, make_scene
from tests.oracles import scores
from tests.oracles.geometry import sampson_squared
from tests.oracles.matching import is_matching
from tests.oracles.problems import (
    add_hub,
    nearby_pose,
    random_graph,
    random_pose,
    random_problem,
    unique_edges,
)
from tests.oracles.scores import cardinality

TOLERANCE = 1e-9
DELTA = 0.01


def assert_same_score(problem, q, delta, R, t, given=None):
    """Compare every output of the compiled score with the twin's."""
    arguments = (problem.x0, problem.x1, problem.edges, problem.eps, q, delta, R, t)
    hcm, cardinality, inliers, r2 = _core.score(*arguments, belief=given)
    expected_hcm, expected_cardinality, expected_inliers = scores.score(*arguments, given)
    np.testing.assert_array_equal(inliers, expected_inliers)
    assert cardinality == expected_cardinality
    assert hcm == pytest.approx(expected_hcm, rel=TOLERANCE, abs=TOLERANCE)
    ends0, ends1 = problem.x0[problem.edges[:, 0]], problem.x1[problem.edges[:, 1]]
    with np.errstate(all="ignore"):
        expected_r2 = [sampson_squared(a, b, R, t) for a, b in zip(ends0, ends1, strict=True)]
    np.testing.assert_allclose(r2, expected_r2, rtol=1e-7, atol=1e-12 * problem.eps**2)


def poses_to_score(rng, problem):
    """The truth, two poses close to it and a random one."""
    yield problem.R, problem.t
    yield nearby_pose(rng, problem.R, problem.t, 2e-3)
    yield nearby_pose(rng, problem.R, problem.t, 2e-2)
    yield random_pose(rng)


@pytest.mark.parametrize("q", [0.05, 0.3, 1.0 / 3.0, 0.5, 0.95])
@pytest.mark.parametrize("max_degree", [1, 3, 5, 8])
def test_score_equals_the_twin_on_random_graphs(q, max_degree):
    rng = np.random.default_rng([max_degree, round(1000 * q)])
    for _ in range(25):
        problem = random_problem(rng, n=int(rng.integers(5, 30)), max_degree=max_degree)
        for R, t in poses_to_score(rng, problem):
            assert_same_score(problem, q, DELTA, R, t)


@pytest.mark.parametrize("q", [0.3, 1.0 / 3.0, 0.6])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("degree", [6, 8, 9, 16, 30])
def test_hubs_beyond_any_table_size(q, side, degree):
    rng = np.random.default_rng([side, degree])
    for _ in range(4):
        problem = add_hub(rng, random_problem(rng, n=32), side, int(rng.integers(32)), degree)
        for R, t in poses_to_score(rng, problem):
            assert_same_score(problem, q, DELTA, R, t)


def test_graphs_of_the_size_used_in_practice():
    rng = np.random.default_rng(8)
    problem = random_problem(rng, n=340, max_degree=5)
    for R, t in poses_to_score(rng, problem):
        assert_same_score(problem, 0.3, DELTA, R, t)


def test_non_finite_coordinates_are_outliers():
    rng = np.random.default_rng(9)
    for bad in (np.nan, np.inf, -np.inf):
        problem = random_problem(rng, n=25)
        spoiled = rng.choice(25, size=5, replace=False)
        problem.x0[spoiled[:3], rng.integers(0, 2, size=3)] = bad
        problem.x1[spoiled[3:]] = bad
        hcm, _, inliers, r2 = _core.score(
            problem.x0, problem.x1, problem.edges, problem.eps, 0.3, DELTA, problem.R, problem.t
        )
        touched = np.isin(problem.edges[:, 0], spoiled[:3])
        touched |= np.isin(problem.edges[:, 1], spoiled[3:])
        assert touched.any()
        assert not inliers[touched].any()
        assert not np.isfinite(r2[touched]).any()
        assert np.isfinite(hcm)
        assert_same_score(problem, 0.3, DELTA, problem.R, problem.t)


def test_isolated_vertices_add_nothing():
    problem = random_problem(np.random.default_rng(10), n=20)
    far = np.full((7, 2), 0.1)
    padded = [np.vstack([far, x, far]) for x in (problem.x0, problem.x1)]
    rest = problem.eps, 0.3, DELTA, problem.R, problem.t
    plain = _core.score(problem.x0, problem.x1, problem.edges, *rest)
    shifted = _core.score(*padded, problem.edges + np.int32(7), *rest)
    assert shifted[0] == pytest.approx(plain[0], rel=1e-12)
    assert shifted[1] == plain[1]
    np.testing.assert_array_equal(shifted[2], plain[2])


def test_no_edge_and_no_inlier_score_zero():
    problem = random_problem(np.random.default_rng(11), n=20)
    for edges in (problem.edges, problem.edges[:0]):
        score = _core.score(
            problem.x0, problem.x1, edges, 1e-18, 0.3, DELTA, np.eye(3), np.array([1.0, 0, 0])
        )
        assert score[:2] == (0.0, 0)
        assert not score[2].any()
        assert len(score[2]) == len(score[3]) == len(edges)


def test_priors_and_constants_equal_the_paper():
    rng = np.random.default_rng(12)
    for q in (0.1, 0.3, 1.0 / 3.0, 0.8):
        edges = random_graph(rng, 30, 25, 6)
        p, a0, a1 = _core.priors(edges, 30, 25, q, DELTA)
        expected = scores.marginal_probabilities(edges, 30, 25, q)
        np.testing.assert_allclose(p, expected, rtol=1e-14)
        for side, (a, count) in enumerate(((a0, 30), (a1, 25))):
            for vertex, incident in enumerate(scores.neighbours(edges, side, count)):
                mass = scores.match_probability(incident, expected)
                constant = 1.0 / (max(1.0 - mass, 1e-9) * DELTA)
                assert a[vertex] == (pytest.approx(constant, rel=1e-9) if incident else 0.0)


@settings(max_examples=300)
@given(
    edges=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=25),
    q=st.floats(0.01, 0.99),
    delta=st.floats(1e-6, 0.99),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_small_graph(edges, q, delta, seed):
    problem = random_problem(np.random.default_rng(seed), n=6)
    problem = dataclasses.replace(problem, edges=unique_edges(edges), eps=0.02)
    assert_same_score(problem, q, delta, problem.R, problem.t)


@settings(max_examples=100)
@given(
    edges=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=25),
    delta=st.floats(1e-6, 0.99),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_small_graph_with_any_given_priors(edges, delta, seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n=6)
    problem = dataclasses.replace(problem, edges=unique_edges(edges), eps=0.02)
    # Those of a keypoint may sum to more than one, as scores of a matcher do.
    given_priors = rng.uniform(1e-6, 1.0, len(problem.edges))
    assert_same_score(problem, 0.3, delta, problem.R, problem.t, given_priors)


@pytest.mark.parametrize("method", ["hcm-mcm", "hcm", "mcm"])
def test_priors_by_degree_that_are_given_change_nothing(method):
    scene = make_scene(EASY, seed=2)
    graph, cameras = scene.graph, (scene.camera0, scene.camera1)
    by_degree, _, _ = _core.priors(
        graph.edges.astype(np.int32), len(graph.points0), len(graph.points1), 0.3, DELTA
    )
    budget = {"max_iterations": 2000, "seed": 5}
    plain = estimate_relative_pose(graph, *cameras, method, **budget)
    known = with_priors(graph, by_degree)
    same = estimate_relative_pose(known, *cameras, method, **budget)
    np.testing.assert_array_equal(plain.pose.R, same.pose.R)
    np.testing.assert_array_equal(plain.inliers, same.inliers)
    assert (plain.hcm, plain.iterations) == (same.hcm, same.iterations)
    # Other q change what is assigned, not what is given.
    assert estimate_relative_pose(known, *cameras, method, **budget, q=0.1).hcm == plain.hcm


def test_priors_of_the_true_edges_find_the_pose_among_many_false_ones():
    scene = make_scene(CONFIGS["ordering"], seed=11)
    cameras, budget = (scene.camera0, scene.camera1), {"max_iterations": 2000, "seed": 1}
    known = with_priors(scene.graph, np.where(scene.is_true, 0.9, 0.001))
    pose = estimate_relative_pose(known, *cameras, "hcm", **budget).pose
    score, plain = (score_pose(g, *cameras, scene.pose).hcm for g in (known, scene.graph))
    assert score != plain
    assert rotation_error_deg(pose.R, scene.pose.R) < 2.0
    # Scores of several sources have different scales: the assignment by degrees stands for them.
    sources = np.arange(scene.graph.num_edges) % 2
    several = with_priors(scene.graph, known.prior, sources)
    assert score_pose(several, *cameras, scene.pose).hcm == plain


def with_priors(graph, prior, source=None):
    given = graph.points0, graph.points1, graph.edges, graph.similarity, graph.rank
    return AssociationGraph(*given, source=source, prior=prior)


@pytest.mark.parametrize("mechanism", ["hcm", "mcm"])
def test_complete_evaluations_of_many_poses_are_exact_scores(mechanism):
    rng = np.random.default_rng(8)
    problem = random_problem(rng, n=25, max_degree=4)
    R, t = (np.array(part) for part in zip(*poses_to_score(rng, problem), strict=True))
    fixed = (problem.x0, problem.x1, problem.edges, problem.eps, 0.3, DELTA)
    found = _core.screened_scores(*fixed, R, t, mechanism, complete=True)
    exact = [_core.score(*fixed, *pose)[mechanism == "mcm"] for pose in zip(R, t, strict=True)]
    np.testing.assert_array_equal(found, exact)


def test_the_threshold_is_strict_and_depth_starts_at_a_hundredth_of_the_baseline():
    R, t = np.eye(3), np.array([1.0, 0.0, 0.0])
    x0 = np.array([[0.0, 0.0]])
    x1 = np.array([[0.5, 0.002]])
    edge = np.zeros((1, 2), dtype=np.int32)
    r = float(np.sqrt(_core.sampson(x0, x1, R, t)[0][0]))
    assert not _core.score(x0, x1, edge, r * (1 - 1e-12), 0.3, DELTA, R, t)[2][0]
    assert _core.score(x0, x1, edge, r * (1 + 1e-12), 0.3, DELTA, R, t)[2][0]
    # A point at depth z straight ahead of camera 0 appears at 1/z in camera 1.
    for depth, expected in ((0.0099, False), (0.0101, True), (1e3, True)):
        assert _core.sampson(x0, np.array([[1.0 / depth, 0.0]]), R, t)[1][0] == expected
    assert not _core.sampson(x0, np.array([[-0.5, 0.0]]), R, t)[1][0]


@pytest.mark.parametrize("block", range(4))
def test_cardinality_equals_scipy_on_random_subgraphs(block):
    rng = np.random.default_rng([block, 1])
    for _ in range(1200):
        n0, n1 = map(int, rng.integers(1, 60, size=2))
        edges = random_graph(rng, n0, n1, int(rng.integers(1, 7)))
        used = rng.random(len(edges)) < rng.uniform(0.1, 1.0)
        kept = np.ascontiguousarray(edges[used])
        chosen = _core.max_matching(kept, None)
        assert is_matching(kept[chosen])
        assert np.all(np.diff(chosen) > 0)
        assert len(chosen) == cardinality(kept, n0, n1) == _core.cardinality(edges, used)
