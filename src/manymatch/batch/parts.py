"""Runs made of parts: many items, cut into blocks, each block one Parquet file.

A run is a folder, or an address such as ``s3://bucket/run``. ``run.json`` says what is computed.
``parts/000123.parquet`` has the rows of block 123; it is written under another name and renamed, or
put at once. What exists is finished, what is missing is to be done: resuming is listing a folder,
joining runs of several machines is copying files, and two processes that compute the same block
write the same bytes. This module knows nothing of images and matching.

A part that was damaged later is noticed when it is read: every page has a checksum, and so has the
whole file. It is renamed to ``000123.damaged``, a note says so, and its block is missing again.

Examples
--------
>>> run = open_run(folder, {"power": 2}, cut(range(10), 4))                      # doctest: +SKIP
>>> def do_block(block):                                                         # doctest: +SKIP
...     rows = []
...     for index in run.blocks[block]:
...         stop_point()  # Ctrl-C ends the block here
...         rows.append({"index": int(index), "value": int(index) ** 2})
...     run.write(block, rows)
...     return {"done": len(rows)}  # for the progress
>>> outcome = run_blocks(run, run.missing(), do_block, workers=2)                # doctest: +SKIP
>>> [row["value"] for row in run.rows()]  # also while it runs                   # doctest: +SKIP
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import errno
import hashlib
import io
import json
import re
import signal
import threading
import time
import zlib
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import ThreadpoolController

from manymatch._validate import integer, require
from manymatch.io import files
from manymatch.io.files import open_regular, out_of_memory
from manymatch.io.remote import is_remote
from manymatch.options import num_threads, share_cores, usable_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor, Future
    from pathlib import Path
    from types import FrameType

    from manymatch._validate import IndexArray

#: Increased when the meaning of a part changes; 5 and earlier had a journal in place of parts.
FORMAT = 6
RUN = "run.json"

_EARLIER = "journal.jsonl"
_PART = re.compile(r"(\d{6,})\.parquet")
# The checksum of a whole file, eight digits, follows this key and two bytes in its last bytes.
_CRC, _GAP, _NO_CRC = b"manymatch.crc32", 2, b"00000000"
# How long blocks in work may take to end after Ctrl-C, and how often a waiting run looks for it.
_GRACE_SECONDS, _POLL_SECONDS = 1.0, 0.2
# Faults of the machine, not of the files of a pair; those of a full disk do not pass by waiting.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
_FAULTS = _NO_ROOM | {errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
_thread = threading.local()


@dataclasses.dataclass(frozen=True)
class RunProgress:
    """How far a run is: finished items, including those of earlier runs, and all items.

    `counts` are the items that this run finished, by category, such as their verdict.
    `seconds_left` is estimated from its speed, None before its first block. `label` says which part
    of a longer run this is.
    """

    finished: int
    total: int
    counts: dict[str, int]
    seconds_left: float | None
    label: str = ""


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C during a run; finished blocks are kept.

    `busy` says whether a thread is still in a block, and `result` is the result that the
    interrupted function would have returned, for the finished items.
    """

    def __init__(
        self, finished: int, total: int, *, busy: bool = False, result: Any = None
    ) -> None:
        super().__init__("interrupted")
        self.finished, self.total, self.busy, self.result = finished, total, busy, result


class DamagedPart(ValueError):  # noqa: N818 - it is what was found
    """A part that cannot be read, or that belongs to another run."""


class _Stopped(Exception):  # noqa: N818 - no error
    """Raised by `stop_point` in a block that nobody waits for."""


def num_workers(workers: object) -> int:
    """Check how many blocks are worked on at the same time; 0 is one per core."""
    return num_threads(integer(workers, "workers", 0))


def num_pairs(total: int, limit: int | None) -> int:
    """Check how many of `total` pairs are wanted; None is all."""
    return total if limit is None else min(integer(limit, "limit", 1), total)


def error_sentence(error: BaseException) -> str:
    """Say in one line why a pair could not be worked on."""
    sentence = " ".join(str(error).split())
    if isinstance(error, ValueError) and sentence:
        return sentence
    return f"{type(error).__name__}: {sentence}" if sentence else type(error).__name__


def machine_fault(error: BaseException | None) -> bool:
    """Tell whether an error, or its cause, is a lack of memory or a failure of the system."""
    while error is not None:
        if out_of_memory(error) or (isinstance(error, OSError) and error.errno in _FAULTS):
            return True
        error = error.__cause__
    return False


def cut(order: Iterable[int], size: int) -> list[IndexArray]:
    """Cut an order of items into blocks of a size; the last one may be smaller."""
    items = np.fromiter(order, dtype=np.int64)
    return np.split(items, range(size, len(items), size)) if len(items) else []


def stop_point() -> None:
    """End the block of this thread here if its run was stopped."""
    stop = getattr(_thread, "stop", None)
    if stop is not None and stop.is_set():
        raise _Stopped


# --------------------------------------------------------------------------------- the folder


class Run:
    """The parts of a run; see the module. It can be sent to other processes.

    `blocks` are the items of each block, None for a reader that does not know them. Every part has
    the digest of the header, as ``run.json`` has. `notes` tell of parts that were set aside.
    """

    def __init__(
        self,
        folder: Path,
        header: Mapping[str, Any],
        blocks: Sequence[IndexArray] | None,
        schema: Any = None,
        name: str = "parts",
    ) -> None:
        self.folder, self.header, self.blocks, self.schema = folder, header, blocks, schema
        self.parts, self.notes = folder / name, list[str]()
        known = header.get("digest")
        self.digest = known or hashlib.sha256(_json(header).encode()).hexdigest()

    def path(self, block: int) -> Path:
        """Where the part of a block is, or will be."""
        return self.parts / f"{block:06d}.parquet"

    def finished(self) -> list[int]:
        """List the blocks that have a part, in order."""
        names = (path.name for path in self.parts.iterdir()) if self.parts.exists() else ()
        found = sorted(int(match[1]) for match in map(_PART.fullmatch, names) if match)
        return [b for b in found if self.blocks is None or b < len(self.blocks)]

    def missing(self) -> list[int]:
        """List the blocks that have no part yet, in order."""
        there = set(self.finished())
        return [block for block in range(len(self.blocks or ())) if block not in there]

    def size(self, blocks: Iterable[int]) -> int:
        """Count the items of some blocks."""
        return sum(len((self.blocks or ())[block]) for block in blocks)

    def write(self, block: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write the part of a block: its rows, each with the "index" of its item, in order.

        With a schema the rows are its columns; without one each row is kept as JSON.
        """
        pyarrow, parquet = _arrow()
        schema = self.schema or pyarrow.schema({"index": "int64", "record": "string"})
        if self.schema is None:
            rows = [{"index": row["index"], "record": _json(row)} for row in rows]
        columns = [pyarrow.array([row.get(f.name) for row in rows], type=f.type) for f in schema]
        buffer = io.BytesIO()
        # A number that is there often, as in the keypoints of an image in several pairs, is kept
        # once for the block.
        settings = {"compression": "zstd", "dictionary_pagesize_limit": 1 << 30}
        with parquet.ParquetWriter(buffer, schema, write_page_checksum=True, **settings) as writer:
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))
            own = {"manymatch.run": self.digest, _CRC.decode(): _NO_CRC.decode()}
            writer.add_key_value_metadata(own)
        data = buffer.getvalue()
        sealed = _with_crc(data, b"%08x" % zlib.crc32(data))
        files.write_whole(self.path(block), lambda file: file.write(sealed))

    def read(self, block: int, columns: Iterable[str] | None = None) -> Any:
        """Read the table of a part, or some of its columns; `DamagedPart` if it is not whole."""
        try:
            with open_regular(self.path(block)) as file:
                return self._parsed(block, file.read(), columns)
        except (ValueError, OSError, LookupError) as error:
            if machine_fault(error):
                raise
            raise DamagedPart(f"{self.path(block).name}: {error_sentence(error)}") from error

    def _parsed(self, block: int, data: bytes, columns: Iterable[str] | None) -> Any:
        # pyarrow may end the process at a damaged description of the pages.
        if data != _with_crc(data, b"%08x" % zlib.crc32(_with_crc(data, _NO_CRC))):
            raise ValueError("its checksum does not fit its content")
        pyarrow, parquet = _arrow()
        source = parquet.ParquetFile(pyarrow.BufferReader(data), page_checksum_verification=True)
        if source.metadata.metadata[b"manymatch.run"].decode() != self.digest:
            raise ValueError("it belongs to a run with other settings")
        groups = (source.metadata.row_group(k) for k in range(source.num_row_groups))
        values = sum(g.column(k).num_values for g in groups for k in range(g.num_columns))
        if 8 * values > files.limit("array_mb") * 1_000_000:
            raise files.too_large("it expands to more megabytes", "array_mb")
        table = source.read(None if columns is None else list(dict.fromkeys(["index", *columns])))
        indices = table["index"].to_numpy()
        if self.blocks is not None and not np.array_equal(indices, self.blocks[block]):
            raise ValueError("it has other items than its block")
        return table

    def table(self, block: int, columns: Iterable[str] | None = None) -> Any:
        """Read a part as `read` does; None if it had to be set aside, as it is damaged."""
        try:
            return self.read(block, columns)
        except DamagedPart as error:
            self._set_aside(block, error)
            return None

    def rows(self, columns: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
        """Go through the rows of finished blocks, in the order of the blocks.

        Unknown values are left out. Damaged parts are set aside and left out.
        """
        for block in self.finished():
            table = self.table(block, None if self.schema is None else columns)
            for row in () if table is None else table.to_pylist():
                if self.schema is None:
                    yield json.loads(row["record"])
                else:
                    yield {name: value for name, value in row.items() if value is not None}

    def _set_aside(self, block: int, error: Exception) -> None:
        """Rename a damaged part, so that its block is missing, and note it."""
        path = self.path(block)
        aside = path.with_name(f"{path.stem}.damaged")
        with contextlib.suppress(ValueError, OSError):
            with open_regular(path) as file:
                data = file.read()
            files.write_whole(aside, lambda file: file.write(data))
        path.unlink(missing_ok=True)
        self.notes.append(
            f"{self.parts.name}/{error}; it is kept as {aside.name}, and its block is done again."
        )


def open_run(
    folder: Path,
    header: Mapping[str, Any],
    blocks: Sequence[IndexArray],
    *,
    schema: Any = None,
    more: Mapping[str, Any] | None = None,
    name: str = "parts",
) -> Run:
    """Begin a run in a folder, or continue the one that it holds.

    Parameters
    ----------
    folder : Path
        Made if it does not exist; may be at an address.
    header : mapping
        Everything that decides the rows, in JSON types. A folder with another header is refused.
        Entries that end with ``_hash`` are named by what precedes that.
    blocks : sequence of arrays
        The items of each block, by index; see `cut`.
    schema : pyarrow.Schema, optional
        Columns of the parts; by default each row is kept as JSON text.
    more : mapping, optional
        Further entries of ``run.json``, which are not compared.
    name : str
        Folder of the parts below the run.

    Raises
    ------
    ValueError
        If the folder holds results of other settings; the first one that differs is named.
    """
    check_run(folder, header)
    run = Run(folder, header, blocks, schema, name)
    wanted = {"format": FORMAT, "digest": run.digest, **header, **(more or {})}
    if read_run(folder) != json.loads(_json(wanted)):
        files.make_folder(folder)
        files.write_text(folder / RUN, f"{_json(wanted, indent=2)}\n")
    files.make_folder(run.parts)
    for path in () if is_remote(run.parts) else run.parts.glob(".*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            if files.abandoned(path):
                path.unlink()
    return run


def read_run(folder: Path) -> dict[str, Any] | None:
    """Read ``run.json``; None if the folder holds no run."""
    if not (folder / RUN).exists():
        return None
    wrong = f"out must have a whole {RUN}, got {str(folder / RUN)!r}"
    try:
        found = json.loads(files.read_text(folder / RUN, "the settings of a run"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{wrong} ({error})") from error
    if not isinstance(found, dict) or "format" not in found:
        raise ValueError(f"{wrong} (there is no format)")
    return found


def check_run(folder: Path, header: Mapping[str, Any]) -> None:
    """Raise what `open_run` would if a folder holds results of other settings."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out must be a folder, got the file {str(folder)!r}")
    found, holds = read_run(folder), None
    if found is None and (folder / _EARLIER).exists():
        holds = f"results of an earlier version ({_EARLIER})"
    elif found is not None:
        wanted = json.loads(_json({"format": FORMAT, **header}))
        differing = (difference(found.get(name), wanted[name], name) for name in wanted)
        holds = next(filter(None, differing), None)
    if holds is not None:
        raise ValueError(
            f"out must be a new folder or one of the same run, got {str(folder)!r}: the folder "
            f"holds {holds}; choose another --out"
        )


def difference(old: Any, new: Any, name: str) -> str | None:
    """Name the first setting in which two headers differ, as the object of "the folder holds"."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = dict.fromkeys([*new, *old])
        found = (difference(old.get(key), new.get(key), f"{name}.{key}") for key in keys)
        return next(filter(None, found), None)
    if old == new:
        return None
    if name.endswith("_hash"):
        return f"results for a different {name.removesuffix('_hash').replace('_', ' ')}"
    return f"results of other settings ({name} was {json.dumps(old)} and is {json.dumps(new)} now)"


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, allow_nan=False, indent=indent)


def _arrow() -> tuple[Any, Any]:
    return tuple(require(name, "a batch", "images") for name in ("pyarrow", "pyarrow.parquet"))


def _with_crc(data: bytes, crc: bytes) -> bytes:
    place = data.rfind(_CRC) + len(_CRC) + _GAP
    return data[:place] + crc + data[place + len(crc) :]


# --------------------------------------------------------------------------------- the work


@dataclasses.dataclass
class Outcome:
    """What `run_blocks` did: items it finished, by category as well, and how it ended.

    `interrupted` says whether Ctrl-C ended it, `busy` whether a block was still in work then, and
    `error` is the fault of a block that failed twice; `deliver` raises it.
    """

    computed: int = 0
    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    interrupted: bool = False
    busy: bool = False
    error: BaseException | None = None


def run_blocks(
    run: Run,
    blocks: Sequence[int],
    do_block: Callable[[int], Mapping[str, int] | None],
    *,
    workers: int = 1,
    executor: Executor | None = None,
    progress: Callable[[RunProgress], object] | None = None,
    earlier: int = 0,
    label: str = "",
) -> Outcome:
    """Work on blocks until all are finished or Ctrl-C.

    Parameters
    ----------
    run : Run
        Only its sizes of blocks are used; `do_block` writes the parts.
    blocks : sequence of int
        What to do, in this order.
    do_block : callable
        Computes a block and writes its part. Returns numbers of items by category, which progress
        shows. It is called by several threads, and calls `stop_point` between items. A lack of
        memory, or a fault on the way to a file, puts the block off until all others are done; every
        other exception ends the run.
    workers : int
        Threads, or blocks that are given to `executor` at a time.
    executor : Executor, optional
        Works on the blocks in place of threads of this process.
    progress : callable, optional
        Called with a `RunProgress` at the start and after every block.
    earlier : int
        Items that were finished before.
    label : str
        For the progress.
    """
    outcome, begin, total = Outcome(), time.monotonic(), run.size(blocks)

    def report() -> None:
        done = outcome.computed
        left = (total - done) * (time.monotonic() - begin) / done if done else None
        if progress is not None:
            counts = dict(outcome.counts)
            progress(RunProgress(done + earlier, total + earlier, counts, left, label))

    report()
    if not blocks:
        return outcome
    stop, waiting, again = threading.Event(), deque(blocks), set[int]()
    pending: dict[Future[Any], int] = {}
    with contextlib.ExitStack() as stack:
        if executor is None:
            executor = stack.enter_context(_threads(min(workers, len(blocks)), stop))
        stack.callback(executor.shutdown, wait=False, cancel_futures=True)
        stack.enter_context(_interruptible(stop))
        stack.callback(_drain, run, pending, outcome, stop)
        while (waiting or pending) and not stop.is_set():
            # A block that was put off, maybe for lack of memory, is alone.
            while waiting and len(pending) < (1 if waiting[0] in again else workers):
                block = waiting.popleft()
                pending[executor.submit(do_block, block)] = block
            for future in _ended(pending, _POLL_SECONDS):
                block, error = pending[future], future.exception()
                if not machine_fault(error) or getattr(error, "errno", 0) in _NO_ROOM:
                    _take(run, pending, future, outcome)
                    report()
                    continue
                del pending[future]
                if block in again:
                    outcome.error = error
                else:
                    again.add(block)
                    waiting.append(block)
        outcome.interrupted = stop.is_set()
    outcome.interrupted = outcome.interrupted and outcome.computed < total
    return outcome


def _take(run: Run, pending: dict[Future[Any], int], future: Future[Any], outcome: Outcome) -> None:
    """Count a block that ended, or raise what it raised."""
    block = pending.pop(future)
    with contextlib.suppress(_Stopped, concurrent.futures.CancelledError):
        outcome.counts.update(future.result() or {})
        outcome.computed += run.size([block])


def _drain(
    run: Run, pending: dict[Future[Any], int], outcome: Outcome, stop: threading.Event
) -> None:
    """Begin no more blocks, and wait a moment for those in work."""
    stop.set()
    for future in pending:
        future.cancel()
    deadline = time.monotonic() + _GRACE_SECONDS
    while pending and (wait := deadline - time.monotonic()) > 0:
        for future in _ended(pending, wait):
            with contextlib.suppress(Exception):
                _take(run, pending, future, outcome)
    outcome.busy = bool(pending)


def _ended(pending: Mapping[Future[Any], int], timeout: float) -> set[Future[Any]]:
    return concurrent.futures.wait(pending, timeout, concurrent.futures.FIRST_COMPLETED).done


@contextlib.contextmanager
def _threads(workers: int, stop: threading.Event) -> Iterator[Executor]:
    """Give threads that share the cores, also those of NumPy's matrix products.

    The threads of these would otherwise wait for each other in loops.
    """

    def prepare() -> None:
        share_cores(workers)
        _thread.stop = stop

    share = max(1, usable_cores() // workers)
    products = ThreadpoolController().select(user_api="blas")
    # Not more than the environment says.
    limits = {pool["prefix"]: min(share, pool["num_threads"]) for pool in products.info()}
    pool = concurrent.futures.ThreadPoolExecutor(workers, "manymatch", prepare)
    with products.limit(limits=limits):
        yield pool


@contextlib.contextmanager
def _interruptible(stop: threading.Event) -> Iterator[None]:
    """Turn the first Ctrl-C into an orderly stop; a second one is as usual.

    An exception could come in the middle of a write, and would not reach the threads.
    """
    before = signal.getsignal(signal.SIGINT) or signal.SIG_DFL
    # Where signals do not arrive, or are ignored as in a shell's background jobs.
    if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN:
        yield
        return

    def handle(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        stop.set()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def deliver(result: Any, outcome: Outcome, finished: int, total: int) -> Any:
    """Return a result; after Ctrl-C raise `RunInterrupted` with it, or the error of a block."""
    if outcome.error is not None:
        raise outcome.error
    if outcome.interrupted:
        raise RunInterrupted(finished, total, busy=outcome.busy, result=result)
    return result
