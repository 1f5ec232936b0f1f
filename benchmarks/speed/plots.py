"""Plots of the benchmarks' numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#999999",
    "#7F3C8D",
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "h")


def _axes(width: float = 16.0, height: float = 9.0, columns: int = 1) -> tuple[Any, Any]:
    """Make a figure of a size in centimetres and its axes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        1, columns, figsize=(width / 2.54, height / 2.54), layout="constrained"
    )
    for one in np.atleast_1d(axes):
        one.spines[["top", "right"]].set_visible(False)
        one.grid(visible=True, which="both", linewidth=0.3, alpha=0.5)
        one.set_axisbelow(True)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def estimator_times(
    path: Path, records: list[dict[str, Any]], names: list[str], iterations: int
) -> None:
    """Draw milliseconds of every estimator, one bar a graph."""
    figure, axes = _axes(height=11.0)
    height = 0.8 / len(names)
    for k, name in enumerate(names):
        axes.barh(
            np.arange(len(records)) + (k - 0.5 * (len(names) - 1)) * height,
            [record["milliseconds"][name] for record in records],
            height,
            label=name,
            color=COLOURS[k],
        )
    labels = [
        f"{r['name']}, {r['threads']} thread{'s' if r['threads'] > 1 else ''}" for r in records
    ]
    axes.set_yticks(range(len(records)), labels)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel(f"milliseconds for {iterations:,} iterations")
    axes.legend(fontsize=8)
    _save(figure, path)


def adaptive(path: Path, ratios: list[float], records: list[dict[str, Any]]) -> None:
    """Draw time and accuracy against the share of true edges, side by side."""
    figure, (left, right) = _axes(width=24.0, height=10.0, columns=2)
    for k, record in enumerate(records):
        style = {"color": COLOURS[k], "marker": MARKERS[k], "label": record["name"]}
        left.plot(ratios, [row["milliseconds"] for row in record["by_ratio"]], **style)
        right.plot(ratios, [row["auc5"] for row in record["by_ratio"]], **style)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks(ratios, [f"{ratio:g}" for ratio in ratios])
        axes.minorticks_off()
        axes.set_xlabel("share of true edges")
    left.set_yscale("log")
    left.set_ylabel("median milliseconds a pair")
    right.set_ylabel("AUC@5°, %")
    right.legend(fontsize=8)
    _save(figure, path)


def scaling(path: Path, edges: list[int], records: list[dict[str, Any]]) -> None:
    """Draw milliseconds against the number of edges: ours with lines, all with power laws."""
    figure, (left, right) = _axes(width=24.0, height=10.0, columns=2)
    counts = np.array(edges, dtype=float)
    for k, record in enumerate(records):
        style = {"color": COLOURS[k], "marker": MARKERS[k], "linestyle": "none"}
        label = f"{record['name']}, exponent {record['exponent']:.2f}"
        right.plot(counts, record["milliseconds"], label=label, **style)
        power = record["factor"] * counts ** record["exponent"]
        right.plot(counts, power, color=COLOURS[k], linewidth=1)
        if "PoseLib" not in record["name"]:
            left.plot(counts, record["milliseconds"], label=record["name"], **style)
            line = record["milliseconds_at_0"] + record["milliseconds_per_1000"] * counts / 1e3
            left.plot(counts, line, color=COLOURS[k], linewidth=1)
    left.set_xlim(left=0)
    left.set_ylim(bottom=0)
    right.set_xscale("log")
    right.set_yscale("log")
    for axes in (left, right):
        axes.set_xlabel("edges")
        axes.set_ylabel("milliseconds")
        axes.legend(fontsize=8)
    _save(figure, path)
