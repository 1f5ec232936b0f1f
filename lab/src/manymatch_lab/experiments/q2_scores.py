"""Q2: CM, HCM, MCM and the two-stage estimator on the same graphs, and what they cost."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from manymatch.associate.candidates import Association
from manymatch.estimate.relative_pose import scorer_times
from manymatch.io.files import read_bytes, write_text
from manymatch.options import Options, num_threads
from manymatch_lab import cells, style
from manymatch_lab.evaluate.inputs import GraphReader
from manymatch_lab.evaluate.protocol import PAPER
from manymatch_lab.evaluate.run import RunConfig, RunResult
from manymatch_lab.evaluate.run_tables import association_text, budget_text
from manymatch_lab.evaluate.statistics import (
    THRESHOLDS,
    auc_spread,
    macro_difference,
    macro_spread,
    paired_difference,
)
from manymatch_lab.evaluate.tables import Cell, Table
from manymatch_lab.flags import Seeds
from manymatch_lab.numbers import paper_numbers
from manymatch_lab.pose_runs import Gms, PoseSets, about_paper, mean_column

QUESTION = "Which score is best on the same graphs, and are two stages better than each alone?"
EXAMPLE = "manymatch-lab q2 synthetic:ordering --no-gms --seeds 2 --out out/q2"

#: What the estimators are called in tables and figures.
TITLES = {"cm": "CM", "hcm": "HCM", "mcm": "MCM", "hcm-mcm": "HCM→MCM"}

# CM is PoseLib's, as in the paper.
_ESTIMATORS = {**{name: name for name in TITLES}, "cm": "poselib"}
_OTHERS = ("cm", "hcm", "mcm")


def run(
    sets: PoseSets,
    *,
    seeds: Seeds = PAPER.seeds,
    gms: Gms = True,
    timed_pairs: Annotated[
        int, "Pairs of each set on which single evaluations are timed, evenly spread; 0 for none."
    ] = 20,
    options: Options | None = None,
) -> dict[str, Any]:
    """Compare the scores and the two-stage estimator: pose AUC, paired differences, runtime.

    The scores are consensus maximization (CM), harmonic consensus maximization (HCM) and matching
    cardinality maximization (MCM).
    """
    options = options or PAPER.options
    association = dataclasses.replace(PAPER.association, gms=gms)
    configs = _configs(association, options, seeds)

    def of_set(source: GraphReader, results: Mapping[str, RunResult]) -> dict[str, Any]:
        count = len(results["hcm-mcm"])
        times = mean_times(
            source, association, options, count, timed_pairs, sets.run_folder(source)
        )
        return {**_measured(results), "us": times}

    workers = num_threads(sets.workers)
    settings = sets.settings(options, seeds, association=association.to_dict(), workers=workers)
    paper = _configs(PAPER.association, PAPER.options, PAPER.seeds)
    return sets.run(configs, settings, of_set, _macro, paper)


def _configs(association: Association, options: Options, seeds: int) -> dict[str, RunConfig]:
    """Return the run of every estimator."""
    return {
        name: RunConfig(estimator, association, options, seeds)
        for name, estimator in _ESTIMATORS.items()
    }


def tables(data: dict[str, Any]) -> list[Table]:
    """AUC, paired differences, and runtimes of every representation."""
    makers = (_auc_table, _difference_table, _runtime_table)
    return [make(measured, data) for measured in data["runs"] for make in makers]


def notes(data: dict[str, Any]) -> list[str]:
    """Say what was run and what the paper's numbers are."""
    settings = data["settings"]
    return [
        "All estimators get the same graph of a pair: "
        f"{association_text(settings['association'])}. They run {budget_text(settings)}. CM is "
        "PoseLib's LO-RANSAC on the edges as independent correspondences.",
        *about_paper(data),
    ]


def _measured(results: Mapping[str, RunResult]) -> dict[str, Any]:
    """AUC by estimator, differences of the two-stage one, and what a pair costs."""
    errors = {name: result.errors for name, result in results.items()}

    def gain(first: str, second: str) -> dict[str, Any]:
        return paired_difference(errors[first], errors[second]).to_dict()

    return {
        "median_edges": float(np.median(results["hcm-mcm"].num_edges)),
        "auc": {name: auc_spread(values).to_dict() for name, values in errors.items()},
        "delta": {other: gain("hcm-mcm", other) for other in _OTHERS},
        "over_cm": {name: gain(name, "cm") for name in ("hcm", "mcm")},
        **{
            column: {name: mean_column([result], column) for name, result in results.items()}
            for column in ("seconds", "iterations")
        },
    }


def _macro(entries: Sequence[tuple[GraphReader, Mapping[str, RunResult]]]) -> dict[str, Any]:
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
        cells.signs_text(f"{TITLES[name]} is above CM", cells.sign_counts(spreads))
        for name, spreads in over_cm.items()
    ]
    gains = [gain for entry in sets for gain in complementarity(entry)]
    sentences.append(
        "In the paper all three are above CM in 18 of 18. The two-stage estimator is above the "
        f"better of HCM and MCM in {sum(gain > 0 for gain in gains)} of {len(gains)} cells (paper: "
        f"16 of 18); its largest deficit is {max(0.0, -min(gains)):.2f} points (paper: within 0.1)."
    )
    return sentences


def complementarity(entry: Mapping[str, Any]) -> list[float]:
    """Mean AUC of the two-stage estimator minus the larger of HCM's and MCM's, in points."""
    two, hcm, mcm = (entry["auc"][name]["mean"] for name in ("hcm-mcm", "hcm", "mcm"))
    return [a - max(b, c) for a, b, c in zip(two, hcm, mcm, strict=True)]


def _auc_table(measured: dict[str, Any], data: dict[str, Any]) -> Table:
    """Make the table of AUC by estimator and set; bold is the highest unrounded mean."""
    paper = paper_numbers("q2_auc")
    rows = [
        cells.MethodRow(
            [title],
            {entry["name"]: entry["auc"][name]["mean"] for entry in measured["sets"]},
            measured["macro_auc"][name]["mean"],
            paper["auc"][name],
        )
        for name, title in TITLES.items()
    ]
    spreads = [spread for entry in measured["sets"] for spread in entry["auc"].values()]
    deviation = max(max(spread["sd"]) for spread in spreads)
    notes = [
        "Mean over seeds; bold is the highest unrounded mean of a set and threshold.",
        *_ordering(measured),
    ]
    if data["settings"]["seeds"] > 1:
        notes[0] += (
            f" The largest sample standard deviation over seeds is {deviation:.2f} points (paper: "
            f"{paper['largest_sd']:.2f})."
        )
    title = f"Q2: pose AUC{' / '.join(cells.DEGREES)} (%) of the estimators on the same graphs"
    sets = {entry["name"]: entry["title"] for entry in measured["sets"]}
    run_title = cells.run_title(title, data, measured)
    return cells.method_table(run_title, ["Configuration"], sets, rows, notes)


def _difference_table(measured: dict[str, Any], data: dict[str, Any]) -> Table:
    """Make the table of what the two-stage estimator gains over each other one."""
    rows: list[Sequence[str | Cell]] = []
    for title, _, delta in cells.set_entries(measured, "delta", measured["macro_delta"]):
        for i, (other, spread) in enumerate(delta.items()):
            rows.append(["" if i else title, TITLES[other], *cells.with_intervals(spread)])
    for i, (other, gains) in enumerate(paper_numbers("q2_auc")["gain"].items()):
        texts = [text for gain in gains for text in (cells.signed(gain), "")]
        rows.append(cells.dim(["" if i else cells.PAPER_MACRO, TITLES[other], *texts]))
    title = "Q2: paired gain of the two-stage estimator in points"
    header = ["Set", "HCM→MCM minus", *cells.interval_header()]
    note = (
        "Mean ± sample sd [min, max] over seeds. The interval resamples pairs, for the macro "
        "average within each set."
    )
    return cells.set_table(title, header, rows, [note], data, measured)


def _runtime_table(measured: dict[str, Any], data: dict[str, Any]) -> Table:
    """Make the table of microseconds per evaluation and milliseconds per pair."""
    paper = paper_numbers("q2_runtime")
    header = ["Set", "median edges", "HCM µs", "MCM µs", "MCM / HCM", "screened HCM / MCM µs"]
    header += [f"{TITLES[name]} ms" for name in TITLES]
    rows: list[Sequence[str | Cell]] = []
    for entry in measured["sets"]:
        us, single = entry["us"], [""] * 4
        if us:
            hcm, mcm = us["complete hcm"], us["complete mcm"]
            single = [f"{hcm:.2f}", f"{mcm:.2f}", f"{mcm / hcm:.2f}"]
            single.append(f"{us['hcm']:.2f} / {us['mcm']:.2f}")
        whole = [cells.milliseconds(entry["seconds"][name]) for name in TITLES]
        rows.append([entry["title"], f"{entry['median_edges']:.0f}", *single, *whole])
        if entry["name"] in paper["us"]["hcm"]:
            rows.append(cells.dim(["paper, DINOv3", "", *_paper_times(paper, [entry["name"]])]))
    names = list(paper["us"]["hcm"])
    rows.append(cells.dim([cells.PAPER_MACRO, "", *_paper_times(paper, names)]))
    timed = [entry["us"]["pairs"] for entry in measured["sets"] if entry["us"]]
    workers = data["settings"]["workers"]
    how = (
        f"each on one thread with {workers} pairs side by side (alone it would be faster)"
        if workers > 1
        else "one pair after the other, ours on all cores"
    )
    sentences = []
    if timed:
        sentences.append(
            "µs: mean time of one complete evaluation of a sampled hypothesis, as the paper counts "
            "it: all residuals, depths and the score, on one thread, on "
            f"{min(timed)}{'' if min(timed) == max(timed) else f' to {max(timed)}'} pairs a set. "
            "Screened: an evaluation as the search does most of them, in single precision."
        )
    sentences += [
        f"ms: mean time of a complete estimate, {how}. The paper's times are of an "
        f"{paper['machine']}.",
        _faster(measured),
    ]
    return cells.set_table("Q2: runtime", header, rows, sentences, data, measured)


def _paper_times(paper: dict[str, Any], names: list[str]) -> list[str]:
    """Average the paper's times over the named sets."""

    def mean(values: dict[str, float]) -> float:
        return sum(values[name] for name in names) / len(names)

    hcm, mcm = mean(paper["us"]["hcm"]), mean(paper["us"]["mcm"])
    total = [f"{mean(paper['ms'][name]):.0f}" for name in TITLES]
    return [f"{hcm:.1f}", f"{mcm:.1f}", f"{mcm / hcm:.2f}", "", *total]


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


def mean_times(
    source: GraphReader,
    association: Association,
    options: Options,
    pairs: int,
    timed: int,
    folder: Path,
) -> dict[str, float] | None:
    """Mean microseconds of the evaluations of `scorer_times` on sampled hypotheses, one thread.

    Of the first `pairs` pairs of a set `timed` ones are timed, evenly spread. The times are kept in
    the folder, so that a run that is drawn again shows the same. None if nothing was timed, or no
    pair has enough candidates.
    """
    if timed == 0:
        return None
    chosen = sorted(set(np.linspace(0, pairs - 1, min(timed, pairs)).round().astype(int).tolist()))
    key = {
        "source": source.identity,
        "association": association.to_dict(),
        "options": {name: getattr(options, name) for name in ("threshold_px", "q", "delta")},
        "pairs": chosen,
    }
    path = folder / "scorers.json"
    with contextlib.suppress(ValueError, TypeError, KeyError):
        kept = json.loads(read_bytes(path, "a JSON file", "text_mb"))
        # A round trip through JSON turns tuples into lists.
        if kept["key"] == json.loads(json.dumps(key)):
            known: dict[str, float] | None = kept["times"]
            return known
    measured = []
    for posed in (source[index] for index in chosen):
        graph = association.apply(posed.graph, **posed.sizes)
        scaled = options.with_pixels(posed.pixels)
        if found := scorer_times(graph, posed.camera0, posed.camera1, scaled):
            measured.append(found)
    times: dict[str, float] | None = None
    if measured:
        times = {name: 1e6 * float(np.mean([m[name] for m in measured])) for name in measured[0]}
        times["pairs"] = len(measured)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps({"key": key, "times": times}, indent=1))
    return times


_MARKERS = ("o", "s", "^")
_ESTIMATOR_COLOURS = {
    "cm": style.COLOURS[7],
    "hcm": style.COLOURS[4],
    "mcm": style.COLOURS[0],
    "hcm-mcm": style.COLOURS[1],
}


def triplets(data: dict[str, Any]) -> style.Figure:
    """Draw, for every set and estimator, the mean AUC at the three thresholds on one line."""
    runs = data["runs"]
    figure, axes = _rows(runs, 3.0, 2.1, 1.4, 5.2)
    for axis, run in zip(axes, runs, strict=True):
        for place, entry in enumerate(run["sets"]):
            for i, (name, colour) in enumerate(_ESTIMATOR_COLOURS.items()):
                mean = entry["auc"][name]["mean"]
                x = place + 0.19 * (i - 1.5)
                axis.plot([x] * len(mean), mean, color=colour, linewidth=1.4)
                for marker, value in zip(_MARKERS, mean, strict=True):
                    axis.plot([x], [value], marker=marker, color=colour, linestyle="none")
        names = [f"{_broken(entry['title'])}\n({entry['pairs']})" for entry in run["sets"]]
        axis.set_xticks(range(len(names)), names)
        axis.set_xlim(-0.55, len(names) - 0.45)
        axis.set_ylim(bottom=0.0)
        axis.grid(visible=False, axis="x")
        axis.set_ylabel("pose AUC (%)")
        axis.set_title(run["representation"], loc="left")
    lines = [style.legend_line(TITLES[name], color=c) for name, c in _ESTIMATOR_COLOURS.items()]
    marks = [
        style.legend_line(f"@{threshold}°", color=style.INK, marker=marker, linestyle="none")
        for marker, threshold in zip(_MARKERS, THRESHOLDS, strict=True)
    ]
    style.legend_above(figure, [*lines, *marks])
    return figure


def complementarity_map(data: dict[str, Any]) -> style.Figure:
    """Draw what two stages gain over the better single one, a cell a set and threshold."""
    runs = data["runs"]
    figure, axes = _rows(runs, 3.4, 1.75, 1.0, 3.1)
    gains = [np.array([complementarity(entry) for entry in run["sets"]]).T for run in runs]
    # One scale for all, even on both sides of zero.
    limit = max(0.5, *(float(np.abs(values).max()) for values in gains))
    image: Any = None
    for axis, run, values in zip(axes, runs, gains, strict=True):
        image = axis.imshow(values, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto")
        for (row, column), value in np.ndenumerate(values):
            look = {"color": "white" if abs(value) > 0.6 * limit else style.INK, "fontsize": 7}
            axis.text(column, row, cells.signed(value), ha="center", va="center", **look)
        names = [_broken(entry["title"]) for entry in run["sets"]]
        axis.set_xticks(range(len(names)), names)
        axis.set_yticks(range(len(THRESHOLDS)), [f"@{threshold}°" for threshold in THRESHOLDS])
        axis.grid(visible=False)
        axis.tick_params(length=0)
        positive = f"{int((values > 0).sum())} of {values.size} cells positive"
        axis.set_title(f"{run['representation']}: {positive}", loc="left")
    figure.colorbar(image, ax=list(axes), label="gain (points)", pad=0.02)
    return figure


def _rows(
    runs: list[dict[str, Any]], edge_cm: float, set_cm: float, head_cm: float, row_cm: float
) -> tuple[style.Figure, Any]:
    """Make a figure with a row for every run, as wide as the most sets need."""
    widest = max(len(run["sets"]) for run in runs)
    width = min(style.PAGE_CM, max(style.COLUMN_CM, edge_cm + set_cm * widest))
    figure = style.new_figure(width, head_cm + row_cm * len(runs))
    return figure, figure.subplots(len(runs), 1, squeeze=False)[:, 0]


def _broken(title: str) -> str:
    """Break a long name at one of its joints."""
    joints = [i for i, character in enumerate(title) if character in "_- "]
    if len(title) <= 11 or not joints:
        return title
    middle = min(joints, key=lambda i: abs(i - len(title) / 2))
    return f"{title[: middle + 1].rstrip()}\n{title[middle + 1 :]}"


FIGURES = {"q2_estimators": triplets, "q2_complementarity": complementarity_map}
