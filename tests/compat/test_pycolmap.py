"""The switch for pycolmap beside pycolmap."""

import sys

import numpy as np
import pycolmap as original
import pytest

import manymatch
from manymatch.compat import pycolmap as ours
from tests.support import matched_points
from tests.support.matched_points import K, alike, direction_deg, matched, turn_deg

CAMERA = original.Camera(model="PINHOLE", width=640, height=480, params=[800, 790, 320, 240])
OPTIONS = original.RANSACOptions(max_error=2.0, random_seed=1)


def check(result, reference, rows):
    """Keys, types and shapes of both, and numbers that belong together."""
    assert set(result) == set(reference)
    for key, value in reference.items():
        assert type(result[key]) is type(value)
        if isinstance(value, np.ndarray):
            assert (result[key].shape, result[key].dtype) == (value.shape, value.dtype)
    assert result["inlier_mask"].shape == (rows,)
    assert result["num_inliers"] == result["inlier_mask"].sum()
    assert np.mean(result["inlier_mask"] == reference["inlier_mask"]) > 0.95
    assert isinstance(result.estimate, manymatch.Estimate)


@pytest.mark.parametrize("options", [OPTIONS, {"max_error": 2.0, "min_inlier_ratio": 0.1}])
def test_essential_matrix(options):
    data = matched()
    arguments = data.points0, data.points1, CAMERA, CAMERA, options
    result = ours.estimate_essential_matrix(*arguments)
    reference = original.estimate_essential_matrix(*arguments)
    check(result, reference, len(data.points0))
    pose, expected = result["cam2_from_cam1"], reference["cam2_from_cam1"]
    assert turn_deg(pose.rotation.matrix(), expected.rotation.matrix()) < 0.1
    assert direction_deg(pose.translation, expected.translation) < 1.0
    assert alike(result["E"], reference["E"], 0.01)
    graph = manymatch.AssociationGraph.from_matches(data.points0, data.points1)
    alone = manymatch.estimate_relative_pose(graph, K, K, options=result.estimate.options)
    assert np.array_equal(result["E"], alone.pose.essential())
    assert result.estimate.threshold_px == 2.0


def test_relative_pose_of_pixels_and_of_rays():
    data = matched()
    arguments = CAMERA, data.points0, CAMERA, data.points1, OPTIONS
    result = ours.estimate_relative_pose(*arguments)
    check(result, original.estimate_relative_pose(*arguments), len(data.points0))


def test_homography_matrix():
    data = matched(plane=True)
    arguments = data.points0, data.points1, OPTIONS
    result = ours.estimate_homography_matrix(*arguments)
    reference = original.estimate_homography_matrix(*arguments)
    check(result, reference, len(data.points0))
    assert matched_points.map_difference_px(result["H"], reference["H"], data.points0) < 0.5


def test_fundamental_matrix():
    data = matched()
    arguments = data.points0, data.points1, OPTIONS
    result = ours.estimate_fundamental_matrix(*arguments)
    reference = original.estimate_fundamental_matrix(*arguments)
    check(result, reference, len(data.points0))
    plain = ours.estimate_fundamental_matrix(*arguments, use_sampson_refinement=False)
    for found in (result, reference, plain):
        assert matched_points.epipolar_distance(found["F"], data) < 0.2


def test_absolute_pose():
    data = matched()
    arguments = data.points1, data.world, CAMERA
    options = original.AbsolutePoseEstimationOptions()
    options.ransac.max_error = 3.0
    for given in ((), (options,), ({"ransac": {"max_error": 3.0}},)):
        result = ours.estimate_absolute_pose(*arguments, *given)
        reference = original.estimate_absolute_pose(*arguments, *given)
        check(result, reference, len(data.world))
        pose, expected = result["cam_from_world"], reference["cam_from_world"]
        assert turn_deg(pose.rotation.matrix(), expected.rotation.matrix()) < 0.2
        assert np.abs(pose.translation - expected.translation).max() < 0.05
        assert result.estimate.threshold_px == (3.0 if given else 12.0)


def test_refined_absolute_pose():
    data = matched(400, 400)
    arguments = data.points1, data.world, CAMERA
    result = ours.estimate_and_refine_absolute_pose(*arguments)
    reference = original.estimate_and_refine_absolute_pose(*arguments)
    check(result, reference, len(data.world))
    pose, expected = result["cam_from_world"], reference["cam_from_world"]
    assert turn_deg(pose.rotation.matrix(), expected.rotation.matrix()) < 0.02


def test_unknown_focal_length_is_set_in_the_camera():
    data = matched()
    camera = original.Camera(model="SIMPLE_PINHOLE", width=640, height=480, params=[500, 320, 240])
    options = original.AbsolutePoseEstimationOptions(estimate_focal_length=True)
    options.ransac.max_error = 4.0
    result = ours.estimate_absolute_pose(data.points1, data.world, camera, options)
    assert camera.params[0] == pytest.approx(795, rel=0.02)
    assert list(camera.params[1:]) == [320, 240]
    assert turn_deg(result["cam_from_world"].rotation.matrix(), data.R) < 0.5


def test_options_are_those_of_pycolmap():
    trials = {"min_num_trials": 2000, "max_num_trials": 4000, "dyn_num_trials_multiplier": 2.0}
    options = original.RANSACOptions(max_error=3.0, confidence=0.999, random_seed=7, **trials)
    data = matched(plane=True)
    found = ours.estimate_homography_matrix(data.points0, data.points1, options).estimate.options
    assert found == manymatch.Options(
        threshold_px=3.0, confidence=0.999, min_iterations=2000, max_iterations=4000, safety=2.0,
        seed=7, threads=1,
    )  # fmt: skip
    plain = ours.estimate_homography_matrix(data.points0, data.points1).estimate.options
    assert plain == manymatch.Options(threshold_px=4.0)
    whole = ours.estimate_homography_matrix(data.points0, data.points1, original.RANSACOptions())
    assert whole.estimate.options.replace(threads=0) == plain


def test_nothing_found():
    few = matched(3, 3)
    assert ours.estimate_essential_matrix(few.points0, few.points1, CAMERA, CAMERA) is None
    assert ours.estimate_homography_matrix(few.points0, few.points1) is None
    assert ours.estimate_fundamental_matrix(few.points0, few.points1) is None
    assert ours.estimate_relative_pose(CAMERA, few.points0, CAMERA, few.points1) is None
    few = matched(2, 2)
    assert ours.estimate_absolute_pose(few.points0, few.world, CAMERA) is None
    assert ours.estimate_and_refine_absolute_pose(few.points0, few.world, CAMERA) is None


def test_other_names_are_the_originals(monkeypatch):
    functions = {
        *("absolute_pose", "and_refine_absolute_pose", "relative_pose", "essential_matrix"),
        *("fundamental_matrix", "homography_matrix"),
    }
    assert matched_points.only_these_are_ours(ours, original) == {
        f"estimate_{name}" for name in functions
    }
    monkeypatch.setitem(sys.modules, "pycolmap", None)
    with pytest.raises(AttributeError, match=r"pip install \"manymatch\[colmap\]\""):
        ours.Reconstruction  # noqa: B018
    data = matched(plane=True)
    assert ours.estimate_homography_matrix(data.points0, data.points1)["num_inliers"] > 80
    camera = {"model": "PINHOLE", "params": [800, 790, 320, 240]}
    with pytest.raises(ModuleNotFoundError, match="needs pycolmap: pip install"):
        ours.estimate_essential_matrix(data.points0, data.points1, camera, camera)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"points2D2": np.zeros((3, 2))}, "points2D2 must hold 120 points"),
        ({"camera1": "camera"}, "camera1 must be"),
        ({"estimation_options": 3}, "estimation_options must be an object of pycolmap's options"),
        ({"estimation_options": {"max_eror": 3}}, "estimation_options must have the keys max_e"),
        ({"estimation_options": {"max_error": 0}}, "^estimation_options.max_error must be"),
        ({"estimation_options": {"confidence": 3}}, "^estimation_options.confidence must be"),
        ({"edges": [[0, 500]]}, "edges must hold indices"),
    ],
)
def test_bad_input_is_one_sentence(change, message):
    data = matched()
    arguments = {"points2D1": data.points0, "points2D2": data.points1}
    arguments |= {"camera1": CAMERA, "camera2": CAMERA, **change}
    with pytest.raises(ValueError, match=message) as error:
        ours.estimate_essential_matrix(**arguments)
    assert "\n" not in str(error.value)
