"""What the commands share: where they print, how they show progress and how they end."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from manymatch._environment import out_of_memory
from manymatch._validate import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from rich.console import Console

    from manymatch.evaluate.tables import Table
    from manymatch.runs.runner import RunProgress

OK, UNSOLVED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
# Between two lines of progress where there is no terminal, in seconds.
_LINE_EVERY = 10.0


def console(*, stderr: bool = False) -> Console:
    """Return a console for people; rich is imported here because the listing needs none of it."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def print_plain(text: object, **settings: Any) -> None:
    """Print one line for people as it is: without markup, and not broken."""
    console().print(str(text), markup=False, soft_wrap=True, **settings)


def print_table(columns: dict[str, str], rows: Iterable[Iterable[str]]) -> None:
    """Print a plain table; `columns` maps headings to "left" or "right"."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, show_header=any(columns))
    for heading, justify in columns.items():
        table.add_column(heading, overflow="fold", justify=justify)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*row)
    console().print(table)


def show_table(table: Table) -> None:
    """Print a table of results and its notes; where there is no terminal, no line is broken."""
    from rich.console import Console

    from manymatch.evaluate.tables import WIDE

    target = console()
    wide = target if target.is_terminal else Console(highlight=False, width=WIDE)
    wide.print(table.rich())
    for note in table.notes:
        target.print(note, style="dim", markup=False)


def print_json(value: Any) -> None:
    """Print one JSON document for machines, and nothing else, on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def print_error(sentence: str) -> None:
    """Print one line on standard error."""
    typer.echo(f"manymatch: {' '.join(sentence.split())}", err=True)


def deliver(write: Callable[[], dict[str, Path]], show: Callable[[dict[str, Path]], None]) -> None:
    """Write the files of a result, then show it with them.

    A result that cannot be written after all, as on a full disk, is shown before the error.
    """
    try:
        written = write()
    except Exception:
        show({})
        raise
    show(written)


@contextlib.contextmanager
def working(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show that something is going on, on terminals only and on standard error."""
    target = console(stderr=True)
    if quiet or not target.is_terminal:
        yield
        return
    with target.status(f"{what} ..."):
        yield


@contextlib.contextmanager
def clean_exit() -> Iterator[None]:
    """End with one sentence and an exit code, not with a traceback, where the input is at fault.

    A bad value or file, a package that is not installed and a lack of memory are exit code 2,
    Ctrl-C is 130. Other exceptions are programming errors and are not caught. `command_group` runs
    every command in it.
    """
    try:
        yield
    except (ValueError, OSError, ModuleNotFoundError) as error:
        print_error(str(error))
        raise typer.Exit(BAD_INPUT) from None
    except Exception as error:
        if not out_of_memory(error):
            raise
        print_error(f"there is not enough memory{': ' if str(error) else ''}{error}")
        raise typer.Exit(BAD_INPUT) from None
    except KeyboardInterrupt as stop:
        finished, total = getattr(stop, "finished", None), getattr(stop, "total", None)
        if total is None:
            print_error("stopped.")
        else:
            print_error(
                f"stopped with {finished:,} of {count(total, 'pair')} finished; the same command "
                "continues."
            )
        if getattr(stop, "busy", False):
            # An ordinary exit would wait for the pairs in work; what is finished is on the disk.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        raise typer.Exit(INTERRUPTED) from None


class Tracker:
    """Shows the progress of a run on standard error; a context manager, called with each step.

    On a terminal it is a bar, elsewhere a line every ten seconds.
    """

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._console = console(stderr=True)
        self._last = -_LINE_EVERY
        self._bar: Progress | None = None
        if self._console.is_terminal:
            self._bar = Progress(
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.description}"),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, progress: RunProgress) -> None:
        """Show how far it is."""
        label = f"{progress.label}: " if progress.label else ""
        text = f"{label}{counts_text(progress.counts)}, {_remaining(progress)}"
        finished, total = progress.finished, progress.total
        if self._bar is not None:
            self._bar.update(self._task, total=total, completed=finished, description=text)
            return
        now = time.monotonic()
        if now - self._last >= _LINE_EVERY or finished == total:
            self._last = now
            self._console.print(f"{finished:,}/{count(total, 'pair')}: {text}", soft_wrap=True)


def counts_text(counts: dict[str, int]) -> str:
    """Say how many pairs have which verdict; verdicts without a pair are left out."""
    parts = []
    for verdict, number in counts.items():
        if number:
            # The other verdicts are adjectives.
            parts.append(count(number, verdict, "errors" if verdict == "error" else verdict))
    return ", ".join(parts) or "none yet"


def time_text(seconds: float) -> str:
    """Say a time span in hours, minutes and seconds."""
    if seconds < 1.0:
        return "less than a second"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _remaining(progress: RunProgress) -> str:
    if progress.finished == progress.total:
        return "done"
    if progress.seconds_left is None:
        return "starting"
    return f"{time_text(progress.seconds_left)} left"
