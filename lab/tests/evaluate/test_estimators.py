"""Other packages' estimators: the pose they find, what they refuse, and what they need."""

import sys

import pytest

from manymatch import Camera, Options, RelativePose, pose_error_deg
from manymatch_lab.datasets.synthetic import EASY, make_scene
from manymatch_lab.evaluate.estimators import (
    BASELINES,
    checked_estimator,
    estimate_with_opencv,
    estimate_with_poselib,
)

MODULES = {"poselib": "poselib", "opencv": "cv2", "pycolmap": "pycolmap"}


@pytest.fixture(scope="module")
def scene():
    return make_scene(EASY, 1)


@pytest.mark.parametrize("name", BASELINES)
def test_an_easy_scene_is_solved(scene, name):
    pytest.importorskip(MODULES[name])
    options = Options(max_iterations=2000, seed=2**40)
    found = BASELINES[name](scene.graph.up_to_rank(1), scene.camera0, scene.camera1, options)
    assert pose_error_deg(found.pose, scene.pose.R, scene.pose.t) < 2
    assert found.seconds > 0
    assert (found.iterations is None) == (name != "poselib")
    again = BASELINES[name](scene.graph.up_to_rank(1), scene.camera0, scene.camera1, options)
    assert again.pose.R.tolist() == found.pose.R.tolist()


@pytest.mark.parametrize("name", BASELINES)
def test_too_few_edges_are_no_error(scene, name):
    pytest.importorskip(MODULES[name])
    assert BASELINES[name](scene.graph.head(4), scene.camera0, scene.camera1).pose is None


@pytest.mark.parametrize("name", BASELINES)
def test_a_missing_package_is_one_sentence(scene, name, monkeypatch):
    monkeypatch.setitem(sys.modules, MODULES[name], None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "manymatch\[baselines\]"'):
        BASELINES[name](scene.graph, scene.camera0, scene.camera1)


def test_poselib_refines_with_a_cauchy_loss_as_wide_as_the_threshold(scene):
    poselib = pytest.importorskip("poselib")
    graph, cameras = scene.graph.up_to_rank(1), (scene.camera0, scene.camera1)
    points = graph.points0[graph.edges[:, 0]], graph.points1[graph.edges[:, 1]]
    ransac = {"max_epipolar_error": 2.0, "max_iterations": 2000, "seed": 4}
    as_dicts = [camera.to_dict() for camera in cameras]
    wide, _ = poselib.estimate_relative_pose(*points, *as_dicts, ransac, {"loss_scale": 2.0})
    narrow, _ = poselib.estimate_relative_pose(*points, *as_dicts, ransac, {})
    options = Options(threshold_px=2.0, max_iterations=2000, seed=4)
    found = estimate_with_poselib(graph, *cameras, options).pose
    assert found.R.tolist() == RelativePose(wide.R, wide.t).R.tolist()
    half = estimate_with_poselib(graph, *cameras, options, cauchy_scale=0.5).pose
    assert half.R.tolist() == RelativePose(narrow.R, narrow.t).R.tolist() != found.R.tolist()


def test_wrong_arguments(scene):
    with pytest.raises(ValueError, match="variant must be one of magsac, accurate, got 'usac'"):
        estimate_with_opencv(scene.graph, scene.camera0, scene.camera1, variant="usac")
    with pytest.raises(ValueError, match=r"estimator must be one of auto, .*did you mean 'mcm'"):
        checked_estimator("mmc")
    pytest.importorskip("poselib")
    skewed = Camera.from_matrix([[800.0, 3.0, 512.0], [0.0, 800.0, 384.0], [0.0, 0.0, 1.0]])
    with pytest.raises(ValueError, match="camera must have no skew for PoseLib, got skew=3"):
        estimate_with_poselib(scene.graph, skewed, scene.camera1)
