"""Time our estimators against PoseLib, OpenCV and pycolmap on the same graphs.

    python benchmarks/speed/run.py [--quick] [--out out/bench]

Every estimator runs the same forced number of iterations on graphs of about 1024 edges, ours on
one thread and on all. Runs are interleaved in one process and the minimum counts. Writes
``speed.json`` and ``speed.md``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.speed import report
from benchmarks.speed.estimators import contestants, race
from benchmarks.speed.kernels import time_kernels
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
    kernels = {problem.name: time_kernels(problem, repeats) for problem in problems}
    report.write(console, arguments.out, iterations, entries, [p.name for p in problems], kernels)


if __name__ == "__main__":
    main()
