"""Q4: complete systems on the same pairs, each with its own matches and the same pose protocol.

Matches of a system go to PoseLib's consensus maximisation; ours is the practical pipeline,
many-to-many graphs and the two-stage estimator. A system whose package or weights are not here has
a row that says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from manymatch.associate.candidates import Association
from manymatch.cli.flags import (
    Cache,
    Device,
    Limit,
    Longest0,
    Longest1,
    Offline,
    Precision,
    Root,
    Seeds,
    Workers,
)
from manymatch.estimate.options import Options
from manymatch.evaluate.protocol import PAPER
from manymatch.evaluate.run import RunConfig
from manymatch.evaluate.sources import ImageSource, open_datasets
from manymatch.evaluate.statistics import THRESHOLDS, auc_spread
from manymatch.evaluate.tables import Cell, Table
from manymatch.matcher.matcher import Matcher
from manymatch_paper.cells import DEGREES, dim, missing_rows, triplet
from manymatch_paper.numbers import paper_numbers
from manymatch_paper.pose_runs import (
    Presets,
    RunSets,
    budget_text,
    left_out,
    present,
    seeds_text,
    with_precision,
)
from manymatch_paper.style import (
    GREY,
    INK,
    MARKERS,
    PAGE_CM,
    THRESHOLD_COLOURS,
    legend_above,
    legend_line,
    new_figure,
    panels,
    threshold_lines,
)
from manymatch_paper.systems import SYSTEMS, load_system
from manymatch_paper.systems.base import SystemSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

    from manymatch.datasets.dataset import Dataset
    from manymatch_paper.systems.base import System

QUESTION = "How does preserve-then-resolve compare with complete matching systems?"
EXAMPLE = "manymatch-paper q4 pairs_folder --system sift-mnn --system aliked-lightglue --limit 3"

_OURS = "ours"
# Text of a cell where the paper has no number.
_NOTHING = "–"
# Of the figure: height of a row and of what is around them, in cm, and the distance between the
# thresholds of one system, in rows, so that their intervals stay apart.
_ROW_CM, _EDGE_CM = 0.62, 1.9
_STEP = 0.22


class ImageSets(RunSets):
    """Sets of images with true poses."""

    @property
    def datasets(self) -> Sequence[Dataset]:
        """The sets."""
        return self.members

    @classmethod
    def from_flags(
        cls,
        sets: Annotated[
            Sequence[str],
            "Sets of images: data sets by name (see manymatch datasets) or NAME:FOLDER, or folders "
            "with a list of pairs.",
        ],
        folder: Path,
        *,
        root: Root = None,
        limit: Limit = None,
        workers: Workers = 0,
        longest0: Longest0 = None,
        longest1: Longest1 = None,
        progress: Any = None,
    ) -> ImageSets:
        """Open the sets that are here, and list those that are not."""
        opened: list[Dataset] = []
        _, missing = present(
            sets, lambda name: opened.extend(open_datasets(name, root, (longest0, longest1)))
        )
        return cls(opened, folder, missing, limit, workers, progress)


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
        device: Device = "auto",
        offline: Offline = False,
        cache: Cache = None,
    ) -> Systems:
        """Choose systems; nothing is loaded yet."""
        names = dict.fromkeys(system or SYSTEMS)
        return cls(
            [load_system(name, device=device, offline=offline) for name in names],
            [
                Matcher(
                    with_precision(name, precision), device=device, offline=offline, cache=cache
                )
                for name in (preset or (None,))
            ],
        )


def run(
    sets: ImageSets, systems: Systems, *, seeds: Seeds = 5, options: Options | None = None
) -> dict[str, Any]:
    """Match and pose every set with every system, by the same pose protocol.

    A system whose package or weights are not here has a row that says how to get them. Every pair
    is matched once a system, and the matches are kept; the pose is estimated once a seed.
    """
    options = options or Options()
    plain = RunConfig("poselib", Association.uncapped(1), options, seeds)
    own = RunConfig("hcm-mcm", Association.paper(), options, seeds)
    kept = sets.folder / "correspondences"

    def measured(source: Any, config: RunConfig) -> dict[str, Any]:
        result = sets.run_set(source, {config.estimator: config})[config.estimator]
        return {
            "auc": auc_spread(result.errors).to_dict(),
            "median_matches": float(np.median(result.num_edges)),
            "pairs": len(result),
        }

    rows: list[dict[str, Any]] = []
    for system in systems.systems:
        why = _why_not(system)
        found = {}
        for dataset in sets.datasets if why is None else ():
            place = kept / system.name / dataset.set_name
            found[dataset.set_name] = measured(SystemSource(dataset, system, place), plain)
        rows.append(
            {
                "name": system.name,
                "title": system.title,
                "paper": system.paper,
                "specialist": system.specialist,
                "missing": why,
                "sets": found,
            }
        )
    for matcher in systems.matchers:
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
                    for dataset in (sets.datasets if why is None else ())
                },
            }
        )
    return {
        "settings": sets.settings(options, seeds),
        "sets": [
            {"name": dataset.set_name, "title": dataset.title, "notes": list(dataset.notes)}
            for dataset in sets.datasets
        ],
        "rows": rows,
        "missing": [dict(entry) for entry in sets.missing],
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
    settings = data["settings"]
    sentences = [
        "Images are matched at working size, the longer edge 1024 pixels unless a set says "
        "otherwise; the pose of a system is PoseLib's, that of our rows the two-stage "
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
    known = [entry["name"] for entry in data["sets"] if entry["name"] in PAPER.pairs]
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
    known = entry["name"] in PAPER.pairs
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


def systems(data: dict[str, Any]) -> Figure:
    """Draw the AUC of every system with its interval over pairs; hollow marks are the paper's."""
    paper = paper_numbers("q4")["auc"]
    rows = [row for row in data["rows"] if row["missing"] is None]
    if not rows:
        figure = new_figure(PAGE_CM, 2.0)
        figure.text(0.5, 0.5, "No system could be run.", ha="center", va="center")
        return figure
    names = [f"{row['title']}{'†' if row['specialist'] else ''}" for row in rows]
    figure, axes = panels(
        len(data["sets"]), 3, row_cm=_EDGE_CM + _ROW_CM * max(len(rows), 4), sharey=True
    )
    hollow = False
    for axis, entry in zip(axes, data["sets"], strict=True):
        for i, threshold in enumerate(THRESHOLDS):
            colour, marker = THRESHOLD_COLOURS[threshold], MARKERS[i]
            for number, row in enumerate(rows):
                place = number + (i - 1) * _STEP
                auc = row["sets"][entry["name"]]["auc"]
                low, high = auc["interval"][i]
                axis.plot([low, high], [place, place], color=colour, linewidth=1.0, alpha=0.6)
                axis.plot(auc["mean"][i], place, marker, color=colour, markersize=4)
                theirs = paper.get(row["paper"], {}).get(entry["name"])
                if theirs is not None:
                    hollow = True
                    axis.plot(
                        theirs[i],
                        place,
                        marker,
                        markerfacecolor="white",
                        markeredgecolor=colour,
                        markeredgewidth=0.8,
                        markersize=3.6,
                    )
        axis.set_title(entry["title"], loc="left")
        axis.set_yticks(range(len(rows)), names, color=INK)
        axis.set_ylim(len(rows) - 0.4, -0.6)
        right = 1.05 * max(_largest(row, entry, paper) for row in rows) or 1.0
        axis.set_xlim(-0.02 * right, right)
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
        axis.grid(axis="y", visible=False)
    figure.supxlabel("pose AUC (%), interval over pairs", fontsize=7.5, color=INK)
    handles = threshold_lines(markers=True)
    if hollow:
        edge = {"markerfacecolor": "white", "markeredgecolor": GREY}
        handles.append(legend_line("paper", linestyle="", marker="o", **edge))
    legend_above(figure, handles)
    return figure


def _largest(row: dict[str, Any], entry: dict[str, Any], paper: dict[str, Any]) -> float:
    """Right end of what is drawn of a system."""
    ends = [high for _, high in row["sets"][entry["name"]]["auc"]["interval"]]
    return float(max(*ends, *paper.get(row["paper"], {}).get(entry["name"], ())))


FIGURES: dict[str, Callable[[dict[str, Any]], Figure]] = {"q4_systems": systems}
