"""Refinement: the derivative, the normal equations, the rules of gathering, and the minima."""

import numpy as np
import poselib
import pytest

from manymatch import _core
from tests.oracles import refinement
from tests.oracles.geometry import angle_between, rotation_from_vector
from tests.oracles.problems import nearby_pose, random_pose, random_problem, two_view_points

LOSSES = ("truncated", "cauchy", "squared")
EPS = 1.0 / 800.0


def noisy_pairs(rng, count, noise, outliers=0):
    """Corresponding points (count, 2) with noise in units of EPS, some of them wrong."""
    R, t = random_pose(rng)
    x0, x1 = two_view_points(rng, count, R, t)
    x0 = x0 + rng.normal(scale=noise * EPS, size=x0.shape)
    x1 = x1 + rng.normal(scale=noise * EPS, size=x1.shape)
    x1[:outliers] += rng.normal(scale=0.05, size=(outliers, 2))
    return x0, x1, R, t


def assert_pose(R, t):
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(R) == pytest.approx(1.0, abs=1e-12)
    assert np.linalg.norm(t) == pytest.approx(1.0, abs=1e-12)


def test_perturb_turns_and_tilts():
    rng = np.random.default_rng(0)
    for _ in range(200):
        R, t = random_pose(rng, 3.0)
        step = rng.normal(size=5) * rng.choice([1e-9, 1e-4, 0.1, 1.0])
        R_moved, t_moved = _core.perturb(R, t, step)
        assert_pose(R_moved, t_moved)
        np.testing.assert_allclose(R_moved, R @ rotation_from_vector(step[:3]), atol=1e-14)
    R, t = random_pose(rng)
    tangents = [_core.perturb(R, t, 1e-6 * np.eye(5)[k])[1] - t for k in (3, 4)]
    gram = 1e12 * np.array([[a @ b for b in tangents] for a in tangents])
    np.testing.assert_allclose(gram, np.eye(2), atol=1e-4)
    for tangent in tangents:
        assert abs(tangent @ t) < 1e-11


@pytest.mark.parametrize("loss", LOSSES)
def test_costs_are_those_of_the_poses_and_never_grow(loss):
    rng = np.random.default_rng(3)
    for _ in range(60):
        x0, x1, R, t = noisy_pairs(rng, 50, noise=0.5, outliers=8)
        weight = rng.uniform(0.2, 2.0, size=50)
        start = nearby_pose(rng, R, t, 3e-3)
        R_out, t_out, before, after, iterations = _core.refine(
            x0, x1, weight, *start, EPS, loss, 25
        )
        assert_pose(R_out, t_out)
        assert 0 <= iterations <= 25
        cost = refinement.weighted_cost
        assert before == pytest.approx(cost(x0, x1, weight, *start, EPS, loss), rel=1e-9)
        assert after == pytest.approx(cost(x0, x1, weight, R_out, t_out, EPS, loss), rel=1e-9)
        assert after <= before


def test_weighted_cauchy_minimum_equals_scipy():
    rng = np.random.default_rng(5)
    for _ in range(30):
        x0, x1, R, t = noisy_pairs(rng, 60, noise=0.5, outliers=6)
        weight = rng.uniform(0.2, 2.0, size=60)
        R_out, t_out, _, after, _ = _core.refine(x0, x1, weight, R, t, EPS, "cauchy", 100)
        R_scipy, t_scipy = refinement.cauchy_minimum(x0, x1, weight, R, t, EPS)
        least = refinement.weighted_cost(x0, x1, weight, R_scipy, t_scipy, EPS, "cauchy")
        assert after <= least * (1.0 + 1e-7)
        assert angle_between(R_out, R_scipy) < 1e-4
        assert np.linalg.norm(t_out - t_scipy) < 1e-3


def test_unweighted_cauchy_minimum_equals_poselib():
    rng = np.random.default_rng(6)
    camera = {"model": "SIMPLE_PINHOLE", "width": 2, "height": 2, "params": [1.0, 0.0, 0.0]}
    options = {"loss_type": "CAUCHY", "loss_scale": EPS, "max_iterations": 200, "step_tol": 1e-12}
    for _ in range(60):
        x0, x1, R, t = noisy_pairs(rng, 80, noise=0.5, outliers=6)
        start = poselib.CameraPose()
        start.R, start.t = R, t
        pose, _ = poselib.refine_relative_pose(x0, x1, start, camera, camera, options)
        R_out, t_out, _, after, _ = _core.refine(x0, x1, np.ones(80), R, t, EPS, "cauchy", 200)
        t_pose = pose.t / np.linalg.norm(pose.t)
        theirs = refinement.weighted_cost(x0, x1, np.ones(80), pose.R, t_pose, EPS, "cauchy")
        assert after == pytest.approx(theirs, rel=1e-6)
        assert angle_between(R_out, pose.R) < 1e-5
        assert np.linalg.norm(t_out - t_pose) < 1e-4


@pytest.mark.parametrize(
    ("function", "limit", "loss"),
    [(_core.local_refine, 5.0, "truncated"), (_core.final_polish, 1.0, "cauchy")],
    ids=["local_refine", "final_polish"],
)
def test_gathered_edges_and_weights_follow_the_rules(function, limit, loss):
    rng = np.random.default_rng(7)
    for _ in range(60):
        problem = random_problem(rng, n=int(rng.integers(6, 40)), noise=0.8)
        start = nearby_pose(rng, problem.R, problem.t, rng.choice([1e-4, 1e-3, 1e-2]))
        R, t, before, after, used, weight = function(
            problem.x0, problem.x1, problem.edges, problem.eps, *start
        )
        bound = limit * problem.eps**2
        expected = refinement.gather(problem.x0, problem.x1, problem.edges, bound, *start)
        assert_pose(R, t)
        if expected.sum() <= refinement.MINIMAL_SET:
            np.testing.assert_array_equal(R, start[0])
            np.testing.assert_array_equal(t, start[1])
            continue
        np.testing.assert_array_equal(used, expected)
        harmonic = refinement.harmonic_weights(problem.edges, expected)
        np.testing.assert_allclose(weight, harmonic, rtol=1e-14)
        ends = problem.x0[problem.edges[:, 0]], problem.x1[problem.edges[:, 1]]
        cost = refinement.weighted_cost(*ends, harmonic, *start, problem.eps, loss)
        assert before == pytest.approx(cost, rel=1e-9)
        cost = refinement.weighted_cost(*ends, harmonic, R, t, problem.eps, loss)
        assert after == pytest.approx(cost, rel=1e-9)
        assert after <= before


def test_non_finite_points_do_not_spoil_the_pose():
    rng = np.random.default_rng(9)
    problem = random_problem(rng, n=40)
    problem.x0[3], problem.x1[17, 0] = np.nan, np.inf
    for function in (_core.local_refine, _core.final_polish):
        R, t, _, _, used, _ = function(
            problem.x0, problem.x1, problem.edges, problem.eps, problem.R, problem.t
        )
        assert_pose(R, t)
        assert not used[(problem.edges[:, 0] == 3) | (problem.edges[:, 1] == 17)].any()
        assert used.sum() > 5
