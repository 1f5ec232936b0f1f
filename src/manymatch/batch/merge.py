"""A batch over several machines: each works on a shard of the pairs, and one joins the results.

A shard is a batch of its own in a folder ``shards/03-of-16`` below that of the whole batch, or
anywhere else. Shards share nothing while they run, so that any scheduler can start them, in any
order and several times. Joined, they are an ordinary batch.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import choice, count, flag, integer
from manymatch.batch import CAMERA_PER
from manymatch.batch.batch import JOURNAL, BatchSummary, counted, finish
from manymatch.batch.focals import FirstPass
from manymatch.batch.journal import FORMAT, NAME, difference, stream_journal
from manymatch.batch.match_store import BatchJournal, LogFile
from manymatch.batch.outputs import check_batch_formats, write_outputs
from manymatch.batch.rows import ERROR, PACKED, STORED, check_row, columns
from manymatch.batch.runner import Run
from manymatch.batch.shards import FOLDER, Shard
from manymatch.io.files import as_folder, limit, output_folder, reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from manymatch.io.match_log import PackedMatches

# Pairs that are on disk before the next ones are read, with their matches.
_CHUNK = 256
# Shards that a sentence lists.
_TOLD = 10
# State of a pair in the joined journal.
_ABSENT, _FAILED, _STALE, _DONE = range(4)


def merge_batch(
    out_folder: object, shards: Iterable[object] = (), formats: Iterable[str] = ()
) -> BatchSummary:
    """Join shards of a batch into one batch, as if one run had done all of them.

    It can be called at any time and again, also while shards are missing or not finished: the
    folder then has what there is, and the notes of the summary say what is not. Afterwards it is
    an ordinary folder of `run_batch`, which can finish what is missing.

    Parameters
    ----------
    out_folder : path
        Folder of the whole batch.
    shards : iterable of paths
        Folders of shards that are elsewhere; by default those of ``out_folder/shards``.
    formats : iterable of {"parquet", "npz", "h5", "colmap", "colmap-db"}
        Files to write of the matches of all pairs, as in `run_batch`; the shards must have kept
        their matches, which they do if any format was asked of them.

    Raises
    ------
    ValueError
        If there is no shard, a folder is none, or shards are of different batches: the first
        difference is named.

    Examples
    --------
    >>> merge_batch("out/batch", formats=["colmap-db"])              # doctest: +SKIP
    """
    start = time.monotonic()
    out = output_folder(out_folder, "out")
    given = [as_folder(shard, "shards") for shard in shards]
    folders = given or _below(out)
    headers = [_header(folder) for folder in folders]
    common = {name: value for name, value in headers[0].items() if name not in ("format", "shard")}
    for folder, header in zip(folders, headers, strict=True):
        differing = difference(_without_number(headers[0]), _without_number(header))
        if differing is not None:
            raise ValueError(
                f"shards must be of one batch, got {str(folder)!r}, where {differing}, unlike "
                f"{str(folders[0])!r}"
            )
    chosen = check_batch_formats(formats)
    if chosen and not common["matches"]:
        raise ValueError(
            f"formats must be left out where the shards did not keep their matches, got "
            f"{chosen[0]!r}; give --format to the shards"
        )
    total = common["pair_count"]
    with BatchJournal(out, common, lambda row: check_row(row, None, total)) as journal:
        state = np.zeros(total, dtype=np.int8)
        for row in journal.records():
            state[row["index"]] = _state(row)
        before, damaged = state.copy(), dict.fromkeys(map(str, folders), 0)

        def bring(first: FirstPass | None = None) -> None:
            for folder in folders:
                for rows in _chunks(folder, state, first, damaged, matches=common["matches"]):
                    journal.append(rows)

        bring()
        added = int(np.count_nonzero(state > before))
        if common["camera_per"] != "pair":
            # Pairs that were matched again with the focal lengths that all pairs decide.
            first = FirstPass.of((row["index"], row) for row in journal.records())
            for row in journal.records():
                state[row["index"]] = _state(row, first)
            before = state.copy()
            bring(first)
            added = max(added, int(np.count_nonzero(state > before)))
        run = Run({JOURNAL: journal}, total, **counted())
        notes = [*_missing(headers, state), *_damaged(damaged)]
        files = []
        if chosen:
            files = write_outputs(journal, chosen, common["camera_per"])
        table = columns(common["with_rank_one"])
        return finish(journal, run, added, total, table, common, files, start, notes)


def _below(out: Path) -> list[Path]:
    folders = sorted(path.parent for path in out.glob(f"{FOLDER}/*/{NAME}"))
    if not folders:
        raise ValueError(
            f"out must have shards below it ({FOLDER}/1-of-2 and so on), or their folders must "
            f"be given, got {str(out)!r}"
        )
    return folders


def _header(folder: Path) -> dict[str, Any]:
    header, records = stream_journal(folder)
    records.close()  # type: ignore[attr-defined]
    if "shard" not in header:
        raise ValueError(f"shards must be folders of shards, got the whole batch {str(folder)!r}")
    differing = difference(header["format"], FORMAT, "format")
    if differing is not None:
        raise ValueError(f"shards must be of this version, got {str(folder)!r}, where {differing}")
    # It may come from elsewhere, and what it says decides how much memory is needed.
    with reading(folder / NAME, "the journal of a shard", ValueError):
        Shard.of(header["shard"])
        integer(header.get("pair_count"), "pair_count", 1, limit("records"))
        choice(header.get("camera_per"), "camera_per", CAMERA_PER)
        for name in ("matches", "with_rank_one"):
            flag(header.get(name), name)
    return header


def _without_number(header: dict[str, Any]) -> dict[str, Any]:
    return {**header, "shard": f"of {Shard.of(header['shard']).count}"}


def _state(row: dict[str, Any], first: FirstPass | None = None) -> int:
    if row["verdict"] == ERROR:
        return _FAILED
    return _STALE if first is not None and first.is_stale(row) else _DONE


def _chunks(
    folder: Path, state: Any, first: FirstPass | None, damaged: dict[str, int], *, matches: bool
) -> Iterator[list[dict[str, Any]]]:
    """Go through the rows of a shard that say more than those that are there; update the state.

    With `matches` they come with theirs; rows whose matches are damaged are counted and left out.
    """
    rows = []
    _, records = stream_journal(folder)
    with contextlib.ExitStack() as stack:
        log = None
        if matches:
            with contextlib.suppress(ValueError):
                log = stack.enter_context(LogFile(folder))
        for row in records:
            with contextlib.suppress(ValueError):
                check_row(row, None, len(state))
                if _state(row, first) > state[row["index"]]:
                    if matches and row["verdict"] != ERROR:
                        try:
                            row[PACKED] = _packed(log, row.pop(STORED, None))
                        except ValueError:
                            damaged[str(folder)] += 1
                            continue
                    state[row["index"]] = _state(row, first)
                    rows.append(row)
            if len(rows) >= _CHUNK:
                yield rows
                rows = []
    yield rows


def _packed(log: LogFile | None, place: tuple[int, int] | None) -> PackedMatches:
    if log is None or place is None:
        raise ValueError("there are no matches")
    return log.packed(*place)


def _damaged(damaged: dict[str, int]) -> list[str]:
    return [
        f"The matches of {count(number, 'pair')} in {folder} are damaged; its shard run again, "
        "and joined again, has them."
        for folder, number in damaged.items()
        if number
    ]


def _missing(headers: Sequence[dict[str, Any]], state: Any) -> list[str]:
    """Say which shards and how many pairs are not there."""
    left, stale = (int(np.count_nonzero(state == kind)) for kind in (_ABSENT, _STALE))
    if not left:
        return [
            f"{stale:,} of {count(len(state), 'pair')} are to be matched with the focal lengths "
            "that all pairs decide: the shards run and joined again do that, or the batch itself."
        ] * (stale > 0)
    shards = [Shard.of(header["shard"]) for header in headers]
    absent = sorted(set(range(1, shards[0].count + 1)) - {shard.number for shard in shards})
    notes = [f"{left:,} of {count(len(state), 'pair')} are not finished yet."]
    if absent:
        told = ", ".join([*map(str, absent[:_TOLD]), *["..."][: max(len(absent) - _TOLD, 0)]])
        notes.append(f"Of {count(shards[0].count, 'shard')} these were not given: {told}.")
    return notes
