"""The ablation as a figure: "auto" minus each other pipeline, one panel a representation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch.evaluate.statistics import THRESHOLDS
from manymatch_paper.experiments._panels import legend_above
from manymatch_paper.experiments.ablation_tables import OTHERS, TITLES, group_title
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

_COLUMNS = 4


def gains(data: dict[str, Any]) -> Figure:
    """Draw means and intervals over pairs, averaged over all sets, a row a pipeline."""
    runs, ingredients = data["runs"], data["settings"]["ingredients"]
    labels = {name: TITLES[name] for name in OTHERS}
    labels |= {f"without-{name}": f"without {name}" for name in ingredients}
    columns = min(_COLUMNS, len(runs))
    rows = -(-len(runs) // columns)
    figure = new_figure(min(PAGE_CM, 4.6 + 4.2 * columns), rows * (2.4 + 0.62 * len(labels)))
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    handles: list[Any] = []
    for axis, run in zip(grid.ravel(), runs, strict=False):
        handles = _panel(axis, run, list(labels))
    for axis in grid.ravel()[len(runs) :]:
        axis.set_axis_off()
    first = grid[0, 0]
    first.set_yticks(range(len(labels)), list(labels.values()))
    first.set_ylim(len(labels) - 0.4, -0.6)
    figure.supxlabel("ΔA, auto minus each (points)", fontsize=7.5, color=INK)
    legend_above(figure, handles)
    return figure


def _panel(axis: Any, run: dict[str, Any], names: list[str]) -> list[Any]:
    whole = run["groups"][0]
    spreads = [whole["delta"][name] for name in names]
    axis.axvline(0.0, color=GREY, linewidth=0.8, zorder=1)
    # The other pipelines stand apart from the ablations.
    axis.axhspan(-0.6, len(OTHERS) - 0.5, color="#f3f4f6", zorder=0)
    handles = []
    for i, threshold in enumerate(THRESHOLDS):
        colour = THRESHOLD_COLOURS[threshold]
        places = [place + 0.24 * (i - 1) for place in range(len(names))]
        # Lines rather than error bars: an interval over pairs need not be around the mean.
        axis.hlines(
            places,
            [spread["interval"][i][0] for spread in spreads],
            [spread["interval"][i][1] for spread in spreads],
            color=colour,
            linewidth=0.9,
        )
        handles += axis.plot(
            [spread["mean"][i] for spread in spreads],
            places,
            color=colour,
            marker=MARKERS[i],
            linestyle="none",
            label=f"AUC@{threshold}°",
        )
    axis.set_title(f"{run['representation']}\n{group_title(whole)}")
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)
    return handles


FIGURES: dict[str, Callable[[dict[str, Any]], Figure]] = {"ablation_gains": gains}
