"""Numbers as cells of tables: pose AUC, its differences, and the paper's numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from manymatch_lab.evaluate.run_tables import seeds_text
from manymatch_lab.evaluate.statistics import THRESHOLDS
from manymatch_lab.evaluate.tables import Cell, Table

#: Ends of column names, one a threshold.
DEGREES = tuple(f"@{threshold}°" for threshold in THRESHOLDS)
#: Name of the average that weights every set equally.
MACRO = "Macro average"
#: Label of the paper's averages beside sets that the paper does not have.
PAPER_MACRO = "paper, DINOv3, six datasets"


def columns(before: str, after: str = "") -> list[str]:
    """Name one column a threshold."""
    return [f"{before}{degrees}{after}" for degrees in DEGREES]


def triplet(values: Iterable[float], digits: int = 1) -> str:
    """Write AUC@5/10/20 as the paper does, ``a / b / c``."""
    return " / ".join(f"{value:.{digits}f}" for value in values)


def auc_texts(spread: dict[str, Any], digits: int = 1) -> list[str]:
    """Write a spread over seeds as ``mean ± sd``, one text a threshold."""
    return [
        f"{mean:.{digits}f}{_plus_minus(sd, spread, digits)}"
        for mean, sd in zip(spread["mean"], spread["sd"], strict=True)
    ]


def delta_texts(spread: dict[str, Any], digits: int = 2, sd: bool = True) -> list[str]:
    """Write a difference as ``mean ± sd [min, max]``, one text a threshold."""
    texts = []
    for i, mean in enumerate(spread["mean"]):
        middle = _plus_minus(spread["sd"][i], spread, digits) if sd else ""
        low, high = spread["min"][i], spread["max"][i]
        texts.append(f"{signed(mean, digits)}{middle} {_range(low, high, digits)}")
    return texts


def paper_delta_texts(entries: Sequence[Sequence[float]], digits: int = 2) -> list[str]:
    """Write the paper's ``[mean, sd, min, max]`` in the same way."""
    return [
        f"{signed(mean, digits)} ± {sd:.{digits}f} {_range(low, high, digits)}"
        for mean, sd, low, high in entries
    ]


def interval_texts(spread: dict[str, Any], digits: int = 2) -> list[str]:
    """Write the interval over pairs as ``[low, high]``, one text a threshold."""
    return [_range(low, high, digits) for low, high in spread["interval"]]


def signed(value: float, digits: int = 2) -> str:
    """Write a difference with its sign, but zero without one."""
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text


def dim(texts: Iterable[str]) -> list[Cell]:
    """Make cells for orientation only, such as the paper's numbers."""
    return [Cell(text, dim=True) for text in texts]


def sign_counts(spreads: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Count cells by the sign of their mean, and those whose interval excludes zero."""
    counts = {"cells": 0, "above": 0, "below": 0, "clearly above": 0, "clearly below": 0}
    for spread in spreads:
        for mean, (low, high) in zip(spread["mean"], spread["interval"], strict=True):
            # A difference that is shown as 0.00 has no sign.
            shown = float(signed(mean))
            counts["cells"] += 1
            counts["above"] += shown > 0
            counts["below"] += shown < 0
            counts["clearly above"] += shown > 0 and low > 0
            counts["clearly below"] += shown < 0 and high < 0
    return {name: int(count) for name, count in counts.items()}


def signs_text(what: str, counts: dict[str, int]) -> str:
    """Say in how many cells a difference has which sign."""
    return (
        f"{what} in {counts['above']} of {counts['cells']} cells (a set and a threshold each), in "
        f"{counts['clearly above']} of them with an interval over pairs that excludes zero; "
        f"below in {counts['below']}, {counts['clearly below']} of them clearly."
    )


@dataclasses.dataclass(frozen=True)
class MethodRow:
    """A row of a table in the paper's form: a method, and its AUC by set."""

    labels: Sequence[str]
    values: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    average: Sequence[float] | None = None
    paper: Mapping[str, Sequence[float]] | None = None  # the paper's numbers, by set
    paper_label: str = "paper"
    group: str | None = ""  # rows of one group are compared; None leaves a row out
    reason: str = ""  # why it was not run


def method_table(
    title: str,
    header: Sequence[str],
    sets: Mapping[str, str],
    rows: Sequence[MethodRow],
    notes: Sequence[str],
    *,
    second: bool = False,
) -> Table:
    """Make a table in the paper's form: methods as rows, sets as columns, AUC as ``a / b / c``.

    `sets` are titles by name. The best unrounded mean of a set, threshold and group is bold and,
    with `second`, the next one underlined. The paper's numbers follow a row; in the last column
    they are the average over its six sets.
    """
    cells: list[list[str | Cell]] = []
    for row in rows:
        found = [row.values.get(name) for name in sets]
        compared = [
            other.values for other in rows if row.group is not None and other.group == row.group
        ]
        numbers: list[str | Cell] = []
        for name, values in zip(sets, found, strict=True):
            ranked = [other[name] for other in compared if name in other]
            numbers.append(_ranked_triplet(values, ranked, second) if values else "")
        if row.reason:
            place = next(i for i, values in enumerate(found) if not values)
            numbers[place] = Cell(f"not run: {row.reason}", dim=True)
        average = triplet(row.average) if row.average else ""
        label = [*row.labels[:-1], f"  {row.paper_label}"]
        if row.values or row.reason:
            cells.append([*row.labels, *numbers, average])
            label[:-1] = [""] * len(label[:-1])
        if row.paper is not None:
            known = [triplet(row.paper[name]) if name in row.paper else "" for name in sets]
            cells.append([*dim([*label, *known, triplet(macro_mean(list(row.paper.values())))])])
    return Table(title, [*header, *sets.values(), "Average"], cells, notes)


def _ranked_triplet(
    values: Sequence[float], ranked: Sequence[Sequence[float]], second: bool
) -> Cell:
    """Write AUC at the thresholds, each with its place among those that it is compared with."""
    parts = []
    for i, value in enumerate(values):
        taken = sorted({other[i] for other in ranked}, reverse=True)
        place = taken.index(value) if value in taken and len(ranked) > 1 else -1
        parts.append(Cell(f"{value:.1f}", bold=place == 0, underline=second and place == 1))
    return Cell.of_parts(parts)


def set_table(
    title: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str | Cell]],
    notes: Sequence[str],
    data: dict[str, Any],
    run: dict[str, Any] | None = None,
) -> Table:
    """Make a table with a row for every set that was asked for and is not here.

    The title of the table of one run also says representation and number of seeds.
    """
    empty = [""] * (len(header) - 2)
    absent = ([entry["set"], Cell("not run", dim=True), *empty] for entry in data["missing"])
    return Table(run_title(title, data, run), header, [*rows, *absent], notes)


def run_title(title: str, data: dict[str, Any], run: dict[str, Any] | None) -> str:
    """Add representation and number of seeds to the title of a table of one run."""
    if run is None:
        return title
    return f"{title}, {run['representation']}, {seeds_text(data['settings'])}"


def set_entries(
    run: dict[str, Any], name: str, average: Any, title: str = MACRO
) -> list[tuple[str, str, Any]]:
    """List title, name and one value of every set of a run, and last the average over them."""
    entries = [(entry["title"], entry["name"], entry[name]) for entry in run["sets"]]
    return [*entries, (title, "", average)]


def listed(words: Sequence[str]) -> str:
    """Join words as a sentence does."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def with_intervals(spread: dict[str, Any], *, sd: bool = True) -> list[str]:
    """Write a difference and its interval over pairs, two texts a threshold."""
    pairs = zip(delta_texts(spread, sd=sd), interval_texts(spread), strict=True)
    return [text for pair in pairs for text in pair]


def interval_header() -> list[str]:
    """Name the columns of `with_intervals`."""
    return [text for degrees in DEGREES for text in (f"ΔA{degrees}", "95 % over pairs")]


def milliseconds(seconds: float | None) -> str:
    """Write a time with three digits or more; nothing for an unknown one."""
    if seconds is None:
        return ""
    ms = 1e3 * seconds
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}"


def macro_mean(values: Sequence[Sequence[float]]) -> list[float]:
    """Average the rows of a list, every row with the same weight."""
    return [float(value) for value in np.mean(values, axis=0)]


def _plus_minus(sd: float, spread: dict[str, Any], digits: int) -> str:
    # A single seed has no standard deviation, which a spread writes as zeros.
    alone = not any(spread["sd"]) and spread["min"] == spread["max"]
    return "" if alone else f" ± {sd:.{digits}f}"


def _range(low: float, high: float, digits: int) -> str:
    # Adding zero turns a negative one into a positive one.
    return f"[{round(low, digits) + 0.0:.{digits}f}, {round(high, digits) + 0.0:.{digits}f}]"
