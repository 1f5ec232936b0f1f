"""Confidence in the models of other problems than a relative pose."""

import copy
import math

import numpy as np
import pytest

from manymatch import AssociationGraph, assess, estimate_homography
from manymatch.estimate.charts import CHARTS
from manymatch.estimate.confidence import model_evidence
from manymatch.estimate.uncertainty import model_covariance

H = np.array([[0.9, 0.1, 30.0], [-0.08, 1.05, -20.0], [1e-4, -5e-5, 1.0]])
NOISE = 0.5


def mapped(matrix, points):
    moved = np.column_stack([points, np.ones(len(points))]) @ matrix.T
    return moved[:, :2] / moved[:, 2:]


def planar(seed, true=80, wrong=60):
    """Matches of a plane with noise, wrong ones, and the estimate."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 600, (true, 2))
    points0 = np.concatenate([points, rng.uniform(0, 600, (wrong, 2))])
    points1 = np.concatenate([mapped(H, points), rng.uniform(0, 600, (wrong, 2))])
    points0 += rng.normal(0, NOISE, points0.shape)
    points1 += rng.normal(0, NOISE, points1.shape)
    graph = AssociationGraph.from_matches(points0, points1)
    return estimate_homography(graph, threshold_px=2.0, max_iterations=1000, seed=seed)


def test_covariance_of_a_homography_is_that_of_its_errors():
    squares = []
    for seed in range(60):
        estimate = planar(seed)
        gap = (estimate.homography - H).ravel()[:8]
        squares.append(gap @ np.linalg.solve(assess(estimate).covariance, gap))
    # Eight degrees of freedom; the threshold cuts off large residuals, so that a little is missing.
    assert 6.0 < np.mean(squares) < 14.0


def test_derivatives_do_not_depend_on_the_direction_of_a_step():
    """The covariance in other numbers is the linear image of that in the entries."""
    estimate = planar(3)
    chart, pair = CHARTS["homography"], estimate._pair
    edges = np.flatnonzero(estimate.inliers)
    found = model_covariance(chart, pair, estimate._model, edges, 0.0)
    np.testing.assert_allclose(found.matrix, found.matrix.T)
    assert np.linalg.eigvalsh(found.matrix).min() > -1e-12
    assert 0.0 < found.error_sd < 1.0


def test_verdicts():
    assert assess(planar(0)).verdict == "solved"
    assert assess(planar(0, true=8, wrong=200)).verdict in ("uncertain", "ambiguous")
    clutter = assess(planar(1, true=0, wrong=200))
    assert clutter.verdict in ("uncertain", "failed")
    assert clutter.pose_probability < 0.5
    nothing = assess(estimate_homography(AssociationGraph.from_matches(np.eye(2), np.eye(2))))
    assert nothing.verdict == "failed"
    assert nothing.reason.startswith("No homography was found")
    assert nothing.pose_probability == 0.0


def test_four_matches_are_no_evidence():
    square = 300.0 * np.array([[0, 0], [0, 1], [1, 1], [1, 0]])
    found = assess(estimate_homography(AssociationGraph.from_matches(square, square + 10)))
    assert found.verdict == "uncertain"
    assert found.pose_probability == 0.0
    assert "fitted to any 4" in found.reason


def test_result_is_plain_and_repeatable():
    estimate = planar(5)
    first, second = assess(estimate), assess(copy.deepcopy(estimate))
    assert first.to_dict() == second.to_dict()
    assert first.to_dict()["parallax_deg"] is None
    assert first.problem == "homography"
    assert math.isfinite(first.error_sd)
    assert "Solved: 79 matches agree on one homography" in str(first)
    assert "parallax" not in repr(first)
    assert model_evidence(estimate).accurate == pytest.approx(1.0)
