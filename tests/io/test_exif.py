"""Focal lengths from EXIF: the two ways to know them, and everything that is no focal length."""

import math

import numpy as np
import pytest

from manymatch.io.image import exif_focal

Image = pytest.importorskip("PIL.Image")

WIDTH, HEIGHT = 120, 80
DIAGONAL = math.hypot(WIDTH, HEIGHT)
F35, FOCAL, PLANE_X, PLANE_Y, UNIT, EXIF_WIDTH = 0xA405, 0x920A, 0xA20E, 0xA20F, 0xA210, 0xA002


def photograph(tmp_path, tags, suffix="jpg", orientation=1):
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif.get_ifd(0x8769).update(tags)
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(np.zeros((HEIGHT, WIDTH, 3), np.uint8)).save(path, exif=exif)
    return path


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
def test_35mm_equivalent_goes_by_the_diagonal(tmp_path, suffix):
    path = photograph(tmp_path, {F35: 28}, suffix)
    assert exif_focal(path) == pytest.approx(28 * DIAGONAL / 43.2666, rel=1e-5)
    assert exif_focal(str(path)) == exif_focal(path)


def test_a_turned_photograph_keeps_its_focal_length(tmp_path):
    upright = exif_focal(photograph(tmp_path, {F35: 28}))
    assert exif_focal(photograph(tmp_path, {F35: 28}, orientation=6)) == upright
    sensor = {FOCAL: 4.0, PLANE_X: 10_000, PLANE_Y: 20_000, UNIT: 3, EXIF_WIDTH: WIDTH}
    assert exif_focal(photograph(tmp_path, sensor, orientation=8)) == pytest.approx(4000)
    assert exif_focal(photograph(tmp_path, sensor)) == pytest.approx(4000)


@pytest.mark.parametrize(("unit", "millimetres"), [(2, 25.4), (3, 10.0), (4, 1.0), (None, 25.4)])
def test_sensor_resolution(tmp_path, unit, millimetres):
    tags = {FOCAL: 5.0, PLANE_X: 30 * millimetres} | ({} if unit is None else {UNIT: unit})
    assert exif_focal(photograph(tmp_path, tags)) == pytest.approx(150.0, rel=1e-3)


def test_a_resized_photograph_has_the_sensor_of_the_original(tmp_path):
    tags = {FOCAL: 5.0, PLANE_X: 300.0, UNIT: 4, EXIF_WIDTH: 10 * WIDTH}
    assert exif_focal(photograph(tmp_path, tags)) == pytest.approx(150.0)


def test_the_equivalent_comes_first_and_the_sensor_helps_out(tmp_path):
    sensor = {FOCAL: 5.0, PLANE_X: 30.0, UNIT: 4}
    assert exif_focal(photograph(tmp_path, {F35: 50, **sensor})) == pytest.approx(
        50 * DIAGONAL / 43.2666, rel=1e-5
    )
    assert exif_focal(photograph(tmp_path, {F35: 0, **sensor})) == pytest.approx(150.0)


@pytest.mark.parametrize(
    "tags",
    [
        {},
        {F35: 0},
        {F35: 65_535},
        {FOCAL: 5.0},
        {FOCAL: 0.0, PLANE_X: 30.0},
        {FOCAL: 5.0, PLANE_X: 0.0},
        {FOCAL: 5.0, PLANE_X: 30.0, UNIT: 77},
        {FOCAL: 5.0, PLANE_X: 1e-4, UNIT: 2},
    ],
)
def test_nothing_sensible_is_none(tmp_path, tags):
    assert exif_focal(photograph(tmp_path, tags)) is None


def test_files_that_are_no_photographs_are_none(tmp_path):
    assert exif_focal(tmp_path / "missing.jpg") is None
    (tmp_path / "text.jpg").write_text("no image")
    assert exif_focal(tmp_path / "text.jpg") is None
    assert exif_focal(tmp_path) is None
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(
        tmp_path / "bad.jpg", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + b"\xff" * 40
    )
    assert exif_focal(tmp_path / "bad.jpg") is None
