"""What all commands share: where they print and how they end."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Iterator

OK, UNSOLVED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def out() -> Console:
    """Console for people, on standard output."""
    return Console(highlight=False)


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
    except KeyboardInterrupt:
        say_error("stopped.")
        raise typer.Exit(INTERRUPTED) from None
