"""Figures of the diagnosis: layers at one rank, and ranks at every layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch_paper.experiments.diagnose_tables import gain_k, shown_layers
from manymatch_paper.experiments.style import (
    COLOURS,
    GREY,
    INK,
    LINES,
    MARKERS,
    PAGE_CM,
    new_figure,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW_CM = 8.2


def layer_selection(data: dict[str, Any]) -> Figure:
    """Trajectories of K at the compared rank, a panel a set and backbone."""
    runs = data["runs"]
    columns = min(2, len(runs))
    rows = -(-len(runs) // columns)
    figure = new_figure(PAGE_CM if columns > 1 else 0.7 * PAGE_CM, rows * _ROW_CM)
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axis in axes[len(runs) :]:
        axis.set_axis_off()
    for axis, entry in zip(axes, runs, strict=False):
        strong = shown_layers(entry)
        colours = _layer_colours(entry["layers"], strong)
        for layer in sorted(entry["layers"], key=lambda n: n in strong):
            _trajectories(axis, entry, layer, colours[layer], layer in strong)
        _arrows(axis, entry, strong[0], data["k"])
        rank = entry["summary"]["rank"]
        raw = f"debias {rank}" if rank else "raw"
        axis.set_title(f"{entry['title']}: {entry['backbone']}, {raw}")
        axis.set_xlabel("associations a pair")
        axis.set_ylabel("correspondence recall (%)")
        axis.margins(y=0.09)
        axis.set_ylim(bottom=0)
        counts_on(axis)
        _legends(axis, entry, colours, strong)
    return figure


def rank_sweep(data: dict[str, Any]) -> Figure:
    """One panel a layer; colours are ranks, line styles are bins."""
    runs = [entry for entry in data["runs"] if len(entry["ranks"]) > 1] or data["runs"]
    columns = 3
    heights = [-(-len(entry["layers"]) // columns) for entry in runs]
    figure = new_figure(PAGE_CM, 4.4 * sum(heights) + 1.2 * len(runs))
    parts = figure.subfigures(
        len(runs), 1, squeeze=False, height_ratios=[4.4 * rows + 1.2 for rows in heights]
    ).ravel()
    for part, rows, entry in zip(parts, heights, runs, strict=True):
        width = min(columns, len(entry["layers"]))
        axes = part.subplots(rows, width, squeeze=False, sharey=True).ravel().tolist()
        for axis in axes[len(entry["layers"]) :]:
            axis.set_axis_off()
        colours = _rank_colours(entry["ranks"])
        for place, (axis, layer) in enumerate(zip(axes, entry["layers"], strict=False)):
            for rank in entry["ranks"]:
                for curve in _curves(entry, layer, rank):
                    axis.plot(
                        curve["edges"],
                        _percent(curve),
                        color=colours[rank],
                        linestyle=LINES[curve["bin"] % len(LINES)],
                        marker=".",
                        markersize=2.5,
                        linewidth=0.9,
                    )
            axis.set_title(f"layer {layer}")
            counts_on(axis)
            if place % width == 0:
                axis.set_ylabel("recall (%)")
            if place >= len(entry["layers"]) - width:
                axis.set_xlabel("associations a pair")
        handles = [_line(f"s = {s}", color=colours[s]) for s in entry["ranks"]]
        handles += [
            _line(info["name"], color=INK, linestyle=LINES[i % len(LINES)])
            for i, info in enumerate(entry["bins"])
            if info["pairs"]
        ]
        part.suptitle(f"{entry['title']}: {entry['backbone']}", fontsize=8.5)
        part.legend(
            handles=handles,
            loc="outside lower center",
            ncols=len(handles) if len(handles) <= 8 else -(-len(handles) // 2),
        )
    return figure


def _trajectories(axis: Axes, entry: dict[str, Any], layer: int, colour: str, strong: bool) -> None:
    for curve in _curves(entry, layer, entry["summary"]["rank"]):
        axis.plot(
            curve["edges"],
            _percent(curve),
            color=colour,
            linestyle="-" if strong else "--",
            linewidth=1.4 if strong else 0.7,
            marker=MARKERS[curve["bin"] % len(MARKERS)],
            markersize=4 if strong else 2.5,
            markerfacecolor=colour if strong else "white",
            markeredgewidth=0.6,
            alpha=1.0 if strong else 0.8,
            zorder=3 if strong else 2,
        )


def _arrows(axis: Axes, entry: dict[str, Any], layer: int, k: int) -> None:
    """Point from K = 1 to K = 5 of the selected layer, with the gain at its end."""
    last = gain_k(k)
    if last < 2:
        return
    curves = _curves(entry, layer, entry["summary"]["rank"])
    ends = [100 * curve["recall"][last - 1] for curve in curves]
    near = 0.1 * max((max(_percent(curve)) for curve in curves), default=0.0)
    for curve in curves:
        recall = _percent(curve)
        # Below the point where another curve runs close above it.
        below = any(0 < other - recall[last - 1] < near for other in ends)
        start, end = (curve["edges"][0], recall[0]), (curve["edges"][last - 1], recall[last - 1])
        axis.annotate(
            "",
            end,
            start,
            arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 0.9, "shrinkA": 3, "shrinkB": 3},
            zorder=4,
        )
        axis.annotate(
            f"{end[1] - start[1]:+.1f} pp",
            end,
            (0, -6 if below else 6),
            textcoords="offset points",
            ha="center",
            va="top" if below else "bottom",
            fontsize=7,
            zorder=5,
            bbox={"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.8},
        )


def _legends(axis: Axes, entry: dict[str, Any], colours: dict[int, str], strong: list[int]) -> None:
    last = "final" if strong[-1] == entry["num_layers"] else "last tested"
    names = {strong[-1]: last, strong[0]: "selected"}
    if strong[0] == strong[-1]:
        names = {strong[0]: f"selected, {last}"}
    handles = [
        _line(
            f"layer {layer}" + (f" ({names[layer]})" if layer in names else ""),
            color=colours[layer],
            linestyle="-" if layer in strong else "--",
        )
        for layer in entry["layers"]
    ]
    handles += [
        _line(info["name"], color=GREY, linestyle="none", marker=MARKERS[i % len(MARKERS)])
        for i, info in enumerate(entry["bins"])
        if info["pairs"]
    ]
    axis.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
        ncols=3,
        fontsize=6.5,
        handlelength=2.2,
    )


def counts_on(axis: Axes) -> None:
    """Write numbers of edges along x, few and with separators."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _line(label: str, **style: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **style)


def _curves(entry: dict[str, Any], layer: int, rank: int) -> list[dict[str, Any]]:
    return [
        curve
        for curve in entry["curves"]
        if (curve["layer"], curve["rank"]) == (layer, rank) and None not in curve["recall"]
    ]


def _percent(curve: dict[str, Any]) -> list[float]:
    return [100 * value for value in curve["recall"]]


def _layer_colours(layers: list[int], strong: list[int]) -> dict[int, str]:
    """Give the selected and the final layer full colours, the others shades."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    shades = colormaps["viridis"]
    count = max(len(layers) - 1, 1)
    colours = {n: to_hex(shades(0.15 + 0.75 * i / count)) for i, n in enumerate(layers)}
    colours[strong[-1]] = COLOURS[1]
    colours[strong[0]] = COLOURS[0]
    return colours


def _rank_colours(ranks: list[int]) -> dict[int, str]:
    """Give no correction orange, the ranks shades from light to dark."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    shades = colormaps["viridis"]
    rest = [s for s in ranks if s]
    count = max(len(rest) - 1, 1)
    colours = {s: to_hex(shades(0.85 - 0.85 * i / count)) for i, s in enumerate(rest)}
    return {0: COLOURS[1], **colours}


FIGURES: dict[str, Callable[[dict[str, Any]], Figure]] = {
    "layer_selection": layer_selection,
    "rank_sweep": rank_sweep,
}
