"""Camera against pycolmap, an independent implementation of the same models."""

import numpy as np
import pytest

from manymatch.geometry.camera import Camera, as_camera

pycolmap = pytest.importorskip("pycolmap", reason="pycolmap, the independent twin, is missing")

PARAMS = {
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
CASES = [(model, params) for model, cases in PARAMS.items() for params in cases]
every_case = pytest.mark.parametrize(("model", "params"), CASES)


def both(model, params):
    twin = pycolmap.Camera(model=model, width=640, height=480, params=params)
    return as_camera(twin, "camera0"), twin


@every_case
def test_pixels_to_plane(model, params):
    camera, twin = both(model, params)
    pixels = np.random.default_rng(0).uniform([0, 0], [640, 480], (1000, 2))
    theirs = twin.cam_from_img(pixels)
    # pycolmap stops its iterations at about 1e-10.
    np.testing.assert_allclose(camera.unproject(pixels - 0.5), theirs, atol=1e-9)


@every_case
def test_plane_to_pixels(model, params):
    camera, twin = both(model, params)
    plane = np.random.default_rng(1).uniform(-0.6, 0.6, (1000, 2))
    theirs = twin.img_from_cam(np.column_stack([plane, np.ones(len(plane))]))
    np.testing.assert_allclose(camera.project(plane), theirs - 0.5, atol=1e-11)


@every_case
def test_there_and_back(model, params):
    camera, twin = both(model, params)
    assert (camera.model, camera.width, camera.height) == (model, 640, 480)
    again = pycolmap.Camera(**camera.to_colmap())
    assert again.model == twin.model
    assert again.params.tolist() == twin.params.tolist()
    assert Camera.from_colmap(again) == camera


def test_model_of_pycolmap_that_is_not_supported():
    twin = pycolmap.Camera(model="FOV", width=640, height=480, params=[500, 500, 320, 240, 0.1])
    with pytest.raises(ValueError, match=r"^camera0 must be a valid camera, .* got 'FOV'"):
        as_camera(twin, "camera0")


def test_empty_camera_of_pycolmap():
    with pytest.raises(ValueError, match=r"^camera1 must be a valid camera"):
        as_camera(pycolmap.Camera(), "camera1")
