"""`check_backbone` passes good backbones and names the faults of broken ones."""

import re

import pytest

torch = pytest.importorskip("torch")

from manymatch.features.backbones import Backbone  # noqa: E402
from manymatch.features.backbones.vjepa import VJepa, build_network  # noqa: E402
from manymatch.features.check import check_backbone  # noqa: E402
from manymatch.features.registry import models  # noqa: E402
from manymatch.features.weights import random_weights  # noqa: E402


class Good(Backbone):
    """Patches through a linear layer, then a little of the neighbours: a minimal network."""

    name, patch_size, dim, num_layers = "filters", 8, 16, 2

    def __init__(self):
        torch.manual_seed(0)
        embed = torch.nn.Conv2d(3, self.dim, 8, 8)
        mix = torch.nn.Conv2d(self.dim, self.dim, 3, padding=1)
        with torch.no_grad():
            mix.weight.mul_(0.3)
        self.module = torch.nn.ModuleList([embed, mix]).eval()

    def forward(self, pixels, layers, norm):  # noqa: ARG002
        first = self.module[0](pixels)
        maps = {1: first, 2: first + self.module[1](first)}
        return {k: self.change(maps[k]) for k in layers}

    def change(self, value):
        return value


class Positional(Good):
    """A strong position on top, as transformers have it."""

    def change(self, value):
        rows, columns = value.shape[2:]
        y = torch.linspace(-3, 3, rows)[:, None]
        x = torch.linspace(-3, 3, columns)
        ramps = torch.stack([y + 0 * x, 0 * y + x, torch.sin(2 * x) + y, torch.cos(x * y)])
        return torch.cat([value[:, :4] + ramps, value[:, 4:]], dim=1)


class Attending(Good):
    """A transformer of random weights."""

    patch_size, dim, num_layers = 16, 64, 4

    def __init__(self):
        normed = (1, 2, 3, 4)
        self.module = random_weights(build_network(64, 128, normed))
        self.encoder = VJepa(models()["vjepa2.1-vitb16"], normed, self.module)

    def forward(self, pixels, layers, norm):
        return self.encoder.forward(pixels, layers, norm)


class Pyramid(Good):
    """Two layers of different strides, dims and origins; sizes must be multiples of 16."""

    patch_size, dim, num_layers, multiple, dim_varies = 16, 24, 2, 16, True

    def __init__(self):
        torch.manual_seed(0)
        self.module = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 4, 4), torch.nn.Conv2d(16, 24, 4, 4)
        ).eval()

    def forward(self, pixels, layers, norm):  # noqa: ARG002
        first = self.module[0](pixels)
        maps = {1: first, 2: self.module[1](first)}
        return {k: maps[k] for k in layers}

    def stride_of(self, layer):
        return 4 if layer == 1 else 16

    def origin_of(self, layer):
        return 1.5 if layer == 1 else 7.5


@pytest.mark.parametrize("kind", [Good, Positional, Attending, Pyramid])
@pytest.mark.parametrize("layer", [1, None])
def test_good_ones_pass(kind, layer):
    report = check_backbone(kind(), layer=layer)
    assert report.ok, str(report)
    assert report.layer == (kind.num_layers if layer is None else 1)
    assert str(report) == f"filters, layer {report.layer}: no problems found."


def grid(value):
    return tuple(value.shape[2:])


def shuffled(value):
    order = torch.randperm(value[0, 0].numel(), generator=torch.Generator().manual_seed(3))
    return value.flatten(2)[:, :, order].unflatten(2, grid(value))


def read_in_columns(value):
    """Tokens in column order, read in row order: the shape is right."""
    return value.transpose(2, 3).flatten(2).unflatten(2, grid(value))


def prefix_kept(value):
    """One prefix token taken for the first cell; the last cell falls off."""
    flat = torch.cat([value.mean(dim=(2, 3), keepdim=True).flatten(2), value.flatten(2)], dim=2)
    return flat[:, :, :-1].unflatten(2, grid(value))


def off_by_one(value):
    return torch.roll(value, 1, dims=3)


def one_size(value):
    """Only for the grid of its position embedding."""
    if value.shape[2] < 5:
        raise RuntimeError("position embedding does not fit\nat all")
    return value


def centre_padded(self, pixels, layers, norm):
    """The image in the middle of a frame that is half a patch larger on every side."""
    rows, columns = pixels.shape[2] // 8, pixels.shape[3] // 8
    padded = torch.nn.functional.pad(pixels, (4, 4, 4, 4))
    maps = Good.forward(self, padded, layers, norm)
    return {k: value[:, :, :rows, :columns] for k, value in maps.items()}


def only_one_layer(self, pixels, layers, norm):
    return Good.forward(self, pixels, layers, norm) if len(layers) == 1 else {}


def only_tensor(self, pixels, layers, norm):
    return Good.forward(self, pixels, layers, norm)[layers[0]]


def change(function):
    """Change the maps of a good backbone."""
    return {"change": lambda _, value: function(value)}


BROKEN = [
    (change(shuffled), "must change the map most at its cell"),
    (
        change(lambda v: v.transpose(2, 3)),
        r"of shape \(1, D, 9, 13\) for layer 2, got \(1, 16, 13, 9\)",
    ),
    (change(read_in_columns), "must change the map most at its cell"),
    (change(prefix_kept), r"the change lies \+1.0 cells along x and \+0.0 along y"),
    (change(off_by_one), r"the change lies \+1.0 cells along x"),
    ({"forward": centre_padded}, "must change the map most at its cell"),
    ({"origin": 11.5}, r"the change lies \+1.0 cells along x and \+1.0 along y"),
    (change(lambda v: v[:, 1:]), "must have length 16 .dim., got 15"),
    (change(lambda v: v / torch.zeros_like(v)), "must be finite"),
    (change(torch.ones_like), "must vary over an image"),
    (change(lambda v: v + torch.randn_like(v)), "the same map twice"),
    (change(lambda v: v - 0.5 * v.mean(dim=0, keepdim=True)), "alone and in a batch"),
    (change(one_size), "it raised RuntimeError: position embedding does not fit at all"),
    ({"forward": only_one_layer}, "for layer 1, got \\(\\)"),
    ({"forward": only_tensor}, "forward must not fail, but it raised"),
]


@pytest.mark.parametrize(("changes", "says"), BROKEN)
def test_broken_ones_are_caught(changes, says):
    report = check_backbone(type("Broken", (Good,), changes)())
    assert not report.ok
    text = str(report)
    assert text.startswith("filters, layer ")
    assert len(text.splitlines()) == 1 + len(report.problems)
    assert re.search(says, text), text


def test_a_module_in_training_is_caught():
    backbone = Good()
    backbone.module.train()
    assert "evaluation mode" in str(check_backbone(backbone))


def test_position_does_not_hide_a_wrong_order():
    class Both(Positional):
        def change(self, value):
            return off_by_one(super().change(value))

    assert not check_backbone(Both()).ok


@pytest.mark.parametrize("layer", [0, 3, 1.5])
def test_layer_must_exist(layer):
    with pytest.raises(ValueError, match="layer must be"):
        check_backbone(Good(), layer=layer)
