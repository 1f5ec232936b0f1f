import json

import numpy as np
import pytest
from PIL import Image

from manymatch.geometry.camera import Camera
from manymatch_lab import datasets
from manymatch_lab.datasets import registry
from manymatch_lab.datasets.folder import scene_of
from tests.support.data_folder import data_folder
from tests.support.synthetic_trees import HEIGHT, WIDTH, words, write_image

K = np.array([[70.0, 0, 31.5], [0, 70, 23.5], [0, 0, 1]])
CAMERA = Camera.from_matrix(K, WIDTH, HEIGHT)
T = np.eye(4)
T[:3, 3] = [-0.2, 0.05, 0.1]


def make_folder(root, images=".", depth=True):
    """Two views of the wall z = 2 of the first camera's frame."""
    for name in ("seq_0001.jpg", "seq_0002.jpg"):
        write_image(root / images / name)
    (root / "pairs.txt").write_text(f"seq_0001.jpg seq_0002.jpg 0 0 {words(K, K, T)}\n")
    if depth:
        (root / "depth").mkdir()
        for name, z in (("seq_0001", 2000), ("seq_0002", 2100)):
            raw = np.full((HEIGHT, WIDTH), z, dtype=np.uint16)
            raw[0, 0], raw[0, 1] = 0, 65535
            Image.fromarray(raw).save(root / "depth" / f"{name}.png")


@pytest.mark.parametrize("images", [".", "images"])
def test_list_images_and_depth(tmp_path, images):
    make_folder(tmp_path, images)
    assert datasets.check("folder", tmp_path) is None
    dataset = datasets.load("folder", tmp_path)
    (pair,) = dataset
    assert pair.path0.is_file()
    assert pair.scene == "seq"
    assert pair.extra == {"seed_index": 1, "depth": True}
    assert dataset.title == tmp_path.name
    views = [dataset.depth(pair, side) for side in (0, 1)]
    pixels = np.array([[10.0, 20.0], [40.0, 11.0], [0.0, 0.0], [1.0, 0.0]])
    for view in views:
        points = view.points(pixels)
        np.testing.assert_allclose(points[:2, 2], 2.0, atol=1e-6)
        assert np.isnan(points[2:]).all()
    # A point of the wall, seen by the second camera, comes back in the first one's frame.
    wall = np.array([0.1, -0.2, 2.0])
    local = wall + T[:3, 3]
    pixel = CAMERA.project([local[:2] / local[2]])
    np.testing.assert_allclose(views[1].points(pixel), [wall], atol=1e-6)


def test_pairs_without_depth_or_pose(tmp_path):
    make_folder(tmp_path)
    write_image(tmp_path / "x.jpg")
    with (tmp_path / "pairs.txt").open("a") as file:
        file.write(f"seq_0001.jpg x.jpg 0 0 {words(K, K, T)}\nseq_0001.jpg seq_0002.jpg\n")
    dataset = datasets.load("folder", tmp_path)
    assert [pair.extra["depth"] for pair in dataset] == [True, False, False]
    assert dataset.notes[1:] == ("2 of them with a pose", "1 of them with depth")
    assert datasets.check("folder", tmp_path) is None
    with pytest.raises(ValueError, match="no such file"):
        dataset.depth(dataset[1], 1)
    with pytest.raises(ValueError, match="pair must have cameras and a pose"):
        dataset.depth(dataset[2], 0)


def test_the_set_file_says_where_things_are(tmp_path):
    root = tmp_path / "photos"
    make_folder(root, "shots")
    (root / "pairs.txt").rename(root / "posed.txt")
    (root / "other.txt").write_text("x")
    (root / "set.toml").write_text('name = "mine"\npairs = "posed.txt"\nimages = "shots"\n')
    dataset = datasets.load("folder", root)
    assert (dataset.title, dataset.set_name, len(dataset)) == ("mine", "mine", 1)
    assert dataset[0].path0 == root / "shots" / "seq_0001.jpg"
    assert datasets.check("folder", root) is None
    # From elsewhere, with other settings.
    (tmp_path / "b.toml").write_text('root = "photos"\npairs = "posed.txt"\nimages = "shots"\n')
    assert registry.find(str(tmp_path / "b.toml")).load().title == "photos-posed"
    (root / "set.toml").unlink()
    assert registry.find(str(root / "posed.txt")).load().title == "photos-posed"


def test_missing_and_damaged_files_are_named(tmp_path):
    make_folder(tmp_path)
    (tmp_path / "seq_0002.jpg").unlink()
    assert "seq_0002.jpg is missing" in datasets.check("folder", tmp_path)
    write_image(tmp_path / "seq_0002.jpg", (20, 10))
    assert "it is 64 x 48, the image 20 x 10" in datasets.check("folder", tmp_path)
    write_image(tmp_path / "seq_0002.jpg")
    (tmp_path / "depth" / "seq_0001.png").write_bytes(b"no image")
    assert "a 16-bit depth image" in datasets.check("folder", tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1]", "cameras"),
        ("{", "cameras"),
        ('{"depth_unit_m": 0}', "depth_unit_m must be"),
        ('{"K_depth": [[1, 2], [3, 4]]}', "K_depth must be"),
        (json.dumps({"K_depth": K.tolist(), "T_depth_to_rgb": [1]}), "T_depth_to_rgb must be"),
    ],
)
def test_damaged_camera_files_are_one_sentence(tmp_path, text, says):
    make_folder(tmp_path)
    (tmp_path / "cameras.json").write_text(text)
    said = datasets.check("folder", tmp_path)
    assert says in said
    assert "\n" not in said


def test_depth_of_another_camera(tmp_path):
    """A wall at z = 2 of a depth camera 0.1 m beside the photographs' camera, in centimetres."""
    make_folder(tmp_path)
    move = np.eye(4)
    move[:3, 3] = [0.1, 0.0, 0.02]
    wide = [[50.0, 0, 31.5], [0, 50, 23.5], [0, 0, 1]]
    cameras = {"K_depth": wide, "T_depth_to_rgb": move.tolist(), "depth_unit_m": 0.01}
    (tmp_path / "cameras.json").write_text(json.dumps(cameras))
    raw = np.full((2 * HEIGHT, 2 * WIDTH), 200, dtype=np.uint16)
    Image.fromarray(raw).save(tmp_path / "depth" / "seq_0001.png")
    dataset = datasets.load("folder", tmp_path)
    view = dataset.depth(dataset[0], 0)
    assert view.size == (WIDTH, HEIGHT)
    assert np.unique(view.depth[np.isfinite(view.depth)]) == np.float32(2.02)


@pytest.mark.parametrize(
    ("name", "scene"),
    [
        ("a/b/c.jpg", "a/b"),
        ("fountain-P11_0003.jpg", "fountain-P11"),
        ("s1_cloudy_IM_00006_vis.jpg", "s1_cloudy_IM"),
        ("0001.jpg", ""),
        ("1341847981.726650.jpg", ""),
        ("view7.png", ""),
        ("templeR0013.png", "templeR"),
    ],
)
def test_scenes_by_name(name, scene):
    assert scene_of(name) == scene


@pytest.mark.data
def test_real_depth_of_two_views_meets():
    folder = data_folder()
    if folder is None:
        pytest.skip("the data folder is not here")
    dataset = datasets.load("folder", folder / "posed_pairs" / "7scenes_tsdf")
    pair = next(pair for pair in dataset if pair.extra["depth"])
    views = [dataset.depth(pair, side) for side in (0, 1)]
    grid = np.stack(np.meshgrid(np.arange(0, 640, 8), np.arange(0, 480, 8)), axis=-1).reshape(-1, 2)
    one, two = (points[np.isfinite(points[:, 0])] for points in (v.points(grid) for v in views))
    nearest = np.sqrt(((one[:, None] - two[None]) ** 2).sum(axis=2)).min(axis=1)
    # The poses are good to some degrees and centimetres, the views overlap in part.
    assert (nearest < 0.05).mean() > 0.4
