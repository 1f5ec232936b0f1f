import shutil
from pathlib import Path

import numpy as np
import pytest

from manymatch_lab import datasets
from tests.support.data_folder import data_folder
from tests.support.synthetic_trees import (
    PUBLISHED_NAME,
    SCANNET_K,
    make_scannet_images,
    make_scannet_list,
    make_scannet_loftr,
    write_image,
)


def test_superglues_list(tmp_path):
    truths = make_scannet_list(tmp_path, 1500)
    make_scannet_images(tmp_path)
    dataset = datasets.load("scannet1500", tmp_path)
    assert len(dataset) == 1500
    assert datasets.check("scannet1500", tmp_path) is None
    pair = dataset[0]
    assert pair.name0 == "scans_test/scene0707_00/sens/frame-000015.color.jpg"
    assert pair.path0 == tmp_path / "scene0707_00" / "color" / "15.jpg"
    assert pair.scene == "scene0707_00"
    assert [p.extra["seed_index"] for p in dataset[:3]] == [1, 2, 3]
    np.testing.assert_allclose(pair.camera0.K, SCANNET_K)
    for i in (0, 1, 1499):
        np.testing.assert_allclose(dataset[i].R, truths[i][:3, :3], atol=1e-12)
        np.testing.assert_allclose(dataset[i].t, truths[i][:3, 3])
    assert "1,500 pairs from scannet_test_pairs_with_gt.txt" in dataset.notes[0]


@pytest.mark.parametrize("base", ["scans_test", "scannet_test_1500", ".", "test", "scans"])
@pytest.mark.parametrize(
    "file",
    [
        "{scene}/sens/frame-{frame:06d}.color.jpg",
        "{scene}/color/{frame}.jpg",
        "{scene}/frame-{frame:06d}.color.jpg",
        "{scene}_frame-{frame:06d}.jpg",
    ],
)
def test_images_are_found_where_people_put_them(tmp_path, base, file):
    make_scannet_images(tmp_path / base, (64, 48), file)
    for name in (PUBLISHED_NAME, "{scene}_frame-{frame:06d}.jpg", "{scene}/color/{frame}.jpg"):
        make_scannet_list(tmp_path, 6, name)
        dataset = datasets.load("scannet1500", tmp_path)
        assert all(pair.path0.is_file() and pair.path1.is_file() for pair in dataset)
    (tmp_path / "scannet_test_pairs_with_gt.txt").unlink()
    make_scannet_loftr(tmp_path)
    dataset = datasets.load("scannet1500", tmp_path)
    assert all(pair.path0.is_file() and pair.path1.is_file() for pair in dataset)
    parts = datasets.info("scannet1500").layout.found(tmp_path)
    assert [part["found"] is not None for part in parts] == [True, True]


REAL = (data_folder() or Path()) / "real_index"
published = pytest.mark.skipif(not REAL.is_dir(), reason="needs the published indexes")


@published
def test_the_published_list(tmp_path):
    """All 1,500 lines, against the numbers in them."""
    path = REAL / "superglue/scannet_test_pairs_with_gt.txt"
    shutil.copy(path, tmp_path)
    dataset = datasets.load("scannet1500", tmp_path)
    lines = path.read_text().splitlines()
    assert len(dataset) == len(lines) == 1500
    for pair, line in zip(dataset, lines, strict=True):
        words = line.split()
        numbers = np.array(words[4:], dtype=float)
        assert [pair.name0, pair.name1] == words[:2]
        assert pair.path0 == tmp_path / words[0]
        np.testing.assert_array_equal(pair.camera0.K, numbers[:9].reshape(3, 3))
        np.testing.assert_allclose(pair.R, numbers[18:].reshape(4, 4)[:3, :3], atol=1e-4)
        np.testing.assert_array_equal(pair.t, numbers[18:].reshape(4, 4)[:3, 3])
    assert len({pair.scene for pair in dataset}) == 100
    assert "the paper's list" in dataset.notes[0]
    assert dataset.paper_list is True
    assert dataset.notes[1] == "intrinsics of the colour camera"


@published
@pytest.mark.parametrize("root", [".", "data", "data/scannet", "data/scannet/test"])
def test_the_published_index(tmp_path, root):
    """The 1,500 pairs of the list, in LoFTR's own tree; with images, the cameras of the list."""
    shutil.copytree(REAL / "loftr/scannet_test_1500", tmp_path / "assets/scannet_test_1500")
    shutil.copytree(REAL / "superglue", tmp_path / "list")
    (tmp_path / "data/scannet/test").mkdir(parents=True)
    listed = datasets.load("scannet1500", tmp_path / "list")
    dataset = datasets.load("scannet1500", tmp_path / root)
    assert len(dataset) == 1500
    assert "depth camera" in dataset.notes[1]
    for pair, other in zip(dataset, listed, strict=True):
        np.testing.assert_allclose(pair.R, other.R, atol=1e-6)
        np.testing.assert_allclose(pair.t, other.t, atol=1e-6)
        # The published "depth camera" is the colour camera for smaller frames.
        scaled = np.diag([640 / 1296, 480 / 968, 1.0]) @ other.camera0.K
        np.testing.assert_allclose(pair.camera0.K, scaled, rtol=1e-12)
    write_image(tmp_path / "data/scannet/test/scene0707_00/color/15.jpg", (1296, 968))
    found = datasets.load("scannet1500", tmp_path / root)
    assert found[0].path0.is_file()
    np.testing.assert_allclose(found[0].camera0.K, listed[0].camera0.K, rtol=1e-12)


def test_cameras_fit_resized_images(tmp_path):
    make_scannet_list(tmp_path, 2)
    make_scannet_images(tmp_path, (640, 480))
    dataset = datasets.load("scannet1500", tmp_path)
    camera = dataset[0].camera0
    # A pixel x of the large image is (x + 0.5) s - 0.5 in the small one.
    assert camera.fx == pytest.approx(1165.72 * 640 / 1296)
    assert camera.cy == pytest.approx((484.765 + 0.5) * 480 / 968 - 0.5)
    assert "scaled to the images' 640 x 480" in dataset.notes[2]


def test_loftrs_files(tmp_path):
    truths = make_scannet_loftr(tmp_path)
    make_scannet_images(tmp_path, (640, 480))
    dataset = datasets.load("scannet1500", tmp_path)
    frames = [("scene0707_00", 15, 30), ("scene0707_00", 30, 45), ("scene0708_00", 45, 15)]
    for pair, (scene, a, b), T in zip(dataset, frames, truths, strict=True):
        assert (pair.name0, pair.name1) == (f"{scene}/color/{a}.jpg", f"{scene}/color/{b}.jpg")
        assert pair.path0.is_file()
        assert pair.scene == scene
        np.testing.assert_allclose(pair.R, T[:3, :3], atol=1e-6)
        np.testing.assert_allclose(pair.t, T[:3, 3], atol=1e-6)
    assert dataset[0].camera0.fx == pytest.approx(1165.72 * 640 / 1296)
    assert "3 pairs from test.npz" in dataset.notes[0]
    assert "depth camera" in dataset.notes[1]
    assert "3 pairs instead of 1,500" in datasets.check("scannet1500", tmp_path)


def fault(root):
    said = datasets.check("scannet1500", root)
    assert said is not None
    assert "\n" not in said
    return said


def test_the_first_missing_thing_is_named(tmp_path):
    assert "existing folder" in fault(tmp_path / "nowhere")
    said = fault(tmp_path)
    assert "the list of pairs (scannet_test_pairs_with_gt.txt or " in said
    assert "in a folder scannet1500 or scannet or scannet_test_1500 of it" in said
    make_scannet_list(tmp_path, 30)
    assert "scans_test/scene0707_00/sens/frame-000015.color.jpg is missing" in fault(tmp_path)
    make_scannet_images(tmp_path)
    (tmp_path / "scene0708_00" / "color" / "45.jpg").unlink()
    assert "scene0708_00/color/45.jpg is missing" in fault(tmp_path)
    make_scannet_images(tmp_path)
    make_scannet_list(tmp_path, 1499)
    assert "1,499 pairs instead of 1,500" in fault(tmp_path)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a.jpg b.jpg", "does not name a scene"),
        ("scene0707_00/color/1.jpg scene0707_00/color/2.jpg 0 0", "pair 1 has no pose"),
        ("scene0707_00/color/1.jpg", "line 1"),
    ],
)
def test_lists_of_something_else(tmp_path, line, says):
    (tmp_path / "scannet_test_pairs_with_gt.txt").write_text(line + "\n")
    with pytest.raises(ValueError, match=says):
        datasets.load("scannet1500", tmp_path)


def index(root, **arrays):
    with np.load(root / "test.npz") as file:
        content = {**file, **arrays}
    np.savez(root / "test.npz", **content)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda root: (root / "intrinsics.npz").unlink(), "no such file"),
        (lambda root: np.savez(root / "intrinsics.npz", a=1), "lacks the scene scene0707_00"),
        (lambda root: index(root, name=np.zeros((3, 2), int)), "name is int64 of shape (3, 2)"),
        (lambda root: index(root, name=np.zeros((3, 4))), "name is float64"),
        (lambda root: index(root, name=np.array(3)), "name is int64 of shape ()"),
        (lambda root: index(root, rel_pose=np.zeros((2, 12))), "rel_pose is float64 of shape"),
        (lambda root: index(root, rel_pose=np.full((3, 12), np.nan)), "pair 1: t must hold finite"),
        (lambda root: index(root, rel_pose=np.ones((3, 12))), "R must be a rotation"),
        (lambda root: np.savez(root / "test.npz", rel_pose=1), "lacks the array 'name'"),
        (lambda root: np.savez(root / "test.npz", name=1), "lacks the array 'rel_pose'"),
    ],
)
def test_damaged_loftr_files(tmp_path, damage, says):
    make_scannet_loftr(tmp_path)
    damage(tmp_path)
    assert says in fault(tmp_path)
