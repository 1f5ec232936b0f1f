"""Cameras that are given, of COLMAP, of EXIF or unknown, and errors."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manymatch import Camera
from manymatch.io import ImageRecord
from manymatch.matcher.cameras import (
    EXIF_SIGMA,
    ResolvedCamera,
    parse_camera,
    resolve_camera,
)

SIZE = (640, 480)
K = [[500, 0, 320], [0, 510, 240], [0, 0, 1]]
PINHOLE = Camera("PINHOLE", 640, 480, [500, 510, 320, 240])
COLMAP = "1 PINHOLE 640 480 500 510 320.5 240.5\n"


def photograph(path, size=SIZE, orientation=None, f35=None):
    """A JPEG with a camera's tags; `size` is that of its pixels before EXIF turns it."""
    image_module = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    image = image_module.new("RGB", size)
    exif = image_module.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    if f35 is not None:
        exif.get_ifd(0x8769)[0xA405] = f35
    image.save(path, exif=exif)
    return path


@pytest.fixture
def model(tmp_path):
    """A COLMAP model with two cameras."""
    folder = tmp_path / "sparse"
    folder.mkdir()
    (folder / "cameras.txt").write_text(COLMAP + "2 SIMPLE_PINHOLE 640 480 700 320.5 240.5\n")
    (folder / "images.txt").write_text("1 1 0 0 0 0 0 0 1 a.jpg\n\n2 1 0 0 0 0 0 0 2 in/b.jpg\n\n")
    return folder


def test_unknown_camera():
    found = resolve_camera(None, None, (1024, 768))
    assert isinstance(found, ResolvedCamera)
    assert found.camera == Camera.unknown(1024, 768)
    assert found.origin == "found"
    assert found.sentence.startswith("camera0: unknown focal length, ")
    upright = resolve_camera(None, None, (768, 1024), "camera1")
    assert upright.camera.params == (870.4, 383.5, 511.5)


def test_exif_is_a_narrow_prior(tmp_path):
    path = photograph(tmp_path / "a.jpg", f35=36)
    found = resolve_camera(None, path, SIZE)
    # The equivalent is defined by the diagonals: 800 pixels for that of 36 mm x 24 mm.
    focal = 36 * 800 / np.hypot(36, 24)
    np.testing.assert_allclose(found.camera.params, (focal, 319.5, 239.5), rtol=1e-12)
    assert found.camera.focal_sigma == EXIF_SIGMA < Camera.unknown(*SIZE).focal_sigma
    assert (found.camera.width, found.camera.height) == SIZE
    assert found.origin == "exif"
    assert found.sentence.startswith(f"camera0: focal length {focal:.0f} px from EXIF")
    assert resolve_camera(None, photograph(tmp_path / "b.jpg"), SIZE).origin == "found"


def test_unknown_by_name_ignores_exif(tmp_path):
    path = photograph(tmp_path / "a.jpg", f35=36)
    found = resolve_camera("unknown", path, SIZE)
    assert (found.camera, found.origin) == (Camera.unknown(*SIZE), "found")


@pytest.mark.parametrize(
    ("text", "camera"),
    [
        ("unknown,640,480", Camera.unknown(640, 480)),
        ("unknown,640,480,500", Camera.unknown(640, 480, 500)),
        ("unknown 640 480 500 0.1", Camera.unknown(640, 480, 500, 0.1)),
    ],
)
def test_unknown_with_size_and_prior(text, camera):
    assert parse_camera(text, "camera0") == camera
    found = resolve_camera(text, None, SIZE)
    assert (found.camera, found.origin) == (camera, "found")
    assert "unknown focal length, about" in found.sentence


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("unknown", r"^camera1 must be unknown,width,height.*, got 'unknown'$"),
        ("unknown,640", r"^camera1 must be unknown,width,height.*, got 'unknown,640'$"),
        ("unknown,640,wide", r"^camera1 must be unknown,width,height"),
        ("unknown,640,480,a", r"^camera1 must be unknown,width,height"),
        ("unknown,640,480,1,2,3", r"^camera1 must be unknown,width,height"),
        ("unknown,0,480", r"^camera1 must be a valid camera, but its width must be .*, got 0$"),
        ("unknown,640,480,-5", r"^camera1 must be a valid camera, but its focal_px .*, got -5"),
        ("unknown,640,480,5,9", r"^camera1 must be a valid camera, but its sigma .*, got 9"),
        ("500", r"^camera1 must be fx,fy,cx,cy where there is no image.*, got '500'$"),
    ],
)
def test_bad_texts_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        parse_camera(text, "camera1")


def test_given_camera_goes_before_exif(tmp_path):
    found = resolve_camera(PINHOLE, photograph(tmp_path / "a.jpg", f35=36), SIZE)
    assert found.camera == PINHOLE
    assert found.origin == "given"


@pytest.mark.parametrize(
    "camera",
    [K, np.array(K), PINHOLE.to_dict(), "500,510,320,240", "PINHOLE,640,480,500,510,320,240"],
)
def test_every_form_of_the_same_camera(camera):
    found = resolve_camera(camera, None, SIZE)
    # A matrix has no size; that of the image is filled in.
    assert (found.camera, found.origin) == (PINHOLE, "given")


def test_focal_length_alone_looks_at_the_centre():
    for text in ("500", " 500.0 ", "5e2"):
        found = resolve_camera(text, None, SIZE)
        wanted = Camera("SIMPLE_PINHOLE", 640, 480, [500, 319.5, 239.5])
        assert (found.camera, found.origin) == (wanted, "given")
    for text in ("0", "-500", "nan", "inf"):
        with pytest.raises(ValueError, match=r"^camera0 must "):
            resolve_camera(text, None, SIZE)


def test_colmap_model_with_one_camera_needs_no_image(tmp_path):
    (tmp_path / "cameras.txt").write_text(COLMAP)
    record = struct.pack("<QIiQQ4d", 1, 1, 1, 640, 480, 500, 510, 320.5, 240.5)
    (tmp_path / "other.bin").write_bytes(record)
    for path in (tmp_path, tmp_path / "cameras.txt", tmp_path / "other.bin"):
        found = resolve_camera(path, None, SIZE)
        assert (found.camera, found.origin) == (PINHOLE, "colmap")
        assert f"camera 1 of the COLMAP model {str(path)!r}, its only one" in found.sentence


def test_colmap_model_with_several_cameras_needs_the_image(model):
    for path in (model, model / "cameras.txt", str(model)):
        assert resolve_camera(path, "/photos/a.jpg", SIZE).camera == PINHOLE
        found = resolve_camera(path, "/photos/in/b.jpg", SIZE)
        assert found.camera.focal == 700
        assert f"camera 2 of the COLMAP model {str(path)!r}, that of 'in/b.jpg'" in found.sentence


@pytest.mark.parametrize("turn", range(1, 9))
def test_colmap_camera_is_turned_by_exif_and_back(tmp_path, turn):
    """A camera that is written for COLMAP and read again is the same."""
    path = photograph(tmp_path / "a.jpg", orientation=turn)
    (tmp_path / "cameras.txt").write_text("1 PINHOLE 640 480 500 510 300.5 240.5\n")
    size = (480, 640) if turn >= 5 else (640, 480)
    found = resolve_camera(tmp_path / "cameras.txt", path, size)
    assert (found.camera.width, found.camera.height) == size
    assert ("turned as EXIF says" in found.sentence) == (turn > 1)
    record = ImageRecord("a.jpg", size, found.camera, orientation=turn)
    again, points = record.stored(np.array([[found.camera.cx, found.camera.cy]]))
    assert again.camera.to_colmap()["params"] == [500, 510, 300.5, 240.5]
    assert points.tolist() == [[300, 240]]


def test_bad_colmap_model_is_named(model, tmp_path):
    with pytest.raises(ValueError, match=r"^camera1 must be .*it has no image '/photos/c\.jpg'"):
        resolve_camera(model, "/photos/c.jpg", SIZE, "camera1")
    with pytest.raises(ValueError, match=r"several cameras, and the image has no file name"):
        resolve_camera(model, None, SIZE)
    (model / "images.txt").unlink()
    with pytest.raises(ValueError, match=r"there is no images\.txt beside it to look up 'a.jpg'"):
        resolve_camera(model, "a.jpg", SIZE)
    with pytest.raises(ValueError, match=r"^camera0 must be .*holds no cameras\.bin .* did you"):
        resolve_camera(tmp_path, "a.jpg", SIZE)
    (tmp_path / "cameras.bin").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"^camera0 must be .*it ends within"):
        resolve_camera(tmp_path / "cameras.bin", "a.jpg", SIZE)


def test_camera_of_another_size_is_refused():
    with pytest.raises(
        ValueError, match=r"^camera1 must be for image 'b\.jpg' of 320 x 240 .*one for 640 x 480$"
    ):
        resolve_camera(PINHOLE, "b.jpg", (320, 240), "camera1")
    with pytest.raises(ValueError, match=r"for the image of 480 x 640 .*exchanged$"):
        resolve_camera(PINHOLE, None, (480, 640))


def test_camera_of_the_unturned_image_is_refused(tmp_path):
    turned = photograph(tmp_path / "a.jpg", orientation=6)
    with pytest.raises(ValueError, match=r"480 x 640 .*one for 640 x 480: EXIF turns this image"):
        resolve_camera(PINHOLE, turned, (480, 640))
    flat = photograph(tmp_path / "b.jpg", size=(480, 640), orientation=3)
    with pytest.raises(ValueError, match=r"640 x 480: width and height are exchanged$"):
        resolve_camera(PINHOLE, flat, (480, 640))


@pytest.mark.parametrize("centre", [(640, 240), (320, 479.6), (-1, 240), (320, -0.6), (1e9, 5)])
def test_principal_point_outside_the_image_is_refused(centre):
    matrix = [[500, 0, centre[0]], [0, 500, centre[1]], [0, 0, 1]]
    with pytest.raises(
        ValueError, match=r"^camera0 must have its principal point within the image"
    ):
        resolve_camera(matrix, None, SIZE)
    # Who states the size means it: the image may be cut out of a larger one.
    stated = Camera.from_matrix(matrix, *SIZE)
    assert resolve_camera(stated, None, SIZE).camera == stated


def test_principal_point_on_the_border_is_accepted():
    for centre in ((-0.5, -0.5), (639.5, 479.5)):
        matrix = [[500, 0, centre[0]], [0, 500, centre[1]], [0, 0, 1]]
        assert resolve_camera(matrix, None, SIZE).camera.cx == centre[0]


@pytest.mark.parametrize(
    "camera",
    ["", "  ", "1,2,3", "absent.txt", "absent.bin", "absent.json", "no/such", b"x", 5, "\0"],
)
def test_bad_camera_is_named(camera):
    with pytest.raises(ValueError, match=r"^camera1 must "):
        resolve_camera(camera, None, SIZE, "camera1")


@pytest.mark.parametrize("size", [(640,), (0, 480), (640.0, 480), "ab", None])
def test_bad_size_is_named(size):
    with pytest.raises(ValueError, match=r"^size must be "):
        resolve_camera(None, None, size)


@given(text=st.text(alphabet="0123456789,. -eE+PINHOLE_nafjx/", max_size=60))
def test_any_text_is_a_camera_or_is_refused(text):
    try:
        camera = resolve_camera(text, None, SIZE).camera
    except ValueError as error:
        camera = None
        message = str(error)
    assert isinstance(camera, Camera) or message.startswith("camera0 must ")


@pytest.mark.parametrize(
    ("name", "content", "camera"),
    [
        ("a.txt", "500 510 320 240\n", PINHOLE),
        ("a.txt", "# ours\nPINHOLE 640 480 500 510 320 240\n", PINHOLE),
        ("a.txt", "500 0 320\n0 510 240\n0 0 1\n", PINHOLE),
        ("a.json", json.dumps(PINHOLE.to_dict()), PINHOLE),
        ("a.json", json.dumps(K), PINHOLE),
        ("a.txt", "unknown,640,480,600,0.1", Camera.unknown(*SIZE, 600, 0.1)),
        ("a.json", json.dumps(Camera.unknown(*SIZE, 600).to_dict()), Camera.unknown(*SIZE, 600)),
    ],
)
def test_camera_files(tmp_path, name, content, camera):
    (tmp_path / name).write_text(content)
    for path in (tmp_path / name, str(tmp_path / name)):
        found = resolve_camera(path, None, SIZE)
        assert (found.camera, found.origin) == (camera, "given" if camera.known_focal else "found")
        assert found.sentence.startswith(f"camera0 is read from {str(path)!r}: {camera.model}")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("camera.txt", text) for text in ("", "1 2 3", "a b c d", "PINHOLE 4 x 1 1 1 1")),
        ("camera.txt", "1 PINHOLE 4 4 1 1 1 1\n2 PINHOLE 4 4 1 1 1 1"),
        ("camera.txt", "1 PINHOLE 4 4 " + "x" * 9000),
        ("camera.txt", "PINHOLE,4,4," + "1," * 9000),
        ("camera.txt", "-1 -1 2 2"),
        ("camera.json", "[" * 99_999),
        ("camera.json", '{"model": "PINHOLE", "' + "y" * 9000 + '": 3}'),
        ("camera.json", '{"model": "' + "P" * 9000 + '", "params": [1, 1, 1, 1]}'),
        ("camera.json", '{"model": "PINHOLE", "params": [' + "1," * 9000 + "1]}"),
    ],
)
def test_bad_camera_file_is_named_in_a_short_sentence(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=rf"^camera1 must .*{name}") as caught:
        parse_camera(str(tmp_path / name), "camera1")
    assert len(str(caught.value)) < 800
