"""``manymatch experiment q1``: what more candidates are worth with fixed proposals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manymatch.cli import _matcher_flags as flags
from manymatch.cli import evaluate as common
from manymatch.cli._console import clean_exit
from manymatch.cli._progress import Tracker
from manymatch_paper.cli import _pose_experiment as shared
from manymatch_paper.cli._experiment_end import finish
from manymatch_paper.experiments import q1 as experiment

EXAMPLE = (
    "Example: manymatch experiment q1 synthetic:ordering --iterations 2000 --seeds 2 --out out/q1"
)


def q1(
    sets: common.Sets,
    preset: shared.Presets = None,
    root: common.Root = None,
    k: Annotated[int, typer.Option("--k", help="Largest number of candidates.", min=1)] = 5,
    seeds: common.Seeds = 5,
    iterations: Annotated[
        int, typer.Option(help="Samples, neither more nor fewer.", min=1)
    ] = 100_000,
    limit: common.Limit = None,
    workers: common.Workers = 0,
    out_folder: Annotated[
        Path,
        typer.Option("--out", help="Folder of the results; a run that was stopped goes on there."),
    ] = Path("out/q1"),
    as_json: common.Json = False,
    device: flags.Device = "auto",
    offline: flags.Offline = False,
    cache: flags.Cache = None,
) -> None:
    """Sweep K with minimal samples from rank-one candidates only, and probe the true pose.

    The same command goes on after an interruption.
    """
    with clean_exit():
        sources, missing = shared.open_sets(
            sets,
            preset,
            root=root,
            k=k,
            device=device,
            offline=offline,
            cache=cache,
            quiet=as_json,
        )
        with Tracker() as tracker:
            data = experiment.run(
                sources,
                out_folder,
                k=k,
                seeds=seeds,
                iterations=iterations,
                limit=limit,
                workers=workers,
                progress=tracker,
                missing=missing,
            )
        finish("q1", data, out_folder, as_json=as_json)
