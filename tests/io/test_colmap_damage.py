"""COLMAP files that are cut off, damaged or something else: one sentence, never anything else."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manymatch.io import read_cameras, read_images
from tests.support.colmap_bytes import binary_camera, binary_image, counted


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 PINHOLE 640", "line 1 is not CAMERA_ID MODEL WIDTH HEIGHT"),
        ("\n# x\na PINHOLE 4 4 1 1 1 1", "line 3 is not CAMERA_ID"),
        ("1 PINHOLE 640 480 500 510 320", "camera 1: params must be the 4 finite numbers"),
        ("1 PINHOLE 640 480 nan 510 320 240", "camera 1: params must hold finite"),
        ("1 PINHOLE 640 480 -5 510 320 240", "positive focal length"),
        ("1 PINHOLE -640 480 5 510 320 240", "negative id or size"),
        ("1 PINHOLE 640 0 500 510 320 240", "camera 1: height must be given together"),
        ("1 PINHOLE 4 4 1 1 1 1\n1 PINHOLE 4 4 1 1 1 1", "camera 1 appears twice"),
        ("1 PINHOL 4 4 1 1 1 1", "camera 1 is of model PINHOL"),
        ("\0\0", "line 1 is no text"),
    ],
)
def test_damaged_cameras_text(tmp_path, text, reason):
    path = tmp_path / "cameras.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"^path must be .*cameras\.txt.*{reason}"):
        read_cameras(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 1 0 0 0 0 0 0 1", "line 1 is not IMAGE_ID"),
        ("1 1 0 0 x 0 0 0 1 a.jpg", "line 1 is not IMAGE_ID"),
        ("1 1 0 0 0 0 0 0 1 a.jpg\n1.5 2.5", "line 2 is not a list"),
        ("1 0 0 0 0 0 0 0 1 a.jpg\n", "pose of 'a.jpg' is not finite or has no rotation"),
        ("1 1 0 0 0 0 nan 0 1 a.jpg\n", "pose of 'a.jpg' is not finite"),
        ("1 1 0 0 0 0 0 0 1 a\n\n2 1 0 0 0 0 0 0 1 a\n", "image name 'a' appears twice"),
    ],
)
def test_damaged_images_text(tmp_path, text, reason):
    path = tmp_path / "images.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"^path must be .*images\.txt.*{reason}"):
        read_images(path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it ends within the number of cameras"),
        (struct.pack("<Q", 2**63) + b"x" * 99, "it announces 9223372036854775808 cameras"),
        (counted(binary_camera(model_id=42)), "camera 1 has the unknown model number 42"),
        (counted(binary_camera(model_id=-1)), "unknown model number -1"),
        (counted(binary_camera(model_id=6)), "it ends within the record of camera number 1"),
        (counted(binary_camera()) + b"x", "it has 1 bytes too many"),
        (counted(binary_camera(), binary_camera()), "camera 1 appears twice"),
        (counted(binary_camera(params=(np.inf, 1, 1, 1))), "camera 1: params must hold finite"),
    ],
)
def test_damaged_cameras_binary(tmp_path, data, reason):
    path = tmp_path / "cameras.bin"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"^path must be .*cameras\.bin.*{reason}"):
        read_cameras(path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack("<Q", 2**60), "it announces 1152921504606846976 images"),
        (counted(binary_image(points=2)[:-1]), "it announces 2 points in 'a.jpg'"),
        (counted(binary_image(b"x" * 5000)), "the name of image number 1 does not end"),
        (counted(binary_image(b"")), "image name '' is empty"),
        (counted(binary_image(pose=(0,) * 7)), "has no rotation"),
        (counted(binary_image(pose=(1e-320, 0, 0, np.nan, 0, 0, 0))), "is not finite"),
    ],
)
def test_damaged_images_binary(tmp_path, data, reason):
    path = tmp_path / "images.bin"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"^path must be .*images\.bin.*{reason}"):
        read_images(path)


def test_a_file_cut_off_anywhere_is_refused(tmp_path):
    cases = {
        "cameras.bin": (read_cameras, counted(binary_camera(), binary_camera(camera_id=2))),
        "images.bin": (read_images, counted(binary_image(), binary_image(b"b.jpg"))),
    }
    for name, (read, data) in cases.items():
        path = tmp_path / name
        path.write_bytes(data)
        assert len(read(path)) == 2
        for length in range(len(data)):
            path.write_bytes(data[:length])
            with pytest.raises(ValueError, match=f"^path must be .*{name}"):
                read(path)


SENTENCE = "path must be a COLMAP model folder, "


def refusal_of(read, path):
    """What reading a file says; the start of a sentence where the file is fine."""
    try:
        read(path)
    except ValueError as error:
        return "several lines" if "\n" in str(error) else str(error)
    return SENTENCE


# Few records and known model numbers, so that the bytes get past the first checks.
heads = st.one_of(st.just(b""), st.builds(struct.pack, st.just("<Q"), st.integers(1, 3)))
cameras_bytes = st.builds(
    binary_camera,
    st.integers(0, 2),
    st.integers(0, 18),
    st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2)),
    st.lists(st.floats(), min_size=2, max_size=5).map(tuple),
)
images_bytes = st.builds(
    binary_image,
    st.binary(max_size=5),
    st.lists(st.floats(), min_size=7, max_size=7).map(tuple),
    st.integers(0, 3),
    st.integers(0, 2),
)
noise = st.one_of(cameras_bytes, images_bytes, st.binary(max_size=200))


@settings(max_examples=150, deadline=None)
@given(data=st.builds(lambda a, b: a + b"".join(b), heads, st.lists(noise, max_size=3)))
def test_any_bytes_are_read_or_refused(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp()
    for name, read in (("cameras", read_cameras), ("images", read_images)):
        for suffix in (".bin", ".txt"):
            path = folder / f"{name}{suffix}"
            path.write_bytes(data)
            assert refusal_of(read, path).startswith(SENTENCE)


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet="01 .-e#\nPINHOLEa/x\t", max_size=120))
def test_any_text_is_read_or_refused(tmp_path_factory, text):
    folder = tmp_path_factory.getbasetemp()
    for name, read in (("cameras", read_cameras), ("images", read_images)):
        path = folder / f"{name}.txt"
        path.write_text(text)
        assert refusal_of(read, path).startswith(SENTENCE)


@given(q=st.lists(st.floats(-1e300, 1e300), min_size=4, max_size=4))
def test_every_rotation_is_a_rotation(tmp_path_factory, q):
    path = tmp_path_factory.getbasetemp() / "images.bin"
    path.write_bytes(counted(binary_image(pose=(*q, 1, 2, 3))))
    if not any(q):
        with pytest.raises(ValueError, match="has no rotation"):
            read_images(path)
        return
    R = read_images(path)["a.jpg"].R
    np.testing.assert_allclose(R.T @ R, np.eye(3), atol=1e-14)
    assert np.linalg.det(R) > 0
