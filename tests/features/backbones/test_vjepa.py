"""V-JEPA 2.1: against a slow twin, any grid, what rotary positions must keep, checkpoints."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from manymatch.features import registry  # noqa: E402
from manymatch.features.backbones.vjepa import (  # noqa: E402
    VJepa,
    build_network,
    rotate,
    rotation,
)
from manymatch.features.debias import PositionalBasis  # noqa: E402
from manymatch.features.registry import load_backbone, models  # noqa: E402
from manymatch.features.weight_files import WeightsError  # noqa: E402
from manymatch.features.weights import random_weights  # noqa: E402
from tests.oracles import vjepa as twin  # noqa: E402

TINY = (128, 192, (1, 2, 3, 4))
NAME = "vjepa2.1-vitl16"


@pytest.fixture(scope="module")
def network():
    """Two heads, four blocks; biases and norms made uneven, as a trained network's are."""
    module = random_weights(build_network(*TINY))
    generator = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        if parameter.ndim == 1:
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return module


@pytest.fixture
def tiny(monkeypatch):
    dim, hidden, normed = TINY
    settings = {"entry": "ema_encoder", "hidden": hidden, "normed": normed}
    small = dataclasses.replace(models()[NAME], dim=dim, settings=settings)
    monkeypatch.setitem(registry._catalogue(), NAME, small)


def run(network, pixels, layers, *, norm, size=TINY):
    return VJepa(models()[NAME], size[2], network).forward(pixels, layers, norm)


def image(rows, columns, seed=0, count=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, 16 * rows, 16 * columns, generator=generator)


@pytest.mark.parametrize("grid", [(2, 3), (1, 4), (3, 1), (1, 1)])
def test_equals_the_slow_twin(network, grid):
    pixels = image(*grid)
    found = run(network, pixels, [1, 2, 3, 4], norm=False)
    slow = twin.encode(network.state_dict(), pixels[0].double().numpy(), 4)
    for k, expected in enumerate(slow, start=1):
        got = found[k][0].permute(1, 2, 0).numpy()
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, atol=2e-5 * np.abs(expected).max())


def test_norms_of_their_own_and_the_last_one_for_the_others():
    size = (64, 64, (2, 3, 4, 6))
    module = random_weights(build_network(*size))
    for k, norm in enumerate(module["norms_block"]):
        norm.weight.fill_(k + 1.0)
    raw, normed = (
        run(module, image(2, 3), range(1, 7), norm=norm, size=size) for norm in (False, True)
    )
    for layer, which in {1: 3, 2: 0, 3: 1, 4: 2, 5: 3, 6: 3}.items():
        expected = module["norms_block"][which](raw[layer].permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        torch.testing.assert_close(normed[layer], expected)


@settings(max_examples=25)
@given(rows=st.integers(1, 7), columns=st.integers(1, 7), seed=st.integers(0, 9))
def test_rotation_equals_complex_numbers(rows, columns, seed):
    vectors = np.random.default_rng(seed).normal(size=(rows * columns, 64))
    got = rotate(torch.from_numpy(vectors).float(), *rotation(rows, columns)).numpy()
    expected = [
        twin.turned(vector, *divmod(i, columns), rows, columns) for i, vector in enumerate(vectors)
    ]
    np.testing.assert_allclose(got, expected, atol=2e-5)


@settings(max_examples=25)
@given(data=st.data(), rows=st.integers(2, 9), columns=st.integers(2, 9))
def test_logits_depend_on_relative_positions_only(data, rows, columns):
    query, key = torch.randn(2, 64, generator=torch.Generator().manual_seed(rows * columns)).split(
        1
    )
    q, k = (
        rotate(v.expand(rows * columns, 64), *rotation(rows, columns)).unflatten(0, (rows, columns))
        for v in (query, key)
    )
    dr, dc = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, columns - 1))
    logits = [
        float(q[r, c] @ k[r + dr, c + dc]) for r in range(rows - dr) for c in range(columns - dc)
    ]
    np.testing.assert_allclose(logits, logits[0], atol=2e-4)


def test_positions_are_those_of_the_pretraining_grid():
    # Twice as fine a grid has every cell of the pretraining grid, at the same angles.
    coarse, fine = rotation(16, 16), rotation(31, 31)
    for a, b in zip(coarse, fine, strict=True):
        torch.testing.assert_close(
            a.unflatten(0, (16, 16)), b.unflatten(0, (31, 31))[::2, ::2], atol=1e-6, rtol=0
        )
    # Corners do not depend on the grid; time and the last channels never turn.
    last = [rotation(n, m)[0][-1] for n, m in ((2, 3), (40, 64))]
    torch.testing.assert_close(*last, atol=1e-6, rtol=0)
    cosine, sine = rotation(5, 7)
    still = [*range(20), *range(60, 64)]
    assert (cosine[:, still] == 1).all()
    assert (sine[:, still] == 0).all()


def test_without_content_there_is_no_position(network):
    # All values are alike, so attention mixes nothing: relative positions alone leave no trace.
    black = torch.full((1, 3, 64, 96), -2.0)
    for layer, value in run(network, black, [1, 4], norm=True).items():
        assert float(value.std(dim=(2, 3)).max()) < 1e-5, layer
        assert PositionalBasis.from_map(value[0].numpy()).rank == 0


def published_names(depth):
    """Names in the published checkpoints, without prefixes."""
    parts = ["norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"]
    layers = ["patch_embed.proj", "patch_embed_img.proj"]
    layers += [f"blocks.{k}.{part}" for k in range(depth) for part in parts]
    layers += [f"norms_block.{k}" for k in range(4)]
    return {"img_mod_embed", "video_mod_embed"} | {
        f"{layer}.{what}" for layer in layers for what in ("weight", "bias")
    }


@pytest.mark.parametrize("name", [m.name for m in models().values() if m.family == "vjepa2.1"])
def test_published_networks(name):
    model = models()[name]
    dim, hidden, normed = model.dim, model.settings["hidden"], model.settings["normed"]
    with torch.device("meta"):
        module = build_network(dim, hidden, normed)
    state = module.state_dict()
    depth = normed[-1]
    assert set(state) == published_names(depth)
    assert state["patch_embed.proj.weight"].shape == (dim, 3, 2, 16, 16)
    assert state["patch_embed_img.proj.weight"].shape == (dim, 3, 1, 16, 16)
    assert state["img_mod_embed"].shape == (1, 1, dim)
    assert state["blocks.0.attn.qkv.weight"].shape == (3 * dim, dim)
    assert state["blocks.0.mlp.fc1.weight"].shape == (hidden, dim)
    block = 4 * dim * dim + 2 * dim * hidden + 9 * dim + hidden
    expected = depth * block + 3 * 256 * 3 * dim + 2 * dim + 2 * dim + 4 * 2 * dim
    assert sum(p.numel() for p in module.parameters()) == expected
    assert (model.num_layers, model.dim, model.parameters) == (depth, dim, expected)
    # The round numbers by which the family is known.
    millions = {"vitb": 87, "vitl": 305, "vitg": 1013, "vitG": 1845}
    assert round(expected / 1e6) == millions[name.split("-")[1].removesuffix("16")]


def checkpoint(folder, state, entry="ema_encoder"):
    """Write a file like the published ones: several networks, training's prefixes."""
    prefixed = {f"module.backbone.{key}": value for key, value in state.items()}
    path = folder / "vjepa.pt"
    torch.save({entry: prefixed, "encoder": {"module.x": torch.zeros(1)}, "epoch": 3}, path)
    return path


@pytest.mark.usefixtures("tiny")
def test_checkpoint_round_trip(network, tmp_path):
    path = checkpoint(tmp_path, network.state_dict())
    backbone = load_backbone(NAME, weights=path)
    assert not backbone.module.training
    assert not any(p.requires_grad for p in backbone.module.parameters())
    pixels = image(2, 3)
    expected = run(network, pixels, [4], norm=True)[4]
    assert torch.equal(backbone.forward(pixels, [4], norm=True)[4], expected)


@pytest.mark.usefixtures("tiny")
def test_damaged_files_are_refused(network, tmp_path):
    path = checkpoint(tmp_path, network.state_dict())
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(WeightsError, match="damaged"):
        load_backbone(NAME, weights=path)
    state = dict(network.state_dict())
    del state["norms_block.2.bias"]
    with pytest.raises(WeightsError, match=r"1 missing of 62.*'norms_block.2.bias'"):
        load_backbone(NAME, weights=checkpoint(tmp_path, state))
    path = checkpoint(tmp_path, network.state_dict(), entry="target_encoder")
    with pytest.raises(WeightsError, match="lacks the entry 'ema_encoder'"):
        load_backbone(NAME, weights=path)
