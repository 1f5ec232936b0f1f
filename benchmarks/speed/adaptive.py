"""Time a pair as users do, with the number of iterations left to each estimator.

    python benchmarks/speed/adaptive.py [--ratios 0.05 0.1 ...] [--graphs 12] [--out out/bench]

Synthetic graphs of 1024 edges, 1,000 to 100,000 iterations (OpenCV has no lower limit), one thread.
The median time of a pair stands beside the accuracy on the same pairs, so that nothing is fast by
doing less. Ratios that were measured before with the same settings are kept. Writes
``adaptive.json``, ``adaptive.md`` and ``adaptive.png``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.speed import plots, report
from benchmarks.speed.estimators import METHODS, others, ours, race
from benchmarks.speed.problems import synthetic_problem
from manymatch import pose_auc

RATIOS = (0.05, 0.1, 0.2, 0.4, 0.6)
AUC_DEG = 5
# What is measured of one estimator on the graphs of one ratio, by graph.
Runs = dict[str, dict[str, list[float]]]


def measure(ratio: float, graphs: int, progress: Progress) -> Runs:
    """Milliseconds and pose errors of every estimator on every graph of one ratio."""
    options = manymatch.Options()
    entries = [*(ours(method, options) for method in ("auto", *METHODS)), *others(options)]
    problems = [synthetic_problem(ratio, seed) for seed in range(graphs)]
    task = progress.add_task(f"ratio {ratio:g}", total=graphs * len(entries))
    # One run is enough: the median over graphs does what a minimum over repetitions would.
    race(entries, problems, 1, lambda _: progress.advance(task))
    return {
        entry.name: {
            "milliseconds": [1e3 * entry.seconds[p.name] for p in problems],
            "error_deg": [entry.error_deg[p.name] for p in problems],
        }
        for entry in entries
    }


def measured_before(path: Path, graphs: int) -> dict[str, Runs]:
    """Read the runs of an earlier call on the same machine and graphs, by ratio."""
    if not path.is_file():
        return {}
    content = json.loads(path.read_text())
    same = content["graphs"] == graphs and content["environment"] == report.environment()
    return content["runs"] if same else {}


def summarise(runs: dict[str, Runs]) -> list[dict[str, Any]]:
    """One record an estimator, with time and accuracy by ratio."""
    return [
        {
            "name": name,
            "by_ratio": [
                {
                    "ratio": float(ratio),
                    "milliseconds": float(np.median(of_ratio[name]["milliseconds"])),
                    "error_deg": float(np.median(of_ratio[name]["error_deg"])),
                    "auc5": float(pose_auc(of_ratio[name]["error_deg"], (AUC_DEG,))[0]),
                }
                for ratio, of_ratio in runs.items()
            ],
        }
        for name in next(iter(runs.values()))
    ]


def table(records: list[dict[str, Any]], key: str, form: str) -> tuple[list[str], list[list[str]]]:
    """Cells of one quantity, one column a ratio."""
    header = ["estimator", *(f"{row['ratio']:g}" for row in records[0]["by_ratio"])]
    rows = [[r["name"], *(format(row[key], form) for row in r["by_ratio"])] for r in records]
    return header, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ratios", type=float, nargs="+", default=RATIOS, help="true edges")
    parser.add_argument("--graphs", type=int, default=12, help="graphs of each ratio")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder of results")
    arguments = parser.parse_args()
    path = arguments.out / "adaptive.json"
    runs = measured_before(path, arguments.graphs)
    console = Console()
    with Progress(console=console, transient=True) as progress:
        for ratio in arguments.ratios:
            runs[f"{ratio:g}"] = measure(ratio, arguments.graphs, progress)
            runs = dict(sorted(runs.items(), key=lambda item: float(item[0])))
            report.write_json(path, {"graphs": arguments.graphs, "runs": runs})
    records = summarise(runs)
    count = f"median of {arguments.graphs} graphs"
    tables = {
        f"Milliseconds a pair by share of true edges, {count}, one thread.": table(
            records, "milliseconds", ".1f"
        ),
        f"Pose error in degrees, {count}.": table(records, "error_deg", ".2f"),
        f"AUC@{AUC_DEG} degrees in percent on the same graphs.": table(records, "auc5", ".1f"),
    }
    for caption, cells in tables.items():
        report.show(console, caption.rstrip("."), *cells)
    report.write_markdown(arguments.out / "adaptive.md", "Adaptive runs", tables)
    plots.adaptive(arguments.out / "adaptive.png", [float(ratio) for ratio in runs], records)


if __name__ == "__main__":
    main()
