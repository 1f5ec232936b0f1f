"""Runs made of parts: many items, cut into blocks, each block one Parquet file.

A run is a folder, or an address such as ``s3://bucket/run``. ``run.json`` says what is computed.
``parts/000123.parquet`` has the rows of block 123; it is written under another name and renamed, or
put at once. What exists is finished, what is missing is to be done: resuming is listing a folder,
joining runs of several machines is copying files, and two processes that compute the same block
write the same bytes. This module knows nothing of images and matching.

A part that was damaged later is noticed when it is read, as every page has a checksum, and so has
the whole file. The error names it: without the part its block is missing, and is done again.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import errno
import hashlib
import io
import itertools
import json
import re
import signal
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from manymatch._validate import IndexArray, integer, require
from manymatch.io import files
from manymatch.io.files import open_regular, out_of_memory
from manymatch.io.remote import is_remote
from manymatch.options import num_threads, share_cores, usable_cores

#: Increased when the meaning of a part changes.
FORMAT = 9
RUN = "run.json"

# Files and folders of runs of any kind.
_OURS = re.compile(
    r"run\.json|parts.*|matches|colmap|pictures|pairs\.(csv|parquet)|summary\.json"
    r"|(features|matches)\.h5|database\.db|index\.html"
)
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
    of a longer run this is, `noun` what the items are.
    """

    finished: int
    total: int
    counts: dict[str, int]
    seconds_left: float | None
    label: str = ""
    noun: str = "pair"


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
    said, kind = files.brief(error), type(error).__name__
    return said if isinstance(error, ValueError) or said == kind else f"{kind}: {said}"


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

    `blocks` are the items of each block, None for a reader that does not know them. `columns` are
    those of the parts with their types in pyarrow, among them "index". Every part has the digest
    of the header, as ``run.json`` has.
    """

    def __init__(
        self,
        folder: Path,
        header: Mapping[str, Any],
        blocks: Sequence[IndexArray] | None,
        columns: Mapping[str, Any],
        name: str = "parts",
    ) -> None:
        self.folder, self.blocks, self.columns = folder, blocks, columns
        self.parts = folder / name
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

    def missing(self, blocks: Iterable[int] | None = None) -> list[int]:
        """List those of some blocks, or of all, that have no part yet."""
        there = set(self.finished())
        wanted = range(len(self.blocks or ())) if blocks is None else blocks
        return [block for block in wanted if block not in there]

    def sizes(self, blocks: Iterable[int]) -> dict[int, int]:
        """Count the items of some blocks."""
        return {block: len((self.blocks or ())[block]) for block in blocks}

    def write(self, block: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write the part of a block: its rows, each with the "index" of its item, in order."""
        pyarrow, parquet = _arrow()
        schema, buffer = pyarrow.schema(dict(self.columns)), io.BytesIO()
        columns = [pyarrow.array([row.get(f.name) for row in rows], type=f.type) for f in schema]
        # A number that is there often, as in the keypoints of an image in several pairs, is kept
        # once for the block. A text is not: the file would say nothing about its size in memory.
        numbers = [
            f"{f.name}.list.element" if str(f.type).startswith("list") else f.name
            for f in schema
            if not re.search("string|binary", str(f.type))
        ]
        settings = {
            "compression": "zstd",
            "use_dictionary": numbers,
            "dictionary_pagesize_limit": 1 << 30,
            "write_page_checksum": True,
        }
        with parquet.ParquetWriter(buffer, schema, **settings) as writer:
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
            raise DamagedPart(
                f"a run must have whole parts, got {str(self.path(block))!r} "
                f"({error_sentence(error)}); remove it and run the same command again, which does "
                "its block anew"
            ) from error

    def _parsed(self, block: int, data: bytes, columns: Iterable[str] | None) -> Any:
        # pyarrow may end the process at a damaged description of the pages.
        if data != _with_crc(data, b"%08x" % zlib.crc32(_with_crc(data, _NO_CRC))):
            raise ValueError("its checksum does not fit its content")
        pyarrow, parquet = _arrow()
        source = parquet.ParquetFile(pyarrow.BufferReader(data), page_checksum_verification=True)
        if source.metadata.metadata[b"manymatch.run"].decode() != self.digest:
            raise ValueError("it belongs to a run with other settings")
        groups = (source.metadata.row_group(k) for k in range(source.num_row_groups))
        chunks = [group.column(k) for group in groups for k in range(group.num_columns)]
        files.check_size(sum(max(c.num_values, c.total_uncompressed_size // 8) for c in chunks))
        for chunk in chunks:
            # Many rows may share a text of a dictionary, and each would get a copy.
            if chunk.physical_type == "BYTE_ARRAY" and "RLE_DICTIONARY" in chunk.encodings:
                raise ValueError(f"its texts are packed in another way ({chunk.path_in_schema})")
        table = source.read(None if columns is None else list(dict.fromkeys(["index", *columns])))
        indices = table["index"].to_numpy()
        if self.blocks is not None and not np.array_equal(indices, self.blocks[block]):
            raise ValueError("it has other items than its block")
        return table

    def tables(
        self, columns: Iterable[str] | None = None, blocks: Iterable[int] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Read finished parts, or some of them, in order."""
        for block in self.finished() if blocks is None else blocks:
            yield block, self.read(block, columns)

    def rows(self, columns: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
        """Go through the rows of `tables`; unknown values are left out."""
        for _, table in self.tables(columns):
            for row in table.to_pylist():
                yield {name: value for name, value in row.items() if value is not None}


def open_run(
    folder: Path,
    header: Mapping[str, Any],
    blocks: Sequence[IndexArray],
    columns: Mapping[str, Any],
    name: str = "parts",
    more: Mapping[str, Any] | None = None,
) -> Run:
    """Begin a run in a folder, which is made, or continue the one that it holds.

    The header is everything that decides the rows, in JSON types; a folder with another header is
    refused with a `ValueError` that names the first difference. `more` are further entries of
    ``run.json``, which are not compared. The others are those of `Run`.
    """
    check_run(folder, header)
    run = Run(folder, header, blocks, columns, name)
    wanted = json.loads(_json({"format": FORMAT, "digest": run.digest, **header, **(more or {})}))
    if read_run(folder) != wanted:
        files.make_folder(folder)
        sealed = {**wanted, "checksum": zlib.crc32(_json(wanted).encode())}
        files.write_text(folder / RUN, f"{_json(sealed, indent=2)}\n")
    files.make_folder(run.parts)
    files.remove_abandoned(run.parts)
    return run


def read_run(folder: Path) -> dict[str, Any] | None:
    """Read ``run.json``; None if the folder holds no run."""
    _refuse_links(folder)
    if not (folder / RUN).exists():
        return None
    try:
        found = files.read_json(folder / RUN, "the settings of a run")
        if not isinstance(found, dict) or "format" not in found:
            raise ValueError("there is no format")  # noqa: TRY301 - one sentence for all
        if found.pop("checksum", None) not in (None, zlib.crc32(_json(found).encode())):
            raise ValueError("its checksum does not fit its content")  # noqa: TRY301
    except ValueError as error:
        raise ValueError(
            f"a run must have a whole {RUN}, got {str(folder / RUN)!r} ({error}); remove it and "
            "run the same command again, which keeps the parts that fit"
        ) from error
    return found


def _refuse_links(folder: Path) -> None:
    """Refuse a folder with links at names that a run reads or writes: they may lead anywhere."""
    entries = () if is_remote(folder) or not folder.is_dir() else folder.iterdir()
    for entry in (entry for entry in entries if _OURS.fullmatch(entry.name)):
        for path in itertools.chain([entry], entry.rglob("*")):
            if path.is_symlink():
                raise ValueError(f"the folder of a run must have no links, got {str(path)!r}")


def check_run(folder: Path, header: Mapping[str, Any]) -> None:
    """Raise what `open_run` would if a folder holds results of other settings."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out must be a folder, got the file {str(folder)!r}")
    found, holds = read_run(folder), None
    if found is not None:
        wanted = json.loads(_json({"format": FORMAT, **header}))
        differing = (difference(found.get(name), wanted[name], name) for name in wanted)
        holds = next(filter(None, differing), None)
    if holds is not None:
        raise ValueError(
            f"out must be a new folder or one of the same run, got {str(folder)!r}: the folder "
            f"holds {holds}; choose another --out"
        )


def difference(old: Any, new: Any, name: str) -> str | None:
    """Name the first setting in which two headers differ, as the object of "the folder holds".

    Entries that end with ``_hash`` are named by what precedes that.
    """
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
    """What `run_blocks` did: the items that it finished by category, and how it ended.

    `interrupted` says whether Ctrl-C ended it, `busy` whether a block was still in work then, and
    `error` is the fault of a block that failed twice.
    """

    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    interrupted: bool = False
    busy: bool = False
    error: BaseException | None = None

    @property
    def computed(self) -> int:
        """Number of items that it finished."""
        return self.counts.total()

    def raise_stop(self, result: Any, finished: int, total: int) -> None:
        """Raise the error of a block or, after Ctrl-C, `RunInterrupted` with a result."""
        if self.error is not None:
            raise self.error
        if self.interrupted:
            raise RunInterrupted(finished, total, busy=self.busy, result=result)


def run_blocks(
    blocks: Mapping[int, int],
    do_block: Callable[[int], Mapping[str, int]],
    *,
    workers: int = 1,
    progress: Callable[[RunProgress], object] | None = None,
    earlier: int = 0,
    label: str = "",
) -> Outcome:
    """Work on blocks in threads until all are finished or Ctrl-C.

    Parameters
    ----------
    blocks : mapping of int to int
        Number of items of each block, in the order in which blocks are begun.
    do_block : callable
        Computes a block, writes its part, and returns the number of its items by category. It is
        called by several threads, and calls `stop_point` between items. A lack of memory, or a
        fault on the way to a file, puts the block off until all others are done; every other
        exception ends the run.
    workers : int
        Blocks that are in work at the same time.
    progress, earlier, label
        `progress` is called with a `RunProgress` at the start and after every block; `earlier`
        items were finished before.
    """
    outcome, begin, total = Outcome(), time.monotonic(), sum(blocks.values())
    stop, waiting, again = threading.Event(), deque(blocks), set[int]()
    pending: dict[concurrent.futures.Future[Mapping[str, int]], int] = {}

    def report() -> None:
        done = outcome.computed
        left = (total - done) * (time.monotonic() - begin) / done if done else None
        if progress is not None:
            counts = dict(outcome.counts)
            progress(RunProgress(done + earlier, total + earlier, counts, left, label))

    def finish() -> None:
        """Begin no more blocks, and wait a moment for those in work."""
        stop.set()
        for future in pending:
            future.cancel()
        for future in concurrent.futures.wait(pending, _GRACE_SECONDS).done:
            del pending[future]
            with contextlib.suppress(Exception, concurrent.futures.CancelledError):
                outcome.counts.update(future.result())
        outcome.busy = bool(pending)

    report()
    with contextlib.ExitStack() as stack:
        threads = stack.enter_context(_threads(max(1, min(workers, len(blocks))), stop))
        stack.enter_context(_interruptible(stop))
        stack.callback(finish)
        while (waiting or pending) and not stop.is_set():
            # A block that failed before, perhaps for lack of memory, runs alone.
            while waiting and len(pending) < (1 if waiting[0] in again else workers):
                block = waiting.popleft()
                pending[threads.submit(do_block, block)] = block
            first = concurrent.futures.FIRST_COMPLETED
            for future in concurrent.futures.wait(pending, _POLL_SECONDS, first).done:
                block, error = pending.pop(future), future.exception()
                if not machine_fault(error) or getattr(error, "errno", 0) in _NO_ROOM:
                    with contextlib.suppress(_Stopped):
                        outcome.counts.update(future.result())
                        report()
                elif block in again:
                    outcome.error = error
                else:
                    again.add(block)
                    waiting.append(block)
        outcome.interrupted = stop.is_set()
    outcome.interrupted = outcome.interrupted and outcome.computed < total
    return outcome


@contextlib.contextmanager
def _threads(workers: int, stop: threading.Event) -> Iterator[concurrent.futures.Executor]:
    """Give threads that share the cores, also with the threads of matrix products."""

    def prepare() -> None:
        share_cores(workers)
        _thread.stop = stop

    share = max(1, usable_cores() // workers)
    products = ThreadpoolController().select(user_api="blas")
    # Not more than the environment says.
    most = min([share, *(pool["num_threads"] for pool in products.info())])
    threads = concurrent.futures.ThreadPoolExecutor(workers, "manymatch", prepare)
    with products.limit(limits=most):
        try:
            yield threads
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


@contextlib.contextmanager
def _interruptible(stop: threading.Event) -> Iterator[None]:
    """Turn the first Ctrl-C into an orderly stop, also of the threads; a second one is as usual."""
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
