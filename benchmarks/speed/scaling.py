"""Time the estimators against the number of edges: they are linear in it.

    python benchmarks/speed/scaling.py [--iterations 20000] [--out out/bench]

Synthetic graphs of 1,000 to 10,000 edges, a tenth of them true, with a forced number of iterations
on one thread; the minimum of interleaved runs counts. Two fits: a straight line, and a power law
whose exponent is 1 where all the time grows with the edges and below where a part does not (the
five-point solver). Writes ``scaling.json``, ``scaling.md`` and ``scaling.png``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.speed import plots, report
from benchmarks.speed.estimators import METHODS, Contestant, ours, race, theirs
from benchmarks.speed.problems import synthetic_problem
from manymatch_lab.evaluate.estimators import estimate_with_poselib

NUM_EDGES = (1000, 1500, 2000, 3000, 4000, 5000, 7000, 10000)
INLIER_RATIO = 0.1


def fits(edges: np.ndarray, milliseconds: np.ndarray) -> dict[str, float]:
    """Line ``a + b E`` and power law ``factor E^exponent`` through the times."""
    slope, offset = np.polyfit(edges, milliseconds, 1)
    exponent, logarithm = np.polyfit(np.log(edges), np.log(milliseconds), 1)
    deviation = np.abs(offset + slope * edges - milliseconds) / milliseconds
    return {
        "milliseconds_at_0": float(offset),
        "milliseconds_per_1000": float(1e3 * slope),
        "largest_deviation_from_line": float(deviation.max()),
        "exponent": float(exponent),
        "factor": float(np.exp(logarithm)),
    }


def record(entry: Contestant, names: list[str], edges: list[int]) -> dict[str, Any]:
    """Put together the times of one estimator and their fits."""
    milliseconds = [1e3 * entry.seconds[name] for name in names]
    return {
        "name": entry.name,
        "milliseconds": milliseconds,
        **fits(np.array(edges, dtype=float), np.array(milliseconds)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=20_000, help="forced iterations")
    parser.add_argument("--repeats", type=int, default=5, help="interleaved repetitions")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder of results")
    arguments = parser.parse_args()
    count = arguments.iterations
    forced = manymatch.Options(min_iterations=count, max_iterations=count)
    entries = [
        *(ours(method, forced) for method in METHODS),
        theirs("PoseLib CM", estimate_with_poselib, forced, slow=True),
    ]
    # One seed, so that all have the same pose and the same number of solutions.
    problems = [synthetic_problem(INLIER_RATIO, seed=1, num_edges=n) for n in NUM_EDGES]
    race(entries, problems, arguments.repeats, lambda _: None)
    edges = [len(problem.graph) for problem in problems]
    records = [record(entry, [p.name for p in problems], edges) for entry in entries]
    header = ["estimator", *(f"{n:,}" for n in edges), "line", "off the line", "exponent"]
    rows = [
        [
            r["name"],
            *(f"{ms:.0f}" for ms in r["milliseconds"]),
            f"{r['milliseconds_at_0']:.0f} + {r['milliseconds_per_1000']:.1f} E/1000",
            f"{100 * r['largest_deviation_from_line']:.0f} %",
            f"{r['exponent']:.2f}",
        ]
        for r in records
    ]
    caption = f"Milliseconds for {count:,} iterations by number of edges, one thread."
    report.show(Console(), caption.rstrip("."), header, rows)
    content = {"iterations": count, "edges": edges, "estimators": records}
    report.write_json(arguments.out / "scaling.json", content)
    report.write_markdown(arguments.out / "scaling.md", "Scaling", {caption: (header, rows)})
    plots.scaling(arguments.out / "scaling.png", edges, records)


if __name__ == "__main__":
    main()
