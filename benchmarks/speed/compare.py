"""Say what got slower since the committed baseline.

    python benchmarks/speed/compare.py [--speed out/bench/speed.json] [--renew]

Two kinds of numbers. Instructions of fixed work, counted by valgrind: they hardly move with the
machine's load, so that two percent more is a fact, but they depend on the compiler. And ratios of
clock times within one run of ``benchmarks/speed/run.py``, where that has written its file: they
include what instructions do not tell, and a quarter more is needed to say anything. Exit code 1 if
something got slower. ``--renew`` writes ``baseline.json`` instead.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.speed import build, callgrind, report

BASELINE = Path(__file__).with_name("baseline.json")
# Task of the driver: how often the work is done.
TASKS = {
    "auto": 2000,
    "hcm-mcm": 2000,
    "hcm": 2000,
    "mcm": 2000,
    "cm": 2000,
    "five-point": 2048,
    "hcm-evaluation": 4000,
    "mcm-evaluation": 4000,
    "plain-hcm-evaluation": 500,
    "refine": 200,
    "gms": 2,
    "neighbours": 5,
}
INSTRUCTION_SETS = ("avx2", "baseline")
INSTRUCTIONS_TOLERANCE, CLOCK_TOLERANCE = 0.02, 0.25


def count_all() -> dict[str, float]:
    """Instructions of one unit of every task on every path."""
    driver = build.driver()
    return {
        f"{task}, {isa}": callgrind.count(driver, task, times, isa) / times
        for isa in INSTRUCTION_SETS
        for task, times in TASKS.items()
    }


def clock_ratios(speed: dict[str, Any]) -> dict[str, float]:
    """Ratios of clock times in the file of ``run.py``: estimators to PoseLib, kernels to others."""
    ratios = {
        f"{r['name']}, {r['threads']} threads, to PoseLib CM": r["ratio_to_poselib"]
        for r in speed["estimators"]
        if r["stages_milliseconds"]
    }
    columns = list(speed["kernel_ratios"].values())
    ratios |= {
        name: float(np.exp(np.mean([np.log(column[name]) for column in columns])))
        for name in columns[0]
    }
    return ratios


def verdicts(
    before: dict[str, float], now: dict[str, float], tolerance: float
) -> list[tuple[str, float, float, str]]:
    """For all that both have: name, before, now and "slower", "faster" or "same"."""
    rows = []
    for name in before.keys() & now.keys():
        change = now[name] / before[name] - 1.0
        word = "slower" if change > tolerance else "faster" if change < -tolerance else "same"
        rows.append((name, before[name], now[name], word))
    order = list(before)
    return sorted(rows, key=lambda row: order.index(row[0]))


def show(console: Console, title: str, rows: list[tuple[str, float, float, str]]) -> None:
    """Print a comparison."""
    cells = [
        [name, f"{old:,.6g}", f"{new:,.6g}", f"{100 * (new / old - 1):+.1f} %", word]
        for name, old, new, word in rows
    ]
    report.show(console, title, ["", "baseline", "now", "change", ""], cells)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--speed", type=Path, default=Path("out/bench/speed.json"))
    parser.add_argument("--renew", action="store_true", help="write the baseline")
    arguments = parser.parse_args()
    console = Console(width=max(100, Console().width))
    now: dict[str, Any] = {"environment": report.environment()}
    try:
        now |= {"instructions": count_all(), "compiler": callgrind.compiler()}
    except build.UnavailableError as error:
        console.print(str(error), markup=False)
    if arguments.speed.is_file():
        now["ratios"] = clock_ratios(json.loads(arguments.speed.read_text()))
    else:
        console.print(f"No {arguments.speed}: run benchmarks/speed/run.py to compare the clock.")
    if arguments.renew:
        old = json.loads(BASELINE.read_text()) if BASELINE.is_file() else {}
        BASELINE.write_text(json.dumps(old | now, indent=1) + "\n")
        return 0
    before = json.loads(BASELINE.read_text())
    slower = []
    for key, title, tolerance in (
        ("instructions", "Instructions of one unit of work", INSTRUCTIONS_TOLERANCE),
        ("ratios", "Ratios of clock times", CLOCK_TOLERANCE),
    ):
        if key in now and key in before:
            rows = verdicts(before[key], now[key], tolerance)
            show(console, title, rows)
            slower += [name for name, *_, word in rows if word == "slower"]
    if now.get("compiler", before["compiler"]) != before["compiler"]:
        console.print(
            f"The baseline's instructions come from another compiler: {before['compiler']}"
        )
    console.print(f"Slower: {'; '.join(slower)}" if slower else "Nothing got slower.", markup=False)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
