"""Arrays out of pickles, read without unpickling.

The indexes of some benchmarks are pickles: a dictionary of arrays, or ``.npz`` archives with arrays
of objects. Unpickling a file calls what the file names, with arguments and a state of its choice.
Here `manymatch._pickles` interprets the opcodes instead, into records of this module: the names in
a file are looked up in a short list and become tokens, "calling" a token or giving it a state only
fills a record, and opcodes that arrays do not need are refused. When a pickle has ended, arrays are
made of the records: a shape, a type out of a list, and as many bytes as both need. NumPy is called
with nothing else.

What a file can make this module allocate is bounded by its size and the limits of
`manymatch._pickles`; parts that a pickle repeats by reference are counted as often as they occur.
"""

from __future__ import annotations

import dataclasses
import io
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manymatch._pickles import PROTO, Machine, Token, allowance
from manymatch.io.files import read_bytes, read_npz, reading

#: Levels of nested lists, tuples, dictionaries and arrays of objects.
DEEPEST = 32

_TYPE = re.compile(r"b1|[iu][1248]|f[248]|c8|c16|O8|[SU][1-9][0-9]{0,6}")
_LARGEST_SIZE, _MOST_DIMENSIONS = 1 << 40, 32


def read_pickled_arrays(path: object, want: str, names: Iterable[str]) -> dict[str, Any]:
    """Read named entries of a pickled dictionary or of an .npz archive with arrays of objects.

    Parameters
    ----------
    path : path
        The file: a pickle (protocol 2 to 5) of a dictionary whose keys are text, or an archive of
        .npy files, of which those with objects contain such a pickle.
    want : str
        What it should be, for the error sentence.
    names : iterable of str
        Entries that must be there.

    Returns
    -------
    dict
        Arrays, NumPy scalars, lists, tuples, dictionaries, text, bytes, numbers, booleans, None.

    Raises
    ------
    ValueError
        If the file is missing, damaged, lacks an entry, has anything in it but such values, or
        would need more memory than the limits of this module allow.
    """
    data = read_bytes(path, want)
    if data[:2] == b"PK":
        most = allowance(len(data))
        return read_npz(data, path, want, names, objects=lambda part: _read_objects(part, most))
    with reading(path, want, ValueError):
        if data[:1] == PROTO:
            found = read_pickle(data)
            if not isinstance(found, dict):
                raise ValueError(f"it holds a {type(found).__name__} instead of a dictionary")
            lacks = next((name for name in names if name not in found), None)
            if lacks is not None:
                raise ValueError(f"it lacks the entry {lacks!r}")
            return {name: found[name] for name in names}
        raise ValueError("it is neither an archive of arrays nor a pickle of protocol 2 to 5")


def read_pickle(data: bytes) -> Any:
    """Read the values of a pickle; see `read_pickled_arrays` for which there may be."""
    machine = _Pickle(io.BytesIO(data), len(data))
    return _values(machine.run(), machine.limit)


def _read_objects(content: bytes, most: int) -> NDArray[Any]:
    """Read an array of objects of an archive, which is one pickle."""
    if len(content) > most:
        raise ValueError("it has an array of objects that is too large for a file of its size")
    array = read_pickle(content)
    if not isinstance(array, np.ndarray):
        # One kind of error for all files that are not what they should be.
        raise ValueError(  # noqa: TRY004
            f"it holds a {type(array).__name__} instead of an array of objects"
        )
    return array


# --- Records ---------------------------------------------------------------------------------


# NumPy 2 renamed the package of its functions; files have both names.
_TOKENS = {
    f"{module} {name}": Token(name)
    for name, modules in {
        "ndarray": ["numpy"],
        "dtype": ["numpy"],
        "_reconstruct": ["numpy.core.multiarray", "numpy._core.multiarray"],
        "scalar": ["numpy.core.multiarray", "numpy._core.multiarray"],
        "_frombuffer": ["numpy.core.numeric", "numpy._core.numeric"],
        "encode": ["_codecs"],
        "bytes": ["__builtin__"],
    }.items()
    for module in modules
}


@dataclasses.dataclass(eq=False)
class _Type:
    """What a pickle says about a type: a name out of a list, then the order of bytes."""

    name: str
    order: str = ""


@dataclasses.dataclass(eq=False)
class _Array:
    """What a pickle says about an array or a scalar: nothing at first, then its parts."""

    type: _Type | None = None
    shape: tuple[int, ...] = ()
    fortran: bool = False
    content: bytes | list[Any] = b""
    scalar: bool = False

    def fill(self, kind: Any, shape: Any, content: Any, fortran: Any = False) -> int:
        """Take the parts if they fit each other; return how many bytes the array will have."""
        if self.type is not None:
            raise ValueError("it gives an array a second content")
        if not isinstance(kind, _Type) or not kind.order:
            raise ValueError("it has an array without a type")
        if (
            type(shape) is not tuple
            or len(shape) > _MOST_DIMENSIONS
            or any(type(n) is not int or n < 0 for n in shape)
            or math.prod(max(n, 1) for n in shape) > _LARGEST_SIZE
        ):
            raise ValueError("it has an array of an impossible shape")
        if type(fortran) is not bool:
            raise ValueError("it has an array of an unknown order")
        size = math.prod(shape) * _item_size(kind.name)
        if type(content) is not (list if kind.name == "O8" else bytes):
            raise ValueError(f"it has an array of {kind.name} without content")
        given = len(content) * (8 if kind.name == "O8" else 1)
        if given != size:
            raise ValueError(
                f"it has an array of {kind.name} of shape {shape} with {given:,} instead of "
                f"{size:,} bytes"
            )
        self.type, self.shape, self.fortran, self.content = kind, shape, fortran, content
        return size

    def make(self, values: list[Any]) -> Any:
        """Make the array; `values` are the made elements of an array of objects."""
        if self.type is None:
            raise ValueError("it has an array without content")
        if self.type.name == "O8":
            # Elements are listed row by row in either order.
            array = np.empty(len(values), dtype=object)
            for i, value in enumerate(values):
                array[i] = value
            return array.reshape(self.shape)
        content = bytes(self.content)
        _check_content(self.type, content)
        # Our own spelling of a type out of a list, for as many bytes as the shape needs.
        array = np.frombuffer(content, self.type.order + self.type.name).astype(self.type.name)
        array = array.reshape(self.shape, order="F" if self.fortran else "C")
        return array[()] if self.scalar else array


def _item_size(name: str) -> int:
    size = int(name[1:])
    return 4 * size if name[0] == "U" else size


def _check_content(kind: _Type, content: bytes) -> None:
    """Refuse bytes that are no booleans and no text."""
    if kind.name == "b1" and content.translate(None, b"\x00\x01"):
        raise ValueError("it has booleans other than 0 and 1")
    if kind.name[0] == "U":
        codec = "utf-32-le" if kind.order == "<" else "utf-32-be"
        try:
            content.decode(codec)
        except UnicodeDecodeError as error:
            raise ValueError(f"it has an array of text that is none: {error.reason}") from error


class _Pickle(Machine):
    """Interprets a pickle of arrays."""

    def named(self, module: str, name: str) -> Token:
        """Refuse names other than those that arrays need."""
        token = _TOKENS.get(f"{module} {name}")
        if token is None:
            what = ascii(f"{module[:80]}.{name[:80]}")
            raise ValueError(f"it wants to use {what}, which arrays do not need")
        return token

    def called(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """Record what a call would make."""
        match function, arguments:
            case Token("bytes"), ():
                return b""
            case Token("encode"), (str(text), "latin1"):
                self.spend(len(text))
                return text.encode("latin1")
            case Token("dtype"), (str(name), 0, 1) if _TYPE.fullmatch(name):
                return _Type(name)
            case Token("_reconstruct"), (Token("ndarray"), (0,), b"b"):
                return _Array()
            case Token("scalar"), (_Type() as kind, bytes(content)):
                return self.filled(_Array(scalar=True), kind, (), content)
            case Token("_frombuffer"), (buffer, kind, shape, "C" | "F" as order):
                content = bytes(buffer) if type(buffer) is bytearray else buffer
                return self.filled(_Array(), kind, shape, content, order == "F")
            case Token(name), _:
                raise ValueError(f"it calls {name} with arguments that NumPy does not give it")
        raise ValueError("it calls a value that is no function")

    def filled(self, array: _Array, *parts: Any) -> _Array:
        """Give an array its parts."""
        self.spend(array.fill(*parts))
        return array

    def built(self, record: Any, state: Any) -> None:
        """Record the state that a type or an array is given."""
        match record, state:
            case _Array(), (1, shape, kind, fortran, content):
                self.filled(record, kind, shape, content, fortran)
            case (
                _Type(order=""),
                (3, "<" | ">" | "|" as order, None, None, None, int(), int(), int()),
            ):
                if (order == "|") != (record.name[0] in "bOS" or record.name in ("i1", "u1")):
                    raise ValueError(f"it has a type {record.name} without an order of bytes")
                record.order = order
            case _:
                raise ValueError("it gives a value a state that NumPy does not give it")


# --- Values ----------------------------------------------------------------------------------


def _values(root: Any, limit: int) -> Any:
    """Turn records into values, children first.

    Containers that are used twice stay one object. Their weight counts twice, as whoever walks
    through the result meets them twice.
    """
    # By the identity of a record: its value, weight in bytes and levels.
    made: dict[int, tuple[Any, int, int]] = {}
    opened: set[int] = set()
    pending = [root]
    while pending:
        record = pending[-1]
        # A part that is used again is pending as often as it is used.
        if id(record) in made:
            pending.pop()
            continue
        children, weight, make = _parts(record)
        missing = [child for child in children if id(child) not in made]
        if missing:
            if any(id(child) in opened for child in missing):
                raise ValueError("it has a value that contains itself")
            opened.add(id(record))
            pending += missing
            continue
        pending.pop()
        parts = [made[id(child)] for child in children]
        weight += sum(weight for _, weight, _ in parts)
        if weight > limit:
            raise ValueError("it makes much more of its content by repeating it")
        levels = 1 + max((levels for _, _, levels in parts), default=0)
        if levels > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} levels deep")
        made[id(record)] = make([value for value, _, _ in parts]), weight, levels
    return made[id(root)][0]


def _parts(record: Any) -> tuple[Iterable[Any], int, Callable[[list[Any]], Any]]:
    """Return the parts of a record, its own weight in bytes, and what makes its value of theirs."""
    match record:
        case list() | tuple():
            return record, 50 + 8 * len(record), type(record)
        case dict():
            return (
                record.values(),
                50 + 8 * len(record),
                lambda made: dict(zip(record, made, strict=True)),
            )
        case _Array(content=content):
            return content if type(content) is list else (), 100 + len(content), record.make
        case str() | bytes():
            return (), 50 + len(record), lambda _: record
        case int():
            return (), 30 + record.bit_length() // 8, lambda _: record
        case None | float():
            return (), 30, lambda _: record
    raise ValueError(f"it has a {type(record).__name__.strip('_').lower()} in place of a value")
