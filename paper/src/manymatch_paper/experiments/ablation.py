"""Ablation: "auto" against rank-one and the two-stage estimator, and without each ingredient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import suggest
from manymatch.associate.candidates import Association
from manymatch.estimate.options import AUTO_PARTS, Options, num_threads
from manymatch.evaluate.run import RunConfig
from manymatch.evaluate.statistics import macro_difference, macro_spread
from manymatch_paper.experiments._runs import (
    described,
    front_text,
    missing_list,
    run_sources,
    settings_of,
)
from manymatch_paper.experiments.ablation_figure import FIGURES
from manymatch_paper.experiments.ablation_tables import (
    ablation_table,
    comparison_table,
    set_table,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from manymatch.evaluate.run import RunResult
    from manymatch.evaluate.sources import GraphSource
    from manymatch.evaluate.tables import Table
    from manymatch_paper.experiments._runs import Results

__all__ = ["FIGURES", "notes", "run", "tables"]


def run(
    sources: Sequence[GraphSource],
    folder: Path,
    *,
    ingredients: Sequence[str] | None = None,
    tuned_on: Sequence[str] = (),
    seeds: int = 5,
    min_iterations: int = 1_000,
    max_iterations: int = 100_000,
    gms: bool = True,
    limit: int | None = None,
    workers: int = 0,
    progress: Any = None,
    missing: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Run all pipelines on every source, or go on with a run that was stopped.

    Parameters
    ----------
    sources : sequence of GraphSource
        Sets of pairs, each in one or more representations.
    folder : Path
        Where the runs are kept; those of the rank-one and the two-stage pipeline are the same as
        in the experiment q3.
    ingredients : sequence of str, optional
        Names out of `manymatch.estimate.options.AUTO_PARTS`, each of which "auto" also runs
        without. By default all; none compares the pipelines only.
    tuned_on : sequence of str
        Names of sets that were looked at while choices were made. Averages are then given over
        all sets, over these, and over the others.
    seeds : int
        Repetitions.
    min_iterations, max_iterations : int
        Budget of every pipeline.
    gms : bool
        Filter the candidates of the two-stage pipeline by grid motion statistics, as the paper
        does. "auto" gets them unfiltered in any case.
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

    Raises
    ------
    ValueError
        If an ingredient or a set does not exist.
    """
    wanted = AUTO_PARTS if ingredients is None else ingredients
    left_out = _checked(wanted, AUTO_PARTS, "ingredients")
    names = [source.name for source in sources] + [entry["set"] for entry in missing]
    tuned = _checked(tuned_on, names, "tuned_on")
    options = Options(min_iterations=min_iterations, max_iterations=max_iterations)
    association, unfiltered = Association(gms=gms), Association().for_method("auto")
    configs = {
        "rank-one": RunConfig(
            estimator="poselib",
            association=Association.rank_one(association.keep),
            options=options,
            seeds=seeds,
        ),
        "many": RunConfig(
            estimator="hcm-mcm", association=association, options=options, seeds=seeds
        ),
        "auto": RunConfig(estimator="auto", association=unfiltered, options=options, seeds=seeds),
    }
    for name in left_out:
        without = options.replace(disable=(name,))
        configs[f"without-{name}"] = RunConfig(
            estimator="auto", association=unfiltered, options=without, seeds=seeds
        )
    found = run_sources(sources, configs, folder, workers=workers, limit=limit, progress=progress)
    return {
        "settings": {
            **settings_of(options, seeds, limit),
            "front": association.to_dict(),
            "auto_front": unfiltered.to_dict(),
            "workers": num_threads(workers),
            "ingredients": {name: AUTO_PARTS[name] for name in left_out},
            "tuned_on": tuned,
        },
        "runs": [
            {
                "representation": representation,
                "sets": [
                    {**about, **_measured([results])}
                    for about, (_, results) in zip(described(entries), entries, strict=True)
                ],
                "groups": _groups(entries, tuned),
            }
            for representation, entries in found
        ],
        "missing": missing_list(missing),
    }


def tables(data: dict[str, Any]) -> list[Table]:
    """Averages by pipeline, every set, and what each ingredient brings."""
    made = [comparison_table(measured, data) for measured in data["runs"]]
    made.append(set_table(data))
    if data["settings"]["ingredients"]:
        made += [ablation_table(measured, data) for measured in data["runs"]]
    return made


def notes(data: dict[str, Any]) -> list[str]:
    """Say what was run, and where "auto" stands."""
    settings = data["settings"]
    front, own, options = settings["front"], settings["auto_front"], settings["options"]
    sentences = [
        f"Rank-one: mutual nearest neighbours, the first {front['keep']}, PoseLib's LO-RANSAC. "
        f"Two-stage: {front_text(front)}, HCM→MCM. Auto: mutual {own['k']} nearest neighbours, the "
        f"first {own['max_edges']} edges, unfiltered. All run {options['min_iterations']:,} to "
        f"{options['max_iterations']:,} iterations at {options['threshold_px']:g} px with the same "
        "seeds.",
        "Times are those of the estimator alone. The two-stage pipeline's filter runs before it "
        "and is not counted; that of auto runs inside and is. They can be compared only if all "
        "pipelines ran in one go, those of a pair after each other. In the last run, pairs were "
        f"worked on {_side_by_side(settings['workers'])}.",
    ]
    if settings["tuned_on"]:
        sentences.append(
            f"Looked at while choosing: {', '.join(settings['tuned_on'])}. Averages over “others” "
            "leave these sets out."
        )
    if settings["ingredients"]:
        parts = (f"{name}: {sentence}" for name, sentence in settings["ingredients"].items())
        sentences.append(f"Auto also ran without one ingredient at a time. {' '.join(parts)}")
    sentences += verdict(data)
    if settings["limit"]:
        sentences.append(f"Only the first {settings['limit']} pairs of each set were run.")
    sentences += [f"{entry['set']} was not run: {entry['why']}." for entry in data["missing"]]
    return sentences


def _checked(given: Iterable[str], known: Iterable[str], name: str) -> list[str]:
    """Return the names without repetitions; all of them must exist."""
    names, known = list(dict.fromkeys(given)), list(dict.fromkeys(known))
    for value in names:
        if value not in known:
            raise ValueError(
                f"{name} must be one of {', '.join(known)}, got {value!r}{suggest(value, known)}"
            )
    return names


def _groups(
    entries: Sequence[tuple[GraphSource, Results]], tuned: Sequence[str]
) -> list[dict[str, Any]]:
    """Averages over all sets, over those that were looked at, and over the others."""
    kept = {"all": entries}
    if tuned:
        kept["tuned on"] = [entry for entry in entries if entry[0].name in tuned]
        kept["others"] = [entry for entry in entries if entry[0].name not in tuned]
    return [
        {
            "name": name,
            "sets": [source.name for source, _ in members],
            **_measured([results for _, results in members]),
        }
        for name, members in kept.items()
        if members
    ]


def _measured(results: Sequence[Mapping[str, RunResult]]) -> dict[str, Any]:
    """AUC by pipeline, what "auto" has more than each other one, and what a pair costs.

    Accuracy is averaged over sets, each with the same weight; times and iterations over pairs, so
    that the ratio of two times is that of what the whole takes.
    """
    errors = {name: [entry[name].errors for entry in results] for name in results[0]}
    return {
        "auc": {name: macro_spread(values).to_dict() for name, values in errors.items()},
        "delta": {
            name: macro_difference(errors["auto"], values).to_dict()
            for name, values in errors.items()
            if name != "auto"
        },
        "seconds": {name: _mean(results, name, "seconds") for name in errors},
        "iterations": {name: _mean(results, name, "iterations") for name in errors},
    }


def _mean(results: Sequence[Mapping[str, RunResult]], name: str, column: str) -> float | None:
    """Mean of a number over all trials of all sets that have it."""
    values = np.concatenate([entry[name].column(column).ravel() for entry in results])
    known = np.isfinite(values)
    return float(values[known].mean()) if known.any() else None


def _side_by_side(workers: int) -> str:
    return (
        f"{workers} side by side on one thread each"
        if workers > 1
        else "one after the other, ours on all cores"
    )
