"""An evaluation with several sources keeps the candidates of each by itself."""

import dataclasses

import numpy as np
import pytest

from manymatch.associate.candidates import Association
from manymatch.features.extractor import FeatureCache
from manymatch.matcher.matcher import Matcher
from manymatch_lab.datasets import exhaustive_pairs
from manymatch_lab.datasets.dataset import Dataset
from manymatch_lab.evaluate.inputs import ImageGraphs
from tests.support.synthetic_images import make_images

pytest.importorskip("cv2")

SMALL = {"max_keypoints": 150, "longest": 160}
TWO = [
    {"name": "sift", "preset": "classic", **SMALL},
    {"name": "grid-sift", "detector": "sift", "threshold": 0.02, **SMALL, "k": 2},
]


@pytest.fixture
def photos(tmp_path):
    make_images(tmp_path / "views", 3)
    return sorted((tmp_path / "views").iterdir())


def test_every_source_is_cached_by_itself(photos, tmp_path, monkeypatch):
    pytest.importorskip("h5py")
    pairs = [
        dataclasses.replace(pair, R=np.eye(3), t=np.array([1.0, 0.0, 0.0]))
        for pair in exhaustive_pairs(photos[0].parent)
    ]
    dataset = Dataset("views", "Views", tuple(pairs))

    def source(sources):
        matcher = Matcher(sources=sources, cache=tmp_path / "cache")
        return ImageGraphs(dataset, matcher, k=5)

    alone = source([TWO[0]])
    graph = alone[0].graph
    kept = FeatureCache(tmp_path / "cache").folder
    entries = len(list(kept.glob("??/*.npz")))
    both = source(TWO)
    merged = both[0].graph
    assert merged.source_names == ("sift", "grid-sift")
    assert merged.rank[merged.source == 1].max() <= 2
    # Two images and one list of candidates were added.
    assert len(list(kept.glob("??/*.npz"))) == entries + 3
    np.testing.assert_array_equal(merged.points0[: len(graph.points0)], graph.points0)
    assert int((merged.source == 0).sum()) == graph.num_edges
    assert both.identity["sources"][1]["k"] == 2
    assert [one["name"] for one in alone.identity["sources"]] == ["sift"]
    usual = ImageGraphs(dataset, Matcher("classic"), k=5).identity
    assert "sources" not in usual
    assert usual["features"]["detector"] == "sift"
    monkeypatch.setattr("manymatch.matcher.matcher.candidates", None)
    monkeypatch.setattr("manymatch.features.detectors.classic.Sift.detect", None)
    assert source(TWO)[0].graph == merged
    # The caps are those of every source.
    cut = Association(max_edges=20).for_method("auto").apply(merged, (320, 240), (320, 240))
    assert np.bincount(cut.source).tolist() == [20, 20]
