"""``manymatch experiment``: the paper's figures and tables, each by one command."""

from __future__ import annotations

import importlib
from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import Annotated

import typer

from manymatch.cli._console import clean_exit, out
from manymatch_paper.experiments.registry import EXPERIMENTS, load_report

EXAMPLE = "Example: manymatch experiment q2 synthetic:ordering --seeds 2 --out out/q2"

app = typer.Typer(
    name="experiment",
    help="Produce the paper's figures and tables from data, with the paper's numbers beside.",
    epilog=EXAMPLE,
    no_args_is_help=True,
)


@app.command("draw", epilog="Example: manymatch experiment draw out/q1/q1.json --out figures")
def draw(
    file: Annotated[Path, typer.Argument(help="JSON that an experiment wrote.")],
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", help="Folder; by default that of the file.", show_default=False),
    ] = None,
) -> None:
    """Make tables and figures again from the JSON of an experiment."""
    with clean_exit():
        folder = file.parent if out_folder is None else out_folder
        for path in load_report(file).write(folder):
            out().print(f"Written: {path}", markup=False, soft_wrap=True)


for _name in EXPERIMENTS:
    _module = importlib.import_module(f"manymatch_paper.cli.experiment_{_name}")
    app.command(_name, epilog=_module.EXAMPLE)(getattr(_module, _name))
