"""Covariance, noise and planarity of a pose against numerical and sampled twins."""

import dataclasses
import math

import numpy as np
import pytest

import manymatch
from manymatch import _core
from manymatch.estimate.uncertainty import (
    kept_share,
    leverage,
    planar_twin,
    planarity,
    pose_covariance,
    tangent_basis,
    untruncated_variance,
    wide_variance,
)
from manymatch_lab.datasets.synthetic import EASY, PLANAR, make_scene

FOCAL = 800.0


@pytest.fixture(scope="module")
def exact():
    """Matches without noise, their pose and a threshold of one pixel."""
    scene = make_scene(dataclasses.replace(EASY, noise_px=0.0, num_outliers=0, num_points=300), 11)
    x0 = scene.camera0.unproject(scene.graph.points0[scene.true_matches[:, 0]])
    x1 = scene.camera1.unproject(scene.graph.points1[scene.true_matches[:, 1]])
    return x0, x1, scene.pose, 1.0 / FOCAL


def tangent_step(pose, R, t):
    """Parameters (5,) of the step from a pose to a nearby one, from the definition."""
    turn = pose.R.T @ R
    w = 0.5 * np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
    return np.concatenate([w, tangent_basis(pose.t) @ t])


def test_the_parametrisation_is_that_of_the_core(exact):
    _, _, pose, _ = exact
    for k in range(5):
        step = np.zeros(5)
        step[k] = 1e-5
        moved = _core.perturb(pose.R, pose.t, step)
        np.testing.assert_allclose(tangent_step(pose, *moved), step, atol=1e-9)


def test_covariance_is_the_inverse_of_numerical_second_derivatives(exact):
    x0, x1, pose, eps = exact
    rng = np.random.default_rng(1)
    x0 = x0 + 0.1 * eps * rng.standard_normal(x0.shape)
    x1 = x1 + 0.1 * eps * rng.standard_normal(x1.shape)
    R, t = _core.refine(x0, x1, np.ones(len(x0)), pose.R, pose.t, eps, "squared", 50)[:2]
    found = pose_covariance(x0, x1, manymatch.RelativePose(R, t), eps, np.zeros(0))

    def residuals(step):
        moved_R, moved_t = _core.perturb(R, t, step)
        E = manymatch.RelativePose(moved_R, moved_t).essential()
        a, b = (np.column_stack([x, np.ones(len(x))]) for x in (x0, x1))
        e, g = a @ E.T, b @ E
        return np.sum(b * e, axis=1) / np.sqrt(np.sum(e[:, :2] ** 2 + g[:, :2] ** 2, axis=1))

    h = 1e-6
    J = np.stack([(residuals(h * d) - residuals(-h * d)) / (2 * h) for d in np.eye(5)], axis=1)
    r = residuals(np.zeros(5))
    variance = r @ r / (len(r) - 5)
    np.testing.assert_allclose(
        found.matrix, variance * np.linalg.inv(J.T @ J), rtol=1e-3, atol=1e-12
    )
    assert found.rotation_sd == pytest.approx(math.sqrt(np.trace(found.matrix[:3, :3])))


@pytest.mark.parametrize(
    ("noise", "loss", "least"), [(0.2, "squared", 0.7), (0.8, "truncated", 0.5)]
)
def test_covariance_is_the_spread_of_repeated_estimates(exact, noise, loss, least):
    x0, x1, pose, eps = exact
    rng = np.random.default_rng(2)
    steps, claimed = [], []
    for _ in range(300):
        y0, y1 = (x + noise * eps * rng.standard_normal(x.shape) for x in (x0, x1))
        R, t = _core.refine(y0, y1, np.ones(len(x0)), pose.R, pose.t, eps, loss, 50)[:2]
        steps.append(tangent_step(pose, R, t))
        distances = np.sqrt(_core.sampson(y0, y1, R, t)[0])
        kept = distances < eps
        refined = manymatch.RelativePose(R, t)
        found = pose_covariance(y0[kept], y1[kept], refined, eps, distances)
        claimed.append(found.matrix)
        assert 0.5 * noise * eps < found.noise < 1.5 * noise * eps
    observed, said = np.cov(np.array(steps).T), np.mean(claimed, axis=0)
    # Ratios of variances along all directions; 300 samples spread them by some 10 %. Where the
    # threshold cuts the noise, the kept matches alone would claim 2.4 times too little.
    ratios = np.linalg.eigvals(np.linalg.solve(said, observed)).real
    assert least < ratios.min()
    assert ratios.max() < 1.4


def test_a_pull_by_wrong_candidates_is_part_of_the_covariance(exact):
    x0, x1, pose, eps = exact
    rng = np.random.default_rng(3)
    y0, y1 = (x + 0.2 * eps * rng.standard_normal(x.shape) for x in (x0, x1))
    R, t = _core.refine(y0, y1, np.ones(len(x0)), pose.R, pose.t, eps, "squared", 50)[:2]
    best = pose_covariance(y0, y1, manymatch.RelativePose(R, t), eps, np.zeros(0)).matrix
    step = 3e-3 * np.array([1.0, 0, 0, 0, 0])
    pulled = manymatch.RelativePose(*_core.perturb(R, t, step))
    matrix = pose_covariance(y0, y1, pulled, eps, np.zeros(0)).matrix
    assert matrix[0, 0] > 0.8 * 9e-6 > 10 * best[0, 0]


def test_a_match_that_decides_alone_is_not_counted(exact):
    eps = exact[3]
    rng = np.random.default_rng(4)
    scene = make_scene(dataclasses.replace(PLANAR, noise_px=0.3, num_outliers=0), 11)
    x0 = scene.camera0.unproject(scene.graph.points0[scene.true_matches[:, 0]])
    x1 = scene.camera1.unproject(scene.graph.points1[scene.true_matches[:, 1]])
    on_plane = pose_covariance(x0, x1, scene.pose, eps, np.zeros(0))
    # One more match far off the plane, anywhere on its epipolar line.
    ray = scene.pose.R @ [0.3, -0.2, 1.0] + 2.0 * scene.pose.t
    with_one = pose_covariance(
        np.vstack([x0, [0.3, -0.2]]),
        np.vstack([x1, ray[:2] / ray[2]]),
        scene.pose,
        eps,
        np.zeros(0),
    )
    assert with_one.translation_sd == pytest.approx(on_plane.translation_sd, rel=0.15)
    J = rng.standard_normal((50, 5))
    J[7] *= 100
    hat = J @ np.linalg.inv(J.T @ J) @ J.T
    np.testing.assert_allclose(leverage(J), np.diag(hat), atol=1e-10)


def test_parallel_rays_leave_the_pose_undetermined():
    # All matches at one place: the normal equations are singular.
    x0 = np.tile([0.1, 0.2], (30, 1))
    x1 = np.tile([0.15, 0.2], (30, 1))
    pose = manymatch.RelativePose(np.eye(3), np.array([1.0, 0.0, 0.0]))
    found = pose_covariance(x0, x1, pose, 1e-3, np.zeros(0))
    assert found.rotation_sd == math.inf
    assert np.isnan(found.matrix).all()


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, 1.7])
@pytest.mark.parametrize("limit", [1.0, 3.0])
def test_cut_noise_equals_sampled_noise(sigma, limit):
    drawn = sigma * np.random.default_rng(5).standard_normal(400_000)
    kept = drawn[np.abs(drawn) < limit]
    assert kept_share(sigma**2, limit) * sigma**2 == pytest.approx(kept.var(), rel=0.01)
    back = untruncated_variance(kept_share(sigma**2, limit) * sigma**2, limit)
    assert back == pytest.approx(sigma**2, rel=1e-6)


@pytest.mark.parametrize("sigma", [0.3, 0.8, 1.5])
def test_noise_is_read_through_clutter(sigma):
    rng = np.random.default_rng(6)
    true = np.abs(sigma * rng.standard_normal(3000))
    wrong = rng.uniform(0, 300, 30_000)
    found = wide_variance(np.concatenate([true, wrong]), 3000)
    assert math.sqrt(found) == pytest.approx(sigma, rel=0.15)


def test_noise_beyond_two_thresholds_counts_as_two():
    assert untruncated_variance(0.99 / 3, 1.0) == 4.0
    assert wide_variance(np.zeros(0), 0) == pytest.approx(0.0, abs=1e-12)


# Plane and rotation


def test_the_twin_of_a_plane_explains_its_points():
    scene = make_scene(dataclasses.replace(PLANAR, noise_px=0.0, num_outliers=0), 301)
    points, pose = scene.points3d, scene.pose
    x0 = points[:, :2] / points[:, 2:]
    moved = points @ pose.R.T + scene.baseline * pose.t
    x1 = moved[:, :2] / moved[:, 2:]
    plane = np.linalg.lstsq(points / scene.baseline, np.ones(len(points)), rcond=None)[0]
    R, t = planar_twin(pose.R, pose.t, plane, x0)
    assert np.linalg.norm(R - pose.R) > 0.01
    r2 = _core.sampson(np.ascontiguousarray(x0), np.ascontiguousarray(x1), R, t)[0]
    assert np.sqrt(r2.max()) < 1e-9
    shape = planarity(x0, x1, pose, 1.0 / FOCAL, 0)
    assert shape.plane == 1.0
    assert shape.rotation < 0.1


def test_a_motion_along_the_normal_has_no_twin():
    x0 = np.random.default_rng(7).uniform(-0.4, 0.4, (30, 2))
    forward = np.array([0.0, 0.0, -1.0])
    assert planar_twin(np.eye(3), forward, np.array([0.0, 0.0, 0.2]), x0) is None
    assert planar_twin(np.eye(3), forward, np.zeros(3), x0) is None


def test_a_plane_among_other_points_is_measured():
    rng = np.random.default_rng(8)
    x0 = rng.uniform(-0.5, 0.5, (200, 2))
    pose = manymatch.RelativePose(np.eye(3), np.array([1.0, 0.0, 0.0]))
    inverse_depth = 0.15 + x0 @ [0.05, -0.1]
    inverse_depth[120:] += rng.uniform(0.05, 0.2, 80)
    x1 = x0 + inverse_depth[:, None] * [1.0, 0.0]
    x1 += 0.3 / FOCAL * rng.standard_normal(x1.shape)
    shape = planarity(x0, x1, pose, 1.0 / FOCAL, 0)
    assert 0.57 < shape.plane < 0.68
