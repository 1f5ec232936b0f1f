"""Matches of a batch: one log beside the journal, written with it and read pair by pair.

The records of a pair are appended to ``matches.log`` and on disk before the row of the pair, which
says where they are, is appended to the journal. What a killed run left after the last of these is
dropped when the batch is continued. A pair whose records are damaged is done again then.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import count, integer, refusal
from manymatch.batch.append_log import AppendLog
from manymatch.batch.journal import FORMAT, NAME, Journal, difference, stream_journal
from manymatch.batch.rows import ERROR, PACKED, STORED, check_row
from manymatch.io.files import as_path, limit, open_regular, reading
from manymatch.io.match_log import LogReader, LogWriter, MatchStore
from manymatch.io.match_parquet import MATCHES_PARQUET, ParquetMatches
from manymatch.io.remote import is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from typing import BinaryIO, Self

    from manymatch._validate import IndexArray
    from manymatch.io.match_log import PackedMatches
    from manymatch.io.matches import PairMatches

#: Name of the log in the folder of a batch.
LOG = "matches.log"
_LOG_WANTED = "the log of the matches of a batch"
_WANTED = "the folder of a batch that keeps its matches, or its matches.parquet"


class BatchJournal(Journal):
    """The journal of a batch and, if its header says so, the log of its matches.

    Rows that are appended have their matches as `PACKED`, those that are read are without.
    """

    def __init__(
        self,
        folder: Path,
        header: Mapping[str, Any],
        check: Callable[[dict[str, Any]], object],
    ) -> None:
        total = header["pair_count"]
        # Offset and length of the records of each pair; negative where there is none.
        self._places = np.full((total if header["matches"] else 0, 2), -1, dtype=np.int64)
        self._matches: AppendLog | None = None

        def checked(row: dict[str, Any]) -> None:
            check(row)
            if len(self._places):
                if row["verdict"] != ERROR and STORED not in row:
                    raise ValueError(f"{STORED} is missing")
                self._places[row["index"]] = row.get(STORED, (-1, -1))

        super().__init__(folder, header, checked)
        if header["matches"]:
            with contextlib.ExitStack() as stack:
                stack.callback(self.close)
                self._open_matches()
                stack.pop_all()

    def _open_matches(self) -> None:
        """Open the log without what no row mentions, and forget pairs whose matches are damaged."""
        kept = np.flatnonzero(self._places[:, 0] >= 0)
        path = self.folder / LOG
        self._matches = AppendLog(path)
        self._reader, self._writer = LogReader(self._matches.read), LogWriter()
        damaged = kept[self._reader.damaged(self._places[kept])]
        self._places[damaged] = -1
        end = int(self._places.sum(axis=1).max(initial=0))
        if end < self._matches.size:
            self._matches.close()
            self._matches = AppendLog(path, end)
            self._reader = LogReader(self._matches.read)
        if damaged.size:
            self.forget(damaged.tolist())
            several = len(damaged) > 1
            self.notes.append(
                f"The matches of {count(len(damaged), 'pair')} in {LOG} were damaged; "
                f"{'these pairs are' if several else 'this pair is'} done again."
            )

    def close(self) -> None:
        """Release the folder."""
        try:
            super().close()
        finally:
            if self._matches is not None:
                self._matches.close()

    def _write_before(self) -> None:
        if self._matches is not None:
            self._matches.flush()

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write the matches, then the rows, and wait until they are on disk."""
        rows = [dict(record) for record in records]
        packed = {place: row.pop(PACKED) for place, row in enumerate(rows) if PACKED in row}
        if packed and self._matches is not None:
            made, places = self._writer.records(packed.values(), self._matches.size)
            try:
                self._matches.append(made)
            except BaseException:
                self._writer.forget()
                raise
            for place, stored in zip(packed, places, strict=True):
                rows[place][STORED] = stored
        super().append(rows)

    def matches(self, row: Mapping[str, Any]) -> PairMatches:
        """Return the matches of a row; `ValueError` if they cannot be read."""
        with reading(self.folder / LOG, _LOG_WANTED, ValueError):
            return self._reader.matches(*row[STORED])

    def packed(self, row: Mapping[str, Any]) -> PackedMatches:
        """Return the same as bytes."""
        with reading(self.folder / LOG, _LOG_WANTED, ValueError):
            return self._reader.packed(*row[STORED])


class LogFile(LogReader):
    """The log of a folder, of a batch that may be running; a context manager."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOG
        self._file: BinaryIO | AppendLog
        if is_remote(folder):
            # Nothing is written there, as nothing is appended.
            self._file = AppendLog(self.path)
            super().__init__(self._file.read)
            return
        with reading(self.path, _LOG_WANTED, ValueError):
            file = self._file = open_regular(self.path)
        super().__init__(lambda offset, length: os.pread(file.fileno(), length, offset))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LogMatches(MatchStore):
    """Matches of a batch, finished or not, from its journal and its log."""

    def __init__(self, folder: Path) -> None:
        header, rows = stream_journal(folder)
        with reading(folder / NAME, "the journal of a batch", ValueError):
            differing = difference(header["format"], FORMAT, "format")
            if differing is not None:
                raise ValueError(differing)
            if header.get("matches") is not True:
                raise ValueError("its batch did not keep the matches, which --format does")
            total = integer(header.get("pair_count"), "pair_count", 1, limit("records"))
        places = np.full((total, 2), -1, dtype=np.int64)
        numbers = np.zeros((total, 2), dtype=np.int32)
        images: dict[str, int] = {}
        for row in rows:
            with contextlib.suppress(ValueError):
                check_row(row, None, total)
                places[row["index"]] = row.get(STORED, (-1, -1))
                names = row["name0"], row["name1"]
                numbers[row["index"]] = [images.setdefault(name, len(images)) for name in names]
        self._indices = np.flatnonzero(places[:, 0] >= 0)
        self._places, self._numbers = places[self._indices], numbers[self._indices]
        self._images = list(images)
        self._log = LogFile(folder)

    @property
    def indices(self) -> IndexArray:
        """Indices of the pairs that have matches, in increasing order."""
        return self._indices

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def _names(self, place: int) -> tuple[str, str]:
        first, second = self._numbers[place].tolist()
        return self._images[first], self._images[second]

    def _matches(self, place: int) -> PairMatches:
        with reading(self._log.path, _LOG_WANTED, ValueError):
            return self._log.matches(*self._places[place].tolist())


def read_matches(path: object) -> MatchStore:
    """Open the matches of a batch, to read them pair by pair.

    Parameters
    ----------
    path : path
        The folder of a batch, or of a shard, that keeps its matches, which it does if any format
        was asked for; it may still be running. Or a ``matches.parquet``, or the folder that has
        it, beside its ``keypoints.parquet``.

    Returns
    -------
    MatchStore
        ``store[index]`` and ``store.by_names(name0, name1)`` are `PairMatches`; ``store.items()``
        goes through all pairs in bounded memory.

    Raises
    ------
    ValueError
        If there are no matches at this place, or they are damaged.

    Examples
    --------
    >>> with read_matches("out/batch") as store:                      # doctest: +SKIP
    ...     pair = store.by_names("a.jpg", "b.jpg")
    ...     pair.keypoints0[pair.matches[:, 0]], pair.pose
    """
    place = as_path(path)
    if (place / NAME).is_file() and (place / LOG).is_file():
        return LogMatches(place)
    file = place / MATCHES_PARQUET if place.is_dir() else place
    if not file.is_file() or file.suffix != ".parquet":
        raise refusal("path", _WANTED, str(place))
    return ParquetMatches(file)
