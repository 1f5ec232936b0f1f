"""The switch for PoseLib beside PoseLib."""

import sys

import numpy as np
import poselib as original
import pytest

import manymatch
from manymatch.compat import poselib as ours
from tests.support import matched_points
from tests.support.matched_points import (
    K,
    direction_deg,
    epipolar_distance,
    matched,
    turn_deg,
    with_candidates,
)

CAMERA = {"model": "PINHOLE", "width": 640, "height": 480, "params": [800, 790, 320, 240]}
both_cameras = pytest.mark.parametrize(
    "camera", [CAMERA, original.Camera("PINHOLE", CAMERA["params"], 640, 480)]
)
INFO = {"refinements", "iterations", "num_inliers", "inlier_ratio", "model_score", "inliers"}


def check_info(info, reference, rows):
    """Keys, types and lengths of both, and numbers that belong together."""
    assert set(info) == set(reference) == INFO
    for key in INFO:
        assert type(info[key]) is type(reference[key])
    assert len(info["inliers"]) == len(reference["inliers"]) == rows
    assert all(type(value) is bool for value in info["inliers"])
    assert info["num_inliers"] == sum(info["inliers"])
    assert info["inlier_ratio"] == info["num_inliers"] / rows
    assert isinstance(info.estimate, manymatch.Estimate)


@both_cameras
@pytest.mark.parametrize("options", [(), ({"max_epipolar_error": 2.0, "min_inliers": 8}, {})])
def test_relative_pose(camera, options):
    data = matched()
    arguments = data.points0, data.points1, camera, camera, *options
    pose, info = ours.estimate_relative_pose(*arguments)
    reference, expected = original.estimate_relative_pose(*arguments)
    check_info(info, expected, len(data.points0))
    assert type(pose) is type(reference) is original.CameraPose
    assert turn_deg(pose.R, reference.R) < 0.05
    assert direction_deg(pose.t, reference.t) < 0.5
    assert np.mean(np.array(info["inliers"]) == expected["inliers"]) > 0.97
    graph = manymatch.AssociationGraph.from_matches(data.points0, data.points1)
    alone = manymatch.estimate_relative_pose(graph, K, K, threshold_px=2.0 if options else 1.0)
    assert np.array_equal(info.estimate.pose.R, alone.pose.R)
    assert info["inliers"] == alone.inliers.tolist()


def test_homography():
    data = matched(plane=True)
    options = {"max_reproj_error": 3.0, "max_iterations": 5000, "seed": np.uint64(3)}
    H, info = ours.estimate_homography(data.points0, data.points1, options, {})
    options = {**options, "seed": 3}
    reference, expected = original.estimate_homography(data.points0, data.points1, options, {})
    check_info(info, expected, len(data.points0))
    assert H.shape == reference.shape == (3, 3)
    assert (H.dtype, H.flags.writeable) == (reference.dtype, True)
    assert np.linalg.norm(H) == pytest.approx(1) == np.linalg.norm(reference)
    assert matched_points.map_difference_px(H, reference, data.points0) < 0.5
    assert info.estimate.options.seed == 3
    assert info.estimate.options.max_iterations == 5000


@pytest.mark.parametrize("centre", [(320.0, 240.0), (0.0, 0.0)])
def test_shared_focal_length(centre):
    """Also for points that are centred, as PoseLib's default principal point wants them."""
    data = matched(300, 240, noise=0.2)
    shift = np.array(centre) - (320.0, 240.0) + (0, 240 - 240 * 800 / 790)
    points = [p * (1.0, 800 / 790) + shift for p in (data.points0, data.points1)]
    pair, info = ours.estimate_shared_focal_relative_pose(*points, np.array(centre))
    reference, expected = original.estimate_shared_focal_relative_pose(*points, np.array(centre))
    check_info(info, expected, 300)
    assert type(pair) is type(reference) is original.ImagePair
    for camera, other in ((pair.camera1, reference.camera1), (pair.camera2, reference.camera2)):
        assert camera.model_name() == other.model_name() == "SIMPLE_PINHOLE"
        assert (camera.width, camera.height) == (other.width, other.height) == (-1, -1)
        assert camera.focal() == pytest.approx(800, rel=0.05)
        assert camera.params[1:] == other.params[1:] == list(centre)
    assert pair.camera1.focal() == pair.camera2.focal()
    assert turn_deg(pair.pose.R, data.R) < 1.0
    candidates = with_candidates(*points)
    several, _ = ours.estimate_shared_focal_relative_pose(*candidates[:2], centre)
    assert several.camera1.focal() == pytest.approx(800, rel=0.1)
    nothing, info = ours.estimate_shared_focal_relative_pose(points[0][:3], points[1][:3], centre)
    assert info["num_inliers"] == 0
    assert np.array_equal(nothing.pose.R, np.eye(3))
    with pytest.raises(ValueError, match=r"^pp must be the two coordinates"):
        ours.estimate_shared_focal_relative_pose(*points, (1, 2, 3))


def test_fundamental_matrix():
    data = matched()
    points, options = (data.points0, data.points1), {"max_epipolar_error": 2.0}
    F, info = ours.estimate_fundamental(*points, options)
    reference, expected = original.estimate_fundamental(*points, options)
    check_info(info, expected, len(data.points0))
    assert (F.shape, F.dtype) == (reference.shape, reference.dtype)
    assert np.linalg.norm(F) == pytest.approx(1) == np.linalg.norm(reference)
    for matrix in (F, reference):
        assert epipolar_distance(matrix, data) < 0.2
    assert np.mean(np.array(info["inliers"]) == expected["inliers"]) > 0.95
    first, second, edges, _ = with_candidates(*points)
    options = {"max_error": 2.0}
    for found, _ in (
        ours.estimate_fundamental(first, second, options),
        ours.estimate_fundamental(*points, opt=options, edges=edges),
    ):
        assert epipolar_distance(found, data) < 0.3


@both_cameras
@pytest.mark.parametrize("options", [(), ({"max_reproj_error": 3.0}, {})])
def test_absolute_pose(camera, options):
    data = matched()
    arguments = data.points1, data.world, camera, *options
    pose, info = ours.estimate_absolute_pose(*arguments)
    reference, expected = original.estimate_absolute_pose(*arguments)
    check_info(info, expected, len(data.world))
    assert type(pose) is type(reference) is original.CameraPose
    assert turn_deg(pose.R, reference.R) < 0.1
    assert np.abs(pose.t - reference.t).max() < 0.02
    assert info["inliers"] == expected["inliers"]
    graph = manymatch.AssociationGraph.from_matches(data.points1, data.world)
    alone = manymatch.estimate_absolute_pose(graph, K, threshold_px=3.0 if options else 12.0)
    assert np.array_equal(info.estimate.pose.t, alone.pose.t)


def test_nested_options_return_an_image_with_the_focal_length():
    data = matched()
    wrong = {"model": "SIMPLE_PINHOLE", "width": 640, "height": 480, "params": [300, 320, 240]}
    opt = {"max_error": 3.0, "estimate_focal_length": True}
    for camera in (wrong, {**wrong, "width": -1, "height": -1}):
        image, info = ours.estimate_absolute_pose(data.points1, data.world, camera, opt)
        assert type(image) is original.Image
        assert image.camera.focal() == pytest.approx(795, rel=0.02)
        assert image.camera.params[1:] == [320, 240]
        assert turn_deg(image.pose.R, data.R) < 0.5
        assert info["num_inliers"] > 80
    known, _ = ours.estimate_absolute_pose(data.points1, data.world, CAMERA, {"max_error": 3.0})
    assert known.camera.params == CAMERA["params"]


def test_nested_options_of_version_3():
    data = matched(plane=True)
    nested = {
        "max_error": 2.5,
        "ransac": {"max_iterations": 3000, "success_prob": 0.99, "seed": 4, "use_lo": True},
        "bundle": {"loss_type": "HUBER"},
        "tangent_sampson": False,
    }
    wanted = manymatch.Options(threshold_px=2.5, max_iterations=3000, confidence=0.99, seed=4)
    initial = original.CameraPose()
    calls = [
        ours.estimate_relative_pose(data.points0, data.points1, CAMERA, CAMERA, nested),
        ours.estimate_relative_pose(data.points0, data.points1, CAMERA, CAMERA, nested, initial),
        ours.estimate_relative_pose(
            data.points0, data.points1, camera1_dict=CAMERA, camera2_dict=CAMERA, opt=nested
        ),
        ours.estimate_homography(data.points0, data.points1, nested, np.eye(3)),
        ours.estimate_homography(data.points0, data.points1, opt=nested),
    ]
    for _, info in calls:
        assert info.estimate.options == wanted
    points = data.points0, data.points1
    # The defaults of the two versions.
    for opt, threshold in (({}, 12.0), ({"max_iterations": 9}, 12.0), ({"ransac": {}}, 1.0)):
        _, info = ours.estimate_homography(*points, opt)
        assert info.estimate.threshold_px == threshold
    assert ours.estimate_homography(*points, opt={})[1].estimate.threshold_px == 1.0


def test_nothing_found():
    data = matched()
    for count in (0, 3):
        points = data.points0[:count], data.points1[:count]
        pose, info = ours.estimate_relative_pose(*points, CAMERA, CAMERA)
        reference, expected = original.estimate_relative_pose(*points, CAMERA, CAMERA)
        assert np.array_equal(pose.R, reference.R)
        assert np.array_equal(pose.t, reference.t)
        assert info["model_score"] == expected["model_score"]
        assert (info["num_inliers"], info["inlier_ratio"]) == (0, 0.0)
        assert info["inliers"] == [False] * count
        assert ours.estimate_homography(*points)[0].tolist() == np.zeros((3, 3)).tolist()
        assert ours.estimate_fundamental(*points)[0].tolist() == np.zeros((3, 3)).tolist()
    few = data.points1[:2], data.world[:2], CAMERA
    pose, info = ours.estimate_absolute_pose(*few)
    reference, expected = original.estimate_absolute_pose(*few)
    assert np.array_equal(pose.Rt, reference.Rt)
    assert info["num_inliers"] == expected["num_inliers"] == 0


def test_other_names_are_the_originals():
    functions = {
        *("absolute_pose", "fundamental", "homography", "relative_pose"),
        "shared_focal_relative_pose",
    }
    assert matched_points.only_these_are_ours(ours, original) == {
        f"estimate_{name}" for name in functions
    }
    with pytest.raises(AttributeError, match="estimate_nothing"):
        ours.estimate_nothing  # noqa: B018


def test_without_the_original(monkeypatch):
    """Poses have the same attributes, and what is missing says what would have it."""
    data = matched()
    reference, _ = ours.estimate_relative_pose(data.points0, data.points1, CAMERA, CAMERA)
    monkeypatch.setitem(sys.modules, "poselib", None)
    pose, _ = ours.estimate_relative_pose(data.points0, data.points1, CAMERA, CAMERA)
    for name in ("q", "t", "R", "Rt"):
        np.testing.assert_allclose(getattr(pose, name), getattr(reference, name), atol=1e-12)
    np.testing.assert_allclose(pose.center(), reference.center(), atol=1e-12)
    with pytest.raises(AttributeError, match=r"pip install \"manymatch\[baselines\]\""):
        ours.RansacOptions  # noqa: B018


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"points2D_2": np.zeros((3, 2))}, "points2D_2 must hold 120 points"),
        ({"camera1": None}, "camera1 must be"),
        ({"camera2": {"model": "PINHOLE", "params": [1]}}, "camera2 must be a valid camera"),
        ({"ransac_opt": 3}, "ransac_opt must be a dict of options, got 3"),
        ({"ransac_opt": {"max_epipolar_error": -1}}, r"^ransac_opt\['max_epipolar_error'\] must"),
        ({"ransac_opt": {"max_iterations": 1e4}}, r"^ransac_opt\['max_iterations'\] must be"),
        ({"ransac_opt": {"success_prob": 2}}, r"^ransac_opt\['success_prob'\] must be"),
        ({"ransac_opt": {"max_error": 0}}, r"^ransac_opt\['max_error'\] must be"),
        ({"opt": {"ransac": {"seed": -1}}}, r"^opt\['ransac'\]\['seed'\] must be"),
        ({"opt": {"ransac": 1}}, r"^opt\['ransac'\] must be a dict"),
        ({"opt": {}, "ransac_opt": {}}, "opt must be given alone"),
        ({"bundle_opt": 3}, "bundle_opt must be a dict"),
        ({"edges": [[0, 500]]}, "edges must hold indices into points1"),
    ],
)
def test_bad_input_is_one_sentence(change, message):
    data = matched()
    arguments = {"points2D_1": data.points0, "points2D_2": data.points1}
    arguments |= {"camera1": CAMERA, "camera2": CAMERA, **change}
    with pytest.raises(ValueError, match=message) as error:
        ours.estimate_relative_pose(**arguments)
    assert "\n" not in str(error.value)
