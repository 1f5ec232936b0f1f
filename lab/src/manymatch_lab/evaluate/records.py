"""Records of the pairs of a set, kept as the parts of a run, so that a stopped run continues."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from manymatch.batch.parts import (
    Outcome,
    Run,
    RunProgress,
    open_run,
    read_run,
    run_blocks,
    stop_point,
)

#: The results of one pair in JSON types, with its "index".
Record: TypeAlias = dict[str, Any]

_COLUMNS = {"index": "int64", "record": "string"}
# Pairs of a part.
_BLOCK = 4
# A part that is not complete is written after this time, so that a killed process loses little.
_SECONDS = 10.0


class Records:
    """The records in a folder, by the index of their pair.

    A part holds the pairs of one block that are finished, maybe not all of them. The header says
    what decides the records; a folder with another header is refused.
    """

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        self.folder = folder
        self._run = open_run(folder, header, (), _COLUMNS)
        rows = Run(folder, header, None, _COLUMNS).rows()
        self.by_index = {row["index"]: json.loads(row["record"]) for row in rows}

    def write(self, block: int) -> None:
        """Write the part of a block."""
        items = range(_BLOCK * block, _BLOCK * (block + 1))
        records = ((i, self.by_index[i]) for i in items if i in self.by_index)
        self._run.write(
            block, [{"index": i, "record": json.dumps(r, allow_nan=False)} for i, r in records]
        )

    def first(self, total: int) -> list[Record]:
        """Return the records of the first pairs, in the order of the pairs."""
        return [self.by_index[index] for index in sorted(self.by_index) if index < total]


def read_records(folder: Path) -> tuple[dict[str, Any], list[Record]] | None:
    """Read header and records of an evaluation; None if a folder has none, such as a batch."""
    header = read_run(folder)
    if header is None or "source" not in header:
        return None
    rows = sorted(Run(folder, header, None, _COLUMNS).rows(), key=lambda row: row["index"])
    for name in ("format", "digest"):
        header.pop(name, None)
    return header, [json.loads(row["record"]) for row in rows]


def run_pairs(
    kept: Mapping[str, Records],
    total: int,
    work: Callable[[int, list[str]], Mapping[str, Record]],
    *,
    order: Iterable[int] | None = None,
    repeat: Callable[[Record], bool] = lambda _: False,
    category: Callable[[Record], str] = lambda _: "finished",
    workers: int = 1,
    progress: Callable[[RunProgress], object] | None = None,
    label: str = "",
) -> Outcome:
    """Make the records of the first `total` pairs that are missing or to be repeated.

    `kept` has the records of every configuration by its name. `work` takes the index of a pair and
    the names of the configurations that miss it, and returns their records. From a record, `repeat`
    decides whether its pair is run again, and `category` how progress counts it.
    """
    missing: dict[int, list[str]] = {}
    for name, records in kept.items():
        for index in range(total):
            record = records.by_index.get(index)
            if record is None or repeat(record):
                missing.setdefault(index, []).append(name)
    items: dict[int, list[int]] = {}
    for index in range(total) if order is None else map(int, order):
        if index in missing:
            items.setdefault(index // _BLOCK, []).append(index)

    def do_block(block: int) -> Counter[str]:
        counts: Counter[str] = Counter()
        changed: set[str] = set()
        written = time.monotonic()
        try:
            for index in items[block]:
                stop_point()
                made = work(index, missing[index])
                for name, record in made.items():
                    kept[name].by_index[index] = record
                changed |= made.keys()
                counts[category(next(iter(made.values())))] += 1
                if time.monotonic() - written > _SECONDS:
                    for name in changed:
                        kept[name].write(block)
                    written = time.monotonic()
        finally:
            # Also after Ctrl-C or an error: pairs that are finished are kept.
            for name in changed:
                kept[name].write(block)
        return counts

    return run_blocks(
        {block: len(indices) for block, indices in items.items()},
        do_block,
        workers=workers,
        progress=progress,
        earlier=total - len(missing),
        label=label,
    )
