"""The ``manymatch`` command."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from manymatch import __version__, _core
from manymatch.cli import batch, compare, datasets, demo, evaluate, match, models, pca, solve
from manymatch.cli._console import clean_exit, out
from manymatch.features.versions import library_versions

app = typer.Typer(
    name="manymatch",
    help="Keep several candidates per keypoint and let geometry choose among them.",
    epilog="Start with: manymatch demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# In the order in which people meet them.
app.command("demo", epilog=demo.EXAMPLE)(demo.demo)
app.command("match", epilog=match.EXAMPLE)(match.match)
app.command("batch", epilog=batch.EXAMPLE)(batch.batch)
app.command("solve", epilog=solve.EXAMPLE)(solve.solve)
app.command("eval", epilog=evaluate.EXAMPLE)(evaluate.evaluate)
app.command("compare", epilog=compare.EXAMPLE)(compare.compare)
app.command("datasets", epilog=datasets.EXAMPLE)(datasets.datasets)
app.command("models", epilog=models.EXAMPLE)(models.models)
app.command("pca", epilog=pca.EXAMPLE)(pca.pca)


@app.callback(invoke_without_command=True)
def _global(
    version: Annotated[bool, typer.Option("--version", help="Show the version and leave.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --version: also what it runs on.")
    ] = False,
) -> None:
    if not version:
        return
    console = out()
    console.print(f"manymatch {__version__}")
    if verbose:
        for name, number in library_versions().items():
            console.print(f"{name} {number}")
        with clean_exit():  # the environment may ask for a set that is not there
            chosen = _core.instruction_set()
        others = ", ".join(name for name in _core.instruction_sets() if name != chosen)
        console.print(f"instruction set {chosen} (also here: {others or 'none'})")
        console.print(f"cores {os.cpu_count()}")
    raise typer.Exit


def main() -> None:
    """Entry point of the installed command."""
    app()
