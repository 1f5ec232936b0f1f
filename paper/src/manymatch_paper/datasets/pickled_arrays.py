"""Arrays out of pickles, read without unpickling.

The indexes of some benchmarks are pickles: a dictionary of arrays, or ``.npz`` archives with arrays
of objects. Unpickling a file calls what the file names, with arguments and a state of its choice.
Here the opcodes are interpreted instead, into records of this module: the names in a file are
looked up in a short list and become tokens, "calling" a token or giving it a state only fills a
record, and opcodes that arrays do not need are refused. When a pickle has ended, arrays are made of
the records: a shape, a type out of a list, and as many bytes as both need. NumPy is called with
nothing else.

What a file can make this module allocate is bounded by its size and the limits below: counts are
compared with what is left of the file before anything is allocated, and parts that a pickle
repeats by reference are counted as often as they occur.
"""

from __future__ import annotations

import dataclasses
import io
import math
import pickletools
import re
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._files import read_bytes, read_npy, reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

#: Bytes of a pickle, and its opcodes; an opcode takes about 100 bytes of memory at most.
LARGEST_PICKLE, MOST_STEPS = 1 << 28, 1 << 21
#: Bytes of the result, where parts that are repeated by reference count again, beside 16 times the
#: bytes of the pickle. Also what a compressed archive may hold beside 16 times its bytes.
SPARE = 1 << 24
#: Levels of nested lists, tuples, dictionaries and arrays of objects.
DEEPEST = 32
_PER_BYTE = 16

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
    with reading(path, want, ValueError):
        if data[:1] == _PROTO:
            found = read_pickle(data)
            if not isinstance(found, dict):
                raise ValueError(f"it holds a {type(found).__name__} instead of a dictionary")
            lacks = next((name for name in names if name not in found), None)
            if lacks is not None:
                raise ValueError(f"it lacks the entry {lacks!r}")
            return {name: found[name] for name in names}
        if data[:2] != b"PK":
            raise ValueError("it is neither an archive of arrays nor a pickle of protocol 2 to 5")
        return _read_archive(data, names)


def read_pickle(data: bytes | memoryview) -> Any:
    """Read the values of a pickle; see `read_pickled_arrays` for which there may be."""
    if len(data) > LARGEST_PICKLE:
        raise ValueError(f"its pickle is larger than {LARGEST_PICKLE >> 20} MB")
    limit = _PER_BYTE * len(data) + SPARE
    return _values(_Machine(memoryview(data), limit).run(), limit)


def _read_archive(data: bytes, names: Iterable[str]) -> dict[str, Any]:
    found = {}
    left = _PER_BYTE * len(data) + SPARE
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        for name in names:
            if f"{name}.npy" not in archive.namelist():
                raise ValueError(f"it lacks the entry {name!r}")
            entry = archive.getinfo(f"{name}.npy")
            left -= entry.file_size
            if left < 0:
                raise ValueError(f"its entry {name!r} is too large for a file of its size")
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"its entry {name!r} is compressed in a way that NumPy does not")
            found[name] = _read_member(archive.read(entry), name)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        # A RuntimeError says that a member is encrypted.
        raise ValueError(str(error)) from error
    return found


def _read_member(content: bytes, name: str) -> NDArray[Any]:
    """Read an .npy file. One of objects has a pickle of the whole array after its header."""
    version = content[6:7]
    start = 10 if version == b"\x01" else 12
    end = start + int.from_bytes(content[8:start], "little")
    if not re.search(rb"'descr': *'\|O'", content[start:end]):
        return read_npy(content)
    array = read_pickle(memoryview(content)[end:])
    if not isinstance(array, np.ndarray):
        # One kind of error for all files that are not what they should be.
        raise ValueError(  # noqa: TRY004
            f"its entry {name!r} holds a {type(array).__name__} instead of an array"
        )
    return array


# --- Records ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class _Token:
    """Something that a pickle may name; it can do nothing."""

    name: str


# NumPy 2 renamed the package of its functions; files have both names.
_TOKENS = {
    f"{module} {name}": _Token(name)
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

    def fill(self, kind: Any, shape: Any, fortran: Any, content: Any) -> int:
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


# --- Opcodes ---------------------------------------------------------------------------------


class _Machine:
    """Stack, memo and steps of the interpreter of one pickle."""

    def __init__(self, data: memoryview, limit: int) -> None:
        self.data, self.at, self.left = data, 0, limit
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Interpret all opcodes and return the record or value that is left."""
        for _ in range(MOST_STEPS):
            code = self.take(1)[0]
            if code == _STOP:
                return self.pop()
            if code not in _STEPS:
                names = {ord(op.code): op.name for op in pickletools.opcodes}
                name = names.get(code, f"{code:#04x}")
                raise ValueError(f"it has the opcode {name}, which arrays do not need")
            length, counted, step = _STEPS[code]
            if counted:
                length = int.from_bytes(self.take(length), "little")
            step(self, bytes(self.take(length)))
        raise ValueError(f"it has more than {MOST_STEPS:,} opcodes")

    def take(self, length: int) -> memoryview:
        """Advance over bytes of the file; what is not there is refused before it is allocated."""
        if length > len(self.data) - self.at:
            raise ValueError("it ends in the middle of a value")
        self.at += length
        return self.data[self.at - length : self.at]

    def spend(self, size: int) -> None:
        """Count bytes that are made out of what may be made."""
        self.left -= size
        if self.left < 0:
            raise ValueError("it makes much more of its content by repeating it")

    # The stack. Values under the last mark belong to a container that is still open.

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise ValueError("it uses a value that it does not have")
        return self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        if not self.marks:
            raise ValueError("it ends a container that it did not begin")
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def top(self, kind: type) -> Any:
        value = self.pop()
        if type(value) is not kind:
            raise ValueError(f"it changes a value that is no {kind.__name__.strip('_').lower()}")
        self.stack.append(value)
        return value

    # Steps: what an opcode does with its argument.

    def append(self, _: bytes) -> None:
        value = self.pop()
        self.top(list).append(value)

    def appends(self, _: bytes) -> None:
        values = self.pop_to_mark()
        self.top(list).extend(values)

    def set_items(self, values: list[Any]) -> None:
        entries = self.top(dict)
        if len(values) % 2:
            raise ValueError("it has a key without a value")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if type(key) is not str:
                raise ValueError("it has a dictionary with keys other than text")
            entries[key] = value

    def put(self, argument: bytes) -> None:
        value = self.pop()
        self.memo[int.from_bytes(argument, "little")] = value
        self.push(value)

    def memoize(self, _: bytes) -> None:
        self.put(len(self.memo).to_bytes(8, "little"))

    def get(self, argument: bytes) -> None:
        index = int.from_bytes(argument, "little")
        if index not in self.memo:
            raise ValueError("it refers to a value that it does not have")
        self.push(self.memo[index])

    def name(self, _: bytes) -> None:
        """Read the two lines after the opcode GLOBAL."""
        rest = bytes(self.data[self.at : self.at + 200]).split(b"\n", 2)
        if len(rest) < 3:
            raise ValueError("it has a name that does not end")
        module, name = rest[:2]
        self.at += len(module) + len(name) + 2
        self.named(module.decode("utf-8"), name.decode("utf-8"))

    def stack_name(self, _: bytes) -> None:
        name, module = self.pop(), self.pop()
        if type(name) is not str or type(module) is not str:
            raise ValueError("it has a name that is no text")
        self.named(module, name)

    def named(self, module: str, name: str) -> None:
        token = _TOKENS.get(f"{module} {name}")
        if token is None:
            what = ascii(f"{module[:80]}.{name[:80]}")
            raise ValueError(f"it wants to use {what}, which arrays do not need")
        self.push(token)

    def reduce(self, _: bytes) -> None:
        """Record what a call would make."""
        arguments, function = self.pop(), self.pop()
        if type(arguments) is not tuple:
            raise ValueError("it has a call without arguments")
        match function, arguments:
            case _Token("bytes"), ():
                self.push(b"")
            case _Token("encode"), (str(text), "latin1"):
                self.spend(len(text))
                self.push(text.encode("latin1"))
            case _Token("dtype"), (str(name), 0, 1) if _TYPE.fullmatch(name):
                self.push(_Type(name))
            case _Token("_reconstruct"), (_Token("ndarray"), (0,), b"b"):
                self.push(_Array())
            case _Token("scalar"), (_Type() as kind, bytes(content)):
                self.push(_Array(scalar=True))
                self.fill(kind, (), fortran=False, content=content)
            case _Token("_frombuffer"), (buffer, kind, shape, "C" | "F" as order):
                content = buffer.content if type(buffer) is _Buffer else buffer
                self.push(_Array())
                self.fill(kind, shape, fortran=order == "F", content=content)
            case _Token(name), _:
                raise ValueError(f"it calls {name} with arguments that NumPy does not give it")
            case _:
                raise ValueError("it calls a value that is no function")

    def fill(self, kind: Any, shape: Any, fortran: Any, content: Any) -> None:
        self.spend(self.stack[-1].fill(kind, shape, fortran, content))

    def build(self, _: bytes) -> None:
        """Record the state that a type or an array is given."""
        state = self.pop()
        record = self.pop()
        self.push(record)
        match record, state:
            case _Array(), (1, shape, kind, fortran, content):
                self.fill(kind, shape, fortran, content)
            case _Type(order=""), (
                3,
                "<" | ">" | "|" as order,
                None,
                None,
                None,
                int(),
                int(),
                int(),
            ):
                if (order == "|") != (record.name[0] in "bOS" or record.name in ("i1", "u1")):
                    raise ValueError(f"it has a type {record.name} without an order of bytes")
                record.order = order
            case _:
                raise ValueError("it gives a value a state that NumPy does not give it")


@dataclasses.dataclass(frozen=True, eq=False)
class _Buffer:
    """Bytes of an array in a pickle of protocol 5."""

    content: bytes


def _pushes(make: Callable[[bytes], Any]) -> Callable[[_Machine, bytes], None]:
    return lambda machine, given: machine.push(make(given))


def _tuple(count: int) -> Callable[[_Machine, bytes], None]:
    return lambda machine, _: machine.push(tuple(machine.pop() for _ in range(count))[::-1])


# By the names of `pickletools`, which also knows the arguments' lengths.
_BY_NAME: dict[str, Callable[[_Machine, bytes], None]] = {
    # The protocol and the lengths of frames add nothing to what follows.
    "PROTO": lambda _machine, _given: None,
    "FRAME": lambda _machine, _given: None,
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "NONE": _pushes(lambda _: None),
    "NEWTRUE": _pushes(lambda _: True),
    "NEWFALSE": _pushes(lambda _: False),
    "BININT": _pushes(lambda given: int.from_bytes(given, "little", signed=True)),
    "BININT1": _pushes(lambda given: int.from_bytes(given, "little")),
    "BININT2": _pushes(lambda given: int.from_bytes(given, "little")),
    "LONG1": _pushes(lambda given: int.from_bytes(given, "little", signed=True)),
    "BINFLOAT": _pushes(lambda given: struct.unpack(">d", given)[0]),
    "SHORT_BINUNICODE": _pushes(lambda given: given.decode("utf-8")),
    "BINUNICODE": _pushes(lambda given: given.decode("utf-8")),
    "BINUNICODE8": _pushes(lambda given: given.decode("utf-8")),
    "SHORT_BINBYTES": _Machine.push,
    "BINBYTES": _Machine.push,
    "BINBYTES8": _Machine.push,
    "BYTEARRAY8": _pushes(_Buffer),
    "EMPTY_LIST": _pushes(lambda _: []),
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "EMPTY_TUPLE": _tuple(0),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.pop_to_mark())),
    "EMPTY_DICT": _pushes(lambda _: {}),
    "SETITEM": lambda machine, _: machine.set_items([machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_to_mark()),
    "MEMOIZE": _Machine.memoize,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.stack_name,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
}
_COUNTS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
# Opcode: length of the argument, or of the count before it if it is counted; what it does.
_STEPS: dict[int, tuple[int, bool, Callable[[_Machine, bytes], None]]] = {}
for _op in pickletools.opcodes:
    if _op.name in _BY_NAME:
        _length = 0 if _op.arg is None or _op.name == "GLOBAL" else _op.arg.n
        _STEPS[ord(_op.code)] = (
            _COUNTS.get(_length, _length),
            _length in _COUNTS,
            _BY_NAME[_op.name],
        )
_PROTO, _STOP = b"\x80", ord(".")


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
        children = _children(record)
        missing = [child for child in children if id(child) not in made]
        if missing:
            if any(id(child) in opened for child in missing):
                raise ValueError("it has a value that contains itself")
            opened.add(id(record))
            pending += missing
            continue
        pending.pop()
        parts = [made[id(child)] for child in children]
        weight = _own_weight(record) + sum(weight for _, weight, _ in parts)
        if weight > limit:
            raise ValueError("it makes much more of its content by repeating it")
        levels = 1 + max((levels for _, _, levels in parts), default=0)
        if levels > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} levels deep")
        made[id(record)] = _value(record, [value for value, _, _ in parts]), weight, levels
    return made[id(root)][0]


def _children(record: Any) -> Iterable[Any]:
    match record:
        case list() | tuple():
            return record
        case dict():
            return record.values()
        case _Array(content=list()):
            return record.content
    return ()


def _own_weight(record: Any) -> int:
    match record:
        case str() | bytes():
            return 50 + len(record)
        case list() | tuple() | dict():
            return 50 + 8 * len(record)
        case _Array():
            return 100 + len(record.content)
        case int():
            return 30 + record.bit_length() // 8
    return 30


def _value(record: Any, parts: list[Any]) -> Any:
    match record:
        case list():
            return parts
        case tuple():
            return tuple(parts)
        case dict():
            return dict(zip(record, parts, strict=True))
        case _Array():
            return record.make(parts)
        case None | bool() | int() | float() | str() | bytes():
            return record
    raise ValueError(f"it has a {type(record).__name__.strip('_').lower()} in place of a value")
