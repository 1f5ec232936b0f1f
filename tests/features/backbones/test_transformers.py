"""DINOv3, DINOv2 and SigLIP 2: layers, prefix tokens, order of tokens, batches."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from manymatch.features.backbones.published import load_convnext  # noqa: E402
from manymatch.features.maps import normalised  # noqa: E402
from manymatch.features.registry import backbone_names, models  # noqa: E402
from manymatch.features.resize import Resize, resize_image  # noqa: E402
from tests.support import tiny_networks as tiny  # noqa: E402

PREFIX = {"dinov3": 5, "dinov3-gated": 5, "dinov2": 1, "dinov2-reg": 5, "siglip2": 0}
NORM = {"dinov3": "norm", "dinov2": "layernorm", "siglip2": "post_layernorm"}


def final_norm(family, module):
    return getattr(module, NORM[family.split("-")[0]])


def as_map(tokens, prefix, rows, columns):
    """Slow twin of the reshape: token by token."""
    out = torch.empty(len(tokens), tokens.shape[2], rows, columns)
    for row in range(rows):
        for column in range(columns):
            out[:, :, row, column] = tokens[:, prefix + row * columns + column]
    return out


@pytest.fixture(scope="module", params=tiny.FAMILIES)
def case(request):
    return request.param, tiny.backbone(request.param)


def test_layers_are_the_networks_own_hidden_states(case):
    family, backbone = case
    rows, columns = 3, 5
    x = tiny.pixels(backbone.patch_size, rows, columns, batch=2)
    with torch.inference_mode():
        whole = backbone.module(**backbone.inputs(x), output_hidden_states=True)
        raw = backbone.forward(x, [1, 2, 3], norm=False)
        normed = backbone.forward(x, [1, 2, 3], norm=True)
        norm = final_norm(family, backbone.module)
        for k in (1, 2, 3):
            hidden = whole.hidden_states[k]
            torch.testing.assert_close(raw[k], as_map(hidden, PREFIX[family], rows, columns))
            torch.testing.assert_close(
                normed[k], as_map(norm(hidden), PREFIX[family], rows, columns)
            )
        last = as_map(whole.last_hidden_state, PREFIX[family], rows, columns)
    torch.testing.assert_close(normed[3], last)
    assert not torch.allclose(raw[2], raw[3])


def test_a_layer_is_the_output_of_a_network_cut_there(case):
    family, backbone = case
    # A network with two blocks that has the weights of the first two.
    cut = tiny.network(family, num_hidden_layers=2)
    own = backbone.module.state_dict()
    cut.load_state_dict({key: own[key] for key in cut.state_dict()})
    x = tiny.pixels(backbone.patch_size, 4, 3)
    with torch.inference_mode():
        expected = cut(**backbone.inputs(x)).last_hidden_state
        got = backbone.forward(x, [2], norm=True)[2]
    torch.testing.assert_close(got, as_map(expected, PREFIX[family], 4, 3))


def test_random_weights_leave_rotary_positions_alone():
    random = tiny.backbone("dinov3").module.rope_embeddings
    own = tiny.network("dinov3").rope_embeddings
    for (name, a), b in zip(random.named_buffers(), own.buffers(), strict=True):
        assert torch.equal(a, b), name


def test_a_wrong_number_of_tokens_is_refused():
    backbone = tiny.backbone("dinov3")
    backbone.prefix = 4
    with (
        torch.inference_mode(),
        pytest.raises(ValueError, match=r"must return 6 tokens after 4 others .* \(1, 11, 32\)"),
    ):
        backbone.forward(tiny.pixels(16, 2, 3), [1], norm=True)


def convnext():
    return load_convnext(tiny.record("cnx", "DINOv3ConvNext", tiny.CONVNEXT), "random")


def test_convnext_stages():
    backbone = convnext()
    x = tiny.pixels(32, 3, 2, batch=2)
    with torch.inference_mode():
        whole = backbone.module(x, output_hidden_states=True)
        raw = backbone.forward(x, [1, 2, 3, 4], norm=False)
        normed = backbone.forward(x, [1, 4], norm=True)
    for layer, stride, dim in ((1, 4, 8), (2, 8, 16), (3, 16, 24), (4, 32, 32)):
        assert backbone.stride_of(layer) == stride
        assert backbone.origin_of(layer) == (stride - 1) / 2
        assert raw[layer].shape == (2, dim, 96 // stride, 64 // stride)
        torch.testing.assert_close(raw[layer], whole.hidden_states[layer])
    # Its own output has a pooled token in front.
    torch.testing.assert_close(normed[4], as_map(whole.last_hidden_state, 1, 3, 2))
    torch.testing.assert_close(normed[1], raw[1])
    assert (backbone.patch_size, backbone.dim, backbone.num_layers) == (32, 32, 4)


@given(
    width=st.integers(1, 4000),
    height=st.integers(1, 4000),
    budget=st.sampled_from([16, 256, 576, 1024]),
)
@settings(max_examples=200)
def test_budget_is_that_of_the_naflex_processor(width, height, budget):
    from transformers.models.siglip2 import image_processing_pil_siglip2 as theirs

    high, wide = theirs.get_image_size_for_max_num_patches(height, width, 16, budget)
    frame = Resize.budget(budget).plan((width, height), 16)
    assert frame.content == (wide, high) == frame.padded


@pytest.mark.parametrize("size", [(64, 48), (31, 90), (300, 201), (200, 200)])
def test_patches_are_those_of_the_naflex_processor(size):
    from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

    width, height = size
    image = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    backbone = tiny.backbone("siglip2")
    frame = Resize.budget(64).plan(size, 16)
    columns, rows = (length // 16 for length in frame.content)
    assert frame.content != size
    expected = Siglip2ImageProcessorPil(max_num_patches=64)(image, return_tensors="pt")
    x = torch.from_numpy(normalised(resize_image(image, frame), backbone))[None]
    got = backbone.inputs(x)
    count = rows * columns
    assert expected["spatial_shapes"].tolist() == got["spatial_shapes"].tolist()
    torch.testing.assert_close(
        got["pixel_values"], expected["pixel_values"][:, :count].float(), atol=1e-6, rtol=0
    )
    # Padding tokens, which theirs has and ours has not, change nothing.
    with torch.inference_mode():
        padded = backbone.module(**expected).last_hidden_state[:, :count]
        ours = backbone.forward(x, [3], norm=True)[3]
    torch.testing.assert_close(ours, as_map(padded, 0, rows, columns), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "model",
    [model for model in models().values() if "network" in model.settings],
    ids=lambda model: model.name,
)
def test_the_catalogue_states_facts(model):
    fields = dict(model.settings)
    stem = fields.pop("network")
    assert model.name in backbone_names()
    config = getattr(transformers, f"{stem}Config")(**fields)
    with torch.device("meta"):
        module = getattr(transformers, f"{stem}Model")(config)
    assert sum(parameter.numel() for parameter in module.parameters()) == model.parameters
    if stem == "DINOv3ConvNext":
        assert (config.hidden_sizes[-1], len(config.depths)) == (model.dim, model.num_layers)
        assert model.patch_size == 32
    else:
        depth = config.num_hidden_layers
        assert (config.hidden_size, depth) == (model.dim, model.num_layers)
        assert config.patch_size == model.patch_size


@pytest.mark.parametrize("name", ["siglip2-base-naflex", "siglip2-so400m-naflex"])
def test_the_download_of_siglip2_includes_the_text_encoder(name):
    fields = {key: v for key, v in models()[name].settings.items() if key != "network"}
    vision = transformers.Siglip2VisionConfig(**fields)
    shared = {key: value for key, value in fields.items() if "patch" not in key}
    text = transformers.Siglip2TextConfig(**shared, vocab_size=256_000)
    config = transformers.Siglip2Config(text_config=text.to_dict(), vision_config=vision.to_dict())
    with torch.device("meta"):
        module = transformers.Siglip2Model(config)
    count = sum(parameter.numel() for parameter in module.parameters())
    assert models()[name].size_mb == round(4e-6 * count, 1)


def test_of_a_folder_only_the_weights_are_read(tmp_path):
    folder = tiny.save("dinov2", tmp_path)
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    code = {"auto_map": dict.fromkeys(("AutoConfig", "AutoModel", "Dinov2Config"), "evil.Evil")}
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **code, "layer_norm_eps": 0.5}))
    backbone = tiny.backbone("dinov2", folder)
    assert tiny.same(backbone, "dinov2")
    assert backbone.module.layernorm.eps == 1e-6
