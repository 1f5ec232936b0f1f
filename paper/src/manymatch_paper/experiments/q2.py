"""Q2: CM, HCM, MCM and the two-stage estimator on the same graphs, and what they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch.associate.candidates import Association
from manymatch.estimate.options import Options, num_threads
from manymatch.evaluate.run import RunConfig
from manymatch.evaluate.statistics import auc_spread, macro_difference, macro_spread
from manymatch.evaluate.tables import Table
from manymatch_paper.experiments._cells import sign_counts, signs_text
from manymatch_paper.experiments._runs import (
    about_paper,
    described,
    front_text,
    mean_column,
    missing_list,
    run_folder,
    run_sources,
    settings_of,
)
from manymatch_paper.experiments._scorers import scorer_times
from manymatch_paper.experiments.q2_figure import FIGURES
from manymatch_paper.experiments.q2_tables import (
    TITLES,
    auc_table,
    complementarity,
    difference_table,
    runtime_table,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from manymatch.evaluate.run import RunResult
    from manymatch.evaluate.sources import GraphSource

__all__ = ["FIGURES", "notes", "run", "tables"]

# By their name in tables, the estimator that runs. CM is PoseLib's, as in the paper.
_ESTIMATORS = {"cm": "poselib", "hcm": "hcm", "mcm": "mcm", "hcm-mcm": "hcm-mcm"}
_OTHERS = ("cm", "hcm", "mcm")


def run(
    sources: Sequence[GraphSource],
    folder: Path,
    *,
    seeds: int = 5,
    min_iterations: int = 1_000,
    max_iterations: int = 100_000,
    gms: bool = True,
    limit: int | None = None,
    workers: int = 0,
    timed_pairs: int = 20,
    progress: Any = None,
    missing: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Run the four estimators on every source, or go on with a run that was stopped.

    Parameters
    ----------
    sources : sequence of GraphSource
        Sets of pairs; those with the same representation share a table.
    folder : Path
        Where the runs are kept.
    seeds : int
        Repetitions.
    min_iterations, max_iterations : int
        Budget of every estimator.
    gms : bool
        Filter by grid motion statistics, as the paper does.
    limit : int, optional
        Only the first pairs of each set.
    workers : int
        Pairs worked on at the same time; 0 is one per core.
    timed_pairs : int
        Pairs of each set on which single evaluations are timed, evenly spread; 0 for none.
    progress : callable, optional
        As `run_set` takes it.
    missing : sequence of {"set", "why"}
        Sets that were asked for and are not here.

    Returns
    -------
    dict
        What `tables` and the figures need, as JSON types.
    """
    options = Options(min_iterations=min_iterations, max_iterations=max_iterations)
    association = Association(gms=gms)
    configs = {
        name: RunConfig(estimator=estimator, association=association, options=options, seeds=seeds)
        for name, estimator in _ESTIMATORS.items()
    }
    found = run_sources(sources, configs, folder, workers=workers, limit=limit, progress=progress)
    runs = []
    for representation, entries in found:
        sets = []
        for about, (source, results) in zip(described(entries), entries, strict=True):
            times = scorer_times(
                source,
                association,
                options,
                about["pairs"],
                timed_pairs,
                run_folder(folder, source),
            )
            sets.append({**about, **_measured(results), "us": times})
        runs.append({"representation": representation, "sets": sets, **_macro(entries)})
    return {
        "settings": {
            **settings_of(options, seeds, limit),
            "front": association.to_dict(),
            "workers": num_threads(workers),
        },
        "runs": runs,
        "missing": missing_list(missing),
    }


def tables(data: dict[str, Any]) -> list[Table]:
    """AUC, paired differences, and runtimes of every representation."""
    made = []
    for measured in data["runs"]:
        made += [
            _with_notes(auc_table(measured, data), _ordering(measured)),
            difference_table(measured, data),
            runtime_table(measured, data),
        ]
    return made


def notes(data: dict[str, Any]) -> list[str]:
    """Say what was run and what the paper's numbers are."""
    front, options = data["settings"]["front"], data["settings"]["options"]
    return [
        f"All estimators get the same graph of a pair: {front_text(front)}. They run "
        f"{options['min_iterations']:,} to {options['max_iterations']:,} iterations at "
        f"{options['threshold_px']:g} px. CM is PoseLib's LO-RANSAC on the edges as independent "
        "correspondences.",
        *about_paper(data),
    ]


def _measured(results: Mapping[str, RunResult]) -> dict[str, Any]:
    """AUC by estimator, differences of the two-stage one, and what a pair costs."""
    errors = {name: result.errors for name, result in results.items()}
    return {
        "median_edges": float(np.median(results["hcm-mcm"].num_edges)),
        "auc": {name: auc_spread(values).to_dict() for name, values in errors.items()},
        "delta": {
            other: macro_difference([errors["hcm-mcm"]], [errors[other]]).to_dict()
            for other in _OTHERS
        },
        "over_cm": {
            name: macro_difference([errors[name]], [errors["cm"]]).to_dict()
            for name in ("hcm", "mcm")
        },
        "seconds": {name: mean_column(result, "seconds") for name, result in results.items()},
        "iterations": {name: mean_column(result, "iterations") for name, result in results.items()},
    }


def _macro(entries: Sequence[tuple[GraphSource, Mapping[str, RunResult]]]) -> dict[str, Any]:
    errors = {name: [results[name].errors for _, results in entries] for name in _ESTIMATORS}
    return {
        "macro_auc": {name: macro_spread(values).to_dict() for name, values in errors.items()},
        "macro_delta": {
            other: macro_difference(errors["hcm-mcm"], errors[other]).to_dict() for other in _OTHERS
        },
    }


def _ordering(measured: dict[str, Any]) -> list[str]:
    """Sentences on where the paper's ordering holds, from the numbers."""
    sets = measured["sets"]
    over_cm = {
        "hcm": [entry["over_cm"]["hcm"] for entry in sets],
        "mcm": [entry["over_cm"]["mcm"] for entry in sets],
        "hcm-mcm": [entry["delta"]["cm"] for entry in sets],
    }
    sentences = [
        signs_text(f"{TITLES[name]} is above CM", sign_counts(spreads))
        for name, spreads in over_cm.items()
    ]
    gains = [gain for entry in sets for gain in complementarity(entry)]
    sentences.append(
        "In the paper all three are above CM in 18 of 18. The two-stage estimator is above the "
        f"better of HCM and MCM in {sum(gain > 0 for gain in gains)} of {len(gains)} cells (paper: "
        f"16 of 18); its largest deficit is {max(0.0, -min(gains)):.2f} points (paper: within 0.1)."
    )
    return sentences


def _with_notes(table: Table, more: Sequence[str]) -> Table:
    return Table(table.title, table.header, table.rows, [*table.notes, *more])
