"""Q3: rank-one matching with CM against preserve-then-resolve, within each representation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch.associate.candidates import Association
from manymatch.estimate.options import Options
from manymatch.evaluate.run import RunConfig
from manymatch.evaluate.statistics import macro_difference, macro_spread
from manymatch.evaluate.tables import Cell, Table
from manymatch_paper.experiments._cells import (
    DEGREES,
    auc_texts,
    delta_texts,
    dim,
    interval_texts,
    macro_mean,
    missing_rows,
    paper_delta_texts,
    sign_counts,
    signs_text,
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
from manymatch_paper.experiments.q3_figure import FIGURES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from manymatch.evaluate.run import RunResult
    from manymatch.evaluate.sources import GraphSource

__all__ = ["FIGURES", "notes", "run", "tables"]

_TITLES = {"rank-one": "MNN + CM", "many": "m-to-m + HCM→MCM"}
_AVERAGE = "Dataset avg."


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
    progress: Any = None,
    missing: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Run both pipelines on every source, or go on with a run that was stopped.

    Parameters
    ----------
    sources : sequence of GraphSource
        Sets of pairs, each in one or more representations.
    folder : Path
        Where the runs are kept.
    seeds : int
        Repetitions.
    min_iterations, max_iterations : int
        Budget of both pipelines.
    gms : bool
        Filter several candidates by grid motion statistics, as the paper does.
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
    }
    found = run_sources(sources, configs, folder, workers=workers, limit=limit, progress=progress)
    return {
        "settings": {**settings_of(options, seeds, limit), "front": association.to_dict()},
        "runs": [
            {
                "representation": representation,
                "sets": [
                    {**about, **_measured([results])}
                    for about, (_, results) in zip(described(entries), entries, strict=True)
                ],
                "macro": _measured([results for _, results in entries]),
            }
            for representation, entries in found
        ],
        "missing": missing_list(missing),
    }


def tables(data: dict[str, Any]) -> list[Table]:
    """AUC of both pipelines, and the paired differences."""
    return [_auc_table(data), _delta_table(data)]


def notes(data: dict[str, Any]) -> list[str]:
    """Say what was run, and where the paper's finding holds on it."""
    front, options = data["settings"]["front"], data["settings"]["options"]
    return [
        f"Rank-one: mutual nearest neighbours, the first {front['keep']}, PoseLib's LO-RANSAC. "
        f"Preserve, then resolve: {front_text(front)}, HCM→MCM. Both run "
        f"{options['min_iterations']:,} to {options['max_iterations']:,} iterations at "
        f"{options['threshold_px']:g} px with the same seeds.",
        *_ordering(data),
        *about_paper(data),
    ]


def _measured(results: Sequence[Mapping[str, RunResult]]) -> dict[str, Any]:
    """AUC of both pipelines and their difference, averaged over sets."""
    first, second = ([entry[name].errors for entry in results] for name in _TITLES)
    return {
        "auc": {
            "rank-one": macro_spread(first).to_dict(),
            "many": macro_spread(second).to_dict(),
        },
        "delta": macro_difference(second, first).to_dict(),
    }


def _ordering(data: dict[str, Any]) -> list[str]:
    positive = paper_numbers("q3_delta")["positive"]
    sentences = []
    for measured in data["runs"]:
        name = measured["representation"]
        counts = sign_counts(entry["delta"] for entry in measured["sets"])
        text = signs_text(f"{name}: preserve-then-resolve is above rank-one", counts)
        if name in positive:
            text += f" In the paper, on its six sets: {positive[name]} of 18."
        lower = [entry["title"] for entry in measured["sets"] if max(entry["delta"]["mean"]) < 0]
        if lower:
            text += f" Rank-one is above at all three thresholds on {', '.join(lower)}."
        sentences.append(text)
    return sentences


def _auc_table(data: dict[str, Any]) -> Table:
    """Two rows a representation and set; the paper's column where it has the same."""
    paper = paper_numbers("q3_auc")
    shared = any(
        entry["name"] in paper["auc"].get(run["representation"], {}).get("many", {})
        for run in data["runs"]
        for entry in run["sets"]
    )
    header = ["Representation", "Set", "Pipeline", *(f"AUC{degrees}" for degrees in DEGREES)]
    header += ["paper"] if shared else []
    rows: list[Sequence[str | Cell]] = []
    for measured in data["runs"]:
        name = measured["representation"]
        entries = [(e["title"], e["name"], e["auc"]) for e in measured["sets"]]
        for i, (title, key, auc) in enumerate([*entries, (_AVERAGE, "", measured["macro"]["auc"])]):
            means = [auc[pipeline]["mean"] for pipeline in _TITLES]
            for j, pipeline in enumerate(_TITLES):
                cells = [
                    Cell(text, bold=mine > other)
                    for text, mine, other in zip(
                        auc_texts(auc[pipeline]), means[j], means[1 - j], strict=True
                    )
                ]
                labels = ["" if i or j else name, "" if j else title, _TITLES[pipeline]]
                row: list[str | Cell] = [*labels, *cells]
                if shared:
                    known = paper["auc"].get(name, {}).get(pipeline, {}).get(key)
                    row += dim([triplet(known) if known else ""])
                rows.append(row)
    for title, values in _paper_macro(paper):
        for j, pipeline in enumerate(_TITLES):
            labels = [f"paper, {title}", "six datasets"] if j == 0 else ["", ""]
            texts = [f"{value:.1f}" for value in values[pipeline]]
            rows.append(dim([*labels, _TITLES[pipeline], *texts, *[""] * shared]))
    rows += missing_rows(data, len(header))
    return Table(
        f"Q3: pose AUC (%) within each representation, {_seeds(data)}",
        header,
        rows,
        ["Mean ± sd over seeds; bold is the higher unrounded mean of the two pipelines."],
    )


def _paper_macro(paper: dict[str, Any]) -> list[tuple[str, dict[str, list[float]]]]:
    """Averages over the paper's six sets by representation and pipeline."""
    return [
        (
            paper["titles"][name],
            {pipeline: macro_mean(list(values.values())) for pipeline, values in auc.items()},
        )
        for name, auc in paper["auc"].items()
    ]


def _delta_table(data: dict[str, Any]) -> Table:
    paper, titles = paper_numbers("q3_delta"), paper_numbers("q3_auc")["titles"]
    header = ["Representation", "Set"]
    for degrees in DEGREES:
        header += [f"ΔA{degrees}", "95 % over pairs"]
    rows: list[Sequence[str | Cell]] = []
    for measured in data["runs"]:
        name = measured["representation"]
        entries = [(e["title"], e["name"], e["delta"]) for e in measured["sets"]]
        for i, (title, key, delta) in enumerate(
            [*entries, (_AVERAGE, "", measured["macro"]["delta"])]
        ):
            row: list[str | Cell] = ["" if i else name, title]
            for gain, interval in zip(delta_texts(delta), interval_texts(delta), strict=True):
                row += [gain, interval]
            rows.append(row)
            if key in paper.get(name, {}):
                rows.append(_paper_row("", "paper", paper[name][key]))
    for name, title in titles.items():
        rows.append(_paper_row(f"paper, {title}", "six datasets", paper[name]["macro"]))
    rows += missing_rows(data, len(header))
    return Table(
        f"Q3: preserve-then-resolve minus rank-one in points, {_seeds(data)}",
        header,
        rows,
        [
            "Mean ± sample sd [min, max] over seeds, the same seed on both sides. The interval "
            f"resamples pairs, for “{_AVERAGE}” within each set; sets weigh equally."
        ],
    )


def _paper_row(first: str, second: str, entries: Sequence[Sequence[float]]) -> list[Cell]:
    row = [first, second]
    for text in paper_delta_texts(entries):
        row += [text, ""]
    return dim(row)


def _seeds(data: dict[str, Any]) -> str:
    seeds = data["settings"]["seeds"]
    return f"{seeds} seed{'s' if seeds > 1 else ''}"
