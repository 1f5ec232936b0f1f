"""``manymatch experiment calibration``: probabilities of matches against what is true."""

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
from manymatch_paper.experiments import calibration as experiment

EXAMPLE = "Example: manymatch experiment calibration synthetic:easy synthetic:ordering --out out/calibration"


def calibration(
    sets: common.Sets,
    preset: shared.Presets = None,
    root: common.Root = None,
    seeds: common.Seeds = 1,
    min_iterations: shared.MinIterations = 1_000,
    max_iterations: shared.MaxIterations = 100_000,
    truth_px: Annotated[
        float,
        typer.Option(
            help="A match is true if its Sampson distance under the true pose is below this, in "
            "pixels at working size; made scenes know their true matches."
        ),
    ] = 3.0,
    bins: Annotated[int, typer.Option(help="Bins of the probability.", min=1)] = 10,
    tuned_on: Annotated[
        list[str] | None,
        typer.Option(
            "--tuned-on",
            help="A set that the probabilities were fitted on; may be repeated. What is pooled is "
            "then also given over these and over the others.",
            show_default=False,
        ),
    ] = None,
    longest0: common.Longest0 = None,
    longest1: common.Longest1 = None,
    limit: common.Limit = None,
    workers: common.Workers = 0,
    out_folder: Annotated[
        Path,
        typer.Option("--out", help="Folder of the results; a run that was stopped goes on there."),
    ] = Path("out/calibration"),
    as_json: common.Json = False,
    device: flags.Device = "auto",
    offline: flags.Offline = False,
    cache: flags.Cache = None,
) -> None:
    """Compare the match probabilities of "auto" with what is true: reliability diagram, ECE.

    Several presets, or folders of graphs by representation, become one panel each. The same
    command goes on after an interruption; another threshold of the truth or number of bins needs
    no new run.
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
            longest=(longest0, longest1),
        )
        with Tracker() as tracker:
            data = experiment.run(
                sources,
                out_folder,
                seeds=seeds,
                min_iterations=min(min_iterations, max_iterations),
                max_iterations=max_iterations,
                truth_px=truth_px,
                bins=bins,
                tuned_on=tuned_on or (),
                limit=limit,
                workers=workers,
                progress=tracker,
                missing=missing,
            )
        finish("calibration", data, out_folder, as_json=as_json)
