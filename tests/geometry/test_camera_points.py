"""Camera: points to pixels and back, folds of the distortion, resizing, any distortion."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from manymatch.geometry.camera import MODELS, Camera
from tests.support.cameras import CAMERAS, every_model


def pixels(count=500, seed=0):
    return np.random.default_rng(seed).uniform([-0.5, -0.5], [639.5, 479.5], (count, 2))


@every_model
@pytest.mark.parametrize("method", ["project", "unproject"])
@pytest.mark.parametrize(
    "points",
    [
        *(None, "abc", 1.0, [1.0, 2.0], np.zeros((3, 3)), np.zeros((2, 2, 2)), [[1.0, 2.0], [3.0]]),
        *(np.zeros((2, 2), kind) for kind in (bool, complex, object)),
    ],
)
def test_bad_points_name_them(model, method, points):
    with pytest.raises(ValueError, match=r"^points must be an \(N, 2\) array of .*, got "):
        getattr(CAMERAS[model], method)(points)


@every_model
def test_principal_point_is_the_axis(model):
    camera = CAMERAS[model]
    assert camera.project([]).shape == camera.unproject([]).shape == (0, 2)
    assert camera.project([[0, 0]]).tolist() == [[319.5, 239.5]]
    assert camera.unproject([[319.5, 239.5]]).tolist() == [[0, 0]]


@every_model
def test_pixels_that_are_not_finite_give_nan_and_leave_the_rest_alone(model):
    camera = CAMERAS[model]
    points = pixels(6)
    clean = camera.unproject(points)
    for row, value in enumerate([np.nan, np.inf, -np.inf]):
        points[2 * row, row % 2] = value
    before = points.copy()
    result = camera.unproject(points)
    np.testing.assert_array_equal(points, before)
    assert np.isnan(result[::2]).all()
    np.testing.assert_allclose(result[1::2], clean[1::2], rtol=1e-14)


@every_model
def test_result_does_not_depend_on_the_other_points(model):
    camera = CAMERAS[model]
    together = camera.unproject(pixels(20))
    alone = np.vstack([camera.unproject(p[None]) for p in pixels(20)])
    np.testing.assert_allclose(together, alone, rtol=1e-14)


@pytest.mark.parametrize(
    "params",
    [
        ("SIMPLE_RADIAL", [-0.5]),
        ("RADIAL", [-0.5, 0.0]),
        ("OPENCV", [-0.5, 0, 0, 0]),
        ("FULL_OPENCV", [-0.5, 0, 0, 0, 0, 0, 0, 0]),
    ],
)
def test_nan_beyond_the_fold(params):
    # r (1 - r^2 / 2) grows up to r = sqrt(2/3), where it is 0.5443...
    model, k = params
    focal = [1.0] if MODELS[model].num_focal == 1 else [1.0, 1.0]
    camera = Camera(model, None, None, [*focal, 0.0, 0.0, *k])
    reach = np.sqrt(2 / 3) * (1 - 1 / 3)
    inside, outside = reach * (1 - 1e-9), reach * (1 + 1e-9)
    assert np.isfinite(camera.unproject([[inside, 0.0], [0.0, -inside]])).all()
    assert np.isnan(camera.unproject([[outside, 0.0], [0.0, -outside], [5.0, 5.0]])).all()
    # A point beyond the fold lands on the pixel of a nearer one, which is what comes back.
    near = camera.unproject(camera.project([[1.2, 0.0]]))
    assert 0 < near[0, 0] < np.sqrt(2 / 3)


def rational(*k):
    return Camera("FULL_OPENCV", None, None, [1, 1, 0, 0, *k])


@pytest.mark.parametrize("tangential", [(0.0, 0.0), (1e-4, -2e-4)])
def test_rational_pole_bounds_the_rays_but_not_the_pixels(tangential):
    # r / (1 - r^2) grows to infinity at r = 1; every pixel has its ray before that.
    camera = rational(0, 0, *tangential, 0, -1, 0, 0)
    points = np.array([[0.6 / 0.64, 0.0], [0.0, -5.0], [70.0, 70.0], [1e3, 0.0]])
    result = camera.unproject(points)
    assert (np.hypot(*result.T) < 1).all()
    np.testing.assert_allclose(camera.project(result), points, rtol=1e-10, atol=1e-12)
    if tangential == (0.0, 0.0):
        np.testing.assert_allclose(result[0], [0.6, 0.0], rtol=1e-14)
    # Beyond the pole the image is covered again, upside down.
    assert (np.hypot(*camera.unproject(camera.project([[1.5, 0.0], [0.0, 4.0]])).T) < 1).all()


def test_rational_ray_of_a_pixel_too_far_for_its_length_is_unknown():
    far = [[1.7e308, 1.7e308]]
    assert np.isnan(rational(0.1, 0, 0, 0, 0, 0.05, 0, 0).unproject(far)).all()


def test_fisheye_ends_at_ninety_degrees():
    camera = Camera("OPENCV_FISHEYE", None, None, [1, 1, 0, 0, 0, 0, 0, 0])
    points = [[1.57, 0.0], [np.pi / 2, 0.0], [1.6, 0.0], [0.0, 4.0]]
    result = camera.unproject(points)
    assert result[0, 0] == pytest.approx(np.tan(1.57), rel=1e-12)
    assert np.isnan(result[1:]).all()


@pytest.mark.parametrize("k", [1e-30, 1e-8, 1.0, 1e8, 1e30])
@pytest.mark.parametrize("r", [1e-300, 1e-8, 1.0, 1e8, 1e60])
@pytest.mark.parametrize("signs", [(1, 0), (0, 1), (1, 1), (-1, 1), (1, -1), (-1, -1)])
def test_extreme_distortion_ends_quietly(k, r, signs):
    a, b = signs[0] * k, signs[1] * k
    radial = Camera("RADIAL", None, None, [1, 0, 0, a, b])
    for camera, always in (
        (radial, min(signs) >= 0),
        (rational(a, a, 0, 0, a, b, b, b), False),
    ):
        result = camera.unproject([[r, 0.0]])
        assert np.isfinite(result).all() or not always
        if np.isfinite(result).all():
            tolerance = 1e-12 if always and camera is radial else 1e-9
            assert camera.project(result)[0, 0] == pytest.approx(r, rel=tolerance)


@pytest.mark.parametrize("k", [-5e-324, -1e-313, -1e-300, -1e-200, 5e-324, 1e-200])
def test_vanishing_distortion_is_none(k):
    camera = Camera("SIMPLE_RADIAL", None, None, [500, 319.5, 239.5, k])
    expected = Camera("SIMPLE_PINHOLE", None, None, [500, 319.5, 239.5]).unproject(pixels())
    np.testing.assert_allclose(camera.unproject(pixels()), expected, rtol=1e-15)


@every_model
@pytest.mark.parametrize("scale", [(0.5,), (2.0,), (0.3, 0.7)])
def test_scaled_camera_sees_the_resized_image(model, scale):
    camera = CAMERAS[model]
    resized = camera.scaled(*scale)
    points = (pixels() + 0.5) * scale - 0.5
    np.testing.assert_allclose(resized.unproject(points), camera.unproject(pixels()), atol=1e-13)
    assert (resized.width, resized.height) == (round(640 * scale[0]), round(480 * scale[-1]))


@every_model
def test_scaling_keeps_the_model_where_it_can(model):
    expected = {"SIMPLE_PINHOLE": "PINHOLE", "SIMPLE_RADIAL": "OPENCV", "RADIAL": "OPENCV"}
    assert CAMERAS[model].scaled(0.5).model == model
    assert CAMERAS[model].scaled(0.5, 0.25).model == expected.get(model, model)
    assert CAMERAS[model].scaled(1.0) == CAMERAS[model]


@pytest.mark.parametrize("name", ["sx", "sy"])
@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf, 1e6, "2", True, [2.0], 1j])
def test_bad_scale_names_it(name, value):
    factors = {"sx": 1.0, "sy": 1.0} | {name: value}
    with pytest.raises(ValueError, match=rf"^{name} must be a number in \(0, 1e\+06\), got "):
        CAMERAS["PINHOLE"].scaled(**factors)


coefficients = st.floats(-2.0, 2.0)
small = st.floats(-0.2, 0.2)
seeds = st.integers(0, 2**32 - 1)
anything = st.floats(allow_nan=True, allow_infinity=True)

DISTORTED = {
    "SIMPLE_RADIAL": [coefficients],
    "RADIAL": [coefficients] * 2,
    "OPENCV": [coefficients, coefficients, small, small],
    "OPENCV_FISHEYE": [coefficients] * 4,
    "FULL_OPENCV": [coefficients, coefficients, small, small, *[coefficients] * 4],
}


def distorted_camera(model, distortion, focal=500.0):
    focals = [focal] * MODELS[model].num_focal
    return Camera(model, None, None, [*focals, 319.5, 239.5, *distortion])


@st.composite
def distorted_cameras(draw):
    model = draw(st.sampled_from(list(DISTORTED)))
    strength = draw(st.sampled_from([0.01, 0.1, 1.0]))
    return distorted_camera(model, [strength * draw(s) for s in DISTORTED[model]])


def slopes_along_rays(camera, plane, steps=200):
    """Least growth of the distorted position along the way from the axis, by differences.

    Returned is the smallest eigenvalue of the symmetric part of the derivative, found without any
    of the formulas of the package.
    """
    x = (np.linspace(0.0, 1.0, steps)[:, None, None] * plane).reshape(-1, 2)
    columns = [
        (camera.project(x + h) - camera.project(x - h)) / (2e-5 * camera.focal)
        for h in 1e-5 * np.eye(2)
    ]
    J = np.stack(columns, axis=2)
    least = np.linalg.eigvalsh(0.5 * (J + J.transpose(0, 2, 1)))[:, 0]
    return least.reshape(steps, len(plane)).min(axis=0)


def least_denominator(camera, plane, steps=200):
    """Least denominator of the distortion along the way from the axis; 1 where there is none."""
    if camera.model != "FULL_OPENCV":
        return np.ones(len(plane))
    s = np.linspace(0.0, 1.0, steps) ** 2 * np.sum(plane * plane, axis=1, keepdims=True)
    k4, k5, k6 = camera.distortion[5:]
    return np.min(1.0 + k4 * s + k5 * s**2 + k6 * s**3, axis=1)


@given(distorted_cameras(), seeds)
def test_plane_to_pixels_and_back_before_the_fold(camera, seed):
    plane = np.random.default_rng(seed).uniform(-1.0, 1.0, (20, 2))
    before = slopes_along_rays(camera, plane) > 1e-3
    before &= least_denominator(camera, plane) > 1e-2
    back = camera.unproject(camera.project(plane))
    np.testing.assert_allclose(back[before], plane[before], rtol=0, atol=1e-11)


@given(distorted_cameras(), seeds)
def test_pixels_to_plane_and_back_wherever_there_is_an_answer(camera, seed):
    pixels = np.random.default_rng(seed).uniform(-1000.0, 2000.0, (50, 2))
    plane = camera.unproject(pixels)
    found = np.isfinite(plane).all(axis=1)
    assert np.isnan(plane[~found]).all()
    # Close to 90 degrees a fisheye has a plane point at infinity, and digits go with it.
    near = found & (np.abs(plane).max(axis=1) < 1e3)
    np.testing.assert_allclose(camera.project(plane[near]), pixels[near], rtol=0, atol=1e-7)


@given(distorted_cameras(), seeds)
@example(
    distorted_camera("FULL_OPENCV", [0, 0, 0, 0, 0.00015625, 0, 0, 0.01]), 0
)  # falls, then rises
def test_two_pixels_never_share_a_ray(camera, seed):
    # The inverse is a function of the pixel onto one sheet, so it must grow with the pixel.
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=2)
    if camera.model in ("OPENCV", "FULL_OPENCV"):
        k = camera.distortion
        camera = distorted_camera(camera.model, [*k[:2], 0.0, 0.0, *k[4:]])
    direction /= np.linalg.norm(direction)
    radii = np.linspace(0.0, 1500.0, 100)
    plane = camera.unproject([319.5, 239.5] + radii[:, None] * direction) @ direction
    known = plane[np.isfinite(plane)]
    assert np.isfinite(plane[: len(known)]).all()
    assert (np.diff(known) > 0).all()


@given(
    st.sampled_from(list(DISTORTED)),
    st.lists(st.floats(-1e30, 1e30), min_size=8, max_size=8),
    st.lists(st.tuples(anything, anything), max_size=5),
)
def test_no_distortion_and_no_pixel_hangs_or_warns(model, distortion, points):
    camera = distorted_camera(model, distortion[: len(DISTORTED[model])])
    assert camera.unproject(points).shape == (len(points), 2)
    assert camera.project(points).shape == (len(points), 2)
