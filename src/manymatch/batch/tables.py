"""Tables of a run as CSV and Parquet, and why pairs of it failed."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

from manymatch._validate import count, require
from manymatch.io.files import whole_file, write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

# How a cell begins that a spreadsheet may run, and how one that was changed does.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'")
# Rows that become Python objects at once.
_CHUNK = 1024
# Names in quotes and numbers: sentences that differ only there say the same about several pairs.
_PARTICULARS = re.compile(r"'[^']*'|\"[^\"]*\"|\d+(?:[.,]\d+)*")


def write_tables(
    folder: Path,
    columns: Mapping[str, type],
    rows: Callable[[], Iterable[Mapping[str, Any]]],
    header: Mapping[str, Any],
) -> list[Path]:
    """Write ``pairs.csv`` and ``pairs.parquet``, whose metadata are the header as JSON.

    Unknown values are empty or null; numbers are not rounded. A spreadsheet takes a text that
    begins with ``=``, ``+``, ``-``, ``@``, a tab or the end of a line for a formula, and names of
    files come from anywhere. In the CSV file such a text gets a ``'`` in front, and so does one
    that begins with it; `csv_text` removes it.
    """
    arrow = require("pyarrow", "a Parquet table", "images")
    parquet = require("pyarrow.parquet", "a Parquet table", "images")
    fields = {name: arrow_type(name, kind) for name, kind in columns.items()}
    described = arrow.schema(fields, metadata={"manymatch": json.dumps(header)})
    files = [folder / "pairs.csv", folder / "pairs.parquet"]
    with contextlib.ExitStack() as stack:
        places = [stack.enter_context(whole_file(path)) for path in files]
        text = stack.enter_context(places[0].open("x", encoding="utf-8", newline=""))
        writer = csv.writer(text, lineterminator="\n")
        table = stack.enter_context(parquet.ParquetWriter(str(places[1]), described))
        writer.writerow(columns)
        chunk: list[Mapping[str, Any]] = []
        for row in rows():
            writer.writerow([_cell(row.get(name)) for name in columns])
            chunk.append(row)
            if len(chunk) == _CHUNK:
                table.write_table(arrow.Table.from_pylist(chunk, schema=described))
                chunk = []
        table.write_table(arrow.Table.from_pylist(chunk, schema=described))
    return files


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write a JSON document for people and machines."""
    write_text(path, f"{json.dumps(record, indent=2, allow_nan=False)}\n")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return repr(value)


def csv_text(cell: str) -> str:
    """Return the text that a cell of ``pairs.csv`` stands for."""
    return cell.removeprefix("'")


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why pairs failed: the sentence of the first, their number, and whether all have this one.

    Sentences that differ only in names in quotes and in numbers are one reason.
    """

    sentence: str
    count: int
    same: bool = True

    def __str__(self) -> str:
        return self.sentence if self.same else f"{self.sentence} (and others alike)"


def count_reasons(sentences: Iterable[str]) -> list[Reason]:
    """Group the errors of pairs that failed, the most frequent reason first.

    Examples
    --------
    >>> [(str(r), r.count) for r in count_reasons(["no match", "no file 'a'", "no file 'b'"])]
    [("no file 'a' (and others alike)", 2), ('no match', 1)]
    """
    found: dict[str, Reason] = {}
    for sentence in sentences:
        key = _PARTICULARS.sub("", sentence)
        seen = found.get(key, Reason(sentence, 0))
        same = seen.same and seen.sentence == sentence
        found[key] = Reason(seen.sentence, seen.count + 1, same)
    return sorted(found.values(), key=lambda reason: -reason.count)


def reasons_sentence(reasons: Sequence[Reason], failed: str, total: int, noun: str = "pair") -> str:
    """Say how many of a number of pairs failed, in what, and why.

    Examples
    --------
    >>> reasons_sentence(count_reasons(["no match", "no file"]), "could not be run", 5)
    '2 of 5 pairs could not be run; 1 pair: no match; 1 pair: no file.'
    """
    number = sum(reason.count for reason in reasons)
    begin = f"{number:,} of {count(total, noun)} {failed}"
    if len(reasons) == 1:
        text = f"{begin}: {reasons[0]}"
    else:
        text = f"{begin}; {'; '.join(f'{count(r.count, noun)}: {r}' for r in reasons)}"
    return text if text.endswith(("?", ".")) else f"{text}."


def arrow_type(name: str, kind: type) -> str:
    """Return the type of a column in Parquet; seeds may use all 64 bits."""
    kinds = {int: "int64", float: "float64", bool: "bool", str: "string"}
    return "uint64" if name == "seed" else kinds[kind]
