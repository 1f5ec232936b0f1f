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
# Cells may be this far, in cells, from where the backbone says: the median over several places.
_TOLERANCE, _PLACES = 0.3, 8
# How far two maps that ought to be equal may be apart, as a share of the largest value.
_SAME = 1e-3


@dataclasses.dataclass(frozen=True)
class BackboneReport:
    """Problems that `check_backbone` found in a layer of a backbone, one sentence each."""

    name: str
    layer: int
    problems: tuple[str, ...]

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
    chosen = integer(last if layer is None else layer, "layer", 1, last)
    problems: list[str] = []
    try:
        problems.extend(_problems(backbone, chosen))
    except Exception as error:  # noqa: BLE001 - of code that is not ours
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"
        problems.append(f"forward must not fail, but it raised {what}")
    return BackboneReport(backbone.name, chosen, tuple(problems))


def _problems(backbone: Backbone, layer: int) -> Iterator[str]:
    """Test one thing after the other; maps of a wrong shape raise an error."""

    def maps(images: _Map, *others: int) -> _Map:
        layers, pixels = sorted({layer, *others}), np.ascontiguousarray(images)
        return run_backbone(backbone, pixels, layers, norm=backbone.has_norm)[layer]

    if backbone.module.training:
        yield "module must be in evaluation mode: call module.eval()"
    stride, origin = backbone.stride_of(layer), backbone.origin_of(layer)
    unit = math.lcm(backbone.multiple, stride)
    rows, columns = (-(-n * stride // unit) for n in (_ROWS, _COLUMNS))
    rng = np.random.default_rng(0)
    # About normalised pixels.
    size = unit * rows, unit * max(columns, rows + 1)
    images = rng.normal(size=(3, 3, *size)).astype(np.float32)
    one = images[:1]
    found = maps(one)
    if found.shape[1] != backbone.dim and not backbone.dim_varies:
        yield f"descriptors must have length {backbone.dim} (dim), got {found.shape[1]}"
    if not np.isfinite(found).all():
        yield "maps must be finite, got NaN or infinity"
        return
    if (found == found[:, :, :1, :1]).all():
        yield "a map must vary over an image, got the same value in all cells"
        return
    for want, other in (
        ("the same image must give the same map twice", maps(one)),
        ("an image must give the same map alone and in a batch", maps(images)[:1]),
        ("a layer must be the same when others are asked for with it", maps(one, 1)),
    ):
        if np.abs(other - found).max() > _SAME * np.abs(found).max():
            yield want
    for rows, columns in ((1, 1), (1, 4), (3, 2)):
        maps(one[:, :, : rows * unit, : columns * unit])
    offsets = []
    for _ in range(_PLACES):
        row, column = rng.integers(2, np.array(found.shape[2:]) - 2)
        # The square of one stride that has the cell's centre in its middle.
        top, left = (round(origin + k * stride - (stride - 1) / 2) for k in (row, column))
        changed = one.copy()
        where = (slice(None), slice(top, top + stride), slice(left, left + stride))
        changed[0][where] = images[1][where]
        change = ((maps(changed) - found)[0] ** 2).sum(axis=0)
        # Centre (x, y) of the strongest change and its neighbours.
        strongest = np.unravel_index(np.argmax(change), change.shape)
        y, x = np.indices(change.shape)
        near = (abs(y - strongest[0]) <= 1) & (abs(x - strongest[1]) <= 1)
        weight = (change * near).astype(np.float64)
        centre = np.array([(weight * x).sum(), (weight * y).sum()]) / max(weight.sum(), 1e-300)
        offsets.append(centre - (column, row))
    offset = np.median(offsets, axis=0)
    if np.abs(offset).max() > _TOLERANCE:
        # Adding zero turns -0.0 into 0.0.
        x, y = (round(value, 1) + 0.0 for value in offset.tolist())
        yield (
            "exchanging one patch of an image must change the map most at its cell, but the "
            f"change lies {x:+.1f} cells along x and {y:+.1f} along y from there"
        )
