"""Recall against number of edges for the association operators, K = 1 to 16.

    python benchmarks/accuracy/operators.py [--out out/accuracy]

Recall of an image is the share of its keypoints with a true partner that have an edge to one; of a
pair, the mean of its two images. One-way association is run in both directions and averaged.
Made scenes always; indoor pairs with depth and rectified stereo pairs, with RootSIFT, where the
reference data and OpenCV are there. Writes ``operators.json``, ``operators.md`` and
``operators.png``.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy import operator_pairs
from benchmarks.accuracy.operator_pairs import LabelledPair
from manymatch.associate import OPERATORS
from manymatch.datasets.synthetic import EASY, make_scenes
from tests.data_folder import data_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_K = 16
SHOWN = (1, 2, 3, 5, 8, 16)
#: Points in families of eight look-alikes, which noise makes hard to tell apart.
FAMILIES = replace(EASY, num_points=400, num_outliers=100, family_size=8, descriptor_noise=0.5)

Curve = dict[str, list[float]]


def made_pairs(count: int) -> Iterable[LabelledPair]:
    """Made scenes with look-alikes; the true matches are known."""
    for scene in make_scenes(FAMILIES, count):
        truth = np.zeros((len(scene.descriptors0), len(scene.descriptors1)), dtype=bool)
        truth[tuple(scene.true_matches.T)] = True
        points = scene.graph.points0, scene.graph.points1
        yield LabelledPair(*points, scene.descriptors0, scene.descriptors1, [(truth, truth)])


def curve(pair: LabelledPair, operator: str) -> tuple[np.ndarray, np.ndarray]:
    """Edges and recall at every K of one pair."""
    if operator == "oneway":
        ways = [one_curve(p, operator) for p in (pair, pair.swapped())]
        return tuple(np.mean(values, axis=0) for values in zip(*ways, strict=True))
    return one_curve(pair, operator)


def one_curve(pair: LabelledPair, operator: str) -> tuple[np.ndarray, np.ndarray]:
    """Edges and recall at every K; graphs are nested, so one association has them all."""
    edges, _, rank = manymatch.associate(pair.desc0, pair.desc1, MAX_K, operator)
    ks = np.arange(1, MAX_K + 1)
    recalls = []
    for truths in pair.truths:
        for side, truth in enumerate(truths):
            correct = truth[edges[:, 0], edges[:, 1]]
            first = np.full(truth.shape[side], MAX_K + 1)
            np.minimum.at(first, edges[correct, side], rank[correct])
            eligible = truth.any(axis=1 - side)
            recalls.append((first[eligible][:, None] <= ks).mean(axis=0))
    return (rank[:, None] <= ks).sum(axis=0), np.mean(recalls, axis=0)


def mean_curves(pairs: list[LabelledPair]) -> dict[str, Curve]:
    """Mean over pairs of edges and recall, by operator."""
    result = {}
    for operator in OPERATORS:
        edges, recall = zip(*(curve(pair, operator) for pair in pairs), strict=True)
        result[operator] = {
            "edges": np.mean(edges, axis=0).tolist(),
            "recall": np.mean(recall, axis=0).tolist(),
        }
    return result


def at_edges(lines: Curve, count: float) -> str:
    """Recall of a curve, between its points, where it has so many edges; empty if it never has."""
    if not lines["edges"][0] <= count <= lines["edges"][-1]:
        return ""
    return f"{100 * np.interp(count, lines['edges'], lines['recall']):.1f}"


def tables(results: dict[str, dict[str, Curve]]) -> str:
    """Markdown: recall and edges by K, and recall at the same number of edges."""
    parts = []
    for name, lines in results.items():
        header = "| operator | " + " | ".join(f"K = {k}" for k in SHOWN) + " |"
        rows = [header, "|:---|" + "---:|" * len(SHOWN)]
        for operator, values in lines.items():
            cells = [
                f"{100 * values['recall'][k - 1]:.1f} ({values['edges'][k - 1]:.0f})" for k in SHOWN
            ]
            rows.append(f"| {operator} | " + " | ".join(cells) + " |")
        counts = [lines["mutual"]["edges"][k - 1] for k in SHOWN]
        rows += ["", "Recall at the number of edges that mutual association has:", ""]
        rows += [header, "|:---|" + "---:|" * len(SHOWN)]
        for operator, values in lines.items():
            cells = [at_edges(values, count) for count in counts]
            rows.append(f"| {operator} | " + " | ".join(cells) + " |")
        parts.append(f"### {name}\n\nRecall in percent (edges a pair).\n\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def draw(results: dict[str, dict[str, Curve]], path: Path) -> None:
    """Draw recall against edges, one panel a set, with K at some of the points."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(results), figsize=(4.6 * len(results), 3.8), squeeze=False)
    styles = {"mutual": ("#0072b2", "o"), "oneway": ("#d55e00", "s"), "union": ("#009e73", "^")}
    for axis, (name, lines) in zip(axes[0], results.items(), strict=True):
        for operator, values in lines.items():
            colour, marker = styles[operator]
            recall = [100 * value for value in values["recall"]]
            axis.plot(values["edges"], recall, color=colour, lw=1.3, label=operator)
            for k in SHOWN:
                x, y = values["edges"][k - 1], recall[k - 1]
                axis.plot(x, y, color=colour, marker=marker, ms=4.5)
                # Above the upper curve and below the others, where there is room.
                offset = (-7, 5) if operator == "mutual" else (5, -10)
                if operator != "oneway":
                    axis.annotate(
                        str(k), (x, y), offset, textcoords="offset points", fontsize=7, color=colour
                    )
        axis.set(title=name, xscale="log", xlabel="edges a pair")
        axis.grid(visible=True, which="major", alpha=0.3)
        axis.margins(y=0.1)
    axes[0, 0].set_ylabel("recall (%)")
    axes[0, 0].legend(frameon=False, fontsize=8, loc="lower right")
    figure.suptitle("Association operators; small numbers are K", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenes", type=int, default=20, help="made scenes")
    parser.add_argument("--out", type=Path, default=Path("out/accuracy"), help="folder of results")
    arguments = parser.parse_args()
    sets = {f"made scenes ({arguments.scenes})": list(made_pairs(arguments.scenes))}
    data = data_folder()
    if data is None:
        sys.stderr.write("the reference data is not here: made scenes only (set MANYMATCH_DATA)\n")
    else:
        indoor = list(operator_pairs.depth_pairs(data / "posed_pairs" / "7scenes_tsdf"))
        stereo = list(operator_pairs.stereo_pairs(data / "posed_pairs" / "extra_stereo_disparity"))
        sets[f"indoor pairs with depth ({len(indoor)})"] = indoor
        sets[f"rectified stereo ({len(stereo)})"] = stereo
    results = {name: mean_curves(pairs) for name, pairs in sets.items()}
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "operators.json").write_text(json.dumps(results, indent=1))
    (arguments.out / "operators.md").write_text(tables(results))
    draw(results, arguments.out / "operators.png")
    sys.stdout.write(tables(results))


if __name__ == "__main__":
    main()
