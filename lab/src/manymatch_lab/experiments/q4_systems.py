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
from collections.abc import Sequence
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
from manymatch.matcher.matcher import Matcher
from manymatch.options import Options
from manymatch_lab import style
from manymatch_lab.cells import DEGREES, columns, dim, set_table, triplet
from manymatch_lab.checks import count
from manymatch_lab.datasets.dataset import Dataset
from manymatch_lab.evaluate.inputs import GraphReader, ImageGraphs, open_datasets, refuse_namesakes
from manymatch_lab.evaluate.protocol import PAPER, RecordedRun, differences
from manymatch_lab.evaluate.run import PaperRun, RunConfig, RunResult, run_header
from manymatch_lab.evaluate.run_tables import budget_text, seeds_text
from manymatch_lab.evaluate.statistics import THRESHOLDS, auc_spread
from manymatch_lab.evaluate.tables import Cell, Table
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
from manymatch_lab.pose_runs import (
    Presets,
    RunSets,
    left_out,
    not_run,
    paper_sets,
    present,
    with_precision,
)
from manymatch_lab.systems import SYSTEMS, load_system
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
# Text of a cell where the paper has no number.
_NOTHING = "–"
# Of the figure: height of a row and of what is around them, in cm, and the distance between the
# thresholds of one system, in rows, so that their intervals stay apart.
_ROW_CM, _EDGE_CM = 0.62, 1.9
_STEP = 0.22
_HOLLOW: dict[str, Any] = {"markerfacecolor": "white", "markeredgewidth": 0.8, "markersize": 3.6}


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
    """Systems to compare, and presets of preserve-then-resolve, one row each."""

    systems: Sequence[System]
    matchers: Sequence[Matcher]

    @classmethod
    def from_flags(
        cls,
        *,
        system: Annotated[
            Sequence[str], f"One of {', '.join(SYSTEMS)}; may be repeated. By default all."
        ] = (),
        preset: Presets = (),
        precision: Precision = None,
        device: flags.Device = "auto",
        offline: flags.Offline = False,
        cache: flags.Cache = None,
    ) -> Systems:
        """Choose systems; nothing is loaded yet."""
        where: dict[str, Any] = {"device": device, "offline": offline}
        return cls(
            [load_system(name, **where) for name in dict.fromkeys(system or SYSTEMS)],
            [
                Matcher(with_precision(name, precision), cache=cache, **where)
                for name in (preset or (PAPER.preset,))
            ],
        )


def run(
    sets: ImageSets, systems: Systems, *, seeds: Seeds = PAPER.seeds, options: Options | None = None
) -> dict[str, Any]:
    """Match and pose every set with every system, by the same pose protocol.

    Every pair is matched once a system, and the matches are kept; the pose is estimated once a
    seed. A system whose package or weights are not here has the results that were computed in this
    folder by another environment, marked as such, or else a row that says how to get it.
    """
    options = options or PAPER.options
    of_systems, of_ours = _configs(options, seeds)
    paper_systems, paper_ours = map(PaperRun, _configs(PAPER.options, PAPER.seeds))
    recorded: list[RecordedRun] = []
    failed: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []

    def add_row(
        about: dict[str, Any],
        each: Sequence[GraphReader],
        config: RunConfig,
        paper: PaperRun,
        why: str | None,
    ) -> None:
        found: dict[str, Any] = {}
        lacking: list[str | None] = []
        for graphs in each:
            result, environment, reason = _result(sets, graphs, config, paper, why)
            if result is None:
                lacking += [why, reason and f"{reason} ({graphs.title})"]
                continue
            recorded.append(result.recorded(paper))
            failed.extend(not_run(graphs, result.not_run, len(result)))
            found[graphs.name] = {
                "auc": auc_spread(result.errors).to_dict(),
                "median_matches": float(np.median(result.num_edges)),
                "pairs": len(result),
                "environment": environment,
            }
        missing = "; ".join(dict.fromkeys(filter(None, lacking))) or None
        rows.append({**about, "sets": found, "missing": missing})

    for system in systems.systems:
        place = sets.folder / "correspondences" / system.name
        about = {name: getattr(system, name) for name in ("name", "title", "paper", "specialist")}
        graphs = [SystemGraphs(one, system, place / one.set_name) for one in sets.members]
        add_row(about, graphs, of_systems, paper_systems, _why_not(system))
    for matcher in systems.matchers:
        preset = matcher.config.preset
        about = {"name": f"{_OURS}-{preset}", "title": f"Ours ({preset})", "paper": _OURS}
        ours = [ImageGraphs(one, matcher) for one in sets.members]
        why = None
        try:
            # Asking for the networks loads them.
            matcher.load()
        except (ValueError, ImportError) as error:
            why = " ".join(str(error).split())
        add_row(about | {"specialist": False}, ours, of_ours, paper_ours, why)
    absent = [
        title
        for key, title in paper_numbers("q4")["titles"].items()
        if not any(row["paper"] == key and row["sets"] for row in rows)
    ]
    return {
        "differs_from_paper": [
            *differences(recorded, complete=True),
            *([f"systems without {', '.join(absent)}"] if absent else []),
        ],
        "settings": sets.settings(options, seeds),
        "sets": [
            {"name": dataset.set_name, "title": dataset.title, "notes": list(dataset.notes)}
            for dataset in sets.members
        ],
        "rows": rows,
        "missing": [dict(entry) for entry in sets.missing],
        "not_run": failed,
    }


def _configs(options: Options, seeds: int) -> tuple[RunConfig, RunConfig]:
    """Return how the pose is estimated: of a system, and of our rows."""
    return (
        RunConfig("poselib", Association.uncapped(1), options, seeds),
        RunConfig(PAPER.method, PAPER.association, options, seeds),
    )


def _result(
    sets: ImageSets, graphs: GraphReader, config: RunConfig, paper: PaperRun, why: str | None
) -> tuple[RunResult | None, dict[str, Any] | None, str]:
    """Run a row on a set, or read what another environment computed of it.

    `why` says why it cannot be run now. Returns the result, the environment that it comes from
    (None for this one) and, without a result, why kept results in the folder do not count.
    """
    name = config.estimator
    folder = sets.run_folder(graphs) / name
    total = num_pairs(len(graphs), sets.limit)
    # What must be the same for kept results to stand in the table; other versions may.
    if isinstance(graphs, SystemGraphs) and why is not None:
        task = graphs.task
    else:
        task = {key: graphs.identity[key] for key in graphs.identity if key not in _OF_MACHINE}
    kept, reason = _kept(folder, task, config, total)
    # Results of this environment are read by the run itself, which computes missing pairs.
    if why is None and (
        kept is None or kept.header == kept.header | _plain(run_header(graphs, config))
    ):
        result = sets.run_set(graphs, {name: config}, {name: paper})[name]
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
    folder: Path, task: dict[str, Any], config: RunConfig, total: int
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
    if len(result) < total:
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
    """Show all systems on all sets in the paper's form, what is missing, and each set's ranking."""
    absent = [[_title(row, {}), row["missing"]] for row in data["rows"] if row["missing"]]
    lacking = Table("Q4: systems that are not run", ["Method", "What is missing"], absent)
    by_set = [_of_set(data, entry) for entry in data["sets"]]
    return [_overview(data), *([lacking] if absent else []), *by_set]


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


def ranked(values: Sequence[float | None]) -> list[int | None]:
    """Place of every value, 1 for the largest; equal values share a place, None has none."""
    taking = sorted({value for value in values if value is not None}, reverse=True)
    return [None if value is None else taking.index(value) + 1 for value in values]


def _overview(data: dict[str, Any]) -> Table:
    paper = paper_numbers("q4")
    names = [entry["name"] for entry in data["sets"]]
    known = [name for name in names if name in PAPER.pairs]
    header = ["Method", *(entry["title"] for entry in data["sets"])]
    rows: list[Sequence[str | Cell]] = []
    for row in data["rows"]:
        found = [row["sets"].get(name) for name in names]
        cells = [triplet(f["auc"]["mean"]) if f else Cell("not run", dim=True) for f in found]
        rows.append([_title(row, _marks(data)), *cells])
        if known and row["paper"]:
            auc = paper["auc"][row["paper"]]
            texts = [triplet(auc[name]) if name in known else _NOTHING for name in names]
            rows.append(dim([f"  paper, {paper['titles'][row['paper']]}", *texts]))
    title = f"Q4: complete systems, pose AUC{' / '.join(DEGREES)} (%)"
    note = "† trained for pairs of visible and thermal images, and left out of the rankings."
    return set_table(title, header, rows, [note, *_footnotes(data)], data)


def _of_set(data: dict[str, Any], entry: dict[str, Any]) -> Table:
    paper = paper_numbers("q4")["auc"]
    known = entry["name"] in PAPER.pairs
    here = [
        (row, row["sets"][entry["name"]]) for row in data["rows"] if entry["name"] in row["sets"]
    ]
    places = [
        ranked([None if row["specialist"] else found["auc"]["mean"][i] for row, found in here])
        for i in range(len(THRESHOLDS))
    ]
    header = ["Method", *columns("AUC"), f"95 % {DEGREES[-1]}", "matches"]
    rows: list[list[str | Cell]] = []
    for number, (row, found) in enumerate(here):
        cells: list[str | Cell] = [_title(row, _marks(data), entry["name"])]
        for i, value in enumerate(found["auc"]["mean"]):
            place = places[i][number]
            cells.append(Cell(f"{value:.1f}", bold=place == 1, underline=place == 2))
        low, high = found["auc"]["interval"][-1]
        cells += [f"[{low:.1f}, {high:.1f}]", f"{found['median_matches']:.0f}"]
        if known:
            of_paper = paper[row["paper"]][entry["name"]] if row["paper"] else None
            cells += dim([_NOTHING] * 3 if of_paper is None else [f"{v:.1f}" for v in of_paper])
        rows.append(cells)
    pairs = here[0][1]["pairs"] if here else 0
    note = (
        "Bold and underlined: best and second best, † left out. The interval resamples pairs; "
        "matches are the median number that reached the pose estimator."
    )
    title = f"Q4: {entry['title']}, {count(pairs, 'pair')}"
    header += columns("paper ") if known else []
    return Table(title, header, rows, [note, *_footnotes(data)])


def _title(row: dict[str, Any], marks: dict[str, int], name: str | None = None) -> str:
    """Name a row, with marks of the environments that computed its numbers on a set, or on all."""
    found = [row["sets"].get(name, {})] if name is not None else row["sets"].values()
    others = [one["environment"] for one in found if marks and one.get("environment")]
    numbers = dict.fromkeys(marks[_environment_text(one)] for one in others)
    of_others = "".join(f" [{number}]" for number in numbers)
    return f"{row['title']}{'†' if row['specialist'] else ''}{of_others}"


def systems(data: dict[str, Any]) -> style.Figure:
    """Draw the AUC of every system with its interval over pairs; hollow marks are the paper's."""
    paper = paper_numbers("q4")["auc"]
    rows = [row for row in data["rows"] if row["sets"]]
    if not rows:
        figure = style.new_figure(style.PAGE_CM, 2.0)
        figure.text(0.5, 0.5, "No system could be run.", ha="center", va="center")
        return figure
    names = [_title(row, {}) for row in rows]
    figure, axes = style.panels(
        len(data["sets"]), 3, row_cm=_EDGE_CM + _ROW_CM * max(len(rows), 4), sharey=True
    )
    hollow = False
    for axis, entry in zip(axes, data["sets"], strict=True):
        largest = 0.0
        for i, (colour, marker) in enumerate(
            zip(style.THRESHOLD_COLOURS.values(), style.MARKERS, strict=False)
        ):
            for number, row in enumerate(rows):
                if entry["name"] not in row["sets"]:
                    continue
                place = number + (i - 1) * _STEP
                auc = row["sets"][entry["name"]]["auc"]
                low, high = auc["interval"][i]
                axis.plot([low, high], [place, place], color=colour, linewidth=1.0, alpha=0.6)
                axis.plot(auc["mean"][i], place, marker, color=colour, markersize=4)
                largest = max(largest, high)
                theirs = paper.get(row["paper"], {}).get(entry["name"])
                if theirs is not None:
                    hollow = True
                    largest = max(largest, theirs[i])
                    axis.plot(theirs[i], place, marker, markeredgecolor=colour, **_HOLLOW)
        axis.set_title(entry["title"], loc="left")
        axis.set_yticks(range(len(rows)), names, color=style.INK)
        axis.set_ylim(len(rows) - 0.4, -0.6)
        right = 1.05 * largest or 1.0
        axis.set_xlim(-0.02 * right, right)
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
        axis.grid(axis="y", visible=False)
    figure.supxlabel("pose AUC (%), interval over pairs", fontsize=7.5, color=style.INK)
    handles = style.threshold_lines(markers=True)
    if hollow:
        edge = {"markerfacecolor": "white", "markeredgecolor": style.GREY}
        handles.append(style.legend_line("paper", linestyle="", marker="o", **edge))
    style.legend_above(figure, handles)
    return figure


FIGURES = {"q4_systems": systems}
