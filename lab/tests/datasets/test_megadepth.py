import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.tests.datasets.test_read_index import Call, damaged
from manymatch_lab import datasets
from tests.support.data_folder import data_folder
from tests.support.synthetic_trees import (
    MEGADEPTH_FILES,
    make_megadepth,
    objects,
    published_pickle,
    transform,
    words,
    write_image,
)

INFO = "megadepth_test_1500_scene_info"


def make_list(root, count, name="megadepth_1500_scales/all_pairs_with_gt.txt"):
    rng = np.random.default_rng(5)
    K = np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]])
    truths = [transform(rng) for _ in range(count)]
    lines = [
        f"Undistorted_SfM/{('0015', '0022')[i % 2]}/images/{i % 3}_o.jpg "
        f"Undistorted_SfM/{('0015', '0022')[i % 2]}/images/{(i + 1) % 3}_o.jpg 0 0 {words(K, K, T)}"
        for i, T in enumerate(truths)
    ]
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return truths


def make_images(root):
    for scene in ("0015", "0022"):
        for k in range(3):
            write_image(root / "Undistorted_SfM" / scene / "images" / f"{k}_o.jpg")


def test_the_papers_list(tmp_path):
    truths = make_list(tmp_path, 1491)
    make_images(tmp_path)
    assert datasets.check("megadepth1500", tmp_path) is None
    dataset = datasets.load("megadepth1500", tmp_path)
    assert [pair.scene for pair in dataset[:2]] == ["0015", "0022"]
    assert dataset[7].extra == {"seed_index": 8}
    np.testing.assert_allclose(dataset[7].R, truths[7][:3, :3], atol=1e-12)
    assert "1,491 pairs from all_pairs_with_gt.txt" in dataset.notes[0]


@pytest.mark.parametrize("base", [".", "megadepth_test_1500", "images"])
def test_images_are_found_where_people_put_them(tmp_path, base):
    make_list(tmp_path, 4, "pairs_test_1500.txt")
    make_images(tmp_path / base)
    assert all(pair.path0.is_file() for pair in datasets.load("megadepth1500", tmp_path))


def test_loftrs_files(tmp_path):
    truths = make_megadepth(tmp_path, 300)
    assert datasets.check("megadepth1500", tmp_path) is None
    dataset = datasets.load("megadepth1500", tmp_path)
    assert len(dataset) == 1500
    assert {pair.scene for pair in dataset[:600]} == {"0015"}
    assert {pair.scene for pair in dataset[600:]} == {"0022"}
    assert [pair.extra["seed_index"] for pair in dataset] == list(range(1, 1501))
    pair, poses = dataset[601], truths["0022_0.1_0.3"]
    assert pair.name0 == "Undistorted_SfM/0022/images/1_o.jpg"
    assert pair.camera0.fx == 501.0
    assert pair.camera1.fx == 502.0
    world = np.array([0.1, 0.2, 3.0, 1.0])
    x0, x1 = (poses[1] @ world)[:3], (poses[2] @ world)[:3]
    np.testing.assert_allclose(pair.R @ x0 + pair.t, x1, atol=1e-9)
    assert pair.extra["overlap"] == 0.25
    assert "LoFTR's five files; the paper used a list of 1,491" in dataset.notes[0]


PUBLISHED = (data_folder() or Path()) / "real_index" / "loftr" / INFO


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="needs the published indexes")
def test_the_published_files(tmp_path):
    """All pairs, against the dictionaries that unpickling gives."""
    shutil.copytree(PUBLISHED, tmp_path / INFO)
    dataset = datasets.load("megadepth1500", tmp_path)
    assert len(dataset) == 1500
    pairs = iter(dataset)
    for file in MEGADEPTH_FILES:
        info = pickle.loads((PUBLISHED / f"{file}.npz").read_bytes())  # noqa: S301 - published
        assert len(info["pair_infos"]) == 300
        for (i, j), overlap, _ in info["pair_infos"]:
            pair = next(pairs)
            assert (pair.name0, pair.name1) == tuple(info["image_paths"][[i, j]])
            assert pair.path1 == tmp_path / pair.name1
            assert (pair.scene, pair.extra["overlap"]) == (file[:4], overlap)
            np.testing.assert_array_equal(pair.camera0.K, info["intrinsics"][i])
            np.testing.assert_array_equal(pair.camera1.K, info["intrinsics"][j])
            T = info["poses"][j] @ np.linalg.inv(info["poses"][i])
            np.testing.assert_allclose(pair.R, T[:3, :3], atol=1e-6)
            np.testing.assert_allclose(pair.t, T[:3, 3], atol=1e-5)


def test_loftrs_files_as_archives(tmp_path):
    """Such as `numpy.savez` writes them, with the list of pairs as an array of objects."""
    make_megadepth(tmp_path)
    before = datasets.load("megadepth1500", tmp_path)
    for path in (tmp_path / INFO).iterdir():
        content = pickle.loads(path.read_bytes())  # noqa: S301 - made here
        np.savez(path, **{**content, "pair_infos": objects(content["pair_infos"])})
    after = datasets.load("megadepth1500", tmp_path)
    assert [(p.name0, p.name1, p.R.tolist()) for p in before] == [
        (p.name0, p.name1, p.R.tolist()) for p in after
    ]


def change(root, **entries):
    path = root / INFO / "0022_0.3_0.5.npz"
    content = pickle.loads(path.read_bytes())  # noqa: S301 - made here
    path.write_bytes(published_pickle({**content, **entries}))


NAN = np.full((4, 4), np.nan)
K = np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]])


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (
            lambda root: (root / INFO / "0022_0.5_0.7.npz").unlink(),
            "0022_0.5_0.7.npz' (there is no",
        ),
        (lambda root: change(root, poses=objects([NAN] * 4)), "pair 1: a pose must hold finite"),
        (lambda root: change(root, poses=objects([2 * np.eye(4)] * 4)), "pair 1: a pose must have"),
        (lambda root: change(root, poses=objects([np.diag([2.0, 1, 1, 1])] * 4)), "a rotation"),
        (lambda root: change(root, poses=objects([None] * 4)), "pair 1: a pose must be a 4x4"),
        (lambda root: change(root, poses=objects([np.eye(4)] * 4)), "pair 1: t must be"),
        (lambda root: change(root, intrinsics=objects([-K] * 4)), "positive focal"),
        (lambda root: change(root, pair_infos=objects([((0, 9), 0.5)])), "an index must be"),
        (lambda root: change(root, pair_infos=objects([3])), "pair 1"),
        (
            lambda root: (root / INFO / "0015_0.3_0.5.npz").write_bytes(
                pickle.dumps(Call(eval, "1 / 0"))
            ),
            "wants to use 'builtins.eval'",
        ),
        (lambda root: change(root, pair_infos=None), "object is not iterable"),
        (lambda root: change(root, image_paths=3), "has no len()"),
        (lambda root: change(root, image_paths=objects([None] * 4)), "pair 1: name0 must be"),
        (lambda root: change(root, pair_infos=[((0, 2), 10**400)]), "pair 1: int too large"),
        (
            lambda root: (root / "Undistorted_SfM/0022/images/2_o.jpg").unlink(),
            "2_o.jpg is missing",
        ),
        (lambda _: None, "10 pairs instead of 1,491 or 1,500"),
    ],
)
def test_the_first_fault_is_named(tmp_path, damage, says):
    make_megadepth(tmp_path)
    damage(tmp_path)
    said = datasets.check("megadepth1500", tmp_path)
    assert says in said
    assert "\n" not in said


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("megadepth")
    make_megadepth(root)
    path = root / INFO / MEGADEPTH_FILES[0]
    return root, path.with_name(f"{path.name}.npz"), path.with_name(f"{path.name}.npz").read_bytes()


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_indexes_are_one_sentence_or_pairs(tree, data):
    root, path, content = tree
    path.write_bytes(data.draw(damaged(content)))
    try:
        datasets.load("megadepth1500", root)
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017
