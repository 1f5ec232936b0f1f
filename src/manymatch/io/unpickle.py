"""Pickles of arrays read without running anything: published index files of data sets.

Unpickling a file calls the functions that the file names, with arguments of its choice. Here a
name becomes a `StandIn`, which only records what it is given. Arrays are made of these records
afterwards, by this module.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from typing import BinaryIO, Self

#: Largest pickle in bytes, and most opcodes: each makes an object of some 100 bytes at most.
LARGEST_PICKLE, MOST_OPCODES = 1 << 26, 1 << 21
# Hashing a tuple hashes its parts again: a small pickle of nested tuples could take for ever.
_MOST_HASHED = 1 << 26
# The first three are looked up in a registry, not by `find_class`; no pickler writes the last.
_REFUSED = ("EXT1", "EXT2", "EXT4", "DUP")
_DTYPE = re.compile(r"b1|[iu][1248]|f[248]|c8|c16|O8|[SU][0-9]{1,6}")
_DAMAGE = (
    *(pickle.UnpicklingError, ValueError, TypeError, AttributeError, LookupError, EOFError),
    *(OverflowError, MemoryError, RecursionError),
)


class StandIn:
    """Stands for an object, and records the arguments and the state that a pickle gives it.

    Its subclasses stand for classes and functions: one for each name that arrays need.
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


_STAND_INS: dict[str, type[StandIn]] = {
    name: type("StandIn", (StandIn,), {"__slots__": (), "name": name})
    for name in (
        *("numpy._core.multiarray._reconstruct", "numpy._core.multiarray.scalar"),
        *("numpy._core.numeric._frombuffer", "numpy.ndarray", "numpy.dtype", "_codecs.encode"),
        *("__builtin__.bytes", "builtins.bytes"),
    )
}


class _Unpickler(pickle.Unpickler):
    """Hands out stand-ins only."""

    def find_class(self, module: str, name: str) -> type[StandIn]:
        """Return the class that stands for a name."""
        # Since NumPy 2 the package core is called _core.
        full = f"{module}.{name}"[:200].replace("numpy.core.", "numpy._core.")
        if full not in _STAND_INS:
            raise ValueError(f"it wants to use {full!a}, which arrays do not need")
        return _STAND_INS[full]


def unpickle(data: bytes) -> Any:
    """Read a pickle, of any protocol, without importing or calling anything that it names.

    Returns
    -------
    object
        Lists, tuples, dictionaries, text, bytes, numbers, None, NumPy arrays and scalars.

    Raises
    ------
    ValueError
        If the pickle is damaged, would take much more memory than it has bytes, or names anything
        that arrays do not need.
    """
    try:
        if len(data) > LARGEST_PICKLE:
            raise ValueError(f"it is larger than {LARGEST_PICKLE >> 20} MB")
        _check(io.BytesIO(data))
        record = _Unpickler(io.BytesIO(data), encoding="latin-1").load()
        return _Values(16 * len(data) + (1 << 24)).made(record)
    except _DAMAGE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"its pickle cannot be read: {reason}") from error


def _check(file: BinaryIO) -> None:
    """Refuse a pickle that makes the unpickler take much memory, time or stack."""
    # On the stack: 0 for a mark, else what hashing the value costs, which doubles with each level.
    stack: list[int] = []
    memo: dict[int, int] = {}
    for number, (op, argument, _) in enumerate(pickletools.genops(file)):
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


class _Values:
    """Makes values of records. Parts that a pickle repeats by reference count again."""

    def __init__(self, left: int) -> None:
        self._left = left

    def made(self, value: Any) -> Any:
        """Make the value of a record and of all its parts."""
        self._spend(50)
        match value:
            case StandIn():
                return self._rebuilt(value)
            case list() | tuple() | set() | frozenset():
                parts = [self.made(part) for part in value]
                return tuple(parts) if isinstance(value, tuple) else parts
            case dict():
                return {key: self.made(part) for key, part in value.items()}
            case str() | bytes() | bytearray():
                self._spend(len(value))
            case type():
                raise ValueError("it has a name in place of a value")
        return value

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ValueError("it expands to much more than its size by repeating its content")

    def _rebuilt(self, record: StandIn) -> Any:
        match record.name, record.args, record.state:
            case "numpy._core.multiarray._reconstruct", _, (1, shape, dtype, fortran, content):
                return self._array(content, dtype, shape, "F" if fortran is True else "C")
            case "numpy._core.multiarray.scalar", (dtype, content), None:
                return self._array(content, dtype, (), "C")[()]
            case "numpy._core.numeric._frombuffer", (content, dtype, shape, "C" | "F" as order), _:
                return self._array(content, dtype, shape, order)
            case "_codecs.encode", (str(text), "latin1"), None:
                self._spend(len(text))
                return text.encode("latin-1")
            case "__builtin__.bytes" | "builtins.bytes", (), None:
                return b""
        raise ValueError(f"it uses {record.name} in a way that NumPy does not")

    def _array(self, content: Any, dtype: Any, shape: Any, order: Any) -> Any:
        """Make an array of a listed type, of exactly the bytes that its shape needs."""
        match dtype:
            case StandIn(
                name="numpy.dtype", args=(str(kind), *_), state=(_, "<" | ">" | "|" as end, *_)
            ):
                pass
            case _:
                raise ValueError("it has an array without a type")
        if not _DTYPE.fullmatch(kind):
            raise ValueError(f"it has an array of the type {kind!r:.40}")
        if type(shape) is not tuple or any(type(n) is not int or n < 0 for n in shape):
            raise ValueError("it has an array of an impossible shape")
        content = self.made(content.encode("latin-1") if isinstance(content, str) else content)
        if isinstance(content, list) != (kind == "O8"):
            raise ValueError(f"it has an array of {kind} without content")
        item = 1 if kind == "O8" else np.dtype(kind).itemsize
        if len(content) != math.prod(shape) * item:
            raise ValueError(f"it has an array of {kind} and shape {shape!r:.60} of other content")
        if kind == "O8":
            array = np.empty(len(content), dtype=object)
            array[:] = content
            return array.reshape(shape)  # listed row by row in either order
        if kind[0] == "U":
            bytes(content).decode("utf-32-be" if end == ">" else "utf-32-le")
        read = "u1" if kind == "b1" else f"{end}{kind}"
        return np.frombuffer(content, read).astype(kind).reshape(shape, order=order)
