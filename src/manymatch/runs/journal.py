"""The journal of a run: one line per finished pair, safe against being killed at any moment.

The first line is the header, which says what is being computed. It is written whole or not at all.
Every further line is a JSON object with the pair's index. Lines are only ever appended, and are on
disk before the next pair counts as finished; the last one may be torn, and is then dropped when
the run is continued, since its pair was never counted.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from typing import TYPE_CHECKING, Any

from manymatch._files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO, Self

#: Name of the journal in its folder.
NAME = "journal.jsonl"
# Increased when the meaning of a record changes.
FORMAT = 1

_LOCK = ".lock"
_LEFT_OVER = re.compile(r"\.[0-9a-f]{32}\.tmp")


class Journal:
    """Finished pairs of a folder, as records by index; a context manager.

    The folder is made if it does not exist. The header says what is being computed, in JSON types.
    A folder of another run, one that is in use or has a damaged journal raises `ValueError`.
    """

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"out must be a folder, got the file {str(folder)!r}")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.path = folder / NAME
        # Byte offset of the last record of each finished pair; records themselves stay on disk.
        self._offsets: dict[int, int] = {}
        self._file: BinaryIO | None = None
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context((folder / _LOCK).open("ab"))
            try:
                # The system releases the lock when the process ends, also when it is killed.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ValueError(
                    f"out must be a folder that no other run is using, got {str(folder)!r}"
                ) from None
            remove_left_overs(folder, "", "*/")
            content = {"format": FORMAT, **header}
            if not self.path.exists():
                line = _line(content)
                write_whole(self.path, lambda file: file.write(line))
            else:
                self._continue(json.loads(_line(content)))
            self._file = stack.enter_context(self.path.open("ab", buffering=0))
            self._size = self.path.stat().st_size
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the folder."""
        self._file = None
        self._stack.close()

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write records, each with the index of its pair, and wait until they are on disk."""
        if self._file is None:
            raise RuntimeError("the journal is closed")
        lines, offsets, size = [], {}, self._size
        for record in records:
            lines.append(_line(record))
            offsets[record["index"]] = size
            size += len(lines[-1])
        data = memoryview(b"".join(lines))
        while data:
            data = data[self._file.write(data) :]
        os.fsync(self._file.fileno())
        self._offsets.update(offsets)
        self._size = size

    def records(self) -> Iterator[dict[str, Any]]:
        """Go through the last record of each finished pair, by index, one at a time."""
        with self.path.open("rb") as file:
            for _, offset in sorted(self._offsets.items()):
                file.seek(offset)
                record: dict[str, Any] = json.loads(file.readline())
                yield record

    def _continue(self, wanted: Mapping[str, Any]) -> None:
        """Check the header, find the finished pairs and drop a torn end."""
        lines = _whole_lines(self.path)
        good, header = next(lines)
        difference = _difference(header, wanted)
        if difference is not None:
            raise ValueError(
                "out must be a new folder or one of the same run, got "
                f"{str(self.folder)!r}, where {difference}"
            )
        for end, record in lines:
            self._offsets[record["index"]] = good
            good = end
        if good < self.path.stat().st_size:
            with self.path.open("r+b") as file:
                file.truncate(good)
                os.fsync(file.fileno())


def read_journal(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read the header and the last record of each finished pair, by index, of a folder."""
    lines = _whole_lines(folder / NAME)
    header = next(lines)[1]
    records = {record["index"]: record for _, record in lines}
    return header, [records[index] for index in sorted(records)]


def _whole_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Go through the header and all records, each with the offset of its end.

    What is no record is left out at the end of the file, where it is the line that was being
    written when a run was killed, and an error before it.
    """
    end = torn = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            record = _parsed(line)
            if not ("format" in record if number == 1 else isinstance(record.get("index"), int)):
                torn = torn or number
                continue
            if torn:
                break
            end += len(line)
            yield end, record
        else:
            if end:
                return
    reason = "its first line is no header" if not end else f"line {torn} is no record"
    raise ValueError(f"out must have a whole journal, got {str(path)!r} ({reason})")


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, Any]:
    """Read a line; one that is not whole or no JSON object is an empty record."""
    try:
        record = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _difference(old: Any, new: Any, name: str = "") -> str | None:
    """Name the first part in which two headers differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*new, *(key for key in old if key not in new)]:
            inner = f"{name}.{key}" if name else key
            found = _difference(old.get(key), new.get(key), inner)
            if found is not None:
                return found
        return None
    if old == new:
        return None
    if name.endswith("_hash"):
        return f"the {name.removesuffix('_hash').replace('_', ' ')} was another one"
    return f"{name} was {json.dumps(old)} and is {json.dumps(new)} now"


def remove_left_overs(folder: Path, *patterns: str) -> None:
    """Remove what a killed run was writing; nobody else is, as the folder is locked.

    The patterns name the folders below it to look into, as `Path.glob` takes them, each with a "/"
    at its end.
    """
    for pattern in patterns:
        for path in folder.glob(f"{pattern}.*.tmp"):
            if _LEFT_OVER.fullmatch(path.name):
                path.unlink(missing_ok=True)
