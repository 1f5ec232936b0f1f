"""The whole estimator against a slow loop that follows the algorithm one iteration at a time."""

import numpy as np
import pytest

import manymatch
from tests.oracles.geometry import angle_between
from tests.oracles.problems import random_problem
from tests.oracles.ransac import Loop

FOCAL = 800.0
K = np.array([[FOCAL, 0.0, 512.0], [0.0, FOCAL, 384.0], [0.0, 0.0, 1.0]])
METHODS = ("hcm", "mcm", "hcm-mcm")


def to_graph(problem):
    """The problem in pixels."""
    centre = K[:2, 2]
    return manymatch.AssociationGraph(
        FOCAL * problem.x0 + centre, FOCAL * problem.x1 + centre, problem.edges
    )


def compacted(graph):
    """Normalised points of the vertices in use, renumbered edges, eps for one pixel."""
    camera = manymatch.Camera.from_matrix(K)
    used0, first = np.unique(graph.edges[:, 0], return_inverse=True)
    used1, second = np.unique(graph.edges[:, 1], return_inverse=True)
    edges = np.column_stack([first, second]).astype(np.int32)
    x0 = np.ascontiguousarray(camera.unproject(graph.points0[used0]))
    x1 = np.ascontiguousarray(camera.unproject(graph.points1[used1]))
    return x0, x1, np.ascontiguousarray(edges), 0.5 * (1.0 / FOCAL + 1.0 / FOCAL)


def assert_same_run(graph, method, options, proposals=None):
    """One run of the estimator equals one run of the twin."""
    estimate = manymatch.estimate_relative_pose(graph, K, K, method, options, proposals)
    twin = Loop(*compacted(graph), method, options, proposals).run()
    assert estimate.iterations == twin.iterations
    assert estimate.refinements == twin.local_refinements + twin.pool_refinements
    assert estimate.success == (twin.R is not None)
    if estimate.success:
        assert angle_between(estimate.pose.R, twin.R) < 1e-8
        assert np.linalg.norm(estimate.pose.t - twin.t) < 1e-8
    return estimate


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(6))
def test_the_loop_equals_its_slow_twin(method, seed):
    problem = random_problem(np.random.default_rng([seed, 1]), n=60, max_degree=4)
    options = manymatch.Options(min_iterations=100, max_iterations=1500, seed=seed)
    estimate = assert_same_run(to_graph(problem), method, options)
    assert estimate.success


@pytest.mark.parametrize("method", METHODS)
def test_hard_graphs_run_to_the_limit(method):
    rng = np.random.default_rng(2)
    problem = random_problem(rng, n=120, max_degree=5, noise=0.5)
    wrong = rng.permutation(120)
    edges = np.array(
        [(i, wrong[j]) if i > 25 else (i, j) for i, j in problem.edges], dtype=np.int32
    )
    graph = manymatch.AssociationGraph(
        FOCAL * problem.x0 + K[:2, 2], FOCAL * problem.x1 + K[:2, 2], edges
    )
    options = manymatch.Options(min_iterations=50, max_iterations=2000, seed=3)
    assert assert_same_run(graph, method, options).iterations == 2000


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("share", [0.2, 0.6])
def test_proposals_restrict_the_samples_and_nothing_else(method, share):
    rng = np.random.default_rng([3, round(10 * share)])
    problem = random_problem(rng, n=70, max_degree=4)
    graph = to_graph(problem)
    proposals = rng.random(graph.num_edges) < share
    options = manymatch.Options(min_iterations=100, max_iterations=1000, seed=11)
    assert_same_run(graph, method, options, proposals)


@pytest.mark.parametrize("pool_size", [1, 2, 7, 5000])
def test_pool_sizes(pool_size):
    problem = random_problem(np.random.default_rng([4, pool_size]), n=50, max_degree=4, noise=0.7)
    options = manymatch.Options(min_iterations=300, max_iterations=800, seed=5, pool_size=pool_size)
    assert_same_run(to_graph(problem), "hcm-mcm", options)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("low", "high"), [(1, 1), (1, 50), (10, 11), (500, 500), (1, 10_000)])
def test_iteration_limits(method, low, high):
    problem = random_problem(np.random.default_rng(6), n=50, max_degree=2, noise=0.2)
    options = manymatch.Options(min_iterations=low, max_iterations=high, seed=1)
    assert_same_run(to_graph(problem), method, options)


@pytest.mark.parametrize("q", [1.0 / 3.0, 0.6])
def test_other_priors(q):
    problem = random_problem(np.random.default_rng(8), n=50, max_degree=5)
    options = manymatch.Options(min_iterations=100, max_iterations=500, q=q, delta=0.05)
    assert_same_run(to_graph(problem), "hcm-mcm", options)


@pytest.mark.parametrize("method", [*METHODS, "cm"])
def test_easy_graphs_are_solved_and_reported_consistently(method):
    for seed in range(5):
        problem = random_problem(np.random.default_rng([9, seed]), n=80, max_degree=3)
        graph = to_graph(problem)
        options = manymatch.Options(min_iterations=500, max_iterations=5000, seed=seed)
        estimate = manymatch.estimate_relative_pose(graph, K, K, method, options)
        assert estimate.success
        assert not estimate.failure
        assert angle_between(estimate.pose.R, problem.R) < np.radians(1.0)
        score = manymatch.score_pose(graph, K, K, estimate.pose, options)
        assert estimate.hcm == score.hcm
        assert estimate.cardinality == score.cardinality
        assert estimate.num_inliers == score.num_inliers == estimate.inliers.sum()
        np.testing.assert_array_equal(estimate.inliers, score.inliers)
        assert_resolved(graph, estimate)
        assert all(seconds >= 0.0 for seconds in estimate.timing.values())


def assert_resolved(graph, estimate):
    """matches is a maximum matching of the inlier graph, so every keypoint appears at most once."""
    assert estimate.matches.shape == (estimate.cardinality, 2)
    inlier_edges = {tuple(edge) for edge in graph.edges[estimate.inliers].tolist()}
    assert {tuple(match) for match in estimate.matches.tolist()} <= inlier_edges
    for side in (0, 1):
        assert len(np.unique(estimate.matches[:, side])) == len(estimate.matches)


def test_full_guidance_is_a_run_with_rank_one_proposals():
    rng = np.random.default_rng(10)
    problem = random_problem(rng, n=70, max_degree=4)
    rank = rng.integers(1, 4, size=len(problem.edges))
    graph = to_graph(problem)
    ranked = manymatch.AssociationGraph(graph.points0, graph.points1, graph.edges, rank=rank)
    options = manymatch.Options(min_iterations=100, max_iterations=800, seed=2)
    plain = manymatch.estimate_relative_pose(graph, K, K, "hcm-mcm", options, rank == 1)
    guided = manymatch.estimate_relative_pose(
        ranked, K, K, "hcm-mcm", options.replace(guidance=1.0)
    )
    assert guided.iterations == plain.iterations
    np.testing.assert_array_equal(guided.pose.R, plain.pose.R)


def test_guidance_zero_ignores_the_ranks():
    problem = random_problem(np.random.default_rng(11), n=60, max_degree=4)
    graph = to_graph(problem)
    ranked = manymatch.AssociationGraph(
        graph.points0, graph.points1, graph.edges, rank=np.ones(graph.num_edges, dtype=np.int32)
    )
    options = manymatch.Options(min_iterations=100, max_iterations=500)
    a, b = (manymatch.estimate_relative_pose(g, K, K, "hcm-mcm", options) for g in (graph, ranked))
    assert a.pose == b.pose


@pytest.mark.parametrize("method", METHODS)
def test_a_best_model_that_comes_late_ends_the_search_where_it_was_found(method):
    for seed in range(4):
        problem = random_problem(np.random.default_rng([seed, 77]), n=60, max_degree=3)
        options = manymatch.Options(
            min_iterations=1, max_iterations=3000, seed=seed, confidence=0.5, safety=0.2
        )
        assert_same_run(to_graph(problem), method, options)
