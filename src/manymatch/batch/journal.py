"""The journal of a run: one line per finished pair, safe against being killed at any moment.

The first line is the header, which says what is being computed. It is written whole or not at all.
Every further line is a JSON object with the pair's index. Lines are only ever appended, and are on
disk before the next pair counts as finished; the last one may be torn, and is then dropped when
the run is continued, since its pair was never counted. Any other line that is no record is moved to
a file beside the journal, and its pair is done again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import count, integer
from manymatch.batch.append_log import AppendLog, LogParts, in_use
from manymatch.io.colmap_matches import SIDE_FILES
from manymatch.io.files import (
    make_folder,
    open_regular,
    sync_folder,
    write_whole,
)
from manymatch.io.remote import is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
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
# In place of the offset of a pair that is to be done again.
_FORGOTTEN = -1
# Lines whose numbers are told.
_TOLD = 5
_LEFT_OVER = re.compile(rf"\.[0-9a-f]{{32}}\.tmp({'|'.join(SIDE_FILES)})?")


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
            if LogParts(self.path).exist if is_remote(self.path) else self.path.exists():
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
            yield from LogParts(path).pieces()
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
