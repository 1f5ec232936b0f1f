"""Pickled index files of data sets, read without running anything.

Unpickling a file calls the functions that the file names, with arguments of its choice. Here a
name becomes a `StandIn`, which only records what it is given. Arrays are made of these records
afterwards, by this module.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch.io.files import brief

if TYPE_CHECKING:
    from typing import Self

#: Largest pickle in bytes, and most opcodes: each makes an object of some 100 bytes at most.
LARGEST_PICKLE, MOST_OPCODES = 1 << 26, 1 << 21
# Hashing a tuple hashes its parts again: a small pickle of nested tuples could take for ever.
_MOST_HASHED = 1 << 26
# The first three are looked up in a registry, not by `find_class`; no pickler writes the last.
_REFUSED = ("EXT1", "EXT2", "EXT4", "DUP")
_DTYPE = re.compile(r"b1|[iu][1248]|f[248]|c8|c16|O8|[SU][0-9]{1,6}")
_DAMAGE = (
    *(pickle.UnpicklingError, ValueError, TypeError, AttributeError, LookupError, EOFError),
    *(OverflowError, MemoryError, RecursionError, NotImplementedError),
)
_NUMPY_NAMES = (
    *("numpy._core.multiarray._reconstruct", "numpy._core.multiarray.scalar"),
    *("numpy._core.numeric._frombuffer", "numpy.ndarray", "numpy.dtype", "_codecs.encode"),
    *("__builtin__.bytes", "builtins.bytes"),
)


class StandIn:
    """Stands for an object: records the arguments and the state of a pickle, and drops its items.

    Its subclasses stand for the classes and functions that a pickle names.
    """

    __slots__ = ("args", "state")
    name = ""
    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any) -> Self:
        """Record the arguments of a call."""
        self = object.__new__(cls)
        self.args, self.state = args, None
        return self

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, item: Any) -> None:
        """Drop an item, or several."""

    extend = append

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


class _Unpickler(pickle.Unpickler):
    """Hands out stand-ins for the names that arrays need, and refuses all others."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="latin-1")
        self._found: dict[str, type] = {}

    def find_class(self, module: str, name: str) -> type:
        """Return the class that stands for a name."""
        # Since NumPy 2 the package core is called _core.
        full = f"{module}.{name}"[:200].replace("numpy.core.", "numpy._core.")
        if full not in _NUMPY_NAMES:
            raise ValueError(f"it wants to use {full!a}, which arrays do not need")
        if full not in self._found:
            self._found[full] = type("StandIn", (StandIn,), {"__slots__": (), "name": full})
        return self._found[full]


def unpickle(data: bytes) -> Any:
    """Read a pickle, of any protocol, without importing or calling anything that it names.

    It may hold lists, tuples, dictionaries, text, bytes, numbers, None, NumPy arrays and scalars.
    """
    try:
        if len(data) > LARGEST_PICKLE:
            raise ValueError(f"it is larger than {LARGEST_PICKLE >> 20} MB")
        _check(data)
        return _value(_Unpickler(data).load(), [16 * len(data) + (1 << 24)])
    except _DAMAGE as error:
        raise ValueError(f"its pickle cannot be read: {brief(error)}") from error


def _check(data: bytes) -> None:
    """Refuse a pickle that makes the unpickler take much memory, time or stack."""
    # On the stack: 0 for a mark, else what hashing the value costs, which doubles with each level.
    stack: list[int] = []
    memo: dict[int, int] = {}
    for number, (op, argument, _) in enumerate(pickletools.genops(data)):
        if number == MOST_OPCODES:
            raise ValueError(f"it has more than {MOST_OPCODES:,} opcodes")
        if op.name in _REFUSED:
            raise ValueError(f"it has the opcode {op.name}, which is not read")
        if op.name == "MARK":
            stack.append(0)
        elif op.name.endswith("PUT") or op.name == "MEMOIZE":
            place = len(memo) if argument is None else argument
            if place > MOST_OPCODES:  # the unpickler makes a list of this length
                raise ValueError("it numbers its values in an impossible way")
            memo[place] = stack[-1]
        elif op.name.endswith("GET"):
            stack.append(memo[argument])  # type: ignore[index]
        else:
            parts, before = [], op.stack_before
            if pickletools.markobject in before:
                while part := stack.pop():
                    parts.append(part)
                before = before[: before.index(pickletools.markobject)]
            parts += [stack.pop() for _ in before]
            hashed = "TUPLE" in op.name or op.name == "FROZENSET"
            cost = max(len(parts), 2) * max(parts, default=1) if hashed else 1
            cost = parts[-1] if op.name == "BUILD" else cost
            if cost > _MOST_HASHED:
                raise ValueError("its tuples are nested too deep")
            stack += [cost] * len(op.stack_after)


def _value(record: Any, left: list[int]) -> Any:
    """Make the value of a record and of all its parts.

    `left` has the bytes that it may still take. Parts that a pickle repeats by reference count
    again.
    """
    left[0] -= 50 + (len(record) if isinstance(record, str | bytes | bytearray) else 0)
    if left[0] < 0:
        raise ValueError("it expands to much more than its size by repeating its content")
    match record:
        case StandIn(
            name="numpy._core.multiarray._reconstruct", state=(1, shape, kind, order, data)
        ):
            return _array(data, kind, shape, "F" if order is True else "C", left)
        case StandIn(name="numpy._core.multiarray.scalar", args=(kind, data), state=None):
            return _array(data, kind, (), "C", left)[()]
        case StandIn(
            name="numpy._core.numeric._frombuffer", args=(data, kind, shape, "C" | "F" as order)
        ):
            return _array(data, kind, shape, order, left)
        case StandIn(name="_codecs.encode", args=(str(text), "latin1"), state=None):
            left[0] -= len(text)
            return text.encode("latin-1")
        case StandIn(name="__builtin__.bytes" | "builtins.bytes", args=(), state=None):
            return b""
        case StandIn():
            raise ValueError(f"it uses {record.name} in a way that NumPy does not")
        case type():
            raise ValueError("it has a name in place of a value")
        case list() | tuple() | set() | frozenset():
            parts = [_value(part, left) for part in record]
            return tuple(parts) if isinstance(record, tuple) else parts
        case dict():
            return {key: _value(part, left) for key, part in record.items()}
    return record


def _array(content: Any, dtype: Any, shape: Any, order: Any, left: list[int]) -> Any:
    """Make an array of a listed type, of exactly the bytes that its shape needs."""
    match dtype:
        case StandIn(
            name="numpy.dtype", args=(str(kind), *_), state=(_, "<" | ">" | "|" as end, *_)
        ) if _DTYPE.fullmatch(kind):
            pass
        case _:
            raise ValueError("it has an array of a type that is not read")
    if type(shape) is not tuple or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError("it has an array of an impossible shape")
    content = _value(content.encode("latin-1") if isinstance(content, str) else content, left)
    if isinstance(content, list) != (kind == "O8"):
        raise ValueError(f"it has an array of {kind} without content")
    if kind == "O8":
        array = np.empty(len(content), dtype=object)
        array[:] = content
        return array.reshape(shape)  # listed row by row in either order
    if kind[0] == "U":
        bytes(content).decode("utf-32-be" if end == ">" else "utf-32-le")
    read = "u1" if kind == "b1" else f"{end}{kind}"
    flat: Any = np.frombuffer(content, read) if content else ()
    return np.array(flat, kind).reshape(shape, order=order)
