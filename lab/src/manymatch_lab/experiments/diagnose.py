"""Diagnose a representation: recall against number of candidates, by layer and debias rank.

Patches of two views are associated by mutual K-nearest neighbours without a cap; depth and poses
only judge the edges. How much of the truth is kept, and what does it cost?
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from manymatch_lab import dense_pairs, style
from manymatch_lab.cells import dim
from manymatch_lab.checks import integer
from manymatch_lab.evaluate.protocol import unequal
from manymatch_lab.evaluate.tables import Cell, Table
from manymatch_lab.measures.recall import (
    TAUS_CM,
    descriptor_recall,
    frontier_regret,
    interpolated_gap,
)
from manymatch_lab.numbers import paper_numbers

QUESTION = "How much of the truth do several candidates keep, by layer and debias rank?"
EXAMPLE = (
    "manymatch-lab diagnose folder_with_depth --backbone efficientnet-lite0:5-10:0,10,40 "
    "--tau 10,20,50 --bins 0,20,40 --limit 4"
)
#: What the paper measured: backbone, layers, ranks.
PAPER = (
    dense_pairs.Choice(dense_pairs.PAPER_BACKBONE, tuple(range(16, 25)), tuple(range(0, 601, 100))),
    dense_pairs.Choice("dinov2-vitl14-reg", tuple(range(16, 25)), (0,)),
)

#: Its set and the number of its pairs, the largest K, the viewpoint bins.
PAPER_SET, PAPER_PAIRS, PAPER_K = "navi-wild-diagnostic", 1_500, 8
PAPER_BINS = (0.0, 40.0, 80.0, 120.0)

_ROW_CM = 8.2
# To which K = 1 is compared, where it was measured.
_GAIN_K = 5
# A curve: numbers of edges and recalls at K = 1, 2, ...
_Curve = tuple[list[float], list[float]]


def run(
    sets: dense_pairs.DepthSets,
    *,
    backbone: Annotated[
        Sequence[str],
        "NAME, NAME:LAYERS or NAME:LAYERS:RANKS, such as dinov3-vitl16:16-24:0,200; may be "
        "repeated. By default what the paper measured: DINOv3, and DINOv2 without debiasing.",
    ] = (),
    layers: Annotated[
        tuple[int, ...] | None,
        "Blocks from 1, such as 16-24, of backbones that say none; by default the paper's, or the "
        "last one.",
    ] = None,
    debias: Annotated[
        tuple[int, ...] | None,
        "Ranks of the positional subspace, such as 0,100,200, of backbones that say none; by "
        "default the paper's, or 0.",
    ] = None,
    k: Annotated[int, "Largest number of candidates K."] = PAPER_K,
    bins: dense_pairs.Bins = PAPER_BINS,
    tau: dense_pairs.Taus = TAUS_CM,
    rank: Annotated[
        int | None,
        "Debias rank at which layers are compared; by default 200 where it was tested, else the "
        "one that gains most over the lowest rank at the same number of edges.",
    ] = None,
    settings: dense_pairs.PatchSettings | None = None,
) -> dict[str, Any]:
    """Measure correspondence recall against association count, by layer, debias rank and K."""
    integer(k, "k", 1)
    how = settings or dense_pairs.PatchSettings()
    choices = chosen_backbones(backbone, layers, debias)
    if how.weights is not None and len(choices) > 1:
        raise ValueError(
            f"weights must be left out with several backbones, got them with {len(choices)}"
        )
    runs = []
    extractors = [dense_pairs.PatchExtractor(choice, how) for choice in choices]
    for dataset, source in itertools.product(sets.members, extractors):
        entry = sets.measure(
            "diagnose",
            dataset,
            source,
            lambda layer, rank, truth, desc0, desc1: [
                ((layer, rank), descriptor_recall(truth, desc0, desc1, k))
            ],
            k=k,
            taus_cm=tau,
            bins=bins,
        )
        for curve in entry["curves"]:
            curve["layer"], curve["rank"] = curve.pop("key")
        runs.append(
            {
                **entry,
                "backbone": source.backbone.name,
                "layers": list(source.layers),
                "num_layers": source.backbone.num_layers,
                "strides": [source.backbone.stride_of(layer) for layer in source.layers],
                "ranks": list(source.ranks),
                "longest": source.longest,
                "summary": _summary(entry["curves"], source.ranks, rank),
            }
        )
    return {
        "differs_from_paper": [
            *unequal("backbones", list(map(str, choices)), list(map(str, PAPER))),
            *unequal("k", k, PAPER_K),
            *dense_differences(runs, bins, tau, how),
        ],
        "k": k,
        "taus_cm": list(tau),
        "bounds_deg": list(bins),
        "runs": runs,
    }


def dense_differences(
    runs: Sequence[dict[str, Any]],
    bins: Sequence[float],
    taus_cm: Sequence[float],
    settings: dense_pairs.PatchSettings,
) -> list[str]:
    """Say in which points the measuring of recall differs from the paper's."""
    names = [entry["set"] for entry in runs]
    texts = [*unequal("bins", tuple(bins), PAPER_BINS), *unequal("tau", tuple(taus_cm), TAUS_CM)]
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.name == "weights":
            texts += ["random weights"] if value == "random" else []
        elif field.name not in ("device", "offline"):
            texts += unequal(field.name, value, field.default)
    texts += unequal("sets", sorted(set(names)), [PAPER_SET])
    for entry in runs:
        if entry["set"] == PAPER_SET:
            texts += unequal(f"pairs of {PAPER_SET}", entry["pairs"], PAPER_PAIRS)
            if entry.get("paper_list") is False:
                texts.append(f"another list of pairs of {PAPER_SET} than the paper's")
        texts += [text.rstrip(".") for text in entry.get("differences", ())]
    return list(dict.fromkeys(texts))


def chosen_backbones(
    backbone: Sequence[str], layers: tuple[int, ...] | None, debias: tuple[int, ...] | None
) -> list[dense_pairs.Choice]:
    """Complete the backbones by the common layers and ranks, then by the paper's."""
    if not backbone and (layers, debias) != (None, None):
        raise ValueError("backbone must be given with layers or debias, got none")
    known = {choice.name: choice for choice in PAPER}
    result = []
    for choice in map(dense_pairs.parsed_choice, backbone):
        default = known.get(choice.name, choice)
        result.append(
            dense_pairs.Choice(
                choice.name,
                choice.layers or layers or default.layers,
                choice.ranks or debias or default.ranks,
            )
        )
    return result or list(PAPER)


def _summary(
    entries: Sequence[dict[str, Any]], ranks: Sequence[int], rank: int | None
) -> dict[str, Any]:
    """Regret of every layer at every rank, gaps between ranks, and what was selected."""
    curves: dict[tuple[int, int, int], _Curve] = {
        (entry["layer"], entry["rank"], entry["bin"]): (entry["edges"], entry["recall"])
        for entry in entries
        if None not in entry["recall"]
    }
    regrets: list[dict[str, Any]] = []
    for s in ranks:
        # Mean regret over K of every layer in every bin, against the frontier at one rank.
        by_layer: dict[int, list[float]] = {}
        for place in sorted({place for _, t, place in curves if t == s}):
            own = {layer: c for (layer, t, at), c in curves.items() if (t, at) == (s, place)}
            for layer, regret in frontier_regret(own).items():
                by_layer.setdefault(layer, []).append(float(regret.mean()))
        for layer, values in by_layer.items():
            mean = float(np.mean(values))
            regrets.append({"rank": s, "layer": layer, "regret": mean, "by_bin": values})
    gaps = [_gap(curves, a, b) for a, b in itertools.pairwise(ranks)]
    shown = _shown_rank(curves, ranks, rank)
    at_rank = [entry for entry in regrets if entry["rank"] == shown]
    best = min(at_rank, key=lambda entry: entry["regret"], default=None)
    return {
        "rank": shown,
        "layer": None if best is None else best["layer"],
        "regrets": regrets,
        "gaps": [gap for gap in gaps if gap is not None],
    }


def _gap(
    curves: dict[tuple[int, int, int], _Curve], first: int, second: int
) -> dict[str, Any] | None:
    """Compare two ranks at equal numbers of edges, averaged over layers and bins."""
    found = [
        interpolated_gap(curve, curves[layer, second, place])
        for (layer, s, place), curve in curves.items()
        if s == first and (layer, second, place) in curves
    ]
    shared = [gap for gap in found if not np.isnan(gap[0])]
    if not shared:
        return None
    absolute, signed = np.mean(shared, axis=0).tolist()
    return {
        "ranks": [first, second],
        "absolute": absolute,
        "signed": signed,
        "curves": len(shared),
        "without_range": len(found) - len(shared),
    }


def _shown_rank(
    curves: dict[tuple[int, int, int], _Curve], ranks: Sequence[int], wanted: int | None
) -> int:
    """Choose the rank at which layers are compared."""
    if wanted is not None:
        if wanted not in ranks:
            tested = ", ".join(map(str, ranks))
            raise ValueError(f"rank must be one that is tested ({tested}), got {wanted}")
        return wanted
    if dense_pairs.PAPER_RANK in ranks:
        return dense_pairs.PAPER_RANK
    gains = {s: _gap(curves, ranks[0], s) for s in ranks[1:]}
    known = {s: gap["signed"] for s, gap in gains.items() if gap is not None}
    best = max(known, key=lambda s: known[s], default=ranks[0])
    return best if known.get(best, 0.0) > 0.0 else ranks[0]


def tables(data: dict[str, Any]) -> list[Table]:
    """Recall by K, the gain of K = 5, regret by layer and rank, gaps between ranks."""
    result = []
    for entry in data["runs"]:
        where, rank = f"{entry['title']}, {entry['backbone']}", entry["summary"]["rank"]
        curves = (
            (
                f"layer {layer}, {info['name']}",
                dense_pairs.known_curve(entry, place, layer=layer, rank=rank),
            )
            for layer in shown_layers(entry)
            for place, info in dense_pairs.filled_bins(entry)
        )
        result.append(dense_pairs.recall_table(f"{where}, debias {rank}", curves, data["k"]))
        result.append(_gain_table(entry, data["k"], where))
        if len(entry["layers"]) > 1:
            result.append(_regret_table(entry, where))
        if entry["summary"]["gaps"]:
            result.append(_gap_table(entry, where))
    return result


def notes(data: dict[str, Any]) -> list[str]:
    """Say how recall is measured, and what limits the numbers."""
    taus = ", ".join(f"{tau:g}" for tau in data["taus_cm"])
    result = [
        "Recall is the share of patches with a true partner that keep an edge to one, mean of both "
        f"images, of pairs, of objects and of the thresholds {taus} cm. Association is mutual "
        "K-nearest neighbours without a cap over all patches; depth only judges."
    ]
    for entry in data["runs"]:
        where = f"{entry['title']}, {entry['backbone']}"
        result += dense_pairs.bin_notes(entry, data["taus_cm"], where)
        layers: dict[int, list[int]] = {}
        for layer, stride in zip(entry["layers"], entry["strides"], strict=True):
            layers.setdefault(stride, []).append(layer)
        if len(layers) > 1:
            ranges = {stride: dict.fromkeys((own[0], own[-1])) for stride, own in layers.items()}
            words = (f"{stride}: {' to '.join(map(str, r))}" for stride, r in ranges.items())
            result.append(
                f"{where}: layers differ in stride ({', '.join(words)}), so their patches differ "
                "in number and their edges compare unequal grids."
            )
    return list(dict.fromkeys(result))


def shown_layers(entry: dict[str, Any]) -> list[int]:
    """Return the selected layer and the last one that was tested."""
    chosen, last = entry["summary"]["layer"], entry["layers"][-1]
    return list(dict.fromkeys([last if chosen is None else chosen, last]))


def _is_papers(entry: dict[str, Any]) -> bool:
    return (entry["set"], entry["backbone"]) == (PAPER_SET, dense_pairs.PAPER_BACKBONE)


def _gain_table(entry: dict[str, Any], k: int, where: str) -> Table:
    paper = paper_numbers("layers")
    last = min(_GAIN_K, k)
    rank, layer = entry["summary"]["rank"], shown_layers(entry)[0]
    header, ours = [""], [f"layer {layer}, debias {rank}"]
    for place, info in dense_pairs.filled_bins(entry):
        header.append(info["name"])
        curve = dense_pairs.known_curve(entry, place, layer=layer, rank=rank)
        points = (curve["recall"][0], curve["recall"][last - 1]) if curve else None
        ours.append(_pp(points[1] - points[0]) if points else dense_pairs.NOTHING)
    rows: list[Sequence[str | Cell]] = [ours]
    texts = [f"+{gain:.1f}" for gain in paper["gain_pp"]]
    bins = [f"[{a}°, {b}°)" for a, b in paper["bins"]]
    orientation = []
    if bins == header[1:]:
        rows.append(dim([paper["label"], *texts]))
    else:
        gains = ", ".join(f"{text} in {name}" for text, name in zip(texts, bins, strict=True))
        orientation.append(f"For orientation ({paper['label']}): {gains}.")
    title = f"Gain in recall from K = 1 to K = {last}, points, {where}"
    return Table(title, header, rows, orientation)


def _regret_table(entry: dict[str, Any], where: str) -> Table:
    paper = paper_numbers("layers")
    ranks = entry["ranks"]
    regret = {(r["layer"], r["rank"]): r["regret"] for r in entry["summary"]["regrets"]}
    best = [min((v for (_, t), v in regret.items() if t == s), default=None) for s in ranks]
    rows: list[Sequence[str | Cell]] = []
    for layer, stride in zip(entry["layers"], entry["strides"], strict=True):
        values = [regret.get((layer, s)) for s in ranks]
        cells = [
            Cell(dense_pairs.NOTHING) if v is None else Cell(f"{100 * v:.2f}", bold=v == top)
            for v, top in zip(values, best, strict=True)
        ]
        rows.append([f"layer {layer} (stride {stride})", *cells])
    rank = paper["rank"]
    remarks = ["Ranks are not compared with each other: each column has a frontier of its own."]
    if _is_papers(entry) and rank in ranks:
        for layer, value in paper["regret_pp"].items():
            texts = [f"{value:.2f}" if s == rank else "" for s in ranks]
            rows.append(dim([f"paper, layer {layer}", *texts]))
    else:
        words = " and ".join(f"{v:.2f} for layer {n}" for n, v in paper["regret_pp"].items())
        remarks.append(f"For orientation (paper, DINOv3, s = {rank}, NAVI-Wild): {words}.")
    title = f"Mean frontier regret in points by layer and debias rank, {where}"
    return Table(title, ["", *(f"s = {s}" for s in ranks)], rows, remarks)


def _gap_table(entry: dict[str, Any], where: str) -> Table:
    paper = paper_numbers("ranks")
    rows: list[Sequence[str | Cell]] = []
    for gap in entry["summary"]["gaps"]:
        first, second = gap["ranks"]
        gains = [f"{100 * gap['absolute']:.2f}", _pp(gap["signed"], 2), str(gap["curves"])]
        rows.append([f"s = {first} → {second}", *gains])
    low, high = paper["later_gap_pp"]
    label = "paper" if _is_papers(entry) else paper["label"]
    rows += [
        dim([f"{label}, s = 0 → 100", "", f"+{paper['first_gain_pp']:.2f}", "27"]),
        dim([f"{label}, adjacent from 100 to 600", f"{low:.2f} to {high:.2f}", "", "27"]),
    ]
    return Table(
        f"Recall between adjacent debias ranks at the same number of edges, points, {where}",
        ["", "mean absolute gap", "mean gain", "curves"],
        rows,
        [
            "Curves are interpolated at 201 budgets over the counts that both reach, and averaged "
            "over layers and bins."
        ],
    )


def _pp(value: float, digits: int = 1) -> str:
    return f"{100 * value:+.{digits}f}"


def layer_selection(data: dict[str, Any]) -> style.Figure:
    """Trajectories of K at the compared rank, a panel a set and backbone."""
    runs = data["runs"]
    figure, axes = style.panels(
        len(runs), 2, style.PAGE_CM if len(runs) > 1 else 0.7 * style.PAGE_CM, _ROW_CM
    )
    for axis, entry in zip(axes, runs, strict=True):
        strong = shown_layers(entry)
        colours = style.shades(entry["layers"], 0.15, 0.9)
        colours |= {strong[-1]: style.COLOURS[1]} | {strong[0]: style.COLOURS[0]}
        for layer in sorted(entry["layers"], key=lambda n: n in strong):
            _trajectories(axis, entry, layer, colours[layer], layer in strong)
        _arrows(axis, entry, strong[0], data["k"])
        rank = entry["summary"]["rank"]
        raw = f"debias {rank}" if rank else "raw"
        axis.set_title(f"{entry['title']}: {entry['backbone']}, {raw}")
        axis.set_xlabel("associations a pair")
        axis.set_ylabel("correspondence recall (%)")
        axis.margins(y=0.09)
        axis.set_ylim(bottom=0)
        _counts_on(axis)
        _legends(axis, entry, colours, strong)
    return figure


def rank_sweep(data: dict[str, Any]) -> style.Figure:
    """One panel a layer; colours are ranks, line styles are bins."""
    runs = [entry for entry in data["runs"] if len(entry["ranks"]) > 1] or data["runs"]
    rows = [-(-len(entry["layers"]) // 3) for entry in runs]
    heights = [4.4 * count + 1.2 for count in rows]
    figure = style.new_figure(style.PAGE_CM, sum(heights))
    parts = figure.subfigures(len(runs), 1, squeeze=False, height_ratios=heights).ravel()
    look: dict[str, Any] = {"marker": ".", "markersize": 2.5, "linewidth": 0.9}
    for part, count, entry in zip(parts, rows, runs, strict=True):
        width = min(3, len(entry["layers"]))
        axes = part.subplots(count, width, squeeze=False, sharey=True).ravel().tolist()
        for axis in axes[len(entry["layers"]) :]:
            axis.set_axis_off()
        colours = {0: style.COLOURS[1]} | style.shades([s for s in entry["ranks"] if s], 0.85, 0.0)
        for place, (axis, layer) in enumerate(zip(axes, entry["layers"], strict=False)):
            for rank in entry["ranks"]:
                for curve in _curves(entry, layer, rank):
                    line = _of_bin(style.LINES, curve["bin"])
                    points = curve["edges"], _percent(curve)
                    axis.plot(*points, color=colours[rank], linestyle=line, **look)
            axis.set_title(f"layer {layer}")
            _counts_on(axis)
            if place % width == 0:
                axis.set_ylabel("recall (%)")
            if place >= len(entry["layers"]) - width:
                axis.set_xlabel("associations a pair")
        handles = [style.legend_line(f"s = {s}", color=colours[s]) for s in entry["ranks"]]
        handles += [
            style.legend_line(info["name"], color=style.INK, linestyle=_of_bin(style.LINES, i))
            for i, info in dense_pairs.filled_bins(entry)
        ]
        part.suptitle(f"{entry['title']}: {entry['backbone']}", fontsize=8.5)
        columns = len(handles) if len(handles) <= 8 else -(-len(handles) // 2)
        part.legend(handles=handles, loc="outside lower center", ncols=columns)
    return figure


def _of_bin(styles: Sequence[str], place: int) -> str:
    return styles[place % len(styles)]


def _trajectories(
    axis: style.Axes, entry: dict[str, Any], layer: int, colour: str, strong: bool
) -> None:
    look: dict[str, Any] = {"linestyle": "--", "linewidth": 0.7, "markersize": 2.5, "alpha": 0.8}
    look |= {"markerfacecolor": "white", "zorder": 2}
    if strong:
        look = {"linestyle": "-", "linewidth": 1.4, "markersize": 4, "zorder": 3}
    look |= {"color": colour, "markeredgewidth": 0.6}
    for curve in _curves(entry, layer, entry["summary"]["rank"]):
        marker = _of_bin(style.MARKERS, curve["bin"])
        axis.plot(curve["edges"], _percent(curve), marker=marker, **look)


def _arrows(axis: style.Axes, entry: dict[str, Any], layer: int, k: int) -> None:
    """Point from K = 1 to K = 5 of the selected layer, with the gain at its end."""
    last = min(_GAIN_K, k)
    if last < 2:
        return
    curves = _curves(entry, layer, entry["summary"]["rank"])
    ends = [100 * curve["recall"][last - 1] for curve in curves]
    near = 0.1 * max((max(_percent(curve)) for curve in curves), default=0.0)
    arrow = {"arrowstyle": "-|>", "color": style.INK, "lw": 0.9, "shrinkA": 3, "shrinkB": 3}
    box = {"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.8}
    look: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 7}
    for curve in curves:
        recall = _percent(curve)
        # Below the point where another curve runs close above it.
        below = any(0 < other - recall[last - 1] < near for other in ends)
        start, end = (curve["edges"][0], recall[0]), (curve["edges"][last - 1], recall[last - 1])
        axis.annotate("", end, start, arrowprops=arrow, zorder=4)
        gain, place = f"{end[1] - start[1]:+.1f} pp", (0, -6 if below else 6)
        side = "top" if below else "bottom"
        axis.annotate(gain, end, place, va=side, zorder=5, bbox=box, **look)


def _legends(
    axis: style.Axes, entry: dict[str, Any], colours: dict[int, str], strong: list[int]
) -> None:
    last = "final" if strong[-1] == entry["num_layers"] else "last tested"
    names = {strong[-1]: last, strong[0]: "selected"}
    if strong[0] == strong[-1]:
        names = {strong[0]: f"selected, {last}"}
    handles = [
        style.legend_line(
            f"layer {layer}" + (f" ({names[layer]})" if layer in names else ""),
            color=colours[layer],
            linestyle="-" if layer in strong else "--",
        )
        for layer in entry["layers"]
    ]
    look = {"color": style.GREY, "linestyle": "none"}
    handles += [
        style.legend_line(info["name"], marker=_of_bin(style.MARKERS, i), **look)
        for i, info in dense_pairs.filled_bins(entry)
    ]
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 3}
    axis.legend(handles=handles, **place, fontsize=6.5, handlelength=2.2)


def _counts_on(axis: style.Axes) -> None:
    """Write numbers of edges along x, few and with separators."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _curves(entry: dict[str, Any], layer: int, rank: int) -> list[dict[str, Any]]:
    return [
        curve
        for curve in entry["curves"]
        if (curve["layer"], curve["rank"]) == (layer, rank) and None not in curve["recall"]
    ]


def _percent(curve: dict[str, Any]) -> list[float]:
    return [100 * value for value in curve["recall"]]


FIGURES = {"layer_selection": layer_selection, "rank_sweep": rank_sweep}
