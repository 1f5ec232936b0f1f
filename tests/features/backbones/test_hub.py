"""Any ViT of transformers through one adapter."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
T = pytest.importorskip("transformers")

from manymatch.features.backbones.published import load_hub  # noqa: E402
from manymatch.features.registry import load_backbone  # noqa: E402
from manymatch.features.weight_files import WeightsError, load_state  # noqa: E402
from manymatch.features.weights import random_weights  # noqa: E402
from tests.support import tiny_networks as tiny  # noqa: E402

SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}
WIDE = {**SMALL, "intermediate_size": 64, "image_size": 64}
CLIP = {
    "text_config": {**SMALL, "intermediate_size": 64, "vocab_size": 99, "eos_token_id": 1},
    "vision_config": {**WIDE, "patch_size": 16},
}
DECODER = {
    "decoder_hidden_size": 16,
    "decoder_num_hidden_layers": 1,
    "decoder_num_attention_heads": 2,
    "decoder_intermediate_size": 32,
}
# What is saved, its configuration, the number of tokens before the patches.
NETWORKS = {
    "vit": (T.ViTModel, T.ViTConfig(**WIDE), 1),
    "vit-classifier": (T.ViTForImageClassification, T.ViTConfig(**WIDE), 1),
    "mae": (T.ViTMAEModel, T.ViTMAEConfig(**WIDE), 1),
    "mae-decoder": (T.ViTMAEForPreTraining, T.ViTMAEConfig(**WIDE, **DECODER), 1),
    "clip": (T.CLIPModel, T.CLIPConfig(**CLIP), 1),
    "clip-vision": (T.CLIPVisionModel, T.CLIPVisionConfig(**CLIP["vision_config"]), 1),
    "siglip": (T.SiglipVisionModel, T.SiglipVisionConfig(**WIDE), 0),
    "dinov2": (T.Dinov2Model, T.Dinov2Config(**SMALL, image_size=64), 1),
    "dinov3": (
        T.DINOv3ViTModel,
        T.DINOv3ViTConfig(**SMALL, intermediate_size=64, num_register_tokens=4),
        5,
    ),
    "radio": (T.RadioModel, T.RadioConfig(**SMALL, max_img_size=128), 10),
    "tips": (
        T.Tipsv2VisionModel,
        T.Tipsv2VisionConfig(**SMALL, image_size=56, patch_size=14),
        2,
    ),
}


def save(network, config, folder):
    random_weights(network(config)).save_pretrained(folder)
    ready = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(ready))
    return str(folder)


@pytest.fixture(scope="module", params=NETWORKS)
def case(request, tmp_path_factory):
    network, config, prefix = NETWORKS[request.param]
    folder = save(network, config, tmp_path_factory.mktemp(request.param))
    # RADIO normalises inside.
    return load_hub(folder), prefix, 0.0 if request.param == "radio" else 0.5


def own_arguments(module, x):
    """Arguments of a plain call, as the library's documentation gives them."""
    takes_any_size = isinstance(
        module, T.ViTModel | T.ViTMAEModel | T.CLIPVisionModel | T.SiglipVisionModel
    )
    return {"pixel_values": x} | ({"interpolate_pos_encoding": True} if takes_any_size else {})


def test_maps_are_the_networks_own_tokens(case):
    backbone, prefix, mean = case
    rows, columns = 3, 5
    x = tiny.pixels(backbone.patch_size, rows, columns, batch=2)
    assert backbone.mean[0] == mean
    assert (backbone.dim, backbone.num_layers, backbone.prefix) == (32, 3, prefix)
    with torch.inference_mode():
        own = backbone.module(**own_arguments(backbone.module, x), output_hidden_states=True)
        got = backbone.forward(x, [2, 3], norm=False)
        normed = backbone.forward(x, [3], norm=True)[3]
        patches = own.hidden_states[2][:, prefix:]
        if isinstance(backbone.module, T.ViTMAEModel):
            # It has shuffled them and says how.
            order = own.ids_restore[:, :, None].expand_as(patches)
            patches = patches.gather(1, order)
        expected = patches.transpose(1, 2).reshape(2, 32, rows, columns)
        torch.testing.assert_close(got[2], expected, atol=1e-4, rtol=1e-4)
        if backbone.has_norm:
            direct = backbone.final_norm(got[3].permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            torch.testing.assert_close(normed, direct, atol=1e-5, rtol=1e-5)
        else:
            torch.testing.assert_close(normed, got[3])


def test_the_first_patch_is_the_upper_left_one(case):
    backbone, _, _ = case
    x = torch.zeros(1, 3, 3 * backbone.patch_size, 4 * backbone.patch_size)
    changed = x.clone()
    patch = backbone.patch_size
    changed[:, :, patch : 2 * patch, 2 * patch : 3 * patch] = 3.0
    # Before attention mixes them strongly, the patch that changed changes most.
    with torch.inference_mode():
        before, after = (backbone.forward(image, [1], norm=False)[1] for image in (x, changed))
    difference = (after - before).norm(dim=1)[0]
    assert int(difference.argmax()) == 1 * 4 + 2


def test_by_name(tmp_path):
    folder = save(T.Dinov2Model, T.Dinov2Config(**SMALL, image_size=64), tmp_path)
    backbone = load_backbone(f"hf:{folder}")
    assert backbone.name == f"hf:{folder}"
    other = tmp_path / "other.pth"
    torch.save({k: 2 * v for k, v in load_state(folder).items()}, other)
    doubled = load_backbone(f"hf:{folder}", weights=str(other))
    assert doubled.module.layernorm.weight.eq(2.0).all()
    random = load_backbone(f"hf:{folder}", weights="random")
    assert random.module.layernorm.weight.eq(1.0).all()


def test_normalisation_is_read_from_the_preprocessor(tmp_path):
    folder = save(T.Dinov2Model, T.Dinov2Config(**SMALL, image_size=64), tmp_path)
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps({"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 2, 3]}))
    backbone = load_hub(folder)
    assert (backbone.mean, backbone.std) == ((0.1, 0.2, 0.3), (1.0, 2.0, 3.0))
    file.write_text(json.dumps({"do_normalize": False, "image_mean": [0.1, 0.2, 0.3]}))
    assert load_hub(folder).mean == (0.0, 0.0, 0.0)
    for text in ("{}", "[1]", "{", '{"image_mean": [1], "image_std": [1]}'):
        file.write_text(text)
        with pytest.raises(ValueError, match="preprocessor_config") as error:
            load_hub(folder)
        assert "\n" not in str(error.value)


REFUSED = {
    "swin": (
        T.SwinModel,
        T.SwinConfig(embed_dim=8, depths=[1, 1], num_heads=[1, 1], image_size=64),
        r"3 x 4 patches its blocks return shapes \(1, 4, 16\)|swin: ",
    ),
    "siglip2": (
        T.Siglip2VisionModel,
        T.Siglip2VisionConfig(**SMALL, intermediate_size=64),
        "missing 2 required positional arguments: 'pixel_attention_mask' and 'spatial_shapes'",
    ),
    "bert": (
        T.BertModel,
        T.BertConfig(**SMALL, intermediate_size=64),
        "unexpected keyword argument 'pixel_values'|patch_size",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_plain_vit_is_refused(kind, tmp_path):
    network, config, reason = REFUSED[kind]
    folder = save(network, config, tmp_path)
    with pytest.raises(ValueError, match=reason) as error:
        load_hub(folder)
    assert "model must be a vision transformer that transformers knows" in str(error.value)


def test_unknown_normalisation_is_refused(tmp_path):
    folder = save(T.DeiTModel, T.DeiTConfig(**WIDE), tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(ValueError, match="must be a JSON file of the normalisation"):
        load_hub(folder)


def test_foreign_code_is_not_run(tmp_path):
    folder = save(T.Dinov2Model, T.Dinov2Config(**SMALL, image_size=64), tmp_path)
    (tmp_path / "evil.py").write_text("raise SystemExit('ran')")
    config = {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsError, match=r"config\.json that transformers reads") as error:
        load_hub(folder)
    assert "\n" not in str(error.value)


def test_missing_parts(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYMATCH_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(WeightsError, match="`hf download some/vit`"):
        load_hub("some/vit")
    with pytest.raises(WeightsError, match=r"must be a folder with a config\.json, got 'some/vit'"):
        load_hub("some/vit", weights="random")
    with pytest.raises(WeightsError, match=r"must be a folder with a config\.json"):
        load_hub(str(tmp_path))
    folder = save(T.Dinov2Model, T.Dinov2Config(**SMALL, image_size=64), tmp_path / "x")
    state = load_state(folder)
    del state["encoder.layer.1.norm1.weight"]
    (tmp_path / "x" / "model.safetensors").unlink()
    torch.save(state, tmp_path / "x" / "model.pth")
    with pytest.raises(WeightsError, match="1 missing of"):
        load_hub(folder)


@pytest.mark.hub
@pytest.mark.parametrize("name", ["dinov2-vits14", "dinov2-vits14-reg"])
def test_real_weights_load(name):
    from manymatch.features.registry import models
    from manymatch.features.weights import locate

    if locate(models()[name]) is None:
        pytest.skip(f"weights of {name} are not here: hf download {models()[name].hub_id}")
    backbone = load_backbone(name, offline=True)
    with torch.inference_mode():
        got = backbone.forward(tiny.pixels(14, 8, 8), [12], norm=True)[12]
    assert torch.isfinite(got).all()
