"""Time "auto" against the paper's two-stage method, both with their own stopping rule.

    python benchmarks/speed/auto.py [--iterations 100000] [--pairs 15] [--repeats 3]

Real graphs (the reference data), one thread, 1,000 iterations at least. Two-stage is timed with the
filter that makes its graph (the first 2048 edges, GMS, the first 1024), "auto" gets the first 2048
and runs the filter itself. The two take turns; of every pair the least time of the repeats counts.
Ratios are those of total time. Accuracy stands beside them. Writes ``auto.json`` and ``auto.md``.
With ``--parts`` instead: "auto" without each of its parts against "auto", four pairs a set;
prints only.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.speed import report
from manymatch import pose_auc, pose_error_deg
from manymatch.associate.candidates import Association
from manymatch.options import AUTO_PARTS
from manymatch_lab.evaluate.inputs import open_graphs
from tests.support.data_folder import data_folder

if TYPE_CHECKING:
    from manymatch_lab.evaluate.posed_graph import PosedGraph

METHODS = ("hcm-mcm", "auto")


def seen(method: str, posed: PosedGraph) -> manymatch.AssociationGraph:
    """Candidates of a pair as a method wants them."""
    return Association().for_method(method).apply(posed.graph, **posed.sizes)


def timed(method: str, posed: PosedGraph, options: manymatch.Options) -> tuple[float, float, int]:
    """Seconds with caps and filter, error in degrees, and iterations."""
    start = time.perf_counter()
    graph = seen(method, posed)
    estimate = manymatch.estimate_relative_pose(
        graph, posed.camera0, posed.camera1, method, options
    )
    seconds = time.perf_counter() - start
    error = pose_error_deg(estimate.pose, posed.R, posed.t) if estimate.pose else 180.0
    return seconds, float(error), estimate.iterations


def measure(folder: Path, pairs: int, repeats: int, options: manymatch.Options) -> dict[str, Any]:
    """Seconds, errors and iterations of both methods on evenly spread pairs of a set."""
    (source,) = open_graphs([str(folder)])
    chosen = np.unique(np.linspace(0, len(source) - 1, min(pairs, len(source))).astype(int))
    rows: dict[str, list[tuple[float, float, int]]] = {method: [] for method in METHODS}
    for index in chosen:
        posed = source[int(index)]
        best: dict[str, tuple[float, float, int]] = {}
        for _ in range(repeats):
            for method in METHODS:
                run = timed(method, posed, options)
                best[method] = min(run, best.get(method, run))
        for method, run in best.items():
            rows[method].append(run)
    return {
        method: {
            "seconds": [row[0] for row in of_method],
            "error_deg": [row[1] for row in of_method],
            "iterations": [row[2] for row in of_method],
        }
        for method, of_method in rows.items()
    }


def measure_parts(
    folders: list[Path], repeats: int, options: manymatch.Options
) -> dict[str, list[tuple[float, int, int]]]:
    """Seconds, iterations and refinements of "auto" whole (an empty name) and without each part."""
    rows: dict[str, list[tuple[float, int, int]]] = {name: [] for name in ("", *AUTO_PARTS)}
    for source in open_graphs([str(folder) for folder in folders]):
        for index in np.linspace(0, len(source) - 1, 4).astype(int):
            posed = source[int(index)]
            graph = seen("auto", posed)
            best: dict[str, tuple[float, int, int]] = {}
            for _ in range(repeats):
                for name in rows:
                    estimate = manymatch.estimate_relative_pose(
                        graph,
                        posed.camera0,
                        posed.camera1,
                        "auto",
                        options.replace(disable=(name,) if name else ()),
                    )
                    seconds = estimate.timing["total"]
                    run = (seconds, estimate.iterations, estimate.refinements)
                    best[name] = min(run, best.get(name, run))
            for name, run in best.items():
                rows[name].append(run)
    return rows


def part_cells(rows: dict[str, list[tuple[float, int, int]]]) -> list[list[str]]:
    """One row a part: milliseconds, ratio of total time, iterations, refinements."""
    means = {name: np.mean(np.array(runs, dtype=float), axis=0) for name, runs in rows.items()}
    return [
        [
            f"without {name}" if name else "auto",
            f"{1e3 * mean[0]:.1f}",
            f"{mean[0] / means[''][0]:.2f}",
            f"{mean[1]:,.0f}",
            f"{mean[2]:.0f}",
        ]
        for name, mean in means.items()
    ]


def cells(name: str, runs: list[dict[str, Any]]) -> list[str]:
    """One row of the table: totals over the pairs of some sets."""
    total, iterations, auc = {}, {}, {}
    for method in METHODS:
        total[method] = sum(sum(run[method]["seconds"]) for run in runs)
        iterations[method] = np.mean(np.concatenate([run[method]["iterations"] for run in runs]))
        auc[method] = np.mean([pose_auc(run[method]["error_deg"], (10,))[0] for run in runs])
    count = sum(len(run["auto"]["seconds"]) for run in runs)
    return [
        name,
        str(count),
        *(f"{1e3 * total[method] / count:.1f}" for method in METHODS),
        f"{total['auto'] / total['hcm-mcm']:.2f}",
        *(f"{iterations[method]:,.0f}" for method in METHODS),
        *(f"{auc[method]:.1f}" for method in METHODS),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=100_000, help="most iterations")
    parser.add_argument("--pairs", type=int, default=15, help="pairs of each set")
    parser.add_argument("--repeats", type=int, default=3, help="runs of which the least counts")
    parser.add_argument("--parts", action="store_true", help="time auto without each part")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder of results")
    arguments = parser.parse_args()
    console = Console()
    data = data_folder()
    if data is None:
        console.print("The reference graphs are not here; set MANYMATCH_DATA to their folder.")
        return
    options = manymatch.Options(max_iterations=arguments.iterations, threads=1)
    folders = [
        folder
        for representation in ("effnet", "superpoint", "sift", "sam2")
        for folder in sorted((data / "graphs" / representation).iterdir())
    ]
    if arguments.parts:
        parts = part_cells(measure_parts(folders, arguments.repeats, options))
        header = ["method", "ms", "ratio", "iterations", "refinements"]
        report.show(console, "Time of auto by parts, one thread", header, parts)
        return
    runs: dict[str, dict[str, Any]] = {}
    with Progress(console=console, transient=True) as progress:
        for folder in progress.track(folders, description="sets"):
            name = f"{folder.parent.name}/{folder.name}"
            runs[name] = measure(folder, arguments.pairs, arguments.repeats, options)
    header = ["set", "pairs", "two-stage ms", "auto ms", "ratio"]
    header += ["its two-stage", "its auto", "AUC@10 two-stage", "AUC@10 auto"]
    rows = [cells(name, [run]) for name, run in runs.items()]
    for representation in dict.fromkeys(name.split("/")[0] for name in runs):
        of = [run for name, run in runs.items() if name.startswith(f"{representation}/")]
        rows.append(cells(f"{representation}, all", of))
    rows.append(cells("all", list(runs.values())))
    caption = f"Time a pair, one thread, 1,000 to {arguments.iterations:,} iterations."
    report.show(console, caption.rstrip("."), header, rows)
    suffix = "" if arguments.iterations == 100_000 else f"_{arguments.iterations}"
    report.write_json(arguments.out / f"auto{suffix}.json", {"runs": runs})
    report.write_markdown(arguments.out / f"auto{suffix}.md", "auto", {caption: (header, rows)})


if __name__ == "__main__":
    main()
