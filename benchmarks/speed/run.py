"""Time our estimators against PoseLib, OpenCV and pycolmap on the same graphs.

    python benchmarks/speed/run.py [--quick] [--out out/bench]

Every estimator runs the same forced number of iterations on graphs of about 1024 edges, ours on
one thread and on all. Runs are interleaved in one process and the minimum counts. Writes
``speed.json``, ``speed.md`` and ``speed.png``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.speed import kernels, plots, report
from benchmarks.speed.estimators import contestants, race
from benchmarks.speed.problems import load_problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two graphs, a tenth of the budget")
    parser.add_argument("--iterations", type=int, help="forced iterations (default 100,000)")
    parser.add_argument("--repeats", type=int, help="interleaved repetitions (default 5)")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder of results")
    arguments = parser.parse_args()
    iterations = arguments.iterations or (10_000 if arguments.quick else 100_000)
    repeats = arguments.repeats or (2 if arguments.quick else 5)
    problems = load_problems(arguments.quick)
    names = [problem.name for problem in problems]
    entries = contestants(iterations)
    console = Console()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=repeats * len(problems) * len(entries))
        race(
            entries,
            problems,
            repeats,
            lambda text: progress.update(task, advance=1, description=text),
        )
    times = {problem.name: kernels.time_kernels(problem, repeats) for problem in problems}
    ratios = {name: kernels.ratios(columns) for name, columns in times.items()}
    records = report.summarise(entries, names)
    stages = report.stage_shares(records[0])
    tables = {
        f"Milliseconds for {iterations:,} forced iterations, minimum of interleaved runs.": (
            ["estimator", "threads", *names, "ratio to PoseLib CM"],
            report.estimator_rows(records, names),
        ),
        "Kernels: microseconds per call, one thread.": (
            ["kernel", *times],
            report.rows_by_graph(times),
        ),
        "Ratios of kernels.": (["ratio", *ratios], report.rows_by_graph(ratios)),
        f"Stages of {records[0]['name']} on one thread: milliseconds.": (
            ["stage", *stages],
            report.rows_by_graph(stages),
        ),
    }
    for caption, table in tables.items():
        report.show(console, caption.rstrip("."), *table)
    content = {
        "iterations": iterations,
        "estimators": records,
        "kernels_microseconds": times,
        "kernel_ratios": ratios,
    }
    report.write_json(arguments.out / "speed.json", content)
    report.write_markdown(arguments.out / "speed.md", "Speed", tables)
    plots.estimator_times(arguments.out / "speed.png", records, names, iterations)


if __name__ == "__main__":
    main()
