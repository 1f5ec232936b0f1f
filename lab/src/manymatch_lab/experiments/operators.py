"""Association operators: mutual, one-way and union K-nearest neighbours at equal cost."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from manymatch.associate.neighbours import OPERATORS
from manymatch_lab import dense_pairs, style
from manymatch_lab.cells import dim
from manymatch_lab.checks import integer
from manymatch_lab.evaluate.protocol import unequal
from manymatch_lab.evaluate.tables import Cell, Table
from manymatch_lab.experiments.diagnose import PAPER_BINS, dense_differences
from manymatch_lab.measures.recall import TAUS_CM, descriptor_recall
from manymatch_lab.numbers import paper_numbers

QUESTION = "Mutual, one-way or union: which association keeps most truth per edge?"
EXAMPLE = (
    "manymatch-lab operators folder_with_depth --backbone efficientnet-lite0 --layer 10 "
    "--tau 10,20,50 --bins 0,20"
)
#: Operators as people read them.
TITLES = {"mutual": "mutual (MKNN)", "oneway": "one-way", "union": "union"}

_PAPER_K = 16
_STYLES = {
    "mutual": (style.COLOURS[0], "o", (-3, 4), "right"),
    "oneway": (style.COLOURS[1], "s", (0, 0), ""),
    "union": (style.COLOURS[2], "^", (4, -8), "left"),
}
_LABELLED = (1, 2, 4, 8, 16)


def run(
    sets: dense_pairs.DepthSets,
    *,
    backbone: dense_pairs.Backbone = dense_pairs.PAPER_BACKBONE,
    layer: dense_pairs.Layer = None,
    debias: dense_pairs.Debias = None,
    k: Annotated[int, "Largest number of candidates K."] = _PAPER_K,
    bins: dense_pairs.Bins = PAPER_BINS,
    tau: dense_pairs.Taus = TAUS_CM,
    settings: dense_pairs.PatchSettings | None = None,
) -> dict[str, Any]:
    """Compare mutual, one-way and union K-nearest neighbours: recall against association count."""
    integer(k, "k", 1)
    how = settings or dense_pairs.PatchSettings()
    source = how.one_layer(backbone, layer, debias)
    runs = []
    for dataset in sets.members:
        entry = sets.measure(
            "operators",
            dataset,
            source,
            lambda _layer, _rank, truth, desc0, desc1: [
                ((o,), descriptor_recall(truth, desc0, desc1, k, o)) for o in OPERATORS
            ],
            k=k,
            taus_cm=tau,
            bins=bins,
        )
        for curve in entry["curves"]:
            (curve["operator"],) = curve.pop("key")
        places = range(len(entry["bins"]))
        runs.append({**entry, "comparisons": [_comparison(entry, place, k) for place in places]})
    return {
        "differs_from_paper": [
            *source.differences(),
            *unequal("k", k, _PAPER_K),
            *dense_differences(runs, bins, tau, how),
        ],
        "k": k,
        "taus_cm": list(tau),
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
        raw = f"debias {data['rank']}" if data["rank"] else "raw"
        where = f"{entry['title']}, {data['backbone']}, layer {data['layer']}, {raw}"
        curves = (
            (
                f"{info['name']} {TITLES[operator]}",
                dense_pairs.known_curve(entry, place, operator=operator),
            )
            for place, info in dense_pairs.filled_bins(entry)
            for operator in OPERATORS
        )
        result.append(dense_pairs.recall_table(where, curves, data["k"]))
        result.append(_equal_table(entry, data["k"], where))
        result += _comparison_tables(entry, data, where)
    return result


def notes(data: dict[str, Any]) -> list[str]:
    """Say how recall is measured, and what limits the numbers."""
    taus = ", ".join(f"{tau:g}" for tau in data["taus_cm"])
    result = [
        "Recall as in the diagnosis, thresholds "
        f"{taus} cm; no cap. One-way association is made in both directions, and counts and "
        "recalls of the two graphs are averaged."
    ]
    for entry in data["runs"]:
        result += dense_pairs.bin_notes(entry, data["taus_cm"], entry["title"])
    return list(dict.fromkeys(result))


def _comparison(entry: dict[str, Any], place: int, k: int) -> dict[str, Any] | None:
    """Compare mutual with one-way association in a bin, in the paper's two ways."""
    mutual, oneway = (
        dense_pairs.known_curve(entry, place, operator=o) for o in ("mutual", "oneway")
    )
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


def _equal_table(entry: dict[str, Any], k: int, where: str) -> Table:
    """Recall at the number of edges that mutual association has at K."""
    ks = [n for n in dense_pairs.SHOWN_KS if n <= k]
    rows: list[list[str | Cell]] = []
    for place, info in dense_pairs.filled_bins(entry):
        curves = {o: dense_pairs.known_curve(entry, place, operator=o) for o in OPERATORS}
        mutual = curves["mutual"]
        if mutual is None:
            continue
        values = {
            o: [_at(curve, mutual["edges"][n - 1]) for n in ks] for o, curve in curves.items()
        }
        best = [
            max(filter(None, each), default=None) for each in zip(*values.values(), strict=True)
        ]
        for operator, mine in values.items():
            cells = [
                Cell(dense_pairs.NOTHING) if v is None else Cell(f"{100 * v:.1f}", bold=v == top)
                for v, top in zip(mine, best, strict=True)
            ]
            rows.append([f"{info['name']} {TITLES[operator]}", *cells])
    return Table(
        f"Recall in percent at the edges that mutual association has, {where}",
        ["", *(f"as K = {n}" for n in ks)],
        rows,
        ["Between two K by linear interpolation; empty where even K = 1 has more edges."],
    )


def _at(curve: dict[str, Any] | None, count: float) -> float | None:
    if curve is None or not curve["edges"][0] <= count <= curve["edges"][-1]:
        return None
    return float(np.interp(count, curve["edges"], curve["recall"]))


def _comparison_tables(entry: dict[str, Any], data: dict[str, Any], where: str) -> list[Table]:
    paper = paper_numbers("operators")
    rows: list[list[list[str | Cell]]] = [[], []]
    for info, found in zip(entry["bins"], entry["comparisons"], strict=True):
        if found is None:
            continue
        like, half = found["like"], found["half"]
        texts = [dense_pairs.NOTHING] * 4
        if like is not None:
            edges = [f"{like[name]:,.0f}" for name in ("mutual_edges", "oneway_edges")]
            texts = [str(like["mutual_k"]), *edges, f"{100 * like['gain']:+.2f}"]
        rows[0].append([info["name"], *texts])
        ratio, gain = f"{100 * half['edges_ratio']:.1f} %", f"{100 * half['gain']:+.2f}"
        rows[1].append([info["name"], ratio, gain])
    like, half = paper["like_oneway_1"], paper["mutual_16_oneway_8"]
    for i, (low, high) in enumerate(paper["bins"]):
        name = f"{paper['label']}, [{low}°, {high}°)"
        edges = [f"{like[name][i]:,}" for name in ("mutual_edges", "oneway_edges")]
        first = [str(like["mutual_k"][i]), *edges, f"+{like['gain_pp'][i]:.2f}"]
        second = [f"{half['edges_percent'][i]:.1f} %", f"+{half['gain_pp'][i]:.2f}"]
        rows[0].append([*dim([name, *first])])
        rows[1].append([*dim([name, *second])])
    k = data["k"]
    return [
        Table(
            f"Mutual with at most the edges that one-way has at K = 1, {where}",
            ["", "K of mutual", "edges", "edges of one-way", "gain, points"],
            rows[0],
        ),
        Table(
            f"Mutual at K = {k} against one-way at K = {max(1, k // 2)}, {where}",
            ["", "edges of mutual", "gain, points"],
            rows[1],
            ["The paper's rows are mutual K = 16 against one-way K = 8."],
        ),
    ]


def operators(data: dict[str, Any]) -> style.Figure:
    """Curves of the operators on a logarithmic axis, a row a set."""
    rows = [dense_pairs.filled_bins(entry) for entry in data["runs"]]
    columns = max(1, *map(len, rows))
    figure = style.new_figure(
        style.PAGE_CM if columns > 1 else 0.6 * style.PAGE_CM, 6.2 * len(rows) + 0.8
    )
    axes = figure.subplots(len(rows), columns, squeeze=False, sharey="row")
    for line, places, entry in zip(axes, rows, data["runs"], strict=True):
        for axis in line[len(places) :]:
            axis.set_axis_off()
        for axis, (place, info) in zip(line, places, strict=False):
            for curve in entry["curves"]:
                if curve["bin"] != place or None in curve["recall"]:
                    continue
                colour, marker, offset, side = _STYLES[curve["operator"]]
                recall = [100 * value for value in curve["recall"]]
                look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 3}
                label = TITLES[curve["operator"]]
                axis.plot(curve["edges"], recall, label=label, linewidth=1.1, **look)
                # Above the upper curve and below the lower one, where there is room.
                words: dict[str, Any] = {"textcoords": "offset points", "ha": side, "fontsize": 6}
                for k in _LABELLED if side else ():
                    if k <= len(recall):
                        point = (curve["edges"][k - 1], recall[k - 1])
                        axis.annotate(str(k), point, offset, color=colour, **words)
            axis.set_xscale("log")
            axis.margins(x=0.08, y=0.08)
            axis.set_title(f"{entry['title']}, {info['name']}")
            axis.set_xlabel("associations a pair")
        if places:
            line[0].set_ylabel("correspondence recall (%)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


FIGURES = {"operators": operators}
