"""Pickles, interpreted into inert values without unpickling.

Unpickling a file calls what the file names, with arguments and a state of its choice. Here a name
becomes a `Token` that can do nothing, and what a call, a state or a persistent identity makes is
said by the reader of a format, a subclass of `Machine`, which fills records of its own.

What a file can make a machine hold is bounded by its size and the limits below: lengths are
compared with what is left of the file before anything is allocated, every opcode makes a small
object at most, and readers count what they make of parts that a pickle repeats by reference.
Nothing recurses, and nothing is hashed but text and small numbers.
"""

from __future__ import annotations

import abc
import dataclasses
import pickletools
import struct
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    Step = Callable[["Machine", bytes], object]

#: Bytes of a pickle, and its opcodes; an opcode takes about 100 bytes of memory at most.
LARGEST_PICKLE, MOST_STEPS = 1 << 28, 1 << 21
#: First byte of pickles of protocol 2 and later.
PROTO = b"\x80"
_STOP = ord(".")
_PER_BYTE, _SPARE = 16, 1 << 24
_LONGEST_NAME = 500


@dataclasses.dataclass(frozen=True, eq=False)
class Token:
    """Something that a pickle refers to by its name; never looked up."""

    name: str


def allowance(length: int) -> int:
    """Bytes that may be made of a file of `length`, where parts that it repeats count again."""
    return _PER_BYTE * length + _SPARE


class Machine(abc.ABC):
    """Interprets the opcodes of one pickle: protocols 2 to 5, from where the file stands.

    Parameters
    ----------
    file : binary file
        Where the pickle begins; it is not read beyond the pickle's end.
    length : int
        Bytes of the file from there on.
    """

    #: Whether there may be values that the reader does not know. If so, objects, sets and texts of
    #: Python 2 become tokens, lists and text, what is put into an unknown value is dropped, and a
    #: token stands for a key that is no text. If not, all of them are refused.
    lenient: ClassVar[bool] = False

    @abc.abstractmethod
    def named(self, module: str, name: str) -> Any:
        """Return what stands for a name, or refuse it."""

    @abc.abstractmethod
    def called(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """Return what stands for the result of a call."""

    @abc.abstractmethod
    def built(self, record: Any, state: Any) -> None:
        """Give a value a state."""

    def identified(self, identity: Any) -> Any:
        """Return what stands for a persistent identity; only asked if `lenient`."""
        raise NotImplementedError

    def __init__(self, file: BinaryIO, length: int) -> None:
        if length > LARGEST_PICKLE:
            raise ValueError(f"its pickle is larger than {LARGEST_PICKLE >> 20} MB")
        self.file, self.end = file, file.tell() + length
        self.limit = self.left = allowance(length)
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Interpret all opcodes and return the value that is left."""
        steps = _STEPS[self.lenient]
        for _ in range(MOST_STEPS):
            code = self.take(1)[0]
            if code == _STOP:
                return self.pop()
            if code not in steps:
                name = _NAMES.get(code, f"{code:#04x}")
                raise ValueError(f"it has the opcode {name}, which is not interpreted")
            length, counted, step = steps[code]
            if counted:
                length = _number(self.take(length))
            step(self, self.take(length))
        raise ValueError(f"it has more than {MOST_STEPS:,} opcodes")

    def take(self, length: int) -> bytes:
        """Advance over bytes of the file; what is not there is refused before it is allocated."""
        data = self.file.read(length) if length <= self.end - self.file.tell() else b""
        if len(data) != length:
            raise ValueError("it ends in the middle of a value")
        return data

    def take_line(self) -> str:
        line = self.file.readline(min(_LONGEST_NAME, self.end - self.file.tell()))
        if line[-1:] != b"\n":
            raise ValueError("it has a name that does not end")
        return line[:-1].decode("utf-8")

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
        self.push(value)
        if type(value) is kind:
            return value
        if not self.lenient:
            raise ValueError(f"it changes a value that is no {kind.__name__}")
        return kind()

    # Steps: what an opcode does.

    def append(self, values: list[Any]) -> None:
        self.top(list).extend(values)

    def set_items(self, values: list[Any]) -> None:
        entries = self.top(dict)
        if len(values) % 2:
            raise ValueError("it has a key without a value")
        for key, value in zip(values[::2], values[1::2], strict=True):
            entries[self.key(key)] = value

    def key(self, key: Any) -> str | Token:
        if type(key) is str:
            return key
        if not self.lenient:
            raise ValueError("it has a dictionary with keys other than text")
        # Hashing nested tuples may take for ever, as may numbers that are chosen to collide.
        kind = type(key).__name__.strip("_").lower()
        return Token(str(key)[:20] if type(key) is int else f"of type {kind}")

    def put(self, index: int) -> None:
        value = self.pop()
        self.push(value)
        self.memo[index] = value

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise ValueError("it refers to a value that it does not have")
        self.push(self.memo[index])

    def name(self, module: Any, name: Any) -> None:
        if type(name) is not str or type(module) is not str:
            raise ValueError("it has a name that is no text")
        if len(module) + len(name) > 2 * _LONGEST_NAME:
            raise ValueError("it has a name that is too long")
        self.push(self.named(module, name))

    def call(self, arguments: Any) -> None:
        if type(arguments) is not tuple:
            raise ValueError("it has a call without arguments")
        self.push(self.called(self.pop(), arguments))

    def build(self, state: Any) -> None:
        record = self.pop()
        self.push(record)
        self.built(record, state)


def _number(given: bytes) -> int:
    return int.from_bytes(given, "little")


def _pushes(make: Callable[[bytes], Any]) -> Step:
    return lambda machine, given: machine.push(make(given))


def _tuple(count: int) -> Step:
    return lambda machine, _: machine.push(tuple(machine.pop() for _ in range(count))[::-1])


# By the names of `pickletools`, which also knows the arguments' lengths.
_BY_NAME: dict[str, Step] = {
    # The protocol and the lengths of frames add nothing to what follows.
    **dict.fromkeys(("PROTO", "FRAME"), lambda _machine, _given: None),
    "NONE": _pushes(lambda _: None),
    "NEWTRUE": _pushes(lambda _: True),
    "NEWFALSE": _pushes(lambda _: False),
    **dict.fromkeys(
        ("BININT", "LONG1"), _pushes(lambda given: int.from_bytes(given, "little", signed=True))
    ),
    **dict.fromkeys(("BININT1", "BININT2"), _pushes(_number)),
    "BINFLOAT": _pushes(lambda given: struct.unpack(">d", given)[0]),
    **dict.fromkeys(
        ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
        _pushes(lambda given: given.decode("utf-8")),
    ),
    **dict.fromkeys(("SHORT_BINBYTES", "BINBYTES", "BINBYTES8"), Machine.push),
    "BYTEARRAY8": _pushes(bytearray),
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "EMPTY_LIST": _pushes(lambda _: []),
    "APPEND": lambda machine, _: machine.append([machine.pop()]),
    "APPENDS": lambda machine, _: machine.append(machine.pop_to_mark()),
    **{name: _tuple(n) for n, name in enumerate(("EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"))},
    "TUPLE": lambda machine, _: machine.push(tuple(machine.pop_to_mark())),
    "EMPTY_DICT": _pushes(lambda _: {}),
    "SETITEM": lambda machine, _: machine.set_items([machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_to_mark()),
    "MEMOIZE": lambda machine, _: machine.put(len(machine.memo)),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), lambda machine, at: machine.put(_number(at))),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda machine, at: machine.get(_number(at))),
    "GLOBAL": lambda machine, _: machine.name(machine.take_line(), machine.take_line()),
    "STACK_GLOBAL": lambda machine, _: machine.name(*[machine.pop(), machine.pop()][::-1]),
    "REDUCE": lambda machine, _: machine.call(machine.pop()),
    "BUILD": lambda machine, _: machine.build(machine.pop()),
}
_LENIENT: dict[str, Step] = {
    **dict.fromkeys(
        ("SHORT_BINSTRING", "BINSTRING"), _pushes(lambda given: given.decode("latin-1"))
    ),
    "EMPTY_SET": _BY_NAME["EMPTY_LIST"],
    "ADDITEMS": _BY_NAME["APPENDS"],
    "FROZENSET": _BY_NAME["TUPLE"],
    "POP": lambda machine, _: machine.pop(),
    "POP_MARK": lambda machine, _: machine.pop_to_mark(),
    "NEWOBJ": _BY_NAME["REDUCE"],
    # Without the arguments that have names.
    "NEWOBJ_EX": lambda machine, _: machine.call([machine.pop(), machine.pop()][1]),
    "BINPERSID": lambda machine, _: machine.push(machine.identified(machine.pop())),
}
# How many bytes the count of an argument has, by what `pickletools` gives as the argument's length.
_COUNTS = {-2: 1, -3: 4, -4: 4, -5: 8}


def _steps(by_name: dict[str, Step]) -> dict[int, tuple[int, bool, Step]]:
    """By opcode: the length of its argument, or of the count before it if counted; what it does."""
    steps = {}
    for op in pickletools.opcodes:
        if op.name in by_name:
            length = 0 if op.arg is None or op.name == "GLOBAL" else op.arg.n
            steps[ord(op.code)] = _COUNTS.get(length, length), length < 0, by_name[op.name]
    return steps


# By whether the machine is lenient.
_STEPS = {False: _steps(_BY_NAME), True: _steps(_BY_NAME | _LENIENT)}
_NAMES = {ord(op.code): op.name for op in pickletools.opcodes}
