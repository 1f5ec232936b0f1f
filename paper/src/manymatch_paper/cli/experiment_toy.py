"""``manymatch experiment toy``: the likelihood of a small graph, enumerated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manymatch.cli._console import clean_exit
from manymatch_paper.cli._experiment_end import finish
from manymatch_paper.experiments.toy import run

EXAMPLE = "Example: manymatch experiment toy --delta 0.001 --out out/toy"


def toy(
    eps: Annotated[float, typer.Option(help="Inlier threshold, in the unit of residuals.")] = 1.0,
    delta: Annotated[
        float, typer.Option(help="Chance that a false candidate is an inlier.")
    ] = 0.01,
    q: Annotated[
        float, typer.Option(help="Probability that the real match is among the candidates.")
    ] = 0.3,
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder of tables, figure and data.")
    ] = Path("out/toy"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Enumerate the configurations of a toy graph: likelihood, its approximation, all scores."""
    with clean_exit():
        finish("toy", run(eps, delta, q), out_folder, as_json=as_json)
