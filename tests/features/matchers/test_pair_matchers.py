"""Pair matchers: their matches as a graph, and their registration."""

import numpy as np
import pytest

from manymatch.features import registry
from manymatch.features.extractor import Extractor
from manymatch.features.feature_config import FeatureConfig
from manymatch.features.matchers import FunctionMatcher, PairMatcher, matcher_graph
from manymatch.features.registry import find_matcher, matcher_names, register_matcher
from manymatch.matcher.config import MatcherConfig
from tests.support.synthetic_images import texture

pytest.importorskip("cv2")


def columns(image0, image1):
    """Match the pixels of a diagonal with themselves."""
    del image1
    points = np.arange(min(image0.shape[:2]), dtype=float)[:, None].repeat(2, axis=1)
    return points, points, None


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
def test_bad_answer_of_a_matcher_is_named(answer, words):
    images = Extractor(FeatureConfig("images")).extract_many([texture(0, 90, 60)] * 2)
    with pytest.raises(ValueError, match=words):
        matcher_graph(FunctionMatcher("bad", lambda *_: answer, "images"), *images)


@pytest.mark.parametrize("turns", range(4))
def test_points_survive_turning_and_back(turns):
    image = texture(3, 220, 150)
    extractor = Extractor(FeatureConfig("sift", max_keypoints=150, longest=160))
    direct = extractor.extract(np.ascontiguousarray(np.rot90(image, turns)))
    turned = direct.turned(turns)
    assert turned.size == (220, 150)
    seen = turned.as_seen()
    assert seen.size == direct.working_size
    expected = (direct.points + 0.5) * direct.working_scale - 0.5
    np.testing.assert_allclose(seen.points, expected, atol=1e-9)
    np.testing.assert_allclose(turned.from_seen(seen.points), turned.points, atol=1e-9)


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


def test_matcher_of_another_package_is_loaded_when_used(monkeypatch):
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
