"""Where the instructions and the time of one pair go.

    python benchmarks/speed/breakdown.py [--iterations 20000] [--out out/bench]

The two-stage estimator on synthetic graphs of 1024 edges, a tenth of them true. Instructions by
function, with all that a function calls, counted by valgrind on the AVX2 path; nanoseconds by stage
from the estimator's own clock, on a graph of the same kind. Writes ``breakdown.json`` and
``breakdown.md``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.speed import build, callgrind, report
from benchmarks.speed.problems import synthetic_problem
from manymatch import _core

# What is shown: part of the pair, beginning of the function that does it.
PARTS = {
    "everything": "manymatch::Estimator<manymatch::RelativePoseProblem>::run(",
    "search, with refinements": "manymatch::LoRansac<",
    "- sampling": "manymatch::Proposals::draw(",
    "- five-point, batched": "manymatch::RelativePoseProblem::solve(",
    "- screening in float32": "manymatch::RelativePoseProblem::screen(",
    "- exact inliers in float64": "manymatch::RelativePoseProblem::inliers(",
    "- HCM terms of a mask": "manymatch::HcmEvaluator::operator()(",
    "edges of refinements, everywhere": "manymatch::Refiner<",
    "least squares of refinements, everywhere": "manymatch::RelativePoseProblem::refine(",
    "stage 2: refinements and matchings": "manymatch::RelativePoseProblem::Model "
    "manymatch::select_by_matching<",
    "tables of the score": "manymatch::HcmTerms::HcmTerms(",
    "resolved matching": "manymatch::cheapest_maximum_matching(",
}


# Task of the driver: how often it runs, what one of them is.
UNITS = {
    "five-point": (2048, "five-point solve"),
    "hcm-evaluation": (4000, "HCM evaluation"),
    "refine": (200, "refinement"),
}


def instructions(driver: Path, iterations: int) -> dict[str, float]:
    """Count instructions per iteration of every part; a part that was inlined is missing."""
    functions = callgrind.count_by_function(driver, "hcm-mcm", iterations, "avx2")
    parts = {}
    for part, beginning in PARTS.items():
        found = [n for name, n in functions.items() if name.startswith(beginning)]
        if found:
            parts[part] = max(found) / iterations
    return parts


def operations(driver: Path) -> dict[str, dict[str, float]]:
    """Per unit of work: instructions that compute, and floating-point operations."""
    found = {}
    for task, (times, unit) in UNITS.items():
        computing, total = callgrind.count_operations(driver, task, times, "avx2")
        whole = callgrind.count(driver, task, times, "avx2")
        found[unit] = {
            "instructions": whole / times,
            "computing": computing / times,
            "operations": total / times,
        }
    return found


def nanoseconds(iterations: int, isa: str, repeats: int) -> dict[str, float]:
    """Time every stage per iteration on one instruction set, from the fastest of some runs."""
    problem = synthetic_problem(0.1, seed=0)
    options = manymatch.Options(min_iterations=iterations, max_iterations=iterations)
    _core.force_instruction_set(isa)
    runs = [
        manymatch.estimate_relative_pose(
            problem.graph, problem.camera0, problem.camera1, "hcm-mcm", options
        ).timing
        for _ in range(repeats)
    ]
    _core.force_instruction_set(None)
    best = min(runs, key=lambda timing: timing["total"])
    return {stage: 1e9 * seconds / iterations for stage, seconds in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=20_000, help="forced iterations")
    parser.add_argument("--repeats", type=int, default=7, help="timed runs, of which the best")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder of results")
    arguments = parser.parse_args()
    times = {
        isa: nanoseconds(arguments.iterations, isa, arguments.repeats)
        for isa in _core.instruction_sets()
    }
    tables = {
        "Nanoseconds per iteration by stage, one thread.": (
            ["stage", *times],
            [[s, *(f"{times[isa][s]:.1f}" for isa in times)] for s in next(iter(times.values()))],
        )
    }
    content: dict[str, object] = {"iterations": arguments.iterations, "nanoseconds": times}
    console = Console()
    try:
        driver = build.driver()
        counts = instructions(driver, arguments.iterations)
        work = operations(driver)
    except build.UnavailableError as error:
        console.print(str(error), markup=False)
    else:
        content |= {"instructions": counts, "work": work}
        whole = counts["everything"]
        tables["Instructions per iteration by part, AVX2."] = (
            ["part", "instructions", "share"],
            [[part, f"{n:,.0f}", f"{100 * n / whole:.1f} %"] for part, n in counts.items()],
        )
        tables["Work of one unit, AVX2."] = (
            ["unit", "instructions", "of them computing", "floating-point operations"],
            [[unit, *(f"{n:,.0f}" for n in numbers.values())] for unit, numbers in work.items()],
        )
    for caption, table in tables.items():
        report.show(console, caption.rstrip("."), *table)
    report.write_json(arguments.out / "breakdown.json", content)
    report.write_markdown(arguments.out / "breakdown.md", "Where the time goes", tables)


if __name__ == "__main__":
    main()
