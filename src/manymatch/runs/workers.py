"""Threads that work on pairs, and a way to stop them at Ctrl-C without losing what is finished."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from types import FrameType

    Row = dict[str, Any]

# How long pairs that are in work may take to end after Ctrl-C.
_GRACE_SECONDS = 1.0


class Workers:
    """Runs a function on indices in several threads, a few at a time.

    Parameters
    ----------
    count : int
        Number of threads.
    work : callable
        From an index to a row. An exception ends the run.
    """

    def __init__(self, count: int, work: Callable[[int], Row]) -> None:
        self._work = work
        self._tasks: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        # Simple queues may be written by a signal handler.
        self._done: queue.SimpleQueue[Row | BaseException | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._in_flight = 0
        self._ahead = 2 * count
        self._threads = [
            threading.Thread(target=self._run, name=f"manymatch-{i}") for i in range(count)
        ]

    @property
    def stopped(self) -> bool:
        """Whether Ctrl-C ended the run."""
        return self._stopped.is_set()

    @property
    def busy(self) -> bool:
        """Whether a pair is still in work."""
        return self._in_flight > 0

    def rows(self, indices: Iterable[int]) -> Generator[list[Row]]:
        """Give the rows of all indices as they are finished, several at once if there are.

        After Ctrl-C what is finished within a moment still comes, and then no more. Only a few
        indices are in work at any time, and no row is held that was given.
        """
        left = iter(indices)
        for thread in self._threads:
            thread.start()
        try:
            with self._interruptible():
                self._submit(left)
                while self._in_flight and not self.stopped:
                    rows = self._finished(None)
                    self._submit(left)
                    yield rows
                self._close()
                deadline = time.monotonic() + _GRACE_SECONDS
                while self._in_flight and (wait := deadline - time.monotonic()) > 0:
                    yield self._finished(wait)
        finally:
            self._close()
        if not self.busy:
            for thread in self._threads:
                thread.join()

    def _submit(self, left: Iterator[int]) -> None:
        while self._in_flight < self._ahead and not self.stopped:
            index = next(left, None)
            if index is None:
                return
            self._in_flight += 1
            self._tasks.put(index)

    def _finished(self, timeout: float | None) -> list[Row]:
        """Wait for one row and take what else is there; an error comes after the rows before it."""
        if self._error is not None:
            raise self._error
        rows: list[Row] = []
        with contextlib.suppress(queue.Empty):
            result = self._done.get(timeout=timeout)
            while not isinstance(result, BaseException):
                if result is not None:
                    self._in_flight -= 1
                    rows.append(result)
                result = self._done.get_nowait()
            self._error = result
        return rows

    def _run(self) -> None:
        while (index := self._tasks.get()) is not None:
            try:
                self._done.put(self._work(index))
            except BaseException as error:  # noqa: BLE001 - raised where rows are collected
                self._done.put(error)

    def _close(self) -> None:
        """Let every thread end after what it is working on."""
        with contextlib.suppress(queue.Empty):
            while True:
                if self._tasks.get_nowait() is not None:
                    self._in_flight -= 1
        for _ in self._threads:
            self._tasks.put(None)

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Turn the first Ctrl-C into an orderly stop; a second one is as usual.

        An exception could come in the middle of a write, and would not reach the threads.
        """
        before = signal.getsignal(signal.SIGINT) or signal.SIG_DFL
        # Where signals do not arrive, or are ignored as in a shell's background jobs.
        if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN:
            yield
            return

        def stop(_signal: int, _frame: FrameType | None) -> None:
            signal.signal(signal.SIGINT, before)
            self._stopped.set()
            self._done.put(None)

        signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
