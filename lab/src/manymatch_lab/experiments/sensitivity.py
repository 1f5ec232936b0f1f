"""Sensitivity: how much the accuracy depends on q and on delta."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from manymatch.associate.candidates import Association
from manymatch.options import Options
from manymatch_lab import cells, style
from manymatch_lab.checks import FloatArray
from manymatch_lab.evaluate.protocol import PAPER, unequal
from manymatch_lab.evaluate.run import RunConfig, RunResult
from manymatch_lab.evaluate.run_tables import association_text, budget_text
from manymatch_lab.evaluate.statistics import THRESHOLDS, macro_spread
from manymatch_lab.evaluate.tables import Cell, Table
from manymatch_lab.flags import Seeds
from manymatch_lab.numbers import paper_numbers
from manymatch_lab.pose_runs import Gms, PoseSets, about_paper

QUESTION = "How much do q and δ matter?"
EXAMPLE = "manymatch-lab sensitivity synthetic:ordering --no-gms --max-iterations 5000 --limit 20"

# The paper gives the ends of both ranges and that there are 12 settings; the others are ours.
_QS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
_DELTAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
_SEEDS = 1

_SWEPT = {"hcm": "HCM", "hcm-mcm": "HCM→MCM"}
_LINES: dict[str, tuple[Any, str]] = {
    "hcm-mcm": ("-", "HCM→MCM"),
    "hcm": ("--", "HCM"),
    "mcm": (":", "MCM"),
}


def run(
    sets: PoseSets,
    *,
    qs: Annotated[
        tuple[float, ...], "Values of q at the default delta; the default q is added."
    ] = _QS,
    deltas: Annotated[
        tuple[float, ...], "Values of delta at the default q; the default delta is added."
    ] = _DELTAS,
    seeds: Seeds = _SEEDS,
    gms: Gms = True,
    options: Options | None = None,
) -> dict[str, Any]:
    """Sweep q and delta of two methods, with a third one that has neither for comparison.

    The two are harmonic consensus maximization (HCM) and the two-stage estimator, the third is
    matching cardinality maximization (MCM).

    The q and delta of the options are the defaults around which the other one varies. The paper
    has one seed.
    """
    options = options or PAPER.options
    association = dataclasses.replace(PAPER.association, gms=gms)
    grid = _settings(qs, deltas, options)
    settings = sets.settings(
        options,
        seeds,
        association=association.to_dict(),
        grid=[{"q": q, "delta": delta} for q, delta in grid],
        default={"q": options.q, "delta": options.delta},
    )
    data = sets.run(
        _configs(grid, association, options, seeds),
        settings,
        lambda _, results: _measured([results], grid),
        lambda entries: {"macro": _measured([results for _, results in entries], grid)},
        _configs(grid, PAPER.association, PAPER.options, _SEEDS),
    )
    data["differs_from_paper"] += unequal("qs", qs, _QS) + unequal("deltas", deltas, _DELTAS)
    data["assumed"].append(
        f"the values of q and δ between the ends {_QS[0]:g} to {_QS[-1]:g} and {_DELTAS[0]:g} to "
        f"{_DELTAS[-1]:g}, of which the paper gives only how many there are"
    )
    return data


def _configs(
    grid: Sequence[tuple[float, float]], association: Association, options: Options, seeds: int
) -> dict[str, RunConfig]:
    """Return the run of MCM, and the runs of the other methods at every setting."""
    swept = {
        _name(estimator, q, delta): RunConfig(
            estimator, association, options.replace(q=q, delta=delta), seeds
        )
        for q, delta in grid
        for estimator in _SWEPT
    }
    return {"mcm": RunConfig("mcm", association, options, seeds), **swept}


def tables(data: dict[str, Any]) -> list[Table]:
    """Variation by set, and the averages at every setting."""
    makers = (_variation_table, _grid_table)
    return [make(measured, data) for measured in data["runs"] for make in makers]


def notes(data: dict[str, Any]) -> list[str]:
    """Say what was run and what the paper's numbers are."""
    settings, default = data["settings"], data["settings"]["default"]
    seeds = settings["seeds"]
    repeated = "one repetition (b = 0)" if seeds == 1 else f"{seeds} repetitions, averaged"
    return [
        f"q varies at δ = {default['delta']:g}, δ at q = {default['q']:g}; the shared default is "
        f"run once. Candidates: {association_text(settings['association'])}. Budget: "
        f"{budget_text(settings)}, {repeated}.",
        *about_paper(data),
    ]


def _settings(
    qs: Sequence[float], deltas: Sequence[float], options: Options
) -> list[tuple[float, float]]:
    """List every setting once: first q varies, then delta."""
    first = [(q, options.delta) for q in sorted({*qs, options.q})]
    second = [(options.q, delta) for delta in sorted({*deltas, options.delta})]
    return list(dict.fromkeys([*first, *second]))


def _name(estimator: str, q: float, delta: float) -> str:
    return f"{estimator}_q{q:g}_delta{delta:g}"


def _measured(
    results: Sequence[Mapping[str, RunResult]], grid: Sequence[tuple[float, float]]
) -> dict[str, Any]:
    """Mean AUC (T,) of MCM, and of the others at every setting, averaged over sets."""

    def mean(name: str) -> list[float]:
        return list(macro_spread([entry[name].errors for entry in results], resamples=1).mean)

    return {
        "mcm": mean("mcm"),
        **{name: [mean(_name(name, q, delta)) for q, delta in grid] for name in _SWEPT},
    }


def _varied(settings: dict[str, Any], varied: str) -> list[int]:
    """Numbers of the settings at which one of q and delta varies, from small to large."""
    other = "delta" if varied == "q" else "q"
    grid, default = settings["grid"], settings["default"][other]
    kept = [i for i, at in enumerate(grid) if at[other] == default]
    return sorted(kept, key=lambda i: grid[i][varied])


def _variation_table(measured: dict[str, Any], data: dict[str, Any]) -> Table:
    """Peak to peak over q and over delta, by set."""
    header = ["Set", "Estimator", *cells.columns("q "), *cells.columns("δ ")]
    rows: list[Sequence[str | Cell]] = []
    largest: dict[str, float] = {"q": 0.0, "delta": 0.0}
    for entry in measured["sets"]:
        for i, (name, title) in enumerate(_SWEPT.items()):
            row = ["" if i else entry["title"], title]
            for varied in ("q", "delta"):
                kept = _varied(data["settings"], varied)
                spread: FloatArray = np.ptp(np.array(entry[name])[kept], axis=0)
                row += [f"{value:.2f}" for value in spread]
                if name == "hcm-mcm":
                    largest[varied] = max(largest[varied], float(spread.max()))
            rows.append(row)
    paper = paper_numbers("sensitivity")
    peak = paper["peak_to_peak"]
    counts = [f"at most {peak['q']:.2f}", "", "", f"at most {peak['delta']:.2f}", "", ""]
    rows.append(cells.dim(["paper, DINOv3, six datasets", _SWEPT["hcm-mcm"], *counts]))
    title = "Sensitivity: peak-to-peak variation of the pose AUC in points"
    note = (
        f"Largest variation of HCM→MCM in any cell: {largest['q']:.2f} points over q and "
        f"{largest['delta']:.2f} over δ (paper: {peak['q']:.2f} and {peak['delta']:.2f})."
    )
    gaps = np.array(
        [np.array(entry["hcm-mcm"]) - np.array(entry["mcm"]) for entry in measured["sets"]]
    )
    against_mcm = (
        f"HCM→MCM matches or exceeds MCM in {int((gaps >= 0).sum())} of {gaps.size} cells "
        f"(settings, sets and thresholds; paper: {paper['matches_or_exceeds']} of "
        f"{paper['cells']}); the largest deficit is {max(0.0, -float(gaps.min())):.2f} points "
        f"(paper: {paper['largest_deficit']:.2f})."
    )
    return cells.set_table(title, header, rows, [note, against_mcm], data, measured)


def _grid_table(measured: dict[str, Any], data: dict[str, Any]) -> Table:
    """Averages over sets at every setting."""
    macro, default = measured["macro"], data["settings"]["default"]
    degrees = "/".join(str(threshold) for threshold in THRESHOLDS)
    header = ["q", "δ", *(f"{title} AUC@{degrees}" for title in _SWEPT.values())]
    rows: list[Sequence[str | Cell]] = []
    for i, at in enumerate(data["settings"]["grid"]):
        mark = " (default)" if at == default else ""
        values = [cells.triplet(macro[name][i]) for name in _SWEPT]
        rows.append([f"{at['q']:g}{mark}", f"{at['delta']:g}", *values])
    rows.append(["MCM, for comparison", "", "", cells.triplet(macro["mcm"])])
    title = f"Sensitivity: {cells.MACRO.lower()} of the pose AUC (%)"
    return Table(cells.run_title(title, data, measured), header, rows)


def sweeps(data: dict[str, Any]) -> style.Figure:
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
    figure, axes = style.panel_rows(parts, row_cm=4.4)
    for axis, entry in axes:
        _panel(axis, entry, data["settings"])
    figure.supylabel("pose AUC (%)", fontsize=7.5, color=style.INK)
    look = {"color": style.INK}
    kinds = [style.legend_line(title, linestyle=line, **look) for line, title in _LINES.values()]
    style.legend_above(figure, [*kinds, *style.threshold_lines()])
    return figure


def _panel(axis: Any, entry: dict[str, Any], settings: dict[str, Any]) -> None:
    varied = entry["varied"]
    kept = _varied(settings, varied)
    x = [settings["grid"][i][varied] for i in kept]
    at = x.index(settings["default"][varied])
    for i, (_, colour) in enumerate(style.THRESHOLD_COLOURS.items()):
        axis.axhline(entry["mcm"][i], color=colour, linestyle=_LINES["mcm"][0], linewidth=1.1)
        for name in ("hcm", "hcm-mcm"):
            y = [entry[name][j][i] for j in kept]
            axis.plot(x, y, color=colour, linestyle=_LINES[name][0])
            axis.plot([x[at]], [y[at]], color=colour, marker="o", linestyle="none")
    style.panel_title(axis, entry["title"])
    if varied == "q":
        axis.set_xlim(0.0, 1.0)
        axis.set_xlabel("q")
    else:
        axis.set_xscale("log")
        axis.set_xlabel("δ")
        axis.minorticks_off()


FIGURES = {"sensitivity_sweeps": sweeps}
