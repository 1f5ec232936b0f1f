import numpy as np
import pytest

from manymatch import datasets
from tests.support.synthetic_trees import (
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
    assert pair.name0 == "scene0707_00_frame-000015.jpg"
    assert pair.path0 == tmp_path / "scene0707_00" / "color" / "15.jpg"
    assert pair.scene == "scene0707_00"
    assert [p.extra["seed_index"] for p in dataset[:3]] == [1, 2, 3]
    np.testing.assert_allclose(pair.camera0.K, SCANNET_K)
    for i in (0, 1, 1499):
        np.testing.assert_allclose(dataset[i].R, truths[i][:3, :3], atol=1e-12)
        np.testing.assert_allclose(dataset[i].t, truths[i][:3, 3])
    assert "1,500 pairs from scannet_test_pairs_with_gt.txt" in dataset.notes[0]


@pytest.mark.parametrize("base", ["scans_test", "scannet_test_1500", "."])
@pytest.mark.parametrize("name", ["{scene}_frame-{frame:06d}.jpg", "{scene}/color/{frame}.jpg"])
def test_images_are_found_where_people_put_them(tmp_path, base, name):
    make_scannet_list(tmp_path, 6, name)
    make_scannet_images(tmp_path / base)
    dataset = datasets.load("scannet1500", tmp_path)
    assert all(pair.path0.is_file() and pair.path1.is_file() for pair in dataset)


def test_cameras_fit_resized_images(tmp_path):
    make_scannet_list(tmp_path, 2)
    make_scannet_images(tmp_path, (640, 480))
    dataset = datasets.load("scannet1500", tmp_path)
    camera = dataset[0].camera0
    # A pixel x of the large image is (x + 0.5) s - 0.5 in the small one.
    assert camera.fx == pytest.approx(1165.72 * 640 / 1296)
    assert camera.cy == pytest.approx((484.765 + 0.5) * 480 / 968 - 0.5)
    assert "scaled to the images' 640 x 480" in dataset.notes[1]


def test_loftrs_files(tmp_path):
    poses = make_scannet_loftr(tmp_path)
    make_scannet_images(tmp_path, (640, 480))
    dataset = datasets.load("scannet1500", tmp_path)
    assert len(dataset) == 3
    for pair, (scene, a, b) in zip(
        dataset,
        [("scene0707_00", 15, 30), ("scene0707_00", 30, 45), ("scene0708_00", 45, 15)],
        strict=True,
    ):
        assert (pair.name0, pair.name1) == (f"{scene}/color/{a}.jpg", f"{scene}/color/{b}.jpg")
        assert pair.path0.is_file()
        # A point of the world has to be the same in both cameras.
        world = np.array([0.3, -0.2, 2.0])
        x0, x1 = (
            np.linalg.solve(poses[scene, frame], np.append(world, 1.0))[:3] for frame in (a, b)
        )
        np.testing.assert_allclose(pair.R @ x0 + pair.t, x1, atol=1e-9)
    assert dataset[0].camera0.fx == 577.0
    assert "LoFTR" in dataset.notes[0]
    assert "3 pairs instead of 1,500" in datasets.check("scannet1500", tmp_path)


def test_the_text_list_comes_first(tmp_path):
    make_scannet_loftr(tmp_path)
    make_scannet_list(tmp_path, 4)
    assert len(datasets.load("scannet1500", tmp_path)) == 4


def fault(root):
    said = datasets.check("scannet1500", root)
    assert said is not None
    assert "\n" not in said
    return said


def test_the_first_missing_thing_is_named(tmp_path):
    assert "existing folder" in fault(tmp_path / "nowhere")
    assert "the list scannet_test_pairs_with_gt.txt" in fault(tmp_path)
    make_scannet_list(tmp_path, 30)
    assert "scene0707_00/color/15.jpg is missing" in fault(tmp_path)
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


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda root: (root / "intrinsics.npz").unlink(), "no such file"),
        (lambda root: np.savez(root / "intrinsics.npz", a=1), "lacks the scene scene0707_00"),
        (lambda root: np.savez(root / "test.npz", name=np.zeros((3, 2), int)), "shape"),
        (lambda root: np.savez(root / "test.npz", other=1), "lacks the array 'name'"),
        (lambda root: (root / "scene0707_00/pose/30.txt").unlink(), "no such file"),
        (lambda root: (root / "scene0707_00/pose/30.txt").write_text("1 2 3"), "16 numbers"),
        (lambda root: (root / "scene0707_00/pose/30.txt").write_text("nan " * 16), "finite"),
        (lambda root: (root / "scene0707_00/pose/30.txt").write_text("0 " * 16), "ingular"),
        (
            lambda root: (root / "scene0707_00/pose/30.txt").write_text(
                "2 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1"
            ),
            "rotation",
        ),
    ],
)
def test_damaged_loftr_files(tmp_path, damage, says):
    make_scannet_loftr(tmp_path)
    damage(tmp_path)
    assert says in fault(tmp_path)


def test_flat_images(tmp_path):
    make_scannet_list(tmp_path, 6)
    for scene in ("scene0707_00", "scene0708_00"):
        for frame in (15, 30, 45):
            write_image(tmp_path / f"{scene}_frame-{frame:06d}.jpg", (1296, 968))
    assert all(pair.path1.is_file() for pair in datasets.load("scannet1500", tmp_path))
