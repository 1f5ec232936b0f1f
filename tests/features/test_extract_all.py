"""Features of several sources: what they have in common is computed once."""

import contextlib
import threading
import time

import numpy as np
import pytest

from manymatch.features.detectors.classic import Sift
from manymatch.features.extractor import Extractor, extract_all
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
    shared = {"cache": tmp_path, "networks": {}}
    extractors = [Extractor(config, **shared) for config in configs]
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
    wanted = [base.replace(max_keypoints=20), *configs]
    more = [Extractor(config, cache=tmp_path) for config in wanted]
    again = extract_all(more, images)
    assert calls == [20, 20]
    np.testing.assert_array_equal(again[1][3].points, kinds[1][2].points)


def test_large_images_take_turns(monkeypatch):
    busy, detect = [0], Sift.detect

    def watched(self, image):
        busy[0] += 1
        time.sleep(0.05)
        assert busy[0] == 1
        found = detect(self, image)
        busy[0] -= 1
        return found

    monkeypatch.setattr(Sift, "detect", watched)
    monkeypatch.setattr("manymatch.features.extractor.usable_cores", lambda: 2)
    monkeypatch.setattr("manymatch.features.extractor._LARGE", 160 * 128 - 1)
    images = [texture(seed, 200, 160) for seed in range(3)]
    assert len(Extractor(FeatureConfig("sift", **SMALL)).extract_many(images)) == 3


def test_images_at_the_same_time_give_what_each_gives_alone(monkeypatch):
    images = [texture(seed, 200, 160) for seed in range(5)]
    busy, most, lock, detect = [0], [0], threading.Lock(), Sift.detect
    # Two images wait for each other here, which one thread could not do.
    meet = threading.Barrier(2)

    def watched(self, image):
        with lock:
            busy[0] += 1
            most[0] = max(most[0], busy[0])
            first = most[0] <= 2 and not meet.broken
        if first:
            with contextlib.suppress(threading.BrokenBarrierError):
                meet.wait(timeout=20)
                meet.abort()
        found = detect(self, image)
        with lock:
            busy[0] -= 1
        return found

    extractor = Extractor(FeatureConfig("sift", **SMALL))
    alone = [extractor.extract(image) for image in images]
    monkeypatch.setattr(Sift, "detect", watched)
    monkeypatch.setattr("manymatch.features.extractor.usable_cores", lambda: 3)
    together = extractor.extract_many(images)
    assert 2 <= most[0] <= 3
    for one, other in zip(alone, together, strict=True):
        assert one.provenance == other.provenance
        for name in ("points", "scores", "descriptors", "further", "owners"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    with pytest.raises(ValueError, match="must be an image"):
        extractor.extract_many([images[0], "nowhere.jpg", images[1]])


def test_an_interruption_does_not_wait_for_images_in_work(monkeypatch):
    begun, goes_on, done = threading.Event(), threading.Event(), threading.Event()

    def slow(_self, _given, edge):
        if edge == 100:
            begun.wait(20)
            raise KeyboardInterrupt
        begun.set()
        goes_on.wait(5)
        done.set()

    monkeypatch.setattr(Extractor, "_extract", slow)
    monkeypatch.setattr("manymatch.features.extractor.usable_cores", lambda: 2)
    extractor = Extractor(FeatureConfig("sift", **SMALL))
    with pytest.raises(KeyboardInterrupt):
        extract_all([extractor], [texture(0, 99, 99)] * 2, longest=[100, 120])
    assert not done.is_set()
    goes_on.set()
    assert done.wait(20)
