"""Text for COLMAP's importers: pixels, grammar, many pairs, nothing half-written."""

import numpy as np
import pytest

from manymatch.io import ColmapWriter, PairMatches
from tests.support.leftovers import no_leftovers

RNG = np.random.default_rng(3)
P0, P1 = RNG.uniform(0, 640, (5, 2)), RNG.uniform(0, 640, (4, 2))
MATCHES = np.array([[3, 1], [0, 2], [4, 0]])


def read_raw_matches(text):
    """COLMAP's grammar: names, pairs of indices, an empty line; empty lines before are skipped."""
    found, lines = {}, iter(text.split("\n"))
    for line in lines:
        if not line.strip():
            continue
        name0, name1 = line.split()
        pairs = found.setdefault((name0, name1), [])
        for pair in lines:
            if not pair.strip():
                break
            i, j = pair.split()
            pairs.append([int(i), int(j)])
    return found


def read_features(path):
    """COLMAP's grammar: N 128, then x y scale orientation and 128 whole numbers to 255."""
    head, *lines = path.read_text().splitlines()
    count, size = map(int, head.split())
    assert (count, size) == (len(lines), 128)
    rows = np.array([line.split() for line in lines]).reshape(count, 4 + size)
    assert ((rows[:, 4:].astype(int) >= 0) & (rows[:, 4:].astype(int) <= 255)).all()
    return rows[:, :4].astype(float)


def test_colmap_matches(tmp_path):
    path = tmp_path / "matches.txt"
    with ColmapWriter(tmp_path) as writer:
        writer.add("a.jpg", "in/b.jpg", PairMatches(P0, P1, MATCHES))
    assert (writer.files["colmap"], path.read_text()) == (path, "a.jpg in/b.jpg\n3 1\n0 2\n4 0\n\n")
    with ColmapWriter(tmp_path) as writer:
        assert writer.add("a.jpg", "in/b.jpg", PairMatches(P0, P1, MATCHES))
        assert writer.add("a.jpg", "c.jpg", PairMatches(P0, P1, []))
        assert writer.add("b.jpg", "c.jpg", PairMatches(P1, P1, [[0, 0], [1, 0]]))
        assert not writer.add("c.jpg", "b.jpg", PairMatches(P1, P1, []))
        # Nothing has changed yet.
        assert path.read_text().count("jpg") == 2
    np.testing.assert_allclose(read_features(tmp_path / "in/b.jpg.txt")[:, :2], P1 + 0.5)
    assert read_raw_matches(path.read_text()) == {
        ("a.jpg", "in/b.jpg"): MATCHES.tolist(),
        ("a.jpg", "c.jpg"): [],
        ("b.jpg", "c.jpg"): [[0, 0], [1, 0]],
    }
    assert no_leftovers(tmp_path)


@pytest.mark.parametrize("name", ["a b", "", " a", "a\tb", "../a", "a\n", "a\u00a0b", "matches"])
def test_colmap_matches_refuse_names_that_colmap_would_split(tmp_path, name):
    pair = PairMatches(P0, P1, MATCHES)
    with pytest.raises(ValueError, match=r"^image1 must "), ColmapWriter(tmp_path) as writer:
        writer.add("a", name, pair)
    assert list(tmp_path.iterdir()) == []


def features_of(folder, name, points):
    """Write a pair with keypoints of an image, and return the file of these."""
    with ColmapWriter(folder) as writer:
        writer.add(name, "other", PairMatches(points, P1, np.zeros((0, 2), int)))
    return folder / f"{name}.txt"


def test_colmap_features_are_shifted_by_half_a_pixel(tmp_path):
    rows = read_features(features_of(tmp_path, "in/a.jpg", P0))
    np.testing.assert_allclose(rows[:, :2], P0 + 0.5, rtol=1e-15)
    assert rows[:, 2:].tolist() == [[1.0, 0.0]] * len(P0)
    assert features_of(tmp_path, "empty", []).read_text() == "0 128\n"
    assert no_leftovers(tmp_path)


def test_colmap_features_agree_with_the_camera_of_pycolmap(tmp_path):
    pycolmap = pytest.importorskip("pycolmap", reason="pycolmap, the independent twin, is missing")
    from manymatch import Camera

    camera = Camera("OPENCV", 640, 480, [500, 510, 321, 236, -0.1, 0.02, 0.001, -0.002])
    twin = pycolmap.Camera(**camera.to_colmap())
    pixels = read_features(features_of(tmp_path, "a", P0))[:, :2]
    np.testing.assert_allclose(twin.cam_from_img(pixels), camera.unproject(P0), atol=1e-9)


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b", ""])
def test_colmap_features_stay_below_their_folder(tmp_path, name):
    with pytest.raises(ValueError, match=r"^image0 must be the "):
        features_of(tmp_path, name, P0)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"^folder must be an existing folder"):
        ColmapWriter(tmp_path / "absent")
