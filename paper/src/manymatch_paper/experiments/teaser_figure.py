"""Figure of true matches below rank one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch_paper.experiments._pictures import show
from manymatch_paper.experiments.style import PAGE_CM, new_figure

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

_GREEN, _ORANGE = "#00a676", "#e8590c"
_GAP = 0.03


def teaser(data: dict[str, Any]) -> Figure:
    """Two images coloured by their features, with lines between them."""
    first, second = (picture["size"] for picture in data["images"])
    gap = _GAP * first[0]
    width, height = first[0] + gap + second[0], max(first[1], second[1])
    figure = new_figure(PAGE_CM, PAGE_CM * height / width + 1.3)
    axis = figure.add_subplot()
    starts = (0.0, first[0] + gap)
    for picture, overlay, left in zip(data["images"], data["overlays"], starts, strict=True):
        show(axis, picture, overlay, opacity=0.55, left=left)
    for line in data["lines"]:
        x, y = line["point0"]
        for end, colour, style in (("wrong", _ORANGE, (0, (4, 2))), ("right", _GREEN, "-")):
            u, v = line[end]
            axis.plot(
                [x, u + starts[1]],
                [y, v],
                color=colour,
                linestyle=style,
                linewidth=1.3,
                marker="o",
                markersize=3,
                markeredgecolor="white",
                markeredgewidth=0.4,
                path_effects=_halo(),
            )
        axis.annotate(
            str(line["rank"]),
            (line["right"][0] + starts[1], line["right"][1]),
            (4, 0),
            textcoords="offset points",
            fontsize=6.5,
            color="white",
            va="center",
            bbox={"boxstyle": "round,pad=0.12", "fc": _GREEN, "ec": "none"},
        )
    axis.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), aspect="equal")
    axis.set_axis_off()
    axis.set_title(data["title"])
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=_GREEN, label="true match, with the K that first keeps it"),
        Line2D([], [], color=_ORANGE, linestyle="--", label="nearest neighbour, wrong"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _halo() -> list[Any]:
    from matplotlib import patheffects

    return [patheffects.Stroke(linewidth=2.2, foreground="white", alpha=0.6), patheffects.Normal()]


FIGURES: dict[str, Callable[[dict[str, Any]], Figure]] = {"teaser": teaser}
