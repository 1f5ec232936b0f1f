"""``manymatch experiment qualitative``: layers and debias ranks as colours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manymatch.cli import _matcher_flags as flags
from manymatch.cli._console import OK, clean_exit, working
from manymatch_paper.cli import _dense_flags as dense
from manymatch_paper.cli._experiment_end import finish
from manymatch_paper.experiments import qualitative as experiment
from manymatch_paper.experiments._dense_pairs import Choice, PatchSource

EXAMPLE = (
    "Example: manymatch experiment qualitative made-street --pair 0 --pair 1 --backbone "
    "efficientnet-lite0 --layer 10 --against 7 --debias 10"
)


def qualitative(
    data_set: dense.OneSet,
    root: dense.Root = None,
    pair: Annotated[
        list[int] | None,
        typer.Option(help="Number of a pair, from 0; may be repeated.", show_default="0"),
    ] = None,
    backbone: Annotated[
        str, typer.Option(help="A name of manymatch models, hf:<id> or timm:<model>.")
    ] = "dinov3-vitl16",
    layer: Annotated[int, typer.Option(help="The selected block, from 1.", min=1)] = 19,
    against: Annotated[int, typer.Option(help="The block to compare with it.", min=1)] = 24,
    debias: Annotated[int, typer.Option(help="Rank to compare with none.", min=1)] = 200,
    longest: dense.Longest = 1024,
    norm: Annotated[bool, typer.Option(help="Apply the network's final norm.")] = True,
    probe: dense.Probe = "black",
    weights: dense.Weights = None,
    out_folder: Annotated[Path, typer.Option("--out", help="Folder of the results.")] = Path(
        "out/qualitative"
    ),
    as_json: dense.Json = False,
    device: flags.Device = "auto",
    offline: flags.Offline = False,
) -> None:
    """Colour pairs of images by one PCA of their features: two layers, then two debias ranks."""
    with clean_exit():
        with working("Computing", quiet=as_json):
            source = PatchSource(
                Choice(backbone, tuple(sorted({layer, against})), (0, debias)),
                longest=longest,
                norm=norm,
                probe=probe,
                weights=weights,
                device=device,
                offline=offline,
            )
            dataset = dense.opened_one(data_set, root, out_folder)
            data = experiment.run(
                dataset, pair or [0], source, layer=layer, against=against, rank=debias
            )
        finish("qualitative", data, out_folder, as_json=as_json)
    raise typer.Exit(OK)
