"""What the accuracy benchmarks share: the budget, the tables and where the data is."""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.progress import Progress

import manymatch
from manymatch_lab.evaluate.run import run_set
from manymatch_lab.evaluate.statistics import auc_by_seed
from manymatch_lab.evaluate.tables import Table
from tests.support.data_folder import data_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from manymatch.batch.parts import RunProgress
    from manymatch_lab.evaluate.inputs import GraphReader
    from manymatch_lab.evaluate.run import RunConfig, RunResult

OPTIONS = manymatch.Options(threshold_px=1.0, min_iterations=1_000, max_iterations=20_000)


def arguments(description: str) -> argparse.ArgumentParser:
    """Make a parser with the flags that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=Path("out/accuracy"), help="folder of results")
    parser.add_argument("--seeds", type=int, default=5, help="repetitions")
    return parser


def reference_data(part: str) -> Path | None:
    """Return a folder of the reference data; None, with a line that says so, where it is not."""
    data = data_folder()
    if data is not None and (data / part).is_dir():
        return data / part
    sys.stdout.write(f"{part}: not here, set MANYMATCH_DATA to the folder that has it\n")
    return None


def run(
    sources: Sequence[GraphReader],
    configs: Mapping[str, RunConfig],
    folder: Path,
    seeds: int,
    limit: int | None = None,
) -> dict[str, list[RunResult]]:
    """Run what is missing of all configurations on all sets; results by configuration."""
    named = {re.sub(r"[^\w.-]+", "_", name): config for name, config in configs.items()}
    repeated = {n: dataclasses.replace(config, seeds=seeds) for n, config in named.items()}
    found = []
    with Progress(transient=True) as display:
        for source in sources:
            label = f"{source.representation}, {source.name}"
            task = display.add_task(label, total=len(source))

            def show(state: RunProgress, task: int = task) -> None:
                display.update(task, completed=state.finished, total=state.total)

            place = folder / source.representation / source.name
            found.append(run_set(source, repeated, place, limit=limit, progress=show))
    return {
        name: [of_set[key] for of_set in found] for name, key in zip(configs, named, strict=True)
    }


def auc_text(by_seed: np.ndarray) -> str:
    """Mean AUC over seeds (seeds, thresholds), with the standard deviation between them."""
    means = by_seed.mean(axis=0)
    if len(by_seed) == 1:
        return " / ".join(f"{mean:.1f}" for mean in means)
    deviations = by_seed.std(axis=0, ddof=1)
    return " / ".join(f"{m:.1f} ± {s:.1f}" for m, s in zip(means, deviations, strict=True))


def auc_table(title: str, rows: Mapping[str, Sequence[RunResult]], sets: Sequence[str]) -> Table:
    """Put pose AUC@5/10/20 in a table: a line a method, the macro average, then every set."""
    lines = []
    for name, runs in rows.items():
        by_set = [auc_by_seed(run.errors) for run in runs]
        lines.append([name, *map(auc_text, [np.mean(by_set, axis=0), *by_set])])
    return Table(title, ["method", "macro average", *sets], lines, [])


def write(folder: Path, name: str, tables: Sequence[Table]) -> None:
    """Print tables and write them as Markdown."""
    text = "\n\n".join(table.markdown() for table in tables) + "\n"
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
