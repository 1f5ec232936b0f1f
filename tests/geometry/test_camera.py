"""Camera: bad input, pixel conventions, every form a camera argument can have."""

import copy
import dataclasses
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from manymatch.geometry.camera import MODELS, Camera, as_camera
from tests.support.cameras import CAMERAS, PARAMS, every_model

K = np.array([[500.0, 0.0, 319.5], [0.0, 520.0, 239.5], [0.0, 0.0, 1.0]])


def with_entry(matrix, index, value):
    result = np.array(matrix, dtype=np.float64)
    result[index] = value
    return result


@pytest.mark.parametrize(
    "model", [None, 1, "", "pinhole", "FOV", ["PINHOLE"], b"PINHOLE", np.array([1, 2])]
)
def test_bad_model_names_it_and_the_known_ones(model):
    with pytest.raises(ValueError, match=r"^model must be one of 'SIMPLE_PINHOLE', .*, got "):
        Camera(model, 640, 480, PARAMS["PINHOLE"])


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
        *(lambda _, bad=bad: bad for bad in (None, "abc", 1.0, [])),
        *(lambda p, end=end: [*p[:-1], *end] for end in ([], [0, 0], [[0.0]], [np.nan], [np.inf])),
        *(lambda p, f=f: [f, *p[1:]] for f in (0.0, -500.0, 1e-320)),
        *(lambda p, kind=kind: np.array(p, dtype=kind) for kind in (complex, object, str, bool)),
        lambda p: [p],
    ],
)
def test_bad_params_name_them(model, make):
    with pytest.raises(ValueError, match=r"^params must .*, got "):
        Camera(model, 640, 480, make(PARAMS[model]))


@every_model
def test_bad_second_focal_length_and_absurd_distortion_are_named(model):
    if CAMERAS[model].distortion:
        with pytest.raises(ValueError, match=r"^params must have a distortion [kp].* up to 1e\+30"):
            Camera(model, 640, 480, [*PARAMS[model][:-1], 1e31])
    if MODELS[model].num_focal == 2:
        with pytest.raises(ValueError, match=r"^params must have a positive focal length fy, got"):
            Camera(model, 640, 480, [500.0, -1.0, *PARAMS[model][2:]])


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


BAD_K = [
    None, "abc", 500.0, [], K[:2], K[None], np.eye(4), K > 0, K.astype(complex), K.astype(object),
    [[500, 0, 320], [0, 500], [0, 0, 1]], np.zeros((3, 3)), -K, 2 * K, K.T,
    np.linalg.inv(K) * [[-1], [1], [1]], with_entry(K, (0, 2), np.nan),
    with_entry(K, (1, 1), np.inf), with_entry(K, (0, 0), 0.0), with_entry(K, (0, 0), 1e-320),
    with_entry(K, (1, 1), -520.0), with_entry(K, (1, 0), 0.1), with_entry(K, (2, 0), 1e-3),
    with_entry(K, (2, 2), 0.0),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_K, ids=range(len(BAD_K)))
def test_bad_matrix_names_it(bad):
    with pytest.raises(ValueError, match=r"^K must .*, got "):
        Camera.from_matrix(bad)
    with pytest.raises(ValueError, match=r"^camera1 must .*, got "):
        as_camera(bad, "camera1")


@pytest.mark.parametrize("skew", [1e-12, -0.3, 25.0, -400.0])
def test_matrix_with_skew_is_inverted_exactly(skew):
    matrix = with_entry(K, (0, 1), skew)
    camera = as_camera(matrix, "camera0")
    assert camera == Camera.from_matrix(matrix)
    assert camera.skew == skew
    assert camera.K.tolist() == matrix.tolist()
    assert camera.focal == 510.0
    pixels = np.random.default_rng(0).uniform(0, 640, (200, 2))
    homogeneous = np.column_stack([pixels, np.ones(len(pixels))])
    plane = camera.unproject(pixels)
    np.testing.assert_allclose(plane, (homogeneous @ np.linalg.inv(matrix).T)[:, :2], atol=1e-14)
    np.testing.assert_allclose(camera.project(plane), pixels, atol=1e-11)
    half = camera.scaled(0.5, 2.0)
    points = (pixels + 0.5) * (0.5, 2.0) - 0.5
    np.testing.assert_allclose(half.unproject(points), plane, atol=1e-13)


@every_model
def test_skew_with_distortion_and_in_conversions(model):
    camera = dataclasses.replace(CAMERAS[model], skew=7.0)
    pixels = np.random.default_rng(2).uniform((100, 100), (500, 400), (50, 2))
    plane = camera.unproject(pixels)
    np.testing.assert_allclose(camera.project(plane), pixels, atol=1e-10)
    distorted = CAMERAS[model].project(plane)
    y = (distorted[:, 1] - camera.cy) / camera.fy
    np.testing.assert_allclose(pixels[:, 0] - distorted[:, 0], 7.0 * y, atol=1e-10)
    assert Camera.from_dict(camera.to_dict()) == as_camera(camera.to_dict(), "camera0") == camera
    assert camera != CAMERAS[model]
    with pytest.raises(ValueError, match=r"^camera must have no skew in COLMAP's form, got skew=7"):
        camera.to_colmap()


@pytest.mark.parametrize("skew", [None, "1", True, np.nan, np.inf, [1.0]])
def test_bad_skew_names_it(skew):
    with pytest.raises(ValueError, match=r"^skew must be a finite number, got "):
        Camera("PINHOLE", None, None, PARAMS["PINHOLE"], skew)


def test_unknown_focal_length_has_a_prior_by_the_longer_edge():
    camera = Camera.unknown(768, 1024)
    assert (camera.model, camera.width, camera.height) == ("SIMPLE_PINHOLE", 768, 1024)
    assert camera.params == (870.4, 383.5, 511.5)
    assert camera.focal_sigma == 0.5
    assert not camera.known_focal
    assert all(known.known_focal for known in CAMERAS.values())
    assert repr(camera) == (
        "Camera(SIMPLE_PINHOLE, 768x1024, unknown focal length, about 870 px, cx=383.5, cy=511.5)"
    )
    # Nine in ten: the median times exp(1.645 * 0.5) and its inverse.
    assert np.exp(1.645 * camera.focal_sigma) == pytest.approx(2.3, abs=0.03)


def test_unknown_focal_length_with_a_given_prior():
    camera = Camera.unknown(640, 480, focal_px=500, sigma=0.05)
    assert (camera.focal, camera.focal_sigma) == (500.0, 0.05)
    assert camera != Camera.unknown(640, 480, 500)
    assert camera != dataclasses.replace(camera, focal_sigma=None)
    assert hash(camera) == hash(Camera.unknown(640, 480, 500.0, 0.05))
    assert pickle.loads(pickle.dumps(camera)) == copy.deepcopy(camera) == camera  # noqa: S301


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 480), r"^width must be .*, got 0"),
        ((640, None), r"^height must be .*, got None"),
        ((640, 480, -1.0), r"^focal_px must be .*, got -1"),
        ((640, 480, "exif"), r"^focal_px must be .*, got 'exif'"),
        ((640, 480, np.inf), r"^focal_px must be .*, got inf"),
        ((640, 480, 500.0, 0.0), r"^sigma must be a number in \(0, 3\), got 0"),
        ((640, 480, 500.0, np.nan), r"^sigma must be .*, got nan"),
    ],
)
def test_bad_prior_names_it(arguments, message):
    with pytest.raises(ValueError, match=message):
        Camera.unknown(*arguments)


@every_model
def test_only_cameras_without_distortion_may_be_unknown(model):
    if CAMERAS[model].distortion:
        with pytest.raises(ValueError, match=rf"^focal_sigma must be None .* with {model}$"):
            dataclasses.replace(CAMERAS[model], focal_sigma=0.5)
    else:
        camera = dataclasses.replace(CAMERAS[model], focal_sigma=0.5)
        assert not camera.known_focal
        for bad in (0.0, 3.0, np.nan, "0.5", True):
            with pytest.raises(ValueError, match=r"^focal_sigma must be a number in \(0, 3\), got"):
                dataclasses.replace(CAMERAS[model], focal_sigma=bad)


def test_conversions_keep_the_prior_except_colmap():
    camera = Camera.unknown(640, 480, 500, 0.1)
    assert camera.to_dict()["focal_sigma"] == 0.1
    assert Camera.from_dict(camera.to_dict()) == as_camera(camera.to_dict(), "camera0") == camera
    assert camera.scaled(0.5) == Camera.unknown(320, 240, 250, 0.1)
    stretched = camera.scaled(0.5, 0.25)
    assert (stretched.model, stretched.focal_sigma) == ("PINHOLE", 0.1)
    assert camera.turned([[0, -1], [1, 0]]) == Camera.unknown(480, 640, 500, 0.1)
    # COLMAP's form has no place for it.
    assert Camera.from_colmap(camera.to_colmap()) == dataclasses.replace(camera, focal_sigma=None)


def test_with_focal():
    camera = Camera.unknown(640, 480)
    found = camera.with_focal(555)
    assert found == Camera("SIMPLE_PINHOLE", 640, 480, [555.0, 319.5, 239.5])
    assert found.known_focal
    assert camera.with_focal(555, 0.02) == Camera.unknown(640, 480, 555, 0.02)
    two = Camera("PINHOLE", 640, 480, [400.0, 600.0, 319.5, 239.5], 10.0, 0.5).with_focal(1000)
    assert two == Camera("PINHOLE", 640, 480, [800.0, 1200.0, 319.5, 239.5], 20.0)
    assert Camera.from_matrix(np.diag([3.0, 3.0, 1.0])).with_focal(0.1).params[:2] == (0.1, 0.1)
    radial = CAMERAS["SIMPLE_RADIAL"].with_focal(600)
    assert (radial.focal, radial.distortion) == (600.0, CAMERAS["SIMPLE_RADIAL"].distortion)
    for bad in (0.0, -1, np.nan, "500", None):
        with pytest.raises(ValueError, match=r"^focal_px must be .*, got "):
            camera.with_focal(bad)


@every_model
def test_dict_is_taken_without_any_shift(model):
    values = {"model": model, "width": 640, "height": 480, "params": PARAMS[model]}
    assert Camera.from_dict(values) == as_camera(values, "camera0") == CAMERAS[model]
    assert CAMERAS[model].to_dict() == values


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
    plain.width = plain.height = 0
    assert Camera.from_colmap(plain).width is None
    plain.model = "THIN_PRISM_FISHEYE"
    with pytest.raises(ValueError, match=r"^camera0 must be a valid camera, but its model must"):
        as_camera(plain, "camera0")


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
    with pytest.raises(ValueError, match=r"^camera1 must be a valid camera") as error:
        as_camera(values, "camera1")
    assert part in str(error.value)


@pytest.mark.parametrize("value", [None, 3, "PINHOLE", K, SimpleNamespace(model="PINHOLE")])
def test_other_types_are_refused(value):
    with pytest.raises(ValueError, match=r"^values must be a dict .*, got "):
        Camera.from_dict(value)
    with pytest.raises(ValueError, match=r"^camera must be a pycolmap.Camera or a dict, got "):
        Camera.from_colmap(value)


ROUND_OFF = 1e-12 * np.array([[0, 0, 0], [-1, 0, 0], [1, 1, 1]])


@pytest.mark.parametrize(
    "matrix", [K, K.tolist(), tuple(map(tuple, K)), K.astype(np.float32), K + ROUND_OFF]
)
def test_matrix_is_taken_without_any_shift(matrix):
    assert as_camera(matrix, "camera0") == Camera.from_matrix(K)
    assert Camera.from_matrix(matrix, 640, 480) == CAMERAS["PINHOLE"]
    assert Camera.from_matrix(K).K.tolist() == K.tolist()


def test_intrinsics_by_name_or_in_a_row():
    row = (520.0, 510.0, 320.5, 240.25)
    wanted = Camera("PINHOLE", None, None, row)
    for value in (row, list(row), np.array(row), dict(zip(("fx", "fy", "cx", "cy"), row))):  # noqa: B905
        assert as_camera(value, "camera0") == wanted
    named = {"fx": 520, "fy": 510, "cx": 320.5, "cy": 240.25, "width": 640, "height": 480}
    assert as_camera(named, "camera0") == Camera("PINHOLE", 640, 480, row)
    for bad, part in (
        ({"fx": 520, "cx": 320, "cy": 240}, "the 4 finite numbers fx, fy, cx, cy"),
        ({**named, "k1": 0.1}, "'k1'"),
        ([520.0, None, 320.0, 240.0], "the 4 finite numbers fx, fy, cx, cy"),
        ([-520.0, 510.0, 320.0, 240.0], "positive focal length fx"),
        (np.eye(4), "a 3x3 matrix"),
        (np.eye(4).tolist(), "a 3x3 matrix"),
        (None, "Camera.unknown(width, height) if the focal length is not known, got None"),
    ):
        with pytest.raises(ValueError, match=r"^camera0 must be ") as error:
            as_camera(bad, "camera0")
        assert part in str(error.value)
