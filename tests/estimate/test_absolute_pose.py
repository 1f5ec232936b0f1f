"""Absolute poses: against slow twins and other libraries, by their symmetries, and without one."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from manymatch import (
    AbsolutePose,
    AssociationGraph,
    Camera,
    _core,
    assess,
    estimate_absolute_pose,
)
from tests.oracles import absolute_pose as oracle
from tests.support.data_folder import stored_graph
from tests.support.synthetic_problems import CAMERA, CASES, apart, query_graph

OPTIONS = CASES["absolute"].options


def test_three_point_solver_against_poselib():
    poselib = pytest.importorskip("poselib")
    rng = np.random.default_rng(3)
    x, X = rng.uniform(-0.5, 0.5, (1000, 3, 2)), rng.uniform(-1, 1, (1000, 3, 3))
    sample, R, t = _core.three_point(x, X)
    bearings = np.concatenate([x, np.ones((1000, 3, 1))], axis=2)
    bearings /= np.linalg.norm(bearings, axis=2, keepdims=True)
    agree = 0
    for i in range(len(x)):
        # Some of theirs have points behind the camera.
        theirs = [
            p.Rt
            for p in poselib.p3p(list(bearings[i]), list(X[i]))
            if all(oracle.reprojection_error2(p.R, p.t, *e) < 1e-12 for e in zip(x[i], X[i]))  # noqa: B905
        ]
        ours = [np.column_stack([R[s], t[s]]) for s in np.flatnonzero(sample == i)]
        agree += len(ours) == len(theirs) and all(
            min(np.abs(a - b).max() for b in theirs) < 1e-5 for a in ours
        )
    assert agree >= 999


def test_the_camera_is_the_one_given():
    graph = query_graph(0)[0]
    estimate = estimate_absolute_pose(graph, CAMERA, "auto", OPTIONS)
    assert isinstance(estimate.pose, AbsolutePose)
    assert estimate.camera0 == CAMERA
    assert not hasattr(estimate, "camera1")
    assert estimate.focal_sd_px == ()
    assert estimate.noise_px == pytest.approx(0.5, rel=0.3)
    with pytest.raises(ValueError, match="camera must be a Camera"):
        estimate_absolute_pose(graph, None)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1e-6, 0.25, 64.0, 1e5]))
def test_the_frame_of_the_world_does_not_matter(seed, scale):
    graph, truth = query_graph(seed)
    rng = np.random.default_rng(seed)
    R = Rotation.random(random_state=rng).as_matrix()
    shift = scale * rng.uniform(-1000, 1000, 3)
    moved = AssociationGraph(
        graph.points0, scale * graph.points1 @ R.T + shift, graph.edges, rank=graph.rank
    )
    first = estimate_absolute_pose(graph, CAMERA, "auto", OPTIONS)
    second = estimate_absolute_pose(moved, CAMERA, "auto", OPTIONS)
    # X' = s Q X + d is seen where X is by the pose R Q', s t - R Q' d.
    expected = AbsolutePose(first.pose.R @ R.T, scale * first.pose.t - first.pose.R @ R.T @ shift)
    back = AbsolutePose(second.pose.R @ R, (second.pose.t + second.pose.R @ shift) / scale)
    assert apart(back, first.pose) < 0.02
    assert apart(back, truth) < 0.5
    assert np.abs(second.pose.R - expected.R).max() < 1e-3
    assert abs(first.cardinality - second.cardinality) <= 1


def test_far_points_cost_no_digits():
    graph, _ = query_graph(14)
    points = np.array(graph.points1)
    points[-1] = [1e9, -3e8, 5e8]
    first = estimate_absolute_pose(graph, CAMERA, "auto", OPTIONS)
    far = AssociationGraph(graph.points0, points, graph.edges, rank=graph.rank)
    assert apart(estimate_absolute_pose(far, CAMERA, "auto", OPTIONS).pose, first.pose) < 0.05


def test_points_behind_the_camera_are_outliers():
    graph, truth = query_graph(15, right=60, wrong=0, noise=0.0)
    graph = graph.filter(graph.edges[:, 0] == graph.edges[:, 1])
    points = np.array(graph.points1)
    behind = 2 * truth.center - points[:20]  # mirrored at the centre: seen at the same pixels
    both = AssociationGraph.from_matches(
        np.concatenate([graph.points0, graph.points0[:20]]), np.concatenate([points, behind])
    )
    estimate = estimate_absolute_pose(both, CAMERA, "auto", OPTIONS)
    assert estimate.inliers[:60].all()
    assert not estimate.inliers[60:].any()


def test_lenses_are_undistorted():
    camera = Camera("OPENCV", 800, 600, [700, 690, 399.5, 299.5, -0.2, 0.05, 1e-3, -1e-3])
    graph, truth = query_graph(16, camera=camera)
    assert apart(estimate_absolute_pose(graph, camera, "auto", OPTIONS).pose, truth) < 0.5
    assert apart(estimate_absolute_pose(graph, camera.K, "auto", OPTIONS).pose, truth) > 0.5


def test_a_plane_is_enough():
    for seed in range(4):
        graph, truth = query_graph(seed, plane=True)
        estimate = estimate_absolute_pose(graph, CAMERA, "auto", OPTIONS)
        assert apart(estimate.pose, truth) < 0.5


@pytest.mark.parametrize("method", ["auto", "hcm-mcm", "cm"])
def test_unknown_focal_length(method):
    for seed, focal in enumerate((400.0, 700.0, 1500.0)):
        camera = Camera("SIMPLE_PINHOLE", 800, 600, [focal, 399.5, 299.5])
        graph, truth = query_graph(seed, right=100, wrong=50, camera=camera)
        unknown = Camera.unknown(800, 600)
        options = OPTIONS.replace(max_iterations=10_000)
        estimate = estimate_absolute_pose(graph, unknown, method, options)
        found = estimate.camera0
        assert found.known_focal
        assert estimate.focal_determined
        (deviation,) = estimate.focal_sd_px
        assert 0.0 < deviation < 0.05 * focal
        assert abs(found.focal - focal) < max(4.0 * deviation, 0.005 * focal)
        assert apart(estimate.pose, truth) < 3.0
        assert np.mean(estimate.matches[:, 0] == estimate.matches[:, 1]) > 0.9
        # The result is one of the camera found.
        again = estimate_absolute_pose(graph, found, method, options)
        assert apart(again.pose, estimate.pose) < 3.0


def test_a_plane_parallel_to_the_image_does_not_determine_the_focal_length():
    rng = np.random.default_rng(5)
    points = np.column_stack([rng.uniform(-1, 1, (80, 2)), np.full(80, 4.0)])
    slanted = points @ Rotation.from_rotvec([0.7, 0.3, 0]).as_matrix().T + [0, 0, 2]
    camera = Camera("SIMPLE_PINHOLE", 800, 600, [500.0, 399.5, 299.5])

    def found(points):
        pixels = camera.project(points[:, :2] / points[:, 2:]) + 0.3 * rng.standard_normal((80, 2))
        graph = AssociationGraph.from_matches(pixels, points)
        return estimate_absolute_pose(graph, Camera.unknown(800, 600), options=OPTIONS)

    parallel = found(points)
    assert parallel.success
    assert not parallel.focal_determined
    assert parallel.focal_sd_px[0] > 100.0
    assert assess(parallel).verdict == "degenerate"
    assert found(slanted).focal_determined


def test_deviation_of_the_focal_length_adds_to_the_error():
    found = estimate_absolute_pose(query_graph(3)[0], Camera.unknown(800, 600), options=OPTIONS)
    vague = dataclasses.replace(found, focal_sd_px=(0.4 * found.camera0.focal,))
    assert assess(found).error_sd < 1.0
    assert assess(vague).error_sd > 3.0


def test_automatic_threshold():
    graph, truth = query_graph(17, noise=1.5)
    estimate = estimate_absolute_pose(graph, CAMERA, threshold_px="auto", threads=1)
    assert 1.0 <= estimate.threshold_px <= 4.0
    assert apart(estimate.pose, truth) < 1.0


@pytest.mark.parametrize("name", ["strecha", "middlebury"])
def test_agrees_with_poselib_on_rank_one(name):
    poselib = pytest.importorskip("poselib")
    graph, arrays = stored_graph(f"absolute_pose/{name}/*.npz", 0, ("points2D", "points3D"))
    graph, K, size = graph.up_to_rank(1), arrays["K"], arrays["size"]
    truth = AbsolutePose(arrays["R"], arrays["t"])
    params = [K[0, 0], K[1, 1], K[0, 2], K[1, 2]]
    camera = Camera("PINHOLE", int(size[0]), int(size[1]), params)
    ends = graph.points0[graph.edges[:, 0]], graph.points1[graph.edges[:, 1]]
    settings = {"max_reproj_error": 3.0, "seed": 1}
    theirs, _ = poselib.estimate_absolute_pose(*ends, camera.to_dict(), settings, {})
    depth = np.median(graph.points1 @ truth.R[2] + truth.t[2])
    for method in ("cm", "auto"):
        ours = estimate_absolute_pose(graph, K, method, OPTIONS).pose
        for other in (AbsolutePose(theirs.R, theirs.t), truth):
            angle = Rotation.from_matrix(ours.R.T @ other.R).magnitude()
            assert np.degrees(angle) < 0.3
            assert np.linalg.norm(ours.center - other.center) < 0.005 * depth
