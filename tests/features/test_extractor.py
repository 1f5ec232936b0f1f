"""From images to features: geometry, cache keys, overrides; with networks of random weights."""

import dataclasses

import numpy as np
import pytest

from manymatch.associate.neighbours import associate
from manymatch.features.backbones import Backbone
from manymatch.features.device import runs_on_cpu
from manymatch.features.extractor import Extractor
from manymatch.features.feature_cache import FeatureCache
from manymatch.features.feature_config import FeatureConfig
from manymatch.features.maps import dense_maps
from manymatch.features.registry import _backbones
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.matcher import Matcher
from tests.support.synthetic_views import image_pair

pytest.importorskip("cv2")
torch = pytest.importorskip("torch")


class Filters(Backbone):
    """Random filters, a little of the position: enough for every step."""

    name, patch_size, dim, num_layers = "filters", 8, 12, 3

    def __init__(self, weights=None, offline=False):  # noqa: ARG002
        generator = torch.Generator().manual_seed(0 if weights is None else 1)
        self.module = torch.nn.Conv2d(3, 12, 8, 8)
        with torch.no_grad():
            for parameter in self.module.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        self.calls = 0

    def forward(self, pixels, layers, norm):
        self.calls += 1
        base = self.module(pixels)
        ramp = torch.linspace(0, 1, base.shape[3])[None, None, None, :]
        return {k: k * base + 40 * ramp * (1 if norm else 2) for k in layers}


@pytest.fixture(autouse=True)
def filters(monkeypatch):
    monkeypatch.setitem(_backbones, "filters", Filters)


CONFIG = FeatureConfig("sift", "filters", max_keypoints=300, longest=240, layer=2)


@pytest.fixture(scope="module")
def image():
    return image_pair().image0


def test_features_are_in_pixels_of_the_users_image(image):
    features = Extractor(CONFIG).extract(image)
    assert features.size == (480, 360)
    assert 50 < len(features) <= 300
    assert features.descriptors.shape == (len(features), 12)
    assert np.allclose(np.linalg.norm(features.descriptors, axis=1), 1, atol=1e-5)
    # Only where all four neighbours of a sample exist: half a cell of 8 px at half the size.
    low, high = 0.5 * 8 * 2 - 0.5, np.array([480, 360]) - 0.5 * 8 * 2 - 0.5
    assert (features.points >= low).all()
    assert (features.points <= high).all()
    assert (np.diff(features.scores) <= 0).all()


def test_a_doubled_image_gives_doubled_keypoints(image):
    extractor = Extractor(CONFIG)
    small = extractor.extract(image)
    large = extractor.extract(np.repeat(np.repeat(image, 2, axis=0), 2, axis=1))
    assert large.size == (960, 720)
    # Same image at working size, up to the rounding of the resize.
    halves = (large.points + 0.5) / 2 - 0.5
    distance = np.linalg.norm(halves[:, None] - small.points[None], axis=2).min(axis=1)
    assert np.median(distance) < 0.05


def test_descriptors_are_the_map_at_the_keypoints(image):
    extractor = Extractor(CONFIG)
    features = extractor.extract(image)
    ((maps),) = dense_maps([image], extractor.backbone, [1, 2], resize=CONFIG.resizing)
    sampled = maps[2].sample(features.points)
    sampled /= np.linalg.norm(sampled, axis=1, keepdims=True)
    assert np.allclose(features.descriptors, sampled, atol=1e-6)


def test_debiasing_removes_what_a_black_image_shows(image):
    extractor = Extractor(CONFIG.replace(debias=1))
    how = {"layers": [2], "resize": CONFIG.resizing}
    ((raw),) = dense_maps([image], extractor.backbone, **how)
    ((black),) = dense_maps([np.zeros_like(image)], extractor.backbone, **how)
    tokens = black[2].values.reshape(12, -1)
    tokens = tokens / np.linalg.norm(tokens, axis=0)
    axis = np.linalg.svd(tokens - tokens.mean(axis=1, keepdims=True))[0][:, 0]
    assert np.abs(np.tensordot(axis, raw[2].values, 1)).max() > 1.0
    features = extractor.extract(image)
    assert np.abs(features.descriptors @ axis).max() < 1e-3


def test_fewer_directions_than_asked_for_are_counted(image, tmp_path, recwarn):
    # Position shows in two directions of these features.
    config = CONFIG.replace(debias=5)
    for _ in range(2):  # computed, then from the cache
        assert Extractor(config, cache=tmp_path).extract(image).debiased == 2
    assert Extractor(CONFIG).extract(image).debiased == 0
    matcher = Matcher(MatcherConfig.of(sources=[dataclasses.asdict(config)], max_iterations=500))
    result = matcher.match(image, image_pair().image1)
    assert result.to_dict()["notes"][0].startswith("debias 5 removed 2 directions")
    assert "debias 5 removed 2 directions" in str(result)
    assert not [one for one in recwarn if "debias" in str(one.message)]


def test_an_image_may_have_another_working_size(image):
    extractor = Extractor(CONFIG)
    own = extractor.extract(image, longest=0)
    both = extractor.extract_many([image, image], longest=[None, 0])
    assert len(own) == len(both[1])
    assert np.array_equal(own.points, both[1].points)
    assert np.array_equal(own.descriptors, both[1].descriptors)
    assert not np.array_equal(both[0].points[:20], both[1].points[:20])
    with pytest.raises(ValueError, match="longest must be one length per image"):
        extractor.extract_many([image], longest=[1, 2])


def test_the_cache_returns_the_same_bits_and_saves_the_work(image, tmp_path):
    first = Extractor(CONFIG.replace(debias=1), cache=tmp_path)
    computed = first.extract(image)
    assert first.backbone.calls == 2  # the image and the probe
    again = Extractor(CONFIG.replace(debias=1), cache=FeatureCache(tmp_path))
    found = again.extract(image)
    assert again.backbone.calls == 0
    for name in ("points", "scores", "descriptors"):
        assert np.array_equal(getattr(found, name), getattr(computed, name))
    assert found.size == computed.size
    assert found.provenance == computed.provenance
    other = np.array(image)
    other[0, 0, 0] ^= 1
    again.extract(other)
    assert again.backbone.calls == 1  # the basis was found


CHANGES = {"max_keypoints": 299, "layer": 3, "norm": False, "debias": 1, "longest": 241}
CHANGES |= {
    "sampling": "paper",
    "enlarge": False,
    "threshold": 0.03,
    "border": 5,
    "weights": "other",
}


@pytest.mark.parametrize(("name", "value"), [*CHANGES.items(), ("precision", "bfloat16")])
def test_every_setting_that_changes_a_number_changes_the_key(image, tmp_path, name, value):
    cache = FeatureCache(tmp_path)
    if name == "precision" and not runs_on_cpu(value):
        pytest.skip("this CPU fails in bfloat16")
    before = Extractor(CONFIG, cache=cache).extract(image).provenance
    changed = Extractor(CONFIG.replace(**{name: value}), cache=cache)
    after = changed.extract(image).provenance
    assert changed.backbone.calls >= 1
    assert cache.path(before) != cache.path(after)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda image: Extractor(FeatureConfig("grid")).extract(image),
            "descriptor must be a backbone, as the detector 'grid'",
        ),
        (
            lambda image: Extractor(FeatureConfig("sift", "nonsense")).extract(image),
            "backbone must be one of",
        ),
        (lambda _: Extractor("nonsense"), "preset must be one of"),
        (lambda _: Extractor(CONFIG, device="abacus"), "device must be one"),
    ],
)
def test_refusals(image, call, words):
    with pytest.raises(ValueError, match=words):
        call(image)


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 300, 3), (17, 5, 3), (8, 8, 3)])
def test_images_without_keypoints(shape):
    features = Extractor("classic").extract(np.zeros(shape, np.uint8))
    assert len(features) == 0
    assert features.descriptors.shape == (0, 128)


def test_images_smaller_than_a_cell():
    extractor = Extractor(CONFIG)
    assert extractor.extract(np.zeros((1, 1, 3), np.uint8)).descriptors.shape == (0, 12)
    with pytest.raises(ValueError, match="image must be at least 8 x 8 pixels after resizing"):
        extractor.extract(np.zeros((1, 300, 3), np.uint8))


def test_sift_keeps_every_orientation(image, tmp_path):
    features = Extractor(FeatureConfig("sift", max_keypoints=300), cache=tmp_path).extract(image)
    assert features.further is not None
    assert len(features.further) == len(features.owners) > 0
    rows, owners = features.all_descriptors()
    assert len(rows) == len(owners) == 300 + len(features.further)
    assert owners.max() < 300
    again = Extractor(FeatureConfig("sift", max_keypoints=300), cache=tmp_path).extract(image)
    assert np.array_equal(again.further, features.further)
    assert np.array_equal(again.owners, features.owners)
    described = Extractor(CONFIG).extract(image)
    assert described.further is None


def test_binary_descriptors_reach_the_graph_as_bits(image, tmp_path):
    config = FeatureConfig("orb", max_keypoints=200)
    for _ in range(2):
        features = Extractor(config, cache=tmp_path).extract(image)
        assert features.descriptors.dtype == np.uint8
        assert features.descriptors.shape == (200, 32)
    edges, similarity, _ = associate(features.descriptors, features.descriptors, 1)
    own = similarity[edges[:, 0] == edges[:, 1]]
    assert len(own) > 190
    assert (own == 1).all()
    assert not FeatureConfig("orb").needs_torch
