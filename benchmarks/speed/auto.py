"""Time "auto" against the paper's two-stage method, both with their own stopping rule.

    python benchmarks/speed/auto.py [--iterations 100000] [--pairs 15] [--repeats 3]

Real graphs (the reference data), one thread, 1,000 iterations at least. Two-stage is timed with the
filter that makes its graph (the first 2048 edges, GMS, the first 1024), "auto" gets the first 2048
and runs the filter itself. The two take turns; of every pair the least time of the repeats counts.
Ratios are those of total time. Accuracy stands beside them. Writes ``auto.json`` and ``auto.md``.
With ``--parts`` instead: "auto" without each of its parts against "auto", four pairs a set;
prints only.

    python benchmarks/speed/auto.py --solution NAME [--seeds 2] [--pairs 100] [--than NAME]

Time to solution: CPU milliseconds of "auto" on all candidates, and of `assess`, over those of
PoseLib on the candidates of rank one, each with its defaults, on one thread; and the AUC of both.
Writes ``solution_NAME.json``. ``--alone`` leaves PoseLib out, which takes nearly all of the time;
``--than`` adds the differences from such a file of another version.
"""

from __future__ import annotations

import argparse
import json
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
from manymatch_lab.evaluate.estimators import estimate_with_poselib
from manymatch_lab.evaluate.inputs import open_graphs
from manymatch_lab.evaluate.statistics import macro_difference, macro_spread
from tests.support.data_folder import data_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from manymatch_lab.evaluate.posed_graph import PosedGraph

METHODS = ("hcm-mcm", "auto")
REPRESENTATIONS = ("effnet", "superpoint", "sift", "sam2")


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


def cpu(call: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """CPU seconds, the least of some runs, and what the call returns."""
    least, found = float("inf"), None
    for _ in range(repeats):
        start = time.process_time()
        found = call()
        least = min(least, time.process_time() - start)
    return least, found


def solution(
    folders: list[Path], pairs: int, seeds: int, repeats: int, *, alone: bool = False
) -> dict[str, dict[str, Any]]:
    """By set: CPU seconds of every pair, and errors (seeds, pairs); `alone` without PoseLib."""
    systems = ["auto"] if alone else ["PoseLib", "auto"]
    found: dict[str, dict[str, Any]] = {}
    for folder in folders:
        (source,) = open_graphs([str(folder)])
        chosen = np.unique(np.linspace(0, len(source) - 1, min(pairs, len(source))).astype(int))
        seconds: dict[str, list[float]] = {name: [] for name in (*systems, "assess")}
        errors: dict[str, list[list[float]]] = {name: [] for name in systems}
        iterations = []
        for seed in range(seeds):
            rows: dict[str, list[float]] = {name: [] for name in systems}
            for index in chosen:
                posed = source[int(index)]
                cameras, options = (posed.camera0, posed.camera1), manymatch.Options(seed=seed)
                first, all_edges = posed.graph.up_to_rank(1), posed.graph
                calls = {
                    "PoseLib": lambda g=first, c=cameras, o=options: estimate_with_poselib(
                        g, *c, o
                    ),
                    "auto": lambda g=all_edges, c=cameras, o=options: (
                        manymatch.estimate_relative_pose(g, *c, options=o, threads=1)
                    ),
                }
                for name in systems:
                    taken, result = cpu(calls[name], repeats)
                    seconds[name].append(taken)
                    pose = result.pose
                    rows[name].append(pose_error_deg(pose, posed.R, posed.t) if pose else 180.0)
                seconds["assess"].append(cpu(lambda e=result: manymatch.assess(e), 1)[0])
                iterations.append(result.iterations)
            for name, of_seed in rows.items():
                errors[name].append(of_seed)
        found[f"{folder.parent.name}/{folder.name}"] = {
            "seconds": seconds,
            "errors": errors,
            "iterations": iterations,
        }
    return found


def solution_cells(
    name: str, runs: list[dict[str, Any]], before: list[dict[str, Any]] | None
) -> list[str]:
    """One row of the table of times to solution."""
    total = {key: sum(sum(run["seconds"][key]) for run in runs) for key in runs[0]["seconds"]}
    count = sum(len(run["iterations"]) for run in runs)
    iterations = sum(sum(run["iterations"]) for run in runs) / count
    theirs = total.setdefault("PoseLib", float("nan"))
    row = [name, str(count)]
    row += [f"{1e3 * total[key] / count:.1f}" for key in ("PoseLib", "auto", "assess")]
    row += [f"{iterations:,.0f}", f"{total['auto'] / theirs:.3f}"]
    row.append(f"{(total['auto'] + total['assess']) / theirs:.3f}")
    errors = {key: [run["errors"].get(key, []) for run in runs] for key in ("PoseLib", "auto")}
    if not errors["PoseLib"][0]:
        row.append("–")
        del errors["PoseLib"]
    row += [" / ".join(f"{v:.1f}" for v in macro_spread(errors[k]).mean) for k in errors]
    if before:
        spent = sum(sum(run["seconds"]["auto"]) for run in before)
        row.append(f"{total['auto'] / spent:.2f}")
        change = macro_difference(errors["auto"], [run["errors"]["auto"] for run in before])
        row.append(
            " / ".join(
                f"{mean:+.1f} [{interval.low:+.1f}, {interval.high:+.1f}]"
                for mean, interval in zip(change.mean, change.interval, strict=True)
            )
        )
    return row


def report_solution(console: Console, folders: list[Path], arguments: argparse.Namespace) -> None:
    """Measure times to solution, show them, and write them down."""
    path = arguments.out / f"solution_{arguments.solution}.json"
    given = arguments.pairs, arguments.seeds, arguments.repeats
    runs = solution(folders, *given, alone=arguments.alone)
    report.write_json(path, {"runs": runs})
    before = {}
    if arguments.than:
        known = arguments.out / f"solution_{arguments.than}.json"
        before = json.loads(known.read_text())["runs"]
    header = ["set", "runs", "PoseLib ms", "auto ms", "assess ms", "iterations", "ratio"]
    header += ["with assess", "AUC@5/10/20 PoseLib", "auto"]
    header += ["time / before", "AUC − before, 95 %"] if before else []
    groups = {name: [name] for name in runs}
    for representation in dict.fromkeys(name.split("/")[0] for name in runs):
        of = [name for name in runs if name.startswith(f"{representation}/")]
        groups[f"{representation}, all"] = of
    rows = [
        solution_cells(title, [runs[n] for n in names], [before[n] for n in names if n in before])
        for title, names in groups.items()
    ]
    report.show(console, "Time to solution, one thread", header, rows)


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
    parser.add_argument("--solution", metavar="NAME", help="time to solution against PoseLib")
    parser.add_argument("--than", metavar="NAME", help="compare with this earlier run of it")
    parser.add_argument("--alone", action="store_true", help="--solution without PoseLib")
    parser.add_argument("--only", nargs="+", default=REPRESENTATIONS, choices=REPRESENTATIONS)
    parser.add_argument("--seeds", type=int, default=2, help="repetitions of --solution")
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
        for representation in arguments.only
        for folder in sorted((data / "graphs" / representation).iterdir())
    ]
    if arguments.solution:
        report_solution(console, folders, arguments)
        return
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
