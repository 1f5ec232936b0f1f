"""The tables of Q2: accuracy, paired differences, runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch.evaluate.statistics import THRESHOLDS
from manymatch.evaluate.tables import Cell, Table
from manymatch_paper.experiments._cells import (
    DEGREES,
    MACRO,
    PAPER_MACRO,
    auc_texts,
    delta_texts,
    dim,
    interval_texts,
    macro_mean,
    missing_rows,
    of_name,
    signed,
    triplet,
)
from manymatch_paper.experiments.paper import paper_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: What the estimators are called in tables and figures.
TITLES = {"cm": "CM", "hcm": "HCM", "mcm": "MCM", "hcm-mcm": "HCM→MCM"}


def best_cells(auc: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Name of the estimator with the highest unrounded mean, one a threshold."""
    return [
        max(auc, key=lambda name: auc[name]["mean"][i])  # the first of equals
        for i in range(len(THRESHOLDS))
    ]


def complementarity(entry: Mapping[str, Any]) -> list[float]:
    """Mean AUC of the two-stage estimator minus the larger of HCM's and MCM's, in points."""
    two, hcm, mcm = (entry["auc"][name]["mean"] for name in ("hcm-mcm", "hcm", "mcm"))
    return [a - max(b, c) for a, b, c in zip(two, hcm, mcm, strict=True)]


def auc_table(measured: dict[str, Any], data: dict[str, Any]) -> Table:
    """Make the table of AUC by set and estimator; bold is the highest unrounded mean."""
    paper = paper_numbers("q2_auc")
    shared = any(entry["name"] in paper["best"] for entry in measured["sets"])
    header = ["Set", "Estimator", *(f"AUC{degrees}" for degrees in DEGREES)]
    header += ["paper, DINOv3"] if shared else []
    rows: list[Sequence[str | Cell]] = []
    entries = [(entry["title"], entry["name"], entry["auc"]) for entry in measured["sets"]]
    for title, name, auc in [*entries, (MACRO, "", measured["macro_auc"])]:
        best = best_cells(auc)
        for i, (estimator, spread) in enumerate(auc.items()):
            cells = [
                Cell(text, bold=estimator == winner)
                for text, winner in zip(auc_texts(spread), best, strict=True)
            ]
            row: list[str | Cell] = ["" if i else title, TITLES[estimator], *cells]
            if shared:
                known = paper["auc"][estimator].get(name)
                row += dim([triplet(known) if known else ""])
            rows.append(row)
    for i, (estimator, by_set) in enumerate(paper["auc"].items()):
        values = [f"{value:.1f}" for value in macro_mean(list(by_set.values()))]
        rows.append(dim(["" if i else PAPER_MACRO, TITLES[estimator], *values, *[""] * shared]))
    rows += missing_rows(data, len(header))
    return Table(
        of_name(measured, data, "Q2: pose AUC (%) of the estimators on the same graphs"),
        header,
        rows,
        ["Mean ± sd over seeds; bold is the highest unrounded mean of a set and threshold."],
    )


def difference_table(measured: dict[str, Any], data: dict[str, Any]) -> Table:
    """Make the table of what the two-stage estimator gains over each other one."""
    paper = paper_numbers("q2_auc")["gain"]
    header = ["Set", "HCM→MCM minus"]
    for degrees in DEGREES:
        header += [f"ΔA{degrees}", "95 % over pairs"]
    rows: list[Sequence[str | Cell]] = []
    entries = [(entry["title"], entry["delta"]) for entry in measured["sets"]]
    for title, delta in [*entries, (MACRO, measured["macro_delta"])]:
        for i, (other, spread) in enumerate(delta.items()):
            row = ["" if i else title, TITLES[other]]
            for gain, interval in zip(delta_texts(spread), interval_texts(spread), strict=True):
                row += [gain, interval]
            rows.append(row)
    for i, (other, gains) in enumerate(paper.items()):
        row = ["" if i else PAPER_MACRO, TITLES[other]]
        for gain in gains:
            row += [signed(gain), ""]
        rows.append(dim(row))
    rows += missing_rows(data, len(header))
    return Table(
        of_name(measured, data, "Q2: paired gain of the two-stage estimator in points"),
        header,
        rows,
        [
            "Mean ± sample sd [min, max] over seeds. The interval resamples pairs, for the macro "
            "average within each set."
        ],
    )


def runtime_table(measured: dict[str, Any], data: dict[str, Any]) -> Table:
    """Make the table of microseconds per evaluation and milliseconds per pair."""
    paper = paper_numbers("q2_runtime")
    header = ["Set", "median edges", "HCM µs", "MCM µs", "MCM / HCM"]
    header += [f"{TITLES[name]} ms" for name in TITLES]
    rows: list[Sequence[str | Cell]] = []
    for entry in measured["sets"]:
        rows.append([entry["title"], f"{entry['median_edges']:.0f}", *_times(entry)])
        if entry["name"] in paper["us"]["hcm"]:
            rows.append(dim(["paper, DINOv3", "", *_paper_times(paper, [entry["name"]])]))
    names = list(paper["us"]["hcm"])
    rows.append(dim([PAPER_MACRO, "", *_paper_times(paper, names)]))
    rows += missing_rows(data, len(header))
    timed = [entry["us"]["pairs"] for entry in measured["sets"] if entry["us"]]
    workers = data["settings"]["workers"]
    how = (
        f"each on one thread with {workers} pairs side by side (alone it would be faster)"
        if workers > 1
        else "one pair after the other, ours on all cores"
    )
    sentences = [
        f"ms: mean time of a complete estimate, {how}. The paper's times are of an "
        f"{paper['machine']}."
    ]
    if timed:
        sentences.insert(
            0,
            "µs: mean time of one evaluation of a sampled hypothesis on one thread, on "
            f"{min(timed)}{'' if min(timed) == max(timed) else f' to {max(timed)}'} pairs a set.",
        )
    return Table(
        of_name(measured, data, "Q2: runtime"), header, rows, [*sentences, _faster(measured)]
    )


def _times(entry: dict[str, Any]) -> list[str]:
    us, seconds = entry["us"], entry["seconds"]
    single = ["", "", ""]
    if us:
        single = [f"{us['hcm']:.2f}", f"{us['mcm']:.2f}", f"{us['mcm'] / us['hcm']:.2f}"]
    return [*single, *(_milliseconds(seconds[name]) for name in TITLES)]


def _milliseconds(seconds: float | None) -> str:
    """Write a time with three digits or more."""
    if seconds is None:
        return ""
    ms = 1e3 * seconds
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}"


def _paper_times(paper: dict[str, Any], names: list[str]) -> list[str]:
    """Average the paper's times over the named sets."""

    def mean(values: dict[str, float]) -> float:
        return sum(values[name] for name in names) / len(names)

    hcm, mcm = mean(paper["us"]["hcm"]), mean(paper["us"]["mcm"])
    total = [f"{mean(paper['ms'][name]):.0f}" for name in TITLES]
    return [f"{hcm:.1f}", f"{mcm:.1f}", f"{mcm / hcm:.2f}", *total]


def _faster(measured: dict[str, Any]) -> str:
    """Say how the two-stage estimator's time stands to the others'."""
    times = [e["seconds"] for e in measured["sets"] if None not in e["seconds"].values()]
    if not times:
        return "No pair could be timed."
    faster = sum(seconds["hcm-mcm"] < seconds["mcm"] for seconds in times)
    over = [100.0 * (seconds["hcm-mcm"] / seconds["hcm"] - 1.0) for seconds in times]
    return (
        f"The two-stage estimator is faster than MCM alone on {faster} of {len(times)} sets "
        f"(paper: 6 of 6); against HCM alone its time differs by {min(over):+.0f} "
        f"to {max(over):+.0f} % (paper: +1 to +6 %)."
    )
