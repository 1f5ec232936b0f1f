"""Features of several sources: what they have in common is computed once."""

import numpy as np
import pytest

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
