"""Several sources in one matcher: configuration, shared extraction, one graph, files."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json

import numpy as np
import pytest

from manymatch.associate.candidates import Association
from manymatch.associate.merge import merge_graphs
from manymatch.batch.batch import run_batch
from manymatch.features import maps, registry
from manymatch.features.config import FEATURE_PRESETS, FeatureConfig
from manymatch.features.extractor import Extractor, extract_all, make_extractors
from manymatch.features.feature_cache import FeatureCache
from manymatch.features.matchers import FunctionMatcher, PairMatcher, matcher_graph
from manymatch.features.registry import find_matcher, matcher_names, register_matcher
from manymatch.matcher.config import PRESETS, SOURCE_PRESETS, MatcherConfig, SourceConfig
from manymatch.matcher.matcher import Matcher
from manymatch_lab.datasets import exhaustive_pairs
from manymatch_lab.datasets.dataset import Dataset
from manymatch_lab.evaluate.inputs import ImageGraphs
from tests.support.synthetic_images import make_images, texture

pytest.importorskip("cv2")

SMALL = {"max_keypoints": 150, "longest": 160}
TWO = [
    {"name": "sift", "preset": "classic", **SMALL},
    {"name": "grid-sift", "detector": "sift", "threshold": 0.02, **SMALL, "k": 2},
]


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


# Configuration


def test_presets_of_several_sources():
    fused, best = MatcherConfig.of("fused"), MatcherConfig.of("best")
    assert [source.title for source in fused.sources] == [
        "sift + native",
        "xfeat + native",
        "xfeat + efficientnet-lite0",
    ]
    assert [source.title for source in best.sources] == [
        "aliked + lightglue",
        "xfeat + efficientnet-lite0",
    ]
    assert fused.sources[2].features == best.sources[1].features == FEATURE_PRESETS["embedded"]
    assert (fused.preset, fused.sources[0].features.detector) == ("fused", "sift")
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
        [{"detector": "disk", "matcher": "lightglue", "max_keypoints": 512}, "efficient-loftr"],
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


def test_settings_hold_for_every_source_where_they_have_a_meaning():
    config = MatcherConfig.of("fused", k=3, max_keypoints=99, longest=512, precision="bfloat16")
    for source in config.sources:
        assert source.association.k == 3
        assert (source.features.max_keypoints, source.features.longest) == (99, 512)
    precisions = [source.features.precision for source in config.sources]
    assert precisions == ["float32", "float32", "bfloat16"]
    assert MatcherConfig.of(config, k=4).sources[1].association.k == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"preset": "fused", "detector": "disk"}, "detector must be set in its source where there"),
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
            {"sources": [{"detector": "sift", "matcher": "efficient-loftr"}]},
            "detector must be left out with the matcher 'efficient-loftr', got 'sift'",
        ),
        ({"preset": "classic", "detector": "images"}, "detector must be one that finds keypoints"),
    ],
)
def test_a_fault_is_one_sentence(arguments, words):
    with pytest.raises(ValueError, match=words) as caught:
        MatcherConfig.of(**arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('source = ["classic"]', "configuration must have the sections features, .*sources"),
        ('preset = "../x"\nsources = ["classic", "embedded"]', "preset must be one of classic"),
        ('[[sources]]\npreset = "classic"\nmatcher = "os.system"', "matcher must be one of"),
    ],
)
def test_a_fault_of_a_file_is_one_sentence(tmp_path, text, words):
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        MatcherConfig.load(path)


def test_a_matcher_of_images_needs_no_detector():
    config = MatcherConfig.of("embedded", matcher="efficient-loftr")
    assert (config.sources[0].features.detector, config.sources[0].features.descriptor) == (
        "images",
        "native",
    )
    assert config.title == "efficient-loftr"
    assert config.sources[0].takes_images
    assert MatcherConfig.from_dict(config.to_dict()) == config


# Features


def test_equal_detections_are_made_once_and_cached_alone(tmp_path, monkeypatch):
    pytest.importorskip("h5py")
    calls = []
    original = Extractor._detect
    monkeypatch.setattr(
        Extractor,
        "_detect",
        lambda self, *given: calls.append(self.config) or original(self, *given),
    )
    base = FeatureConfig("sift", **SMALL)
    configs = [base, base.replace(precision="float32"), base.replace(longest=120)]
    extractors = make_extractors(configs, cache=tmp_path)
    assert extractors[1].detector is extractors[0].detector
    assert extractors[2].detector is extractors[0].detector
    images = [texture(0, 200, 160), texture(1, 200, 160)]
    kinds = extract_all(extractors, images)
    assert len(calls) == 4
    for image, features in zip(images, kinds, strict=True):
        for config, one in zip(configs, features, strict=True):
            alone = Extractor(config).extract(image)
            assert alone.provenance == one.provenance
            np.testing.assert_array_equal(alone.points, one.points)
            np.testing.assert_array_equal(alone.descriptors, one.descriptors)
    # A source that is added later finds what the others left.
    del calls[:]
    more = make_extractors([base.replace(max_keypoints=20), *configs], cache=tmp_path)
    again = extract_all(more, images)
    assert [config.max_keypoints for config in calls] == [20, 20]
    np.testing.assert_array_equal(again[1][3].points, kinds[1][2].points)


def test_one_pass_of_a_backbone_has_all_layers(monkeypatch):
    pytest.importorskip("torch")
    passes = []
    original = maps.run_backbone
    monkeypatch.setattr(
        maps, "run_backbone", lambda *a, **k: passes.append(list(a[2])) or original(*a, **k)
    )
    base = FeatureConfig("sift", "efficientnet-lite0", layer=10, weights="random", **SMALL)
    # Layers 9 and 10 have one stride, layer 12 another.
    configs = [
        base,
        base.replace(layer=9),
        base.replace(layer=12),
        base.replace(layer=9, detector="grid"),
        base.replace(layer=10, longest=120),
    ]
    images = [texture(0, 200, 160), texture(1, 200, 160)]
    kinds = extract_all(make_extractors(configs), images)
    assert sorted(passes) == sorted([[9, 10], [12], [10]] * 2)
    for image, features in zip(images, kinds, strict=True):
        for config, one in zip(configs, features, strict=True):
            alone = Extractor(config).extract(image)
            np.testing.assert_array_equal(alone.points, one.points)
            np.testing.assert_array_equal(alone.descriptors, one.descriptors)
    with pytest.raises(ValueError, match="layer"):
        extract_all(make_extractors([base.replace(layer=99), base]), images)


@pytest.mark.parametrize("turns", range(4))
def test_points_of_a_turned_image_and_back(turns):
    image = texture(3, 220, 150)
    extractor = Extractor(FeatureConfig("sift", **SMALL))
    direct = extractor.extract(np.ascontiguousarray(np.rot90(image, turns)))
    turned = direct.turned(turns)
    assert turned.size == (220, 150)
    seen = turned.as_seen()
    assert seen.size == direct.working_size
    expected = (direct.points + 0.5) * direct.working_scale - 0.5
    np.testing.assert_allclose(seen.points, expected, atol=1e-9)
    np.testing.assert_allclose(turned.from_seen(seen.points), turned.points, atol=1e-9)


# Matchers


def test_scores_become_ranks_and_priors():
    def several(first, second):
        del first, second
        # The second has a better neighbour at both ends.
        points0 = [[1.0, 2.0], [1.0, 2.0], [5.0, 5.0], [400.0, 1.0]]
        points1 = [[3.0, 4.0], [3.0, 6.0], [3.0, 4.0], [1.0, 1.0]]
        return points0, points1, [0.9, 0.5, 0.7, 1.0]

    images = Extractor(FeatureConfig("images", longest=0)).extract_many([texture(0, 90, 60)] * 2)
    graph = matcher_graph(FunctionMatcher("several", several, "images"), *images)
    assert graph.rank.tolist() == [1, 2, 2]
    np.testing.assert_allclose(graph.prior, [0.9, 0.7, 0.5])
    np.testing.assert_allclose(graph.similarity, graph.prior)
    assert (len(graph.points0), len(graph.points1)) == (2, 2)
    pairs = np.hstack([graph.points0[graph.edges[:, 0]], graph.points1[graph.edges[:, 1]]])
    assert pairs.tolist() == [[1, 2, 3, 4], [5, 5, 3, 4], [1, 2, 3, 6]]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (3, "'bad' must be returning two or three arrays"),
        (([[0, 0]], [[0, 0], [1, 1]], None), "'bad' must return pairs, got 1 and 2"),
        (([[0, 0]], [[0, 0]], [2.0]), "'bad' must return what a graph takes: prior"),
        (([[0, 0]], [[0, 0]], [0.1, 0.2]), "'bad': scores must be 1 numbers"),
        (([0, 0], [[0, 0]], None), "'bad': points0 must be an"),
        (([[np.nan, 0]], [[0, 0]], None), "'bad': points0"),
    ],
)
def test_a_bad_answer_of_a_matcher_is_one_sentence(answer, words):
    images = Extractor(FeatureConfig("images")).extract_many([texture(0, 90, 60)] * 2)
    with pytest.raises(ValueError, match=words):
        matcher_graph(FunctionMatcher("bad", lambda *_: answer, "images"), *images)


def test_a_function_of_features_gets_them_as_the_detector_saw_them(photos):
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


def test_matchers_are_registered_by_name():
    @register_matcher("of-images")
    def of_images(image0, image1):
        del image1
        return np.zeros((1, 2)), np.full((1, 2), image0.shape[0] / 2.0), None

    try:
        assert "of-images" in matcher_names()
        assert find_matcher("of-images").takes == "images"
        config = MatcherConfig.of(sources=["classic", "of-images"])
        assert MatcherConfig.from_dict(config.to_dict()) == config
        with pytest.raises(ValueError, match="name must be one that is not taken"):
            register_matcher("of-images")(of_images)
        register_matcher("of-images", takes="features", replace=True)(of_images)
        assert find_matcher("of-images").takes == "features"
    finally:
        del registry._matchers["of-images"]
    for name in ("nearest", "a:b", "", 3):
        with pytest.raises(ValueError, match="name must be a word"):
            register_matcher(name)
    with pytest.raises(ValueError, match="matcher must be a function of two images or a PairM"):
        register_matcher("mine")(dict)
    assert issubclass(find_matcher("lightglue"), PairMatcher)


def test_matchers_of_other_packages_are_loaded_when_asked_for(monkeypatch):
    loaded = []

    class Point:
        name = "theirs"

        def load(self):
            loaded.append(1)
            return columns

    monkeypatch.setattr(registry, "EntryPoint", Point)
    monkeypatch.setattr(registry, "_entry_points", lambda _: {"theirs": Point()})
    monkeypatch.setattr(registry, "_matchers", {})
    assert "theirs" in matcher_names()
    assert not loaded
    assert MatcherConfig.of(sources=["classic", "theirs"]).sources[1].takes_images
    assert loaded == [1]


# Matching


def test_the_graph_is_the_merged_graph_of_the_sources(photos):
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


def test_features_of_every_source_are_wanted(photos):
    matcher = Matcher(sources=TWO)
    kinds = matcher.extract(photos[:2])
    again = matcher.match_features(*kinds)
    assert again.graph == matcher.match(*photos[:2]).graph
    with pytest.raises(ValueError, match="features0 must be 2 Features, one for each source"):
        matcher.match_features(kinds[0][0], kinds[1])
    with pytest.raises(ValueError, match="features1 must be a Features"):
        Matcher("classic").match_features(kinds[0][0], kinds[1])


def test_a_source_without_keypoints_in_a_batch(photos, tmp_path):
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


def test_evaluation_caches_every_source_alone(photos, tmp_path, monkeypatch):
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
    entries = len(FeatureCache(tmp_path / "cache"))
    both = source(TWO)
    merged = both[0].graph
    assert merged.source_names == ("sift", "grid-sift")
    assert merged.rank[merged.source == 1].max() <= 2
    # Two images and one list of candidates were added.
    assert len(FeatureCache(tmp_path / "cache")) == entries + 3
    np.testing.assert_array_equal(merged.points0[: len(graph.points0)], graph.points0)
    assert int((merged.source == 0).sum()) == graph.num_edges
    assert both.identity["sources"][1]["k"] == 2
    assert [one["name"] for one in alone.identity["sources"]] == ["sift"]
    usual = ImageGraphs(dataset, Matcher("classic"), k=5).identity
    assert "sources" not in usual
    assert usual["features"]["detector"] == "sift"
    monkeypatch.setattr("manymatch.matcher.matcher.candidates", None)
    monkeypatch.setattr(Extractor, "_detect", None)
    assert source(TWO)[0].graph == merged
    # The caps are those of every source.
    cut = Association(max_edges=20).for_method("auto").apply(merged, (320, 240), (320, 240))
    assert np.bincount(cut.source).tolist() == [20, 20]
