import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manymatch.geometry.camera import Camera
from manymatch_lab.datasets import DepthView
from tests.support.synthetic_trees import transform

WIDTH, HEIGHT = 40, 30
CAMERA = Camera("PINHOLE", WIDTH, HEIGHT, [35.0, 36.0, 19.0, 14.5])
LENS = Camera("OPENCV", WIDTH, HEIGHT, [35.0, 36.0, 19.0, 14.5, 0.1, -0.02, 0.003, -0.002])


def plane_view(camera, T, normal, offset):
    """Depth of the plane ``normal . X = offset`` of the common frame, ray by ray."""
    depth = np.full((HEIGHT, WIDTH), np.nan)
    R, t = T[:3, :3], T[:3, 3]
    for y in range(HEIGHT):
        for x in range(WIDTH):
            ray = np.append(camera.unproject([[x, y]])[0], 1.0)
            # X = R.T (z ray - t), so that normal . X = offset is one equation in z.
            speed = normal @ (R.T @ ray)
            z = (offset + normal @ (R.T @ t)) / speed
            depth[y, x] = z if z > 0 else np.nan
    return DepthView(depth, None, camera, np.linalg.inv(T))


def test_points_are_where_they_were_projected_from():
    """Known points of a plane, seen by two cameras, come back from either view."""
    normal, offset = np.array([0.1, -0.2, 1.0]), 3.0
    T0, T1 = np.eye(4), np.eye(4)
    angle = 0.2
    T1[:3, :3] = [[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]]
    T1[:3, 3] = [-0.5, 0.1, 0.2]
    xy = np.random.default_rng(0).uniform(-0.3, 0.3, (50, 2))
    points = np.column_stack([xy, offset - xy @ normal[:2]])
    for T, camera in ((T0, CAMERA), (T1, LENS)):
        view = plane_view(camera, T, normal, offset)
        local = points @ T[:3, :3].T + T[:3, 3]
        pixels = camera.project(local[:, :2] / local[:, 2:])
        # The ray is exact, the depth that of a pixel at most 0.71 away; at pixel centres both are.
        np.testing.assert_allclose(view.points(pixels), points, atol=0.03)
        centres = np.floor(pixels + 0.5)
        exact = view.points(centres)
        np.testing.assert_allclose(exact @ normal, offset, atol=1e-5)
        back = exact @ T[:3, :3].T + T[:3, 3]
        np.testing.assert_allclose(camera.project(back[:, :2] / back[:, 2:]), centres, atol=1e-4)


@given(st.integers(0, 10_000))
def test_points_follow_the_transform_of_a_view(seed):
    rng = np.random.default_rng(seed)
    depth = rng.uniform(0.5, 5.0, (HEIGHT, WIDTH)).astype(np.float32)
    T = transform(rng)
    view = DepthView(depth, None, LENS, T)
    x, y = int(rng.integers(WIDTH)), int(rng.integers(HEIGHT))
    (point,) = view.points([[x, y]])
    local = np.linalg.solve(T, np.append(point, 1.0))
    assert local[2] == pytest.approx(depth[y, x], rel=1e-6)
    np.testing.assert_allclose(LENS.project([local[:2] / local[2]]), [[x, y]], atol=1e-5)


def test_unknown_depth_is_nan():
    depth = np.full((HEIGHT, WIDTH), 2.0, dtype=np.float32)
    depth[0, 0], depth[0, 1], depth[0, 2], depth[0, 3] = np.nan, 0.0, -1.0, np.inf
    mask = np.ones((HEIGHT, WIDTH), dtype=bool)
    mask[5, 6] = False
    view = DepthView(depth, mask, CAMERA, np.eye(4))
    unknown = [[0, 0], [1, 0], [2, 0], [3, 0], [6, 5], [-0.51, 9], [9, HEIGHT - 0.5], [np.nan, 1]]
    assert np.isnan(view.points(unknown)).all()
    known = [[4, 0], [5.4, 5], [6.5, 5], [-0.5, 9], [9, HEIGHT - 0.51], [WIDTH - 0.51, 3]]
    assert np.isfinite(view.points(known)).all()
    assert view.points(np.zeros((0, 2))).shape == (0, 3)
    assert repr(view) == "DepthView(40 x 30, 100% with depth)"


@pytest.mark.parametrize(
    "change",
    [
        {"depth": np.ones(4)},
        {"mask": np.ones((3, 4), dtype=bool)},
        {"mask": np.ones((HEIGHT, WIDTH))},
        {"camera": np.eye(3)},
        {"camera": Camera("PINHOLE", 41, 30, [35, 35, 20, 15])},
        {"to_common": np.full((4, 4), np.nan)},
        {"to_common": np.diag([1.0, 1, -1, 1])},
        {"to_common": 2 * np.eye(4)},
    ],
)
def test_views_are_checked(change):
    fields = {"depth": np.ones((HEIGHT, WIDTH)), "mask": None, "camera": CAMERA}
    with pytest.raises(ValueError, match=r"^(depth|mask|camera|to_common) must (be|hold)"):
        DepthView(**{**fields, "to_common": np.eye(4), **change})
