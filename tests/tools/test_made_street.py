import json

import numpy as np
import pytest

from manymatch import datasets
from manymatch.io.image import load_image
from tests.support.synthetic_trees import cheap_scene
from tools.street import rendered

SIZE = (64, 48)


@pytest.fixture
def cheap(monkeypatch):
    """Make scenes without rendering them."""
    monkeypatch.setattr(rendered, "render_scene", cheap_scene)


@pytest.fixture
def street(tmp_path, cheap):  # noqa: ARG001 - replaces the renderer
    root = tmp_path / "made"
    calls = []
    dataset = datasets.load(
        "made-street", root, pairs=2, size=SIZE, progress=lambda *state: calls.append(state)
    )
    return root, dataset, calls


def test_files_hold_the_scenes(street):
    root, dataset, calls = street
    assert calls == [(0, 2), (1, 2)]
    assert [pair.scene for pair in dataset] == ["street-000", "street-001"]
    assert [pair.extra["seed_index"] for pair in dataset] == [1, 2]
    for seed, pair in enumerate(dataset):
        scene = cheap_scene(seed, SIZE)
        np.testing.assert_array_equal(load_image(pair.path0), scene.image0)
        np.testing.assert_array_equal(load_image(pair.path1), scene.image1)
        np.testing.assert_allclose(pair.R, scene.pose.R, atol=1e-12)
        np.testing.assert_allclose(pair.t, scene.baseline * scene.pose.t, rtol=1e-12)
        assert pair.camera0.params == scene.camera0.params
        known = np.isfinite(scene.depth1)
        depth = dataset.depth(pair, 1).depth
        np.testing.assert_array_equal(depth[known], scene.depth1[known])
        assert np.isnan(depth[~known]).all()
    assert datasets.check("made-street", root) is None
    assert len((root / "pairs.txt").read_text().splitlines()) == 2


def test_rendered_depth_of_both_views_meets(tmp_path):
    """Unproject in view 0, transform, project into view 1: its depth there is that of the point."""
    dataset = datasets.load("made-street", tmp_path / "made", pairs=1, size=SIZE)
    (pair,) = dataset
    view0, view1 = (dataset.depth(pair, side) for side in (0, 1))
    grid = np.stack(np.meshgrid(np.arange(SIZE[0]), np.arange(SIZE[1])), axis=-1).reshape(-1, 2)
    points = view0.points(grid)
    points = points[np.isfinite(points[:, 0])]
    local = points @ pair.R.T + pair.t
    local, points = local[local[:, 2] > 0], points[local[:, 2] > 0]
    pixels = pair.camera1.project(local[:, :2] / local[:, 2:])
    there = view1.points(pixels)
    seen = np.isfinite(there[:, 0])
    assert seen.sum() > 300
    distance = np.linalg.norm(there[seen] - points[seen], axis=1)
    # Most of the street is seen twice; at this size a pixel is some centimetres.
    assert np.median(distance / local[seen, 2]) < 0.02


def test_nothing_is_made_twice(street):
    root, _, _ = street
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    calls = []
    again = datasets.load(
        "made-street", root, pairs=1, size=SIZE, progress=lambda *state: calls.append(state)
    )
    assert calls == []
    assert len(again) == 1
    after = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    assert after == before


def test_made_otherwise_is_refused(street, tmp_path):
    root, _, _ = street
    with pytest.raises(ValueError, match=r"root must hold streets made with .*\[32, 24\]"):
        datasets.load("made-street", root, pairs=1, size=(32, 24))
    tmp_path = tmp_path / "other"
    tmp_path.mkdir()
    (tmp_path / "precious.txt").write_text("x")
    with pytest.raises(ValueError, match="a new or empty folder"):
        datasets.load("made-street", tmp_path, pairs=1, size=SIZE)
    (tmp_path / "made.json").write_text("{")
    with pytest.raises(ValueError, match="the record of made streets"):
        datasets.load("made-street", tmp_path, pairs=1, size=SIZE)
    with pytest.raises(ValueError, match="size must be a pair"):
        datasets.load("made-street", tmp_path / "new", size=64)
    with pytest.raises(ValueError, match="pairs must be"):
        datasets.load("made-street", tmp_path / "new", pairs=0)
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("cheap")
def test_without_a_root_the_cache_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    dataset = datasets.load("made-street", pairs=1, size=(24, 16))
    folder = tmp_path / "manymatch" / "made-street-24x16"
    assert dataset[0].path0 == folder / "images" / "000_0.png"
    assert json.loads((folder / "made.json").read_text())["size"] == [24, 16]


@pytest.mark.usefixtures("cheap")
def test_missing_things(tmp_path):
    assert "made.json is missing" in datasets.check("made-street", tmp_path)
    dataset = datasets.load("made-street", tmp_path / "a", pairs=1, size=(24, 16))
    (tmp_path / "a" / "depth" / "000_1.npy").write_bytes(b"")
    assert "the depth of a made street" in datasets.check("made-street", tmp_path / "a")
    dataset[0].path1.unlink()
    assert "000_1.png is missing" in datasets.check("made-street", tmp_path / "a")
