"""Q1: the gain of candidates beyond rank one when the minimal samples stay the same.

Nested graphs E_1 to E_K; minimal samples are always drawn from E_1, everything else sees E_K. No
cap, no filter, a fixed number of iterations. Afterwards the true pose is scored with the same
graph: would it have entered the pool of raw seeds?
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from manymatch.associate.candidates import Association
from manymatch.options import Options
from manymatch_lab import cells, style
from manymatch_lab.evaluate.protocol import PAPER, unequal
from manymatch_lab.evaluate.run import RunConfig, RunResult
from manymatch_lab.evaluate.statistics import THRESHOLDS, auc_spread, macro_difference, macro_spread
from manymatch_lab.evaluate.tables import Cell, Table
from manymatch_lab.flags import Seeds
from manymatch_lab.numbers import paper_numbers
from manymatch_lab.pose_runs import PoseSets, about_paper

QUESTION = "Do candidates beyond rank one help when the minimal samples stay the same?"
EXAMPLE = "manymatch-lab q1 synthetic:ordering --iterations 5000 --limit 20"


def run(
    sets: PoseSets,
    *,
    k: Annotated[int, "Largest number of candidates of a keypoint."] = PAPER.association.k,
    seeds: Seeds = PAPER.seeds,
    iterations: Annotated[
        int, "Minimal samples, neither more nor fewer."
    ] = PAPER.options.max_iterations,
) -> dict[str, Any]:
    """Sweep K with minimal samples from rank-one candidates only, and score the true pose."""
    ks = list(range(1, k + 1))
    options, configs = _configs(ks, seeds, iterations)
    _, papers = _configs(ks, PAPER.seeds, PAPER.options.max_iterations)
    data = sets.run(
        configs,
        sets.settings(options, seeds, ks=ks, iterations=iterations),
        lambda _, results: _measured(list(results.values())),
        lambda entries: _macro([list(results.values()) for _, results in entries]),
        papers,
    )
    data["differs_from_paper"] += unequal("the largest K", k, PAPER.association.k)
    return data


def _configs(
    ks: Sequence[int], seeds: int, iterations: int
) -> tuple[Options, dict[str, RunConfig]]:
    """Return a fixed budget, and the run of every K with it."""
    options = PAPER.options.replace(min_iterations=iterations, max_iterations=iterations)
    return options, {
        f"K{rank}": RunConfig(
            estimator=PAPER.method,
            association=Association.uncapped(rank),
            options=options,
            seeds=seeds,
            proposals_rank=1,
            probe=True,
        )
        for rank in ks
    }


def tables(data: dict[str, Any]) -> list[Table]:
    """AUC and its gain by set and K, the gain at the largest K, and the inclusion."""
    makers = (_auc_table, _gain_table, _inclusion_table)
    return [make(measured, data) for measured in data["runs"] for make in makers]


def notes(data: dict[str, Any]) -> list[str]:
    """Say what was run and what the paper's numbers are."""
    return [
        "The graphs are nested, E_1 within E_2 up to E_K (mutual nearest neighbours). Minimal "
        f"samples come from E_1 in all {data['settings']['iterations']:,} iterations; assignment, "
        "scores, refinement and re-ranking see E_K, uncapped and unfiltered.",
        *about_paper(data),
    ]


def _measured(by_k: list[RunResult]) -> dict[str, Any]:
    """AUC, its gain over K = 1, graph sizes and inclusion of one set, one entry a K."""
    return {
        "median_edges": [float(np.median(result.num_edges)) for result in by_k],
        "auc": [auc_spread(result.errors).to_dict() for result in by_k],
        "delta": [macro_difference([result.errors], [by_k[0].errors]).to_dict() for result in by_k],
        "inclusion": [_inclusion(result) for result in by_k],
    }


def _inclusion(result: RunResult) -> float:
    """Percent of all trials in which the true pose would have entered the pool.

    It does not where a trial fails, nor where it has no probe, as with an unreadable image.
    """
    return 100.0 * float(np.mean(np.nan_to_num(result.column("enters"))))


def _macro(sets: list[list[RunResult]]) -> dict[str, Any]:
    by_k = [[result.errors for result in entry] for entry in zip(*sets, strict=True)]
    inclusion = [[_inclusion(result) for result in entry] for entry in sets]
    return {
        "macro_auc": [macro_spread(errors).to_dict() for errors in by_k],
        "macro_delta": [macro_difference(errors, by_k[0]).to_dict() for errors in by_k],
        "macro_inclusion": cells.macro_mean(inclusion),
    }


def _auc_table(measured: dict[str, Any], data: dict[str, Any]) -> Table:
    ks = data["settings"]["ks"]
    header = [
        "Set",
        "K",
        "median |E_K|",
        *cells.columns("AUC"),
        *cells.columns("ΔA", " [min, max]"),
    ]
    macro = {"title": cells.MACRO, "auc": measured["macro_auc"], "delta": measured["macro_delta"]}
    rows: list[Sequence[str | Cell]] = []
    for entry in [*measured["sets"], macro]:
        for i, rank in enumerate(ks):
            size = f"{entry['median_edges'][i]:.0f}" if "median_edges" in entry else ""
            gain = cells.delta_texts(entry["delta"][i], sd=False) if i else [""] * 3
            auc = cells.auc_texts(entry["auc"][i])
            rows.append(["" if i else entry["title"], str(rank), size, *auc, *gain])
    paper = paper_numbers("q1_auc")
    gains = [after - before for before, after in zip(*paper["macro"], strict=True)]
    ranges = [
        f"{cells.signed(gain)} [{low:.2f}, {high:.2f}]"
        for gain, (low, high) in zip(gains, paper["macro_range"], strict=True)
    ]
    for i, rank in enumerate(paper["ks"]):
        values = [f"{value:.2f}" for value in paper["macro"][i]]
        gain = ranges if i else [""] * 3
        rows.append(cells.dim(["" if i else cells.PAPER_MACRO, str(rank), "", *values, *gain]))
    title = "Q1: pose AUC (%) by K with fixed proposals"
    note = "AUC: mean ± sd over seeds; ΔA: against K = 1 with the same seed, in points."
    return cells.set_table(title, header, rows, [note, *_ordering(measured, ks)], data, measured)


def _ordering(measured: dict[str, Any], ks: list[int]) -> list[str]:
    """Sentences on where more candidates help, from the numbers."""
    last = [entry["delta"][-1] for entry in measured["sets"]]
    improved = [entry["title"] for entry in measured["sets"] if min(entry["delta"][-1]["mean"]) > 0]
    worse = [entry["title"] for entry in measured["sets"] if max(entry["delta"][-1]["mean"]) < 0]
    best = [
        f"{entry['title']} {ks[int(np.argmax([auc['mean'][-1] for auc in entry['auc']]))]}"
        for entry in measured["sets"]
    ]
    count = len(measured["sets"])
    sentences = [
        cells.signs_text(f"K = {ks[-1]} is above K = {ks[0]}", cells.sign_counts(last)),
        f"At all three thresholds it is above on {len(improved)} of {count} sets"
        f"{f' and below on {cells.listed(worse)}' if worse else ''}; the paper: above on five of "
        "six, with a decline from K = 3 to 5 on MegaDepth.",
        f"Best K by AUC@{THRESHOLDS[-1]}°: {cells.listed(best)}.",
    ]
    return sentences if len(ks) > 1 else []


def _gain_table(measured: dict[str, Any], data: dict[str, Any]) -> Table:
    total = sum(entry["pairs"] for entry in measured["sets"])
    macro = {"title": cells.MACRO, "pairs": total, "delta": measured["macro_delta"]}
    return cells.set_table(
        f"Q1: gain of K = {data['settings']['ks'][-1]} over K = 1 in points",
        ["Set", "pairs", *cells.interval_header()],
        [
            [e["title"], str(e["pairs"]), *cells.with_intervals(e["delta"][-1], sd=False)]
            for e in [*measured["sets"], macro]
        ],
        [
            "ΔA with [min, max] over seeds. The interval resamples pairs, for the macro "
            "average within each set; pairs that share images are not independent, so it is "
            "rather too narrow."
        ],
        data,
        measured,
    )


def _inclusion_table(measured: dict[str, Any], data: dict[str, Any]) -> Table:
    ks = data["settings"]["ks"]
    paper = paper_numbers("q1_inclusion")

    def of_paper(label: str, values: list[float]) -> list[Cell]:
        known = dict(zip(paper["ks"], values, strict=True))
        return cells.dim([label, *(f"{known[rank]:.2f}" if rank in known else "" for rank in ks)])

    rows: list[Sequence[str | Cell]] = []
    for entry in measured["sets"]:
        rows.append([entry["title"], *(f"{value:.2f}" for value in entry["inclusion"])])
        if entry["name"] in paper["sets"]:
            rows.append(of_paper("paper, DINOv3", paper["sets"][entry["name"]]))
    rows.append([cells.MACRO, *(f"{value:.2f}" for value in measured["macro_inclusion"])])
    rows.append(of_paper(cells.PAPER_MACRO, paper["macro"]))
    rising = sum(entry["inclusion"][-1] > entry["inclusion"][0] for entry in measured["sets"])
    return cells.set_table(
        "Q1: reference pose in the top-100 pool (%)",
        ["Set", *(f"K = {rank}" for rank in ks)],
        rows,
        [
            "Pooled over pairs and seeds; the true pose enters if its HCM score is strictly above "
            "the worst pooled one, and never where no pose was found. "
            f"From K = {ks[0]} to {ks[-1]} the rate rises on {rising} of "
            f"{len(measured['sets'])} sets; the paper: on five of six, not on MegaDepth."
        ],
        data,
        measured,
    )


def k_sweep(data: dict[str, Any]) -> style.Figure:
    """Draw mean gains with min-max bands over seeds; below each K the median size of its graph."""
    ks = data["settings"]["ks"]
    figure, axes = style.panel_rows(data["runs"])
    handles: list[Any] = []
    for axis, entry in axes:
        axis.axhline(0.0, color=style.GREY, linewidth=0.7, zorder=1)
        handles = []
        for i, threshold in enumerate(THRESHOLDS):
            mean, low, high = (
                [delta[key][i] for delta in entry["delta"]] for key in ("mean", "min", "max")
            )
            colour = style.THRESHOLD_COLOURS[threshold]
            axis.fill_between(ks, low, high, color=colour, alpha=0.2, linewidth=0)
            handles += axis.plot(
                ks, mean, color=colour, marker=style.MARKERS[i], label=f"AUC@{threshold}°"
            )
        style.panel_title(axis, f"{entry['title']} ({entry['pairs']})")
        sizes = []
        for size in entry["median_edges"]:
            digits = 1 if size < 99_950 else 0
            sizes.append(f"{size:.0f}" if size < 1_000 else f"{size / 1_000:.{digits}f}k")
        axis.set_xticks(ks, [f"{k}\n{size}" for k, size in zip(ks, sizes, strict=True)])
        axis.set_xlim(ks[0] - 0.35, ks[-1] + 0.35)
    figure.supylabel("ΔA against K = 1 (points)", fontsize=7.5, color=style.INK)
    figure.supxlabel("K; below it the median number of edges |E_K|", fontsize=7.5, color=style.INK)
    style.legend_above(figure, handles)
    return figure


FIGURES = {"q1_k_sweep": k_sweep}
