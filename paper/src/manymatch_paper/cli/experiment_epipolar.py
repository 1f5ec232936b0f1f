"""``manymatch experiment epipolar``: false associations that are inliers of the true pose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manymatch.cli import _matcher_flags as flags
from manymatch.cli import evaluate as common
from manymatch.cli._console import clean_exit, working
from manymatch.viz import require_matplotlib
from manymatch_paper.cli import _pose_experiment as shared
from manymatch_paper.cli._dense_flags import PairProgress
from manymatch_paper.cli._experiment_end import finish
from manymatch_paper.experiments import epipolar as experiment

if TYPE_CHECKING:
    from manymatch.evaluate.sources import GraphSource

EXAMPLE = "Example: manymatch experiment epipolar synthetic:ordering --limit 20 --out out/epipolar"


def epipolar(
    sets: Annotated[
        list[str] | None,
        typer.Argument(
            help="Sets on which δ is measured, as manymatch eval takes them; none for the example "
            "alone.",
            show_default=False,
        ),
    ] = None,
    scene: Annotated[int, typer.Option(help="Made street of the example.", min=0)] = 2,
    draws: Annotated[
        int, typer.Option(help="Random pairs of keypoints a pair of images.", min=1)
    ] = 20_000,
    preset: shared.Presets = None,
    root: common.Root = None,
    limit: common.Limit = None,
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder of tables, figure and data.")
    ] = Path("out/epipolar"),
    as_json: common.Json = False,
    device: flags.Device = "auto",
    offline: flags.Offline = False,
    cache: flags.Cache = None,
) -> None:
    """Show a false candidate on an epipolar line, and measure how often that happens (δ)."""
    with clean_exit():
        require_matplotlib()
        sources: list[GraphSource] = []
        missing: list[dict[str, str]] = []
        if sets:
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
        with working("Making the street", quiet=as_json), PairProgress() as progress:
            data = experiment.run(
                sources, seed=scene, draws=draws, limit=limit, progress=progress, missing=missing
            )
        finish("epipolar", data, out_folder, as_json=as_json)
