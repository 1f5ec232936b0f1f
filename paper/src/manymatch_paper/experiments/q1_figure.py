"""Q1 as a figure: what each K gains over K = 1, one panel a set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch.evaluate.statistics import THRESHOLDS
from manymatch_paper.experiments._panels import legend_above, panel_rows, panel_title
from manymatch_paper.experiments.style import GREY, INK, MARKERS, THRESHOLD_COLOURS

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure


def k_sweep(data: dict[str, Any]) -> Figure:
    """Draw mean gains with min-max bands over seeds; below each K the median size of its graph."""
    ks = data["settings"]["ks"]
    figure, axes = panel_rows(data["runs"])
    handles: list[Any] = []
    for axis, entry in axes:
        axis.axhline(0.0, color=GREY, linewidth=0.7, zorder=1)
        handles = []
        for i, threshold in enumerate(THRESHOLDS):
            mean, low, high = (
                [delta[key][i] for delta in entry["delta"]] for key in ("mean", "min", "max")
            )
            colour = THRESHOLD_COLOURS[threshold]
            axis.fill_between(ks, low, high, color=colour, alpha=0.2, linewidth=0)
            handles += axis.plot(
                ks, mean, color=colour, marker=MARKERS[i], label=f"AUC@{threshold}°"
            )
        panel_title(axis, f"{entry['title']} ({entry['pairs']})")
        sizes = [_short(size) for size in entry["median_edges"]]
        axis.set_xticks(ks, [f"{k}\n{size}" for k, size in zip(ks, sizes, strict=True)])
        axis.set_xlim(ks[0] - 0.35, ks[-1] + 0.35)
    figure.supylabel("ΔA against K = 1 (points)", fontsize=7.5, color=INK)
    figure.supxlabel("K; below it the median number of edges |E_K|", fontsize=7.5, color=INK)
    legend_above(figure, handles)
    return figure


def _short(size: float) -> str:
    """Write a number of edges in four characters."""
    if size < 1_000:
        return f"{size:.0f}"
    return f"{size / 1_000:.1f}k" if size < 99_950 else f"{size / 1_000:.0f}k"


FIGURES: dict[str, Callable[[dict[str, Any]], Figure]] = {"q1_k_sweep": k_sweep}
