"""Files as their authors publish them: every name of every size, and the numbers that come out.

The networks are written out here a second time, with the published names and nothing else.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch.nn import functional as f  # noqa: E402

from manymatch.features.backbones import published as dino  # noqa: E402
from manymatch.features.device import weights_hash  # noqa: E402
from manymatch.features.registry import load_detector, models  # noqa: E402
from manymatch.features.weight_files import WeightsError  # noqa: E402
from manymatch.features.weights import renamed  # noqa: E402
from tests.support import tiny_networks as tiny  # noqa: E402


def linear(name, rows, columns, *, bias=True):
    return {f"{name}.weight": (rows, columns)} | ({f"{name}.bias": (rows,)} if bias else {})


def norm(name, dim):
    return {f"{name}.weight": (dim,), f"{name}.bias": (dim,)}


def vit_shapes(config, local_norm):
    """Tensors of Meta's DINOv2 files, which have an image size, and of those of DINOv3."""
    dim, patch, second = config["hidden_size"], config["patch_size"], "image_size" in config
    registers, has_bias = config.get("num_register_tokens", 0), config.get("query_bias", True)
    shapes = {"cls_token": (1, 1, dim), "mask_token": (1, dim)}
    shapes |= {"patch_embed.proj.weight": (dim, 3, patch, patch), "patch_embed.proj.bias": (dim,)}
    if second:
        hidden, gate = 4 * dim, {"w12": 2, "w3": 0}
        shapes |= {"pos_embed": (1, 1 + (config["image_size"] // patch) ** 2, dim)}
        shapes |= {"register_tokens": (1, registers, dim)} if registers else {}
    else:
        hidden, gate = config["intermediate_size"], {"w1": 1, "w2": 1, "w3": 0}
        shapes |= {"rope_embed.periods": (dim // config["num_attention_heads"] // 4,)}
        shapes |= {"storage_tokens": (1, 4, dim)}
    perceptron = {"fc1": 1, "fc2": 0}
    if config.get("use_swiglu_ffn") or config.get("use_gated_mlp"):
        perceptron = gate
        hidden = (int(4 * dim * 2 / 3) + 7) // 8 * 8 if second else hidden
    for k in range(config["num_hidden_layers"]):
        block = f"blocks.{k}"
        shapes |= norm(f"{block}.norm1", dim) | norm(f"{block}.norm2", dim)
        shapes |= linear(f"{block}.attn.qkv", 3 * dim, dim, bias=has_bias)
        shapes |= {f"{block}.attn.qkv.bias_mask": (3 * dim,)} if has_bias and not second else {}
        shapes |= linear(f"{block}.attn.proj", dim, dim)
        shapes |= {f"{block}.ls1.gamma": (dim,), f"{block}.ls2.gamma": (dim,)}
        for name, copies in perceptron.items():
            rows, columns = (copies * hidden, dim) if copies else (dim, hidden)
            shapes |= linear(f"{block}.mlp.{name}", rows, columns)
    shapes |= norm("local_cls_norm", dim) if local_norm else {}
    return shapes | norm("norm", dim)


def convnext_shapes(config):
    dims = config["hidden_sizes"]
    shapes = {}
    for i, (dim, depth) in enumerate(zip(dims, config["depths"], strict=True)):
        before = 3 if i == 0 else dims[i - 1]
        kernel, (conv, around) = (4, (0, 1)) if i == 0 else (2, (1, 0))
        stem = f"downsample_layers.{i}"
        shapes[f"{stem}.{conv}.weight"] = (dim, before, kernel, kernel)
        shapes[f"{stem}.{conv}.bias"] = (dim,)
        shapes |= norm(f"{stem}.{around}", dim if i == 0 else before)
        for k in range(depth):
            block = f"stages.{i}.{k}"
            shapes |= {f"{block}.dwconv.weight": (dim, 1, 7, 7), f"{block}.dwconv.bias": (dim,)}
            shapes |= norm(f"{block}.norm", dim) | {f"{block}.gamma": (dim,)}
            shapes |= linear(f"{block}.pwconv1", 4 * dim, dim)
            shapes |= linear(f"{block}.pwconv2", dim, 4 * dim)
    return shapes | norm("norm", dims[-1]) | norm("norms.3", dims[-1])


def shapes_of(name, stem, config):
    if stem == "DINOv3ConvNext":
        return convnext_shapes(config), dict
    convert = dino.without_key_bias if stem == "DINOv3ViT" else dino.split
    return vit_shapes(config, local_norm="7b" in name), convert


#: Published tensors that the networks do not have.
WITHOUT_PLACE = ("bias_mask", "rope_embed.periods", "local_cls_norm", "norms.3")


@pytest.mark.parametrize("name", [m.name for m in models().values() if "dino" in m.family])
def test_every_size_has_a_place_for_every_published_tensor(name):
    config = dict(models()[name].settings)
    stem = config.pop("network")
    shapes, convert = shapes_of(name, stem, config)
    # Names and shapes alone, as the largest sizes do not fit into memory.
    small = {key: torch.zeros(1).expand(shape) for key, shape in shapes.items()}
    converted = renamed(convert(small), models()[name])
    with torch.device("meta"):
        network = getattr(transformers, f"{stem}Model")(
            getattr(transformers, f"{stem}Config")(**config)
        )
        hub = hub_names(network)
    got = {key: tuple(value.shape) for key, value in converted.items()}
    assert got == hub
    stored = sum(
        math.prod(shape)
        for key, shape in shapes.items()
        if not any(part in key for part in WITHOUT_PLACE)
    )
    biases = sum(math.prod(s) // 3 for k, s in shapes.items() if k.endswith("qkv.bias"))
    used = sum(map(math.prod, got.values()))
    assert stored - (biases if stem == "DINOv3ViT" else 0) == used


def hub_names(network):
    """Names and shapes under which files on the hub hold the tensors of a network."""
    stem = type(network).__name__.removesuffix("Model")
    names = {key: tuple(value.shape) for key, value in network.state_dict().items()}
    if stem.startswith("DINOv3"):
        return {key.removeprefix("model."): shape for key, shape in names.items()}
    parts = {"q_proj": "attention.query", "k_proj": "attention.key", "v_proj": "attention.value"}
    parts |= {"o_proj": "output.dense"}
    renamed = {}
    for key, shape in names.items():
        name = key
        for new, old in parts.items():
            name = name.replace(f".attention.{new}.", f".attention.{old}.")
        # One matrix for both halves of the gated perceptron.
        name = name.replace(".mlp.down_proj.", ".mlp.weights_out.")
        if ".mlp.up_proj." in name:
            continue
        if ".mlp.gate_proj." in name:
            name = name.replace(".mlp.gate_proj.", ".mlp.weights_in.")
            shape = (2 * shape[0], *shape[1:])  # noqa: PLW2901
        renamed[name] = shape
    return renamed


def random_state(shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for key, shape in shapes.items():
        scale = math.prod(shape[1:]) ** -0.5 if len(shape) > 1 and "token" not in key else 0.3
        state[key] = scale * torch.randn(shape, generator=generator)
        if key.endswith(("norm1.weight", "norm2.weight", "norm.weight", ".gamma")):
            state[key] += 1.0
        if key.endswith("bias_mask"):
            # As published: ones, and zeros for the keys.
            state[key] = torch.ones(shape)
            state[key][shape[0] // 3 : 2 * shape[0] // 3] = 0.0
    if "rope_embed.periods" in state:
        count = len(state["rope_embed.periods"])
        exact = 100.0 ** (torch.arange(count) / count)
        state["rope_embed.periods"] = exact.bfloat16()
    for kind in ("weight", "bias"):
        if f"norms.3.{kind}" in state:
            state[f"norms.3.{kind}"] = state[f"norm.{kind}"]
    return state


def layer_norm(state, name, x, eps):
    return f.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], eps)


def perceptron(state, name, x):
    def dense(part, x):
        return x @ state[f"{name}.{part}.weight"].T + state[f"{name}.{part}.bias"]

    if f"{name}.fc1.weight" in state:
        return dense("fc2", f.gelu(dense("fc1", x)))
    if f"{name}.w12.weight" in state:
        first, second = dense("w12", x).chunk(2, dim=-1)
    else:
        first, second = dense("w1", x), dense("w2", x)
    return dense("w3", f.silu(first) * second)


def turned(x, angles, prefix):
    """Rotate the patches' channels, the first half against the second."""
    half = x.shape[-1] // 2
    first, second = x[..., prefix:, :half], x[..., prefix:, half:]
    cosine, sine = angles.cos(), angles.sin()
    patches = torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)
    return torch.cat([x[..., :prefix, :], patches], dim=-2)


def published_vit(state, pixels, *, heads, patch, eps):
    """Output of the last block and the norm, with the names of Meta's files."""
    x = f.conv2d(
        pixels, state["patch_embed.proj.weight"], state["patch_embed.proj.bias"], stride=patch
    )
    rows, columns = x.shape[2:]
    x = x.flatten(2).transpose(1, 2)
    x = torch.cat([state["cls_token"], x], dim=1)
    if "pos_embed" in state:
        x = x + state["pos_embed"]
    extra = state.get("register_tokens", state.get("storage_tokens", x[:, :0]))
    x = torch.cat([x[:, :1], extra, x[:, 1:]], dim=1)
    prefix = 1 + extra.shape[1]
    angles = None
    if "rope_embed.periods" in state:
        y, z = (2 * (torch.arange(n) + 0.5) / n - 1 for n in (rows, columns))
        where = torch.stack(torch.meshgrid(y, z, indexing="ij"), dim=-1).reshape(-1, 2)
        periods = state["rope_embed.periods"].float()
        angles = (2 * math.pi * where[:, :, None] / periods).flatten(1)
    for k in range(sum(key.endswith(".ls1.gamma") for key in state)):
        name = f"blocks.{k}"
        fused = layer_norm(state, f"{name}.norm1", x, eps) @ state[f"{name}.attn.qkv.weight"].T
        if f"{name}.attn.qkv.bias" in state:
            bias = state[f"{name}.attn.qkv.bias"]
            fused = fused + bias * state.get(f"{name}.attn.qkv.bias_mask", torch.ones(()))
        q, k_, v = (
            part.unflatten(2, (heads, -1)).transpose(1, 2) for part in fused.chunk(3, dim=2)
        )
        if angles is not None:
            q, k_ = turned(q, angles, prefix), turned(k_, angles, prefix)
        weights = (q @ k_.transpose(2, 3) / q.shape[-1] ** 0.5).softmax(dim=-1)
        mixed = (weights @ v).transpose(1, 2).flatten(2)
        mixed = mixed @ state[f"{name}.attn.proj.weight"].T + state[f"{name}.attn.proj.bias"]
        x = x + state[f"{name}.ls1.gamma"] * mixed
        hidden = perceptron(state, f"{name}.mlp", layer_norm(state, f"{name}.norm2", x, eps))
        x = x + state[f"{name}.ls2.gamma"] * hidden
    patches = layer_norm(state, "norm", x, eps)[:, prefix:]
    return patches.transpose(1, 2).unflatten(2, (rows, columns))


CASES = {
    "dinov2": ("dinov2", {}),
    "dinov2 giant": ("dinov2", {"use_swiglu_ffn": True}),
    "dinov2 with registers": ("dinov2-reg", {}),
    "dinov3": ("dinov3", {}),
    "dinov3 7b": ("dinov3-gated", {}),
    "dinov3 plus": ("dinov3-gated", {"query_bias": True, "value_bias": True}),
}


def published(tmp_path, case):
    """A published file of a small network: its backbone, its state, and its configuration."""
    family, more = CASES[case]
    stem, fields, load = tiny.FAMILIES[family]
    config = fields | more
    state = random_state(shapes_of("7b" if "7b" in case else "", stem, config)[0])
    path = tmp_path / "published.pth"
    torch.save(state, path)
    return load(tiny.record(family, stem, config), path), state, config


def load_dinov3(config, state, tmp_path):
    path = tmp_path / "changed.pth"
    torch.save(state, path)
    return dino.load_dinov3(tiny.record("dinov3", "DINOv3ViT", config), path)


@pytest.mark.parametrize("case", CASES)
def test_a_published_vit_computes_what_its_authors_does(tmp_path, case):
    backbone, state, config = published(tmp_path, case)
    pixels = tiny.pixels(config["patch_size"], 4, 4)
    how = {"heads": config["num_attention_heads"], "patch": config["patch_size"]}
    how["eps"] = 1e-6 if "dinov2" in case else 1e-5
    with torch.inference_mode():
        got = backbone.forward(pixels, [3], norm=True)[3]
        for order in ((0, 1, 2), (1, 0, 2), (0, 2, 1)):
            own = {key: value.float() for key, value in state.items()}
            for key in own:
                if key.endswith("qkv.weight"):
                    own[key] = torch.cat([own[key].chunk(3)[part] for part in order])
            expected = published_vit(own, pixels, **how)
            if order == (0, 1, 2):
                torch.testing.assert_close(got, expected, atol=2e-5, rtol=2e-5)
            else:
                # Exchanged parts of the fused matrix give other numbers.
                assert float((got - expected).abs().max()) > 1e-2


def test_a_published_convnext_computes_what_its_authors_does(tmp_path):
    state = random_state(convnext_shapes(tiny.CONVNEXT))
    path = tmp_path / "published.pth"
    torch.save(state, path)
    backbone = dino.load_convnext(tiny.record("cnx", "DINOv3ConvNext", tiny.CONVNEXT), path)
    x = pixels = tiny.pixels(32, 2, 3)

    def channels_first(name, x):
        return layer_norm(state, name, x.permute(0, 2, 3, 1), 1e-6).permute(0, 3, 1, 2)

    with torch.inference_mode():
        for i, depth in enumerate(tiny.CONVNEXT["depths"]):
            stem = f"downsample_layers.{i}"
            if i > 0:
                x = channels_first(f"{stem}.0", x)
            conv, stride = (f"{stem}.0", 4) if i == 0 else (f"{stem}.1", 2)
            x = f.conv2d(x, state[f"{conv}.weight"], state[f"{conv}.bias"], stride=stride)
            if i == 0:
                x = channels_first(f"{stem}.1", x)
            for k in range(depth):
                name = f"stages.{i}.{k}"
                weight, bias = state[f"{name}.dwconv.weight"], state[f"{name}.dwconv.bias"]
                y = f.conv2d(x, weight, bias, padding=3, groups=len(weight)).permute(0, 2, 3, 1)
                y = layer_norm(state, f"{name}.norm", y, 1e-6)
                y = f.gelu(y @ state[f"{name}.pwconv1.weight"].T + state[f"{name}.pwconv1.bias"])
                y = y @ state[f"{name}.pwconv2.weight"].T + state[f"{name}.pwconv2.bias"]
                x = x + (y * state[f"{name}.gamma"]).permute(0, 3, 1, 2)
        expected = channels_first("norm", x)
        got = backbone.forward(pixels, [4], norm=True)[4]
    torch.testing.assert_close(got, expected, atol=5e-5, rtol=5e-5)


def test_rotary_frequencies_of_the_file_are_used_and_part_of_the_hash(tmp_path):
    backbone, state, config = published(tmp_path, "dinov3")
    periods = state["rope_embed.periods"].float()
    torch.testing.assert_close(backbone.module.rope_embeddings.inv_freq, 1 / periods)
    exact = tiny.backbone("dinov3").module.rope_embeddings.inv_freq
    assert not torch.equal(1 / periods, exact)
    del state["rope_embed.periods"]
    without = load_dinov3(config, state, tmp_path)
    assert torch.equal(without.module.rope_embeddings.inv_freq, exact)
    assert weights_hash(without.module) != weights_hash(backbone.module)


@pytest.mark.parametrize("unset", [0.0, math.nan])
def test_masked_biases_of_keys_are_dropped(tmp_path, unset):
    backbone, state, config = published(tmp_path, "dinov3")
    dim = config["hidden_size"]
    for key in state:
        if key.endswith("bias_mask"):
            state[key][dim : 2 * dim] = unset
    other = load_dinov3(config, state, tmp_path)
    assert weights_hash(other.module) == weights_hash(backbone.module)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("bias_mask", None, "with a bias of keys"),
        ("blocks.1.ls1.gamma", None, "weights must"),
        ("blocks.1.extra", torch.ones(1), "weights must"),
        ("blocks.1.attn.qkv.weight", torch.ones(5, 7), "weights must"),
    ],
)
def test_published_files_must_fit(tmp_path, name, value, words):
    _, state, config = published(tmp_path, "dinov3")
    kept = {key: tensor for key, tensor in state.items() if not key.endswith(name)}
    changed = kept if value is None else kept | {name: value}
    with pytest.raises(WeightsError, match=words) as error:
        load_dinov3(config, changed, tmp_path)
    tiny.one_sentence(error)


_OUT = (64, 64, 64, 64, 128, 128, 128, 128, 256, 65, 256, 256)
_IN = (1, 64, 64, 64, 64, 128, 128, 128, 128, 256, 128, 256)
_LAYERS = ["1a", "1b", "2a", "2b", "3a", "3b", "4a", "4b", "Pa", "Pb", "Da", "Db"]
#: Channels out and in, and the size of the kernel.
SUPERPOINT = {
    f"conv{layer}": (out, into, 1 if layer in {"Pb", "Db"} else 3)
    for layer, out, into in zip(_LAYERS, _OUT, _IN, strict=True)
}


def published_superpoint(state, grey):
    """Scores of all pixels and descriptors of all cells, with the names of superpoint_v1.pth."""

    def conv(name, x):
        weight = state[f"{name}.weight"]
        return f.conv2d(x, weight, state[f"{name}.bias"], padding=weight.shape[-1] // 2)

    x = grey
    for level in "1234":
        x = conv(f"conv{level}b", conv(f"conv{level}a", x).relu()).relu()
        if level != "4":
            x = f.max_pool2d(x, 2)
    scores = conv("convPb", conv("convPa", x).relu()).softmax(dim=1)[0, :-1]
    rows, columns = scores.shape[1:]
    whole = torch.empty(8 * rows, 8 * columns)
    for place in range(64):
        whole[place // 8 :: 8, place % 8 :: 8] = scores[place]
    descriptors = conv("convDb", conv("convDa", x).relu())[0]
    return whole, descriptors / descriptors.norm(dim=0)


def test_superpoint_v1(tmp_path):
    shapes = {}
    for layer, (out, into, kernel) in SUPERPOINT.items():
        shapes |= {f"{layer}.weight": (out, into, kernel, kernel), f"{layer}.bias": (out,)}
    state = random_state(shapes)
    path = tmp_path / "superpoint_v1.pth"
    # As in 2018, before torch used archives.
    torch.save(state, path, _use_new_zipfile_serialization=False)
    detector = load_detector("superpoint", weights=path)
    assert sum(value.numel() for value in state.values()) == sum(
        parameter.numel() for parameter in detector.module.parameters()
    )
    image = np.random.default_rng(1).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None] / 255.0
    grey = (pixels * torch.tensor([0.299, 0.587, 0.114]).reshape(1, 3, 1, 1)).sum(1, keepdim=True)
    with torch.inference_mode():
        scores, cells = published_superpoint(state, grey)
        got, features = detector.maps(image)
        torch.testing.assert_close(torch.from_numpy(got), scores, atol=1e-6, rtol=1e-4)
        # Between the pixels of a cell lies its centre: sampled there, a cell's own descriptor.
        centres = torch.tensor([[8 * c + 3.5, 8 * r + 3.5] for r in range(6) for c in range(8)])
        described = torch.from_numpy(detector.describe(features, centres.numpy()))
    expected = cells.flatten(1).T
    inner = [8 * r + c for r in range(1, 5) for c in range(1, 7)]
    cosine = (described.reshape(48, -1) * expected).sum(dim=1)[inner]
    assert float(cosine.min()) > 0.99
    # No other cell is as near.
    nearest = (described.reshape(48, -1) @ expected.T).argmax(dim=1)[inner]
    assert nearest.tolist() == inner
