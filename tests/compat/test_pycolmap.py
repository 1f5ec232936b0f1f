"""The switch for pycolmap beside pycolmap."""

import sys

import numpy as np
import pycolmap as original
import pytest

import manymatch
from manymatch.compat import pycolmap as ours
from tests.support import matched_points
from tests.support.matched_points import K, alike, direction_deg, matched, turn_deg, with_candidates

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
    rays = [np.c_[p, np.ones(len(p))] @ np.linalg.inv(K).T for p in (data.points0, data.points1)]
    options = original.RANSACOptions(max_error=2.0 / 795, random_seed=1)
    by_rays = ours.estimate_relative_pose(*rays, options)
    check(by_rays, original.estimate_relative_pose(*rays, options), len(data.points0))
    named = ours.estimate_relative_pose(cam_rays1=rays[0], cam_rays2=rays[1], options=options)
    for other in (by_rays, named):
        pose, expected = (r["cam2_from_cam1"].rotation.matrix() for r in (other, result))
        assert turn_deg(pose, expected) < 0.01


def test_homography_matrix():
    data = matched(plane=True)
    arguments = data.points0, data.points1, OPTIONS
    result = ours.estimate_homography_matrix(*arguments)
    reference = original.estimate_homography_matrix(*arguments)
    check(result, reference, len(data.points0))
    assert matched_points.map_difference_px(result["H"], reference["H"], data.points0) < 0.5


@pytest.mark.parametrize("plane", [False, True])
@pytest.mark.parametrize("compute", [False, True])
def test_two_view_geometry(plane, compute):
    data = matched(plane=plane)
    matches = np.repeat(np.arange(120, dtype=np.uint32)[:, None], 2, axis=1)
    options = original.TwoViewGeometryOptions(compute_relative_pose=compute)
    options.ransac.random_seed = 1
    arguments = CAMERA, data.points0, CAMERA, data.points1, matches, options
    geometry = ours.estimate_calibrated_two_view_geometry(*arguments)
    reference = original.estimate_calibrated_two_view_geometry(*arguments)
    assert type(geometry) is type(reference)
    assert geometry.config == reference.config
    if not plane:
        assert alike(geometry.E, reference.E, 0.02)
    assert matched_points.epipolar_distance(geometry.F, data) < 0.3
    assert geometry.inlier_matches.dtype == reference.inlier_matches.dtype
    found, expected = ({tuple(m) for m in g.inlier_matches.tolist()} for g in (geometry, reference))
    assert len(found ^ expected) < 12
    assert (geometry.cam2_from_cam1 is None) == (reference.cam2_from_cam1 is None)
    if compute:
        assert turn_deg(geometry.cam2_from_cam1.rotation.matrix(), data.R) < 1.0
        assert geometry.tri_angle == pytest.approx(reference.tri_angle, rel=0.1)
    *_, edges, _ = with_candidates(data.points0, data.points1)
    several = ours.estimate_calibrated_two_view_geometry(*arguments[:4], edges, {"ransac": {}})
    assert len(np.unique(several.inlier_matches[:, 0])) == len(several.inlier_matches) > 80


def test_two_view_geometry_of_too_few_matches():
    data = matched()
    matches = np.repeat(np.arange(12, dtype=np.uint32)[:, None], 2, axis=1)
    arguments = CAMERA, data.points0, CAMERA, data.points1, matches
    options = original.TwoViewGeometryOptions()
    geometry = ours.estimate_calibrated_two_view_geometry(*arguments, options)
    reference = original.estimate_calibrated_two_view_geometry(*arguments, options)
    assert geometry.config == reference.config
    assert geometry.E is reference.E is None
    assert geometry.inlier_matches.shape == reference.inlier_matches.shape
    with pytest.raises(
        ValueError, match=r"options must have the keys min_num_inliers, .*got .min_inliers."
    ):
        ours.estimate_calibrated_two_view_geometry(*arguments, {"min_inliers": 3})


def test_fundamental_matrix():
    data = matched()
    arguments = data.points0, data.points1, OPTIONS
    result = ours.estimate_fundamental_matrix(*arguments)
    reference = original.estimate_fundamental_matrix(*arguments)
    check(result, reference, len(data.points0))
    plain = ours.estimate_fundamental_matrix(*arguments, use_sampson_refinement=False)
    for found in (result, reference, plain):
        assert matched_points.epipolar_distance(found["F"], data) < 0.2


def test_affine_map():
    points = matched_points.affine_points()
    result = ours.estimate_affine2d_robust(*points, OPTIONS)
    reference = original.estimate_affine2d_robust(*points, OPTIONS)
    check(result, reference, 80)
    for found in (result, reference):
        assert matched_points.affine_error_px(found["tgt_from_src"]) < 0.5
    assert ours.estimate_affine2d_robust(points[0][:2], points[1][:2]) is None


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


def test_refined_absolute_pose_and_its_covariance():
    """The covariance is that of the original: of the same numbers, for a noise of one pixel."""
    data = matched(400, 400)
    arguments = data.points1, data.world, CAMERA
    result = ours.estimate_and_refine_absolute_pose(*arguments, return_covariance=True)
    reference = original.estimate_and_refine_absolute_pose(*arguments, return_covariance=True)
    check(result, reference, len(data.world))
    pose, expected = result["cam_from_world"], reference["cam_from_world"]
    assert turn_deg(pose.rotation.matrix(), expected.rotation.matrix()) < 0.02
    scale = np.sqrt(np.outer(*[np.diag(reference["covariance"])] * 2))
    assert np.abs((result["covariance"] - reference["covariance"]) / scale).max() < 0.3
    plain = ours.estimate_and_refine_absolute_pose(*arguments)
    assert set(plain) == {"cam_from_world", "num_inliers", "inlier_mask"}


def test_unknown_focal_length_is_set_in_the_camera():
    data = matched()
    camera = original.Camera(model="SIMPLE_PINHOLE", width=640, height=480, params=[500, 320, 240])
    options = original.AbsolutePoseEstimationOptions(estimate_focal_length=True)
    options.ransac.max_error = 4.0
    result = ours.estimate_absolute_pose(data.points1, data.world, camera, options)
    assert camera.params[0] == pytest.approx(795, rel=0.02)
    assert list(camera.params[1:]) == [320, 240]
    assert turn_deg(result["cam_from_world"].rotation.matrix(), data.R) < 0.5


@pytest.mark.parametrize("name", ["estimate_rigid3d_robust", "estimate_sim3d_robust"])
def test_clouds(name):
    data = matched()
    scale = 2.5 if "sim3d" in name else 1.0
    target = scale * data.world @ data.R.T + data.t
    target += np.random.default_rng(0).normal(0, 0.01, target.shape)
    target[data.right :] = np.random.default_rng(1).uniform(-5, 20, (len(target) - data.right, 3))
    options = original.RANSACOptions(max_error=0.05, random_seed=1)
    result = getattr(ours, name)(data.world, target, options)
    reference = getattr(original, name)(data.world, target, options)
    check(result, reference, len(target))
    found, expected = result["tgt_from_src"], reference["tgt_from_src"]
    assert np.abs(found.matrix() - expected.matrix()).max() < 0.02
    assert turn_deg(found.rotation.matrix(), data.R) < 0.2
    if scale != 1.0:
        assert found.scale == pytest.approx(scale, rel=1e-2)
    src, tgt, edges, own = with_candidates(data.world, target)
    listed = getattr(ours, name)(src, tgt, options)
    given = getattr(ours, name)(data.world, target, options, edges=edges)
    for other in (listed, given):
        assert np.abs(other["tgt_from_src"].matrix() - expected.matrix()).max() < 0.02
        assert np.mean(other["inlier_mask"] == (own & data.mask[edges[:, 0]])) > 0.98
    assert getattr(ours, name)(data.world[:2], target[:2], options) is None


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
        *("fundamental_matrix", "homography_matrix", "affine2d_robust", "rigid3d_robust"),
        *("sim3d_robust", "calibrated_two_view_geometry"),
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "the arguments must be camera1, points2D1, camera2, points2D2, options, got no"),
        ((np.ones((4, 3)),), "the arguments must be cam_rays1, .*, got no cam_rays2"),
        ((-np.ones((4, 3)), np.ones((4, 3))), "cam_rays1 must hold rays in front of the camera"),
        ((np.ones((4, 3)), np.ones((4, 2))), "cam_rays2 must be an .N, 3. array"),
    ],
)
def test_bad_forms_are_one_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        ours.estimate_relative_pose(*arguments)
