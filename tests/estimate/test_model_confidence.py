"""Confidence in the models of other problems than a relative pose."""

import copy
import math

import numpy as np
import pytest

import manymatch
from manymatch import AssociationGraph, assess
from manymatch.estimate.evidence import evidence
from manymatch.estimate.many import PROBLEMS
from manymatch.estimate.uncertainty import model_covariance
from tests.oracles import rigid
from tests.support.synthetic_problems import CASES

# An error of an entry of F counts by how far it moves a point of the image.
ENTRIES = np.outer([300.0, 300.0, 1.0], [300.0, 300.0, 1.0]).ravel()


def turned(R, truth):
    off = truth.T @ R
    return 0.5 * np.array([off[2, 1] - off[1, 2], off[0, 2] - off[2, 0], off[1, 0] - off[0, 1]])


def pose_gap(found, truth):
    turn = truth.R @ turned(found.pose.R, truth.R)
    return np.concatenate([turn, found.pose.center - truth.center])


def transform_gap(found, truth):
    scales = [rigid.scale_of(T) for T in (found.transform, truth)]
    R, true_R = (T[:3, :3] / s for T, s in zip((found.transform, truth), scales, strict=True))
    gap = np.concatenate([turned(R, true_R), found.transform[:3, 3] - truth[:3, 3]])
    return gap if found.problem == "rigid" else np.append(gap, math.log(scales[0] / scales[1]))


# Numbers of which the covariance is stated: their errors, how many are independent, their weights.
GAPS = {
    "homography": (lambda found, truth: (found.homography - truth).ravel()[:8], 8, 1.0),
    "fundamental": (lambda found, truth: (found.fundamental - truth).ravel(), 7, ENTRIES),
    "absolute": (pose_gap, 6, 1.0),
    "rigid": (transform_gap, 6, 1.0),
    "similarity": (transform_gap, 7, 1.0),
}
every_problem = pytest.mark.parametrize("name", GAPS)


def solve(name, seed=0, **changes):
    """Estimate of matches with noise, some of which join points at random, and the truth."""
    case = CASES[name]
    graph, truth = case.graph(seed, **{"right": 80, "wrong": 60, "partners": 1, **changes})
    options = case.options.replace(max_iterations=1000, seed=seed)
    if "noise" in changes:
        options = options.replace(threshold_px=5 * changes["noise"])
    return case.estimate(graph.up_to_rank(1), "auto", options, truth), truth


@every_problem
@pytest.mark.statistics
def test_covariance_is_that_of_the_errors(name):
    error, freedom, weight = GAPS[name]
    squares = []
    for seed in range(60):
        # The entries of F are far from linear in larger noise.
        estimate, truth = solve(name, seed, **({"noise": 0.002} if name == "fundamental" else {}))
        gap, covariance = error(estimate, truth) * weight, assess(estimate).covariance
        assert covariance.shape == (len(gap), len(gap))
        scale = np.broadcast_to(weight, len(gap))
        values, vectors = np.linalg.eigh(scale[:, None] * covariance * scale)
        # Along the directions in which the numbers can move.
        kept = slice(len(gap) - freedom, None)
        squares.append(np.sum((vectors[:, kept].T @ gap) ** 2 / values[kept]))
    # Mean of chi square; the threshold cuts off large residuals, so that a little is missing.
    assert 0.7 * freedom < np.mean(squares) < 1.8 * freedom


@every_problem
def test_moving_there_and_back(name):
    """The error of a model from itself is nothing, and grows with a step as its slope says."""
    estimate, _ = solve(name)
    problem, pair, model = PROBLEMS[name], estimate._pair, estimate._model
    chart = problem.chart
    assert np.allclose(chart.error(pair, model, model), 0.0)
    edges = np.flatnonzero(estimate.inliers)
    residuals = chart.residuals(pair, model, edges)
    squares = np.sum(residuals**2, axis=1)
    assert squares.max() < pair.eps**2  # the inliers, so that the residuals are those of the core
    for k in range(problem.parameters):
        step = np.zeros(problem.parameters)
        step[k] = 1e-4
        moved = chart.move(model, step)
        first = np.linalg.norm(chart.error(pair, moved, model))
        second = np.linalg.norm(chart.error(pair, chart.move(model, 2.0 * step), model))
        assert first > 0.0
        assert second == pytest.approx(2.0 * first, rel=0.02)
    found = model_covariance(problem, pair, model, edges, 0.0)
    np.testing.assert_allclose(found.matrix, found.matrix.T)
    assert 0.0 < found.error_sd < 1.0


@every_problem
def test_verdicts(name):
    assert assess(solve(name)[0]).verdict == "solved"
    clutter = assess(solve(name, seed=1, right=0, wrong=200)[0])
    assert clutter.verdict in ("no match", "uncertain", "ambiguous", "failed")
    assert clutter.pose_probability < 0.5
    few = [np.eye(2, dimension) for dimension in CASES[name].dimensions]
    nothing = assess(CASES[name].estimate(AssociationGraph.from_matches(*few)))
    assert nothing.verdict == "failed"
    assert nothing.reason.startswith(f"No {PROBLEMS[name].noun} was found")
    assert nothing.pose_probability == 0.0


def test_an_affine_map_has_six_parameters():
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 600, (80, 2))
    moved = points @ np.array([[1.1, 0.2], [-0.1, 0.9]]) + [20, -30]
    graph = AssociationGraph.from_matches(points, moved + rng.normal(0, 0.5, moved.shape))
    estimate = manymatch.estimate_homography(graph, model="affine", threshold_px=2.0)
    found = assess(estimate)
    assert "agree on one affine map" in found.reason
    # The last two numbers of H are known.
    assert np.linalg.matrix_rank(found.covariance[:6, :6]) == 6
    np.testing.assert_allclose(found.covariance[6:], 0.0, atol=1e-15)


def test_four_matches_are_no_evidence():
    square = 300.0 * np.array([[0, 0], [0, 1], [1, 1], [1, 0]])
    graph = AssociationGraph.from_matches(square, square + 10)
    found = assess(manymatch.estimate_homography(graph))
    assert found.verdict == "uncertain"
    assert found.pose_probability == 0.0
    assert "fitted to any 4" in found.reason


@every_problem
def test_result_is_plain_and_repeatable(name):
    estimate, _ = solve(name, 5)
    first, second = assess(estimate), assess(copy.deepcopy(estimate))
    assert first.to_dict() == second.to_dict()
    assert first.to_dict()["parallax_deg"] is None
    assert first.problem == name
    assert math.isfinite(first.error_sd)
    assert f"matches agree on one {PROBLEMS[name].noun}" in str(first)
    assert "parallax" not in repr(first)
    assert 0.85 < evidence(estimate).accurate <= 1.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [1e160, 1e308])
def test_probability_is_a_number_for_points_at_the_end_of_the_range(value):
    points = np.random.default_rng(0).uniform(-5, 5, (40, 3))
    moved = points + 3.0
    points[7, 1] = value
    graph = AssociationGraph.from_matches(points, moved)
    for estimate in (manymatch.estimate_rigid_transform, manymatch.estimate_similarity):
        assert 0.0 <= assess(estimate(graph, 0.5)).pose_probability <= 1.0
