"""Progress of a long run: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

if TYPE_CHECKING:
    from manymatch.runs.runner import RunProgress

# Between two lines where there is no terminal, in seconds.
_LINE_EVERY = 10.0


class Tracker:
    """Shows `RunProgress` on standard error; a context manager, called with each."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
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
        words = f"{label}{counts_text(progress.counts)}, {_left(progress)}"
        if self._bar is not None:
            self._bar.update(
                self._task,
                total=progress.total,
                completed=progress.finished,
                description=words,
            )
            return
        now = time.monotonic()
        if now - self._last >= _LINE_EVERY or progress.finished == progress.total:
            self._last = now
            self._console.print(
                f"{progress.finished}/{progress.total} pairs: {words}", soft_wrap=True
            )


def counts_text(counts: dict[str, int]) -> str:
    """Say how many pairs have which verdict, those that none has left out."""
    words = [f"{count} {verdict}" for verdict, count in counts.items() if count]
    return ", ".join(words) or "none yet"


def time_text(seconds: float) -> str:
    """Say a time span in hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _left(progress: RunProgress) -> str:
    if progress.finished == progress.total:
        return "done"
    if progress.seconds_left is None:
        return "starting"
    return f"{time_text(progress.seconds_left)} left"
