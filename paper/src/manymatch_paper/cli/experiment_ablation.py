"""``manymatch experiment ablation``: "auto" against the others, and without each ingredient."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manymatch.cli import _matcher_flags as flags
from manymatch.cli import evaluate as common
from manymatch.cli._console import clean_exit
from manymatch.cli._progress import Tracker
from manymatch.estimate.options import AUTO_PARTS
from manymatch_paper.cli import _pose_experiment as shared
from manymatch_paper.cli._experiment_end import finish
from manymatch_paper.experiments import ablation as experiment

EXAMPLE = "Example: manymatch experiment ablation graphs/effnet graphs/sift --tuned-on kitti_vo"


def ablation(
    sets: common.Sets,
    preset: shared.Presets = None,
    root: common.Root = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help=f"Leave out this ingredient only, one of {', '.join(AUTO_PARTS)}; may be "
            "repeated. By default each in turn.",
            show_default=False,
        ),
    ] = None,
    ablations: Annotated[
        bool,
        typer.Option("--ablation/--no-ablation", help="Also run auto without its ingredients."),
    ] = True,
    tuned_on: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a set that was looked at while choosing; may be repeated. Averages are "
            "then also given over these sets and over the others.",
            show_default=False,
        ),
    ] = None,
    seeds: common.Seeds = 5,
    min_iterations: shared.MinIterations = 1_000,
    max_iterations: shared.MaxIterations = 100_000,
    gms: Annotated[
        bool,
        typer.Option(
            "--gms/--no-gms",
            help="Filter the candidates of the two-stage pipeline by grid motion statistics; auto "
            "gets them unfiltered. Made scenes have no surfaces that the filter could use.",
        ),
    ] = True,
    longest0: common.Longest0 = None,
    longest1: common.Longest1 = None,
    limit: common.Limit = None,
    workers: common.Workers = 0,
    out_folder: Annotated[
        Path,
        typer.Option("--out", help="Folder of the results; a run that was stopped goes on there."),
    ] = Path("out/ablation"),
    as_json: common.Json = False,
    device: flags.Device = "auto",
    offline: flags.Offline = False,
    cache: flags.Cache = None,
) -> None:
    """Compare auto with rank-one matching and the two-stage estimator, and leave parts of it out.

    Several presets, or folders of graphs by representation, become one panel each. The same
    command goes on after an interruption.
    """
    with clean_exit():
        if only and not ablations:
            raise ValueError("--only must be absent with --no-ablation")
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
                ingredients=(only or None) if ablations else (),
                tuned_on=tuned_on or (),
                seeds=seeds,
                min_iterations=min(min_iterations, max_iterations),
                max_iterations=max_iterations,
                gms=gms,
                limit=limit,
                workers=workers,
                progress=tracker,
                missing=missing,
            )
        finish("ablation", data, out_folder, as_json=as_json)
