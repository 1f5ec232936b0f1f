"""The likelihood of a toy graph: all configurations enumerated, and how the scores order them.

Four keypoints on each side, eight candidates, four hypotheses that differ in which candidates are
inliers. A configuration is a 1-to-1 subset of the candidates; one with an outlier is impossible,
and every inlier that it selects makes it more likely by 1/δ.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from manymatch_lab import style
from manymatch_lab.cells import listed
from manymatch_lab.checks import real
from manymatch_lab.evaluate.protocol import PAPER, unequal
from manymatch_lab.evaluate.tables import Cell, Table

QUESTION = "Which scores order hypotheses as the exact likelihood of a small graph does?"
EXAMPLE = "manymatch-lab toy --delta 0.001 --out out/toy"

_EDGES = ((0, 0), (0, 1), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (3, 3))
# By edge number: the first is the one that the figure shows.
_HYPOTHESES = {"A": (0, 1, 2, 3, 5, 7), "B": (0, 3, 5, 7), "C": (0, 1, 2, 3, 5), "D": (0, 1, 2, 3)}
# Selections of the figure: one with the outlier (x₃, y₂), one of inliers only.
_SELECTED = {"outlier": (0, 4, 7), "inliers": (1, 2, 5, 7)}
_ORANGE, _RED, _BLUE = "#e69f00", "#d55e00", "#0072b2"
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
# As in the estimator: least probability that a vertex has no match.
_NO_MATCH_FLOOR = 1e-9
# Along an edge, where its mark stands: not in the middle, where edges cross.
_MARK_AT = 0.27


def run(
    eps: Annotated[float, "Inlier threshold, in the unit of the residuals."] = float(
        PAPER.options.threshold_px
    ),
    delta: Annotated[
        float, "Chance, in (0, 1), that a false candidate is an inlier."
    ] = PAPER.options.delta,
    q: Annotated[
        float, "Probability, in (0, 1), that the real match is among a keypoint's candidates."
    ] = PAPER.options.q,
) -> dict[str, Any]:
    """Enumerate the configurations of a toy graph: likelihood, its approximation, all scores."""
    real(eps, "eps", 0.0)
    real(delta, "delta", 0.0, 1.0)
    real(q, "q", 0.0, 1.0)
    every = matchings(_EDGES)
    hypotheses: list[dict[str, Any]] = []
    for name, chosen in _HYPOTHESES.items():
        inlier = [e in chosen for e in range(len(_EDGES))]
        possible = [m for m in every if all(inlier[e] for e in m)]
        sizes = [
            {
                "size": size,
                "configurations": sum(len(m) == size for m in every),
                "possible": sum(len(m) == size for m in possible),
                "log_conditional": log_conditional(range(size), [True] * 8, eps, delta),
            }
            for size in range(max(map(len, every)) + 1)
        ]
        found = likelihood(_EDGES, inlier, eps, delta, q)
        hypotheses.append({"name": name, "inlier": inlier, **found, "sizes": sizes})
    shown = hypotheses[0]["inlier"]

    def of_shown(chosen: Sequence[int]) -> dict[str, Any]:
        value = log_conditional(chosen, shown, eps, delta)
        # JSON has no infinity: None is the logarithm of zero.
        return {"edges": list(chosen), "log_conditional": value if math.isfinite(value) else None}

    return {
        "differs_from_paper": [
            *unequal("eps", eps, PAPER.options.threshold_px),
            *unequal("delta", delta, PAPER.options.delta),
            *unequal("q", q, PAPER.options.q),
        ],
        "assumed": ["the candidates and hypotheses of the graph, which the paper only draws"],
        "settings": {"eps": eps, "delta": delta, "q": q},
        "edges": [list(edge) for edge in _EDGES],
        "num_configurations": len(every),
        "hypotheses": hypotheses,
        "selected": {name: of_shown(chosen) for name, chosen in _SELECTED.items()},
        "configurations": [of_shown(m) for m in every],
    }


def tables(data: dict[str, Any]) -> list[Table]:
    """Show the hypotheses with their scores, and the configurations of the first by size."""
    return [_hypotheses(data), _sizes(data)]


def notes(data: dict[str, Any]) -> list[str]:
    """Say what was enumerated and which scores order the hypotheses as the likelihood does."""
    settings = data["settings"]
    sentences = [
        f"The graph has {len(data['edges'])} candidates and {data['num_configurations']} "
        "configurations (1-to-1 subsets, the empty one included), all equally likely beforehand; "
        f"ε = {settings['eps']:g}, δ = {settings['delta']:g}, q = {settings['q']:g}."
    ]
    scores = {
        "the dominant-cardinality form": "log_dominant",
        "HCM": "hcm",
        "MCM": "cardinality",
        "CM": "num_inliers",
    }
    # No hypothesis with a smaller likelihood has a larger score.
    pairs = list(itertools.permutations(data["hypotheses"], 2))
    agreeing = [
        name
        for name, key in scores.items()
        if not any(a["log_likelihood"] < b["log_likelihood"] and a[key] > b[key] for a, b in pairs)
    ]
    other = [name for name in scores if name not in agreeing]
    if agreeing:
        verb = "puts" if len(agreeing) == 1 else "put"
        text = f"{listed(agreeing)} {verb} no hypothesis above a more likely one"
        sentences.append(
            text[0].upper()
            + text[1:]
            + (f"; {listed(other)} {'does' if len(other) == 1 else 'do'}." if other else ".")
        )
    return sentences


def _hypotheses(data: dict[str, Any]) -> Table:
    columns = {
        "num_inliers": "inliers (CM)",
        "cardinality": "m* (MCM)",
        "multiplicity": "N*",
        "log_likelihood": "log likelihood",
        "log_dominant": "log N* + m* log(1/δ) + const",
        "difference": "difference",
        "hcm": "HCM",
    }
    hypotheses = [
        h | {"difference": h["log_likelihood"] - h["log_dominant"]} for h in data["hypotheses"]
    ]
    rows: list[list[str | Cell]] = [[h["name"]] for h in hypotheses]
    for key in columns:
        best = max(h[key] for h in hypotheses)
        for row, h in zip(rows, hypotheses, strict=True):
            text = f"{h[key]:.3f}" if isinstance(h[key], float) else str(h[key])
            bold = h[key] == best and key not in ("multiplicity", "difference")
            row.append(Cell(text, bold=bold))
    return Table(
        "Toy graph: hypotheses, their likelihood and their scores",
        ["Hypothesis", *columns.values()],
        rows,
        [
            "Bold: the largest of a column. The difference is what smaller matchings add; it goes "
            "to zero with δ."
        ],
    )


def _sizes(data: dict[str, Any]) -> Table:
    shown = data["hypotheses"][0]
    prior = -math.log(data["num_configurations"])
    rows = []
    for entry in shown["sizes"]:
        share = 0.0
        if entry["possible"]:
            term = math.log(entry["possible"]) + prior + entry["log_conditional"]
            share = math.exp(term - shown["log_likelihood"])
        whole, possible = entry["configurations"], entry["possible"]
        each = f"{entry['log_conditional']:.3f}" if possible else "–"
        counts = map(str, (entry["size"], whole, whole - possible, possible))
        rows.append([*counts, each, f"{100.0 * share:.4g} %"])
    header = ["m", "configurations", "with an outlier: likelihood 0", "all inliers"]
    header += ["log likelihood of each", "share of the total"]
    title = f"Toy graph: configurations under hypothesis {shown['name']} by cardinality"
    return Table(title, header, rows)


def matchings(edges: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Return all 1-to-1 subsets of the edges, the empty one included, as edge numbers.

    Ordered by size, then by the numbers.
    """
    found: list[tuple[int, ...]] = [()]
    for e, (i, j) in enumerate(edges):
        found += [
            (*chosen, e)
            for chosen in found
            if all(edges[other][0] != i and edges[other][1] != j for other in chosen)
        ]
    return sorted(found, key=lambda chosen: (len(chosen), chosen))


def log_conditional(
    matching: Sequence[int], inlier: Sequence[bool], eps: float, delta: float
) -> float:
    """Log-likelihood of a hypothesis if exactly these edges are real; -inf with an outlier.

    A real edge has a residual from U(0, eps), any other one from U(0, eps / delta).
    """
    if not all(inlier[e] for e in matching):
        return -math.inf
    return -len(inlier) * math.log(eps / delta) + len(matching) * math.log(1.0 / delta)


def likelihood(
    edges: Sequence[tuple[int, int]], inlier: Sequence[bool], eps: float, delta: float, q: float
) -> dict[str, Any]:
    """Compute the exact likelihood of a hypothesis and its approximations.

    Edges are pairs of vertices, counted from 0 on each side, and `inlier` tells which of them are
    inliers under the hypothesis; eps, delta and q are the parameters of the model.
    ``log_likelihood`` has a uniform prior over all matchings, ``log_dominant`` only the terms of
    largest cardinality, the constant included. ``cardinality`` is the size m* of a maximum matching
    of the inliers, and ``multiplicity`` how many of them there are, N*.
    """
    every = matchings(edges)
    terms = [log_conditional(m, inlier, eps, delta) for m in every]
    prior = -math.log(len(every))
    possible = [len(m) for m, term in zip(every, terms, strict=True) if term > -math.inf]
    largest = max(possible)
    count = possible.count(largest)
    top = max(terms)
    constant = prior - len(edges) * math.log(eps / delta)
    array = np.array(edges, dtype=np.int32).reshape(-1, 2)
    return {
        "num_inliers": sum(inlier),
        "cardinality": largest,
        "multiplicity": count,
        "log_likelihood": prior + top + math.log(math.fsum(math.exp(t - top) for t in terms)),
        "log_dominant": constant + math.log(count) + largest * math.log(1.0 / delta),
        "hcm": _hcm(array, np.array(inlier, dtype=np.bool_), q, delta),
    }


def _hcm(edges: np.ndarray, inlier: np.ndarray, q: float, delta: float) -> float:
    """Sum of log(1 + a_v sum of p over inliers at v) over the vertices v of both sides."""
    if not len(edges):
        return 0.0
    p = sum(0.5 * q / np.bincount(ends)[ends] for ends in edges.T)
    total = 0.0
    for ends in edges.T:
        a = 1.0 / (np.maximum(1.0 - np.bincount(ends, p), _NO_MATCH_FLOOR) * delta)
        total += float(np.log1p(a * np.bincount(ends, np.where(inlier, p, 0.0))).sum())
    return total


def configurations(data: dict[str, Any]) -> style.Figure:
    """Draw the graph, a configuration with an outlier, and one of inliers only."""
    shown = data["hypotheses"][0]
    figure = style.new_figure(style.PAGE_CM, 6.2)
    axes = figure.subplots(1, 3)
    inliers, edges = data["selected"]["inliers"], len(data["edges"])
    value = rf"$(\epsilon/\delta)^{{-{edges}}}\,(1/\delta)^{{{len(inliers['edges'])}}}$"
    if inliers["log_conditional"] is not None:
        value += f", logarithm {inliers['log_conditional']:.1f}".replace("-", "−")
    counts = f"{edges} edges, {data['num_configurations']} configurations"
    panels = (
        ("(a) candidates", None, counts),
        ("(b) with an outlier", "outlier", "conditional likelihood 0"),
        ("(c) inliers only", "inliers", value),
    )
    for axis, (title, selected, text) in zip(axes, panels, strict=True):
        _panel(axis, data, None if selected is None else shown["inlier"], selected)
        axis.set_title(title, loc="left", fontsize=8.5)
        axis.text(0.5, -0.02, text, transform=axis.transAxes, ha="center", va="top", fontsize=7.5)
    handles = [
        style.legend_line("candidate", color=style.GREY, linewidth=1.1),
        style.legend_line(f"inlier under hypothesis {shown['name']}", color=_ORANGE, linewidth=1.8),
        style.legend_line("outlier", color=style.GREY, linestyle=(0, (4, 2)), linewidth=1.1),
        style.legend_line("selected as real", linestyle="", marker="$✓$", color=_BLUE),
        style.legend_line("though an outlier", linestyle="", marker="$✗$", color=_RED),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _panel(axis: Any, data: dict[str, Any], inlier: list[bool] | None, name: str | None) -> None:
    chosen = set() if name is None else set(data["selected"][name]["edges"])
    edges = data["edges"]
    sides = [max(edge[side] for edge in edges) + 1 for side in (0, 1)]
    centred: dict[str, Any] = {"ha": "center", "va": "center"}
    box = {"boxstyle": "circle,pad=0.12", "facecolor": "white", "edgecolor": "none"}
    for e, (i, j) in enumerate(edges):
        if inlier is None:
            look: dict[str, Any] = {"color": style.GREY, "linewidth": 1.1}
        elif inlier[e]:
            look = {"color": _ORANGE, "linewidth": 2.2 if e in chosen else 1.3}
        else:
            look = {"color": _RED, "linewidth": 2.0} if e in chosen else {"color": style.LIGHT}
            look = {"linewidth": 1.1, "linestyle": (0, (4, 2)), **look}
        axis.plot([0.0, 1.0], [-i, -j], zorder=1, **look)
        if e in chosen and inlier is not None:
            mark, colour = ("✓", _BLUE) if inlier[e] else ("✗", _RED)
            place = (_MARK_AT, -i + _MARK_AT * (i - j))
            bold: dict[str, Any] = {"fontsize": 8, "fontweight": "bold", "bbox": box}
            axis.text(*place, mark, color=colour, zorder=3, **centred, **bold)
    dot: dict[str, Any] = {"color": "white", "markeredgecolor": style.INK, "markersize": 7}
    for side, (count, letter) in enumerate(zip(sides, "xy", strict=True)):
        for vertex in range(count):
            axis.plot(side, -vertex, "o", zorder=2, **dot)
            label = f"{letter}{str(vertex + 1).translate(_SUBSCRIPTS)}"
            offset = -0.13 if side == 0 else 0.13
            axis.text(side + offset, -vertex, label, fontsize=8.5, **centred)
    axis.set_xlim(-0.28, 1.28)
    axis.set_ylim(-max(sides) + 0.55, 0.45)
    axis.set_axis_off()


FIGURES = {"toy_configurations": configurations}
