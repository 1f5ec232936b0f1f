"""COLMAP models: read as pycolmap reads them, and with suspicion."""

import re
import shutil
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manymatch import Camera
from manymatch.geometry.camera import MODELS
from manymatch.io import read_cameras, read_images
from manymatch.io.colmap import NUM_PARAMS, find_camera
from tests.support.cameras import CAMERAS

NAMES = ["left/a.jpg", "right/a.jpg", "left/b.jpg", "c.png", "e.png", "ä ö/f.jpg", "g.png"]
BOTH = pytest.mark.parametrize("kind", ["text", "binary"])
FILES = {"text": "cameras.txt", "binary": "cameras.bin"}

CAMERAS_TXT = "1 PINHOLE 640 480 500 510 320 240\n7 SIMPLE_PINHOLE 320 240 300 160 120\n"
IMAGES_TXT = """\
# IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME
1 1 0 0 0 0.5 -1 2 7 cam0/1.jpg
10.5 20.5 -1 11 21 4
2 0 2 0 0 0 0 1 1 cam1/1.jpg

3 1 0 0 0 0 0 0 1 with space.jpg"""


def binary_camera(camera_id=1, model_id=1, size=(640, 480), params=(500, 510, 320, 240)):
    return struct.pack(f"<IiQQ{len(params)}d", camera_id, model_id, *size, *params)


def binary_image(name=b"a.jpg", pose=(1, 0, 0, 0, 0, 0, 1), camera_id=1, points=2):
    head = struct.pack("<I7dI", 5, *pose, camera_id) + name + b"\0"
    return head + struct.pack("<Q", points) + struct.pack("<ddQ", 1.0, 2.0, 3) * points


def counted(*records):
    return struct.pack("<Q", len(records)) + b"".join(records)


@pytest.fixture
def twin():
    """A reconstruction of pycolmap, with one camera of every supported model."""
    pycolmap = pytest.importorskip("pycolmap", reason="pycolmap, the independent twin, is missing")
    rng = np.random.default_rng(0)
    model = pycolmap.Reconstruction()
    for number, camera in enumerate(CAMERAS.values(), 3):
        values = camera.to_colmap() | {"width": 640 + number}
        model.add_camera_with_trivial_rig(pycolmap.Camera(camera_id=number, **values))
    for number, (name, camera_id) in enumerate(zip(NAMES, model.cameras, strict=True), 11):
        q, t = rng.normal(size=4), rng.normal(size=3)
        pose = pycolmap.Rigid3d(pycolmap.Rotation3d(q / np.linalg.norm(q)), t)
        image = pycolmap.Image(name=name, camera_id=camera_id, image_id=number)
        # Among them images without any point, whose line of points is empty.
        image.points2D = pycolmap.Point2DList(
            [pycolmap.Point2D(p) for p in rng.uniform(0, 400, (number % 3, 2))]
        )
        model.add_image_with_trivial_frame(image, pose)
    return model


def write_twin(model, folder, kind):
    folder.mkdir(exist_ok=True)
    (model.write_text if kind == "text" else model.write_binary)(str(folder))
    return folder


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "cameras.txt").write_text(CAMERAS_TXT)
    (folder / "images.txt").write_text(IMAGES_TXT)
    return folder


@BOTH
def test_cameras_and_poses_are_those_of_pycolmap(twin, tmp_path, kind):
    folder = write_twin(twin, tmp_path / "model", kind)
    cameras, images = read_cameras(folder), read_images(folder)
    assert cameras == read_cameras(folder / FILES[kind])
    assert cameras == {key: Camera.from_colmap(value) for key, value in twin.cameras.items()}
    assert {camera.model for camera in cameras.values()} == set(MODELS)
    assert (cameras[4].cx, cameras[4].cy) == (319.5, 239.5)
    theirs = {image.name: image for image in twin.images.values()}
    assert set(images) == set(theirs) == set(NAMES)
    for name, image in images.items():
        pose, camera = theirs[name].cam_from_world(), theirs[name].camera
        assert image.camera_id == theirs[name].camera_id
        np.testing.assert_allclose(image.R, pose.rotation.matrix(), atol=1e-14)
        np.testing.assert_allclose(image.t, pose.translation, atol=1e-14)
        assert find_camera(folder, name).camera == Camera.from_colmap(camera)
        assert find_camera(folder / FILES[kind], name).camera.model == camera.model.name


def test_the_list_of_models_is_that_of_pycolmap():
    pycolmap = pytest.importorskip("pycolmap", reason="pycolmap, the independent twin, is missing")
    for name, member in pycolmap.CameraModelId.__members__.items():
        if name != "INVALID":
            twin = pycolmap.Camera.create_from_model_id(1, member, 500.0, 640, 480)
            assert list(NUM_PARAMS)[int(member)] == name
            assert NUM_PARAMS[name] == len(twin.params)


@BOTH
def test_models_that_are_not_supported_are_named(tmp_path, kind):
    pycolmap = pytest.importorskip("pycolmap", reason="pycolmap, the independent twin, is missing")
    twin = pycolmap.Reconstruction()
    fov = pycolmap.Camera(camera_id=4, model="FOV", width=9, height=9, params=[5, 5, 4, 4, 0.1])
    pinhole = pycolmap.Camera(camera_id=5, model="PINHOLE", width=9, height=9, params=[5, 5, 4, 4])
    for camera, name in ((fov, "fov.jpg"), (pinhole, "pinhole.jpg")):
        twin.add_camera_with_trivial_rig(camera)
        image = pycolmap.Image(name=name, camera_id=camera.camera_id, image_id=camera.camera_id)
        twin.add_image_with_trivial_frame(image, pycolmap.Rigid3d())
    folder = write_twin(twin, tmp_path / "model", kind)
    message = r"^path must be .*SIMPLE_PINHOLE, .*FULL_OPENCV.*camera 4 is of model FOV\)$"
    with pytest.raises(ValueError, match=message):
        read_cameras(folder)
    # An image with another camera does not suffer from it.
    assert find_camera(folder, "pinhole.jpg").camera == Camera.from_colmap(pinhole)
    with pytest.raises(ValueError, match=message):
        find_camera(folder, "fov.jpg")


def test_text_by_hand(model):
    cameras, images = read_cameras(model), read_images(model)
    assert cameras[1] == Camera("PINHOLE", 640, 480, [500, 510, 319.5, 239.5])
    assert cameras[7] == Camera("SIMPLE_PINHOLE", 320, 240, [300, 159.5, 119.5])
    assert list(images) == ["cam0/1.jpg", "cam1/1.jpg", "with space.jpg"]
    np.testing.assert_array_equal(images["cam0/1.jpg"].R, np.eye(3))
    np.testing.assert_array_equal(images["cam0/1.jpg"].t, [0.5, -1, 2])
    # A quaternion of length 2 about x.
    np.testing.assert_array_equal(images["cam1/1.jpg"].R, np.diag([1, -1, -1]))


def test_binary_by_hand(tmp_path):
    (tmp_path / "cameras.bin").write_bytes(counted(binary_camera(size=(0, 0))))
    (tmp_path / "images.bin").write_bytes(counted(binary_image(), binary_image(b"b.jpg", points=0)))
    assert read_cameras(tmp_path) == {1: Camera("PINHOLE", None, None, [500, 510, 319.5, 239.5])}
    assert list(read_images(tmp_path)) == ["a.jpg", "b.jpg"]


@pytest.mark.parametrize(
    ("name", "focal"),
    [
        ("cam0/1.jpg", 300),
        ("cam1/1.jpg", 505),
        ("/data/images/cam1/1.jpg", 505),
        ("./cam0/1.jpg", 300),
        ("elsewhere/with space.jpg", 505),
    ],
)
def test_lookup_by_name(model, name, focal):
    assert find_camera(model, name).camera.focal == focal


def test_lookup_prefers_the_longest_end_of_the_path(model):
    images = model / "images.txt"
    images.write_text("1 1 0 0 0 0 0 0 1 1.jpg\n\n2 1 0 0 0 0 0 0 7 cam0/1.jpg\n\n")
    assert find_camera(model, "x/cam0/1.jpg").camera.focal == 300
    assert find_camera(model, "x/1.jpg").camera.focal == 505


def test_lookup_sees_that_the_model_has_changed(model):
    assert find_camera(model, "cam0/1.jpg").camera.focal == 300
    (model / "images.txt").write_text("1 1 0 0 0 0 0 0 1 cam0/1.jpg\n\n")
    assert find_camera(model, "cam0/1.jpg").camera.focal == 505


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("1.jpg", "'1.jpg' may be any of 'cam0/1.jpg', 'cam1/1.jpg'"),
        ("cam9/1.jpg", "may be any of"),
        ("absent.jpg", "it has no image 'absent.jpg'"),
        ("", "it has no image ''"),
    ],
)
def test_lookup_that_fails(model, name, reason):
    with pytest.raises(ValueError, match=rf"^path must be .*cameras\.txt.*{reason}"):
        find_camera(model, name)


def test_lookup_without_images_or_with_a_missing_camera(model):
    one = "1 PINHOLE 640 480 500 510 320 240\n"
    (model / "cameras.txt").write_text(one)
    assert find_camera(model, None).camera_id == find_camera(model, "cam0/1.jpg").camera_id == 1
    (model / "cameras.txt").write_text(f"{one}2{one[1:]}")
    with pytest.raises(ValueError, match=r"'cam0/1\.jpg' has camera 7, which it lacks"):
        find_camera(model, "cam0/1.jpg")
    (model / "images.txt").unlink()
    with pytest.raises(ValueError, match=r"there is no images\.txt beside it to look up 'a'"):
        find_camera(model, "a")
    (model / "cameras.txt").write_text("# nothing\n")
    with pytest.raises(ValueError, match="it holds no camera"):
        find_camera(model, None)


def test_folders_and_files_that_are_not_a_model(model, tmp_path):
    with pytest.raises(ValueError, match="there is no such file or folder"):
        read_cameras(tmp_path / "absent")
    with pytest.raises(ValueError, match=r"no cameras\.bin or cameras\.txt, did you mean .*model'"):
        read_cameras(tmp_path)
    other = shutil.copy(model / "cameras.txt", tmp_path / "cameras.csv")
    with pytest.raises(ValueError, match=r"does not end in \.txt or \.bin"):
        read_cameras(other)
    with pytest.raises(ValueError, match=r"^path must be the name of a file"):
        read_cameras("")


# What a file holds, and the reason for which it is refused.
DAMAGED = {
    "cameras.txt": [
        ("1 PINHOLE 640", "line 1 is not CAMERA_ID MODEL WIDTH HEIGHT"),
        ("\n# x\na PINHOLE 4 4 1 1 1 1", "line 3 is not CAMERA_ID"),
        ("1 PINHOLE 640 480 500 510 320", "camera 1: params must be the 4 finite numbers"),
        ("1 PINHOLE 640 480 nan 510 320 240", "camera 1: params must hold finite"),
        ("1 PINHOLE 640 480 -5 510 320 240", "positive focal length"),
        ("1 PINHOLE -640 480 5 510 320 240", "negative id or size"),
        ("1 PINHOLE 640 0 500 510 320 240", "camera 1: height must be given together"),
        ("1 PINHOLE 4 4 1 1 1 1\n1 PINHOLE 4 4 1 1 1 1", "1 appears twice in its cameras"),
        ("1 PINHOL 4 4 1 1 1 1", "camera 1 is of model PINHOL"),
        ("\0\0", "line 1 is not text"),
    ],
    "images.txt": [
        ("1 1 0 0 0 0 0 0 1", "line 1 is not IMAGE_ID"),
        ("1 1 0 0 x 0 0 0 1 a.jpg", "line 1 is not IMAGE_ID"),
        ("1 1 0 0 0 0 0 0 1 a.jpg\n1.5 2.5", "line 2 is not a list"),
        ("1 0 0 0 0 0 0 0 1 a.jpg\n", "pose of 'a.jpg' is not finite or has no rotation"),
        ("1 1 0 0 0 0 nan 0 1 a.jpg\n", "pose of 'a.jpg' is not finite"),
        ("1 1 0 0 0 0 0 0 1 a\n\n2 1 0 0 0 0 0 0 1 a\n", "'a' appears twice in its images"),
    ],
    "cameras.bin": [
        (b"", "it ends within the number of cameras"),
        (struct.pack("<Q", 2**63) + b"x" * 99, "has the unknown model number"),
        (counted(binary_camera(model_id=42)), "camera 1 has the unknown model number 42"),
        (counted(binary_camera(model_id=-1)), "unknown model number -1"),
        (counted(binary_camera(model_id=6)), "it ends within the record of camera number 1"),
        (counted(binary_camera()) + b"x", "it does not end with its last record"),
        (counted(binary_camera(), binary_camera()), "1 appears twice in its cameras"),
        (counted(binary_camera(params=(np.inf, 1, 1, 1))), "camera 1: params must hold finite"),
    ],
    "images.bin": [
        (struct.pack("<Q", 2**60), "it ends within the record of image number 1"),
        (counted(binary_image(points=2)[:-1]), "it does not end with its last record"),
        (
            counted(binary_image(b"x" * 5000)),
            "the name in .* does not end",
        ),
        (counted(binary_image(b"")), "an image has no name"),
        (counted(binary_image(pose=(0,) * 7)), "has no rotation"),
        (counted(binary_image(pose=(1e-320, 0, 0, np.nan, 0, 0, 0))), "is not finite"),
    ],
}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [(name, *case) for name, entries in DAMAGED.items() for case in entries],
    ids=[f"{name}-{n}" for name, entries in DAMAGED.items() for n in range(len(entries))],
)
def test_damaged_files(tmp_path, name, content, reason):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    read = read_cameras if name.startswith("cameras") else read_images
    with pytest.raises(ValueError, match=rf"^path must be .*{re.escape(name)}.*{reason}"):
        read(path)


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
