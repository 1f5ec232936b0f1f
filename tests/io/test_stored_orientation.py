"""Files for COLMAP and hloc are in pixels of the stored photographs: both ignore EXIF."""

import cv2
import h5py
import numpy as np
import pytest
from PIL import Image

from manymatch import Camera, RelativePose
from manymatch.io import ColmapDatabaseWriter, ColmapWriter, HlocWriter, ImageRecord, PairMatches
from manymatch.io.image import image_size, load_image, stored_orientation
from tests.support.importers import hloc_keypoints

pycolmap = pytest.importorskip("pycolmap")

STORED = np.random.default_rng(0).integers(0, 256, (18, 24, 3), dtype=np.uint8)
WIDTH, HEIGHT = 24, 18
NONE = np.zeros((0, 2), dtype=int)


def photograph(path, turn):
    exif = Image.Exif()
    exif[0x0112] = turn
    how = {"quality": 100, "subsampling": 0} if path.suffix == ".jpg" else {}
    Image.fromarray(STORED).save(path, exif=exif, **how)
    return path


def camera_of(size, turn):
    """Another principal point and another tangential distortion along either axis."""
    params = [30, 33, size[0] / 2 + 0.1 * turn, size[1] / 2 - 1, 0.01, -0.02, 0.003, -0.001]
    return Camera("OPENCV", *size, params)


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
@pytest.mark.parametrize("turn", range(1, 9))
def test_keypoints_are_where_colmap_and_hloc_see_them(tmp_path, turn, suffix):
    """The colour at each keypoint is the same in our image and in theirs."""
    path = photograph(tmp_path / f"a.{suffix}", turn)
    upright = load_image(path)
    size = upright.shape[1::-1]
    assert size == image_size(path) == ((HEIGHT, WIDTH) if turn >= 5 else (WIDTH, HEIGHT))
    y, x = (index.ravel() for index in np.indices(upright.shape[:2]))
    points = np.column_stack([x, y]).astype(float)
    camera = camera_of(size, turn)
    record = ImageRecord("a", size, camera, orientation=stored_orientation(path))
    other = ImageRecord("b", camera=Camera("PINHOLE", 9, 9, [9, 9, 4, 4]))
    files = tmp_path / "features.h5", tmp_path / "matches.h5"
    with (
        HlocWriter(*files) as hloc,
        ColmapWriter(tmp_path) as text,
        ColmapDatabaseWriter(tmp_path / "database.db") as database,
    ):
        for writer in (hloc, text, database):
            writer.add(record, other, PairMatches(points, NONE, NONE))
    with pycolmap.Database.open(tmp_path / "database.db") as database:
        pixels = database.read_keypoints(1) - 0.5
        own = database.read_camera(1)
    lines = (tmp_path / "a.txt").read_text().splitlines()[1:]
    texts = np.array([line.split()[:2] for line in lines], dtype=float) - 0.5
    theirs = pycolmap.Bitmap.read(path, as_rgb=True).to_array()
    assert (own.width, own.height) == theirs.shape[1::-1]
    with h5py.File(files[0]) as file:
        assert file["a/image_size"][()].tolist() == list(theirs.shape[1::-1])
    for found in (pixels, texts, hloc_keypoints(files[0], "a")):
        at = found.round().astype(int)
        np.testing.assert_allclose(found, at, atol=1e-5)
        np.testing.assert_array_equal(theirs[at[:, 1], at[:, 0]], upright[y, x])
    if suffix != "tif":  # OpenCV turns these always, or cannot read them
        flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
        np.testing.assert_allclose(cv2.imread(str(path), flags)[:, :, ::-1], theirs, atol=1)
    # The camera is turned with the pixels: rays differ by the same quarter turn or mirroring.
    rays = own.cam_from_img(pixels.astype(float) + 0.5)
    np.testing.assert_allclose(rays, camera.unproject(points) @ record.axes[:2, :2].T, atol=1e-5)


MIRRORED = (2, 4, 5, 7)


@pytest.mark.parametrize(
    ("turn0", "turn1"),
    [(a, b) for a in range(1, 9) for b in range(1, 9) if (a in MIRRORED) == (b in MIRRORED)],
)
def test_poses_are_between_the_stored_images(tmp_path, turn0, turn1):
    """A point in front of both cameras is where pose and keypoints of the database say."""
    angle = 0.2
    R = np.array([[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]])
    pose = RelativePose(R, [0.6, -0.2, 0.3])
    rng = np.random.default_rng(1)
    points = np.column_stack([rng.uniform(-1, 1, (6, 2)), rng.uniform(4, 6, 6)])
    records, keypoints = [], []
    for name, turn, at in (("a", turn0, points), ("b", turn1, points @ R.T + pose.t)):
        size = (HEIGHT, WIDTH) if turn >= 5 else (WIDTH, HEIGHT)
        camera = camera_of(size, turn)
        records.append(ImageRecord(name, camera=camera, orientation=turn))
        keypoints.append(camera.project(at[:, :2] / at[:, 2:]))
    pair = PairMatches(*keypoints, np.column_stack([np.arange(6)] * 2), pose=pose)
    with ColmapDatabaseWriter(tmp_path / "database.db") as writer:
        writer.add(*records, pair)
    with pycolmap.Database.open(tmp_path / "database.db") as database:
        images = database.read_all_images()
        rays = [
            database.read_camera(image.camera_id).cam_from_img(
                database.read_keypoints(image.image_id).astype(float)
            )
            for image in images
        ]
        geometry = database.read_two_view_geometry(1, 2)
    found = geometry.cam2_from_cam1
    assert np.linalg.det(found.rotation.matrix()) == pytest.approx(1)
    first = np.column_stack([rays[0], np.ones(6)]) * points[:, 2:]
    second = first @ found.rotation.matrix().T + found.translation
    np.testing.assert_allclose(second[:, :2] / second[:, 2:], rays[1], atol=1e-5)
    assert (second[:, 2] > 0).all()
    lines = np.column_stack([rays[0], np.ones(6)]) @ geometry.E.T
    np.testing.assert_allclose(
        (lines * np.column_stack([rays[1], np.ones(6)])).sum(1), 0, atol=1e-5
    )


@pytest.mark.parametrize(("turn", "other"), [(1, 2), (6, 5), (4, 8)])
def test_there_is_no_pose_to_a_mirrored_image(tmp_path, turn, other):
    records = [
        ImageRecord(name, camera=Camera("PINHOLE", 9, 9, [9, 9, 4, 4]), orientation=value)
        for name, value in (("a", turn), ("b", other))
    ]
    pair = PairMatches(
        np.zeros((1, 2)), np.zeros((1, 2)), [], pose=RelativePose(np.eye(3), [1, 0, 0])
    )

    pycolmap = pytest.importorskip("pycolmap")
    with ColmapDatabaseWriter(tmp_path / "database.db") as writer:
        writer.add(*records, pair)
    with pycolmap.Database.open(tmp_path / "database.db") as database:
        found = database.read_two_view_geometry(1, 2)
    assert found.config == pycolmap.TwoViewGeometryConfiguration.DEGENERATE.value
    assert found.cam2_from_cam1 is None


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"orientation": 6}, "^size must be given for an image that EXIF turns, got None"),
        ({"orientation": 9}, "^orientation must be"),
        ({"size": 5}, "^size must be a pair"),
        ({"size": (0, 5)}, "^size must be an integer"),
        ({"camera": 5}, "^camera must be a Camera or None"),
    ],
)
def test_records_of_images_are_checked(how, says):
    with pytest.raises(ValueError, match=says):
        ImageRecord("a", **how)
