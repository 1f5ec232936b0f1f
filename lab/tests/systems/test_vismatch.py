"""Matchers of vismatch through a stand-in for the package: conventions, and what is missing."""

from __future__ import annotations

import importlib.machinery
import sys
import types

import numpy as np
import pytest

from manymatch.features.detectors import Keypoints
from manymatch_lab.systems import load_system

POINTS0 = np.array([[10.0, 5.0], [3.5, 7.25], [20.0, 11.0]])
POINTS1 = np.array([[12.0, 6.0], [4.5, 8.25], [0.25, 0.25]])


@pytest.fixture
def stub(monkeypatch):
    """A package of that name with the one function that is used, as version 1.4.0 has it."""
    module = types.ModuleType("vismatch")
    module.__spec__ = importlib.machinery.ModuleSpec("vismatch", None)
    module.calls, module.images, module.offline = [], [], []
    module.confidences = np.array([0.1, 0.9, 0.5])

    class Matcher:
        def __call__(self, image0, image1):
            module.images.append((image0, image1))
            return {
                "matched_kpts0": POINTS0.copy(),
                "matched_kpts1": POINTS1.copy(),
                "matched_confidences": module.confidences,
                "inlier_kpts0": np.zeros((1, 2)),
            }

    def get_matcher(matcher_name, device="cpu", max_num_keypoints=2048):
        from huggingface_hub import constants

        module.calls.append((matcher_name, device, max_num_keypoints))
        module.offline.append(constants.HF_HUB_OFFLINE)
        return Matcher()

    module.get_matcher = get_matcher
    monkeypatch.setitem(sys.modules, "vismatch", module)
    return module


def pictures():
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, shape, dtype=np.uint8) for shape in ((20, 30, 3), (25, 40, 3))]


@pytest.mark.parametrize(
    ("name", "known_as", "offset"), [("xoftr", "xoftr", 0.0), ("roma", "roma", -0.5)]
)
def test_pixels_are_brought_to_our_convention(stub, name, known_as, offset):
    found = load_system(name, device="cpu").match(*pictures())
    order = [1, 2, 0]
    np.testing.assert_allclose(found.points0, POINTS0[order] + offset)
    np.testing.assert_allclose(found.points1, POINTS1[order] + offset)
    np.testing.assert_allclose(found.scores, [0.9, 0.5, 0.1])
    assert stub.calls == [(known_as, "cpu", 2048)]


def test_images_go_in_as_channels_in_zero_to_one(stub):
    images = pictures()
    load_system("xoftr", device="cpu").match(*images)
    for given, seen in zip(images, stub.images[0], strict=True):
        assert seen.dtype == np.float32
        np.testing.assert_allclose(seen, given.transpose(2, 0, 1) / 255.0, rtol=1e-6)


@pytest.mark.parametrize(
    ("size", "seen", "first", "scale"),
    [
        # (width, height) of the file, of what the network sees, corner of that in the resized
        # image, and length of a pixel of that in the file.
        ((1024, 768), (512, 384), (0, 0), (2.0, 2.0)),
        ((640, 512), (512, 400), (0, 5), (1.25, 512 / 410)),
        ((480, 640), (384, 512), (0, 0), (1.25, 1.25)),
        ((333, 500), (336, 512), (2, 0), (333 / 341, 500 / 512)),
        ((800, 800), (512, 384), (0, 64), (800 / 512, 800 / 512)),
    ],
)
def test_mast3r_sees_the_size_of_its_checkpoint(stub, size, seen, first, scale):
    image = np.zeros((size[1], size[0], 3), dtype=np.uint8)
    system = load_system("mast3r", device="cpu")
    assert system.own_size
    found = system.match(image, image)
    assert stub.calls == [("master", "cpu", 2048)]
    assert [given.shape for given in stub.images[0]] == [(3, seen[1], seen[0])] * 2
    # By the edges: pixel 0 of the crop reaches from its edge to one pixel further.
    order = [1, 2, 0]
    wanted = (POINTS0[order] + first + 0.5) * scale - 0.5
    np.testing.assert_allclose(found.points0, wanted)


class FewKeypoints:
    """Stands in for SuperPoint: keypoints at given places, with descriptors that say which."""

    module = None

    def __init__(self, *points):
        self.points, self.seen = list(points), []

    def detect(self, image):
        self.seen.append(image)
        points = np.array(self.points[len(self.seen) - 1], dtype=np.float64).reshape(-1, 2)
        count = len(points)
        descriptors = np.tile(np.arange(count, dtype=np.float32)[:, None], (1, 256))
        return Keypoints(points, np.linspace(0.9, 0.5, count, dtype=np.float32), descriptors)

    def settings(self):
        return {"name": "few"}


@pytest.mark.usefixtures("stub")
def test_omniglue_gets_our_detections():
    system = load_system("omniglue", device="cpu")
    detector = FewKeypoints([[3.0, 4.0], [7.5, 8.5]], [[1.0, 2.0]])
    system._detections.__dict__["detector"] = detector
    images = pictures()
    system.matcher.model = types.SimpleNamespace(sp_extract="its own")
    system.match(*images)
    for given, seen in zip(images, detector.seen, strict=True):
        np.testing.assert_array_equal(given, seen)
    given = system.matcher.model.sp_extract
    # Asked in the order of the images, as by its own code while it matches.
    points, descriptors, scores = given(None)
    np.testing.assert_array_equal(points, [[3.0, 4.0], [7.5, 8.5]])
    assert descriptors.shape == (2, 256)
    np.testing.assert_allclose(scores, [0.9, 0.5])
    assert given(None)[0].tolist() == [[1.0, 2.0]]
    assert system.settings()["detector"] == {"name": "few"}


def test_offline_forbids_the_hub_while_the_matcher_is_made(stub, monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("MANYMATCH_WEIGHTS", raising=False)
    with pytest.raises(ValueError, match="run `hf download vismatch/xoftr`"):
        load_system("xoftr", device="cpu", offline=True).match(*pictures())
    assert not stub.calls
    # As the hub's library keeps files.
    place = tmp_path / "models--vismatch--xoftr"
    (place / "snapshots" / "abc").mkdir(parents=True)
    (place / "snapshots" / "abc" / "xoftr_640.safetensors").write_bytes(b"")
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("abc")
    before = constants.HF_HUB_OFFLINE
    load_system("xoftr", device="cpu", offline=True).match(*pictures())
    assert stub.offline == [True]
    assert before == constants.HF_HUB_OFFLINE


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("xoftr", "hf download vismatch/xoftr"),
        ("mast3r", "hf download naver/MASt3R_ViTLarge_BaseDecoder_512_catmlpdpt_metric"),
        ("roma", "curl -L --create-dirs -o "),
    ],
)
def test_offline_the_sentence_says_which_weights_are_missing(
    stub, name, command, monkeypatch, tmp_path
):
    for variable in ("HF_HOME", "HF_HUB_CACHE", "TORCH_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.delenv("MANYMATCH_WEIGHTS", raising=False)
    sentence = load_system(name, offline=True).missing(fetch=True)
    assert f"run `{command}" in sentence
    # Without that the package fetches them by itself.
    assert load_system(name, offline=False).missing(fetch=True) is None
    assert not stub.calls
