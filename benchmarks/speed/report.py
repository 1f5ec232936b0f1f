"""The benchmark's numbers as a table on the screen, as JSON and as Markdown."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

import manymatch
from benchmarks.speed.estimators import POSELIB
from manymatch import _core

if TYPE_CHECKING:
    from rich.console import Console

    from benchmarks.speed.estimators import Contestant

PACKAGES = ("numpy", "poselib", "opencv-python-headless", "pycolmap")


def environment() -> dict[str, Any]:
    """Machine and versions."""
    return {
        "processor": processor_name(),
        "instruction_set": _core.instruction_set(),
        "python": platform.python_version(),
        "manymatch": manymatch.__version__,
        **{name: installed(name) for name in PACKAGES},
    }


def processor_name() -> str:
    """Name of the processor, where the system tells."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def installed(package: str) -> str:
    """Version of a package, or a dash."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "-"


def summarise(entries: list[Contestant], names: list[str]) -> list[dict[str, Any]]:
    """One record a contestant: milliseconds by graph and the mean ratio to PoseLib CM."""
    reference = next(entry for entry in entries if entry.name == POSELIB).seconds
    return [
        {
            "name": entry.name,
            "threads": entry.threads,
            "milliseconds": {name: 1e3 * entry.seconds[name] for name in names},
            "error_deg": {name: entry.error_deg[name] for name in names},
            "ratio_to_poselib": float(
                np.exp(np.mean([np.log(entry.seconds[n] / reference[n]) for n in names]))
            ),
        }
        for entry in entries
    ]


def estimator_rows(records: list[dict[str, Any]], names: list[str]) -> list[list[str]]:
    """Table cells of the estimators."""
    return [
        [
            record["name"],
            str(record["threads"]),
            *(f"{record['milliseconds'][name]:.0f}" for name in names),
            f"{record['ratio_to_poselib']:.2f}",
        ]
        for record in records
    ]


def kernel_rows(kernels: dict[str, dict[str, float]]) -> list[list[str]]:
    """Table cells of the kernels, one column a graph."""
    lines = next(iter(kernels.values()))
    return [[name, *(f"{times[name]:.2f}" for times in kernels.values())] for name in lines]


def show(console: Console, title: str, header: list[str], rows: list[list[str]]) -> None:
    """Print a table."""
    table = Table(title=title)
    for k, column in enumerate(header):
        table.add_column(column, justify="left" if k == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Write a table as Markdown, numbers to the right."""
    rule = [":---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *rows])


def write(
    console: Console,
    folder: Path,
    iterations: int,
    entries: list[Contestant],
    names: list[str],
    kernels: dict[str, dict[str, float]],
) -> None:
    """Print both tables and write ``speed.json`` and ``speed.md``."""
    records = summarise(entries, names)
    about = environment()
    title = f"milliseconds for {iterations:,} forced iterations, minimum of interleaved runs"
    first = (
        ["estimator", "threads", *names, "ratio to PoseLib CM"],
        estimator_rows(records, names),
    )
    second = (["kernel", *kernels], kernel_rows(kernels))
    show(console, title, *first)
    show(console, "microseconds per call, one thread", *second)
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "environment": about,
        "iterations": iterations,
        "estimators": records,
        "kernels_microseconds": kernels,
    }
    (folder / "speed.json").write_text(json.dumps(content, indent=1))
    machine = ", ".join(f"{key} {value}" for key, value in about.items())
    text = f"# Speed\n\n{machine}.\n\nTime: {title}.\n\n{markdown(*first)}\n\n"
    (folder / "speed.md").write_text(
        text + f"Kernels: microseconds per call, one thread.\n\n{markdown(*second)}\n"
    )
