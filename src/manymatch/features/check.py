"""Check of a backbone: shapes, repeatability and the positions of its cells."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import integer
from manymatch.features.maps import run_backbone

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
    last = backbone.num_layers
    trial = _Trial(backbone, integer(last if layer is None else layer, "layer", 1, last))
    problems: list[str] = []
    try:
        problems.extend(trial.problems())
    except Exception as error:  # noqa: BLE001 - of code that is not ours
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"
        problems.append(f"forward must not fail, but it raised {what}")
    return BackboneReport(backbone.name, trial.layer, tuple(problems), trial.offset)


class _Trial:
    """One backbone and layer under test."""

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

    def maps(self, images: _Map, *others: int) -> _Map:
        """Compute the layer's maps of a batch, maybe together with other layers."""
        layers = sorted({self.layer, *others})
        pixels = np.ascontiguousarray(images)
        return run_backbone(self.backbone, pixels, layers, norm=self.backbone.has_norm)[self.layer]

    def problems(self) -> Iterator[str]:
        """Test one thing after the other; maps of a wrong shape raise an error."""
        if self.backbone.module.training:
            yield "module must be in evaluation mode: call module.eval()"
        one = self.images[:1]
        found = self.maps(one)
        if found.shape[1] != self.backbone.dim and not self.backbone.dim_varies:
            yield f"descriptors must have length {self.backbone.dim} (dim), got {found.shape[1]}"
        if not np.isfinite(found).all():
            yield "maps must be finite, got NaN or infinity"
            return
        if (found == found[:, :, :1, :1]).all():
            yield "a map must vary over an image, got the same value in all cells"
            return
        for want, other in (
            ("the same image must give the same map twice", self.maps(one)),
            ("an image must give the same map alone and in a batch", self.maps(self.images)[:1]),
            ("a layer must be the same when others are asked for with it", self.maps(one, 1)),
        ):
            if np.abs(other - found).max() > _SAME * np.abs(found).max():
                yield want
        for rows, columns in ((1, 1), (1, 4), (3, 2)):
            self.maps(one[:, :, : rows * self.unit, : columns * self.unit])
        dx, dy = self.offset = self.measured_offset(found[0])
        if max(abs(dx), abs(dy)) > _TOLERANCE:
            # Adding zero turns -0.0 into 0.0.
            x, y = (round(value, 1) + 0.0 for value in (dx, dy))
            yield (
                "exchanging one patch of an image must change the map most at its cell, but the "
                f"change lies {x:+.1f} cells along x and {y:+.1f} along y from there"
            )

    def measured_offset(self, before: _Map) -> tuple[float, float]:
        """Exchange patches around cell centres, and find where the map changes."""
        origin, stride = self.backbone.origin_of(self.layer), self.stride
        rows, columns = before.shape[1:]
        found = []
        for _ in range(_PLACES):
            row, column = self.rng.integers(2, (rows - 2, columns - 2))
            # The square of one stride that has the cell's centre in its middle.
            top, left = (round(origin + k * stride - (stride - 1) / 2) for k in (row, column))
            changed = self.images[:1].copy()
            where = (slice(None), slice(top, top + stride), slice(left, left + stride))
            changed[0][where] = self.images[1][where]
            change = ((self.maps(changed)[0] - before) ** 2).sum(axis=0)
            found.append(_centroid(change) - (column, row))
        dx, dy = np.median(found, axis=0).tolist()
        return dx, dy


def _centroid(change: _Map) -> NDArray[np.float64]:
    """Centre (x, y) of the strongest change and its neighbours."""
    row, column = np.unravel_index(np.argmax(change), change.shape)
    y, x = np.indices(change.shape)
    near = (np.abs(y - row) <= 1) & (np.abs(x - column) <= 1)
    weight = (change * near).astype(np.float64)
    return np.array([(weight * x).sum(), (weight * y).sum()]) / max(float(weight.sum()), 1e-300)
