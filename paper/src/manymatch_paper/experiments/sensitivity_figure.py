"""Sensitivity as a figure: AUC over q and over delta, one panel a set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch.evaluate.statistics import THRESHOLDS
from manymatch_paper.experiments._panels import legend_above, panel_rows, panel_title
from manymatch_paper.experiments.style import INK, THRESHOLD_COLOURS

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

_LINES: dict[str, tuple[Any, str]] = {
    "hcm-mcm": ("-", "HCM→MCM"),
    "hcm": ("--", "HCM"),
    "mcm": (":", "MCM"),
}


def sweeps(data: dict[str, Any]) -> Figure:
    """Draw (a) q on a linear and (b) delta on a logarithmic axis; dots mark the defaults."""
    default = data["settings"]["default"]
    parts = []
    for run in data["runs"]:
        where = f", {run['representation']}" if len(data["runs"]) > 1 else ""
        a = f"(a) q at δ = {default['delta']:g}{where}"
        b = f"(b) δ at q = {default['q']:g}{where}"
        for label, varied in ((a, "q"), (b, "delta")):
            sets = [{**entry, "varied": varied} for entry in run["sets"]]
            parts.append({"representation": label, "sets": sets})
    figure, axes = panel_rows(parts, row_cm=4.4)
    for axis, entry in axes:
        _panel(axis, entry, data["settings"])
    figure.supylabel("pose AUC (%)", fontsize=7.5, color=INK)
    legend_above(figure, _legend())
    return figure


def _panel(axis: Any, entry: dict[str, Any], settings: dict[str, Any]) -> None:
    varied = entry["varied"]
    other = "delta" if varied == "q" else "q"
    default = settings["default"]
    kept = [i for i, at in enumerate(settings["grid"]) if at[other] == default[other]]
    kept.sort(key=lambda i: settings["grid"][i][varied])
    x = [settings["grid"][i][varied] for i in kept]
    for i, threshold in enumerate(THRESHOLDS):
        colour = THRESHOLD_COLOURS[threshold]
        axis.axhline(entry["mcm"][i], color=colour, linestyle=_LINES["mcm"][0], linewidth=1.1)
        for name in ("hcm", "hcm-mcm"):
            y = [entry[name][j][i] for j in kept]
            axis.plot(x, y, color=colour, linestyle=_LINES[name][0])
            at = x.index(default[varied])
            axis.plot([x[at]], [y[at]], color=colour, marker="o", linestyle="none")
    panel_title(axis, entry["title"])
    if varied == "q":
        axis.set_xlim(0.0, 1.0)
        axis.set_xlabel("q")
    else:
        axis.set_xscale("log")
        axis.set_xlabel("δ")
        axis.minorticks_off()


def _legend() -> list[Any]:
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color=INK, linestyle=style, label=title) for style, title in _LINES.values()
    ]
    colours = [
        Line2D([], [], color=colour, linewidth=2.0, label=f"AUC@{threshold}°")
        for threshold, colour in THRESHOLD_COLOURS.items()
    ]
    return [*lines, *colours]


FIGURES: dict[str, Callable[[dict[str, Any]], Figure]] = {"sensitivity_sweeps": sweeps}
