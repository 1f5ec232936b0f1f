"""The report's epipolar lines: where the other point can be, for every camera model."""

import itertools

import numpy as np
import pytest

from manymatch import Camera, RelativePose
from manymatch.viz import overlay
from tests.oracles.geometry import cross_matrix

CAMERAS = [
    Camera("PINHOLE", 640, 480, [500, 510, 320, 235]),
    Camera("OPENCV", 640, 480, [420, 420, 318, 242, -0.28, 0.07, 0.001, -0.002]),
    Camera("SIMPLE_RADIAL", 640, 480, [600, 320, 240, 0.2]),
    Camera("OPENCV_FISHEYE", 640, 480, [230, 230, 320, 240, 0.02, -0.01, 0.002, 0.0]),
]


@pytest.mark.parametrize("camera", CAMERAS, ids=lambda camera: camera.model)
@pytest.mark.parametrize("t", [(-1, 0.1, 0.2), (0.1, 0.05, 1.0)])
def test_epipolar_lines_are_where_the_other_point_can_be(camera, t):
    rng = np.random.default_rng(3)
    c, s = np.cos(0.2), np.sin(0.2)
    pose = RelativePose([[c, 0, s], [0, 1, 0], [-s, 0, c]], t)
    source = CAMERAS[0]
    depth = np.geomspace(1.5, 60.0, 15)
    keypoints = rng.uniform((40, 40), (600, 440), (12, 2))
    lines = overlay.epipolar_lines(keypoints, pose.essential(), source, camera, (640, 480))
    seen = 0
    for keypoint, line in zip(keypoints, lines, strict=True):
        ray = np.append(source.unproject(keypoint[None])[0], 1.0)
        places = (depth[:, None] * ray) @ pose.R.T + pose.t
        places = places[places[:, 2] > 0.05]
        pixels = camera.project(places[:, :2] / places[:, 2:])
        inside = np.all((pixels >= 0) & (pixels <= (639, 479)), axis=1)
        curve = np.array(line).reshape(-1, 2)
        for pixel in pixels[inside]:
            assert distance_to(curve, pixel) < 0.5
            seen += 1
    assert seen > 40
    lengths = {len(line) for line in lines if line}
    assert len(lengths) == 1
    assert (lengths == {4}) == (camera.model == "PINHOLE")


def distance_to(curve, point):
    """Distance of a point from a polyline, segment by segment."""
    best = np.inf
    for a, b in itertools.pairwise(curve):
        along = np.clip((point - a) @ (b - a) / ((b - a) @ (b - a)), 0, 1)
        best = min(best, np.linalg.norm(a + along * (b - a) - point))
    return best


def test_epipolar_lines_that_are_not_there():
    camera = CAMERAS[0]
    # Straight forward: the epipole has no line, and a camera beside has lines far outside.
    E = cross_matrix([0.0, 0.0, 1.0])
    centre = [[camera.cx, camera.cy]]
    assert overlay.epipolar_lines(np.array(centre), E, camera, camera, (640, 480)) == [[]]
    E = cross_matrix([1.0, 0.0, 0.0])
    assert overlay.epipolar_lines(np.array([[0, 9e4]]), E, camera, camera, (640, 480)) == [[]]
    assert overlay.epipolar_lines(np.empty((0, 2)), E, camera, camera, (640, 480)) == []
