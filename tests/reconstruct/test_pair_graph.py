"""Pairs of photographs, read from batches and COLMAP databases."""

import dataclasses

import numpy as np
import pytest

import manymatch
from manymatch.reconstruct.pair_graph import PairGraph
from tests.support.scenes import arc

pytest.importorskip("pycolmap")


def test_database_holds_what_was_written(tmp_path):
    scene = arc(number=5)
    keep = [pair.second < 4 for pair in scene.graph.pairs]
    scene.graph.write_database(tmp_path / "a.db", keep)
    found = PairGraph.from_database(tmp_path / "a.db")
    written = [pair for pair, kept in zip(scene.graph.pairs, keep, strict=True) if kept]
    assert [photo.name for photo in found.photos] == [f"{k:02d}.jpg" for k in range(4)]
    assert len(found.pairs) == len(written) == 6
    for pair, own in zip(found.pairs, written, strict=True):
        assert (pair.first, pair.second) == (own.first, own.second)
        assert np.array_equal(pair.matches, own.matches)
        assert np.allclose(pair.pose.matrix(), own.pose.matrix())
        assert pair.trusted
    # COLMAP's half pixel is there and back again; it has single precision.
    for photo, own in zip(found.photos, scene.graph.photos, strict=False):
        assert np.allclose(photo.points, own.points, atol=1e-4)
        assert np.allclose(photo.camera.K, own.camera.K)


def test_database_without_a_pose_gets_it_from_the_matrix(tmp_path):
    import pycolmap

    scene = arc(number=3, noise=0.0)
    scene.graph.write_database(tmp_path / "a.db", [True] * 3)
    database = pycolmap.Database.open(str(tmp_path / "a.db"))
    geometry = database.read_two_view_geometry(1, 2)
    geometry.cam2_from_cam1 = None
    database.delete_two_view_geometry(1, 2)
    database.write_two_view_geometry(1, 2, geometry)
    database.close()
    found = PairGraph.from_database(tmp_path / "a.db").pairs[0]
    assert np.allclose(found.pose.matrix(), scene.graph.pairs[0].pose.matrix(), atol=1e-3)


def test_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "a.db").write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"a COLMAP database.*it is something else"):
        PairGraph.from_database(tmp_path / "a.db")


def test_pairs_must_be_of_two_photographs_and_not_twice():
    graph = arc(number=3).graph
    for wrong in ({"second": 0}, {"second": 7}):
        with pytest.raises(ValueError, match="pairs must be two different photographs"):
            dataclasses.replace(graph, pairs=(dataclasses.replace(graph.pairs[0], **wrong),))
    turned = dataclasses.replace(graph.pairs[0], first=1, second=0)
    with pytest.raises(ValueError, match="pairs must be every two photographs once at most"):
        dataclasses.replace(graph, pairs=(graph.pairs[0], turned))


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    from tests.support.data_folder import ROOT

    folder = tmp_path_factory.mktemp("batch")
    pairs = [("street0.jpg", "street1.jpg"), ("street2.jpg", "street1.jpg")]
    listed = folder / "pairs.txt"
    listed.write_text("".join(f"{one} {two}\n" for one, two in pairs))
    how = {"formats": ["parquet"], "camera_per": "folder", "max_keypoints": 500}
    config = manymatch.MatcherConfig.of("classic", max_keypoints=how.pop("max_keypoints"))
    manymatch.run_batch(listed, ROOT / "examples/photos", folder / "run", config, **how)
    return folder / "run"


def test_batch_gives_its_pairs_with_one_camera_an_image(batch):
    graph = PairGraph.from_batch(batch)
    assert [photo.name for photo in graph.photos] == [f"street{k}.jpg" for k in range(3)]
    assert [(pair.first, pair.second) for pair in graph.pairs] == [(0, 1), (2, 1)]
    cameras = {photo.camera.focal for photo in graph.photos}
    assert len(cameras) == 1
    for pair in graph.pairs:
        first, second = graph.photos[pair.first], graph.photos[pair.second]
        assert pair.trusted
        assert pair.probability > 0.9
        assert len(pair.match_probability) == len(pair.matches) > 50
        assert pair.matches[:, 0].max() < len(first.points)
        # Matches agree with the pose.
        E = pair.pose.essential()
        x0, x1 = first.rays(pair.matches[:, 0]), second.rays(pair.matches[:, 1])
        error = np.abs(np.einsum("ni,ij,nj->n", x1, E, x0))
        assert np.median(error) < 3e-3


def test_of_two_batches_with_the_same_pair_the_first_counts(batch):
    once, twice = PairGraph.from_batch(batch), PairGraph.from_batch(batch, batch)
    assert len(twice.pairs) == len(once.pairs) == 2


def several_sources(folder, *sources):
    """Match three photographs with several sources."""
    from tests.support.data_folder import ROOT

    listed = folder / "pairs.txt"
    listed.write_text("street0.jpg street1.jpg\nstreet1.jpg street2.jpg\n")
    how = {"formats": ["parquet"], "camera_per": "folder"}
    config = manymatch.MatcherConfig.of(sources=sources)
    manymatch.run_batch(listed, ROOT / "examples/photos", folder / "run", config, **how)
    return PairGraph.from_batch(folder / "run")


SIFT = {"name": "sift", "preset": "classic", "max_keypoints": 300}


def test_keypoints_of_several_sources_know_theirs(tmp_path):
    orb = {"name": "orb", "detector": "orb", "max_keypoints": 400}
    for photo in several_sources(tmp_path, SIFT, orb).photos:
        # Keypoints of the first source come first.
        known = np.flatnonzero(photo.source >= 0)
        assert set(photo.source.tolist()) == {-1, 0, 1}
        assert np.array_equal(photo.source[known], (known >= 300).astype(int))


def test_keypoints_of_two_sources_at_one_place_are_one(tmp_path):
    graph = several_sources(tmp_path, SIFT, {**SIFT, "name": "again", "k": 1})
    for pair in graph.pairs:
        assert len(graph.photos[pair.first].points) == 600
        assert len(pair.matches) == len(pair.match_probability) > 20
        assert pair.matches.max() < 300
        for side, photo in enumerate((graph.photos[pair.first], graph.photos[pair.second])):
            assert photo.source[pair.matches[:, side]].min() >= 0
        assert all(len(np.unique(side)) == len(side) for side in pair.matches.T)


def test_matches_between_exact_keypoints_stay():
    graph = arc(number=3).graph
    even = np.arange(len(graph.photos[0].points)) % 2 == 0
    low = np.arange(len(even)) < 100
    found = graph.between({"00.jpg": even, "01.jpg": low})
    kept = {(pair.first, pair.second): pair.matches for pair in found.pairs}
    for pair in graph.pairs:
        matches = pair.matches
        if (pair.first, pair.second) == (0, 1):
            matches = matches[even[matches[:, 0]] & low[matches[:, 1]]]
            assert 0 < len(matches) < len(pair.matches)
        assert np.array_equal(kept[pair.first, pair.second], matches)
    assert graph.between({}) is graph
