"""`threshold_px="auto"`: the threshold follows the noise of the keypoints, which is estimated."""

import json

import numpy as np
import pytest

import manymatch
from manymatch import Options
from manymatch._validate import METHODS
from tests.oracles.auto_graphs import K, synthetic_graph, with_graph
from tests.oracles.geometry import angle_between
from tests.support.synthetic_problems import corner_error, mapped, planar_graph

AUTO = Options(threshold_px="auto", min_iterations=300, max_iterations=3_000, threads=1)
LEAST, MOST = 1.0, 4.0  # working pixels
# The keypoints were found in images of the size of the graph's pixels.
SAME_SIZE = ([1.0, 1.0], [1.0, 1.0])


def noisy(seed, noise, n=400):
    """A scene that has most of its true edges at rank one."""
    return synthetic_graph(seed, n, candidates=2, first=0.8, present=0.8, noise=noise)


def solved(graph, method="auto", **changes):
    return manymatch.estimate_relative_pose(
        graph, K, K, method, AUTO, working_scale=SAME_SIZE, **changes
    )


def solved_plane(graph, method="auto", **changes):
    return manymatch.estimate_homography(graph, method, AUTO, **changes)


def plane(seed, noise, right=70, wrong=30):
    graph, truth = planar_graph(seed, right, wrong, noise=noise)
    return graph, lambda estimate: corner_error(estimate.homography, truth) < 4.0


def scene(seed, noise, right=120, wrong=0):
    synthetic = noisy(seed, noise, right + wrong)

    def right_pose(estimate):
        return np.degrees(angle_between(estimate.pose.R, synthetic.R)) < 2.0

    return synthetic.graph, right_pose


BOTH = {"relative": (scene, solved), "homography": (plane, solved_plane)}
both_problems = pytest.mark.parametrize("problem", BOTH)


@both_problems
@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_threshold_and_model(problem, method):
    make, solve = BOTH[problem]
    graph, right = make(3, 0.5)
    estimate = solve(graph, method)
    assert LEAST <= estimate.threshold_px <= MOST
    assert right(estimate)
    if problem == "relative":  # it is the same as with that threshold in pixels
        score = manymatch.score_pose(
            graph, K, K, estimate.pose, AUTO, threshold_px=estimate.threshold_px
        )
        assert score.cardinality == estimate.cardinality == len(estimate.matches)
        np.testing.assert_array_equal(score.inliers, estimate.inliers)


@both_problems
def test_larger_for_noisier_keypoints(problem):
    make, solve = BOTH[problem]
    thresholds = np.array(
        [
            [solve(make(10 + seed, noise, 280, 120)[0]).threshold_px for noise in (0.3, 1.5, 2.5)]
            for seed in range(5)
        ]
    )
    assert ((thresholds >= LEAST) & (thresholds <= MOST)).all()
    medians = np.median(thresholds, axis=0)
    assert medians[0] < 1.3 < medians[1] < 0.9 * medians[2]


@pytest.mark.parametrize("method", ["auto", "hcm-mcm"])
def test_pixels_of_another_size(method):
    # Four pixels for each: what is known of the images at working size is the same.
    graph = noisy(20, 1.6).graph
    large = with_graph(graph, points0=4.0 * graph.points0, points1=4.0 * graph.points1)
    camera = np.diag([4.0, 4.0, 1.0]) @ K
    small = solved(graph, method)
    scaled = manymatch.estimate_relative_pose(
        large, camera, camera, method, AUTO, working_scale=([0.25, 0.25], [0.25, 0.25])
    )
    assert small.threshold_px > LEAST
    assert scaled.threshold_px == pytest.approx(4.0 * small.threshold_px, rel=1e-6)
    assert angle_between(small.pose.R, scaled.pose.R) < 1e-6
    np.testing.assert_allclose(small.pose.t, scaled.pose.t, atol=1e-6)
    np.testing.assert_array_equal(small.matches, scaled.matches)
    if method == "auto":
        assert scaled.noise_px == pytest.approx(4.0 * small.noise_px, rel=1e-4)


def test_graph_without_pose_has_a_finite_threshold():
    graph = manymatch.AssociationGraph(np.zeros((3, 2)), np.zeros((3, 2)), [(0, 0), (1, 1)])
    estimate = manymatch.estimate_relative_pose(graph, K, K, options=AUTO)
    assert not estimate.success
    assert estimate.failure
    assert np.isfinite(estimate.threshold_px)


def test_a_pose_is_scored_with_a_number():
    synthetic = noisy(40, 0.5, 60)
    pose = manymatch.RelativePose(synthetic.R, synthetic.t)
    with pytest.raises(ValueError, match=r"^options.threshold_px must be a number .* got \"auto\""):
        manymatch.score_pose(synthetic.graph, K, K, pose, AUTO)


def test_options_round_trip():
    values = json.loads(json.dumps(AUTO.to_dict()))
    assert values["threshold_px"] == "auto"
    assert Options.from_dict(values) == AUTO
    assert AUTO.with_pixels(4.0) == AUTO
    assert AUTO.replace(threshold_px=2.0).with_pixels(4.0).threshold_px == 8.0
    with pytest.raises(ValueError, match=r'^threshold_px must be a number of pixels or "auto"'):
        Options(threshold_px="automatic")


def test_threshold_of_large_images_assumes_reduced_working_size():
    graph = noisy(41, 0.3).graph
    large = with_graph(graph, points0=4.0 * graph.points0, points1=4.0 * graph.points1)
    camera = np.diag([4.0, 4.0, 1.0]) @ K
    estimate = manymatch.estimate_relative_pose(large, camera, camera, options=AUTO)
    assert 4.0 < estimate.threshold_px < 10.0
    assert solved(graph).threshold_px == LEAST


@pytest.mark.parametrize("far", [1e6, 1e13, 1e200])
def test_one_keypoint_far_outside_does_not_change_the_threshold(far):
    graph = noisy(41, 0.3).graph
    points = np.concatenate([graph.points0, [[far, -far]]])
    edges = np.concatenate([graph.edges, [[len(points) - 1, 0]]])
    spoilt = manymatch.AssociationGraph(points, graph.points1, edges)
    estimate = manymatch.estimate_relative_pose(spoilt, K, K, options=AUTO)
    plain = manymatch.estimate_relative_pose(graph, K, K, options=AUTO)
    assert estimate.threshold_px == plain.threshold_px
    assert angle_between(estimate.pose.R, plain.pose.R) < np.radians(1.0)


@pytest.mark.parametrize("size", [1e13, 1e100, 1e200])
def test_keypoints_all_over_space_need_a_threshold(size):
    graph = noisy(41, 0.3).graph
    huge = with_graph(graph, points0=size * graph.points0)
    with pytest.raises(ValueError, match=r"threshold_px must be a number for keypoints that are"):
        manymatch.estimate_relative_pose(huge, K, K, options=AUTO)


def turned_plane(seed, noise):
    """A plane that is turned and shifted, with noise in both images."""
    turn = np.array([[0.98, -0.2, 60.0], [0.2, 0.98, -40.0], [0.0, 0.0, 1.0]])
    turn[:2, :2] /= np.sqrt(np.linalg.det(turn[:2, :2]))
    rng = np.random.default_rng([seed, 70])
    points = rng.uniform(0.0, 800.0, (300, 2))
    other = mapped(turn, points)
    other[200:] = rng.uniform(0.0, 800.0, (100, 2))
    points, other = (p + noise * rng.standard_normal(p.shape) for p in (points, other))
    return manymatch.AssociationGraph.from_matches(points, other)


@both_problems
@pytest.mark.parametrize("threshold_px", [1.0, "auto"])
@pytest.mark.parametrize("noise", [0.25, 0.5, 1.0])
def test_noise_is_estimated(problem, noise, threshold_px):
    for seed in range(4):
        relative = problem == "relative"
        graph = noisy(50 + seed, noise).graph if relative else turned_plane(seed, noise)
        estimate = BOTH[problem][1](graph, threshold_px=threshold_px)
        assert estimate.noise_px == pytest.approx(noise, rel=0.25)
        assert 0.0 < estimate.noise_sd_px < 0.15 * estimate.noise_px
