"""What the commands share: where they print, how they show progress and how they end."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self

import typer

from manymatch._validate import count, suggest
from manymatch.io.files import MissingFileError, out_of_memory
from manymatch.io.remote import masked

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from manymatch.batch.parts import RunProgress

# Typer brings its own copy of the package that defines it.
UsageError: Any = typer.BadParameter.__base__
OK, UNSOLVED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
# Names of a folder that are searched for a suggestion.
_MOST_NAMES = 2000
# Seconds between two lines of progress without a terminal.
_LINE_EVERY = 10.0


def console(*, stderr: bool = False) -> Console:
    """Return a console for people; rich is imported here because the listing does not need it."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def print_plain(text: object, **settings: Any) -> None:
    """Print one line for people as it is: without markup, and not broken."""
    console().print(printable(str(text)), markup=False, soft_wrap=True, **settings)


def print_table(columns: dict[str, str], rows: Iterable[Iterable[str]]) -> None:
    """Print a plain table; `columns` maps headings to "left" or "right"."""
    from rich.table import Table

    table = Table(
        box=None, header_style="bold", pad_edge=False, show_header=any(map(str.strip, columns))
    )
    for heading, justify in columns.items():
        table.add_column(heading, overflow="fold", justify=justify)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*row)
    console().print(table)


def print_json(value: Any) -> None:
    """Print one JSON document for machines, and nothing else, on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def print_error(sentence: str) -> None:
    """Print one line on standard error."""
    typer.echo(f"manymatch: {' '.join(printable(sentence).split())}", err=True)


def printable(text: str) -> str:
    """Escape bytes that are not UTF-8, as names of files may have."""
    return text.encode("utf-8", "backslashreplace").decode()


def command_line() -> str:
    """Return the command line for the report, without passwords."""
    return shlex.join(["manymatch", *map(masked, sys.argv[1:])])


def check_file(path: Path, name: str, want: str) -> None:
    """Refuse a file that does not exist, and suggest the one that was probably meant."""
    if path.exists():
        return
    if path.is_symlink():
        raise MissingFileError(f"{name} must be {want}, got {str(path)!r} (a link to nothing)")
    folder = path.parent
    names = itertools.islice(folder.iterdir(), _MOST_NAMES) if folder.is_dir() else ()
    known = {one.name.lower(): one.name for one in names}
    close = known.get(path.name.lower())
    hint = suggest(path.name, known.values()) if close is None else f", did you mean {close!r}"
    raise MissingFileError(
        f"{name} must be {want}, got {str(path)!r} (there is no such file){hint}"
    )


def check_images(**images: Path) -> None:
    """Refuse a missing file or a folder in place of an image, with a suggestion."""
    for name, path in images.items():
        check_file(path, name, "an image file")
        if path.is_dir():
            raise ValueError(
                f"{name} must be an image file, got the folder {str(path)!r}; all pairs of its "
                f"images are matched by: manymatch batch {shlex.quote(str(path))}"
            )


def print_files(files: dict[str, Path]) -> None:
    """List the files that were written."""
    if files:
        print_plain("")
    for name, path in files.items():
        print_plain(f"{name:<11} {path}")


def deliver(
    write: Callable[[], dict[str, Path]],
    show: Callable[[], None],
    record: dict[str, Any] | None,
    *,
    success: bool,
    finish: Callable[[dict[str, Path]], None] = print_files,
) -> NoReturn:
    """Show a result, write its files, list them and end; with a record, print it as JSON instead.

    Drawing takes longer than estimating, so people see the result before the files are made. A
    record is printed last, as it names the files; if they cannot be written, it is printed all the
    same.
    """
    if record is None:
        show()
    written: dict[str, Path] = {}
    failure: Exception | None = None
    try:
        with working("Writing", quiet=record is not None):
            written = write()
    except Exception as error:  # noqa: BLE001 - raised again below
        failure = error
    if record is not None:
        print_json({**record, "files": {name: str(path) for name, path in written.items()}})
    elif failure is None:
        finish(written)
    raise failure or typer.Exit(OK if success else UNSOLVED)


@contextlib.contextmanager
def working(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show that something is going on, on terminals only and on standard error."""
    target = console(stderr=True)
    shown = target.is_terminal and not quiet
    with target.status(f"{what} ...") if shown else contextlib.nullcontext():
        yield


#: Whether this process ends with the command.
run_as_process = False


@contextlib.contextmanager
def clean_exit() -> Iterator[None]:
    """Turn errors of the user into one sentence and an exit code; every command runs in it.

    A bad value or file, a package that is not installed and a lack of memory are exit code 2, a
    cluster that was lost is 3, and Ctrl-C is 130. Other exceptions are programming errors and are
    not caught.
    """
    try:
        yield
    except UsageError as error:
        # The listing, where no command is given.
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        print_error(_usage(error))
        raise typer.Exit(BAD_INPUT) from None
    except (ValueError, OSError, ModuleNotFoundError) as error:
        number = f"[Errno {getattr(error, 'errno', None)}] "
        print_error(str(error).removeprefix(number))
        raise typer.Exit(getattr(error, "exit_code", BAD_INPUT)) from None
    except Exception as error:
        if not out_of_memory(error):
            raise
        print_error(f"there is not enough memory{': ' if str(error) else ''}{error}")
        raise typer.Exit(BAD_INPUT) from None
    except KeyboardInterrupt as stop:
        if run_as_process:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # one answer to several Ctrl-C
        finished, total = getattr(stop, "finished", 0), getattr(stop, "total", None)
        so_far = "" if total is None else f" with {finished:,} of {count(total, 'pair')} finished"
        print_error(f"stopped{so_far}{'.' if total is None else '; the same command continues.'}")
        names = [thread.name for thread in threading.enumerate()]
        if getattr(stop, "busy", any(name.startswith("manymatch") for name in names)):
            # An ordinary exit would wait for pairs in work; finished ones are on the disk.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        raise typer.Exit(INTERRUPTED) from None


def _usage(error: Any) -> str:
    """Say in one sentence what is wrong with the arguments of a command."""
    message = error.format_message().rstrip(".")
    if error.ctx is None:
        return f"{message[:1].lower()}{message[1:]}"
    command, where, title = error.ctx.command, error.ctx.command_path, error.ctx.info_name
    wanted = [part.name for part in command.params if part.param_type_name == "argument"]
    extra = re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", error.message)
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        given = error.option_name
        yes, name = not given.startswith("--no-"), given.removeprefix("--").removeprefix("no-")
        if (name := name.replace("-", "_")) in getattr(command, "settings", ()):
            return f"{title} has no option {given}; use --set {name}={'VALUE' if yes else 'false'}"
        known = [name for part in command.params for name in (*part.opts, *part.secondary_opts)]
        return f"{title} has no option {given}{suggest(given, known) or f'; see: {where} --help'}"
    if type(error).__name__ == "MissingParameter" and error.param.name in wanted:
        usage = " ".join([where, *(name.upper() for name in wanted)])
        return f"{error.param.name} is missing: {usage}"
    if extra:
        takes = f"{' and '.join(wanted)} only" if wanted else "no argument"
        hint = getattr(command, "hint", "")
        return f"{title} takes {takes}, got {extra[1]!r} as well{hint and f'; {hint}'}"
    more = "" if "did you mean" in message else f"; see: {where} --help"
    return f"{message[:1].lower()}{message[1:]}{more}"


class Tracker(contextlib.ExitStack):
    """Shows the progress of a run on standard error; a context manager, called with each step.

    On a terminal it is a bar, elsewhere a line every ten seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self._console = console(stderr=True)
        self._last = -_LINE_EVERY
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
            bar = Progress(*columns, console=self._console, transient=True)
            self._bar = self.enter_context(bar)
            self._task = bar.add_task("", total=None)
        return self

    def __call__(self, progress: RunProgress) -> None:
        """Show the progress."""
        label, text = progress.label and f" ({progress.label})", progress_text(progress)
        finished, total = progress.finished, progress.total
        if self._bar is not None:
            shown = f"{text}{label}"
            self._bar.update(self._task, total=total, completed=finished, description=shown)
            return
        now = time.monotonic()
        if now - self._last >= _LINE_EVERY or finished == total:
            self._last = now
            line = f"{finished:,} of {count(total, progress.noun)}{label}: {text}"
            self._console.print(line, soft_wrap=True)


def progress_text(progress: RunProgress) -> str:
    """Say how many pairs have which verdict and how long the rest will take."""
    left, counts = progress.seconds_left, progress.counts
    remaining = "starting" if left is None else f"{time_text(left)} left"
    if progress.finished == progress.total:
        remaining = "done"
    return f"{counts_text(counts)}, {remaining}" if any(counts.values()) else remaining


def counts_text(counts: dict[str, int]) -> str:
    """Say how many pairs have which verdict; verdicts without a pair are left out."""
    # "error" is a noun, the verdicts are adjectives.
    parts = [
        count(number, verdict, "errors" if verdict == "error" else verdict)
        for verdict, number in counts.items()
        if number
    ]
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
