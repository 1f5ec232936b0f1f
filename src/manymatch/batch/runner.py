"""The runner of batches and evaluations: many pairs, several workers, resumable.

A `Run` looks into its journals for the pairs that are missing, has an `Engine` work on them,
appends each record as soon as it is finished, reports progress, and stops in order at Ctrl-C.
Engines are the threads of this process, and what `manymatch.batch.ray_engine` has.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import itertools
import queue
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from manymatch._validate import integer
from manymatch.options import num_threads, share_cores, usable_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from types import FrameType

    from manymatch._validate import IndexArray
    from manymatch.batch.journal import Journal

T = TypeVar("T")
#: What a journal keeps of a pair, in JSON types, with its "index".
Record: TypeAlias = dict[str, Any]
#: Records of a pair by journal.
Result: TypeAlias = Mapping[str, Record]

# How long pairs that are in work may take to end after Ctrl-C.
_GRACE_SECONDS = 1.0
# Pairs that wait for a thread. While results go to the disk, threads go on with these, and all of
# their results go to the disk together.
_WAITING = 16


@dataclasses.dataclass(frozen=True)
class RunProgress:
    """How far a run is: pairs that are finished, those of earlier runs included, and all pairs.

    `counts` are the finished pairs by category, such as their verdict. `seconds_left` is estimated
    from this run's speed, None before its first pair. `label` says which part of a longer run this
    is.
    """

    finished: int
    total: int
    counts: dict[str, int]
    seconds_left: float | None
    label: str = ""


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C during a run, after everything finished has been written.

    `busy` says whether a pair is still in work, which a thread ends in the background, and
    `result` is what the interrupted function would have returned, for the finished pairs.
    """

    def __init__(
        self, finished: int, total: int, *, busy: bool = False, result: Any = None
    ) -> None:
        super().__init__("interrupted")
        self.finished, self.total, self.busy, self.result = finished, total, busy, result


def num_workers(workers: object) -> int:
    """Check how many pairs are worked on at the same time; 0 is one per core."""
    return num_threads(integer(workers, "workers", 0))


def num_pairs(count: int, limit: int | None) -> int:
    """Check how many of `count` pairs are wanted; None is all."""
    return count if limit is None else min(integer(limit, "limit", 1), count)


def error_sentence(error: Exception) -> str:
    """Say in one line why a pair could not be worked on."""
    sentence = " ".join(str(error).split())
    if isinstance(error, ValueError) and sentence:
        return sentence
    return f"{type(error).__name__}: {sentence}" if sentence else type(error).__name__


class Run:
    """Pairs 0 to `total` - 1, or `only` some of these, each with one record in every journal.

    The journals are open, by any name, and may hold records of further pairs. A record of the
    first one is counted under the name that `category` returns, one of `categories` in the order
    in which they are shown. `repeat` says whether a pair with this record in an earlier run is to
    be computed again. Then `missing` are the pairs that some journal lacked at the beginning,
    `computed` counts those that were finished since, and `interrupted` and `busy` say whether
    Ctrl-C ended the run early, and whether a pair was still in work by then.
    """

    def __init__(
        self,
        journals: Mapping[str, Journal],
        total: int,
        *,
        category: Callable[[Record], str] = lambda _: "finished",
        categories: Sequence[str] = ("finished",),
        repeat: Callable[[Record], bool] = lambda _: False,
        label: str = "",
        only: IndexArray | None = None,
    ) -> None:
        wanted = np.ones(total, dtype=bool)
        if only is not None:
            wanted[:] = False
            wanted[only] = True
        self._journals, self._total, self._label = journals, int(wanted.sum()), label
        self._category, self._counts = category, Counter[str](dict.fromkeys(categories, 0))
        self._first = next(iter(journals))
        self._done = {name: np.zeros(total, dtype=bool) for name in journals}
        for name, journal in journals.items():
            for record in journal.records():
                if record["index"] < total and wanted[record["index"]] and not repeat(record):
                    self._done[name][record["index"]] = True
                    self._count(name, record)
        done = np.logical_and.reduce(list(self._done.values()))
        self.missing = np.flatnonzero(wanted & ~done)
        self.computed = 0
        self.interrupted = self.busy = False

    @property
    def total(self) -> int:
        """Pairs of the run."""
        return self._total

    @property
    def finished(self) -> int:
        """Pairs that every journal has."""
        return self._total - len(self.missing) + self.computed

    @property
    def counts(self) -> dict[str, int]:
        """Finished pairs of the first journal by category."""
        return dict(self._counts)

    def execute(
        self,
        work: Callable[[int, Sequence[str]], Result] | Engine,
        *,
        workers: int = 1,
        order: Callable[[], Iterable[int]] | None = None,
        progress: Callable[[RunProgress], object] | None = None,
    ) -> None:
        """Work on the missing pairs until all are finished or Ctrl-C, in an order of all pairs.

        `work` gets the index of a pair and the names of the journals that lack it, and returns a
        record for each of these. It is called by several threads. Or it is an engine, which has
        workers of its own. An exception ends the run, after everything that was finished before has
        been written. `progress` is called at the start and after every few pairs.
        """
        begin = time.monotonic()
        show = progress if progress is not None else lambda _: None
        show(self._progress(None))
        if not self.missing.size:
            return

        def lacking(index: int) -> Result:
            names = [name for name, done in self._done.items() if not done[index]]
            return work(index, names)  # type: ignore[operator]

        threads = min(workers, len(self.missing))
        engine = work if isinstance(work, Engine) else _Threads(threads, lacking)
        indices = self.missing
        if order is not None:
            wanted = np.fromiter(order(), dtype=np.int64)
            indices = wanted[np.isin(wanted, self.missing)]
        with contextlib.closing(engine.results(indices)) as finished:
            for results in finished:
                self.append(results)
                if results:
                    speed = (time.monotonic() - begin) / self.computed
                    show(self._progress(speed * (len(self.missing) - self.computed)))
        self.interrupted = engine.stopped and self.computed < len(self.missing)
        self.busy = engine.busy

    def deliver(self, result: T) -> T:
        """Return `result`; after Ctrl-C raise `RunInterrupted` with it instead."""
        if self.interrupted:
            raise RunInterrupted(self.finished, self._total, busy=self.busy, result=result)
        return result

    def append(self, results: Sequence[Result]) -> None:
        """Put the records of finished pairs on disk, journal by journal."""
        for name, journal in self._journals.items():
            records = [result[name] for result in results if name in result]
            if records:
                journal.append(records)
                for record in records:
                    self._count(name, record)
        self.computed += len(results)

    def _count(self, name: str, record: Record) -> None:
        if name == self._first:
            self._counts[self._category(record)] += 1

    def _progress(self, seconds_left: float | None) -> RunProgress:
        return RunProgress(self.finished, self._total, self.counts, seconds_left, self._label)


class Engine(abc.ABC):
    """Works on pairs by their indices, and stops at Ctrl-C without losing results.

    `stopped` says whether Ctrl-C was pressed. A subclass begins work and has the end of each part
    of it put into `_done`, as a future. An exception that it raises ends the run.
    """

    # Seconds after which `_submit` is called even if nothing ended; None is never.
    _patience: float | None = None

    def __init__(self) -> None:
        # Simple queues may be written by a signal handler, which puts None there.
        self._done: queue.SimpleQueue[Future[Any] | None] = queue.SimpleQueue()
        self._error: Exception | None = None
        self.stopped = False

    @property
    @abc.abstractmethod
    def busy(self) -> bool:
        """Whether a pair is still in work."""

    @abc.abstractmethod
    def _begin(self, indices: IndexArray) -> None:
        """Note which pairs are wanted, in this order."""

    @abc.abstractmethod
    def _submit(self) -> None:
        """Begin as much work as is to be done at the same time."""

    @abc.abstractmethod
    def _take(self, future: Future[Any]) -> list[Result]:
        """Return the results in what ended, or raise what ends the run."""

    @abc.abstractmethod
    def _end(self, *, now: bool) -> None:
        """Begin no more work; with `now`, nobody waits any longer for what is in work."""

    def results(self, indices: IndexArray) -> Generator[list[Result]]:
        """Give the results of all indices as they are finished, several at once if there are.

        After Ctrl-C what is finished within a moment still comes, and then no more. Only a few
        indices are in work at any time, and no result is held that was given.
        """
        try:
            with self._interruptible():
                self._begin(indices)
                self._submit()
                while self.busy and not self.stopped:
                    results = self._finished(self._patience)
                    self._submit()
                    yield results
                self._end(now=False)
                deadline = time.monotonic() + _GRACE_SECONDS
                while self.busy and (wait := deadline - time.monotonic()) > 0:
                    yield self._finished(wait)
        finally:
            self._end(now=True)

    def _finished(self, timeout: float | None) -> list[Result]:
        """Wait for one result and take what else is there; an error comes after those before it."""
        if self._error is not None:
            raise self._error
        results: list[Result] = []
        with contextlib.suppress(queue.Empty):
            future = self._done.get(timeout=timeout)
            while True:
                if future is not None:
                    try:
                        results += self._take(future)
                    except Exception as error:  # noqa: BLE001 - raised by the next call
                        self._error = error
                        break
                future = self._done.get_nowait()
        return results

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
            self.stopped = True
            self._done.put(None)

        signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


class _Threads(Engine):
    """Threads that run a function on indices.

    Each counts on its share of the cores for threads that it starts itself. So does the library of
    NumPy's matrix products: its threads would wait for each other in loops, which takes a third of
    the time of all cores.
    """

    def __init__(self, count: int, work: Callable[[int], Result]) -> None:
        super().__init__()
        self._pool = ThreadPoolExecutor(
            count, thread_name_prefix="manymatch", initializer=share_cores, initargs=(count,)
        )
        self._count, self._work, self._ahead = count, work, count + _WAITING
        self._pending: set[Future[Result]] = set()

    @property
    def busy(self) -> bool:
        return bool(self._pending)

    def _begin(self, indices: IndexArray) -> None:
        self._left = iter(indices.tolist())
        share = max(1, usable_cores() // self._count)
        products = ThreadpoolController().select(user_api="blas")
        # Not more than the environment says.
        self._products = products.limit(
            limits={pool["prefix"]: min(share, pool["num_threads"]) for pool in products.info()}
        )

    def _submit(self) -> None:
        for index in itertools.islice(self._left, self._ahead - len(self._pending)):
            future = self._pool.submit(self._work, index)
            self._pending.add(future)
            future.add_done_callback(self._done.put)

    def _take(self, future: Future[Result]) -> list[Result]:
        results = [] if future.cancelled() else [future.result()]
        self._pending.remove(future)
        return results

    def _end(self, *, now: bool) -> None:
        self._pool.shutdown(wait=now and not self.busy, cancel_futures=True)
        if now:
            self._products.restore_original_limits()
