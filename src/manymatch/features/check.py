"""Checks of a backbone: shapes, repeatability and the positions of its cells."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import integer
from manymatch.features.device import inference, require_torch
from manymatch.features.maps import module_device

if TYPE_CHECKING:
    from manymatch.features.backbones import Backbone

_Map = NDArray[np.float32]

# Rows and columns of the test images in cells, or a few more where inputs must be multiples of
# something larger. Odd and different, so that maps which are transposed, or centred in a padded
# frame, do not fit by chance.
_ROWS, _COLUMNS = 9, 13
# Cells may be this far, in cells, from where the backbone says.
_TOLERANCE = 0.3
# How far two maps that ought to be equal may be apart, as a share of the largest value.
_SAME = 1e-3
_PLACES = 8


@dataclasses.dataclass(frozen=True)
class BackboneReport:
    """Problems that `check_backbone` found in a layer of a backbone, one sentence each."""

    name: str
    layer: int
    problems: tuple[str, ...]
    #: How far, in cells (x, y), the cell that an image patch influences most lies from where the
    #: backbone says, the median over several places; None if it was not measured.
    offset: tuple[float, float] | None = None

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def __str__(self) -> str:
        if self.ok:
            return f"{self.name}, layer {self.layer}: no problems found."
        return "\n- ".join([f"{self.name}, layer {self.layer}:", *self.problems])


def check_backbone(backbone: Backbone, *, layer: int | None = None) -> BackboneReport:
    """Try a backbone on synthetic images.

    It is asked for maps of several sizes, alone and in batches, and twice the same. Then single
    patches of an image are exchanged, which must change the map most at their cells: that catches
    shuffled tokens, transposed maps, prefix tokens that were kept, padding around the image and a
    wrong origin. Position and context may influence features, as they do in trained transformers.

    Parameters
    ----------
    backbone : Backbone
        Runs where its module is. Errors it raises become problems in the report.
    layer : int, optional
        By default the last one.
    """
    name = str(getattr(backbone, "name", type(backbone).__name__))
    problems = list(_wrong_attributes(backbone))
    if problems:
        return BackboneReport(name, 0 if layer is None else layer, tuple(problems))
    last = backbone.num_layers
    chosen = integer(last if layer is None else layer, "layer", 1, last)
    trial = _Trial(backbone, chosen)
    for test in (trial.one_map, trial.repeats, trial.sizes, trial.offsets):
        if problems and test == trial.repeats:
            break
        try:
            problems += test()
        except Exception as error:  # noqa: BLE001 - of code that is not ours
            what = f"{type(error).__name__}: {' '.join(str(error).split())}"
            problems.append(f"forward must not fail, but it raised {what}")
    return BackboneReport(name, chosen, tuple(problems), trial.offset)


def _wrong_attributes(backbone: Backbone) -> Iterable[str]:
    for name in ("patch_size", "dim", "num_layers"):
        value = getattr(backbone, name, None)
        if not isinstance(value, int) or value < 1:
            yield f"{name} must be a positive integer, got {value!r}"
    for name, want, lowest in (("mean", "numbers", -math.inf), ("std", "positive numbers", 0.0)):
        value = getattr(backbone, name, None)
        numbers = value if isinstance(value, tuple | list) else ()
        plain = all(isinstance(n, int | float) and lowest < n < math.inf for n in numbers)
        if len(numbers) != 3 or not plain:
            yield f"{name} must be three {want}, got {value!r}"
    module = getattr(backbone, "module", None)
    if not isinstance(module, require_torch().nn.Module):
        yield f"module must be a torch.nn.Module, got {type(module).__name__}"
    elif module.training:
        yield "module must be in evaluation mode: call module.eval()"


class _Trial:
    """One backbone and layer under test; the tests return problems."""

    def __init__(self, backbone: Backbone, layer: int) -> None:
        self.backbone, self.layer = backbone, layer
        self.stride = backbone.stride_of(layer)
        self.unit = math.lcm(backbone.multiple, self.stride)
        rows, columns = (-(-n * self.stride // self.unit) for n in (_ROWS, _COLUMNS))
        size = self.unit * rows, self.unit * max(columns, rows + 1)
        self.rng = np.random.default_rng(0)
        # About normalised pixels.
        self.images: _Map = self.rng.normal(size=(3, 3, *size)).astype(np.float32)
        self.offset: tuple[float, float] | None = None

    def run(self, pixels: _Map, *others: int) -> Any:
        """Compute maps as tensors by layer: the one under test, and others."""
        device = module_device(self.backbone.module)
        with inference(device, "float32"):
            batch = require_torch().from_numpy(np.ascontiguousarray(pixels)).to(device)
            layers = sorted({self.layer, *others})
            return self.backbone.forward(batch, layers, self.backbone.has_norm)

    def maps(self, images: _Map, *others: int, together: bool = False) -> _Map:
        """Compute the layer's maps, one image at a time or in one batch; empty without any."""
        batches = [images] if together else [image[None] for image in images]
        found = [self.run(batch, *others).get(self.layer) for batch in batches]
        nothing = np.zeros(0, np.float32)
        return np.concatenate([nothing if f is None else f.float().cpu().numpy() for f in found])

    def one_map(self) -> Iterable[str]:
        """Check shape, type and finite values."""
        image = self.images[:1]
        outputs = self.run(image)
        value = outputs.get(self.layer) if isinstance(outputs, dict) else None
        if not isinstance(value, require_torch().Tensor):
            yield (
                f"forward must return a dict of layer to tensor, got {type(outputs).__name__} "
                f"with {type(value).__name__} for layer {self.layer}"
            )
            return
        yield from self.wrong_shape(tuple(value.shape), image)
        if not value.is_floating_point():
            yield f"maps must be of a floating type, got {value.dtype}"
        elif not bool(value.isfinite().all()):
            yield "maps must be finite, got NaN or infinity"
        elif not bool((value != value.flatten(2)[:, :, :1, None]).any()):
            yield "a map must vary over an image, got the same value in all cells"

    def wrong_shape(self, got: tuple[int, ...], image: _Map) -> Iterable[str]:
        height, width = image.shape[2:]
        free = self.backbone.dim_varies and len(got) == 4
        dim = got[1] if free else self.backbone.dim
        want = (1, dim, height // self.stride, width // self.stride)
        if got != want:
            yield f"the map of a {width} x {height} image must have shape {want}, got {got}"

    def repeats(self) -> Iterable[str]:
        """Compare the maps of images with themselves: again, in a batch, and with another layer."""
        alone = self.maps(self.images)
        for other, want in (
            (self.maps(self.images), "the same image must give the same map twice"),
            (
                self.maps(self.images, together=True),
                "an image must give the same map alone and in a batch",
            ),
            (
                self.maps(self.images, 1),
                "a layer must be the same when others are asked for with it",
            ),
        ):
            same = other.shape == alone.shape
            if not same or np.abs(other - alone).max() > _SAME * np.abs(alone).max():
                yield want

    def sizes(self) -> Iterable[str]:
        """Ask for maps of other sizes."""
        for rows, columns in ((1, 1), (1, 4), (3, 2)):
            image = self.images[:1, :, : rows * self.unit, : columns * self.unit]
            yield from self.wrong_shape(self.maps(image).shape, image)

    def offsets(self) -> Iterable[str]:
        """Exchange patches around cell centres, and find where the map changes."""
        origin, stride = self.backbone.origin_of(self.layer), self.stride
        image, other = self.images[:1], self.images[1]
        before = self.maps(image)[0]
        rows, columns = before.shape[1:]
        found = []
        for _ in range(_PLACES):
            row, column = self.rng.integers(2, (rows - 2, columns - 2))
            # The square of one stride that has the cell's centre in its middle.
            top, left = (round(origin + k * stride - (stride - 1) / 2) for k in (row, column))
            changed = image.copy()
            where = (slice(None), slice(top, top + stride), slice(left, left + stride))
            changed[0][where] = other[where]
            change = ((self.maps(changed)[0] - before) ** 2).sum(axis=0)
            found.append(_centroid(change) - (column, row))
        dx, dy = np.median(found, axis=0).tolist()
        self.offset = dx, dy
        # Adding zero turns -0.0 into 0.0.
        x, y = (round(value, 1) + 0.0 for value in (dx, dy))
        if max(abs(dx), abs(dy)) > _TOLERANCE:
            yield (
                "exchanging one patch of an image must change the map most at its cell, but the "
                f"change lies {x:+.1f} cells along x and {y:+.1f} along y from there"
            )


def _centroid(change: _Map) -> NDArray[np.float64]:
    """Centre (x, y) of the strongest change and its neighbours."""
    row, column = np.unravel_index(np.argmax(change), change.shape)
    y, x = np.indices(change.shape)
    near = (np.abs(y - row) <= 1) & (np.abs(x - column) <= 1)
    weight = (change * near).astype(np.float64)
    return np.array([(weight * x).sum(), (weight * y).sum()]) / max(float(weight.sum()), 1e-300)
