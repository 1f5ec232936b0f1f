import hashlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manymatch_lab import datasets
from manymatch_lab.datasets import loading
from manymatch_lab.datasets.navi import quaternion_matrix
from manymatch_lab.numbers import paper_numbers
from tests.support.synthetic_trees import HEIGHT, WIDTH, make_navi, quaternion, rotation

FIRST = "splits/navi/estimation/pairs_wildset_0-40.csv"
JSON = "ball/wild_set/annotations.json"


@pytest.fixture
def tree(tmp_path):
    return tmp_path, make_navi(tmp_path)


@given(st.integers(0, 10_000))
def test_quaternions_are_wxyz(seed):
    """Against turning a vector by q v q*, and against the eigenvector that made the quaternion."""
    rng = np.random.default_rng(seed)
    R = rotation(rng)
    q = quaternion(R)
    np.testing.assert_allclose(quaternion_matrix(q * rng.uniform(0.1, 9)), R, atol=1e-9)
    v = rng.normal(size=3)
    w, u = q[0], q[1:]
    turned = v + 2 * np.cross(u, np.cross(u, v) + w * v)
    np.testing.assert_allclose(quaternion_matrix(q) @ v, turned, atol=1e-9)


def test_pairs_of_three_bins(tree):
    root, truths = tree
    dataset = datasets.load("navi-wild", root)
    assert [pair.extra["bin"] for pair in dataset] == ["0-40"] * 2 + ["40-80"] * 2 + ["80-120"] * 2
    assert [pair.extra["seed_index"] for pair in dataset] == [1, 2] * 3
    assert dataset[2].extra["angle_deg"] == 47.25
    assert {pair.scene for pair in dataset} == {"ball"}
    for pair in dataset:
        # A point of the object, in metres, through both cameras.
        point = np.array([0.03, -0.05, 0.1, 1.0])
        x0, x1 = (truths[pair.name0] @ point)[:3], (truths[pair.name1] @ point)[:3]
        np.testing.assert_allclose(pair.R @ x0 + pair.t, x1, atol=1e-9)
        assert pair.camera0.params == (70, 70, (WIDTH - 1) / 2, (HEIGHT - 1) / 2)
        assert (pair.camera0.width, pair.camera0.height) == (WIDTH, HEIGHT)
        assert pair.path0 == root / pair.name0


def test_lists_of_the_paper_are_known_by_their_hashes(tree, monkeypatch):
    root, _ = tree
    dataset = datasets.load("navi-wild", root)
    assert dataset.paper_list is False
    assert "other lists than the paper's, by their SHA-256" in dataset.notes[0]
    lists = sorted((root / "splits/navi/estimation").glob("pairs_wildset_*.csv"))
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in lists]
    known = {**paper_numbers("lists"), "navi-wild": digests}
    monkeypatch.setattr(loading, "paper_numbers", {"lists": known}.__getitem__)
    assert datasets.load("navi-wild", root).paper_list is True
    # The three lists of each set are different, and those of poses are not those of the diagnosis.
    of_navi = [d for name, some in paper_numbers("lists").items() if "navi" in name for d in some]
    assert len(set(of_navi)) == len(of_navi) == 9


def test_depth_is_the_sphere_of_the_object_frame(tree):
    root, truths = tree
    dataset = datasets.load("navi-wild", root)
    grid = np.stack(np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT)), axis=-1).reshape(-1, 2)
    for pair in dataset[:2]:
        for side, name in ((0, pair.name0), (1, pair.name1)):
            view = dataset.depth(pair, side)
            points = view.points(grid)
            known = np.isfinite(points[:, 0])
            assert 0.05 < known.mean() < 0.9
            # 16-bit inverse depth of 0.8 m is good to half a millimetre.
            radius = np.linalg.norm(points[known], axis=1)
            np.testing.assert_allclose(radius, 0.2, atol=2e-3)
            np.testing.assert_allclose(view.to_common @ truths[name], np.eye(4), atol=1e-9)


def test_pixels_outside_the_mask_have_no_depth(tree):
    root, _ = tree
    from PIL import Image

    mask = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    mask[:, : WIDTH // 2] = 255
    Image.fromarray(mask).save(root / "ball/wild_set/masks/000.png")
    dataset = datasets.load("navi-wild", root)
    view = dataset.depth(dataset[0], 0)
    middle = (HEIGHT - 1) // 2
    assert np.isfinite(view.points([[WIDTH // 2 - 2, middle]])).all()
    assert np.isnan(view.points([[WIDTH // 2 + 2, middle]])).all()


def test_lists_are_found_in_the_usual_folders(tree, tmp_path):
    root, _ = tree
    (root / "splits" / "navi" / "correspondence").rename(root / "correspondence")
    assert len(datasets.load("navi-wild-diagnostic", root)) == 6
    (root / "splits" / "navi" / "estimation").rename(tmp_path / "mine")
    with pytest.raises(
        ValueError, match=r"root must have the list pairs_wildset_0-40.csv in splits/navi/est"
    ):
        datasets.load("navi-wild", root)
    assert len(datasets.load("navi-wild", root, splits=tmp_path / "mine")) == 6
    with pytest.raises(ValueError, match=r"^splits must have the list"):
        datasets.load("navi-wild", root, splits=tmp_path / "ball")


def edit(name, old, new):
    def damage(root):
        text = (root / name).read_text()
        assert old in text
        (root / name).write_text(text.replace(old, new))

    return damage


def record(**changes):
    def damage(root):
        records = json.loads((root / JSON).read_text())
        for key, value in changes.items():
            target = records[1]["camera"] if key in records[1]["camera"] else records[1]
            target[key] = value
        (root / JSON).write_text(json.dumps(records))

    return damage


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (
            lambda root: (root / FIRST).unlink(),
            "root must have the list pairs_wildset_0-40.csv in splits/navi/estimation/",
        ),
        (lambda root: (root / FIRST).write_text(""), "it is empty"),
        (lambda root: (root / FIRST).write_bytes(b"\xff\xfe"), "it is not UTF-8 text"),
        (edit(FIRST, "angular_distance_degrees", "angle"), "lacks the column angular_distance"),
        (edit(FIRST, "image_2_width", "image_3_width"), "lacks the column image_2_width"),
        (edit(FIRST, f"7.25,{HEIGHT},{WIDTH},{HEIGHT},{WIDTH}\n", "7."), "line 2: it must have 7"),
        (edit(FIRST, "7.25", "nan"), "line 2: angular_distance_degrees must be"),
        (edit(FIRST, "7.25", "47.25"), "the angle must be in [0, 40), got 47.25"),
        (edit(FIRST, f"7.25,{HEIGHT}", "7.25,99"), "image_1 must be 48 x 64"),
        (edit(FIRST, "images/001.jpg", "images/991.jpg"), "lacks the image"),
        (
            edit(FIRST, "ball/wild_set/images/000.jpg", "../x/y/000.jpg"),
            "an image must be <object>",
        ),
        (lambda root: (root / JSON).unlink(), "must have the annotations (*/wild_set/annotations"),
        (lambda root: (root / JSON).write_text("[1, 2]"), "it is not a list of images"),
        (lambda root: (root / JSON).write_text("[{]"), "it is not a list of images"),
        (record(q=[np.nan, 0, 0, 1]), "001.jpg: q must hold finite numbers"),
        (record(q=[0, 0, 0, 0]), "001.jpg: q must be a quaternion other than zero"),
        (record(q=[1, 0, 0]), "001.jpg: q must be a quaternion of four"),
        (record(t=[1, np.inf, 0]), "001.jpg: t must hold finite"),
        (record(focal_length=0), "focal_length must be"),
        (record(image_size=[HEIGHT]), "001.jpg: "),
        (record(filename="000.jpg"), "file name twice"),
        (lambda root: (root / "ball/wild_set/images/002.jpg").unlink(), "002.jpg is missing"),
        (lambda root: (root / "ball/wild_set/depth/001.png").unlink(), "no such file"),
        (lambda root: (root / "ball/wild_set/masks/001.png").unlink(), "no such file"),
        (
            lambda root: (root / "ball/wild_set/depth/001.png").write_bytes(b"x"),
            "no format that Pillow reads",
        ),
        (lambda _: None, "6 pairs instead of 1,500"),
    ],
)
def test_the_first_fault_is_named(tree, damage, says):
    root, _ = tree
    damage(root)
    said = datasets.check("navi-wild", root)
    assert says in said
    assert "\n" not in said


def test_depth_of_another_size(tree):
    from PIL import Image

    root, _ = tree
    Image.fromarray(np.ones((10, 20), dtype=np.uint16)).save(root / "ball/wild_set/depth/001.png")
    assert "it is 20 x 10, the image 64 x 48" in datasets.check("navi-wild", root)
    make_navi(root)
    Image.fromarray(np.ones((10, 20), dtype=np.uint8)).save(root / "ball/wild_set/masks/001.png")
    assert "unlike depth" in datasets.check("navi-wild", root)
