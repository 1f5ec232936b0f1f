"""``manymatch experiment teaser``: true matches below rank one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manymatch.cli import _matcher_flags as flags
from manymatch.cli._console import OK, clean_exit, working
from manymatch_paper.cli import _dense_flags as dense
from manymatch_paper.cli._experiment_end import finish
from manymatch_paper.experiments import teaser as experiment
from manymatch_paper.experiments._dense_pairs import Choice, PatchSource

EXAMPLE = (
    "Example: manymatch experiment teaser made-street --backbone efficientnet-lite0 --layer 10 "
    "--debias 0 --tau 30"
)


def teaser(
    data_set: dense.OneSet,
    root: dense.Root = None,
    pair: Annotated[int, typer.Option(help="Number of the pair, from 0.", min=0)] = 0,
    backbone: Annotated[
        str, typer.Option(help="A name of manymatch models, hf:<id> or timm:<model>.")
    ] = "dinov3-vitl16",
    layer: Annotated[int, typer.Option(help="Block, from 1.", min=1)] = 19,
    debias: Annotated[int, typer.Option(help="Rank to remove; 0 for none.", min=0)] = 200,
    k: Annotated[int, typer.Option(help="Candidates a patch.", min=2)] = 5,
    tau: Annotated[
        float, typer.Option(help="With depth: distance in cm below which a match is true.")
    ] = 5.0,
    tau_px: Annotated[
        float, typer.Option(help="Without: distance in pixels from the true epipolar lines.")
    ] = 4.0,
    lines: Annotated[int, typer.Option(help="Matches to draw.", min=1)] = 8,
    longest: dense.Longest = 1024,
    norm: Annotated[bool, typer.Option(help="Apply the network's final norm.")] = True,
    probe: dense.Probe = "black",
    weights: dense.Weights = None,
    out_folder: Annotated[Path, typer.Option("--out", help="Folder of the results.")] = Path(
        "out/teaser"
    ),
    as_json: dense.Json = False,
    device: flags.Device = "auto",
    offline: flags.Offline = False,
) -> None:
    """Draw true matches that are not nearest neighbours, and the wrong ones that are."""
    with clean_exit():
        with working("Computing", quiet=as_json):
            source = PatchSource(
                Choice(backbone, (layer,), (debias,)),
                longest=longest,
                norm=norm,
                probe=probe,
                weights=weights,
                device=device,
                offline=offline,
            )
            dataset = dense.opened_one(data_set, root, out_folder)
            data = experiment.run(
                dataset, pair, source, k=k, tau_cm=tau, tau_px=tau_px, count=lines
            )
        finish("teaser", data, out_folder, as_json=as_json)
    raise typer.Exit(OK)
