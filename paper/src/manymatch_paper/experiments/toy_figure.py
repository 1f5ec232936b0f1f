"""The toy configurations of the likelihood, as the paper's supplement shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch_paper.experiments.style import GREY, INK, LIGHT, PAGE_CM, new_figure

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

_ORANGE, _RED, _BLUE = "#e69f00", "#d55e00", "#0072b2"
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
# Along an edge, where its mark stands: not in the middle, where edges cross.
_MARK_AT = 0.27


def configurations(data: dict[str, Any]) -> Figure:
    """Draw the graph, a configuration with an outlier, and one of inliers only."""
    shown = data["hypotheses"][0]
    figure = new_figure(PAGE_CM, 6.2)
    axes = figure.subplots(1, 3)
    m = len(data["selected"]["inliers"]["edges"])
    panels = (
        (
            "(a) candidates",
            None,
            f"{len(data['edges'])} edges, {data['num_configurations']} configurations",
        ),
        ("(b) with an outlier", "outlier", "conditional likelihood 0"),
        (
            "(c) inliers only",
            "inliers",
            rf"$(\epsilon/\delta)^{{-{len(data['edges'])}}}\,(1/\delta)^{{{m}}}$"
            + _log(data["selected"]["inliers"]["log_conditional"]),
        ),
    )
    for axis, (title, selected, text) in zip(axes, panels, strict=True):
        _panel(axis, data, None if selected is None else shown["inlier"], selected)
        axis.set_title(title, loc="left", fontsize=8.5)
        axis.text(0.5, -0.02, text, transform=axis.transAxes, ha="center", va="top", fontsize=7.5)
    _legend(figure, shown["name"])
    return figure


def _log(value: float | None) -> str:
    return "" if value is None else f", logarithm {value:.1f}".replace("-", "−")


def _panel(axis: Any, data: dict[str, Any], inlier: list[bool] | None, name: str | None) -> None:
    chosen = set() if name is None else set(data["selected"][name]["edges"])
    edges = data["edges"]
    sides = [max(edge[side] for edge in edges) + 1 for side in (0, 1)]
    for e, (i, j) in enumerate(edges):
        start, end = (0.0, -i), (1.0, -j)
        if inlier is None:
            style: dict[str, Any] = {"color": GREY, "linewidth": 1.1}
        elif inlier[e]:
            style = {"color": _ORANGE, "linewidth": 2.2 if e in chosen else 1.3}
        else:
            style = {"color": LIGHT if e not in chosen else _RED, "linewidth": 1.1}
            style["linestyle"] = (0, (4, 2))
            style["linewidth"] = 2.0 if e in chosen else 1.1
        axis.plot([start[0], end[0]], [start[1], end[1]], zorder=1, **style)
        if e in chosen and inlier is not None:
            mark = "✓" if inlier[e] else "✗"
            place = [a + _MARK_AT * (b - a) for a, b in zip(start, end, strict=True)]
            axis.text(
                *place,
                mark,
                ha="center",
                va="center",
                fontsize=8,
                color=_BLUE if inlier[e] else _RED,
                fontweight="bold",
                bbox={"boxstyle": "circle,pad=0.12", "facecolor": "white", "edgecolor": "none"},
                zorder=3,
            )
    for side, (count, letter) in enumerate(zip(sides, "xy", strict=True)):
        for vertex in range(count):
            axis.plot(
                side, -vertex, "o", color="white", markeredgecolor=INK, markersize=7, zorder=2
            )
            label = f"{letter}{str(vertex + 1).translate(_SUBSCRIPTS)}"
            offset = -0.13 if side == 0 else 0.13
            axis.text(side + offset, -vertex, label, ha="center", va="center", fontsize=8.5)
    axis.set_xlim(-0.28, 1.28)
    axis.set_ylim(-max(sides) + 0.55, 0.45)
    axis.set_axis_off()


def _legend(figure: Figure, name: str) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=GREY, linewidth=1.1, label="candidate"),
        Line2D([], [], color=_ORANGE, linewidth=1.8, label=f"inlier under hypothesis {name}"),
        Line2D([], [], color=GREY, linestyle=(0, (4, 2)), linewidth=1.1, label="outlier"),
        Line2D([], [], linestyle="", marker="$✓$", color=_BLUE, label="selected as real"),
        Line2D([], [], linestyle="", marker="$✗$", color=_RED, label="though an outlier"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))


FIGURES: dict[str, Callable[[dict[str, Any]], Figure]] = {"toy_configurations": configurations}
