"""Camera: round trips for any distortion, folds included."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from manymatch.geometry.camera import Camera
from manymatch.geometry.camera_models import MODELS

no_deadline = settings(deadline=None)

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


def camera_of(model, distortion, focal=500.0):
    focals = [focal] * MODELS[model].num_focal
    return Camera(model, None, None, [*focals, 319.5, 239.5, *distortion])


@st.composite
def distorted_cameras(draw):
    model = draw(st.sampled_from(list(DISTORTED)))
    strength = draw(st.sampled_from([0.01, 0.1, 1.0]))
    return camera_of(model, [strength * draw(s) for s in DISTORTED[model]])


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


@no_deadline
@given(distorted_cameras(), seeds)
def test_plane_to_pixels_and_back_before_the_fold(camera, seed):
    plane = np.random.default_rng(seed).uniform(-1.0, 1.0, (20, 2))
    before = slopes_along_rays(camera, plane) > 1e-3
    before &= least_denominator(camera, plane) > 1e-2
    back = camera.unproject(camera.project(plane))
    np.testing.assert_allclose(back[before], plane[before], rtol=0, atol=1e-11)


@no_deadline
@given(distorted_cameras(), seeds)
def test_pixels_to_plane_and_back_wherever_there_is_an_answer(camera, seed):
    pixels = np.random.default_rng(seed).uniform(-1000.0, 2000.0, (50, 2))
    plane = camera.unproject(pixels)
    found = np.isfinite(plane).all(axis=1)
    assert np.isnan(plane[~found]).all()
    # Close to 90 degrees a fisheye has a plane point at infinity, and digits go with it.
    near = found & (np.abs(plane).max(axis=1) < 1e3)
    np.testing.assert_allclose(camera.project(plane[near]), pixels[near], rtol=0, atol=1e-7)


@no_deadline
@given(distorted_cameras(), seeds)
def test_two_pixels_never_share_a_ray(camera, seed):
    # The inverse is a function of the pixel onto one sheet, so it must grow with the pixel.
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=2)
    if camera.model in ("OPENCV", "FULL_OPENCV"):
        k = camera.distortion
        camera = camera_of(camera.model, [*k[:2], 0.0, 0.0, *k[4:]])
    direction /= np.linalg.norm(direction)
    radii = np.linspace(0.0, 1500.0, 100)
    plane = camera.unproject([319.5, 239.5] + radii[:, None] * direction) @ direction
    known = plane[np.isfinite(plane)]
    assert np.isfinite(plane[: len(known)]).all()
    assert (np.diff(known) > 0).all()


@no_deadline
@given(
    st.sampled_from(list(DISTORTED)),
    st.lists(st.floats(-1e30, 1e30), min_size=8, max_size=8),
    st.lists(st.tuples(anything, anything), max_size=5),
)
def test_no_distortion_and_no_pixel_hangs_or_warns(model, distortion, points):
    camera = camera_of(model, distortion[: len(DISTORTED[model])])
    assert camera.unproject(points).shape == (len(points), 2)
    assert camera.project(points).shape == (len(points), 2)


@no_deadline
@given(distorted_cameras(), st.floats(0.1, 10.0), st.floats(0.1, 10.0), seeds)
def test_scaling_and_pixels_commute(camera, sx, sy, seed):
    plane = np.random.default_rng(seed).uniform(-0.5, 0.5, (10, 2))
    expected = (camera.project(plane) + 0.5) * (sx, sy) - 0.5
    np.testing.assert_allclose(
        camera.scaled(sx, sy).project(plane), expected, rtol=1e-12, atol=1e-9
    )


@no_deadline
@given(distorted_cameras())
def test_conversions_give_the_camera_back(camera):
    assert Camera.from_dict(camera.to_dict()) == camera
    assert Camera.from_colmap(camera.to_colmap()) == camera
