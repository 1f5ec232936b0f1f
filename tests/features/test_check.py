"""`check_backbone` passes good backbones and names what is wrong with broken ones."""

import re

import pytest

torch = pytest.importorskip("torch")

from manymatch.features.backbones import Backbone  # noqa: E402
from manymatch.features.backbones.vjepa import VJepa, build_network  # noqa: E402
from manymatch.features.check import check_backbone  # noqa: E402
from manymatch.features.registry import models  # noqa: E402
from manymatch.features.tensors import random_weights  # noqa: E402


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
    assert max(map(abs, report.offset)) < 0.1
    assert str(report) == f"filters, layer {report.layer}: no problems found."


class Shuffled(Good):
    def change(self, value):
        rows, columns = value.shape[2:]
        order = torch.randperm(rows * columns, generator=torch.Generator().manual_seed(3))
        return value.flatten(2)[:, :, order].unflatten(2, (rows, columns))


class Transposed(Good):
    def change(self, value):
        return value.transpose(2, 3)


class TransposedReading(Good):
    """Tokens in column order, read in row order: the shape is right."""

    def change(self, value):
        rows, columns = value.shape[2:]
        return value.transpose(2, 3).flatten(2).unflatten(2, (rows, columns))


class PrefixKept(Good):
    """One prefix token taken for the first cell; the last cell falls off."""

    def change(self, value):
        rows, columns = value.shape[2:]
        flat = torch.cat([value.mean(dim=(2, 3), keepdim=True).flatten(2), value.flatten(2)], dim=2)
        return flat[:, :, : rows * columns].unflatten(2, (rows, columns))


class OffByOne(Good):
    def change(self, value):
        return torch.roll(value, 1, dims=3)


class CentrePadded(Good):
    """The image in the middle of a frame that is half a patch larger on every side."""

    def forward(self, pixels, layers, norm):
        rows, columns = pixels.shape[2] // 8, pixels.shape[3] // 8
        padded = torch.nn.functional.pad(pixels, (4, 4, 4, 4))
        maps = super().forward(padded, layers, norm)
        return {k: value[:, :, :rows, :columns] for k, value in maps.items()}


class WrongOrigin(Good):
    origin = 11.5


class WrongDim(Good):
    dim = 15

    def __init__(self):
        super().__init__()
        self.module = torch.nn.ModuleList(
            [torch.nn.Conv2d(3, 16, 8, 8), torch.nn.Conv2d(16, 16, 1)]
        )
        self.module.eval()


class NotFinite(Good):
    def change(self, value):
        return value / torch.zeros_like(value)


class Constant(Good):
    def change(self, value):
        return torch.ones_like(value)


class Noisy(Good):
    def change(self, value):
        return value + torch.randn_like(value)


class BatchDependent(Good):
    """Normalised over the batch."""

    def change(self, value):
        return value - 0.5 * value.mean(dim=0, keepdim=True)


class OneSize(Good):
    """Only for the grid of its position embedding."""

    def change(self, value):
        if value.shape[2] < 5:
            raise RuntimeError("position embedding does not fit\nat all")
        return value


class OnlyLast(Good):
    """Forgets the other layers, and numbers what it returns by what was asked."""

    def forward(self, pixels, layers, norm):
        return super().forward(pixels, layers, norm) if len(layers) == 1 else {}


class OnlyTensor(Good):
    def forward(self, pixels, layers, norm):
        return super().forward(pixels, layers, norm)[layers[0]]


class Training(Good):
    def __init__(self):
        super().__init__()
        self.module.train()


class BadNumbers(Good):
    mean, std = (0.5, 0.5), (0.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Shuffled, "must shift the map alike"),
        (Shuffled, "must change the map most at its cell"),
        (Transposed, r"must have shape \(1, 16, 9, 13\), got \(1, 16, 13, 9\)"),
        (TransposedReading, "must shift the map alike"),
        (PrefixKept, r"the change lies \+1.0 cells along x and \+0.0 along y"),
        (OffByOne, r"the change lies \+1.0 cells along x"),
        (CentrePadded, "must change the map most at its cell"),
        (WrongOrigin, r"the change lies \+1.0 cells along x and \+1.0 along y"),
        (WrongDim, r"must have shape \(1, 15, 9, 13\)"),
        (NotFinite, "must be finite"),
        (Constant, "must vary over an image"),
        (Noisy, "the same map twice"),
        (BatchDependent, "alone and in a batch"),
        (OneSize, "it raised RuntimeError: position embedding does not fit at all"),
        (OnlyLast, "when others are asked for with it"),
        (OnlyTensor, "must return a dict of layer to tensor, got Tensor"),
        (Training, "evaluation mode"),
        (BadNumbers, "mean must be three numbers"),
        (BadNumbers, "std must be three positive numbers"),
    ],
)
def test_broken_ones_are_caught(kind, says):
    report = check_backbone(kind())
    assert not report.ok
    text = str(report)
    assert text.startswith("filters, layer ")
    assert len(text.splitlines()) == 1 + len(report.problems)
    assert re.search(says, text), text


def test_position_does_not_hide_a_wrong_order():
    class Both(Positional):
        def change(self, value):
            return OffByOne.change(self, super().change(value))

    assert not check_backbone(Both()).ok


@pytest.mark.parametrize("layer", [0, 3, 1.5])
def test_layer_must_exist(layer):
    with pytest.raises(ValueError, match="layer must be"):
        check_backbone(Good(), layer=layer)
