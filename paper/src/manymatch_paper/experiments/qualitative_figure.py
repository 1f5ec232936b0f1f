"""Figure of features as colours: two brackets, what the layer does and what the rank does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch_paper.experiments._pictures import show
from manymatch_paper.experiments.style import INK, PAGE_CM, new_figure

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

# All in centimetres.
_GAP, _HEAD, _BRACKETS, _WIDE = 0.12, 0.55, 1.25, 0.5


def qualitative(data: dict[str, Any]) -> Figure:
    """Two rows of five pictures an example: the images, two layers, two ranks."""
    column = (PAGE_CM - 4 * _GAP - 2 * _WIDE) / 5
    lefts = [_GAP]
    for gap in (_WIDE, _GAP, _WIDE, _GAP):
        lefts.append(lefts[-1] + column + gap)
    heights = [
        [column * picture["size"][1] / picture["size"][0] for picture in example["images"]]
        for example in data["examples"]
    ]
    height = _BRACKETS + sum(_HEAD + sum(both) + 2 * _GAP for both in heights)
    figure = new_figure(PAGE_CM, height)
    figure.set_layout_engine("none")
    top = height - _BRACKETS
    _brackets(figure, data, lefts, column, height)
    for example, both in zip(data["examples"], heights, strict=True):
        figure.text(
            _GAP / PAGE_CM,
            (top - 0.6 * _HEAD) / height,
            example["title"],
            fontsize=7.5,
            va="center",
        )
        top -= _HEAD
        for side, rows in enumerate(both):
            top -= rows
            for place, left in enumerate(lefts):
                axis = figure.add_axes(
                    (left / PAGE_CM, top / height, column / PAGE_CM, rows / height)
                )
                overlay = None if place == 0 else example["columns"][place - 1]["overlays"][side]
                show(axis, example["images"][side], overlay)
                width, length = example["images"][side]["size"]
                axis.set(xlim=(-0.5, width - 0.5), ylim=(length - 0.5, -0.5))
                axis.set_axis_off()
            top -= _GAP
    return figure


def _brackets(
    figure: Figure, data: dict[str, Any], lefts: list[float], column: float, height: float
) -> None:
    """Write what is compared above the columns."""
    from matplotlib.lines import Line2D

    rank, layer = data["rank"], data["layer"]
    names = [
        "image",
        f"layer {data['against']}, s = {rank}",
        f"layer {layer}, s = {rank}",
        f"layer {layer}, s = 0",
        f"layer {layer}, s = {rank}",
    ]
    for left, name in zip(lefts, names, strict=True):
        place = ((left + column / 2) / PAGE_CM, (height - 0.95) / height)
        figure.text(*place, name, ha="center", va="center", fontsize=7.5)
    for first, text in ((1, f"layers, {data['backbone']}"), (3, "debiasing")):
        start, end = lefts[first], lefts[first + 1] + column
        y, tick = (height - 0.55) / height, 0.12 / height
        ends = [start / PAGE_CM, start / PAGE_CM, end / PAGE_CM, end / PAGE_CM]
        figure.add_artist(Line2D(ends, [y - tick, y, y, y - tick], color=INK, linewidth=0.8))
        figure.text(
            (start + end) / 2 / PAGE_CM,
            (height - 0.28) / height,
            text,
            ha="center",
            va="center",
            fontsize=8,
        )


FIGURES: dict[str, Callable[[dict[str, Any]], Figure]] = {"qualitative": qualitative}
