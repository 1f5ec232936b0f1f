"""Figure of the association operators: recall against edges, a panel a viewpoint bin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch_paper.experiments.style import COLOURS, PAGE_CM, new_figure

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Operators as people read them.
TITLES = {"mutual": "mutual (MKNN)", "oneway": "one-way", "union": "union"}
_STYLES = {
    "mutual": (COLOURS[0], "o", (-3, 4), "right"),
    "oneway": (COLOURS[1], "s", (0, 0), ""),
    "union": (COLOURS[2], "^", (4, -8), "left"),
}
_LABELLED = (1, 2, 4, 8, 16)


def operators(data: dict[str, Any]) -> Figure:
    """Curves of the operators on a logarithmic axis, a row a set."""
    rows = [
        [(place, info) for place, info in enumerate(entry["bins"]) if info["pairs"]]
        for entry in data["runs"]
    ]
    columns = max(1, *map(len, rows))
    figure = new_figure(PAGE_CM if columns > 1 else 0.6 * PAGE_CM, 6.2 * len(rows) + 0.8)
    axes = figure.subplots(len(rows), columns, squeeze=False, sharey="row")
    for line, places, entry in zip(axes, rows, data["runs"], strict=True):
        for axis in line[len(places) :]:
            axis.set_axis_off()
        for axis, (place, info) in zip(line, places, strict=False):
            for curve in entry["curves"]:
                if curve["bin"] == place and None not in curve["recall"]:
                    _draw(axis, curve)
            axis.set_xscale("log")
            axis.margins(x=0.08, y=0.08)
            axis.set_title(f"{entry['title']}, {info['name']}")
            axis.set_xlabel("associations a pair")
        if places:
            line[0].set_ylabel("correspondence recall (%)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _draw(axis: Axes, curve: dict[str, Any]) -> None:
    colour, marker, offset, side = _STYLES[curve["operator"]]
    recall = [100 * value for value in curve["recall"]]
    axis.plot(
        curve["edges"],
        recall,
        color=colour,
        marker=marker,
        markersize=3,
        linewidth=1.1,
        label=TITLES[curve["operator"]],
    )
    # Above the upper curve and below the lower one, where there is room.
    for k in _LABELLED if side else ():
        if k <= len(recall):
            axis.annotate(
                str(k),
                (curve["edges"][k - 1], recall[k - 1]),
                offset,
                textcoords="offset points",
                ha=side,
                fontsize=6,
                color=colour,
            )


FIGURES: dict[str, Callable[[dict[str, Any]], Figure]] = {"operators": operators}
