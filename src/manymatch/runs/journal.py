"""The journal of a run: one line per finished pair, safe against being killed at any moment.

The first line is the header, which says what is being computed. It is written whole or not at all.
Every further line is a JSON object with the pair's index. Lines are only ever appended, and are on
disk before the next pair counts as finished; the last one may be torn, and is then dropped when
the run is continued, since its pair was never counted. Any other line that is no record is moved to
a file beside the journal, and its pair is done again.
"""

from __future__ import annotations

import bisect
import contextlib
import fcntl
import itertools
import json
import os
import re
import tempfile
import threading
import time
from array import array
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._files import (
    MissingFileError,
    make_folder,
    open_regular,
    sync_folder,
    whole_file,
    write_whole,
)
from manymatch._remote import RemotePath, is_remote
from manymatch._validate import count, integer
from manymatch.io.colmap_database import SIDE_FILES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO, Self

    # Raises ValueError for a record that is none.
    Check = Callable[[dict[str, Any]], object]

#: Name of the journal in its folder.
NAME = "journal.jsonl"
#: Name of the file of the lines that were no records.
DAMAGED = "journal.damaged"
# Increased when the meaning of a record changes. 2: other verdicts, probabilities of poses. 3:
# focal lengths that were found. 4: another hash of the pairs. 5: matches in a log.
FORMAT = 5

_LOCK = ".lock"
# Longer than any record; what is longer is damaged, and not held in memory.
_LONGEST_LINE = 16_000_000
# At an address: how much is a part of a log; after how many seconds less is one, which grows with
# the time that the run has taken, to a longest wait; and parts that are read at the same time.
_PART_BYTES = 8_000_000
_PART_SECONDS, _WAIT_SHARE, _LONGEST_WAIT = 5.0, 0.02, 60.0
_AT_ONCE = 16
# Read at once to find the end of a line; most records are shorter.
_LINE_BYTES = 4096
# In place of the offset of a pair that is to be done again.
_FORGOTTEN = -1
# Lines whose numbers are told.
_TOLD = 5
_LEFT_OVER = re.compile(rf"\.[0-9a-f]{{32}}\.tmp({'|'.join(SIDE_FILES)})?")


class AppendLog:
    """A file of bytes that is only ever appended to, and is on disk after each call of `append`.

    It is made if there is none. With `size` only so many of its bytes are kept: what was being
    written when a run was killed is dropped. Any thread may call any method.

    At an address, where nothing can be appended to, it consists of parts, files whose names end
    with the offset of their first byte. Bytes wait until there are enough of them for a part, until
    some seconds have passed since the last one, or until `flush` or `close`. `before` is called
    before a part is written, for logs that must be there first. A copy on this machine has what was
    written and read.
    """

    def __init__(
        self, path: Path, size: int | None = None, before: Callable[[], object] = lambda: None
    ) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._before = before
        self._file: BinaryIO | None = None
        self._parts = _Parts(path) if is_remote(path) else None
        try:
            if self._parts is None:
                self._file = path.open("a+b", buffering=0)
            else:
                # Parts are written to their places in it when they are read.
                self._file = tempfile.TemporaryFile("w+b", buffering=0)  # noqa: SIM115
                self._end_at(self._file, self._parts.size)
            self._size = os.fstat(self._file.fileno()).st_size
            if size is not None and size < self._size:
                self._cut(self._file, size)
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def size(self) -> int:
        """Bytes that were appended in all."""
        return self._size

    def append(self, parts: Sequence[bytes]) -> list[int]:
        """Append bytes, wait until they are on disk, and return the offset of each part."""
        with self._lock:
            file = self._opened()
            try:
                data = memoryview(b"".join(parts))
                while data:
                    data = data[file.write(data) :]
                if self._parts is None:
                    os.fsync(file.fileno())
            except OSError:
                # Nothing may follow a part that is not whole.
                with contextlib.suppress(OSError):
                    self._end_at(file, self._size)
                raise
            offsets = list(itertools.accumulate(map(len, parts), initial=self._size))
            self._size = offsets.pop()
            if self._parts is not None and self._parts.due(self._size):
                self.flush()
            return offsets

    def flush(self) -> None:
        """Write what waits; on a disk nothing does."""
        with self._lock:
            file, parts = self._opened(), self._parts
            if parts is not None and parts.size < self._size:
                self._before()
                parts.add(self._read(file, parts.size, self._size - parts.size))

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes from an offset on, fewer if the file ends before."""
        file = self._opened()
        if self._parts is not None:
            with self._lock:
                self._parts.fetch(file, offset, offset + length)
        return self._read(file, offset, length)

    @staticmethod
    def _read(file: BinaryIO, offset: int, length: int) -> bytes:
        found = b""
        while len(found) < length and (
            more := os.pread(file.fileno(), length - len(found), offset + len(found))
        ):
            found += more
        return found

    def read_line(self, offset: int) -> bytes:
        """Read from an offset to the end of a line."""
        line = self.read(offset, _LINE_BYTES)
        while b"\n" not in line and (more := self.read(offset + len(line), len(line))):
            line += more
        return line[: line.find(b"\n") + 1 or None]

    def keep(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Drop the bytes that are in none of some ranges, and close the file."""
        if self._parts is not None:
            self._parts.keep(ranges)
        else:
            with whole_file(self.path) as temporary, temporary.open("xb") as kept:
                for start, end in ranges:
                    for offset in range(start, end, _LONGEST_LINE):
                        kept.write(self.read(offset, min(end - offset, _LONGEST_LINE)))
        self._release()

    def close(self) -> None:
        """Write what waits, and close the file."""
        try:
            if self._file is not None:
                self.flush()
        finally:
            self._release()

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def _opened(self) -> BinaryIO:
        if self._file is None:
            raise RuntimeError(f"{self.path.name} is closed")
        return self._file

    def _cut(self, file: BinaryIO, size: int) -> None:
        if self._parts is not None:
            self._parts.keep([(0, size)])
        self._end_at(file, size)
        os.fsync(file.fileno())
        self._size = size

    @staticmethod
    def _end_at(file: BinaryIO, size: int) -> None:
        os.ftruncate(file.fileno(), size)
        os.lseek(file.fileno(), size, os.SEEK_SET)


class _Parts:
    """Parts of a log at an address: the first has its name, the others the offset behind it.

    Every part is a new file, so that a second run that writes to the same log is found out.
    """

    def __init__(self, path: RemotePath) -> None:
        self._path = path
        self._begin = self._last = time.monotonic()
        self._fetched: set[int] = set()
        name = re.compile(re.escape(path.name) + r"(?:\.(\d{16}))?")
        found = ((name.fullmatch(part.name), part) for part in path.parent.iterdir())
        self._files = {int(match[1] or 0): part for match, part in found if match is not None}
        # Offsets of the first byte of each part, and of the end.
        self._starts = sorted(self._files)
        self.size = max(map(self._end, self._starts), default=0)

    @property
    def exist(self) -> bool:
        """Whether there is any, maybe not the first one."""
        return bool(self._starts)

    def _end(self, start: int) -> int:
        return start + int(self._files[start].info()["size"])

    def due(self, size: int) -> bool:
        """Tell whether bytes up to an offset have waited for long, or are many."""
        now = time.monotonic()
        wait = max(_PART_SECONDS, min(_LONGEST_WAIT, (now - self._begin) * _WAIT_SHARE))
        return size - self.size >= _PART_BYTES or now - self._last >= wait

    def add(self, data: bytes) -> None:
        """Write the next part."""
        name = self._path.name
        part = self._path.with_name(f"{name}.{self.size:016d}" if self.size else name)
        try:
            part.write_bytes(data, new=True)
        except FileExistsError:
            self.size += len(data)  # not again
            raise in_use(self._path.parent) from None  # type: ignore[arg-type]
        self._fetched.add(self.size)
        self._starts.append(self.size)
        self._files[self.size] = part
        self.size += len(data)
        self._last = time.monotonic()

    def fetch(self, file: BinaryIO, start: int, end: int) -> None:
        """Have the bytes between two offsets in the copy; a part is read once."""
        first = max(bisect.bisect(self._starts, start) - 1, 0)
        for at in self._starts[first : bisect.bisect_left(self._starts, end)]:
            if at not in self._fetched:
                data, offset = memoryview(self._data(at)), at
                while data:
                    written = os.pwrite(file.fileno(), data, offset)
                    data, offset = data[written:], offset + written
                self._fetched.add(at)

    def pieces(self) -> Iterator[tuple[int, BinaryIO]]:
        """Go through the parts, each with its offset."""
        if not self._starts:
            raise MissingFileError("there is no such file")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for first in range(0, len(self._starts), _AT_ONCE):
                some = self._starts[first : first + _AT_ONCE]
                for start, data in zip(some, pool.map(self._data, some), strict=True):
                    yield start, BytesIO(data)

    def keep(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Drop the bytes that are in none of some ranges."""
        for start in list(self._starts):
            if any(first <= start and self._end(start) <= end for first, end in ranges):
                continue
            data, part = self._data(start), self._files[start]
            cuts = ((max(first - start, 0), max(end - start, 0)) for first, end in ranges)
            kept = b"".join(data[first:end] for first, end in cuts)
            if kept or start == 0:
                part.write_bytes(kept)
                # What the listing said is not true any more.
                self._files[start] = self._path.with_name(part.name)
            else:
                part.unlink(missing_ok=True)
                self._starts.remove(start)
        self.size = max((end for _, end in ranges), default=0)

    def _data(self, start: int) -> bytes:
        with open_regular(self._files[start]) as file:  # type: ignore[arg-type]
            return file.read()


def in_use(folder: Path) -> ValueError:
    """Make the error of a folder to which another run is writing."""
    return ValueError(f"out must be a folder that no other run is using, got {str(folder)!r}")


class _Offsets:
    """Offsets by index, of which there may be millions."""

    def __init__(self) -> None:
        self._indices, self._values = array("q"), array("q")

    def put(self, index: int, offset: int) -> None:
        """Set an offset."""
        self._indices.append(index)
        self._values.append(offset)

    def by_index(self) -> Iterator[int]:
        """Go through the last offset of every index, in the order of the indices."""
        indices, values = np.array(self._indices), np.array(self._values)
        order = np.argsort(indices, kind="stable")
        indices, values = indices[order], values[order]
        last = np.append(indices[1:] != indices[:-1], True)[: len(indices)]
        for some in np.array_split(values[last & (values != _FORGOTTEN)], 1 + len(values) // 1000):
            yield from some.tolist()


class Journal:
    """Finished pairs of a folder, as records by index; a context manager.

    The folder is made if it does not exist. The header says what is being computed, in JSON types.
    A folder of another run, one that is in use or whose journal has no header raises `ValueError`.
    `check` raises `ValueError` for a record that is none of this run; such lines are set aside
    when the run is continued, and `notes` says so.
    """

    def __init__(
        self,
        folder: Path,
        header: Mapping[str, Any],
        check: Check = lambda _: None,
    ) -> None:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"out must be a folder, got the file {str(folder)!r}")
        make_folder(folder)
        self.folder = folder
        self.path = folder / NAME
        self.notes: list[str] = []
        # Byte offset of the last record of each finished pair; records themselves stay on disk.
        self._offsets = _Offsets()
        with contextlib.ExitStack() as stack:
            # At an address there is no lock; another run is found out by the parts that it writes.
            if not is_remote(folder):
                lock = stack.enter_context((folder / _LOCK).open("ab"))
                try:
                    # The system releases the lock when the process ends, also when it is killed.
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    raise in_use(folder) from None
                remove_left_overs(folder, "", "*/")
            content = {"format": FORMAT, **header}
            if _Parts(self.path).exist if is_remote(self.path) else self.path.exists():
                self._continue(json.loads(_line(content)), check)
            elif is_remote(folder):
                with AppendLog(self.path) as log:
                    log.append([_line(content)])
            else:
                line = _line(content)
                write_whole(self.path, lambda file: file.write(line))
            self._log = stack.enter_context(AppendLog(self.path, before=self._write_before))
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the folder."""
        self._stack.close()

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write records, each with the index of its pair, and wait until they are on disk."""
        given = list(records)
        offsets = self._log.append([_line(record) for record in given])
        for record, offset in zip(given, offsets, strict=True):
            self._offsets.put(record["index"], offset)

    def forget(self, indices: Iterable[int]) -> None:
        """Count pairs as not finished until they are appended again."""
        for index in indices:
            self._offsets.put(index, _FORGOTTEN)

    def records(self) -> Iterator[dict[str, Any]]:
        """Go through the last record of each finished pair, by index, one at a time."""
        for offset in self._offsets.by_index():
            record: dict[str, Any] = json.loads(self._log.read_line(offset))
            yield record

    def _write_before(self) -> None:
        """Write what must be there before the records that wait; for journals with other logs."""

    def _continue(self, wanted: Mapping[str, Any], check: Check) -> None:
        """Check the header, find the finished pairs, drop a torn end, set aside what is damaged."""
        header, damaged, size = self._scan(check)
        _refuse_other(self.folder, header, wanted)
        AppendLog(self.path, size).close()
        if damaged:
            self._set_aside(damaged, size)
            self._scan(check)

    def _scan(self, check: Check) -> tuple[dict[str, Any], dict[int, tuple[int, int]], int]:
        """Find the records; return the header, other lines by their number, and the whole size."""
        damaged: dict[int, tuple[int, int]] = {}
        self._offsets = _Offsets()
        lines = _whole_lines(self.path, check)
        (_, size, header) = next(lines)
        for number, (start, end, record) in enumerate(lines, 2):
            size = end
            if record is None:
                damaged[number] = start, end
            else:
                self._offsets.put(record["index"], start)
        return header or {}, damaged, size

    def _set_aside(self, damaged: Mapping[int, tuple[int, int]], size: int) -> None:
        """Move lines to the file of damaged ones; killed between, they are there twice."""
        starts = [0, *(end for _, end in damaged.values())]
        ends = [*(start for start, _ in damaged.values()), size]
        with (
            AppendLog(self.path) as log,
            AppendLog(self.folder / DAMAGED) as aside,
        ):
            for start, end in damaged.values():
                aside.append([log.read(start, end - start)])
            sync_folder(self.folder)
            log.keep(list(zip(starts, ends, strict=True)))
        told = ", ".join([*map(str, list(damaged)[:_TOLD]), *["..."][: len(damaged) - _TOLD]])
        several = len(damaged) > 1
        were, they = ("were", "they are") if several else ("was", "it is")
        self.notes.append(
            f"{count(len(damaged), 'line')} of {NAME} (number {told}) {were} damaged; {they} in "
            f"{DAMAGED} now, and {'their pairs are' if several else 'its pair is'} done again."
        )


def check_folder(folder: Path, header: Mapping[str, Any]) -> None:
    """Raise what `Journal` would if a folder has the journal of another run; read its header only.

    Of several runs none needs to begin then before the last folder is known to be right.
    """
    if (folder / NAME).exists():
        with contextlib.closing(_whole_lines(folder / NAME, lambda _: None)) as lines:
            _refuse_other(folder, next(lines)[2], json.loads(_line({"format": FORMAT, **header})))


def _refuse_other(folder: Path, header: Any, wanted: Mapping[str, Any]) -> None:
    differing = difference(header, wanted)
    if differing is not None:
        raise ValueError(
            f"out must be a new folder or one of the same run, got {str(folder)!r}, where "
            f"{differing}"
        )


def read_journal(
    folder: Path, check: Check = lambda _: None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read the header and the last record of each finished pair, by index, of a folder.

    A damaged line is a `ValueError`; it is set aside when the run is continued.
    """
    lines = _whole_lines(folder / NAME, check)
    header = next(lines)[2]
    records = {}
    for number, (_, _, record) in enumerate(lines, 2):
        if record is None:
            raise _damaged(folder / NAME, f"line {number} is no record")
        records[record["index"]] = record
    return header or {}, [records[index] for index in sorted(records)]


def stream_journal(folder: Path) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """Return the header of a journal and its whole records as they were appended, one at a time.

    A run may be appending to it. Damaged lines are left out, as their pairs are done again.
    """
    lines = _whole_lines(folder / NAME, lambda _: None)
    header = next(lines)[2] or {}
    return header, (record for _, _, record in lines if record is not None)


def _whole_lines(path: Path, check: Check) -> Generator[tuple[int, int, dict[str, Any] | None]]:
    """Go through the header and all other lines, with the offsets of their start and end.

    A line that is no record is None. The last one, also of a part, is left out if it is not whole:
    it was being written when a run was killed.
    """
    begun = False
    for start, file in _pieces(path):
        if start and not begun:
            break
        with file:
            while line := file.readline(_LONGEST_LINE):
                if not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
                    break
                record = _parsed(line, check if start else _check_header)
                if start == 0 and record is None:
                    break
                begun = True
                yield start, start + len(line), record
                start += len(line)  # noqa: PLW2901 - the offset of the next line
    if not begun:
        raise _damaged(path, "its first line is no header")


def _pieces(path: Path) -> Iterator[tuple[int, BinaryIO]]:
    """Open a journal, or its parts one after another, each with its offset."""
    try:
        if is_remote(path):
            yield from _Parts(path).pieces()
        else:
            yield 0, open_regular(path)
    except ValueError as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, reason: str) -> ValueError:
    return ValueError(f"out must have a whole journal, got {str(path)!r} ({reason})")


def _parsed(line: bytes, check: Check) -> dict[str, Any] | None:
    """Read a line; None if it is no JSON object with the index of a pair, or not as it should."""
    try:
        record = json.loads(line)
        if not isinstance(record, dict):
            return None
        if check is not _check_header:
            integer(record.get("index"), "index", 0, 2**62)
        check(record)
    except (ValueError, RecursionError):
        return None
    return record


def _check_header(record: dict[str, Any]) -> None:
    if "format" not in record:
        raise ValueError("a header has a format")


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def difference(old: Any, new: Any, name: str = "") -> str | None:
    """Name the first part in which two headers differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*new, *(key for key in old if key not in new)]:
            inner = f"{name}.{key}" if name else key
            found = difference(old.get(key), new.get(key), inner)
            if found is not None:
                return found
        return None
    if old == new:
        return None
    if name == "format":
        return f"results are of format {json.dumps(old)}, and this version writes format {new}"
    if name.endswith("_hash"):
        return f"the {name.removesuffix('_hash').replace('_', ' ')} was another one"
    return f"{name} was {json.dumps(old)} and is {json.dumps(new)} now"


def remove_left_overs(folder: Path, *patterns: str) -> None:
    """Remove what a killed run was writing; nobody else is, as the folder is locked.

    The patterns name the folders below it to look into, as `Path.glob` takes them, each with a "/"
    at its end.
    """
    if is_remote(folder):
        return
    for pattern in patterns:
        for path in folder.glob(f"{pattern}.*.tmp*"):
            if _LEFT_OVER.fullmatch(path.name):
                path.unlink(missing_ok=True)
