"""``manymatch experiment q2``: CM, HCM, MCM and two-stage on the same graphs."""

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
from manymatch_paper.experiments import q2 as experiment

EXAMPLE = (
    "Example: manymatch experiment q2 synthetic:ordering --iterations 5000 --seeds 2 --out out/q2"
)


def q2(
    sets: common.Sets,
    preset: shared.Presets = None,
    root: common.Root = None,
    seeds: common.Seeds = 5,
    min_iterations: shared.MinIterations = 1_000,
    max_iterations: shared.MaxIterations = 100_000,
    timed_pairs: Annotated[
        int, typer.Option(help="Pairs of a set on which single evaluations are timed.", min=0)
    ] = 20,
    gms: shared.Gms = True,
    limit: common.Limit = None,
    workers: common.Workers = 0,
    out_folder: Annotated[
        Path,
        typer.Option("--out", help="Folder of the results; a run that was stopped goes on there."),
    ] = Path("out/q2"),
    as_json: common.Json = False,
    device: flags.Device = "auto",
    offline: flags.Offline = False,
    cache: flags.Cache = None,
) -> None:
    """Compare CM, HCM, MCM and the two-stage estimator on the same graphs, and their runtimes.

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
                timed_pairs=timed_pairs,
                gms=gms,
                limit=limit,
                workers=workers,
                progress=tracker,
                missing=missing,
            )
        finish("q2", data, out_folder, as_json=as_json)
