"""Calibration as a figure: reliability diagrams with the probabilities' histograms below."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from manymatch_paper.experiments._panels import legend_above
from manymatch_paper.experiments.style import COLOURS, GREY, INK, LIGHT, PAGE_CM, new_figure

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

_COLUMNS = 4
_PANEL_CM = 4.4
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
_FITTED, _UNSEEN = "tuned on", "others"
_STYLES = {
    "pooled": {"color": COLOURS[0], "marker": "o"},
    _UNSEEN: {"color": COLOURS[0], "marker": "o"},
    _FITTED: {"color": COLOURS[7], "marker": "s"},
}


def diagrams(data: dict[str, Any]) -> Figure:
    """Draw what was said against what is true, one panel a representation, its sets pooled.

    A hollow mark is a bin that only one pair is in. Where some sets were fitted on, they and the
    others are two lines, and error and histogram are those of the others.
    """
    runs = data["runs"]
    rows = max(1, -(-len(runs) // _COLUMNS))
    # Five panels are better as three and two.
    columns = max(1, -(-len(runs) // rows))
    figure = new_figure(min(PAGE_CM, 2.0 + _PANEL_CM * columns), 6.6 * rows)
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[3, 1] * rows)
    drawn: dict[str, Any] = {}
    for i, run in enumerate(runs):
        row, column = 2 * (i // columns), i % columns
        upper = figure.add_subplot(grid[row, column])
        lower = figure.add_subplot(grid[row + 1, column], sharex=upper)
        lines = _lines(run)
        name = next((name for name in ("pooled", _UNSEEN, _FITTED) if name in lines), "")
        _frame(upper, _title(run["representation"], name, lines.get(name)))
        for label, found in lines.items():
            drawn[label] = _line(upper, label, found)
        if lines:
            _histogram(lower, lines[name])
        else:
            upper.text(0.5, 0.5, "no match", ha="center", va="center", color=GREY)
        lower.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
        lower.grid(visible=False, axis="x")
        if column == 0:
            upper.set_ylabel("share true")
            lower.set_ylabel("matches")
    figure.supxlabel("match_probability", fontsize=7.5, color=INK)
    if set(drawn) & {_FITTED, _UNSEEN}:
        legend_above(figure, list(drawn.values()))
    return figure


def _lines(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Choose what a panel shows, by name: all sets together, or those fitted on and the others."""
    found = {split["label"]: split["reliability"] for split in run["splits"]}
    return {
        label: one for label, one in (found or {"pooled": run["pooled"]}).items() if one is not None
    }


def _title(representation: str, name: str, found: dict[str, Any] | None) -> str:
    if found is None:
        return f"{representation}\n"
    fitted = ", tuned on" if name == _FITTED else ""
    ends = ""
    if found["ece_interval"] is not None:
        low, high = found["ece_interval"]
        ends = f" [{low:.3f}, {high:.3f}]"
    return f"{representation}{fitted}\nECE {found['ece']:.3f}{ends}"


def _frame(axis: Any, title: str) -> None:
    axis.plot([0.0, 1.0], [0.0, 1.0], color=GREY, linewidth=0.8, linestyle="--", zorder=1)
    axis.set_title(title)
    axis.set_xlim(0.0, 1.0)
    axis.set_ylim(-0.02, 1.02)
    axis.set_yticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
    axis.tick_params(axis="x", labelbottom=False)


def _line(axis: Any, label: str, found: dict[str, Any]) -> Any:
    keys = ("probability", "share", "low", "high")
    bins = [
        values
        for values in zip(*(found[key] for key in keys), strict=True)
        if values[0] is not None
    ]
    # A bin of one pair has no interval; a hollow mark keeps it from looking certain.
    lone = [values for values in bins if values[2] is None]
    if lone:
        axis.plot(
            [values[0] for values in lone],
            [values[1] for values in lone],
            linestyle="none",
            markerfacecolor="white",
            clip_on=False,
            zorder=4,
            **_STYLES[label],
        )
    said, share = ([values[i] for values in bins] for i in range(2))
    low, high = ([values[1] if values[i] is None else values[i] for values in bins] for i in (2, 3))
    return axis.errorbar(
        said,
        share,
        # A percentile interval need not hold the value.
        yerr=[
            [max(0.0, s - end) for s, end in zip(share, low, strict=True)],
            [max(0.0, end - s) for s, end in zip(share, high, strict=True)],
        ],
        linestyle="-",
        linewidth=0.9,
        elinewidth=0.9,
        capsize=1.8,
        clip_on=False,
        label=label,
        **_STYLES[label],
    )


def _histogram(axis: Any, found: dict[str, Any]) -> None:
    edges = found["edges"]
    widths = [b - a for a, b in itertools.pairwise(edges)]
    axis.bar(
        edges[:-1],
        found["count"],
        widths,
        align="edge",
        color=LIGHT,
        edgecolor=GREY,
        linewidth=0.5,
    )
    # Most matches are in the last bin; the others would not be seen.
    axis.set_yscale("log")
    axis.set_ylim(0.7, 2.0 * max(found["count"]))
    axis.minorticks_off()


FIGURES: dict[str, Callable[[dict[str, Any]], Figure]] = {"calibration_reliability": diagrams}
