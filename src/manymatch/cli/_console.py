"""What all commands share: where they print and how they end."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console

from manymatch.runs.runner import RunInterrupted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from manymatch.evaluate.tables import Table

OK, UNSOLVED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
# Columns of a table that goes to a file or a pipe.
_WIDE = 240


def out() -> Console:
    """Console for people, on standard output."""
    return Console(highlight=False)


def show_table(table: Table) -> None:
    """Print a table and its notes; where there is no terminal, no line is broken."""
    console = out()
    wide = console if console.is_terminal else Console(highlight=False, width=_WIDE)
    wide.print(table.rich())
    for note in table.notes:
        console.print(note, style="dim", markup=False)


def print_json(value: Any) -> None:
    """Print one JSON document for machines, and nothing else, on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def say_error(sentence: str) -> None:
    """One line on standard error."""
    typer.echo(f"manymatch: {' '.join(sentence.split())}", err=True)


@contextlib.contextmanager
def working(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show that something is going on, on terminals only and on standard error."""
    console = Console(stderr=True, quiet=quiet)
    if not console.is_terminal:
        yield
        return
    with console.status(f"{what} ..."):
        yield


@contextlib.contextmanager
def clean_exit() -> Iterator[None]:
    """End with one sentence and an exit code, not with a traceback, where the input is at fault.

    A bad value or file and a package that is not installed are exit code 2, Ctrl-C is 130. Other
    exceptions are programming errors and stay as they are.
    """
    try:
        yield
    except (ValueError, OSError, ModuleNotFoundError) as error:
        say_error(str(error))
        raise typer.Exit(BAD_INPUT) from None
    except RunInterrupted as stop:
        say_error(
            f"stopped with {stop.finished} of {stop.total} pairs finished; the same command goes "
            "on from there."
        )
        if stop.busy:
            end_now(INTERRUPTED)
        raise typer.Exit(INTERRUPTED) from None
    except KeyboardInterrupt:
        say_error("stopped.")
        raise typer.Exit(INTERRUPTED) from None


def end_now(code: int) -> NoReturn:
    """End without waiting for threads; everything worth keeping must be on disk."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
