"""Camera: bad input, pixel conventions, doors to COLMAP, resizing, folds."""

import copy
import dataclasses
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from manymatch.camera import Camera, as_camera
from manymatch.camera_models import MODELS

PARAMS = {
    "SIMPLE_PINHOLE": [500.0, 319.5, 239.5],
    "PINHOLE": [500.0, 520.0, 319.5, 239.5],
    "SIMPLE_RADIAL": [500.0, 319.5, 239.5, -0.1],
    "RADIAL": [500.0, 319.5, 239.5, -0.2, 0.05],
    "OPENCV": [500.0, 520.0, 319.5, 239.5, -0.28, 0.07, 0.001, -0.0005],
    "OPENCV_FISHEYE": [300.0, 310.0, 319.5, 239.5, -0.01, 0.004, -0.002, 0.0003],
}
CAMERAS = {model: Camera(model, 640, 480, params) for model, params in PARAMS.items()}
K = np.array([[500.0, 0.0, 319.5], [0.0, 520.0, 239.5], [0.0, 0.0, 1.0]])
every_model = pytest.mark.parametrize("model", PARAMS)


def pixels(count=500, seed=0):
    return np.random.default_rng(seed).uniform([-0.5, -0.5], [639.5, 479.5], (count, 2))


def with_entry(matrix, index, value):
    result = np.array(matrix, dtype=np.float64)
    result[index] = value
    return result


# ---------------------------------------------------------------- constructor


@pytest.mark.parametrize(
    "model", [None, 1, "", "pinhole", "FULL_OPENCV", ["PINHOLE"], b"PINHOLE", np.array([1, 2])]
)
def test_bad_model_names_it_and_the_known_ones(model):
    with pytest.raises(ValueError, match=r"^model must be one of SIMPLE_PINHOLE, .*, got "):
        Camera(model, 640, 480, PARAMS["PINHOLE"])


def test_close_model_is_suggested():
    with pytest.raises(ValueError, match="did you mean 'OPENCV_FISHEYE'"):
        Camera("OPENCV_FISH_EYE", 640, 480, PARAMS["OPENCV_FISHEYE"])


@pytest.mark.parametrize("name", ["width", "height"])
@pytest.mark.parametrize("value", [0, -1, 640.0, "640", True, np.nan, [640], None])
def test_bad_size_names_it(name, value):
    size = {"width": 640, "height": 480} | {name: value}
    with pytest.raises(ValueError, match=rf"^{name} must be .*, got "):
        Camera("PINHOLE", **size, params=PARAMS["PINHOLE"])


@every_model
@pytest.mark.parametrize(
    "make",
    [
        lambda _: None,
        lambda _: "abc",
        lambda _: 1.0,
        lambda _: [],
        lambda p: p[:-1],
        lambda p: [*p, 0.0],
        lambda p: [p],
        lambda p: [str(v) for v in p],
        lambda p: [True] * len(p),
        lambda p: np.array(p, dtype=complex),
        lambda p: np.array(p, dtype=object),
        lambda p: [*p[:-1], [p[-1]]],
        lambda p: [*p[:-1], np.nan],
        lambda p: [*p[:-1], np.inf],
        lambda p: [0.0, *p[1:]],
        lambda p: [-500.0, *p[1:]],
        lambda p: [1e-320, *p[1:]],
    ],
)
def test_bad_params_name_them(model, make):
    with pytest.raises(ValueError, match=r"^params must .*, got "):
        Camera(model, 640, 480, make(PARAMS[model]))


@pytest.mark.parametrize("model", ["SIMPLE_RADIAL", "RADIAL", "OPENCV", "OPENCV_FISHEYE"])
def test_absurd_distortion_is_refused(model):
    with pytest.raises(
        ValueError, match=r"^params must have a distortion [kp].* up to 1e\+30, got"
    ):
        Camera(model, 640, 480, [*PARAMS[model][:-1], 1e31])


@pytest.mark.parametrize("model", ["PINHOLE", "OPENCV", "OPENCV_FISHEYE"])
def test_bad_second_focal_length_is_named(model):
    with pytest.raises(ValueError, match=r"^params must have a positive focal length fy, got -1"):
        Camera(model, 640, 480, [500.0, -1.0, *PARAMS[model][2:]])


def test_params_sentence_lists_what_is_wanted():
    with pytest.raises(ValueError, match=r"the 5 finite numbers f, cx, cy, k1, k2 of RADIAL"):
        Camera("RADIAL", 640, 480, [1.0])


@every_model
def test_intrinsics_by_name(model):
    camera = CAMERAS[model]
    named = dict(zip(MODELS[model].fields, PARAMS[model], strict=True))
    assert (camera.cx, camera.cy) == (named["cx"], named["cy"])
    assert camera.fx == named.get("fx", named.get("f"))
    assert camera.fy == named.get("fy", named.get("f"))
    assert camera.focal == (camera.fx + camera.fy) / 2
    coefficients = [value for name, value in named.items() if name[0] in "kp"]
    assert list(camera.distortion) == coefficients
    assert camera.K.tolist() == [[camera.fx, 0, camera.cx], [0, camera.fy, camera.cy], [0, 0, 1]]
    assert not camera.K.flags.writeable


@every_model
def test_frozen_hashable_equal_and_copied(model):
    camera = CAMERAS[model]
    again = Camera(model, np.int64(640), np.uint16(480), np.array(PARAMS[model]))
    assert again == camera
    assert hash(again) == hash(camera)
    assert type(again.width) is int
    assert camera != Camera(model, 641, 480, PARAMS[model])
    assert camera != Camera(model, 640, 480, [501.0, *PARAMS[model][1:]])
    assert pickle.loads(pickle.dumps(camera)) == copy.deepcopy(camera) == camera  # noqa: S301
    with pytest.raises(dataclasses.FrozenInstanceError):
        camera.model = "PINHOLE"


def test_repr():
    text = "Camera(SIMPLE_RADIAL, 640x480, f=500, cx=319.5, cy=239.5, k=-0.1)"
    assert repr(CAMERAS["SIMPLE_RADIAL"]) == text
    assert "size unknown" in repr(Camera.from_matrix(K))


# ---------------------------------------------------------------- matrix

BAD_K = [
    None,
    "abc",
    500.0,
    [],
    K[:2],
    K[None],
    np.eye(4),
    K > 0,
    K.astype(complex),
    K.astype(object),
    [[500, 0, 320], [0, 500], [0, 0, 1]],
    np.zeros((3, 3)),
    -K,
    2 * K,
    K.T,
    np.linalg.inv(K) * [[-1], [1], [1]],
    with_entry(K, (0, 2), np.nan),
    with_entry(K, (1, 1), np.inf),
    with_entry(K, (0, 0), 0.0),
    with_entry(K, (0, 0), 1e-320),
    with_entry(K, (1, 1), -520.0),
    with_entry(K, (0, 1), 0.1),
    with_entry(K, (1, 0), 0.1),
    with_entry(K, (2, 0), 1e-3),
    with_entry(K, (2, 2), 0.0),
]
every_bad_matrix = pytest.mark.parametrize("bad", BAD_K, ids=range(len(BAD_K)))


@every_bad_matrix
def test_bad_matrix_names_it(bad):
    with pytest.raises(ValueError, match=r"^K must .*, got "):
        Camera.from_matrix(bad)


@pytest.mark.parametrize(("name", "size"), [("width", (0, 480)), ("height", (640, None))])
def test_bad_size_with_a_matrix(name, size):
    with pytest.raises(ValueError, match=rf"^{name} must "):
        Camera.from_matrix(K, *size)


def test_matrix_round_trip():
    camera = Camera.from_matrix(K.tolist(), 640, 480)
    assert camera == CAMERAS["PINHOLE"]
    assert camera.K.tolist() == K.tolist()


def test_round_off_in_a_matrix_is_forgiven():
    noisy = K + 1e-12 * np.array([[0, 1, 0], [-1, 0, 0], [1, 1, 1]])
    assert Camera.from_matrix(noisy) == Camera.from_matrix(K)


# ---------------------------------------------------------------- dict and COLMAP


@every_model
def test_dict_is_taken_without_any_shift(model):
    values = {"model": model, "width": 640, "height": 480, "params": PARAMS[model]}
    assert Camera.from_dict(values) == as_camera(values, "camera0") == CAMERAS[model]
    assert CAMERAS[model].to_dict() == values


def test_dict_without_size():
    values = {"model": "PINHOLE", "params": PARAMS["PINHOLE"]}
    assert Camera.from_dict(values) == Camera("PINHOLE", None, None, PARAMS["PINHOLE"])


@every_model
def test_colmap_door_shifts_the_principal_point_only(model):
    camera = CAMERAS[model]
    colmap = camera.to_colmap()
    n = MODELS[model].num_focal
    expected = list(camera.params)
    expected[n : n + 2] = [320.0, 240.0]
    assert colmap == {"model": model, "width": 640, "height": 480, "params": expected}
    assert Camera.from_colmap(colmap) == camera


def test_objects_like_those_of_pycolmap():
    params = np.array([500.0, 520.0, 320.0, 240.0])
    named = SimpleNamespace(model=SimpleNamespace(name="PINHOLE"), width=640, height=480)
    older = SimpleNamespace(model_name="PINHOLE", width=640, height=480)
    plain = SimpleNamespace(model="PINHOLE", width=640, height=480)
    for camera in (named, older, plain):
        camera.params = params
        assert as_camera(camera, "camera0") == CAMERAS["PINHOLE"]
    unknown_size = SimpleNamespace(model="PINHOLE", width=0, height=0, params=params)
    assert Camera.from_colmap(unknown_size).width is None


@pytest.mark.parametrize("value", [None, 3, "PINHOLE", K, SimpleNamespace(model="PINHOLE")])
def test_bad_colmap_object(value):
    with pytest.raises(ValueError, match=r"^camera must be a pycolmap.Camera or a dict, got "):
        Camera.from_colmap(value)


BAD_DICTS = [
    ({}, "'model'"),
    ({"model": "PINHOLE"}, "'params'"),
    ({"params": PARAMS["PINHOLE"]}, "'model'"),
    ({"model": "PINHOLE", "params": PARAMS["PINHOLE"], "f": 1}, "'f'"),
    ({"model": "PINHOLE", "params": PARAMS["PINHOLE"], "heigth": 1}, "did you mean 'height'"),
    ({"model": "PINHOLE", "params": PARAMS["PINHOLE"], 3: 1}, "key 3"),
    ({"model": "PINHOLE", "params": [1.0]}, "params must be"),
    ({"model": "WIDE", "params": PARAMS["PINHOLE"]}, "model must be"),
    ({"model": "PINHOLE", "width": -1, "height": 2, "params": PARAMS["PINHOLE"]}, "width must be"),
    ({"model": "PINHOLE", "width": 2, "params": PARAMS["PINHOLE"]}, "height must be"),
]


@pytest.mark.parametrize(("values", "part"), BAD_DICTS)
def test_bad_dict(values, part):
    with pytest.raises(ValueError, match=r"^(values|model|params|width|height) must ") as error:
        Camera.from_dict(values)
    assert part in str(error.value)


@pytest.mark.parametrize("values", [None, 3, "PINHOLE", [("model", "PINHOLE")]])
def test_from_dict_of_what_is_no_dict(values):
    with pytest.raises(ValueError, match=r"^values must be a dict .*, got "):
        Camera.from_dict(values)


# ---------------------------------------------------------------- as_camera


def test_camera_is_passed_on():
    assert as_camera(CAMERAS["RADIAL"], "camera0") is CAMERAS["RADIAL"]


@pytest.mark.parametrize("matrix", [K, K.tolist(), tuple(map(tuple, K)), K.astype(np.float32)])
def test_matrix_is_taken_without_any_shift(matrix):
    assert as_camera(matrix, "camera0") == Camera.from_matrix(K)


@pytest.mark.parametrize("name", ["camera0", "camera1"])
@every_bad_matrix
def test_argument_that_is_no_camera_is_named(name, bad):
    with pytest.raises(ValueError, match=rf"^{name} must .*, got "):
        as_camera(bad, name)


@pytest.mark.parametrize("value", [None, "PINHOLE", 3.0, [], object(), K[:2]])
def test_sentence_lists_every_accepted_form(value):
    with pytest.raises(ValueError, match=r"a Camera, a 3x3 matrix, a dict .* pycolmap.Camera, got"):
        as_camera(value, "camera1")


@pytest.mark.parametrize(("values", "part"), BAD_DICTS)
def test_bad_dict_names_the_argument(values, part):
    with pytest.raises(ValueError, match=r"^camera1 must be a valid camera") as error:
        as_camera(values, "camera1")
    assert part in str(error.value)


def test_bad_colmap_camera_names_the_argument():
    value = SimpleNamespace(model="FULL_OPENCV", width=1, height=1, params=[1.0] * 12)
    with pytest.raises(ValueError, match=r"^camera0 must be a valid camera, but its model must"):
        as_camera(value, "camera0")


# ---------------------------------------------------------------- points


@every_model
@pytest.mark.parametrize("method", ["project", "unproject"])
@pytest.mark.parametrize(
    "points",
    [
        None,
        "abc",
        1.0,
        [1.0, 2.0],
        np.zeros((3, 3)),
        np.zeros((2, 2, 2)),
        [[1.0, 2.0], [3.0]],
        np.zeros((2, 2), bool),
        np.zeros((2, 2), complex),
        np.zeros((2, 2), object),
    ],
)
def test_bad_points_name_them(model, method, points):
    with pytest.raises(ValueError, match=r"^points must be an \(N, 2\) array of .*, got "):
        getattr(CAMERAS[model], method)(points)


@every_model
def test_no_points(model):
    assert CAMERAS[model].project([]).shape == (0, 2)
    assert CAMERAS[model].unproject([]).shape == (0, 2)


@every_model
def test_principal_point_is_the_axis(model):
    camera = CAMERAS[model]
    assert camera.project([[0, 0]]).tolist() == [[319.5, 239.5]]
    assert camera.unproject([[319.5, 239.5]]).tolist() == [[0, 0]]


@every_model
def test_pixels_that_are_not_finite_give_nan_and_leave_the_rest_alone(model):
    camera = CAMERAS[model]
    points = pixels(6)
    clean = camera.unproject(points)
    for row, value in enumerate([np.nan, np.inf, -np.inf]):
        points[2 * row, row % 2] = value
    result = camera.unproject(points)
    assert np.isnan(result[::2]).all()
    np.testing.assert_allclose(result[1::2], clean[1::2], rtol=1e-14)


@every_model
def test_input_points_are_not_touched(model):
    points = pixels(5)
    points[0] = np.inf
    before = points.copy()
    CAMERAS[model].unproject(points)
    CAMERAS[model].project(points)
    np.testing.assert_array_equal(points, before)


@every_model
def test_round_trip_over_the_image(model):
    camera = CAMERAS[model]
    back = camera.project(camera.unproject(pixels()))
    np.testing.assert_allclose(back, pixels(), rtol=0, atol=1e-11)


@every_model
def test_result_does_not_depend_on_the_other_points(model):
    camera = CAMERAS[model]
    together = camera.unproject(pixels(20))
    alone = np.vstack([camera.unproject(p[None]) for p in pixels(20)])
    np.testing.assert_allclose(together, alone, rtol=1e-14)


def test_hand_made_distortion():
    # At x = (0.6, 0.8), r = 1: radial 1 + 0.1 + 0.01, tangential by the formulas of OpenCV.
    camera = Camera("OPENCV", None, None, [1, 1, 0, 0, 0.1, 0.01, 0.02, 0.03])
    x = 0.6 * 1.11 + 2 * 0.02 * 0.48 + 0.03 * (1 + 2 * 0.36)
    y = 0.8 * 1.11 + 2 * 0.03 * 0.48 + 0.02 * (1 + 2 * 0.64)
    np.testing.assert_allclose(camera.project([[0.6, 0.8]]), [[x, y]], rtol=1e-15)
    fisheye = Camera("OPENCV_FISHEYE", None, None, [1, 1, 0, 0, 0.1, 0.2, 0.3, 0.4])
    a = np.pi / 4
    r = a * (1 + 0.1 * a**2 + 0.2 * a**4 + 0.3 * a**6 + 0.4 * a**8)
    np.testing.assert_allclose(fisheye.project([[0.6, 0.8]]), [[0.6 * r, 0.8 * r]], rtol=1e-15)


def test_jacobian_of_the_brown_model_against_differences():
    model, k = MODELS["OPENCV"], (-0.3, 0.1, 0.02, -0.03)
    x = np.random.default_rng(1).uniform(-1, 1, (50, 2))
    J = model.jacobian(x, k)
    for axis, step in enumerate(1e-6 * np.eye(2)):
        difference = (model.distort(x + step, k) - model.distort(x - step, k)) / 2e-6
        np.testing.assert_allclose(J[:, :, axis], difference, atol=1e-9)


# ---------------------------------------------------------------- folds


@pytest.mark.parametrize(
    "params", [("SIMPLE_RADIAL", [-0.5]), ("RADIAL", [-0.5, 0.0]), ("OPENCV", [-0.5, 0, 0, 0])]
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


def test_nan_beyond_the_fold_with_tangential_distortion():
    camera = Camera("OPENCV", None, None, [1, 1, 0, 0, -0.5, 0.0, 0.01, -0.02])
    assert np.isfinite(camera.unproject([[0.4, 0.0], [0.0, -0.4]])).all()
    assert np.isnan(camera.unproject([[0.7, 0.0], [0.0, -0.7], [5.0, 5.0]])).all()


def test_fold_that_opens_again_is_still_the_end():
    # The slope 1 - 3 s + 1.5 s^2 is negative between two radii; beyond, the image is covered twice.
    camera = Camera("RADIAL", None, None, [1, 0, 0, -1.0, 0.3])
    assert np.isnan(camera.unproject([[0.9, 0.0], [3.0, 0.0]])).all()
    assert np.isfinite(camera.unproject([[0.35, 0.0]])).all()


def test_fisheye_ends_at_ninety_degrees():
    camera = Camera("OPENCV_FISHEYE", None, None, [1, 1, 0, 0, 0, 0, 0, 0])
    points = [[1.57, 0.0], [np.pi / 2, 0.0], [1.6, 0.0], [0.0, 4.0]]
    result = camera.unproject(points)
    assert result[0, 0] == pytest.approx(np.tan(1.57), rel=1e-12)
    assert np.isnan(result[1:]).all()


def test_fisheye_fold_before_ninety_degrees():
    # a (1 - a^2 / 3) grows up to a = 1, where it is 2/3.
    camera = Camera("OPENCV_FISHEYE", None, None, [1, 1, 0, 0, -1 / 3, 0, 0, 0])
    result = camera.unproject([[0.666, 0.0], [0.667, 0.0], [0.0, -1.0]])
    assert 0.9 < np.arctan(result[0, 0]) < 1.0
    assert np.isnan(result[1:]).all()


@pytest.mark.parametrize("k", [1e-30, 1e-8, 1.0, 1e8, 1e30])
@pytest.mark.parametrize("r", [1e-300, 1e-8, 1.0, 1e8, 1e60])
@pytest.mark.parametrize("signs", [(1, 1), (0, 1), (1, 0), (-1, 1), (1, -1), (-1, -1)])
def test_extreme_radial_distortion_ends_quietly(k, r, signs):
    camera = Camera("RADIAL", None, None, [1, 0, 0, signs[0] * k, signs[1] * k])
    result = camera.unproject([[r, 0.0]])
    if min(signs) >= 0:
        assert camera.project(result)[0, 0] == pytest.approx(r, rel=1e-12)
    elif np.isfinite(result).all():
        assert camera.project(result)[0, 0] == pytest.approx(r, rel=1e-9)


# ---------------------------------------------------------------- resizing


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


def test_scaling_without_size():
    assert Camera.from_matrix(K).scaled(0.5).width is None


@pytest.mark.parametrize("name", ["sx", "sy"])
@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf, 1e6, "2", True, [2.0], 1j])
def test_bad_scale_names_it(name, value):
    factors = {"sx": 1.0, "sy": 1.0} | {name: value}
    with pytest.raises(ValueError, match=rf"^{name} must be a number in \(0, 1e\+06\), got "):
        CAMERAS["PINHOLE"].scaled(**factors)
