"""Q4: complete systems on the same pairs, each with its own matches and the same pose protocol.

Matches of a system go to PoseLib's consensus maximisation; ours is the practical pipeline,
many-to-many graphs and the two-stage estimator. A system whose package or weights are not here has
a row that says so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import platform
import textwrap
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from manymatch import __version__
from manymatch.associate.candidates import Association
from manymatch.batch.outputs import write_json
from manymatch.batch.parts import difference, num_pairs, read_run
from manymatch.cli import flags
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.matcher import Matcher
from manymatch.options import Options
from manymatch_lab import cells
from manymatch_lab.checks import choice, count
from manymatch_lab.datasets.dataset import Dataset
from manymatch_lab.evaluate.inputs import (
    GraphReader,
    ImageGraphs,
    open_datasets,
    pair_list,
    refuse_namesakes,
    representation_of,
)
from manymatch_lab.evaluate.protocol import PAPER, RecordedRun, assumptions, differences
from manymatch_lab.evaluate.run import PaperRun, RunConfig, RunResult, run_header
from manymatch_lab.evaluate.run_tables import budget_text, seeds_text
from manymatch_lab.evaluate.statistics import auc_spread
from manymatch_lab.evaluate.tables import Table
from manymatch_lab.flags import (
    Limit,
    Longest0,
    Longest1,
    Precision,
    RetryErrors,
    Root,
    Seeds,
    Workers,
)
from manymatch_lab.numbers import paper_numbers
from manymatch_lab.pose_runs import Presets, RunSets, left_out, not_run, paper_sets, present
from manymatch_lab.systems import PAPER_SYSTEMS, SYSTEMS, load_system
from manymatch_lab.systems.adaptive_lightglue import LIGHTGLUE_ADAPTIVE
from manymatch_lab.systems.base import System, SystemGraphs

QUESTION = "How does preserve-then-resolve compare with complete matching systems?"
EXAMPLE = (
    "manymatch-lab q4 pairs_folder --system sift-mnn --system aliked-lightglue --preset embedded "
    "--limit 3"
)

_OURS = "ours"
# Beside the parts of a run: in what environment it was made.
_ENVIRONMENT = "environment.json"
_PACKAGES = (
    "numpy", "torch", "torchvision", "transformers", "timm", "kornia",
    "opencv-python", "opencv-python-headless", "vismatch", "tensorflow", "poselib"
)  # fmt: skip
# Entries of the identity of graphs in which results of another environment may differ.
_OF_MACHINE = ("versions", "device")
# What the paper does not say of its comparison.
_ASSUMED = (
    "every system has the seeds of our row",
    "matches are cut by their own scores",
    "what the SuperPoint row does differently from rank-one SuperPoint of Q3, whose numbers differ "
    "in the paper, is unknown: here both are the same pipeline",
)
# Longest reason in a cell; the notes have all of it.
_SHORT = 60


class ImageSets(RunSets):
    """Sets of images with true poses."""

    @classmethod
    def from_flags(
        cls,
        sets: Annotated[
            Sequence[str],
            typer.Argument(
                help="Sets of images: data sets by name (see manymatch datasets) or NAME:FOLDER, "
                "or folders with a list of pairs. By default, with --root, those of the paper.",
                show_default=False,
            ),
        ] = (),
        folder: Path = Path(),
        *,
        root: Root = None,
        limit: Limit = None,
        workers: Workers = 0,
        longest0: Longest0 = None,
        longest1: Longest1 = None,
        retry_errors: RetryErrors = False,
        progress: Any = None,
    ) -> ImageSets:
        """Open the sets that are here, and list those that are not."""
        opened: list[Dataset] = []
        _, missing = present(
            paper_sets(sets, root),
            lambda name: opened.extend(open_datasets(name, root, (longest0, longest1))),
        )
        refuse_namesakes([("", dataset.set_name) for dataset in opened])
        return cls(opened, folder, missing, limit, workers, progress, retry_errors)


@dataclasses.dataclass(frozen=True)
class Systems:
    """Systems to compare, and configurations of preserve-then-resolve, one row each."""

    systems: Sequence[System]
    configs: Sequence[MatcherConfig]
    where: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # arguments of `Matcher`

    @classmethod
    def from_flags(
        cls,
        *,
        systems: Annotated[
            str, "paper for the six systems of the paper, or all; --system names single ones."
        ] = "all",
        system: Annotated[
            Sequence[str], f"Instead of --systems, one of {', '.join(SYSTEMS)}; may be repeated."
        ] = (),
        preset: Presets = (),
        precision: Precision = None,
        device: flags.Device = "auto",
        offline: flags.Offline = False,
        cache: flags.Cache = None,
    ) -> Systems:
        """Choose systems; nothing is loaded yet."""
        where: dict[str, Any] = {"device": device, "offline": offline}
        groups = {"paper": PAPER_SYSTEMS, "all": tuple(SYSTEMS)}
        chosen = tuple(system) or groups[choice(systems, "systems", groups)]
        changes = {} if precision is None else {"precision": precision}
        return cls(
            [load_system(name, **where) for name in dict.fromkeys(chosen)],
            [MatcherConfig.of(name, **changes) for name in (preset or (PAPER.preset,))],
            {**where, "cache": cache},
        )


@dataclasses.dataclass(frozen=True)
class _Job:
    """A row on one set: the graphs, if they can be made here, and what kept results must be of."""

    dataset: Dataset
    name: str
    title: str
    representation: str
    task: Mapping[str, Any]
    graphs: GraphReader | None


@dataclasses.dataclass(frozen=True)
class _Row:
    about: Mapping[str, Any]
    jobs: Sequence[_Job]
    configs: Mapping[str, tuple[RunConfig, PaperRun]]
    why: str | None  # it cannot be run here


def run(
    sets: ImageSets, systems: Systems, *, seeds: Seeds = PAPER.seeds, options: Options | None = None
) -> dict[str, Any]:
    """Match and pose every set with every system, by the same pose protocol.

    Every pair is matched once a system, and the matches are kept; the pose is estimated once a
    seed, from the best 1,024 matches and, in a second row, from all of them. A system whose package
    or weights are not here has the results that were computed in this folder by another
    environment, marked as such, or else a row that says how to get it.
    """
    options = options or PAPER.options
    prepared = _prepared(sets, systems, options, seeds)
    for row in prepared:
        for job in row.jobs if row.why is None else ():
            _refuse_others(sets, job, row.configs)
    recorded: list[RecordedRun] = []
    failed: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for row in prepared:
        for number, (name, (config, paper)) in enumerate(row.configs.items()):
            if number and not _was_cut(rows[-1], row.configs):
                continue
            found: dict[str, Any] = {}
            lacking: list[str | None] = []
            for job in row.jobs:
                result, environment, reason = _result(sets, job, name, config, paper, row.why)
                if result is None:
                    lacking += [row.why, reason and f"{reason} ({job.title})"]
                    continue
                recorded += [result.recorded(paper)] if not number else []
                failed += not_run(job, result.not_run, len(result)) if not number else []
                found[job.name] = {
                    "auc": auc_spread(result.errors).to_dict(),
                    "median_matches": float(np.median(result.num_edges)),
                    "most_matches": int(result.num_edges.max()),
                    "pairs": len(result),
                    "environment": environment,
                }
            missing = "; ".join(dict.fromkeys(filter(None, lacking))) or None
            if number and not found:
                continue
            rows.append({**row.about, "capped": not number, "sets": found, "missing": missing})
    return {
        "differs_from_paper": [*differences(recorded, complete=True), *_other_rows(rows)],
        "assumed": [*_ASSUMED, *assumptions(recorded)],
        "settings": sets.settings(options, seeds),
        "sets": [
            {"name": dataset.set_name, "title": dataset.title, "notes": list(dataset.notes)}
            for dataset in sets.members
        ],
        "rows": rows,
        "missing": [dict(entry) for entry in sets.missing],
        "not_run": failed,
    }


def _prepared(sets: ImageSets, systems: Systems, options: Options, seeds: int) -> list[_Row]:
    """List the rows, and load what they need; what cannot be loaded says why."""
    both = zip(_configs(options, seeds), _configs(PAPER.options, PAPER.seeds), strict=True)
    of_systems, of_ours = (
        {name: (config, PaperRun(paper[name])) for name, config in own.items()}
        for own, paper in both
    )
    rows = []
    for system in systems.systems:
        place = sets.folder / "correspondences" / system.name
        about = {name: getattr(system, name) for name in ("name", "title", "paper", "specialist")}
        why = _why_not(system)
        jobs = []
        for dataset in sets.members:
            graphs = SystemGraphs(dataset, system, place / dataset.set_name)
            task = graphs.task if why else _task(graphs)
            made = None if why else graphs
            about_set = dataset, dataset.set_name, dataset.title
            jobs.append(_Job(*about_set, system.name, task, made))
        rows.append(_Row(about, jobs, of_systems, why))
    for config in systems.configs:
        about = {"name": f"{_OURS}-{config.preset}", "title": f"Ours ({config.preset})"}
        about |= {"paper": _OURS, "specialist": False}
        matcher, why = None, None
        try:
            matcher = Matcher(config, **systems.where)
            # Asking for the networks loads them.
            matcher.load()
        except (ValueError, ImportError) as error:
            why = " ".join(str(error).split())
        jobs = []
        for dataset in sets.members:
            known = {"preset": config.preset, **pair_list(dataset)}
            ours = ImageGraphs(dataset, matcher) if matcher and not why else None
            task = _task(ours) if ours else known
            about_set = dataset, dataset.set_name, dataset.title
            jobs.append(_Job(*about_set, representation_of(config), task, ours))
        rows.append(_Row(about, jobs, of_ours, why))
    return rows


def _configs(options: Options, seeds: int) -> tuple[dict[str, RunConfig], dict[str, RunConfig]]:
    """Return how poses are estimated, by folder: of a system, capped and not, and of our rows."""
    capped, whole = Association.rank_one(PAPER.association.keep), Association.uncapped(1)
    return (
        {
            "poselib": RunConfig("poselib", capped, options, seeds),
            "poselib-uncapped": RunConfig("poselib", whole, options, seeds),
        },
        {PAPER.method: RunConfig(PAPER.method, PAPER.association, options, seeds)},
    )


def _was_cut(row: Mapping[str, Any], configs: Mapping[str, tuple[RunConfig, PaperRun]]) -> bool:
    """Whether the cap left out matches of a pair; if not, all matches give the same poses."""
    keep = next(iter(configs.values()))[0].association.keep
    return any(found["most_matches"] == keep for found in row["sets"].values())


def _other_rows(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name systems of the paper that have no numbers, and systems that the paper does not have."""
    titles = paper_numbers("q4")["titles"]
    here = [row["paper"] for row in rows if row["sets"]]
    absent = [title for key, title in titles.items() if key not in here]
    others = dict.fromkeys(row["title"] for row in rows if not row["paper"])
    texts = [f"systems without {', '.join(absent)}"] if absent else []
    return texts + ([f"also {', '.join(others)}, not in the paper"] if others else [])


def _task(graphs: GraphReader) -> dict[str, Any]:
    """Return what must be the same for kept results to stand in the table, without versions."""
    return {key: graphs.identity[key] for key in graphs.identity if key not in _OF_MACHINE}


def _refuse_others(
    sets: ImageSets, job: _Job, configs: Mapping[str, tuple[RunConfig, PaperRun]]
) -> None:
    """Refuse a folder with results of other settings, before anything is computed."""
    for name, (config, _) in configs.items():
        folder = sets.run_folder(job) / name
        _, differing = _kept(folder, job.task, config, None)
        if differing:
            raise ValueError(f"out must be a folder of these settings, got {folder}: {differing}")


def _result(
    sets: ImageSets, job: _Job, name: str, config: RunConfig, paper: PaperRun, why: str | None
) -> tuple[RunResult | None, dict[str, Any] | None, str]:
    """Run a row on a set, or read what another environment computed of it.

    `why` says why it cannot be run now. Returns the result, the environment that it comes from
    (None for this one) and, without a result, why kept results in the folder do not count.
    """
    folder = sets.run_folder(job) / name
    kept, reason = _kept(folder, job.task, config, num_pairs(len(job.dataset), sets.limit))
    # Results of this environment are read by the run itself, which computes missing pairs.
    if (
        job.graphs is not None
        and why is None
        and (kept is None or kept.header == kept.header | _plain(run_header(job.graphs, config)))
    ):
        result = sets.run_set(job.graphs, {name: config}, {name: paper})[name]
        if not (folder / _ENVIRONMENT).is_file():
            write_json(folder / _ENVIRONMENT, environment_now())
        return result, None, ""
    if kept is None:
        return None, None, reason
    source, own = kept.header["source"], kept.header.get("run_versions", {})
    environment = {"packages": {**source.get("versions", {}), **own}}
    with contextlib.suppress(OSError, ValueError):
        environment |= json.loads((folder / _ENVIRONMENT).read_text(encoding="utf-8"))
    return kept, environment, ""


def _kept(
    folder: Path, task: Mapping[str, Any], config: RunConfig, total: int | None
) -> tuple[RunResult | None, str]:
    """Read the results that are in a folder, or say why they do not belong here."""
    if read_run(folder) is None:
        return None, ""
    try:
        result = RunResult.load(folder, total)
    except ValueError as error:
        return None, f"its kept results cannot be read: {error}"
    found = {**result.header["source"], "config": result.header["config"]}
    for name, value in _plain({**task, "config": config.to_dict()}).items():
        if differing := difference(found.get(name), value, name):
            return None, f"its folder holds {differing}"
    if total is not None and len(result) < total:
        return None, f"its kept results are of {len(result):,} of {count(total, 'pair')} only"
    return result, ""


def _plain(value: Any) -> Any:
    """Return a value as it is read back from JSON."""
    return json.loads(json.dumps(value))


def environment_now() -> dict[str, Any]:
    """Record in what the present process runs: date, machine, Python and packages."""
    packages = {"manymatch": __version__}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            packages[name] = metadata.version(name)
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": platform.platform(),
        "python": platform.python_version(),
        "packages": packages,
    }


def _environment_text(environment: dict[str, Any]) -> str:
    packages = [f"{name} {number}" for name, number in environment["packages"].items()]
    python = f"Python {environment['python']}" if "python" in environment else ""
    where = ", ".join(filter(None, [environment.get("machine"), python, *packages]))
    return f"Computed earlier, {environment.get('date', 'at an unknown time')}, with {where}."


def _marks(data: dict[str, Any]) -> dict[str, int]:
    """Give the other environments of a table numbers, by their footnotes."""
    found = [found.get("environment") for row in data["rows"] for found in row["sets"].values()]
    texts = dict.fromkeys(_environment_text(one) for one in found if one)
    return {text: number for number, text in enumerate(texts, 1)}


def _footnotes(data: dict[str, Any]) -> list[str]:
    return [f"[{number}] {text}" for text, number in _marks(data).items()]


def tables(data: dict[str, Any]) -> list[Table]:
    """Show all systems on all sets in the paper's form, and how sure the numbers are."""
    return [_overview(data), _matches(data)]


def notes(data: dict[str, Any]) -> list[str]:
    """Say what was run and what the paper's numbers are."""
    settings = data["settings"]
    sentences = [
        "Images are matched at working size, the longer edge 1024 pixels unless a set says "
        "otherwise, by MASt3R at the 512 pixels of its checkpoint; the pose of a system is "
        "PoseLib's, that of our rows the two-stage "
        f"estimator's, both with {budget_text(settings)} there and {seeds_text(settings)} a pair.",
        "The paper's row of our method is with DINOv3 ViT-L/16 at SuperPoint keypoints; ours are "
        "with the presets that the rows name.",
    ]
    if not any(entry["name"] in PAPER.pairs for entry in data["sets"]):
        sentences.append(
            "None of the sets here is one of the paper's: orderings can be compared, values cannot."
        )
    return sentences + [n for entry in data["sets"] for n in entry["notes"]] + left_out(data)


def _why_not(system: System) -> str | None:
    """Say why a system cannot be run; None if it can."""
    why = system.missing(fetch=True)
    if why is not None:
        return why
    try:
        # Loads everything, so that nothing is found missing at the first pair.
        system.settings()
    except Exception as error:  # noqa: BLE001 - other people's packages may fail in any way
        text = " ".join(str(error).split()) or type(error).__name__
        return f"{system.title} cannot be loaded: {text}"
    return None


def _overview(data: dict[str, Any]) -> Table:
    paper = paper_numbers("q4")
    rows = []
    for row in data["rows"]:
        known = paper["auc"][row["paper"]] if row["paper"] and row["capped"] else None
        values = {name: found["auc"]["mean"] for name, found in row["sets"].items()}
        complete = len(values) == len(data["sets"]) > 0
        rows.append(
            cells.MethodRow(
                [_title(row, _marks(data))],
                values,
                cells.macro_mean(list(values.values())) if complete else None,
                known,
                f"paper, {paper['titles'].get(row['paper'])}",
                group="" if row["capped"] and not row["specialist"] else None,
                reason=textwrap.shorten(row["missing"] or "", _SHORT, placeholder=" …"),
            )
        )
    lacking = {row["title"]: row["missing"] for row in data["rows"] if row["missing"]}
    notes = [
        "Bold and underlined: best and second best of the rows that can be compared. † trained for "
        "pairs of visible and thermal images, and ‡ all matches instead of the best "
        f"{PAPER.association.keep:,}, are left out of that.",
        *_footnotes(data),
        *(f"{title} is not run: {why}." for title, why in lacking.items()),
    ]
    if any("LightGlue" in row["title"] for row in data["rows"]):
        depth, width = LIGHTGLUE_ADAPTIVE
        notes.insert(1, f"LightGlue is adaptive as published: depth {depth}, width {width}.")
    title = f"Q4: complete systems, pose AUC{' / '.join(cells.DEGREES)} (%)"
    sets = {entry["name"]: entry["title"] for entry in data["sets"]}
    return cells.method_table(title, ["Method"], sets, rows, notes, second=True)


def _matches(data: dict[str, Any]) -> Table:
    """Show how many matches reach the estimator, and the interval of the AUC over pairs."""
    rows = []
    for row in (row for row in data["rows"] if row["sets"]):
        texts = []
        for entry in data["sets"]:
            found = row["sets"].get(entry["name"])
            low, high = found["auc"]["interval"][-1] if found else (0.0, 0.0)
            text = f"{found['median_matches']:.0f}, [{low:.1f}, {high:.1f}]" if found else ""
            texts.append(text)
        rows.append([_title(row, _marks(data)), *texts])
    degrees = cells.DEGREES[-1]
    title = f"Q4: median number of matches, and 95 % interval of the AUC{degrees} over pairs"
    header = ["Method", *(f"{e['title']}" for e in data["sets"])]
    return Table(title, header, rows)


def _title(row: dict[str, Any], marks: dict[str, int]) -> str:
    """Name a row, with marks of the other environments that computed its numbers."""
    others = [one["environment"] for one in row["sets"].values() if one.get("environment")]
    numbers = dict.fromkeys(marks[_environment_text(one)] for one in others)
    of_others = "".join(f" [{number}]" for number in numbers)
    marks_of_row = ("†" if row["specialist"] else "") + ("" if row["capped"] else "‡")
    return f"{row['title']}{marks_of_row}{of_others}"


# The paper has a table of this only.
FIGURES: dict[str, Any] = {}
