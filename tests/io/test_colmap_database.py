"""The database for COLMAP: what pycolmap reads of it, and what its mappers make of it."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from manymatch import Camera, RelativePose
from manymatch.io import ColmapDatabaseWriter, ImageRecord, PairMatches, load_image
from manymatch.io.image import stored_orientation
from tests.support.importers import mapped
from tests.support.leftovers import no_leftovers

pycolmap = pytest.importorskip("pycolmap")

SIZE = (320, 240)
CAMERA = Camera("OPENCV", *SIZE, [300, 310, 161, 118, -0.1, 0.02, 0.001, -0.002])
PLAIN = Camera("SIMPLE_PINHOLE", *SIZE, [300, 159.5, 119.5])
RNG = np.random.default_rng(5)
P0, P1, P2 = (RNG.uniform(0, 240, (n, 2)) for n in (7, 5, 6))
MATCHES = np.array([[3, 1], [0, 2], [4, 0]])
POSE = RelativePose([[0, 0, 1], [0, 1, 0], [-1, 0, 0]], [0.6, 0.0, 0.8])
NAMES = ("left/\u00e4 1.jpg", "right/\u8a9e.png")


def write(path, *pairs):
    with ColmapDatabaseWriter(path) as writer:
        added = [writer.add(*pair) for pair in pairs]
    assert no_leftovers(path.parent)
    assert not list(path.parent.glob(".*"))
    return added


def images_of(database):
    return {image.name: image for image in database.read_all_images()}


def test_everything_comes_back(tmp_path):
    path = tmp_path / "database.db"
    first, second = (ImageRecord(name, camera=CAMERA) for name in NAMES)
    third = ImageRecord("c.jpg", camera=PLAIN, focal_known=False)
    write(
        path,
        (second, first, PairMatches(P1, P0, MATCHES[:, ::-1], pose=POSE)),
        (first, third, PairMatches(P0, P2, [[6, 5]], pose=POSE)),
        (second, third, PairMatches(P1, P2, [[0, 0]])),
    )
    with pycolmap.Database.open(path) as database:
        images = images_of(database)
        assert set(images) == {*NAMES, "c.jpg"}
        assert (database.num_cameras(), database.num_rigs(), database.num_frames()) == (2, 2, 3)
        for record, points in ((first, P0), (second, P1), (third, P2)):
            image = images[record.name]
            found = database.read_keypoints(image.image_id)
            np.testing.assert_allclose(found, points + 0.5, atol=1e-4)
            camera = database.read_camera(image.camera_id)
            assert camera.has_prior_focal_length == record.focal_known
            # Of a pixel both have the same ray.
            pixels = np.array([[10.0, 20.0], [300.0, 200.0]])
            rays = camera.cam_from_img(pixels + 0.5)
            np.testing.assert_allclose(rays, record.camera.unproject(pixels), atol=1e-9)
            frame = database.read_frame(image.frame_id)
            assert list(frame.data_ids) == [image.data_id]
            assert database.read_rig(frame.rig_id).is_ref_sensor(camera.sensor_id)
        one, two, three = (images[name].image_id for name in (*NAMES, "c.jpg"))
        assert database.read_matches(two, one).tolist() == MATCHES[:, ::-1].tolist()
        assert database.read_matches(one, two).tolist() == MATCHES.tolist()
        geometry = database.read_two_view_geometry(two, one)
        assert geometry.config == pycolmap.TwoViewGeometryConfiguration.CALIBRATED.value
        np.testing.assert_allclose(geometry.cam2_from_cam1.rotation.matrix(), POSE.R, atol=1e-12)
        np.testing.assert_allclose(geometry.cam2_from_cam1.translation, POSE.t, atol=1e-12)
        E, expected = geometry.E, np.cross(np.eye(3), POSE.t) @ POSE.R
        scale = np.sign((E * expected).sum()) * np.linalg.norm(expected) / np.linalg.norm(E)
        np.testing.assert_allclose(E * scale, expected, atol=1e-12)
        assert geometry.F is None  # none with distortion
        assert geometry.inlier_matches.tolist() == MATCHES[:, ::-1].tolist()
        kinds = pycolmap.TwoViewGeometryConfiguration
        assert database.read_two_view_geometry(one, three).config == kinds.UNCALIBRATED.value
        without = database.read_two_view_geometry(two, three)
        assert (without.config, len(without.inlier_matches)) == (kinds.DEGENERATE.value, 0)


def test_the_fundamental_matrix_relates_the_pixels(tmp_path):
    path = tmp_path / "database.db"
    points = np.column_stack([RNG.uniform(-1, 1, (9, 2)), RNG.uniform(3, 6, 9)])
    pose = RelativePose(np.eye(3), [1.0, 0.1, 0.0])
    first = PLAIN.project(points[:, :2] / points[:, 2:])
    moved = points + pose.t
    second = PLAIN.project(moved[:, :2] / moved[:, 2:])
    records = [ImageRecord(name, camera=PLAIN) for name in "ab"]
    pair = PairMatches(first, second, np.column_stack([np.arange(9)] * 2), pose=pose)
    write(path, (*records, pair))
    with pycolmap.Database.open(path) as database:
        F = database.read_two_view_geometry(1, 2).F
        x0, x1 = (np.column_stack([database.read_keypoints(i), np.ones(9)]) for i in (1, 2))
    assert np.linalg.norm(F) == pytest.approx(1)
    np.testing.assert_allclose(np.einsum("ni,ij,nj->n", x1, F, x0), 0, atol=1e-4)


def test_images_share_cameras_as_colmap_does(tmp_path):
    """Equal known cameras are shared in any orientation; each guess belongs to one image."""
    path = tmp_path / "database.db"
    upright = Camera("SIMPLE_PINHOLE", 240, 320, [300, 119.5, 159.5])
    records = [
        ImageRecord("a", camera=PLAIN),
        ImageRecord("b", camera=upright, orientation=6),
        ImageRecord("c", camera=PLAIN, focal_known=False),
        ImageRecord("d", camera=PLAIN, focal_known=False),
    ]
    write(path, *((records[i], records[i + 1], PairMatches(P0, P0, [])) for i in range(3)))
    with pycolmap.Database.open(path) as database:
        cameras = [image.camera_id for image in database.read_all_images()]
        assert (cameras[0] == cameras[1], len(set(cameras))) == (True, 3)
        # Distortion can be refined where the camera was not calibrated.
        assert database.read_camera(cameras[0]).model_name == "SIMPLE_RADIAL"


def test_two_images_are_there_once(tmp_path):
    path = tmp_path / "database.db"
    a, b = (ImageRecord(name, camera=PLAIN) for name in "ab")
    pair, back = PairMatches(P0, P1, MATCHES), PairMatches(P1, P0, [[0, 0]])
    assert write(path, (a, b, pair), (b, a, back), (a, b, pair)) == [True, False, False]
    with pycolmap.Database.open(path) as database:
        assert database.num_matched_image_pairs() == 1
        assert database.read_matches(1, 2).tolist() == MATCHES.tolist()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"camera": None}, r"^camera of 'b' must be one with a size .*, got None"),
        ({"camera": Camera("PINHOLE", None, None, [1, 1, 0, 0])}, r"^camera of 'b' must be .*size"),
        ({"camera": Camera("PINHOLE", 9, 9, [1, 1, 0, 0], 0.1)}, r"^camera must have no skew"),
        ({"camera": CAMERA}, r"^camera of 'b' must be the same in all pairs"),
        ({"camera": PLAIN, "name": "../b"}, r"^name must be the path of an image below"),
    ],
)
def test_what_colmap_cannot_hold_leaves_the_old_file(tmp_path, change, says):
    path = tmp_path / "database.db"
    path.write_bytes(b"old")
    a, b, c = (ImageRecord(name, camera=PLAIN) for name in "abc")
    pairs = [(a, c, PairMatches(P0, P2, []))]
    if "same" in says:
        pairs.append((a, b, PairMatches(P0, P1, [])))

    def add():
        other = ImageRecord(**{"name": "b", **change})
        write(path, *pairs, (c, other, PairMatches(P2, P1, [], pose=POSE)))

    with pytest.raises(ValueError, match=says):
        add()
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("database.db", b"old")]


def test_a_database_that_is_not_complete_gets_no_name(tmp_path):
    """SQLite leaves parts of it in a file beside where it cannot move them, and says nothing."""
    path = tmp_path / "database.db"
    records = [ImageRecord(name, camera=PLAIN) for name in "ab"]
    code = (
        "import sqlite3, sys\n"
        "other = sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True)\n"
        "other.execute('BEGIN')\n"
        "print(other.execute('SELECT count(*) FROM images').fetchall(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    readers = []

    def add():
        with ColmapDatabaseWriter(path) as writer:
            (temporary,) = tmp_path.glob(".*.tmp/*.db")
            reader = subprocess.Popen(  # noqa: S603
                [sys.executable, "-c", code, str(temporary)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            readers.append(reader)
            assert reader.stdout.readline() == b"[(0,)]\n"
            writer.add(*records, PairMatches(P0, P1, MATCHES))

    try:
        with pytest.raises(OSError, match=r"could not be completed: '.*database.db'"):
            add()
    finally:
        for reader in readers:
            reader.communicate()
    assert list(tmp_path.iterdir()) == []


def test_a_pair_costs_the_same_however_many_there_are(tmp_path):
    """Two calls a pair and three an image, beside those of its camera; nothing is read."""
    calls = []

    class Counted:
        def __init__(self, real):
            self._real = real

        def __getattr__(self, name):
            calls.append(name)
            return getattr(self._real, name)

    with ColmapDatabaseWriter(tmp_path / "database.db") as writer:
        writer._database = Counted(writer._database)
        records = [ImageRecord(str(i), camera=PLAIN) for i in range(12)]
        for i in range(12):
            for j in range(i + 1, 12):
                writer.add(records[i], records[j], PairMatches(P0, P0, [[0, 0]]))
    counts = {name: calls.count(name) for name in set(calls)}
    assert counts == {
        **dict.fromkeys(("write_matches", "write_two_view_geometry"), 66),
        **dict.fromkeys(("write_image", "write_frame", "write_keypoints"), 12),
        **dict.fromkeys(("write_camera", "write_rig"), 1),
    }


def test_pycolmap_is_asked_for_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycolmap", None)
    with pytest.raises(ImportError, match=r'COLMAP.s database needs pycolmap.*"manymatch.colmap."'):
        ColmapDatabaseWriter(tmp_path / "database.db")


# ------------------------------------------------------------------------------------- mappers


def world(count, noise_px, camera):
    """Views of points on an arc around them: keypoints of each, and the indices of the points."""
    rng = np.random.default_rng(1)
    points = np.column_stack([rng.uniform(-2.5, 2.5, 250), rng.uniform(-2, 2, 250)])
    points = np.column_stack([points, rng.uniform(4, 8, 250)])
    views = []
    for k in range(count):
        a, b = np.radians(-18 + 36 * k / (count - 1)), 0.08 * np.sin(2.0 * k)
        turn = np.array([[np.cos(a), 0, np.sin(a)], [0, 1, 0], [-np.sin(a), 0, np.cos(a)]])
        nod = np.array([[1, 0, 0], [0, np.cos(b), -np.sin(b)], [0, np.sin(b), np.cos(b)]])
        R = nod @ turn
        t = np.array([0.0, 0.2 * np.cos(k), 6.0]) - R @ np.array([0.0, 0.0, 6.0])
        at = points @ R.T + t
        pixels = camera.project(at[:, :2] / at[:, 2:]) + noise_px * rng.normal(size=(250, 2))
        seen = np.flatnonzero(
            ((pixels >= 0) & (pixels <= np.array([camera.width, camera.height]) - 1)).all(axis=1)
        )
        views.append((R, t, pixels[seen], seen))
    return views


def pairs_of(views, records):
    for i in range(len(views)):
        for j in range(i + 1, len(views)):
            (R0, t0, keypoints0, seen0), (R1, t1, keypoints1, seen1) = views[i], views[j]
            _, at0, at1 = np.intersect1d(seen0, seen1, return_indices=True)
            R = R1 @ R0.T
            pair = PairMatches(
                keypoints0,
                keypoints1,
                np.column_stack([at0, at1]),
                pose=RelativePose(R, t1 - R @ t0),
            )
            yield records[i], records[j], pair


def photographs(folder, names, orientations):
    """Blank images that EXIF turns into the size of `SIZE`."""
    for name, turn in zip(names, orientations, strict=True):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        exif[0x0112] = turn
        Image.new("L", SIZE[::-1] if turn >= 5 else SIZE).save(path, exif=exif)
        assert load_image(path).shape[1::-1] == SIZE
        assert stored_orientation(path) == turn


@pytest.mark.parametrize("mapper", ["incremental", "global"])
@pytest.mark.parametrize("guess", [1.0, 1.2])
def test_mappers_register_every_image(tmp_path, mapper, guess):
    """Some in subfolders, some turned by EXIF, with known and with guessed focal lengths."""
    true = Camera("SIMPLE_PINHOLE", *SIZE, [280, 159.5, 119.5])
    names = ["a.jpg", "in/a.jpg", "in/b c.jpg", "in/deep/\u00e4.jpg", "e.jpg", "f.jpg"]
    orientations = [1, 6, 3, 8, 1, 6]
    photographs(tmp_path / "images", names, orientations)
    views = world(len(names), 0.3, true)
    camera = Camera("SIMPLE_PINHOLE", *SIZE, [280 * guess, 159.5, 119.5])
    records = [
        ImageRecord(name, camera=camera, focal_known=guess == 1, orientation=turn)
        for name, turn in zip(names, orientations, strict=True)
    ]
    write(tmp_path / "database.db", *pairs_of(views, records))
    model = mapped(mapper, tmp_path / "database.db", tmp_path / "images", tmp_path / "model")
    assert model is not None
    assert {image.name for image in model.images.values() if image.has_pose} == set(names)
    assert model.num_points3D() > 200
    assert model.compute_mean_reprojection_error() < 0.5
    # Where each camera was, up to a similarity that is fixed by the centres themselves.
    by_name = {image.name: image for image in model.images.values()}
    centres = np.array([by_name[name].projection_center() for name in names])
    truth = np.array([-R.T @ t for R, t, _, _ in views])
    found, wanted = (np.linalg.norm(c[:, None] - c[None], axis=2) for c in (centres, truth))
    np.testing.assert_allclose(found / found.max(), wanted / wanted.max(), atol=0.02)
    for camera in model.cameras.values():
        assert camera.focal_length == pytest.approx(280, rel=0.03)


def test_images_are_imported_as_pycolmap_imports_them(tmp_path):
    """The same rows of cameras, images, rigs and frames, but for the numbers."""
    names = ["a.jpg", "in/b.jpg"]
    photographs(tmp_path / "images", names, [1, 6])
    focal = 1.2 * max(SIZE)
    camera = Camera("SIMPLE_PINHOLE", *SIZE, [focal, 159.5, 119.5])
    records = [
        ImageRecord(name, camera=camera, focal_known=False, orientation=turn)
        for name, turn in zip(names, [1, 6], strict=True)
    ]
    write(tmp_path / "ours.db", (*records, PairMatches(P0, P1, MATCHES)))
    pycolmap.Database.open(tmp_path / "theirs.db").close()
    pycolmap.import_images(tmp_path / "theirs.db", tmp_path / "images")
    rows = []
    for path in ("theirs.db", "ours.db"):
        with pycolmap.Database.open(tmp_path / path) as database:
            cameras = {c.camera_id: c for c in database.read_all_cameras()}
            rigs = {r.rig_id: r for r in database.read_all_rigs()}
            frames = {f.frame_id: f for f in database.read_all_frames()}
            row = {}
            for image in database.read_all_images():
                own, frame = cameras[image.camera_id], frames[image.frame_id]
                what = (own.model_name, own.width, own.height, own.params.round(6).tolist())
                assert rigs[frame.rig_id].ref_sensor_id == own.sensor_id
                assert (rigs[frame.rig_id].num_sensors(), frame.num_data_ids()) == (1, 1)
                row[image.name] = (*what, own.has_prior_focal_length)
            rows.append(row)
    assert rows[0] == rows[1]
