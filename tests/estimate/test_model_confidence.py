"""Confidence in the models of other problems than a relative pose."""

import copy
import dataclasses
import math

import numpy as np
import pytest

import manymatch
from manymatch import AssociationGraph, assess
from manymatch.estimate.confidence import evidence
from manymatch.estimate.many import PROBLEMS
from manymatch.estimate.uncertainty import model_covariance

H = np.array([[0.9, 0.1, 30.0], [-0.08, 1.05, -20.0], [1e-4, -5e-5, 1.0]])
K = np.array([[500.0, 0.0, 319.5], [0.0, 500.0, 239.5], [0.0, 0.0, 1.0]])
# A turn of 20 degrees about a slanted axis.
AXIS = np.array([1.0, -2.0, 2.0]) / 3.0
CROSS = np.cross(np.eye(3), -AXIS)
TURN = np.eye(3) + math.sin(0.35) * CROSS + (1.0 - math.cos(0.35)) * CROSS @ CROSS
SHIFT = np.array([0.3, -0.2, 0.5])
NOISE = 0.5


def pixels(points):
    seen = points @ K.T
    return seen[:, :2] / seen[:, 2:]


@dataclasses.dataclass
class Case:
    """How points of a problem are made, estimated, and how far an estimate is from the truth.

    `gap` has the numbers that the covariance is of, of which `freedom` are independent; their
    sizes are comparable when they are multiplied by `weight`.
    """

    dimensions: tuple
    noise: float
    make: object
    run: object
    gap: object
    freedom: int
    weight: np.ndarray = dataclasses.field(default_factory=lambda: np.ones(1))


def homography_points(rng, count):
    points = rng.uniform(0, 600, (count, 2))
    moved = np.column_stack([points, np.ones(count)]) @ H.T
    return points, moved[:, :2] / moved[:, 2:]


def two_views(rng, count):
    points = rng.uniform([-2, -2, 4], [2, 2, 9], (count, 3))
    return pixels(points), pixels(points @ TURN.T + SHIFT)


def camera_and_map(rng, count):
    points = rng.uniform([-2, -2, 4], [2, 2, 9], (count, 3))
    return pixels(points @ TURN.T + SHIFT), points


def clouds(scale):
    def make(rng, count):
        points = rng.uniform(0, 600, (count, 3))
        return points, scale * points @ TURN.T + 100.0 * SHIFT

    return make


def fundamental_gap(found):
    inverse = np.linalg.inv(K)
    F = inverse.T @ np.cross(np.eye(3), -SHIFT) @ TURN @ inverse
    F /= np.linalg.norm(F)
    return found.fundamental - F * np.sign(np.sum(F * found.fundamental))


def turned(R):
    off = TURN.T @ R
    return 0.5 * np.array([off[2, 1] - off[1, 2], off[0, 2] - off[2, 0], off[1, 0] - off[0, 1]])


def transform_gap(scale):
    def gap(found):
        own = np.cbrt(np.linalg.det(found.transform[:3, :3]))
        parts = [turned(found.transform[:3, :3] / own), found.transform[:3, 3] - 100.0 * SHIFT]
        return np.concatenate([*parts, *([[math.log(own / scale)]] if scale != 1.0 else [])])

    return gap


CASES = {
    "homography": Case(
        *((2, 2), NOISE, homography_points),
        lambda graph, **given: manymatch.estimate_homography(graph, threshold_px=2.0, **given),
        lambda found: (found.homography - H).ravel()[:8],
        8,
    ),
    "fundamental": Case(
        # The entries are far from linear in noise that is larger.
        *((2, 2), 0.002, two_views),
        lambda graph, **given: manymatch.estimate_fundamental(graph, threshold_px=0.01, **given),
        lambda found: fundamental_gap(found).ravel(),
        7,
        np.outer([300.0, 300.0, 1.0], [300.0, 300.0, 1.0]).ravel(),
    ),
    "absolute": Case(
        *((2, 3), NOISE, camera_and_map),
        lambda graph, **given: manymatch.estimate_absolute_pose(
            graph, K, threshold_px=2.0, **given
        ),
        lambda found: np.concatenate(
            [TURN @ turned(found.pose.R), found.pose.center + TURN.T @ SHIFT]
        ),
        6,
    ),
    "rigid": Case(
        *((3, 3), NOISE, clouds(1.0)),
        lambda graph, **given: manymatch.estimate_rigid_transform(graph, 3.0, **given),
        transform_gap(1.0),
        6,
    ),
    "similarity": Case(
        *((3, 3), NOISE, clouds(1.4)),
        lambda graph, **given: manymatch.estimate_similarity(graph, 3.0, **given),
        transform_gap(1.4),
        7,
    ),
}


def solve(name, seed=0, true=80, wrong=60):
    """Estimate of matches with noise, some of which join points at random."""
    case, rng = CASES[name], np.random.default_rng(seed)
    points = [
        np.concatenate([own, others[rng.permutation(wrong)]])
        for own, others in zip(case.make(rng, true), case.make(rng, wrong), strict=True)
    ]
    for side, dimension in enumerate(case.dimensions):
        # The points of a map are exact.
        sd = 0.0 if (dimension, case.dimensions) == (3, (2, 3)) else case.noise
        points[side] = points[side] + rng.normal(0, sd, points[side].shape)
    graph = AssociationGraph.from_matches(*points)
    return case.run(graph, max_iterations=1000, seed=seed)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.statistics
def test_covariance_is_that_of_the_errors(name):
    case, squares = CASES[name], []
    for seed in range(60):
        estimate = solve(name, seed)
        gap, covariance = case.gap(estimate), assess(estimate).covariance
        assert covariance.shape == (len(gap), len(gap))
        values, vectors = np.linalg.eigh(case.weight[:, None] * covariance * case.weight)
        # Along the directions in which the numbers can move.
        kept = slice(len(gap) - case.freedom, None)
        squares.append(np.sum((vectors[:, kept].T @ (case.weight * gap)) ** 2 / values[kept]))
    # Mean of chi square; the threshold cuts off large residuals, so that a little is missing.
    assert 0.7 * case.freedom < np.mean(squares) < 1.8 * case.freedom


@pytest.mark.parametrize("name", CASES)
def test_moving_there_and_back(name):
    """The error of a model from itself is nothing, and grows with a step as its slope says."""
    estimate = solve(name)
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


@pytest.mark.parametrize("name", CASES)
def test_verdicts(name):
    assert assess(solve(name)).verdict == "solved"
    clutter = assess(solve(name, seed=1, true=0, wrong=200))
    assert clutter.verdict in ("uncertain", "ambiguous", "failed")
    assert clutter.pose_probability < 0.5
    few = [np.eye(2, dimension) for dimension in CASES[name].dimensions]
    nothing = assess(CASES[name].run(AssociationGraph.from_matches(*few)))
    assert nothing.verdict == "failed"
    assert nothing.reason.startswith(f"No {PROBLEMS[name].noun} was found")
    assert nothing.pose_probability == 0.0


def test_an_affine_map_has_six_parameters():
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 600, (80, 2))
    moved = points @ np.array([[1.1, 0.2], [-0.1, 0.9]]) + [20, -30]
    graph = AssociationGraph.from_matches(points, moved + rng.normal(0, NOISE, moved.shape))
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


@pytest.mark.parametrize("name", CASES)
def test_result_is_plain_and_repeatable(name):
    estimate = solve(name, 5)
    first, second = assess(estimate), assess(copy.deepcopy(estimate))
    assert first.to_dict() == second.to_dict()
    assert first.to_dict()["parallax_deg"] is None
    assert first.problem == name
    assert math.isfinite(first.error_sd)
    assert f"matches agree on one {PROBLEMS[name].noun}" in str(first)
    assert "parallax" not in repr(first)
    assert 0.85 < evidence(estimate).accurate <= 1.0
