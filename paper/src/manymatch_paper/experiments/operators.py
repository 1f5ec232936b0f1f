"""Association operators: mutual, one-way and union K-nearest neighbours at equal cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import integer
from manymatch.associate.neighbours import OPERATORS
from manymatch.evaluate.tables import Cell, Table
from manymatch_paper.experiments._pair_curves import by_bin, folder_name, pair_curves
from manymatch_paper.experiments.diagnose_tables import NOTHING, bin_notes, filled_bins
from manymatch_paper.experiments.operators_figure import FIGURES, TITLES
from manymatch_paper.experiments.paper import paper_numbers
from manymatch_paper.measures.recall import TAUS_CM, descriptor_recall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from manymatch.datasets.dataset import Dataset
    from manymatch.io.pairs import Pair
    from manymatch_paper.experiments._dense_pairs import PatchSource
    from manymatch_paper.measures.recall import RecallCurve

__all__ = ["FIGURES", "notes", "run", "tables"]

_SHOWN_KS = (1, 2, 3, 5, 8, 16)


def run(
    sets: Sequence[Dataset],
    source: PatchSource,
    folder: Path,
    *,
    k: int = 16,
    bins: Sequence[float] = (0.0, 40.0, 80.0, 120.0),
    taus_cm: Sequence[float] = TAUS_CM,
    limit: int | None = None,
    progress: Callable[[str, int, int], object] | None = None,
) -> dict[str, Any]:
    """Measure the operators on every set, or go on with a run that was stopped.

    Parameters
    ----------
    sets : sequence of Dataset
        With depth and true poses.
    source : PatchSource
        A backbone with one layer and one rank.
    folder, k, bins, taus_cm, limit, progress
        As in `manymatch.experiments.diagnose.run`.

    Returns
    -------
    dict
        What `tables` and the figures need, as JSON types.
    """
    integer(k, "k", 1)
    if len(source.layers) != 1 or len(source.ranks) != 1:
        raise ValueError(
            f"source must have one layer and one rank, got {len(source.layers)} and "
            f"{len(source.ranks)}"
        )
    runs = []
    for dataset in sets:
        what = f"{dataset.title}, {source.backbone.name}"
        found = pair_curves(
            dataset,
            folder / "runs" / folder_name(dataset.title) / folder_name(source.backbone.name),
            {"experiment": "operators", **source.header(), "k": k, "taus_cm": list(taus_cm)},
            lambda pair, d=dataset: _curves(d, source, pair, k, taus_cm),  # type: ignore[misc]
            notes=source.notes,
            limit=limit,
            progress=None if progress is None else lambda n, m, w=what: progress(w, n, m),  # type: ignore[misc]
        )
        means = by_bin(found, bins)
        for entry in means["curves"]:
            (entry["operator"],) = entry.pop("key")
        runs.append(
            {
                "set": dataset.name,
                "title": dataset.title,
                "pairs": len(found),
                **means,
                "notes": [*dataset.notes, *source.notes],
                "comparisons": [
                    _comparison(means["curves"], place, k) for place in range(len(means["bins"]))
                ],
            }
        )
    return {
        "k": k,
        "taus_cm": list(taus_cm),
        "bounds_deg": list(bins),
        "backbone": source.backbone.name,
        "layer": source.layers[0],
        "rank": source.ranks[0],
        "longest": source.longest,
        "runs": runs,
    }


def tables(data: dict[str, Any]) -> list[Table]:
    """Recall by K, recall at equal numbers of edges, and the paper's two comparisons."""
    result = []
    for entry in data["runs"]:
        where = f"{entry['title']}, {_representation(data)}"
        result.append(_recall_table(entry, data["k"], where))
        result.append(_equal_table(entry, data["k"], where))
        result += _comparison_tables(entry, data, where)
    return result


def notes(data: dict[str, Any]) -> list[str]:
    """Say what one should know about the numbers."""
    taus = ", ".join(f"{tau:g}" for tau in data["taus_cm"])
    result = [
        "Recall as in the diagnosis, thresholds "
        f"{taus} cm; no cap. One-way association is made in both directions, and counts and "
        "recalls of the two graphs are averaged."
    ]
    for entry in data["runs"]:
        result += bin_notes(entry, data["taus_cm"], entry["title"])
        result += [f"{entry['title']}: {note}" for note in entry["notes"]]
    return list(dict.fromkeys(result))


def _curves(
    dataset: Dataset, source: PatchSource, pair: Pair, k: int, taus_cm: Sequence[float]
) -> Iterable[tuple[tuple[str], RecallCurve]]:
    for _, _, truth, desc0, desc1 in source.patches(dataset, pair, taus_cm):
        for operator in OPERATORS:
            yield (operator,), descriptor_recall(truth, desc0, desc1, k, operator)


def _curve(curves: Sequence[dict[str, Any]], operator: str, place: int) -> dict[str, Any] | None:
    for curve in curves:
        if (curve["operator"], curve["bin"]) == (operator, place):
            return None if None in curve["recall"] else curve
    return None


def _comparison(curves: Sequence[dict[str, Any]], place: int, k: int) -> dict[str, Any] | None:
    """Compare mutual with one-way association in a bin, in the paper's two ways."""
    mutual, oneway = (_curve(curves, name, place) for name in ("mutual", "oneway"))
    if mutual is None or oneway is None:
        return None
    # The largest K that has no more edges than one-way at K = 1.
    like = int(np.searchsorted(mutual["edges"], oneway["edges"][0], "right"))
    half = max(1, k // 2)
    return {
        "like": None
        if like == 0
        else {
            "mutual_k": like,
            "mutual_edges": mutual["edges"][like - 1],
            "oneway_edges": oneway["edges"][0],
            "gain": mutual["recall"][like - 1] - oneway["recall"][0],
        },
        "half": {
            "mutual_k": k,
            "oneway_k": half,
            "edges_ratio": mutual["edges"][-1] / oneway["edges"][half - 1],
            "gain": mutual["recall"][-1] - oneway["recall"][half - 1],
        },
    }


def _recall_table(entry: dict[str, Any], k: int, where: str) -> Table:
    ks = [n for n in _SHOWN_KS if n <= k]
    rows: list[list[str | Cell]] = []
    for place, info in filled_bins(entry):
        for operator in OPERATORS:
            curve = _curve(entry["curves"], operator, place)
            cells = [
                f"{100 * curve['recall'][n - 1]:.1f} ({curve['edges'][n - 1]:,.0f})"
                if curve
                else NOTHING
                for n in ks
            ]
            rows.append([f"{info['name']} {TITLES[operator]}", *cells])
    header = ["", *(f"K = {n}" for n in ks)]
    return Table(f"Recall in percent (edges a pair), {where}", header, rows)


def _equal_table(entry: dict[str, Any], k: int, where: str) -> Table:
    """Recall where each operator has as many edges as mutual association has at K."""
    ks = [n for n in _SHOWN_KS if n <= k]
    rows: list[list[str | Cell]] = []
    for place, info in filled_bins(entry):
        mutual = _curve(entry["curves"], "mutual", place)
        if mutual is None:
            continue
        texts = {}
        for operator in OPERATORS:
            curve = _curve(entry["curves"], operator, place)
            texts[operator] = [_at(curve, mutual["edges"][n - 1]) if curve else None for n in ks]
        best = [
            max(filter(None, column), default=None) for column in zip(*texts.values(), strict=True)
        ]
        for operator, values in texts.items():
            cells = [
                Cell(NOTHING if v is None else f"{100 * v:.1f}", bold=v is not None and v == top)
                for v, top in zip(values, best, strict=True)
            ]
            rows.append([f"{info['name']} {TITLES[operator]}", *cells])
    return Table(
        f"Recall in percent at the edges that mutual association has, {where}",
        ["", *(f"as K = {n}" for n in ks)],
        rows,
        ["Between two K by linear interpolation; nothing where an operator never has so few."],
    )


def _at(curve: dict[str, Any], count: float) -> float | None:
    if not curve["edges"][0] <= count <= curve["edges"][-1]:
        return None
    return float(np.interp(count, curve["edges"], curve["recall"]))


def _comparison_tables(entry: dict[str, Any], data: dict[str, Any], where: str) -> list[Table]:
    paper = paper_numbers("operators")
    rows: list[list[list[str | Cell]]] = [[], []]
    for info, found in zip(entry["bins"], entry["comparisons"], strict=True):
        if found is None:
            continue
        like, half = found["like"], found["half"]
        texts = [NOTHING] * 4
        if like is not None:
            texts = [
                str(like["mutual_k"]),
                f"{like['mutual_edges']:,.0f}",
                f"{like['oneway_edges']:,.0f}",
                f"{100 * like['gain']:+.2f}",
            ]
        rows[0].append([info["name"], *texts])
        rows[1].append(
            [info["name"], f"{100 * half['edges_ratio']:.1f} %", f"{100 * half['gain']:+.2f}"]
        )
    like, half = paper["like_oneway_1"], paper["mutual_16_oneway_8"]
    for i, (low, high) in enumerate(paper["bins"]):
        name = f"{paper['label']}, [{low}°, {high}°)"
        first = [
            str(like["mutual_k"][i]),
            f"{like['mutual_edges'][i]:,}",
            f"{like['oneway_edges'][i]:,}",
            f"+{like['gain_pp'][i]:.2f}",
        ]
        second = [f"{half['edges_percent'][i]:.1f} %", f"+{half['gain_pp'][i]:.2f}"]
        rows[0].append([Cell(text, dim=True) for text in (name, *first)])
        rows[1].append([Cell(text, dim=True) for text in (name, *second)])
    k = data["k"]
    last = (
        f"Mutual at K = {k} against one-way at K = {max(1, k // 2)}, {where}",
        ["", "edges of mutual", "gain, points"],
    )
    return [
        Table(
            f"Mutual with at most the edges that one-way has at K = 1, {where}",
            ["", "K of mutual", "edges", "edges of one-way", "gain, points"],
            rows[0],
        ),
        Table(*last, rows[1], ["The paper's rows are mutual K = 16 against one-way K = 8."]),
    ]


def _representation(data: dict[str, Any]) -> str:
    raw = f"debias {data['rank']}" if data["rank"] else "raw"
    return f"{data['backbone']}, layer {data['layer']}, {raw}"
