"""Several sources in one matcher: configuration, shared extraction, one graph, files."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json

import numpy as np
import pytest

from manymatch.associate.merge import merge_graphs
from manymatch.batch.batch import run_batch
from manymatch.features.feature_config import FEATURE_PRESETS
from manymatch.features.registry import register_matcher
from manymatch.matcher.config import PRESETS, SOURCE_PRESETS, MatcherConfig, SourceConfig
from manymatch.matcher.matcher import Matcher
from manymatch_lab.datasets import exhaustive_pairs
from tests.support.synthetic_images import make_images

pytest.importorskip("cv2")

SMALL = {"max_keypoints": 150, "longest": 160}
TWO = [
    {"name": "sift", "preset": "classic", **SMALL},
    {"name": "grid-sift", "detector": "sift", "threshold": 0.02, **SMALL, "k": 2},
]


@register_matcher("grid-places", replace=True)
def columns(image0, image1):
    """Match every pixel of a grid with itself: enough to have places of its own."""
    del image1
    height, width = image0.shape[:2]
    points = np.array(list(itertools.product(range(8, width, 16), range(8, height, 16))), float)
    return points, points + 0.25, np.linspace(1.0, 0.2, len(points))


@pytest.fixture
def photos(tmp_path):
    make_images(tmp_path / "views", 3)
    return sorted((tmp_path / "views").iterdir())


def test_presets_of_several_sources():
    fused, best = MatcherConfig.of("fused"), MatcherConfig.of("best")
    titles = ["xfeat + native", "xfeat + efficientnet-lite0"]
    titles += ["aliked-t16 + native", "aliked-t16 + efficientnet-lite0", "sift + native"]
    assert fused.title == ", ".join(titles)
    assert MatcherConfig.of("fast").title == ", ".join(titles[:2])
    assert best.title == "aliked + lightglue, xfeat + efficientnet-lite0"
    assert fused.sources[1].features == best.sources[1].features == FEATURE_PRESETS["embedded"]
    # Thresholds count pixels at the working size of the first source.
    assert fused.preset == "fused"
    assert [source.features.longest for source in fused.sources] == [1024] * 4 + [724]
    assert fused.needs_torch
    assert set(SOURCE_PRESETS) < set(PRESETS)


def test_one_source_is_the_usual_configuration():
    config = MatcherConfig.of("classic", k=3)
    assert config.sources == (
        SourceConfig("classic", config.sources[0].features, config.sources[0].association),
    )
    assert MatcherConfig.of(sources=["classic"]) == MatcherConfig.of("classic")
    assert set(config.to_dict()) == {"preset", "sources", "estimation"}
    assert "matcher" not in config.to_dict()["sources"][0]


@pytest.mark.parametrize(
    "sources",
    [
        ["classic", "embedded"],
        ["fused", {"name": "dino", "preset": "dinov3", "layer": 12, "debias": 0}],
        [{"detector": "aliked", "matcher": "lightglue", "max_keypoints": 512}, "grid-places"],
        [{"detector": "superpoint", "matcher": "lightglue"}],
        TWO,
    ],
)
def test_sources_are_written_and_read_back(tmp_path, sources):
    config = MatcherConfig.of(sources=sources, seed=4, keep=None)
    config.save(tmp_path / "a.toml")
    assert MatcherConfig.load(tmp_path / "a.toml") == config
    assert MatcherConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert config.preset == "+".join(source.name for source in config.sources)
    assert all(source.association.keep is None for source in config.sources)


def test_sources_of_a_file(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text('sources = ["classic", "embedded"]\n[features]\nlongest = 640\n')
    config = MatcherConfig.load(path)
    assert config == MatcherConfig.of(sources=["classic", "embedded"], longest=640)
    path.write_text(
        '[[sources]]\npreset = "classic"\nk = 2\n'
        '[[sources]]\nname = "own"\ndetector = "aliked"\nmatcher = "lightglue"\nlongest = 0\n'
    )
    first, second = MatcherConfig.load(path).sources
    assert (first.name, first.association.k) == ("sift-native", 2)
    assert (second.name, second.features.longest) == ("own", 0)
    # What a preset has for another detector is left out, with a note.
    changed = MatcherConfig.of(sources=[{"preset": "embedded", "descriptor": "native"}])
    assert changed.sources[0].features.layer is None
    assert "layer=10" in changed.notes[0]


def test_settings_hold_for_every_source():
    config = MatcherConfig.of("fused", k=3, max_keypoints=99, longest=512, precision="bfloat16")
    for source in config.sources:
        assert source.association.k == 3
        assert (source.features.max_keypoints, source.features.longest) == (99, 512)
    precisions = [source.features.precision for source in config.sources]
    assert precisions == ["float32", "bfloat16", "float32", "bfloat16", "float32"]
    assert MatcherConfig.of(config, k=4).sources[1].association.k == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"preset": "fused", "detector": "orb"}, "detector must be set in its source where there"),
        ({"preset": "fused", "layer": 3}, "layer must be set in its source"),
        ({"preset": "best", "matcher": "nearest"}, "matcher must be set in its source"),
        ({"preset": "fused", "sources": ["classic"]}, "preset and sources must not be given toge"),
        ({"sources": "classic"}, "sources must be a list of presets"),
        ({"sources": []}, "sources must be at least one source"),
        ({"sources": ["clasic"]}, "sources must be tables or among classic, .* did you mean"),
        ({"sources": ["classic", "classic"]}, "sources must have different names, got 'classic'"),
        ({"sources": ["fused", "embedded"]}, "different names, got 'embedded' twice"),
        ({"sources": [{"preset": "fused"}]}, "preset of a source must be one of classic"),
        ({"sources": [{"preset": "classic", "q": 1}]}, "a source must have fields among name, pre"),
        ({"sources": [{"k": 3}]}, "sources must be a table with a preset, a detector or a matcher"),
        ({"sources": [3]}, "sources must be names of presets, tables of settings or functions"),
        ({"sources": [{"preset": "classic", "name": "a/b"}]}, "name of a source must be a word"),
        ({"sources": [{"preset": "classic", "matcher": "glue"}]}, "matcher must be one of nearest"),
        (
            {"sources": [{"preset": "classic", "matcher": "lightglue"}]},
            "matcher 'lightglue' must have the features of one of aliked.*got those of 'sift'",
        ),
        (
            {"preset": "embedded", "matcher": "lightglue"},
            "descriptor must be 'native' with the matcher 'lightglue'",
        ),
        (
            {"sources": [{"detector": "sift", "matcher": "grid-places"}]},
            "detector must be left out with the matcher 'grid-places', got 'sift'",
        ),
        ({"preset": "classic", "detector": "images"}, "detector must be one that finds keypoints"),
    ],
)
def test_bad_sources_are_named(arguments, words):
    with pytest.raises(ValueError, match=words) as caught:
        MatcherConfig.of(**arguments)
    assert "\n" not in str(caught.value)


def test_matcher_of_images_needs_no_detector():
    config = MatcherConfig.of("embedded", matcher="grid-places")
    features = config.sources[0].features
    assert (features.detector, features.descriptor) == ("images", "native")
    assert config.title == "grid-places"
    assert config.sources[0].takes_images
    assert MatcherConfig.from_dict(config.to_dict()) == config


def test_function_gets_features_at_working_size(photos):
    sizes = []

    def best_first(features0, features1):
        sizes.append((features0.size, features1.size))
        assert (features0.points <= features0.size).all()
        nearest = (features0.descriptors @ features1.descriptors.T).argmax(axis=1)
        return np.arange(len(features0)), nearest, None

    source = {"detector": "sift", "matcher": best_first, "longest": 100}
    result = Matcher(sources=[source]).match(*photos[:2])
    assert max(sizes[0][0]) == 100
    assert result.graph.num_edges > 10
    assert result.graph.prior is None
    assert result.estimate.success


def test_graph_is_the_merged_graph_of_the_sources(photos):
    matcher = Matcher(sources=TWO)
    result = matcher.match(*photos[:2], with_rank_one=True)
    singles = [Matcher(sources=[source]).match(*photos[:2]) for source in TWO]
    expected = merge_graphs([single.graph for single in singles], ["sift", "grid-sift"])
    assert result.graph == expected
    assert result.graph.source_names == ("sift", "grid-sift")
    assert result.counts["kept"] == result.graph.num_edges
    assert result.counts["keypoints0"] == len(result.graph.points0)
    record = result.to_dict()
    assert list(record["sources"]) == ["sift", "grid-sift"]
    for single, (name, counts) in zip(singles, record["sources"].items(), strict=True):
        assert single.counts == result.source_counts[name]
        assert counts.items() >= single.counts.items()
        assert counts["candidates"] == counts["kept"]
        assert 0 <= counts["matches"] <= counts["inliers"] <= counts["kept"]
    total = sum(len(own) for own in [result.matches])
    assert sum(c["matches"] for c in result.to_dict()["sources"].values()) == total
    assert [s["name"] for s in record["config"]["sources"]] == ["sift", "grid-sift"]
    assert set(result.rank_one.graph.rank.tolist()) == {1}
    assert "sift + native, sift + native" in repr(matcher)
    assert result.estimate.success


def test_features_of_every_source_are_needed(photos):
    matcher = Matcher(sources=TWO)
    kinds = matcher.extract(photos[:2])
    again = matcher.match_features(*kinds)
    assert again.graph == matcher.match(*photos[:2]).graph
    with pytest.raises(ValueError, match="features0 must be 2 Features, one for each source"):
        matcher.match_features(kinds[0][0], kinds[1])
    with pytest.raises(ValueError, match="features1 must be a Features"):
        Matcher("classic").match_features(kinds[0][0], kinds[1])


def test_source_without_keypoints_in_a_batch(photos, tmp_path):
    config = MatcherConfig.of(sources=[TWO[0], {"name": "own", "matcher": columns}], seed=1)
    pairs = exhaustive_pairs(photos[0].parent)
    for form in ("h5", "colmap", "colmap-db"):
        with pytest.raises(
            ValueError, match=r"formats must be parquet or npz where a source .*\(own\)"
        ):
            run_batch(pairs, None, tmp_path / "refused", config, formats=["npz", form])
    assert not (tmp_path / "refused").exists()
    summary = run_batch(pairs, None, tmp_path / "out", config, formats=["npz"], workers=2)
    assert summary.finished == 3
    assert not summary.reasons
    header = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert list(header["config"]["sources"]) == ["sift", "own"]
    other = dataclasses.replace(config, sources=config.sources[:1])
    with pytest.raises(ValueError, match="out must be a new folder or one of the same run"):
        run_batch(pairs, None, tmp_path / "out", other, formats=["npz"])


def test_keypoints_of_an_image_are_the_same_in_all_pairs(photos, tmp_path):
    h5py = pytest.importorskip("h5py")
    pairs = exhaustive_pairs(photos[0].parent)
    run_batch(pairs, None, tmp_path / "out", MatcherConfig.of(sources=TWO), formats=["npz", "h5"])
    kinds = Matcher(sources=TWO).extract(photos)
    with h5py.File(tmp_path / "out" / "features.h5") as file:
        for photo, features in zip(photos, kinds, strict=True):
            stacked = np.concatenate([one.points for one in features])
            np.testing.assert_allclose(file[photo.name]["keypoints"][:], stacked, atol=1e-3)
    with (tmp_path / "out" / "pairs.csv").open() as table:
        rows = list(csv.DictReader(table))
    for row in rows:
        counts = [text.split(":") for text in row["matches_by_source"].split(";")]
        assert [name for name, _ in counts] == ["sift", "grid-sift"]
        assert sum(int(number) for _, number in counts) == int(row["matches"]) > 0
