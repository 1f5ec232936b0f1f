"""Tables of a run: CSV, and Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import re
from typing import TYPE_CHECKING, Any

from manymatch._validate import count, require
from manymatch.io.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    Rows = Callable[[], Iterator[dict[str, Any]]]

# How a cell begins that a spreadsheet may run, and how one that was changed does.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'")
# Rows that are held in memory at once.
_CHUNK = 1024
# What differs between sentences that say the same about several pairs: names in quotes, numbers.
_PARTICULARS = re.compile(r"'[^']*'|\"[^\"]*\"|\d+(?:[.,]\d+)*")


def write_tables(
    folder: Path, columns: Mapping[str, type], rows: Rows, header: Mapping[str, Any]
) -> tuple[list[Path], list[str]]:
    """Write ``pairs.csv`` and, where pyarrow is installed, ``pairs.parquet``.

    `columns` are names and types; any value may be missing in a row. `rows` gives the rows each
    time it is called, and the header becomes metadata of the Parquet file. Returns the files, and
    a sentence where one could not be written.
    """
    files = [folder / "pairs.csv"]
    write_csv(files[0], columns, rows)
    try:
        write_parquet(folder / "pairs.parquet", columns, rows, header)
    except ModuleNotFoundError as error:
        return files, [f"There is no Parquet table: {error}."]
    return [*files, folder / "pairs.parquet"], []


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write a JSON document for people and machines."""
    text = json.dumps(record, indent=2, allow_nan=False)
    write_whole(path, lambda file: file.write(f"{text}\n".encode()))


def write_csv(path: Path, columns: Mapping[str, type], rows: Rows) -> None:
    """Write rows as CSV with a header; what is unknown is empty, numbers are not rounded.

    A spreadsheet takes a text that begins with ``=``, ``+``, ``-``, ``@``, a tab or the end of a
    line for a formula, and names of files come from anywhere. Such a text gets a ``'`` in front,
    and so does one that begins with it; `csv_text` takes it away.
    """

    def write(file: BinaryIO) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        for row in rows():
            writer.writerow([_text(row.get(name)) for name in columns])
        text.flush()
        # The file belongs to the caller, who has yet to put it on disk.
        text.detach()

    write_whole(path, write)


def write_parquet(
    path: Path, columns: Mapping[str, type], rows: Rows, metadata: Mapping[str, Any]
) -> None:
    """Write rows as Parquet; what is unknown is null, and the metadata are JSON."""
    pyarrow = require("pyarrow", "a Parquet table", "tables")
    parquet = require("pyarrow.parquet", "a Parquet table", "tables")

    kinds = {int: "int64", float: "float64", bool: "bool", str: "string"}
    # Seeds may use all 64 bits.
    fields = {name: "uint64" if name == "seed" else kinds[kind] for name, kind in columns.items()}
    schema = pyarrow.schema(fields, metadata={"manymatch": json.dumps(metadata)})

    def write(file: BinaryIO) -> None:
        with parquet.ParquetWriter(file, schema) as writer:
            left = rows()
            while chunk := list(itertools.islice(left, _CHUNK)):
                writer.write_table(pyarrow.Table.from_pylist(chunk, schema=schema))

    write_whole(path, write)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return repr(value)


def csv_text(cell: str) -> str:
    """Return the text that a cell of `write_csv` stands for."""
    return cell.removeprefix("'")


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why pairs failed: what is said of the first, of how many, and whether of all in these words.

    Sentences that differ only in names in quotes and in numbers are one reason.
    """

    sentence: str
    count: int
    same: bool = True

    def __str__(self) -> str:
        return self.sentence if self.same else f"{self.sentence} (and others alike)"


def count_reasons(sentences: Iterable[str]) -> list[Reason]:
    """Group what is said of pairs that failed, the most frequent reason first.

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
