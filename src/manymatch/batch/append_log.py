"""Logs of a run: files that are only ever appended to, on disk or at an address."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import os
import re
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import TYPE_CHECKING

from manymatch.io.files import MissingFileError, open_regular, whole_file
from manymatch.io.remote import RemotePath, is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO, Self

# At an address: how much is a part of a log; after how many seconds less is one, which grows with
# the time that the run has taken, to a longest wait; and parts that are read at the same time.
_PART_BYTES = 8_000_000
_PART_SECONDS, _WAIT_SHARE, _LONGEST_WAIT = 5.0, 0.02, 60.0
_AT_ONCE = 16
# Read at once to find the end of a line; most records are shorter.
_LINE_BYTES = 4096
# Copied at once.
_COPIED = 16_000_000


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
        self._parts = LogParts(path) if is_remote(path) else None
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
                    for offset in range(start, end, _COPIED):
                        kept.write(self.read(offset, min(end - offset, _COPIED)))
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


class LogParts:
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
