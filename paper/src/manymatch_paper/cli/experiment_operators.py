"""``manymatch experiment operators``: mutual, one-way or union association."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manymatch.cli import _matcher_flags as flags
from manymatch.cli._console import OK, clean_exit, working
from manymatch_paper.cli import _dense_flags as dense
from manymatch_paper.cli._experiment_end import finish
from manymatch_paper.experiments import operators as experiment
from manymatch_paper.experiments._dense_pairs import Choice, PatchSource

EXAMPLE = (
    "Example: manymatch experiment operators made-street --backbone efficientnet-lite0 --layer 10 "
    "--debias 0 --tau 10,20,50 --bins 0,20,40 --limit 4"
)
# What the paper fixed.
_BACKBONE, _LAYER, _RANK = "dinov3-vitl16", 19, 200


def operators(
    sets: dense.Sets,
    root: dense.Root = None,
    backbone: Annotated[
        str, typer.Option(help="A name of manymatch models, hf:<id> or timm:<model>.")
    ] = _BACKBONE,
    layer: Annotated[
        int | None,
        typer.Option(
            help="Block, from 1; by default the paper's, or the last one.",
            min=1,
            show_default=False,
        ),
    ] = None,
    debias: Annotated[
        int | None,
        typer.Option(
            help="Rank of the positional subspace to remove; by default the paper's, or 0.",
            min=0,
            show_default=False,
        ),
    ] = None,
    k: Annotated[int, typer.Option(help="Largest number of candidates K.", min=1)] = 16,
    bins: dense.Bins = "0,40,80,120",
    tau: dense.Taus = "1,2,5",
    longest: dense.Longest = 1024,
    norm: Annotated[bool, typer.Option(help="Apply the network's final norm.")] = True,
    probe: dense.Probe = "black",
    weights: dense.Weights = None,
    limit: dense.Limit = None,
    out_folder: Annotated[
        Path,
        typer.Option("--out", help="Folder of the results; a run that was stopped goes on there."),
    ] = Path("out/operators"),
    as_json: dense.Json = False,
    device: flags.Device = "auto",
    offline: flags.Offline = False,
) -> None:
    """Compare mutual, one-way and union K-nearest neighbours: recall against association count."""
    with clean_exit():
        bounds = dense.real_numbers(bins, "--bins")
        taus = dense.real_numbers(tau, "--tau")
        papers = backbone == _BACKBONE
        block = _LAYER if layer is None and papers else layer
        rank = (_RANK if papers else 0) if debias is None else debias
        with working("Opening the sets", quiet=as_json):
            source = PatchSource(
                Choice(backbone, None if block is None else (block,), (rank,)),
                longest=longest,
                norm=norm,
                probe=probe,
                weights=weights,
                device=device,
                offline=offline,
            )
            opened = dense.opened(sets, root, out_folder)
        with dense.PairProgress() as progress:
            data = experiment.run(
                opened,
                source,
                out_folder,
                k=k,
                bins=bounds,
                taus_cm=taus,
                limit=limit,
                progress=progress,
            )
        finish("operators", data, out_folder, as_json=as_json)
    raise typer.Exit(OK)
