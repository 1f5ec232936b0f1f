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
            "stages_milliseconds": {
                name: {stage: 1e3 * seconds for stage, seconds in stages.items()}
                for name, stages in entry.stages.items()
            },
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


def rows_by_graph(values: dict[str, dict[str, float]]) -> list[list[str]]:
    """Table cells of a quantity a row, one column a graph."""
    lines = next(iter(values.values()))
    return [[name, *(f"{column[name]:.2f}" for column in values.values())] for name in lines]


def stage_shares(record: dict[str, Any]) -> dict[str, dict[str, float]]:
    """By graph, the milliseconds of every stage and what refinement costs beside the search."""
    shares = {}
    for name, stages in record["stages_milliseconds"].items():
        refinement = stages["local_refine"] + stages["select"]
        shares[name] = {**stages, "(local_refine + select) / search": refinement / stages["search"]}
    return shares


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


def machine(about: dict[str, Any]) -> str:
    """Machine and versions in one line."""
    return ", ".join(f"{key} {value}" for key, value in about.items())


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write results with the machine they come from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"environment": environment(), **content}, indent=1) + "\n")


def write_markdown(
    path: Path, title: str, tables: dict[str, tuple[list[str], list[list[str]]]]
) -> None:
    """Write tables under their captions, below a title and the machine."""
    parts = [f"# {title}", f"{machine(environment())}."]
    parts += [f"{caption}\n\n{markdown(*table)}" for caption, table in tables.items()]
    path.write_text("\n\n".join(parts) + "\n")
