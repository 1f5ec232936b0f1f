"""The likelihood of a toy graph: all configurations enumerated, and how the scores order them.

Four keypoints on each side, eight candidates, four hypotheses that differ in which candidates are
inliers. A configuration is a 1-to-1 subset of the candidates; one with an outlier is impossible,
and every inlier that it selects makes it more likely by 1/δ.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from manymatch_lab.cells import listed
from manymatch_lab.checks import real
from manymatch_lab.evaluate.protocol import PAPER, unequal
from manymatch_lab.evaluate.tables import Cell, Table
from manymatch_lab.style import GREY, INK, LIGHT, PAGE_CM, legend_line, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTION = "Which scores order hypotheses as the exact likelihood of a small graph does?"
EXAMPLE = "manymatch-lab toy --delta 0.001 --out out/toy"

_EDGES = ((0, 0), (0, 1), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (3, 3))
# By edge number: the first is the one that the figure shows.
_HYPOTHESES = {"A": (0, 1, 2, 3, 5, 7), "B": (0, 3, 5, 7), "C": (0, 1, 2, 3, 5), "D": (0, 1, 2, 3)}
# What the figure selects: with the outlier (x₃, y₂), and all inliers.
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
        found = likelihood(_EDGES, inlier, eps, delta, q)
        possible = [m for m in every if all(inlier[e] for e in m)]
        hypotheses.append(
            {
                "name": name,
                "inlier": inlier,
                "num_inliers": found.num_inliers,
                "cardinality": found.cardinality,
                "multiplicity": found.multiplicity,
                "log_likelihood": found.exact,
                "log_dominant": found.dominant,
                "hcm": found.hcm,
                "sizes": [
                    {
                        "size": size,
                        "configurations": sum(len(m) == size for m in every),
                        "possible": sum(len(m) == size for m in possible),
                        "log_conditional": log_conditional(range(size), [True] * 8, eps, delta),
                    }
                    for size in range(max(map(len, every)) + 1)
                ],
            }
        )
    shown = hypotheses[0]["inlier"]
    return {
        "differs_from_paper": [
            *unequal("eps", eps, PAPER.options.threshold_px),
            *unequal("delta", delta, PAPER.options.delta),
            *unequal("q", q, PAPER.options.q),
        ],
        "settings": {"eps": eps, "delta": delta, "q": q},
        "edges": [list(edge) for edge in _EDGES],
        "num_configurations": len(every),
        "hypotheses": hypotheses,
        "selected": {
            name: {
                "edges": list(chosen),
                "log_conditional": _finite(log_conditional(chosen, shown, eps, delta)),
            }
            for name, chosen in _SELECTED.items()
        },
        "configurations": [
            {"edges": list(m), "log_conditional": _finite(log_conditional(m, shown, eps, delta))}
            for m in every
        ],
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
    agreeing: list[str] = []
    other: list[str] = []
    for name, key in (
        ("the dominant-cardinality form", "log_dominant"),
        ("HCM", "hcm"),
        ("MCM", "cardinality"),
        ("CM", "num_inliers"),
    ):
        (agreeing if _agrees(data["hypotheses"], key) else other).append(name)
    if agreeing:
        verb = "puts" if len(agreeing) == 1 else "put"
        text = f"{listed(agreeing)} {verb} no hypothesis above a more likely one"
        sentences.append(
            text[0].upper()
            + text[1:]
            + (f"; {listed(other)} {'does' if len(other) == 1 else 'do'}." if other else ".")
        )
    return sentences


def _agrees(hypotheses: Sequence[dict[str, Any]], key: str) -> bool:
    """Whether no hypothesis with a smaller likelihood has a larger score."""
    return not any(
        a["log_likelihood"] < b["log_likelihood"] and a[key] > b[key]
        for a in hypotheses
        for b in hypotheses
    )


def _hypotheses(data: dict[str, Any]) -> Table:
    header = [
        "Hypothesis",
        "inliers (CM)",
        "m* (MCM)",
        "N*",
        "log likelihood",
        "log N* + m* log(1/δ) + const",
        "difference",
        "HCM",
    ]
    best = {
        key: max(h[key] for h in data["hypotheses"])
        for key in ("num_inliers", "cardinality", "log_likelihood", "log_dominant", "hcm")
    }
    rows = []
    for h in data["hypotheses"]:
        gap = h["log_likelihood"] - h["log_dominant"]

        def cell(key: str, text: str, h: dict[str, Any] = h) -> Cell:
            return Cell(text, bold=h[key] == best[key])

        rows.append(
            [
                h["name"],
                cell("num_inliers", str(h["num_inliers"])),
                cell("cardinality", str(h["cardinality"])),
                str(h["multiplicity"]),
                cell("log_likelihood", f"{h['log_likelihood']:.3f}"),
                cell("log_dominant", f"{h['log_dominant']:.3f}"),
                f"{gap:.3f}",
                cell("hcm", f"{h['hcm']:.3f}"),
            ]
        )
    return Table(
        "Toy graph: hypotheses, their likelihood and their scores",
        header,
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
        rows.append(
            [
                str(entry["size"]),
                str(entry["configurations"]),
                str(entry["configurations"] - entry["possible"]),
                str(entry["possible"]),
                f"{entry['log_conditional']:.3f}" if entry["possible"] else "–",
                f"{100.0 * share:.4g} %",
            ]
        )
    return Table(
        f"Toy graph: configurations under hypothesis {shown['name']} by cardinality",
        [
            "m",
            "configurations",
            "with an outlier: likelihood 0",
            "all inliers",
            "log likelihood of each",
            "share of the total",
        ],
        rows,
    )


def _finite(value: float) -> float | None:
    """Write a log-likelihood for JSON: None is the logarithm of zero."""
    return value if math.isfinite(value) else None


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


@dataclasses.dataclass(frozen=True)
class Likelihood:
    """Exact likelihood of a hypothesis and what approximates it.

    `exact` is the log-likelihood with a uniform prior over all matchings, `dominant` the log of the
    terms of largest cardinality alone, the constant included. `cardinality` is the size m* of a
    maximum matching of the inliers, and `multiplicity` how many of them there are, N*.
    """

    exact: float
    dominant: float
    cardinality: int
    multiplicity: int
    num_inliers: int
    hcm: float


def likelihood(
    edges: Sequence[tuple[int, int]], inlier: Sequence[bool], eps: float, delta: float, q: float
) -> Likelihood:
    """Compute everything about one hypothesis.

    Edges are pairs of vertices, counted from 0 on each side, and `inlier` tells which of them are
    inliers under the hypothesis; eps, delta and q are the parameters of the model.
    """
    every = matchings(edges)
    terms = [log_conditional(m, inlier, eps, delta) for m in every]
    prior = -math.log(len(every))
    largest = max(len(m) for m, term in zip(every, terms, strict=True) if term > -math.inf)
    count = sum(
        len(m) == largest and term > -math.inf for m, term in zip(every, terms, strict=True)
    )
    top = max(terms)
    exact = prior + top + math.log(math.fsum(math.exp(term - top) for term in terms))
    constant = prior - len(edges) * math.log(eps / delta)
    dominant = constant + math.log(count) + largest * math.log(1.0 / delta)
    array = np.array(edges, dtype=np.int32).reshape(-1, 2)
    used = np.array(inlier, dtype=np.bool_)
    return Likelihood(
        exact=exact,
        dominant=dominant,
        cardinality=largest,
        multiplicity=count,
        num_inliers=int(used.sum()),
        hcm=_hcm(array, used, q, delta),
    )


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


def configurations(data: dict[str, Any]) -> Figure:
    """Draw the graph, a configuration with an outlier, and one of inliers only."""
    shown = data["hypotheses"][0]
    figure = new_figure(PAGE_CM, 6.2)
    axes = figure.subplots(1, 3)
    m = len(data["selected"]["inliers"]["edges"])
    panels = (
        (
            "(a) candidates",
            None,
            f"{len(data['edges'])} edges, {data['num_configurations']} configurations",
        ),
        ("(b) with an outlier", "outlier", "conditional likelihood 0"),
        (
            "(c) inliers only",
            "inliers",
            rf"$(\epsilon/\delta)^{{-{len(data['edges'])}}}\,(1/\delta)^{{{m}}}$"
            + _log(data["selected"]["inliers"]["log_conditional"]),
        ),
    )
    for axis, (title, selected, text) in zip(axes, panels, strict=True):
        _panel(axis, data, None if selected is None else shown["inlier"], selected)
        axis.set_title(title, loc="left", fontsize=8.5)
        axis.text(0.5, -0.02, text, transform=axis.transAxes, ha="center", va="top", fontsize=7.5)
    handles = [
        legend_line("candidate", color=GREY, linewidth=1.1),
        legend_line(f"inlier under hypothesis {shown['name']}", color=_ORANGE, linewidth=1.8),
        legend_line("outlier", color=GREY, linestyle=(0, (4, 2)), linewidth=1.1),
        legend_line("selected as real", linestyle="", marker="$✓$", color=_BLUE),
        legend_line("though an outlier", linestyle="", marker="$✗$", color=_RED),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _log(value: float | None) -> str:
    return "" if value is None else f", logarithm {value:.1f}".replace("-", "−")


def _panel(axis: Any, data: dict[str, Any], inlier: list[bool] | None, name: str | None) -> None:
    chosen = set() if name is None else set(data["selected"][name]["edges"])
    edges = data["edges"]
    sides = [max(edge[side] for edge in edges) + 1 for side in (0, 1)]
    for e, (i, j) in enumerate(edges):
        start, end = (0.0, -i), (1.0, -j)
        if inlier is None:
            style: dict[str, Any] = {"color": GREY, "linewidth": 1.1}
        elif inlier[e]:
            style = {"color": _ORANGE, "linewidth": 2.2 if e in chosen else 1.3}
        else:
            style = {"color": LIGHT if e not in chosen else _RED, "linewidth": 1.1}
            style["linestyle"] = (0, (4, 2))
            style["linewidth"] = 2.0 if e in chosen else 1.1
        axis.plot([start[0], end[0]], [start[1], end[1]], zorder=1, **style)
        if e in chosen and inlier is not None:
            mark = "✓" if inlier[e] else "✗"
            place = [a + _MARK_AT * (b - a) for a, b in zip(start, end, strict=True)]
            axis.text(
                *place,
                mark,
                ha="center",
                va="center",
                fontsize=8,
                color=_BLUE if inlier[e] else _RED,
                fontweight="bold",
                bbox={"boxstyle": "circle,pad=0.12", "facecolor": "white", "edgecolor": "none"},
                zorder=3,
            )
    for side, (count, letter) in enumerate(zip(sides, "xy", strict=True)):
        for vertex in range(count):
            axis.plot(
                side, -vertex, "o", color="white", markeredgecolor=INK, markersize=7, zorder=2
            )
            label = f"{letter}{str(vertex + 1).translate(_SUBSCRIPTS)}"
            offset = -0.13 if side == 0 else 0.13
            axis.text(side + offset, -vertex, label, ha="center", va="center", fontsize=8.5)
    axis.set_xlim(-0.28, 1.28)
    axis.set_ylim(-max(sides) + 0.55, 0.45)
    axis.set_axis_off()


FIGURES: dict[str, Callable[[dict[str, Any]], Figure]] = {"toy_configurations": configurations}
