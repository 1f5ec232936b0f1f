"""Features of several sources: what they have in common is computed once."""

import numpy as np
import pytest

from manymatch.features import maps
from manymatch.features.detectors.classic import Sift
from manymatch.features.extractor import Extractor, extract_all, make_extractors
from manymatch.features.feature_config import FeatureConfig
from tests.support.synthetic_images import texture

pytest.importorskip("cv2")

SMALL = {"max_keypoints": 150, "longest": 160}


def test_equal_detections_are_made_once_and_cached_alone(tmp_path, monkeypatch):
    calls, detect = [], Sift.detect
    monkeypatch.setattr(
        Sift,
        "detect",
        lambda self, image: calls.append(self.selection.max_keypoints) or detect(self, image),
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
    # A source that is added later uses the cache of the others.
    del calls[:]
    more = make_extractors([base.replace(max_keypoints=20), *configs], cache=tmp_path)
    again = extract_all(more, images)
    assert calls == [20, 20]
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
