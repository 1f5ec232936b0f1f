"""The tables of the ablation: averages, sets, ingredients; and where "auto" stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch.evaluate.statistics import THRESHOLDS
from manymatch.evaluate.tables import Cell, Table
from manymatch_paper.experiments._cells import (
    DEGREES,
    auc_texts,
    interval_texts,
    missing_rows,
    of_name,
    signed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: What the pipelines are called in tables and figures.
TITLES = {"rank-one": "MNN + CM", "many": "m-to-m + HCM→MCM", "auto": "auto"}
#: What "auto" is compared with.
OTHERS = ("rank-one", "many")
#: Points below the better of the two others that are still counted as equal.
SLACK = 1.0

# The threshold at which every set is looked at.
_TEN = THRESHOLDS.index(10)
_INTERVALS = (
    "ΔA is auto minus what the row names, paired with the same seeds on both sides, and its 95 % "
    "interval when pairs are resampled within each set; bold where that excludes zero. Sets weigh "
    "equally."
)
_COST = (
    "Milliseconds and iterations are means over all trials of all pairs, so that a relative time "
    "is that of the whole."
)


def comparison_table(measured: dict[str, Any], data: dict[str, Any]) -> Table:
    """Make the table of averages over sets, a row a pipeline."""
    header = ["Sets", "Pipeline", *(f"AUC{degrees}" for degrees in DEGREES)]
    header += [f"ΔA{degrees}" for degrees in DEGREES]
    header += ["ms a pair", "iterations", "time / two-stage"]
    rows: list[Sequence[str | Cell]] = []
    for group in measured["groups"]:
        best = _highest([group["auc"][name]["mean"] for name in TITLES])
        for name, title in TITLES.items():
            auc = group["auc"][name]
            cells = [
                Cell(text, bold=mean == top)
                for text, mean, top in zip(auc_texts(auc), auc["mean"], best, strict=True)
            ]
            gains = [""] * len(cells) if name == "auto" else gain_cells(group["delta"][name])
            label = group_title(group) if name == "rank-one" else ""
            rows.append([label, title, *cells, *gains, *_cost(group, name, "many")])
    return Table(
        of_name(measured, data, "Ablation: averages over sets, pose AUC (%)"),
        header,
        rows,
        ["AUC: mean ± sd over seeds, bold is the highest unrounded mean.", _INTERVALS, _COST],
    )


def set_table(data: dict[str, Any]) -> Table:
    """Make the table of AUC@10° of every set: "auto" against the better of the two others."""
    tuned, seeds = data["settings"]["tuned_on"], data["settings"]["seeds"]
    header = ["Representation", "Set", *(["tuned on"] if tuned else []), "pairs", *TITLES.values()]
    header += ["auto minus the better", "95 % over pairs", "time / two-stage"]
    rows: list[Sequence[str | Cell]] = []
    for measured in data["runs"]:
        for i, entry in enumerate(measured["sets"]):
            row: list[str | Cell] = ["" if i else measured["representation"], entry["title"]]
            if tuned:
                row.append("yes" if entry["name"] in tuned else "")
            row.append(str(entry["pairs"]))
            best = _highest([entry["auc"][name]["mean"] for name in TITLES])[_TEN]
            row += [
                Cell(auc_texts(auc)[_TEN], bold=auc["mean"][_TEN] == best)
                for auc in (entry["auc"][name] for name in TITLES)
            ]
            better, gain = against_better(entry)
            row.append(signed(gain) + (" †" if gain < -SLACK else ""))
            row.append(interval_texts(entry["delta"][better])[_TEN])
            row.append(_cost(entry, "auto", "many")[-1])
            rows.append(row)
    rows += missing_rows(data, len(header))
    return Table(
        f"Ablation: AUC@10° (%) of every set, {seeds} seed{'s' if seeds > 1 else ''}",
        header,
        rows,
        [
            "Mean ± sd over seeds, bold is the highest. The better is the one of the two others "
            "with the higher mean on that set, and the interval is of the paired difference to it; "
            f"† is more than {SLACK:g} point below."
        ],
    )


def ablation_table(measured: dict[str, Any], data: dict[str, Any]) -> Table:
    """Make the table of what "auto" loses without each ingredient."""
    header = ["Sets", "Left out", *(f"ΔA{degrees}" for degrees in DEGREES)]
    header += ["ms a pair", "iterations", "time / auto"]
    rows: list[Sequence[str | Cell]] = []
    ingredients = data["settings"]["ingredients"]
    for group in measured["groups"]:
        rows.append([group_title(group), "nothing", "", "", "", *_cost(group, "auto", "auto")])
        for name in ingredients:
            key = f"without-{name}"
            rows.append(["", name, *gain_cells(group["delta"][key]), *_cost(group, key, "auto")])
    return Table(
        of_name(measured, data, "Ablation: points that each ingredient brings"),
        header,
        rows,
        [
            f"{_INTERVALS} Above zero, the ingredient helps.",
            _COST,
        ],
    )


def verdict(data: dict[str, Any]) -> list[str]:
    """Say how "auto" compares with the two others, from the numbers."""
    sentences = [
        _average(measured["representation"], group)
        for measured in data["runs"]
        for group in measured["groups"]
    ]
    cells = [
        (measured["representation"], entry)
        for measured in data["runs"]
        for entry in measured["sets"]
    ]
    sentences.append(_deficits("", cells))
    tuned = data["settings"]["tuned_on"]
    others = [(name, entry) for name, entry in cells if entry["name"] not in tuned]
    if tuned and others:
        sentences.append(_deficits("Without the sets that were looked at, ", others))
    return sentences


def against_better(entry: Mapping[str, Any]) -> tuple[str, float]:
    """Name of the better of the two others at 10 degrees, and "auto" minus it in points."""
    means = {name: entry["auc"][name]["mean"][_TEN] for name in (*OTHERS, "auto")}
    better = max(OTHERS, key=lambda name: means[name])
    return better, means["auto"] - means[better]


def gain_cells(spread: dict[str, Any]) -> list[Cell]:
    """Write a paired difference as ``mean [low, high]``, bold where the interval excludes zero."""
    return [
        Cell(f"{signed(mean)} {text}", bold=_excludes_zero(ends))
        for mean, text, ends in zip(
            spread["mean"], interval_texts(spread), spread["interval"], strict=True
        )
    ]


def group_title(group: Mapping[str, Any]) -> str:
    """Name a group of sets with how many it has."""
    count = len(group["sets"])
    return f"{group['name']}, {count} set{'s' if count > 1 else ''}"


def relative_time(entry: Mapping[str, Any], name: str, reference: str) -> float | None:
    """Time of a pipeline as a multiple of another's; None where either is unknown."""
    time, unit = entry["seconds"][name], entry["seconds"][reference]
    return time / unit if time is not None and unit else None


def _cost(entry: Mapping[str, Any], name: str, reference: str) -> list[str]:
    """Milliseconds, iterations, and time relative to a reference, as texts."""
    seconds, iterations = entry["seconds"][name], entry["iterations"][name]
    ratio = relative_time(entry, name, reference)
    return [
        "" if seconds is None else _milliseconds(seconds),
        "" if iterations is None else f"{iterations:,.0f}",
        "" if ratio is None else f"{ratio:.2f}",
    ]


def _milliseconds(seconds: float) -> str:
    ms = 1e3 * seconds
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}"


def _average(representation: str, group: Mapping[str, Any]) -> str:
    """Say what "auto" gains on average, and in which time."""
    deltas = [group["delta"][name] for name in OTHERS]
    parts = [
        f"minus {TITLES[name]} is {signed(delta['mean'][_TEN])} {interval_texts(delta)[_TEN]}"
        for name, delta in zip(OTHERS, deltas, strict=True)
    ]
    clear = sum(_excludes_zero(delta["interval"][_TEN]) for delta in deltas)
    which = ("neither interval excludes", "one interval excludes", "both intervals exclude")[clear]
    text = (
        f"{representation}, {group_title(group)}: AUC@10° of auto {', '.join(parts)} points; "
        f"{which} zero."
    )
    ratio = relative_time(group, "auto", "many")
    if ratio is not None:
        text += f" It takes {ratio:.2f} of the time of {TITLES['many']}."
    return text


def _deficits(begin: str, cells: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Count the sets on which "auto" is more than the slack below the better of the others."""
    gains = [(f"{name} {entry['title']}", against_better(entry)[1]) for name, entry in cells]
    below = [f"{label} ({signed(gain)})" for label, gain in gains if gain < -SLACK]
    level = sum(gain >= 0 for _, gain in gains)
    text = (
        f"{begin}AUC@10° of auto is at least that of the better of the two others in {level} of "
        f"{len(gains)} cells (a representation and a set each), and more than {SLACK:g} point "
        f"below it in {len(below)}"
    )
    return f"{text}: {', '.join(below)}." if below else f"{text}."


def _highest(means: Sequence[Sequence[float]]) -> list[float | None]:
    """Return the highest number of each column; None where several rows share it."""
    columns = [list(column) for column in zip(*means, strict=True)]
    return [max(column) if column.count(max(column)) == 1 else None for column in columns]


def _excludes_zero(ends: Sequence[float]) -> bool:
    return ends[0] > 0 or ends[1] < 0
