"""Camera against OpenCV, PoseLib and pycolmap, independent implementations of the models."""

import numpy as np
import pytest

from manymatch.geometry.camera import Camera, as_camera

WEAK = [-0.28, 0.07, 0.001, -0.0005]
DISTORTIONS = {
    "OPENCV": [WEAK, [0.15, -0.03, 0.0, 0.002]],
    "FULL_OPENCV": [
        [*WEAK, 0.0, 0.0, 0.0, 0.0],
        [*WEAK, -0.02, 0.0, 0.0, 0.0],
        [0.4, 0.1, 0.001, -0.0005, 0.02, 0.7, 0.2, 0.05],
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.3, -0.05, 0.01],
        [12.0, 5.0, 0.0003, 0.0002, 0.3, 12.4, 9.0, 1.5],
    ],
}
K = np.array([[500.0, 0.0, 310.0], [0.0, 520.0, 250.0], [0.0, 0.0, 1.0]])
CASES = [(model, k) for model, cases in DISTORTIONS.items() for k in cases]
every_case = pytest.mark.parametrize(("model", "k"), CASES)


def camera_of(model, k):
    return Camera(model, 640, 480, [500.0, 520.0, 310.0, 250.0, *k])


def some_pixels(count=500):
    return np.random.default_rng(0).uniform((0, 0), (640, 480), (count, 2))


@every_case
def test_plane_to_pixels_as_opencv(model, k):
    cv2 = pytest.importorskip("cv2", reason="OpenCV, the independent twin, is missing")
    plane = np.random.default_rng(1).uniform(-0.7, 0.7, (500, 2))
    points = np.column_stack([plane, np.ones(len(plane))])
    theirs = cv2.projectPoints(points, np.zeros(3), np.zeros(3), K, np.array(k))[0][:, 0]
    np.testing.assert_allclose(camera_of(model, k).project(plane), theirs, rtol=0, atol=1e-10)


@every_case
def test_pixels_to_plane_as_opencv(model, k):
    cv2 = pytest.importorskip("cv2", reason="OpenCV, the independent twin, is missing")
    # OpenCV iterates a fixed point; 500 steps take it to the last digits here.
    stop = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 500, 1e-14)
    pixels = some_pixels()
    theirs = cv2.undistortPoints(
        pixels[:, None], K, np.array(k), np.empty(0), np.eye(3), np.eye(3), stop
    )
    ours = camera_of(model, k).unproject(pixels)
    np.testing.assert_allclose(ours, theirs[:, 0], rtol=0, atol=1e-9)


@every_case
def test_dict_means_the_same_camera_to_poselib(model, k):
    poselib = pytest.importorskip("poselib", reason="PoseLib, the independent twin, is missing")
    camera = camera_of(model, k)
    values = camera.to_dict()
    twin = poselib.Camera(values["model"], values["params"], values["width"], values["height"])
    assert twin.model_name() == model
    pixels = some_pixels(50)
    rays = camera.unproject(pixels)
    np.testing.assert_allclose(twin.unproject(pixels), rays, atol=1e-7)
    np.testing.assert_allclose(twin.project(rays), pixels, atol=1e-8)


COLMAP_PARAMS = {
    "SIMPLE_PINHOLE": [[500, 310, 250]],
    "PINHOLE": [[500, 520, 310, 250]],
    "SIMPLE_RADIAL": [[500, 310, 250, -0.15], [500, 310, 250, 0.4]],
    "RADIAL": [[500, 310, 250, -0.2, 0.05], [500, 310, 250, 0.1, -0.02]],
    "OPENCV": [[500, 520, 310, 250, -0.28, 0.07, 0.002, -0.003]],
    "OPENCV_FISHEYE": [[300, 310, 310, 250, -0.01, 0.004, -0.002, 0.0003]],
    "FULL_OPENCV": [
        [500, 520, 310, 250, 0.4, 0.1, 0.002, -0.003, 0.02, 0.7, 0.2, 0.05],
        [500, 520, 310, 250, -0.2, 0.05, 0.001, 0.002, -0.01, 0, 0, 0],
    ],
}
COLMAP_CASES = [(model, params) for model, cases in COLMAP_PARAMS.items() for params in cases]
every_colmap_case = pytest.mark.parametrize(("model", "params"), COLMAP_CASES)


def both(model, params):
    pycolmap = pytest.importorskip("pycolmap", reason="pycolmap, the independent twin, is missing")
    twin = pycolmap.Camera(model=model, width=640, height=480, params=params)
    return as_camera(twin, "camera0"), twin


@every_colmap_case
def test_as_pycolmap_there_and_back(model, params):
    camera, twin = both(model, params)
    pixels = np.random.default_rng(0).uniform([0, 0], [640, 480], (1000, 2))
    # pycolmap stops its iterations at about 1e-10.
    theirs = twin.cam_from_img(pixels)
    np.testing.assert_allclose(camera.unproject(pixels - 0.5), theirs, atol=1e-9)
    plane = np.random.default_rng(1).uniform(-0.6, 0.6, (1000, 2))
    theirs = twin.img_from_cam(np.column_stack([plane, np.ones(len(plane))]))
    np.testing.assert_allclose(camera.project(plane), theirs - 0.5, atol=1e-11)
    assert (camera.model, camera.width, camera.height) == (model, 640, 480)
    again = type(twin)(**camera.to_colmap())
    assert again.model == twin.model
    assert again.params.tolist() == twin.params.tolist()
    assert Camera.from_colmap(again) == camera
    with pytest.raises(ValueError, match=r"^camera1 must be a valid camera"):
        as_camera(type(twin)(), "camera1")
