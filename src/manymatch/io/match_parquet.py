"""Matches of many pairs as two Parquet files: one row per pair, and one per list of keypoints.

``matches.parquet`` has the pairs in increasing order of their index, in groups of rows of which
one is read to get one pair; ``keypoints.parquet`` has the keypoints of each image once. Both are
plain tables for any tool that reads Parquet.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import integer, require
from manymatch.geometry.pose import RelativePose
from manymatch.io.files import as_path, limit, open_regular, reading, too_large, whole_file
from manymatch.io.match_log import MatchStore, Recent, join_config, unpack_own, unpack_points
from manymatch.io.matches import ALTERNATIVE_ARRAYS, AlternativePose, PairMatches, to_json
from manymatch.io.remote import is_remote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import BinaryIO, Self

    from manymatch._validate import FloatArray, IndexArray
    from manymatch.io.match_log import PackedMatches

#: Names of the two files in their folder.
MATCHES_PARQUET, KEYPOINTS_PARQUET = "matches.parquet", "keypoints.parquet"
_WANTED = "a Parquet file of matches, as batches write it"
# Rows of a group at most, and bytes of their numbers, after which a group is written.
_GROUP_PAIRS, _GROUP_IMAGES, _GROUP_BYTES = 1024, 64, 64_000_000
# Lists of keypoints that a writer remembers, and groups of keypoints that a reader holds.
_REMEMBERED, _HELD = 1_000_000, 8
_MOST_GROUPS = 1_000_000
# Of the description of the groups at the end of a file; two million pairs take 6 MB.
_LONGEST_FOOTER = 16_000_000
# Where it has the groups, their columns, and of these the numbers of values and of bytes.
_GROUPS, _COLUMNS, _CHUNK, _VALUES, _BYTES = 4, 1, 3, 5, 6


def _schemas() -> tuple[Any, Any, Any]:
    """Return pyarrow and the two schemas."""
    arrow = require("pyarrow", "a Parquet file of matches", "tables")
    ints, singles, doubles = (
        arrow.list_(kind()) for kind in (arrow.int32, arrow.float32, arrow.float64)
    )
    alternative = arrow.struct(
        {"pose": doubles, "probability": arrow.float64(), "matches0": ints, "matches1": ints}
    )
    matches = {
        "index": arrow.int64(),
        **dict.fromkeys(("name0", "name1"), arrow.string()),
        **dict.fromkeys(("keypoints0", "keypoints1"), arrow.int64()),
        **dict.fromkeys(("matches0", "matches1"), ints),
        "confidence": singles,
        "source": ints,
        "source_names": arrow.list_(arrow.string()),
        "pose": doubles,
        "alternatives": arrow.list_(alternative),
        **dict.fromkeys(("settings", "config"), arrow.string()),
    }
    keypoints = {"id": arrow.int64(), "image": arrow.string(), "x": doubles, "y": doubles}
    return arrow, arrow.schema(matches), arrow.schema(keypoints)


class ParquetMatchWriter:
    """Writes pairs, in increasing order of their index; used in a ``with`` statement.

    Both files get their names when the block ends without an error.

    ``matches.parquet`` has the columns ``index``, ``name0``, ``name1``; ``keypoints0`` and
    ``keypoints1``, the ``id`` of their keypoints in ``keypoints.parquet``; ``matches0`` and
    ``matches1``, indices into these; ``confidence``; ``source``, which of ``source_names`` a match
    comes from; ``pose``, the 16 numbers of a 4x4 matrix, row by row, which maps camera-0 to
    camera-1 coordinates; ``alternatives`` with a pose, probability and matches each; ``settings``
    and ``config``, JSON: what the matches were made with, and the cameras. ``keypoints.parquet``
    has ``id``, from 0 on, the name of the ``image``, ``x``, ``y``.

    Parameters
    ----------
    folder : Path
        An existing folder.
    """

    def __init__(self, folder: Path) -> None:
        self._arrow, *self._schemas = _schemas()
        self.files = (folder / MATCHES_PARQUET, folder / KEYPOINTS_PARQUET)
        self._rows: list[dict[str, Any]] = []
        self._points: list[dict[str, Any]] = []
        self._sizes = [0, 0]
        self._ids: Recent[bytes, int] = Recent(_REMEMBERED)
        self._next = 0

    def __enter__(self) -> Self:
        parquet = require("pyarrow.parquet", "a Parquet file of matches", "tables")
        with contextlib.ExitStack() as stack:
            # The matches get their name after the keypoints.
            beside = [stack.enter_context(whole_file(path)) for path in self.files]
            self._writers = [
                stack.enter_context(
                    parquet.ParquetWriter(
                        str(path), schema, compression="zstd", write_page_checksum=True
                    )
                )
                for path, schema in zip(beside, self._schemas, strict=True)
            ]
            stack.push(self._finish)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def _finish(self, kind: object, *_: object) -> None:
        """Write what is left, before the files are closed."""
        if kind is None:
            self._flush(0)
            self._flush(1)

    def add(self, index: int, name0: str, name1: str, packed: PackedMatches) -> None:
        """Add one pair, as `pack_matches` returns it."""
        header, arrays = unpack_own(packed)
        first, second, (_, common) = packed.parts
        matches = arrays["matches"]
        poses, probability, of_others = (
            arrays.get(name, matches[:0]) for name in ALTERNATIVE_ARRAYS
        )
        row = {
            "index": index,
            "name0": name0,
            "name1": name1,
            "keypoints0": self._keypoints(name0, *first),
            "keypoints1": self._keypoints(name1, *second),
            "matches0": matches[:, 0],
            "matches1": matches[:, 1],
            "confidence": arrays.get("confidence"),
            "source": arrays.get("source"),
            "source_names": list(header.get("names", ())),
            "pose": arrays["pose"].ravel() if "pose" in arrays else None,
            "alternatives": [
                {
                    "pose": pose.ravel().tolist(),
                    "probability": float(probability[number]),
                    **{
                        f"matches{k}": of_others[of_others[:, 0] == number, 1 + k].tolist()
                        for k in (0, 1)
                    },
                }
                for number, pose in enumerate(poses)
            ],
            "settings": None if common == b"null" else common.decode(),
            "config": to_json(header["config"], "config"),
        }
        self._put(0, self._rows, row, 24 * (len(matches) + len(of_others)), _GROUP_PAIRS)

    def _keypoints(self, name: str, digest: bytes, part: bytes) -> int:
        number = self._ids.get(digest)
        if number is None:
            number = self._next
            self._next += 1
            points = unpack_points(part)
            row = {"id": number, "image": name, "x": points[:, 0], "y": points[:, 1]}
            self._put(1, self._points, row, points.nbytes, _GROUP_IMAGES)
        self._ids.put(digest, number)
        return number

    def _put(self, which: int, rows: list[Any], row: Any, size: int, most: int) -> None:
        rows.append(row)
        self._sizes[which] += size
        if len(rows) >= most or self._sizes[which] > _GROUP_BYTES:
            self._flush(which)

    def _flush(self, which: int) -> None:
        """Write the rows of a group."""
        rows, schema = (self._rows, self._points)[which], self._schemas[which]
        if rows:
            columns = [
                self._column([row[field.name] for row in rows], field.type) for field in schema
            ]
            self._writers[which].write_table(
                self._arrow.Table.from_arrays(columns, schema=schema), row_group_size=len(rows)
            )
        rows.clear()
        self._sizes[which] = 0

    def _column(self, values: Sequence[Any], kind: Any) -> Any:
        """Make a column, from NumPy arrays without a Python object for every number."""
        arrow = self._arrow
        if not any(isinstance(value, np.ndarray) for value in values):
            return arrow.array(values, kind)
        lengths = [0 if value is None else len(value) for value in values]
        flat = np.concatenate([value for value in values if value is not None])
        return arrow.ListArray.from_arrays(
            arrow.array(np.concatenate([[0], np.cumsum(lengths)]), arrow.int32()),
            arrow.array(flat.astype(kind.value_type.to_pandas_dtype()), kind.value_type),
            mask=arrow.array([value is None for value in values]),
        )


class ParquetMatches(MatchStore):
    """Matches of `ParquetMatchWriter`, of which one group of rows is read at a time.

    Parameters
    ----------
    path : path
        ``matches.parquet``; the keypoints are in the same folder.
    """

    def __init__(self, path: object) -> None:
        self._arrow, *schemas = _schemas()
        self._path = as_path(path)
        paths = (self._path, self._path.with_name(KEYPOINTS_PARQUET))
        with contextlib.ExitStack() as stack:
            self._pairs, self._keypoints = (
                stack.enter_context(_Groups(path, schema))
                for path, schema in zip(paths, schemas, strict=True)
            )
            groups = (self._pairs.read(k, ["index"]) for k in range(self._pairs.num_groups))
            with reading(self._path, _WANTED, *self._errors):
                found = [_numbers(group["index"]) for group in groups]
                self._indices = np.concatenate([np.zeros(0, dtype=np.int64), *found])
                if len(self._indices) and (
                    self._indices[0] < 0 or not (np.diff(self._indices) > 0).all()
                ):
                    raise ValueError("its pairs are not in increasing order")
            self._stack = stack.pop_all()
        # Of pairs the last group that was read, and of names.
        self._group: Recent[int, Any] = Recent(1)
        self._names_group: Recent[int, Any] = Recent(1)
        self._points: Recent[int, Any] = Recent(_HELD)

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        lib = self._arrow.lib
        return (ValueError, LookupError, TypeError, OSError, RecursionError, lib.ArrowException)

    @property
    def indices(self) -> IndexArray:
        """Indices of the pairs that have matches, in increasing order."""
        return self._indices

    def close(self) -> None:
        """Close the files."""
        self._stack.close()

    def _names(self, place: int) -> tuple[str, str]:
        with reading(self._path, _WANTED, *self._errors):
            number, row = self._pairs.locate(place)
            names = ["name0", "name1"]
            group = self._names_group.find(number, lambda: self._pairs.read(number, names))
            return str(group["name0"][row]), str(group["name1"][row])

    def _matches(self, place: int) -> PairMatches:
        with reading(self._path, _WANTED, *self._errors):
            number, at = self._pairs.locate(place)
            group = self._group.find(number, lambda: self._pairs.read(number))
            row = {name: group[name][at] for name in group.column_names}
            common = row["settings"].as_py()
            return PairMatches(
                self._points_of(row["keypoints0"].as_py()),
                self._points_of(row["keypoints1"].as_py()),
                _columns(row),
                _optional(row["confidence"]),
                _pose(row["pose"].as_py()),
                None,
                join_config(
                    json.loads(row["config"].as_py()),
                    None if common is None else json.loads(common),
                ),
                tuple(
                    AlternativePose(
                        _pose(other["pose"]),  # type: ignore[arg-type]
                        other["probability"],
                        np.column_stack([other["matches0"], other["matches1"]]).astype(np.int64),
                    )
                    for other in row["alternatives"].as_py()
                ),
                source=_optional(row["source"]),
                source_names=tuple(row["source_names"].as_py()),
            )

    def _points_of(self, number: object) -> FloatArray:
        place = integer(number, "keypoints", 0, self._keypoints.num_rows - 1)
        group, row = self._keypoints.locate(place)
        table = self._points.find(group, lambda: self._keypoints.read(group, ["id", "x", "y"]))
        if table["id"][row].as_py() != place:
            raise ValueError(f"{KEYPOINTS_PARQUET} belongs to other matches")
        return np.column_stack([_numbers(table[name][row].values) for name in ("x", "y")])


class _Groups:
    """The groups of rows of a Parquet file, which may be from elsewhere; a context manager."""

    def __init__(self, path: Path, schema: Any) -> None:
        arrow = require("pyarrow", "a Parquet file of matches", "tables")
        parquet = require("pyarrow.parquet", "a Parquet file of matches", "tables")
        most = limit("text_mb") * 1_000_000
        with (
            reading(path, _WANTED, ValueError, OSError, RecursionError, arrow.lib.ArrowException),
            contextlib.ExitStack() as stack,
        ):
            opened = path.open_ranges() if is_remote(path) else open_regular(path)
            source = stack.enter_context(opened)
            self._sizes = _declared_sizes(source)
            self._file = parquet.ParquetFile(
                source,
                page_checksum_verification=True,
                thrift_string_size_limit=most,
                thrift_container_size_limit=_MOST_GROUPS,
            )
            if not self._file.schema_arrow.equals(schema):
                raise ValueError("it has other columns")
            metadata = self._file.metadata
            if metadata.num_rows > limit("records"):
                raise too_large("it has more rows", "records")
            sizes = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
            if len(sizes) != len(self._sizes):
                raise ValueError("its groups of rows are not those that it describes")
            self._ends = np.cumsum(sizes, dtype=np.int64)
            self._stack = stack.pop_all()
        self.num_groups, self.num_rows = len(sizes), sum(sizes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def locate(self, place: int) -> tuple[int, int]:
        """Return the group of a row, and its place there."""
        group = int(np.searchsorted(self._ends, place, "right"))
        return group, place - int(self._ends[group - 1] if group else 0)

    def read(self, number: int, columns: Sequence[str] | None = None) -> Mapping[str, Any]:
        """Read a group, after a look at what it declares."""
        if self._sizes[number] > limit("array_mb") * 1_000_000:
            raise too_large("a group of its rows has more megabytes", "array_mb")
        return self._file.read_row_group(number, columns).combine_chunks()  # type: ignore[no-any-return]


def _declared_sizes(file: BinaryIO) -> list[int]:
    """Return how many bytes each group of rows takes, as the file describes them.

    pyarrow tells it too, but ends the process where the description is damaged.
    """
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - 8))
    length = int.from_bytes(file.read(4), "little")
    if not 0 < length <= min(_LONGEST_FOOTER, end - 8):
        raise ValueError("it has no description of its groups")
    file.seek(end - 8 - length)
    try:
        described = _Thrift(file.read(length)).struct()
        # Numbers take 8 bytes when they are read, however they are packed.
        return [
            sum(
                max(0, chunk[_CHUNK][_BYTES], 8 * chunk[_CHUNK][_VALUES])
                for chunk in group[_COLUMNS]
            )
            for group in described[_GROUPS]
        ]
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError("its description is damaged") from error
    finally:
        file.seek(0)


class _Thrift:
    """Reads values of Thrift's compact protocol, in which Parquet describes its groups."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self) -> dict[int, Any]:
        """Return the fields of a struct by their numbers, without texts and statistics."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            # The value of a flag is its type.
            value = None if head & 15 in (1, 2) else self._value(head & 15)
            if value is not None:
                fields[number] = value
        return fields

    def _value(self, kind: int) -> Any:
        match kind:
            case 1 | 2 | 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._integer()
            case 7:
                return self._skip(8)
            case 8:
                return self._skip(self._varint())
            case 9 | 10:
                head = self._byte()
                count = head >> 4 if head >> 4 < 15 else self._varint()
                return [self._value(head & 15) for _ in range(count)]
            case 11:
                count = self._varint()
                kinds = self._byte() if count else 0
                for _ in range(count):
                    self._value(kinds >> 4)
                    self._value(kinds & 15)
                return None
            case 12:
                return self.struct()
        raise ValueError("its description is damaged")

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _skip(self, count: int) -> None:
        self._at += count
        if self._at > len(self._data):
            raise ValueError("its description is cut off")

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("its description is damaged")
        return value | byte << shift

    def _integer(self) -> int:
        """Read a number with its sign at the end."""
        value = self._varint()
        return value >> 1 ^ -(value & 1)


def _numbers(column: Any) -> Any:
    """Return a column of numbers, or the numbers of a list, as an array of 64 bits."""
    if column.null_count:
        raise ValueError("a number of it is missing")
    values = column.to_numpy()
    return values.astype(np.float64 if values.dtype.kind == "f" else np.int64)


def _optional(column: Any) -> Any:
    return _numbers(column.values) if column.is_valid else None


def _columns(row: Mapping[str, Any]) -> IndexArray:
    return np.column_stack([_numbers(row[name].values) for name in ("matches0", "matches1")])


def _pose(numbers: Any) -> RelativePose | None:
    if numbers is None:
        return None
    matrix = np.array(numbers, dtype=np.float64).reshape(4, 4)
    return RelativePose(matrix[:3, :3], matrix[:3, 3])
