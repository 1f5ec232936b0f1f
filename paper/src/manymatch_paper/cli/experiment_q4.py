"""``manymatch experiment q4``: complete systems on the same pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manymatch.cli import _matcher_flags as flags  # noqa: TC001 - Typer reads the annotations
from manymatch.cli import evaluate as common  # noqa: TC001 - Typer reads the annotations
from manymatch.cli._console import clean_exit, working
from manymatch.cli._progress import Tracker
from manymatch.evaluate.sources import open_datasets
from manymatch.matcher.matcher import Matcher
from manymatch.viz import require_matplotlib
from manymatch_paper.cli import (
    _pose_experiment as shared,  # noqa: TC001 - Typer reads the annotations
)
from manymatch_paper.cli._experiment_end import finish
from manymatch_paper.experiments import q4 as experiment
from manymatch_paper.systems import SYSTEMS, load_system

EXAMPLE = (
    "Example: manymatch experiment q4 made-street --system sift-mnn --system aliked-lightglue "
    "--limit 3"
)


def q4(
    sets: Annotated[
        list[str],
        typer.Argument(
            help="Sets of images: data sets by name (see manymatch datasets) or NAME:FOLDER, or "
            "folders with a list of pairs.",
            show_default=False,
        ),
    ],
    system: Annotated[
        list[str] | None,
        typer.Option(
            "--system",
            help=f"One of {', '.join(SYSTEMS)}; may be repeated. By default all of them.",
            show_default=False,
        ),
    ] = None,
    preset: shared.Presets = None,
    root: common.Root = None,
    seeds: common.Seeds = 5,
    min_iterations: shared.MinIterations = 1_000,
    max_iterations: shared.MaxIterations = 100_000,
    longest0: common.Longest0 = None,
    longest1: common.Longest1 = None,
    limit: common.Limit = None,
    workers: common.Workers = 0,
    out_folder: Annotated[
        Path,
        typer.Option("--out", help="Folder of the results; a run that was stopped goes on there."),
    ] = Path("out/q4"),
    as_json: common.Json = False,
    device: flags.Device = "auto",
    offline: flags.Offline = False,
    cache: flags.Cache = None,
) -> None:
    """Compare complete matching systems with preserve-then-resolve, by pose AUC.

    A system whose package or weights are not here has a row that says how to get them. Every pair
    is matched once a system, and the matches are kept; the same command goes on after an
    interruption.
    """
    with clean_exit():
        # Before hours of work, not after.
        require_matplotlib()
        systems = [
            load_system(name, device=device, offline=offline)
            for name in dict.fromkeys(system or SYSTEMS)
        ]
        opened, missing = [], []
        with working("Opening the sets", quiet=as_json):
            for name in sets:
                try:
                    opened += open_datasets(name, root, (longest0, longest1))
                except (ValueError, OSError) as error:
                    missing.append({"set": name, "why": " ".join(str(error).split())})
            if not opened:
                raise ValueError(missing[0]["why"])
            matchers = [
                Matcher(name, device=device, offline=offline, cache=cache)
                for name in (preset or (None,))
            ]
        with Tracker() as tracker:
            data = experiment.run(
                opened,
                systems,
                matchers,
                out_folder,
                seeds=seeds,
                min_iterations=min(min_iterations, max_iterations),
                max_iterations=max_iterations,
                limit=limit,
                workers=workers,
                progress=tracker,
                missing=missing,
            )
        finish("q4", data, out_folder, as_json=as_json)
