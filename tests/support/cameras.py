"""One camera of every model, with typical parameters."""

import pytest

from manymatch.geometry.camera import Camera

PARAMS = {
    "SIMPLE_PINHOLE": [500.0, 319.5, 239.5],
    "PINHOLE": [500.0, 520.0, 319.5, 239.5],
    "SIMPLE_RADIAL": [500.0, 319.5, 239.5, -0.1],
    "RADIAL": [500.0, 319.5, 239.5, -0.2, 0.05],
    "OPENCV": [500.0, 520.0, 319.5, 239.5, -0.28, 0.07, 0.001, -0.0005],
    "OPENCV_FISHEYE": [300.0, 310.0, 319.5, 239.5, -0.01, 0.004, -0.002, 0.0003],
    "FULL_OPENCV": [500.0, 520.0, 319.5, 239.5, 0.4, 0.1, 0.001, -0.0005, 0.02, 0.7, 0.2, 0.05],
}
CAMERAS = {model: Camera(model, 640, 480, params) for model, params in PARAMS.items()}
every_model = pytest.mark.parametrize("model", PARAMS)
