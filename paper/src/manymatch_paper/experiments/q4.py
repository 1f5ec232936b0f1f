"""Q4: complete systems on the same pairs, each with its own matches and the same pose protocol.

Matches of a system go to PoseLib's consensus maximisation; ours is the practical pipeline,
many-to-many graphs and the two-stage estimator. A system whose package or weights are not here has
a row that says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch.associate.candidates import Association
from manymatch.estimate.options import Options
from manymatch.evaluate.run import RunConfig, run_set
from manymatch.evaluate.sources import ImageSource
from manymatch.evaluate.statistics import THRESHOLDS, auc_spread
from manymatch.evaluate.tables import Cell, Table
from manymatch_paper.experiments._cells import DEGREES, dim, missing_rows, triplet
from manymatch_paper.experiments._runs import PAPER_SETS, missing_list, run_folder, settings_of
from manymatch_paper.experiments.paper import paper_numbers
from manymatch_paper.experiments.q4_figure import FIGURES
from manymatch_paper.systems.source import SystemSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from manymatch.datasets.dataset import Dataset
    from manymatch.matcher.matcher import Matcher
    from manymatch_paper.systems.base import System

__all__ = ["FIGURES", "notes", "run", "tables"]

_OURS = "ours"
# What a cell says where the paper has no number.
_NOTHING = "–"


def run(
    datasets: Sequence[Dataset],
    systems: Sequence[System],
    matchers: Sequence[Matcher],
    folder: Path,
    *,
    seeds: int = 5,
    min_iterations: int = 1_000,
    max_iterations: int = 100_000,
    limit: int | None = None,
    workers: int = 0,
    progress: Any = None,
    missing: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Match and pose every set with every system, or go on with a run that was stopped.

    Parameters
    ----------
    datasets : sequence of Dataset
        Images with the true pose of every pair.
    systems : sequence of System
        To compare with; incomplete ones are not run.
    matchers : sequence of Matcher
        Presets of preserve-then-resolve, one row each.
    folder : Path
        Where runs and correspondences are kept.
    seeds : int
        Repetitions of the pose estimation; matching is done once.
    min_iterations, max_iterations : int
        Minimal samples of both estimators.
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
        What `tables` and the figures need, as JSON types.
    """
    options = Options(min_iterations=min_iterations, max_iterations=max_iterations)
    plain = RunConfig(
        estimator="poselib", association=Association.uncapped(1), options=options, seeds=seeds
    )
    own = RunConfig(
        estimator="hcm-mcm", association=Association.paper(), options=options, seeds=seeds
    )
    kept = folder / "correspondences"
    rows: list[dict[str, Any]] = []

    def measured(source: Any, config: RunConfig) -> dict[str, Any]:
        results = run_set(
            source,
            {config.estimator: config},
            run_folder(folder, source),
            workers=workers,
            limit=limit,
            progress=progress,
        )
        result = results[config.estimator]
        return {
            "auc": auc_spread(result.errors).to_dict(),
            "median_matches": float(np.median(result.num_edges)),
            "pairs": len(result),
        }

    for system in systems:
        row: dict[str, Any] = {
            "name": system.name,
            "title": system.title,
            "paper": system.paper,
            "specialist": system.specialist,
            "missing": _why_not(system),
            "sets": {},
        }
        if row["missing"] is None:
            for dataset in datasets:
                name = dataset.set_name
                source = SystemSource(dataset, system, kept / system.name / name)
                row["sets"][name] = measured(source, plain)
        rows.append(row)
    for matcher in matchers:
        preset = matcher.config.preset
        why = _why_not_ours(matcher)
        rows.append(
            {
                "name": f"{_OURS}-{preset}",
                "title": f"Ours ({preset})",
                "paper": _OURS,
                "specialist": False,
                "missing": why,
                "sets": {
                    dataset.set_name: measured(ImageSource(dataset, matcher), own)
                    for dataset in (datasets if why is None else ())
                },
            }
        )
    return {
        "settings": settings_of(options, seeds, limit),
        "sets": [
            {"name": dataset.set_name, "title": dataset.title, "notes": list(dataset.notes)}
            for dataset in datasets
        ],
        "rows": rows,
        "missing": missing_list(missing),
    }


def tables(data: dict[str, Any]) -> list[Table]:
    """Show all systems on all sets in the paper's form, what is missing, and each set's ranking."""
    absent = [[_title(row), row["missing"]] for row in data["rows"] if row["missing"]]
    return [
        _overview(data),
        *(
            [Table("Q4: systems that are not run", ["Method", "What is missing"], absent)]
            * bool(absent)
        ),
        *(_of_set(data, entry) for entry in data["sets"]),
    ]


def notes(data: dict[str, Any]) -> list[str]:
    """Say what was run and what the paper's numbers are."""
    options = data["settings"]["options"]
    seeds = data["settings"]["seeds"]
    sentences = [
        "Images are matched at working size, the longer edge 1024 pixels unless a set says "
        "otherwise; the pose of a system is PoseLib's, that of our rows the two-stage "
        f"estimator's, both with a threshold of {options['threshold_px']:g} px there, "
        f"{options['min_iterations']:,} to {options['max_iterations']:,} iterations and {seeds} "
        f"seed{'s' if seeds > 1 else ''} a pair.",
        "The paper's row of our method is with DINOv3 ViT-L/16 at SuperPoint keypoints; ours are "
        "with the presets that the rows name.",
    ]
    if not any(entry["name"] in PAPER_SETS for entry in data["sets"]):
        sentences.append(
            "None of the sets here is one of the paper's: orderings can be compared, values cannot."
        )
    if data["settings"].get("limit"):
        sentences.append(f"Only the first {data['settings']['limit']} pairs of each set were run.")
    sentences += [note for entry in data["sets"] for note in entry["notes"]]
    sentences += [f"{entry['set']} was not run: {entry['why']}" for entry in data["missing"]]
    return sentences


def _why_not(system: System) -> str | None:
    """Say why a system cannot be run; None if it can."""
    why = system.missing(fetch=True)
    if why is None:
        try:
            # Loads everything, so that nothing is found missing at the first pair.
            system.settings()
        except Exception as error:  # noqa: BLE001 - other people's packages may fail in any way
            text = " ".join(str(error).split()) or type(error).__name__
            why = f"{system.title} cannot be loaded: {text}"
    return why


def _why_not_ours(matcher: Matcher) -> str | None:
    """Say which package or weights a preset lacks; None if it has all."""
    try:
        # Attributes that load when they are asked for.
        _ = matcher.extractor.detector, matcher.extractor.backbone
    except (ValueError, ImportError) as error:
        return " ".join(str(error).split())
    return None


def ranked(values: Sequence[float | None]) -> list[int | None]:
    """Place of every value, 1 for the largest; equal values share a place, None has none.

    Parameters
    ----------
    values : sequence of float or None
        None for what does not take part.
    """
    taking = sorted({value for value in values if value is not None}, reverse=True)
    return [None if value is None else taking.index(value) + 1 for value in values]


def _overview(data: dict[str, Any]) -> Table:
    paper = paper_numbers("q4")
    known = [entry["name"] for entry in data["sets"] if entry["name"] in PAPER_SETS]
    header = ["Method", *(entry["title"] for entry in data["sets"])]
    rows: list[Sequence[str | Cell]] = []
    for row in data["rows"]:
        title = _title(row)
        if row["missing"]:
            rows.append([title, *[Cell("not run", dim=True)] * (len(header) - 1)])
        else:
            rows.append(
                [title, *(triplet(row["sets"][s["name"]]["auc"]["mean"]) for s in data["sets"])]
            )
        if known and row["paper"]:
            rows.append(
                dim(
                    [
                        f"  paper, {paper['titles'][row['paper']]}",
                        *(
                            triplet(paper["auc"][row["paper"]][entry["name"]])
                            if entry["name"] in known
                            else _NOTHING
                            for entry in data["sets"]
                        ),
                    ]
                )
            )
    rows += missing_rows(data, len(header))
    return Table(
        f"Q4: complete systems, pose AUC{' / '.join(DEGREES)} (%)",
        header,
        rows,
        ["† trained for pairs of visible and thermal images, and left out of the rankings."],
    )


def _of_set(data: dict[str, Any], entry: dict[str, Any]) -> Table:
    paper = paper_numbers("q4")["auc"]
    known = entry["name"] in PAPER_SETS
    here = [row for row in data["rows"] if row["missing"] is None]
    means = [row["sets"][entry["name"]]["auc"]["mean"] for row in here]
    places = [
        ranked(
            [None if row["specialist"] else mean[i] for row, mean in zip(here, means, strict=True)]
        )
        for i in range(len(THRESHOLDS))
    ]
    header = ["Method", *(f"AUC{degrees}" for degrees in DEGREES), f"95 % {DEGREES[-1]}", "matches"]
    if known:
        header += [f"paper {degrees}" for degrees in DEGREES]
    rows: list[list[str | Cell]] = []
    for number, row in enumerate(here):
        found = row["sets"][entry["name"]]
        cells: list[str | Cell] = [_title(row)]
        for i, value in enumerate(means[number]):
            place = places[i][number]
            cells.append(Cell(f"{value:.1f}", bold=place == 1, underline=place == 2))
        low, high = found["auc"]["interval"][-1]
        cells += [f"[{low:.1f}, {high:.1f}]", f"{found['median_matches']:.0f}"]
        if known:
            of_paper = paper[row["paper"]][entry["name"]] if row["paper"] else None
            cells += dim([_NOTHING] * 3 if of_paper is None else [f"{v:.1f}" for v in of_paper])
        rows.append(cells)
    pairs = next((row["sets"][entry["name"]]["pairs"] for row in here), 0)
    return Table(
        f"Q4: {entry['title']}, {pairs} pairs",
        header,
        rows,
        [
            "Bold and underlined: best and second best, † left out. The interval resamples pairs; "
            "matches are the median number that reached the pose estimator."
        ],
    )


def _title(row: dict[str, Any]) -> str:
    return f"{row['title']}{'†' if row['specialist'] else ''}"
