"""Q3: rank-one matching with CM against preserve-then-resolve, within each representation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from manymatch.associate.candidates import Association
from manymatch.options import Options
from manymatch_lab import cells, style
from manymatch_lab.evaluate.protocol import PAPER
from manymatch_lab.evaluate.run import RunConfig, RunResult
from manymatch_lab.evaluate.run_tables import association_text, budget_text, seeds_text
from manymatch_lab.evaluate.statistics import macro_difference, macro_spread
from manymatch_lab.evaluate.tables import Cell, Table
from manymatch_lab.flags import Seeds
from manymatch_lab.numbers import paper_numbers
from manymatch_lab.pose_runs import Gms, PoseSets, about_paper

QUESTION = "Does preserve-then-resolve beat rank-one matching within each representation?"
EXAMPLE = "manymatch-lab q3 pairs_folder --preset classic --preset superpoint"

_TITLES = {"rank-one": "MNN + CM", "many": "m-to-m + HCM→MCM"}
_AVERAGE = "Dataset avg."


class RepresentationSets(PoseSets):
    """Sets of posed graphs, by default of all representations of the paper."""

    presets = PAPER.presets


def run(
    sets: RepresentationSets,
    *,
    seeds: Seeds = PAPER.seeds,
    gms: Gms = True,
    options: Options | None = None,
) -> dict[str, Any]:
    """Run rank-one matching with PoseLib and many candidates with the two-stage estimator.

    Several presets, or folders of graphs by representation, become one panel each.
    """
    options = options or PAPER.options
    association = dataclasses.replace(PAPER.association, gms=gms)
    return sets.run(
        pipelines(association, options, seeds),
        sets.settings(options, seeds, association=association.to_dict()),
        lambda _, results: _measured([results]),
        lambda entries: {"macro": _measured([results for _, results in entries])},
        pipelines(PAPER.association, PAPER.options, PAPER.seeds),
    )


def pipelines(association: Association, options: Options, seeds: int) -> dict[str, RunConfig]:
    """Return the two pipelines that are compared, by name."""
    first = Association.rank_one(association.keep)
    return {
        "rank-one": RunConfig("poselib", first, options, seeds),
        "many": RunConfig("hcm-mcm", association, options, seeds),
    }


def tables(data: dict[str, Any]) -> list[Table]:
    """AUC of both pipelines, and the paired differences."""
    return [_auc_table(data), _delta_table(data)]


def notes(data: dict[str, Any]) -> list[str]:
    """Say what was run, and where the paper's finding holds on it."""
    seen = data["settings"]["association"]
    return [
        f"Rank-one: mutual nearest neighbours, the first {seen['keep']}, PoseLib's LO-RANSAC. "
        f"Preserve, then resolve: {association_text(seen)}, HCM→MCM. Both run "
        f"{budget_text(data['settings'])} with the same seeds.",
        *_ordering(data),
        *about_paper(data),
    ]


def _measured(results: Sequence[Mapping[str, RunResult]]) -> dict[str, Any]:
    """AUC of both pipelines and their difference, averaged over sets."""
    first, second = ([entry[name].errors for entry in results] for name in _TITLES)
    return {
        "auc": {"rank-one": macro_spread(first).to_dict(), "many": macro_spread(second).to_dict()},
        "delta": macro_difference(second, first).to_dict(),
    }


def _ordering(data: dict[str, Any]) -> list[str]:
    positive = paper_numbers("q3_delta")["positive"]
    sentences = []
    for measured in data["runs"]:
        name = measured["representation"]
        counts = cells.sign_counts(entry["delta"] for entry in measured["sets"])
        text = cells.signs_text(f"{name}: preserve-then-resolve is above rank-one", counts)
        if name in positive:
            text += f" In the paper, on its six sets: {positive[name]} of 18."
        lower = [entry["title"] for entry in measured["sets"] if max(entry["delta"]["mean"]) < 0]
        if lower:
            text += f" Rank-one is above at all three thresholds on {', '.join(lower)}."
        sentences.append(text)
    return sentences


def _auc_table(data: dict[str, Any]) -> Table:
    """Two rows a representation, a column a set; the paper's numbers where it has them."""
    paper = paper_numbers("q3_auc")
    rows = []
    for measured in data["runs"]:
        name, of_paper = measured["representation"], paper["auc"].get(measured["representation"])
        for i, (pipeline, title) in enumerate(_TITLES.items()):
            values = {e["name"]: e["auc"][pipeline]["mean"] for e in measured["sets"]}
            average = measured["macro"]["auc"][pipeline]["mean"]
            labels, known = ["" if i else name, title], of_paper and of_paper[pipeline]
            rows.append(cells.MethodRow(labels, values, average, known, group=name))
    shown = {measured["representation"] for measured in data["runs"]}
    for name, title in paper["titles"].items():
        for i, (pipeline, by_set) in enumerate(paper["auc"][name].items()):
            labels = ["" if i else f"paper, {title}", ""]
            more = {"paper": by_set, "paper_label": _TITLES[pipeline]}
            rows += [] if name in shown else [cells.MethodRow(labels, **more)]
    sets = {e["name"]: e["title"] for measured in data["runs"] for e in measured["sets"]}
    degrees, seeds = " / ".join(cells.DEGREES), seeds_text(data["settings"])
    title = f"Q3: pose AUC{degrees} (%) within each representation, {seeds}"
    note = "Mean over seeds; bold is the higher unrounded mean of the two pipelines."
    return cells.method_table(title, ["Representation", "Pipeline"], sets, rows, [note])


def _delta_table(data: dict[str, Any]) -> Table:
    paper, titles = paper_numbers("q3_delta"), paper_numbers("q3_auc")["titles"]
    rows: list[Sequence[str | Cell]] = []

    def of_paper(label: list[str], entries: Sequence[Sequence[float]]) -> list[Cell]:
        texts = (text for delta in cells.paper_delta_texts(entries) for text in (delta, ""))
        return cells.dim([*label, *texts])

    for measured in data["runs"]:
        name = measured["representation"]
        entries = cells.set_entries(measured, "delta", measured["macro"]["delta"], _AVERAGE)
        for i, (title, key, delta) in enumerate(entries):
            rows.append(["" if i else name, title, *cells.with_intervals(delta)])
            if key in paper.get(name, {}):
                rows.append(of_paper(["", "paper"], paper[name][key]))
    for name, title in titles.items():
        rows.append(of_paper([f"paper, {title}", "six datasets"], paper[name]["macro"]))
    return cells.set_table(
        f"Q3: preserve-then-resolve minus rank-one in points, {seeds_text(data['settings'])}",
        ["Representation", "Set", *cells.interval_header()],
        rows,
        [
            "Mean ± sample sd [min, max] over seeds, the same seed on both sides. The interval "
            "resamples pairs, for the average within each set; sets weigh equally."
        ],
        data,
    )


def gains(data: dict[str, Any]) -> style.Figure:
    """Draw mean and sample standard deviation over seeds by set and threshold."""
    runs = data["runs"]
    titles = {e["name"]: e["title"] for run in runs for e in run["sets"]}
    names = list(titles)

    def points(run: dict[str, Any]) -> list[tuple[int, dict[str, Any], list[list[float]]]]:
        entries = [(names.index(entry["name"]), entry["delta"]) for entry in run["sets"]]
        entries.append((len(names), run["macro"]["delta"]))
        return [
            (row, d, [[m - s, m + s] for m, s in zip(d["mean"], d["sd"], strict=True)])
            for row, d in entries
        ]

    def title(run: dict[str, Any]) -> str:
        counts = cells.sign_counts(entry["delta"] for entry in run["sets"])
        return f"{run['representation']}\n{counts['above']}/{counts['cells']} positive"

    return style.gain_panels(
        runs,
        [*titles.values(), _AVERAGE],
        points,
        title,
        text="ΔA, preserve-then-resolve minus rank-one (points)",
        shaded=(len(names) - 0.5, len(names) + 0.6),
        columns=5,
        panel_cm=3.4,
        head_cm=2.6,
    )


FIGURES = {"q3_gains": gains}
