"""Fundamental matrices: against slow twins and other libraries, by symmetry, and where none is."""

import numpy as np
import pytest

from manymatch import AssociationGraph, _core, assess, estimate_fundamental
from manymatch._validate import METHODS
from tests.oracles import fundamental as oracle
from tests.support.data_folder import stored_graph
from tests.support.synthetic_problems import (
    CASES,
    FOCAL,
    SIZE,
    epipolar_graph,
    off_by,
    project,
    small_pose,
    two_views,
)

OPTIONS = CASES["fundamental"].options


def samples(rng, count):
    """Samples (count, 7, 2) twice: every other of a scene, the rest anything, in [-1, 1]."""
    points0, points1 = rng.uniform(-1, 1, (2, count, 7, 2))
    for i in range(0, count, 2):
        a, b, _ = two_views(rng, 7)
        points0[i], points1[i] = (a - SIZE / 2) / 400, (b - SIZE / 2) / 400
    return points0, points1


def one_side(F, points0, points1):
    sides = oracle.sides(F, oracle.epipole(F), points0, points1)
    return sides.all() or not sides.any()


def distance(first, second):
    return min(np.linalg.norm(first - second), np.linalg.norm(first + second))


def test_seven_point_solver_against_the_definition():
    points0, points1 = samples(np.random.default_rng(1), 1000)
    sample, found, epipole = _core.seven_point(points0, points1)
    assert (np.diff(sample) >= 0).all()
    missing = extra = total = 0
    for i, (a, b) in enumerate(zip(points0, points1, strict=True)):
        expected = [F for F in oracle.seven_point(a, b) if one_side(F, a, b)]
        mine = found[sample == i]
        total += len(expected)
        missing += sum(all(distance(F, G) > 1e-5 for G in mine) for F in expected)
        extra += sum(all(distance(F, G) > 1e-5 for G in expected) for F in mine)
        for F, e in zip(mine, epipole[sample == i], strict=True):
            assert oracle.sides(F, e, a, b).all()
            np.testing.assert_allclose(e @ F, 0.0, atol=1e-9)
    assert total > 500
    assert missing + extra <= 1


@pytest.mark.parametrize("method", METHODS)
def test_a_matrix_has_rank_two_norm_one_and_a_sign(method):
    F = estimate_fundamental(epipolar_graph(0)[0], method, OPTIONS).fundamental
    np.testing.assert_allclose(np.linalg.norm(F), 1.0)
    assert abs(np.linalg.det(F / np.abs(F).max())) < 1e-9
    assert F.flat[np.argmax(np.abs(F))] > 0


def test_samples_on_a_plane_are_completed():
    for seed in range(5):
        graph, _ = epipolar_graph(seed, right=120, wrong=30, plane=95)
        for method in ("auto", "hcm-mcm", "cm"):
            estimate = estimate_fundamental(graph, method, OPTIONS.replace(max_iterations=5_000))
            assert estimate.success
            off_plane = (graph.edges[:, 0] == graph.edges[:, 1]) & (graph.edges[:, 0] >= 95)
            off_plane &= graph.edges[:, 0] < 120
            assert estimate.inliers[off_plane].mean() > 0.7


@pytest.mark.parametrize("wrong", [0, 30, 300])
@pytest.mark.parametrize("kind", ["plane", "rotation"])
def test_a_plane_and_a_rotation_leave_it_undetermined(kind, wrong):
    rng = np.random.default_rng(wrong)
    points0, points1, _ = two_views(rng, 120, plane=120)
    if kind == "rotation":
        R, _ = small_pose(rng)
        rays = np.column_stack([(points0 - SIZE / 2) / FOCAL, np.ones(120)])
        points1 = project(rays @ R.T)
    noise = rng.normal(0, 0.2, (2, 120 + wrong, 2))
    clutter = rng.uniform(0, SIZE, (2, wrong, 2))
    graph = AssociationGraph.from_matches(
        np.concatenate([points0, clutter[0]]) + noise[0],
        np.concatenate([points1, clutter[1]]) + noise[1],
    )
    for method in ("auto", "cm"):
        estimate = estimate_fundamental(graph, method, OPTIONS)
        assert not estimate.success
        assert "leaves the fundamental matrix undetermined" in estimate.failure


def test_few_exact_points_are_enough():
    for seed in range(5):
        points0, points1, truth = two_views(np.random.default_rng(seed), 12)
        estimate = estimate_fundamental(AssociationGraph.from_matches(points0, points1))
        assert estimate.success
        assert off_by(estimate.fundamental, truth) < 1e-3


def test_mirrored_images_have_a_matrix():
    # The epipole's sign turns for all points alike.
    graph, _ = epipolar_graph(5)
    mirrored = AssociationGraph(
        graph.points0, graph.points1 * [-1.0, 1.0], graph.edges, rank=graph.rank
    )
    assert estimate_fundamental(mirrored, "auto", OPTIONS).cardinality >= 80


def test_confidence_of_what_is_not_there():
    rng = np.random.default_rng(0)
    clutter = AssociationGraph.from_matches(*rng.uniform(0, SIZE, (2, 150, 2)))
    confidence = assess(estimate_fundamental(clutter, "auto", OPTIONS))
    assert confidence.verdict in ("no match", "uncertain", "degenerate", "failed")
    assert confidence.pose_probability < 0.5
    plane = two_views(rng, 60, plane=60)[:2]
    failed = assess(estimate_fundamental(AssociationGraph.from_matches(*plane)))
    assert failed.verdict == "failed"
    assert "undetermined" in failed.reason


def test_wrong_candidates_along_rows_are_no_evidence():
    """A camera that moves forward; wrong candidates are near the row of their keypoint.

    A matrix with horizontal epipolar lines has more inliers than the right one, and about as many
    candidates beside them. If its chance of inliers is not measured, 3 of the 12 are right.
    """
    right, focal, centre, motion = 80, 500.0, np.array([320.0, 180.0]), np.array([0.1, 0.05, -1.5])
    near_epipole = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        points = rng.uniform([-4, -2, 4], [4, 2, 12], (300, 3))
        moved = points + motion
        points0 = focal * points[:, :2] / points[:, 2:] + centre
        points1 = np.stack(
            np.broadcast_arrays(rng.uniform(0, 640, (300, 4)), points0[:, 1:]), axis=2
        )
        points1[..., 1] += rng.normal(0, 12, (300, 4))
        true = focal * moved[:, :2] / moved[:, 2:] + centre + rng.normal(0, 0.4, (300, 2))
        points1[:right, 0] = true[:right]
        edges = np.stack([np.repeat(np.arange(300), 4), np.arange(1200)], axis=1)
        rank = np.tile([1, 2, 3, 4], 300)
        order = np.lexsort((rng.uniform(size=1200), rank))
        graph = AssociationGraph(
            points0, points1.reshape(-1, 2), edges[order], rank=rank[order].astype(np.int32)
        )
        F = estimate_fundamental(graph, seed=seed).fundamental
        if F is not None:
            epipole = np.linalg.svd(F.T)[2][2]
            gap = epipole[:2] / epipole[2] - (focal * motion[:2] / motion[2] + centre)
            near_epipole += np.linalg.norm(gap) < 20
    assert near_epipole >= 7


@pytest.mark.parametrize("number", [0, 20, 40])
def test_real_images(number):
    graph, arrays = stored_graph("graphs/sift/strecha_fountain_herzjesu/*.npz", number)
    K0, K1, R, t = (arrays[name].astype(float) for name in ("K0", "K1", "R", "t"))
    truth = np.linalg.inv(K1).T @ np.cross(np.eye(3), t).T @ R @ np.linalg.inv(K0)
    estimate = estimate_fundamental(graph)
    points = graph.points0[estimate.matches[:, 0]], graph.points1[estimate.matches[:, 1]]
    assert len(estimate.matches) > 100
    assert np.median(oracle.sampson2(truth, *points)) < 1.0
