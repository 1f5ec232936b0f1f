"""Situations that are known to break estimators of this kind, one test each."""

import numpy as np
import pytest

import manymatch
from manymatch import AssociationGraph, Options, RelativePose, _core, pose_error_deg
from tests.oracles.geometry import angle_between, rotation_from_vector
from tests.oracles.problems import K, pixels, random_problem

OPTIONS = Options(min_iterations=300, max_iterations=3000)
METHODS = pytest.mark.parametrize("method", ["auto", "hcm-mcm"])


@METHODS
def test_rare_samples_cost_iterations_and_end(method):
    # Exactly one left vertex reaches a fifth right vertex: samples exist and are hard to draw.
    points = np.random.default_rng(3).uniform(0, 700, (60, 2))
    edges = [(i, j) for i in range(60) for j in range(4)] + [(7, 4)]
    graph = AssociationGraph(points, points + 3.0, edges)
    options = Options(min_iterations=10, max_iterations=200)
    assert manymatch.estimate_relative_pose(graph, K, K, method, options=options).iterations <= 200


def test_a_hub_whose_prior_passes_one_is_worth_over_twenty_nats():
    edges = np.array([(0, j) for j in range(5)], dtype=np.int32)
    for q, expected in ((0.3, False), (1.0 / 3.0, True), (0.5, True)):
        p, a0, _ = _core.priors(edges, 1, 5, q, 0.01)
        assert p.sum() == pytest.approx(3.0 * q)
        assert (np.log1p(a0[0] * p[0]) > 20.0) == expected
        assert np.isfinite(a0).all()


@METHODS
def test_coincident_keypoints_count_one_by_one(method):
    # Two detections at one pixel are two vertices here; merging them is the detector's business.
    problem = random_problem(np.random.default_rng(5), n=40, max_degree=1, noise=0.1)
    n = len(problem.x0)
    doubled = AssociationGraph(
        pixels(np.vstack([problem.x0, problem.x0])),
        pixels(np.vstack([problem.x1, problem.x1])),
        np.vstack([problem.edges, problem.edges + n]),
    )
    pose = RelativePose(problem.R, problem.t)
    once = manymatch.score_pose(problem.graph(), K, K, pose)
    twice = manymatch.score_pose(doubled, K, K, pose)
    assert twice.cardinality == 2 * once.cardinality
    estimate = manymatch.estimate_relative_pose(doubled, K, K, method, options=OPTIONS)
    assert pose_error_deg(estimate.pose, problem.R, problem.t) < 2.0


@METHODS
def test_holes_in_the_vertex_numbers_change_nothing(method):
    problem = random_problem(np.random.default_rng(6), n=60)
    graph = problem.graph()
    where0 = np.sort(np.random.default_rng(7).choice(5000, 60, replace=False))
    where1 = np.sort(np.random.default_rng(8).choice(9000, 60, replace=False))
    points0, points1 = np.zeros((5000, 2)), np.zeros((9000, 2))
    points0[where0], points1[where1] = graph.points0, graph.points1
    edges = np.column_stack([where0[graph.edges[:, 0]], where1[graph.edges[:, 1]]])
    sparse = AssociationGraph(points0, points1, edges)
    a = manymatch.estimate_relative_pose(graph, K, K, method, options=OPTIONS)
    b = manymatch.estimate_relative_pose(sparse, K, K, method, options=OPTIONS)
    assert a.pose == b.pose
    assert (a.hcm, a.iterations) == (b.hcm, b.iterations)
    np.testing.assert_array_equal(
        b.matches, np.column_stack([where0[a.matches[:, 0]], where1[a.matches[:, 1]]])
    )


@METHODS
def test_pure_rotation_gives_no_confident_pose(method):
    rng = np.random.default_rng(9)
    R = rotation_from_vector([0.05, -0.1, 0.02])
    x0 = rng.uniform(-0.5, 0.5, size=(100, 2))
    rays = np.column_stack([x0, np.ones(100)]) @ R.T
    edges = np.column_stack([np.arange(100)] * 2)
    graph = AssociationGraph(pixels(x0), pixels(rays[:, :2] / rays[:, 2:]), edges)
    estimate = manymatch.estimate_relative_pose(graph, K, K, method, options=OPTIONS)
    # The rotation can be known, the translation cannot: the estimate reports low parallax.
    assert estimate.low_parallax or not estimate.success
    if estimate.success:
        assert angle_between(estimate.pose.R, R) < np.radians(0.2)


@METHODS
def test_very_different_focal_lengths_share_one_threshold(method):
    rng = np.random.default_rng(12)
    problem = random_problem(rng, n=60, max_degree=2, noise=0.3)
    K0 = np.array([[400.0, 0.0, 512.0], [0.0, 400.0, 384.0], [0.0, 0.0, 1.0]])
    K1 = np.array([[4000.0, 0.0, 512.0], [0.0, 2000.0, 384.0], [0.0, 0.0, 1.0]])
    graph = AssociationGraph(
        pixels(problem.x0, 400.0), problem.x1 * [4000.0, 2000.0] + K1[:2, 2], problem.edges
    )
    pose = RelativePose(problem.R, problem.t)

    def scored(eps):
        return _core.score(
            problem.x0, problem.x1, problem.edges, eps, 0.3, 0.01, problem.R, problem.t
        )

    for threshold in (1.5, 160.0):  # at the larger one, wrong edges are near it too
        score = manymatch.score_pose(graph, K0, K1, pose, Options(threshold_px=threshold))
        hcm, cardinality, inliers, _ = scored(0.5 * (1.0 / 400.0 + 1.0 / 3000.0) * threshold)
        np.testing.assert_array_equal(score.inliers, inliers)
        assert score.cardinality == cardinality
        assert score.hcm == pytest.approx(hcm, rel=1e-9)
    for focal in (400.0, 3000.0):
        assert scored(threshold / focal)[2].sum() != inliers.sum()
    estimate = manymatch.estimate_relative_pose(graph, K0, K1, method, options=OPTIONS)
    assert pose_error_deg(estimate.pose, problem.R, problem.t) < 3.0
