"""Tables of the diagnosis, with the paper's numbers beside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch.evaluate.tables import Cell, Table
from manymatch_paper.experiments.paper import paper_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What a cell says where there is nothing to say.
NOTHING = "–"
_SHOWN_KS = (1, 2, 3, 5, 8)


def tables(data: dict[str, Any]) -> list[Table]:
    """Recall by K, the gain of K = 5, regret by layer and rank, gaps between ranks."""
    result = []
    for entry in data["runs"]:
        where = f"{entry['title']}, {entry['backbone']}"
        result.append(_recall_table(entry, data["k"], where))
        result.append(_gain_table(entry, data["k"], where))
        if len(entry["layers"]) > 1:
            result.append(_regret_table(entry, where))
        if entry["summary"]["gaps"]:
            result.append(_gap_table(entry, where))
    return result


def notes(data: dict[str, Any]) -> list[str]:
    """Say what one should know about the numbers."""
    taus = ", ".join(f"{tau:g}" for tau in data["taus_cm"])
    result = [
        "Recall is the share of patches with a true partner that keep an edge to one, mean of both "
        f"images, of pairs, of objects and of the thresholds {taus} cm. Association is mutual "
        "K-nearest neighbours without a cap over all patches; depth only judges."
    ]
    for entry in data["runs"]:
        where = f"{entry['title']}, {entry['backbone']}"
        result += bin_notes(entry, data["taus_cm"], where)
        if len(set(entry["strides"])) > 1:
            result.append(
                f"{where}: layers differ in stride ({_strides(entry)}), so their patches differ "
                "in number and their edges compare unequal grids."
            )
        result += [f"{where}: {note}" for note in entry["notes"]]
    return list(dict.fromkeys(result))


def bin_notes(entry: dict[str, Any], taus_cm: Sequence[float], where: str) -> list[str]:
    """Say how many pairs and objects each bin has, and what is missing from it."""
    bins = ", ".join(
        f"{place['name']} {_count(place['pairs'], 'pair')} of {_count(place['objects'], 'object')}"
        for _, place in filled_bins(entry)
    )
    left = f"; {_count(entry['left_out'], 'pair')} in no bin" if entry["left_out"] else ""
    result = [f"{where}: {bins}{left}."]
    for place in entry["bins"]:
        empty = [
            f"{count} at {tau:g} cm"
            for tau, count in zip(taus_cm, place["without_partners"], strict=False)
            if count
        ]
        if empty:
            result.append(
                f"{where}, {place['name']}: pairs without a single true partner, which count there "
                f"for their edges only: {', '.join(empty)}."
            )
    return result


def filled_bins(entry: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """Return the bins that have pairs, with their numbers."""
    return [(place, info) for place, info in enumerate(entry["bins"]) if info["pairs"]]


def curve_of(entry: dict[str, Any], layer: int, rank: int, place: int) -> dict[str, Any] | None:
    """Find the curve of a layer and rank in a bin, if it was measured."""
    for curve in entry["curves"]:
        if (curve["layer"], curve["rank"], curve["bin"]) == (layer, rank, place):
            return None if None in curve["recall"] else curve
    return None


def shown_layers(entry: dict[str, Any]) -> list[int]:
    """Return the selected layer and the last one that was tested."""
    chosen = entry["summary"]["layer"]
    return list(
        dict.fromkeys([entry["layers"][-1] if chosen is None else chosen, entry["layers"][-1]])
    )


def gain_k(k: int) -> int:
    """Return the K to which K = 1 is compared: 5 where it was measured."""
    return min(5, k)


def is_papers(entry: dict[str, Any]) -> bool:
    """Tell whether the paper measured the same."""
    return (entry["set"], entry["backbone"]) == ("navi-wild-diagnostic", "dinov3-vitl16")


def _recall_table(entry: dict[str, Any], k: int, where: str) -> Table:
    ks = [n for n in _SHOWN_KS if n <= k]
    rank = entry["summary"]["rank"]
    rows: list[list[str | Cell]] = []
    for layer in shown_layers(entry):
        for place, info in filled_bins(entry):
            curve = curve_of(entry, layer, rank, place)
            cells = [
                f"{100 * curve['recall'][n - 1]:.1f} ({curve['edges'][n - 1]:,.0f})"
                if curve
                else NOTHING
                for n in ks
            ]
            rows.append([f"layer {layer}, {info['name']}", *cells])
    return Table(
        f"Recall in percent (edges a pair), {where}, debias {rank}",
        ["", *(f"K = {n}" for n in ks)],
        rows,
    )


def _gain_table(entry: dict[str, Any], k: int, where: str) -> Table:
    paper = paper_numbers("layers")
    last = gain_k(k)
    rank, layer = entry["summary"]["rank"], shown_layers(entry)[0]
    header = [""]
    ours: list[str | Cell] = [f"layer {layer}, debias {rank}"]
    for place, info in filled_bins(entry):
        header.append(info["name"])
        curve = curve_of(entry, layer, rank, place)
        ours.append(_pp(curve["recall"][last - 1] - curve["recall"][0]) if curve else NOTHING)
    rows = [ours]
    texts = [f"+{gain:.1f}" for gain in paper["gain_pp"]]
    same = [f"[{a}°, {b}°)" for a, b in paper["bins"]] == header[1:]
    result_notes = []
    if same:
        rows.append([Cell(text, dim=True) for text in [paper["label"], *texts]])
    else:
        bins = ", ".join(
            f"{text} in [{a}°, {b}°)" for text, (a, b) in zip(texts, paper["bins"], strict=True)
        )
        result_notes.append(f"For orientation ({paper['label']}): {bins}.")
    return Table(
        f"Gain in recall from K = 1 to K = {last}, points, {where}", header, rows, result_notes
    )


def _regret_table(entry: dict[str, Any], where: str) -> Table:
    paper = paper_numbers("layers")
    ranks = entry["ranks"]
    regret = {(r["layer"], r["rank"]): r["regret"] for r in entry["summary"]["regrets"]}
    best = {
        s: min((value for (_, t), value in regret.items() if t == s), default=None) for s in ranks
    }
    rows: list[list[str | Cell]] = []
    for layer, stride in zip(entry["layers"], entry["strides"], strict=True):
        cells: list[str | Cell] = []
        for s in ranks:
            value = regret.get((layer, s))
            text = NOTHING if value is None else f"{100 * value:.2f}"
            cells.append(Cell(text, bold=value is not None and value == best[s]))
        rows.append([f"layer {layer} (stride {stride})", *cells])
    rank = paper["rank"]
    if is_papers(entry) and rank in ranks:
        for layer, value in paper["regret_pp"].items():
            texts = [f"{value:.2f}" if s == rank else "" for s in ranks]
            rows.append([Cell(text, dim=True) for text in [f"paper, layer {layer}", *texts]])
        remarks = []
    else:
        words = " and ".join(f"{v:.2f} for layer {n}" for n, v in paper["regret_pp"].items())
        remarks = [f"For orientation (paper, DINOv3, s = {rank}, NAVI-Wild): {words}."]
    return Table(
        f"Mean frontier regret in points by layer and debias rank, {where}",
        ["", *(f"s = {s}" for s in ranks)],
        rows,
        [
            "Ranks are not compared with each other: each column has a frontier of its own.",
            *remarks,
        ],
    )


def _gap_table(entry: dict[str, Any], where: str) -> Table:
    paper = paper_numbers("ranks")
    rows: list[list[str | Cell]] = [
        [
            f"s = {gap['ranks'][0]} → {gap['ranks'][1]}",
            f"{100 * gap['absolute']:.2f}",
            _pp(gap["signed"], 2),
            str(gap["curves"]),
        ]
        for gap in entry["summary"]["gaps"]
    ]
    low, high = paper["later_gap_pp"]
    label = "paper" if is_papers(entry) else paper["label"]
    rows += [
        [Cell(text, dim=True) for text in texts]
        for texts in (
            (f"{label}, s = 0 → 100", "", f"+{paper['first_gain_pp']:.2f}", "27"),
            (f"{label}, adjacent from 100 to 600", f"{low:.2f} to {high:.2f}", "", "27"),
        )
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


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _strides(entry: dict[str, Any]) -> str:
    pairs: dict[int, list[int]] = {}
    for layer, stride in zip(entry["layers"], entry["strides"], strict=True):
        pairs.setdefault(stride, []).append(layer)
    return ", ".join(f"{stride}: {_range(layers)}" for stride, layers in pairs.items())


def _range(layers: Sequence[int]) -> str:
    return f"{layers[0]}" if len(layers) == 1 else f"{layers[0]} to {layers[-1]}"


def _pp(value: float, digits: int = 1) -> str:
    return f"{100 * value:+.{digits}f}"
