"""Q2 as figures: the estimators' AUC as vertical triplets, and what two stages add."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch.evaluate.statistics import THRESHOLDS
from manymatch_paper.experiments._cells import signed
from manymatch_paper.experiments._panels import legend_above
from manymatch_paper.experiments.q2_tables import TITLES, complementarity
from manymatch_paper.experiments.style import COLOURS, COLUMN_CM, INK, PAGE_CM, new_figure

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

_MARKERS = ("o", "s", "^")
_ESTIMATOR_COLOURS = {
    "cm": COLOURS[7],
    "hcm": COLOURS[4],
    "mcm": COLOURS[0],
    "hcm-mcm": COLOURS[1],
}


def triplets(data: dict[str, Any]) -> Figure:
    """Draw, for every set and estimator, the mean AUC at the three thresholds on one line."""
    runs = data["runs"]
    widest = max(len(run["sets"]) for run in runs)
    figure = new_figure(min(PAGE_CM, max(COLUMN_CM, 3.0 + 2.1 * widest)), 1.4 + 5.2 * len(runs))
    axes = figure.subplots(len(runs), 1, squeeze=False)[:, 0]
    for axis, run in zip(axes, runs, strict=True):
        for place, entry in enumerate(run["sets"]):
            for i, (name, colour) in enumerate(_ESTIMATOR_COLOURS.items()):
                mean = entry["auc"][name]["mean"]
                x = place + 0.19 * (i - 1.5)
                axis.plot([x] * len(mean), mean, color=colour, linewidth=1.4)
                for marker, value in zip(_MARKERS, mean, strict=True):
                    axis.plot([x], [value], marker=marker, color=colour, linestyle="none")
        names = [f"{_broken(entry['title'])}\n({entry['pairs']})" for entry in run["sets"]]
        axis.set_xticks(range(len(names)), names)
        axis.set_xlim(-0.55, len(names) - 0.45)
        axis.set_ylim(bottom=0.0)
        axis.grid(visible=False, axis="x")
        axis.set_ylabel("pose AUC (%)")
        axis.set_title(run["representation"], loc="left")
    legend_above(figure, _triplet_legend())
    return figure


def complementarity_map(data: dict[str, Any]) -> Figure:
    """Draw what two stages gain over the better single one, a cell a set and threshold."""
    runs = data["runs"]
    widest = max(len(run["sets"]) for run in runs)
    figure = new_figure(min(PAGE_CM, max(COLUMN_CM, 3.4 + 1.75 * widest)), 1.0 + 3.1 * len(runs))
    axes = figure.subplots(len(runs), 1, squeeze=False)[:, 0]
    gains = [np.array([complementarity(entry) for entry in run["sets"]]).T for run in runs]
    # One scale for all, even on both sides of zero.
    limit = max(0.5, *(float(np.abs(values).max()) for values in gains))
    image: Any = None
    for axis, run, values in zip(axes, runs, gains, strict=True):
        image = axis.imshow(values, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto")
        for (row, column), value in np.ndenumerate(values):
            dark = abs(value) > 0.6 * limit
            axis.text(
                column,
                row,
                signed(value),
                ha="center",
                va="center",
                color="white" if dark else INK,
                fontsize=7,
            )
        names = [_broken(entry["title"]) for entry in run["sets"]]
        axis.set_xticks(range(len(names)), names)
        axis.set_yticks(range(len(THRESHOLDS)), [f"@{threshold}°" for threshold in THRESHOLDS])
        axis.grid(visible=False)
        axis.tick_params(length=0)
        axis.set_title(
            f"{run['representation']}: {int((values > 0).sum())} of {values.size} cells positive",
            loc="left",
        )
    figure.colorbar(image, ax=list(axes), label="gain (points)", pad=0.02)
    return figure


def _triplet_legend() -> list[Any]:
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color=colour, linewidth=1.8, label=TITLES[name])
        for name, colour in _ESTIMATOR_COLOURS.items()
    ]
    marks = [
        Line2D([], [], color=INK, marker=marker, linestyle="none", label=f"@{threshold}°")
        for marker, threshold in zip(_MARKERS, THRESHOLDS, strict=True)
    ]
    return [*lines, *marks]


def _broken(title: str) -> str:
    """Break a long name at one of its joints."""
    if len(title) <= 11:
        return title
    joints = [i for i, character in enumerate(title) if character in "_- "]
    if not joints:
        return title
    middle = min(joints, key=lambda i: abs(i - len(title) / 2))
    return f"{title[: middle + 1].rstrip()}\n{title[middle + 1 :]}"


FIGURES: dict[str, Callable[[dict[str, Any]], Figure]] = {
    "q2_estimators": triplets,
    "q2_complementarity": complementarity_map,
}
