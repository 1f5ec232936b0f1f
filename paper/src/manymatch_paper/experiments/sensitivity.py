"""Sensitivity: how much the accuracy depends on q and on delta."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch.associate.candidates import Association
from manymatch.estimate.options import Options
from manymatch.evaluate.run import RunConfig
from manymatch.evaluate.statistics import THRESHOLDS, macro_spread
from manymatch.evaluate.tables import Table
from manymatch_paper.experiments._cells import (
    DEGREES,
    MACRO,
    dim,
    missing_rows,
    of_name,
    triplet,
)
from manymatch_paper.experiments._runs import (
    about_paper,
    described,
    front_text,
    missing_list,
    run_sources,
    settings_of,
)
from manymatch_paper.experiments.paper import paper_numbers
from manymatch_paper.experiments.sensitivity_figure import FIGURES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from manymatch._validate import FloatArray
    from manymatch.evaluate.run import RunResult
    from manymatch.evaluate.sources import GraphSource
    from manymatch.evaluate.tables import Cell

__all__ = ["FIGURES", "notes", "run", "tables"]

_QS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
_DELTAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
_SWEPT = {"hcm": "HCM", "hcm-mcm": "HCM→MCM"}


def run(
    sources: Sequence[GraphSource],
    folder: Path,
    *,
    qs: Sequence[float] = _QS,
    deltas: Sequence[float] = _DELTAS,
    seeds: int = 1,
    min_iterations: int = 1_000,
    max_iterations: int = 100_000,
    gms: bool = True,
    limit: int | None = None,
    workers: int = 0,
    progress: Any = None,
    missing: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Run HCM and the two-stage estimator at every setting and MCM once, on every source.

    Parameters
    ----------
    sources : sequence of GraphSource
        Sets of pairs; those with the same representation share a table.
    folder : Path
        Where the runs are kept.
    qs, deltas : sequence of float
        Values of q at the default delta, and of delta at the default q; the defaults themselves
        are added and run once.
    seeds : int
        Repetitions; the paper has one.
    min_iterations, max_iterations : int
        Budget of every estimator.
    gms : bool
        Filter by grid motion statistics, as the paper does.
    limit : int, optional
        Only the first pairs of each set.
    workers : int
        Pairs worked on at the same time; 0 is one per core.
    progress : callable, optional
        As `run_set` takes it.
    missing : sequence of {"set", "why"}
        Sets that were asked for and are not here.

    Returns
    -------
    dict
        What `tables` and the figure need, as JSON types.
    """
    options = Options(min_iterations=min_iterations, max_iterations=max_iterations)
    association = Association(gms=gms)
    grid = _settings(qs, deltas, options)
    configs = {
        "mcm": RunConfig(estimator="mcm", association=association, options=options, seeds=seeds)
    }
    for q, delta in grid:
        for estimator in _SWEPT:
            configs[_name(estimator, q, delta)] = RunConfig(
                estimator=estimator,
                association=association,
                options=options.replace(q=q, delta=delta),
                seeds=seeds,
            )
    found = run_sources(sources, configs, folder, workers=workers, limit=limit, progress=progress)
    return {
        "settings": {
            **settings_of(options, seeds, limit),
            "front": association.to_dict(),
            "grid": [{"q": q, "delta": delta} for q, delta in grid],
            "default": {"q": options.q, "delta": options.delta},
        },
        "runs": [
            {
                "representation": representation,
                "sets": [
                    {**about, **_measured([results], grid)}
                    for about, (_, results) in zip(described(entries), entries, strict=True)
                ],
                "macro": _measured([results for _, results in entries], grid),
            }
            for representation, entries in found
        ],
        "missing": missing_list(missing),
    }


def tables(data: dict[str, Any]) -> list[Table]:
    """Variation by set, and the averages at every setting."""
    made = []
    for measured in data["runs"]:
        made += [_variation_table(measured, data), _grid_table(measured, data)]
    return made


def notes(data: dict[str, Any]) -> list[str]:
    """Say what was run and what the paper's numbers are."""
    default, options = data["settings"]["default"], data["settings"]["options"]
    seeds = data["settings"]["seeds"]
    return [
        f"q varies at δ = {default['delta']:g}, δ at q = {default['q']:g}; the shared default is "
        f"run once. Candidates: {front_text(data['settings']['front'])}. Budget: "
        f"{options['min_iterations']:,} to {options['max_iterations']:,} iterations, "
        + ("one repetition (b = 0)." if seeds == 1 else f"{seeds} repetitions, averaged."),
        *about_paper(data),
    ]


def _settings(
    qs: Sequence[float], deltas: Sequence[float], options: Options
) -> list[tuple[float, float]]:
    """Every setting once: those of q, then those of delta."""
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


def _sweep(entry: dict[str, Any], data: dict[str, Any], name: str, varied: str) -> FloatArray:
    """AUC (settings, T) of an estimator while one of q and delta varies."""
    other = "delta" if varied == "q" else "q"
    default = data["settings"]["default"][other]
    kept = [i for i, at in enumerate(data["settings"]["grid"]) if at[other] == default]
    return np.array(entry[name])[kept]


def _variation_table(measured: dict[str, Any], data: dict[str, Any]) -> Table:
    """Peak to peak over q and over delta, by set."""
    header = ["Set", "Estimator"]
    header += [f"{axis} {degrees}" for axis in ("q", "δ") for degrees in DEGREES]
    rows: list[Sequence[str | Cell]] = []
    largest: dict[str, float] = {"q": 0.0, "delta": 0.0}
    for entry in measured["sets"]:
        for i, (name, title) in enumerate(_SWEPT.items()):
            row = ["" if i else entry["title"], title]
            for varied in ("q", "delta"):
                spread = np.ptp(_sweep(entry, data, name, varied), axis=0)
                row += [f"{value:.2f}" for value in spread]
                if name == "hcm-mcm":
                    largest[varied] = max(largest[varied], float(spread.max()))
            rows.append(row)
    paper = paper_numbers("sensitivity")
    peak = paper["peak_to_peak"]
    counts = [f"at most {peak['q']:.2f}", "", "", f"at most {peak['delta']:.2f}", "", ""]
    rows.append(dim(["paper, DINOv3, six datasets", _SWEPT["hcm-mcm"], *counts]))
    rows += missing_rows(data, len(header))
    return Table(
        of_name(measured, data, "Sensitivity: peak-to-peak variation of the pose AUC in points"),
        header,
        rows,
        [
            f"Largest variation of HCM→MCM in any cell: {largest['q']:.2f} points over q and "
            f"{largest['delta']:.2f} over δ (paper: {peak['q']:.2f} and {peak['delta']:.2f}).",
            _against_mcm(measured, paper),
        ],
    )


def _against_mcm(measured: dict[str, Any], paper: dict[str, Any]) -> str:
    """Say in how many cells the two-stage estimator is at least as good as MCM."""
    gaps = np.array(
        [np.array(entry["hcm-mcm"]) - np.array(entry["mcm"]) for entry in measured["sets"]]
    )
    return (
        f"HCM→MCM matches or exceeds MCM in {int((gaps >= 0).sum())} of {gaps.size} cells "
        f"(settings, sets and thresholds; paper: {paper['matches_or_exceeds']} of "
        f"{paper['cells']}); the largest deficit is {max(0.0, -float(gaps.min())):.2f} points "
        f"(paper: {paper['largest_deficit']:.2f})."
    )


def _grid_table(measured: dict[str, Any], data: dict[str, Any]) -> Table:
    """Averages over sets at every setting."""
    macro, default = measured["macro"], data["settings"]["default"]
    degrees = "/".join(str(threshold) for threshold in THRESHOLDS)
    header = ["q", "δ", *(f"{title} AUC@{degrees}" for title in _SWEPT.values())]
    rows: list[Sequence[str | Cell]] = []
    for i, at in enumerate(data["settings"]["grid"]):
        mark = " (default)" if at == default else ""
        values = [triplet(macro[name][i]) for name in _SWEPT]
        rows.append([f"{at['q']:g}{mark}", f"{at['delta']:g}", *values])
    rows.append(["MCM, for comparison", "", "", triplet(macro["mcm"])])
    title = of_name(measured, data, f"Sensitivity: {MACRO.lower()} of the pose AUC (%)")
    return Table(title, header, rows)
