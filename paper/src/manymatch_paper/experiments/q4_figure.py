"""Q4 as a figure: every system on every set, at all thresholds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch.evaluate.statistics import THRESHOLDS
from manymatch_paper.experiments.paper import paper_numbers
from manymatch_paper.experiments.style import (
    GREY,
    INK,
    MARKERS,
    PAGE_CM,
    THRESHOLD_COLOURS,
    new_figure,
    panels,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

_ROW_CM, _EDGE_CM = 0.62, 1.9
# Between the thresholds of one system, in rows, so that their intervals stay apart.
_STEP = 0.22


def systems(data: dict[str, Any]) -> Figure:
    """Draw the AUC of every system with its interval over pairs; hollow marks are the paper's."""
    paper = paper_numbers("q4")["auc"]
    rows = [row for row in data["rows"] if row["missing"] is None]
    if not rows:
        figure = new_figure(PAGE_CM, 2.0)
        figure.text(0.5, 0.5, "No system could be run.", ha="center", va="center")
        return figure
    names = [f"{row['title']}{'†' if row['specialist'] else ''}" for row in rows]
    figure, axes = panels(
        len(data["sets"]), 3, row_cm=_EDGE_CM + _ROW_CM * max(len(rows), 4), sharey=True
    )
    hollow = False
    for axis, entry in zip(axes, data["sets"], strict=True):
        for i, threshold in enumerate(THRESHOLDS):
            colour, marker = THRESHOLD_COLOURS[threshold], MARKERS[i]
            for number, row in enumerate(rows):
                place = number + (i - 1) * _STEP
                auc = row["sets"][entry["name"]]["auc"]
                low, high = auc["interval"][i]
                axis.plot([low, high], [place, place], color=colour, linewidth=1.0, alpha=0.6)
                axis.plot(auc["mean"][i], place, marker, color=colour, markersize=4)
                theirs = paper.get(row["paper"], {}).get(entry["name"])
                if theirs is not None:
                    hollow = True
                    axis.plot(
                        theirs[i],
                        place,
                        marker,
                        markerfacecolor="white",
                        markeredgecolor=colour,
                        markeredgewidth=0.8,
                        markersize=3.6,
                    )
        axis.set_title(entry["title"], loc="left")
        axis.set_yticks(range(len(rows)), names, color=INK)
        axis.set_ylim(len(rows) - 0.4, -0.6)
        right = 1.05 * max(_largest(row, entry, paper) for row in rows) or 1.0
        axis.set_xlim(-0.02 * right, right)
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
        axis.grid(axis="y", visible=False)
    figure.supxlabel("pose AUC (%), interval over pairs", fontsize=7.5, color=INK)
    _legend(figure, hollow=hollow)
    return figure


def _largest(row: dict[str, Any], entry: dict[str, Any], paper: dict[str, Any]) -> float:
    """Right end of what is drawn of a system."""
    ends = [high for _, high in row["sets"][entry["name"]]["auc"]["interval"]]
    return float(max(*ends, *paper.get(row["paper"], {}).get(entry["name"], ())))


def _legend(figure: Figure, *, hollow: bool) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=THRESHOLD_COLOURS[t], marker=MARKERS[i], label=f"AUC@{t}°")
        for i, t in enumerate(THRESHOLDS)
    ]
    if hollow:
        handles.append(
            Line2D(
                [],
                [],
                linestyle="",
                marker="o",
                markerfacecolor="white",
                markeredgecolor=GREY,
                label="paper",
            )
        )
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))


FIGURES: dict[str, Callable[[dict[str, Any]], Figure]] = {"q4_systems": systems}
