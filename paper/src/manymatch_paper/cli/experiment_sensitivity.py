"""``manymatch experiment sensitivity``: how much q and delta matter."""

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
from manymatch_paper.experiments import sensitivity as experiment

EXAMPLE = (
    "Example: manymatch experiment sensitivity synthetic:ordering --iterations 5000 --limit 20"
)


def sensitivity(
    sets: common.Sets,
    preset: shared.Presets = None,
    root: common.Root = None,
    seeds: common.Seeds = 1,
    min_iterations: shared.MinIterations = 1_000,
    max_iterations: shared.MaxIterations = 100_000,
    gms: shared.Gms = True,
    limit: common.Limit = None,
    workers: common.Workers = 0,
    out_folder: Annotated[
        Path,
        typer.Option("--out", help="Folder of the results; a run that was stopped goes on there."),
    ] = Path("out/sensitivity"),
    as_json: common.Json = False,
    device: flags.Device = "auto",
    offline: flags.Offline = False,
    cache: flags.Cache = None,
) -> None:
    """Sweep q and delta of HCM and of the two-stage estimator, with MCM as the reference.

    The same command goes on after an interruption.
    """
    with clean_exit():
        sources, missing = shared.open_sets(
            sets,
            preset,
            root=root,
            k=5,
            device=device,
            offline=offline,
            cache=cache,
            quiet=as_json,
        )
        with Tracker() as tracker:
            data = experiment.run(
                sources,
                out_folder,
                seeds=seeds,
                min_iterations=min(min_iterations, max_iterations),
                max_iterations=max_iterations,
                gms=gms,
                limit=limit,
                workers=workers,
                progress=tracker,
                missing=missing,
            )
        finish("sensitivity", data, out_folder, as_json=as_json)
