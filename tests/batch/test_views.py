"""Features of many images: computed once, kept within a budget, turned back to their frame."""

import shutil
import threading
import weakref

import numpy as np
import pytest

from manymatch.batch.batch import run_batch
from manymatch.batch.work import Views
from manymatch.features.extractor import Extractor
from manymatch.features.resize import turned_back
from manymatch.geometry.camera import Camera
from manymatch.geometry.pose import rotation_error_deg
from manymatch.io import load_graph, load_image
from manymatch.io.pairs import Pair, exhaustive_pairs
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.matcher import Matcher
from tests.support.small_batch import CONFIG, rows
from tests.support.synthetic_images import make_images, texture

pytest.importorskip("cv2")


def test_each_image_is_read_once(pairs, tmp_path, monkeypatch):
    calls = []
    original = Extractor._extract
    monkeypatch.setattr(
        Extractor, "_extract", lambda self, *given: calls.append(1) or original(self, *given)
    )
    run_batch(pairs, None, tmp_path, CONFIG, workers=3)
    assert len(calls) == 7


def test_features_are_found_again_on_disk(done, pairs, tmp_path, monkeypatch):
    pytest.importorskip("h5py")
    for _ in range(2):
        run_batch(pairs, None, tmp_path / "out", CONFIG, limit=3, cache=tmp_path / "cache")
        assert rows(tmp_path / "out") == rows(done[0])[:3]
        shutil.rmtree(tmp_path / "out")
        # The second time every image would be an error that is not found there.
        monkeypatch.setattr(Extractor, "_compute", lambda _, images, __: [None for _ in images])


def test_memory_is_bounded(tmp_path, monkeypatch):
    """Without a budget only the features of the pairs in work are alive."""
    make_images(tmp_path / "views", 8)
    alive, most, lock = set(), [0], threading.Lock()
    original = Extractor._extract

    def extract(self, *given):
        (features,) = original(self, *given)
        # Descriptors are handed on as they are.
        key = object()
        with lock:
            alive.add(key)
            most[0] = max(most[0], len(alive))
        weakref.finalize(features.descriptors, alive.discard, key)
        return [features]

    monkeypatch.setattr(Extractor, "_extract", extract)
    pairs = exhaustive_pairs(tmp_path / "views")
    assert len(pairs) == 28
    run_batch(pairs, None, tmp_path / "out", CONFIG, workers=2, memory_mb=0)
    # Two images a worker, and one that is just being replaced.
    assert most[0] <= 6
    assert not alive


def test_kept_features_stay_within_their_budget(pairs):
    matcher = Matcher(CONFIG)
    size = Views(matcher, 0).get(pairs[0].path0, 0).nbytes
    views = Views(matcher, int(2.5 * size))
    paths = sorted({pair.path0 for pair in pairs})
    references = {path: weakref.ref(views.get(path, 0)) for path in paths}
    assert sum(reference() is not None for reference in references.values()) <= 3
    latest = views.get(paths[-1], 0)
    assert views.get(paths[-1], 0) is latest


@pytest.mark.parametrize("turns", range(4))
def test_turned_back_undoes_rot90(turns):
    image = np.arange(5 * 7).reshape(5, 7)
    turned = np.rot90(image, turns)
    y, x = np.mgrid[: turned.shape[0], : turned.shape[1]]
    points = np.column_stack([x.ravel(), y.ravel()]).astype(float)
    back = turned_back(points, turns, (7, 5)).astype(int)
    assert np.array_equal(image[back[:, 1], back[:, 0]], turned.ravel())


def test_quarter_turns_change_the_features_not_the_frame(tmp_path):
    """An image stored on its side: turning it upright finds the pose of the image as stored."""
    from PIL import Image

    # Wide enough apart that a pose is well defined, and in a plane that is not parallel.
    upright = texture(3, 200, 150)
    Image.fromarray(upright).save(tmp_path / "a.png")
    # Stored turned clockwise, so one counter-clockwise turn puts it upright.
    Image.fromarray(np.rot90(upright, 3)).save(tmp_path / "b.png")
    focal = 200.0
    camera0 = Camera("PINHOLE", 200, 150, [focal, focal, 99.5, 74.5])
    camera1 = Camera("PINHOLE", 150, 200, [focal, focal, 74.5, 99.5])
    paths = tmp_path / "a.png", tmp_path / "b.png"
    config = MatcherConfig.of("classic", max_keypoints=300, longest=0, gms=False)
    found = []
    for turns in (0, 1):
        pair = Pair("a", "b", *paths, camera0, camera1, rot1=turns)
        run_batch([pair], None, tmp_path / f"out{turns}", config, formats=["npz"])
        (path,) = (tmp_path / f"out{turns}" / "matches").iterdir()
        found.append(load_graph(path))
        (row,) = rows(tmp_path / f"out{turns}")
        # In the frames as stored the second camera is turned by 90 degrees in both cases.
        R = np.array([float(row[f"R{i}{j}"]) for i in range(3) for j in range(3)]).reshape(3, 3)
        clockwise = [[0, -1, 0], [1, 0, 0], [0, 0, 1]]
        assert rotation_error_deg(R, clockwise) < 2
    graph = found[1]
    matched0 = graph.points0[graph.edges[:, 0]]
    matched1 = graph.points1[graph.edges[:, 1]]
    assert len(matched0) > 50
    # Exactly the same keypoints, as the turned image is the upright one; but for a few, since a
    # camera that only turns leaves the direction of its epipolar lines open.
    expected = np.column_stack([149 - matched0[:, 1], matched0[:, 0]])
    assert np.mean(np.abs(matched1 - expected).max(axis=1) < 1e-6) > 0.9
    assert load_image(paths[1]).shape == (200, 150, 3)


@pytest.mark.parametrize("turns", range(4))
def test_working_size_is_that_of_the_file_as_it_is(tmp_path, turns):
    Image = pytest.importorskip("PIL.Image")
    Image.fromarray(texture(0, 90, 60)).save(tmp_path / "a.png")
    (features,) = Views(Matcher("classic", longest=180), 0).get(tmp_path / "a.png", turns).features
    width, height = features.size
    assert features.working_size == (2 * width, 2 * height)
    assert features.working_scale.tolist() == [2.0, 2.0]
    (own,) = Views(Matcher("classic", longest=180), 0).get(tmp_path / "a.png", turns, 0).features
    assert own.working_size == (width, height)
