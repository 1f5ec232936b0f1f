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
from manymatch_lab.evaluate.inputs import open_graphs
from manymatch_lab.evaluate.run import run_set
from manymatch_lab.evaluate.statistics import auc_by_seed
from manymatch_lab.evaluate.tables import Table
from tests.support.data_folder import data_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from manymatch import MatcherConfig
    from manymatch._validate import FloatArray
    from manymatch.batch.parts import RunProgress
    from manymatch_lab.evaluate.inputs import GraphReader
    from manymatch_lab.evaluate.run import RunConfig, RunResult

# Its thermal frames are small and stay as they are.
THERMAL = "metu_vistir_pseudo"
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


def posed_sets(folder: Path, wanted: Sequence[str] | None = None) -> list[str]:
    """Return the names of all sets of posed pairs in a folder, or of those that are wanted."""
    present = sorted(path.name for path in folder.iterdir() if (path / "pairs.txt").is_file())
    return [name for name in present if name in (wanted or present)]


def open_sets(
    folder: Path, sets: Sequence[str], config: MatcherConfig, cache: Path
) -> list[GraphReader]:
    """Open sets of posed pairs with the features of a configuration, which are kept in `cache`."""
    return [
        reader
        for name in sets
        for reader in open_graphs(
            [str(folder / name)],
            [config],
            cache=cache,
            longest=(None, 0 if name == THERMAL else None),
        )
    ]


def left_out(errors: Mapping[str, Sequence[FloatArray]], sets: Sequence[str]) -> Table:
    """Let all other sets choose among systems by their mean AUC, and judge the choice on each set.

    `errors` (seeds, pairs) in degrees are by system and set.
    """
    scores = {name: np.array([auc_by_seed(e).mean(0) for e in own]) for name, own in errors.items()}
    first, lines = next(iter(scores)), []
    for place, name in enumerate(sets):
        chosen = max(scores, key=lambda system: np.delete(scores[system], place, 0).mean())
        pair = (scores[system][place] for system in (chosen, first))
        lines.append([name, chosen, *(" / ".join(f"{v:.1f}" for v in auc) for auc in pair)])
    header = ["left out", "chosen by the other sets", "AUC@5/10/20 there", f"{first} there"]
    return Table("One set left out", header, lines, [])


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
