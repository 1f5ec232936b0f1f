"""Q3 as a figure: what preserve-then-resolve gains, one panel a representation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch.evaluate.statistics import THRESHOLDS
from manymatch_paper.experiments._cells import sign_counts
from manymatch_paper.experiments._panels import legend_above
from manymatch_paper.experiments.style import (
    GREY,
    INK,
    MARKERS,
    PAGE_CM,
    THRESHOLD_COLOURS,
    new_figure,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

_COLUMNS = 5


def gains(data: dict[str, Any]) -> Figure:
    """Draw mean and sample standard deviation over seeds by set and threshold."""
    runs = data["runs"]
    names = list(dict.fromkeys(e["name"] for run in runs for e in run["sets"]))
    titles = {e["name"]: e["title"] for run in runs for e in run["sets"]}
    columns = min(_COLUMNS, len(runs))
    rows = -(-len(runs) // columns)
    width = min(PAGE_CM, 4.6 + 3.4 * columns)
    figure = new_figure(width, rows * (2.6 + 0.62 * (len(names) + 1)))
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    handles: list[Any] = []
    for axis, run in zip(grid.ravel(), runs, strict=False):
        handles = _panel(axis, run, names)
    for axis in grid.ravel()[len(runs) :]:
        axis.set_axis_off()
    # Sets from top to bottom, so that long names need no turning.
    first = grid[0, 0]
    first.set_yticks(range(len(names) + 1), [*(titles[name] for name in names), "Dataset avg."])
    first.set_ylim(len(names) + 0.6, -0.6)
    figure.supxlabel("ΔA, preserve-then-resolve minus rank-one (points)", fontsize=7.5, color=INK)
    legend_above(figure, handles)
    return figure


def _panel(axis: Any, run: dict[str, Any], names: list[str]) -> list[Any]:
    entries = [(names.index(entry["name"]), entry["delta"]) for entry in run["sets"]]
    entries.append((len(names), run["macro"]["delta"]))
    axis.axvline(0.0, color=GREY, linewidth=0.8, zorder=1)
    axis.axhspan(len(names) - 0.5, len(names) + 0.6, color="#f3f4f6", zorder=0)
    handles = []
    for i, threshold in enumerate(THRESHOLDS):
        handles.append(
            axis.errorbar(
                [delta["mean"][i] for _, delta in entries],
                [place + 0.24 * (i - 1) for place, _ in entries],
                xerr=[delta["sd"][i] for _, delta in entries],
                color=THRESHOLD_COLOURS[threshold],
                marker=MARKERS[i],
                linestyle="none",
                elinewidth=0.9,
                capsize=1.8,
                label=f"AUC@{threshold}°",
            )
        )
    counts = sign_counts(entry["delta"] for entry in run["sets"])
    axis.set_title(f"{run['representation']}\n{counts['above']}/{counts['cells']} positive")
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)
    return handles


FIGURES: dict[str, Callable[[dict[str, Any]], Figure]] = {"q3_gains": gains}
