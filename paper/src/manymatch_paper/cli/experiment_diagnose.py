"""``manymatch experiment diagnose``: what a representation keeps, by layer and debias rank."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manymatch.cli import _matcher_flags as flags
from manymatch.cli._console import OK, clean_exit, working
from manymatch_paper.cli import _dense_flags as dense
from manymatch_paper.cli._experiment_end import finish
from manymatch_paper.experiments import diagnose as experiment
from manymatch_paper.experiments._dense_pairs import Choice, PatchSource, numbers, parsed_choice

EXAMPLE = (
    "Example: manymatch experiment diagnose made-street --backbone efficientnet-lite0:5-10:0,10,40 "
    "--tau 10,20,50 --bins 0,20,40 --limit 4"
)
#: What the paper measured: backbone, layers, ranks.
PAPER = (
    Choice("dinov3-vitl16", tuple(range(16, 25)), tuple(range(0, 601, 100))),
    Choice("dinov2-vitl14-reg", tuple(range(16, 25)), (0,)),
)


def diagnose(
    sets: dense.Sets,
    root: dense.Root = None,
    backbone: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME, NAME:LAYERS or NAME:LAYERS:RANKS, such as dinov3-vitl16:16-24:0,200; may "
            "be repeated. By default what the paper measured: DINOv3 and raw DINOv2.",
            show_default=False,
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            help="Blocks from 1, such as 16-24, of backbones that say none; by default the "
            "paper's, or the last one.",
            show_default=False,
        ),
    ] = None,
    debias: Annotated[
        str | None,
        typer.Option(
            help="Ranks of the positional subspace, such as 0,100,200, of backbones that say "
            "none; by default the paper's, or 0.",
            show_default=False,
        ),
    ] = None,
    k: Annotated[int, typer.Option(help="Largest number of candidates K.", min=1)] = 8,
    bins: dense.Bins = "0,40,80,120",
    tau: dense.Taus = "1,2,5",
    rank: Annotated[
        int | None,
        typer.Option(
            help="Rank at which layers are compared; by default 200, or the one that gains most.",
            min=0,
            show_default=False,
        ),
    ] = None,
    longest: dense.Longest = 1024,
    norm: Annotated[bool, typer.Option(help="Apply the network's final norm.")] = True,
    probe: dense.Probe = "black",
    weights: dense.Weights = None,
    limit: dense.Limit = None,
    out_folder: Annotated[
        Path,
        typer.Option("--out", help="Folder of the results; a run that was stopped goes on there."),
    ] = Path("out/diagnose"),
    as_json: dense.Json = False,
    device: flags.Device = "auto",
    offline: flags.Offline = False,
) -> None:
    """Measure correspondence recall against association count, by layer, debias rank and K.

    Patches of two views are associated by mutual K-nearest neighbours without a cap, and judged by
    depth. The same command goes on after an interruption.
    """
    with clean_exit():
        bounds = dense.real_numbers(bins, "--bins")
        taus = dense.real_numbers(tau, "--tau")
        choices = _choices(backbone, layers, debias)
        if weights is not None and len(choices) > 1:
            raise ValueError("--weights must be left out with several backbones, got it with them")
        with working("Opening the sets", quiet=as_json):
            sources = [
                PatchSource(
                    choice,
                    longest=longest,
                    norm=norm,
                    probe=probe,
                    weights=weights,
                    device=device,
                    offline=offline,
                )
                for choice in choices
            ]
            opened = dense.opened(sets, root, out_folder)
        with dense.PairProgress() as progress:
            data = experiment.run(
                opened,
                sources,
                out_folder,
                k=k,
                bins=bounds,
                taus_cm=taus,
                rank=rank,
                limit=limit,
                progress=progress,
            )
        finish("diagnose", data, out_folder, as_json=as_json)
    raise typer.Exit(OK)


def _choices(backbone: list[str] | None, layers: str | None, debias: str | None) -> list[Choice]:
    """Complete the backbones by the common layers and ranks, then by the paper's."""
    known = {choice.name: choice for choice in PAPER}
    common = (
        None if layers is None else numbers(layers, "--layers"),
        None if debias is None else numbers(debias, "--debias"),
    )
    chosen = list(PAPER) if backbone is None else [parsed_choice(text) for text in backbone]
    if backbone is None and common != (None, None):
        raise ValueError("--backbone must be given with --layers or --debias, got none")
    result = []
    for choice in chosen:
        default = known.get(choice.name, choice)
        result.append(
            Choice(
                choice.name,
                choice.layers or common[0] or default.layers,
                choice.ranks or common[1] or default.ranks,
            )
        )
    return result
