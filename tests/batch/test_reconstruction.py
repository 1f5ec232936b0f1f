"""From photographs to a model: a batch writes files, pycolmap and hloc's calls take them."""

import itertools

import numpy as np
import pytest
from PIL import Image

from manymatch import Camera
from manymatch.batch.batch import run_batch
from manymatch.io import read_matches_npz
from manymatch.io.image import orientation_axes
from manymatch.io.pairs import read_pairs
from manymatch.matcher.config import MatcherConfig
from tests.support.importers import database_content, hloc_keypoints, hloc_matches, mapped
from tests.support.synthetic_views import photographs_of_a_scene

pytest.importorskip("cv2")
pytest.importorskip("h5py")
pycolmap = pytest.importorskip("pycolmap")

SIZE = (320, 240)
FOCAL = 300.0
# One lies in a folder of its own, two are stored turned.
NAMES = {"a.jpg": 1, "in/b.jpg": 6, "in/deep/c.jpg": 1, "d d.jpg": 3, "in/\u00e4.jpg": 1}
CONFIG = MatcherConfig.of("classic", max_keypoints=600, longest=320, max_iterations=2000)


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    """Photographs of a scene, and a batch of all pairs of them, one of which is there twice."""
    folder = tmp_path_factory.mktemp("scene")
    for (name, turn), view in zip(
        NAMES.items(), photographs_of_a_scene(len(NAMES), SIZE, FOCAL), strict=True
    ):
        path = folder / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        exif[0x0112] = turn
        # The focal length, as 35 mm equivalent, for some only.
        if turn == 1:
            exif.get_ifd(0x8769)[0xA405] = round(FOCAL * np.hypot(36, 24) / np.hypot(*SIZE))
        stored = {1: view, 3: view[::-1, ::-1], 6: np.rot90(view)}[turn]
        Image.fromarray(stored).save(path, exif=exif, quality=97)
    pairs = [*itertools.combinations(NAMES, 2), ("in/b.jpg", "a.jpg")]
    (folder / "pairs.csv").write_text("".join(f"{a},{b}\n" for a, b in pairs))
    listed = read_pairs(folder / "pairs.csv", folder / "images")
    formats = ["npz", "h5", "colmap-db"]
    summary = run_batch(listed, None, folder / "out", CONFIG, formats=formats)
    assert summary.with_pose == len(pairs), summary.counts
    assert summary.files[-3:] == tuple(
        folder / "out" / name for name in ("features.h5", "matches.h5", "database.db")
    )
    return folder


def registered(model):
    return {image.name for image in model.images.values() if image.has_pose}


@pytest.mark.parametrize("mapper", ["incremental", "global"])
def test_mappers_register_every_photograph(batch, tmp_path, mapper):
    database = batch / "out" / "database.db"
    model = mapped(mapper, database, batch / "images", tmp_path / "model")
    assert model is not None
    assert registered(model) == set(NAMES)
    assert model.compute_mean_reprojection_error() < 1.0
    for camera in model.cameras.values():
        assert camera.focal_length == pytest.approx(FOCAL, rel=0.1)


def test_hloc_makes_a_model_of_the_same_matches(batch, tmp_path):
    """What hloc does: images by COLMAP, keypoints and matches of the .h5 files, verification."""
    path = tmp_path / "database.db"
    pycolmap.Database.open(path).close()
    pycolmap.import_images(path, batch / "images")
    out = batch / "out"
    with pycolmap.Database.open(path) as database:
        numbers = {image.name: image.image_id for image in database.read_all_images()}
        assert set(numbers) == set(NAMES)
        for name, number in numbers.items():
            keypoints = hloc_keypoints(out / "features.h5", name)
            keypoints += 0.5
            database.write_keypoints(number, keypoints)
        pairs = tmp_path / "pairs.txt"
        with pairs.open("w") as file:
            for name0, name1 in itertools.combinations(NAMES, 2):
                matches, scores = hloc_matches(out / "matches.h5", name0, name1)
                assert len(matches) == len(scores) > 15
                database.write_matches(numbers[name0], numbers[name1], matches.astype(np.uint32))
                if " " not in name0 + name1:  # COLMAP's list of pairs cannot name them
                    file.write(f"{name0} {name1}\n")
    pycolmap.verify_matches(path, pairs)
    model = mapped("incremental", path, batch / "images", tmp_path / "model")
    assert model is not None
    assert registered(model) == {name for name in NAMES if " " not in name}


def test_the_database_has_what_the_batch_found(batch):
    """Every pair once; keypoints, camera and pose turned into the stored photograph."""
    content = database_content(batch / "out" / "database.db")
    files = sorted((batch / "out" / "matches").iterdir())
    pairs = list(itertools.combinations(NAMES, 2))
    assert len(files) == len(pairs) + 1
    assert len([key for key in content if isinstance(key, tuple)]) == len(pairs)
    # Matches of a pose that may be wrong are left to the mapper to verify.
    posed = [pair for pair in pairs if content[pair][3] is not None]
    assert len(posed) > len(pairs) / 2
    for (name0, name1), file in zip(pairs, files, strict=False):
        found = read_matches_npz(file)
        matches, config, inliers, pose = content[name0, name1]
        assert matches == found.matches.tolist()
        if (name0, name1) not in posed:
            continue
        assert inliers == matches
        known = NAMES[name0] == NAMES[name1] == 1
        kinds = pycolmap.TwoViewGeometryConfiguration
        assert config == (kinds.CALIBRATED if known else kinds.UNCALIBRATED).value
        turn0, turn1 = (np.eye(3), np.eye(3))
        turn0[:2, :2], turn1[:2, :2] = (orientation_axes(NAMES[name]) for name in (name0, name1))
        np.testing.assert_allclose(np.array(pose)[:, :3], turn1 @ found.pose.R @ turn0.T, atol=1e-9)
        np.testing.assert_allclose(np.array(pose)[:, 3], turn1 @ found.pose.t, atol=1e-9)
    for name, turn in NAMES.items():
        model, (width, height, focal, *_), prior, own_frame, keypoints = content[name]
        assert (model, own_frame, prior) == ("SIMPLE_RADIAL", True, turn == 1)
        assert (width, height) == (SIZE[::-1] if turn == 6 else SIZE)
        # From EXIF, or from all pairs of the image.
        assert focal == pytest.approx(FOCAL, rel=0.03 if prior else 0.1)
        stored = hloc_keypoints(batch / "out" / "features.h5", name)
        np.testing.assert_allclose(np.array(keypoints) - 0.5, stored, atol=1e-4)
        assert (stored <= np.array([width, height]) - 0.5).all()


def test_one_camera_for_all_is_one_camera(batch, tmp_path):
    listed = read_pairs(batch / "pairs.csv", batch / "images")[:4]
    camera = Camera("SIMPLE_PINHOLE", *SIZE, [FOCAL, 159.5, 119.5])
    run_batch(listed, None, tmp_path, CONFIG, formats=["colmap-db"], cameras=camera)
    with pycolmap.Database.open(tmp_path / "database.db") as database:
        # Landscape and upside down are one; upright photographs are stored as landscape.
        sizes = {(c.width, c.height) for c in database.read_all_cameras()}
        assert sizes == {SIZE, SIZE[::-1]}
        assert database.num_cameras() == 2
        assert all(camera.has_prior_focal_length for camera in database.read_all_cameras())
