"""The likelihood of a toy graph: all configurations enumerated, and what the scores make of them.

Four keypoints on each side, eight candidates, four hypotheses that differ in which candidates are
inliers. A configuration is a 1-to-1 subset of the candidates; one with an outlier is impossible,
and every inlier that it selects makes it more likely by 1/δ.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from manymatch._validate import real
from manymatch.evaluate.tables import Cell, Table
from manymatch_paper.experiments._cells import listed
from manymatch_paper.experiments._likelihood import likelihood, log_conditional, matchings
from manymatch_paper.experiments.toy_figure import FIGURES

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FIGURES", "notes", "run", "tables"]

_EDGES = ((0, 0), (0, 1), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (3, 3))
# By edge number: the first is the one that the figure shows.
_HYPOTHESES = {
    "A": (0, 1, 2, 3, 5, 7),
    "B": (0, 3, 5, 7),
    "C": (0, 1, 2, 3, 5),
    "D": (0, 1, 2, 3),
}
# What the figure selects: with the outlier (x₃, y₂), and all inliers.
_SELECTED = {"outlier": (0, 4, 7), "inliers": (1, 2, 5, 7)}


def run(eps: float = 1.0, delta: float = 0.01, q: float = 0.3) -> dict[str, Any]:
    """Enumerate all configurations of the toy graph.

    Parameters
    ----------
    eps : float
        Inlier threshold, in the unit of the residuals.
    delta : float
        Chance that a false candidate is an inlier, in (0, 1).
    q : float
        Probability that the real match is among a keypoint's candidates, in (0, 1).

    Returns
    -------
    dict
        What `tables` and the figure need, as JSON types.
    """
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
