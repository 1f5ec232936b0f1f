"""Any ViT of timm through one adapter."""

from __future__ import annotations

import importlib.util
import sys

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("timm") is None:
    pytest.skip("timm is not installed", allow_module_level=True)

from manymatch.features.backbones.published import load_timm  # noqa: E402
from manymatch.features.registry import load_backbone  # noqa: E402
from manymatch.features.weights import WeightsError  # noqa: E402
from tests.support.tiny_networks import pixels  # noqa: E402
from tests.support.torchvision_stub import import_timm  # noqa: E402

# With a class token; with registers and mean pooling; with rotary positions; with a tag.
MODELS = ("test_vit", "test_vit2", "vit_pe_spatial_tiny_patch16_512", "test_vit.r160_in1k")


@pytest.fixture(scope="module")
def timm():
    return import_timm()


@pytest.fixture(scope="module", params=MODELS)
def backbone(request, timm):
    assert timm.is_model(request.param)
    return load_timm(request.param, weights="random")


def test_layers_are_the_outputs_of_the_blocks(backbone):
    rows, columns = 3, 5
    x = pixels(backbone.patch_size, rows, columns, batch=2)
    module = backbone.module
    outputs = []
    handles = [
        block.register_forward_hook(lambda _m, _i, output: outputs.append(output))
        for block in module.blocks
    ]
    with torch.inference_mode():
        module.forward_features(x)
        for handle in handles:
            handle.remove()
        raw = backbone.forward(x, [1, 3], norm=False)
        normed = backbone.forward(x, [3], norm=True)[3]
        for layer in (1, 3):
            patches = outputs[layer - 1][:, module.num_prefix_tokens :]
            expected = patches.transpose(1, 2).reshape(2, backbone.dim, rows, columns)
            torch.testing.assert_close(raw[layer], expected, atol=1e-4, rtol=1e-4)
        tokens = module.norm(outputs[2])[:, module.num_prefix_tokens :]
    expected = tokens.transpose(1, 2).reshape(2, backbone.dim, rows, columns)
    torch.testing.assert_close(normed, expected, atol=1e-4, rtol=1e-4)


def test_weights_of_a_file_with_a_classifier(timm, tmp_path, monkeypatch):
    whole = timm.create_model("test_vit", num_classes=7)
    path = tmp_path / "whole.pth"
    torch.save(whole.state_dict(), path)
    backbone = load_backbone("timm:test_vit", weights=path)
    assert torch.equal(backbone.module.norm.weight, whole.norm.weight)
    assert torch.equal(backbone.module.blocks[1].attn.qkv.weight, whole.blocks[1].attn.qkv.weight)
    # Under the hub's name in a folder of one's own.
    monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
    (tmp_path / "timm").mkdir()
    path.rename(tmp_path / "timm" / "test_vit.r160_in1k.pth")
    assert load_timm("test_vit", offline=True).licence == "apache-2.0"
    state = whole.state_dict()
    del state["blocks.1.norm1.weight"]
    torch.save(state, path)
    with pytest.raises(WeightsError, match=r"those of 'timm:test_vit', .* 1 missing of"):
        load_timm("test_vit", weights=path)


def test_missing_weights(timm, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert timm.is_model("test_vit")
    with pytest.raises(WeightsError, match=r"`hf download timm/test_vit\.r160_in1k`"):
        load_timm("test_vit", offline=True)


@pytest.mark.parametrize("name", ["resnet18", "swin_tiny_patch4_window7_224"])
def test_what_is_no_plain_vit_is_refused(timm, name):
    assert timm.is_model(name)
    with pytest.raises(ValueError, match="model must be a vision transformer of timm"):
        load_timm(name, weights="random")


def test_unknown_names(timm):
    assert not timm.is_model("vit_tiny_patch16_22")
    with pytest.raises(ValueError, match="did you mean 'vit_tiny_patch16_224', got"):
        load_timm("vit_tiny_patch16_22")


def test_without_timm_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "manymatch\[timm\]"'):
        load_timm("test_vit")
