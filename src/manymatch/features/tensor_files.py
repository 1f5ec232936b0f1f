"""Tensors of files, read without executing anything and without more memory than the file fills.

Files of torch are pickles, which torch rebuilds by calling what they name. Here the opcodes are
interpreted into values of our own instead: text, numbers, lists, dictionaries and descriptions of
tensors. Anything else that a file names becomes a mark that can be stored but not called. Only the
tensors that are asked for are made, at the end, each from as many bytes of the file as it needs.
"""

from __future__ import annotations

import dataclasses
import io
import math
import pickletools
import struct
import warnings
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

from manymatch._environment import require
from manymatch.features.device import require_torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import BinaryIO

    import torch

    State = dict[str, torch.Tensor]

SAFETENSORS = ".safetensors"
SUFFIXES = (SAFETENSORS, ".pth", ".pt", ".bin")

_STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}
# First two values of files that torch wrote before it used archives.
_LEGACY = (0x1950A86A20F9469CFC6C, 1001)
# The description of a state, without its numbers: a thousandth of this in the largest known file.
_LARGEST_PICKLE = 1 << 28
_MOST_AXES = 64
# What reading a damaged file raises, wherever the damage is.
_DAMAGE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    NotImplementedError,
    OSError,
    RecursionError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


class WeightsError(ValueError):
    """Weights are missing, damaged, or those of another network."""


def read_tensors(file: Path, key: str | None = None) -> State:
    """Read the tensors of one file by name, to the CPU; `key` is as in `weights.load_state`.

    The memory that is taken is that of the wanted tensors as the file holds them.
    """
    if file.suffix.lower() not in SUFFIXES:
        raise unreadable(file, "its name does not end so")
    if not file.is_file():
        raise unreadable(file, "there is no such file")
    try:
        if file.suffix.lower() == SAFETENSORS:
            safetensors = require("safetensors.torch", "reading .safetensors files", "features")
            content: State = _checked(safetensors.load_file(file, device="cpu"))
        else:
            with file.open("rb") as opened, warnings.catch_warnings():
                # Of texts that a damaged file spells strangely.
                warnings.simplefilter("ignore")
                read = _read_archive if zipfile.is_zipfile(opened) else _read_legacy
                opened.seek(0)
                content = read(opened, file.stat().st_size, key)
    except _NoTensors as error:
        raise unreadable(file, str(error)) from None
    except _damage() as error:
        raise unreadable(file, f"it is damaged: {first_line(error)}") from error
    return content


def unreadable(path: Path, reason: str) -> WeightsError:
    """Make the error of a file or folder that holds no tensors by name."""
    kinds = ", ".join(SUFFIXES[:-1])
    return WeightsError(
        f"weights must be a {kinds} or {SUFFIXES[-1]} file of tensors, got {str(path)!r} ({reason})"
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, of bounded length."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".")[:200] if lines else type(error).__name__


def _damage() -> tuple[type[Exception], ...]:
    """Errors of damaged files, with that of safetensors where it is installed."""
    try:
        from safetensors import SafetensorError
    except ModuleNotFoundError:
        return _DAMAGE
    return (*_DAMAGE, SafetensorError)


class _NoTensors(Exception):  # noqa: N818 (its text is the end of another sentence)
    """A file is whole but holds something else."""


# ----------------------------------------------------------------------------------- torch


@dataclasses.dataclass(frozen=True, eq=False)
class _Name:
    """Something that a file refers to by its name; never looked up."""

    name: str


@dataclasses.dataclass(frozen=True, eq=False)
class _Storage:
    """Numbers in a file: their type, the name of the record and how many there are."""

    dtype: str
    key: str
    count: int


@dataclasses.dataclass(frozen=True, eq=False)
class _Tensor:
    """A view of a storage."""

    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def __post_init__(self) -> None:
        numbers = (self.offset, *self.size, *self.stride)
        if any(type(number) is not int or not 0 <= number < 1 << 63 for number in numbers):
            raise ValueError("a tensor's shape is not made of whole numbers")
        if len(self.size) != len(self.stride) or len(self.size) > _MOST_AXES:
            raise ValueError("a tensor has too many axes, or not as many strides")
        count = math.prod(self.size)
        steps = ((n - 1) * step for n, step in zip(self.size, self.stride, strict=True))
        if count > self.storage.count or (count and self.offset + sum(steps) >= self.storage.count):
            raise ValueError("a tensor is larger than what the file holds of it")


def _read_archive(file: BinaryIO, length: int, key: str | None) -> State:
    """Read an archive: a pickle, and a stored record for every storage."""
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
            raise ValueError("it is compressed, which torch never does")
        if sum(entry.file_size for entry in archive.infolist()) > length:
            raise ValueError("its records are larger than the file")
        pickles = [name for name in entries if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise _NoTensors("it is an archive, but not one of torch")
        folder = pickles[0].removesuffix("data.pkl")
        order = entries.get(f"{folder}byteorder")
        if order is not None and archive.read(order).strip() != b"little":
            raise _NoTensors("its numbers are big-endian")
        if entries[pickles[0]].file_size > _LARGEST_PICKLE:
            raise ValueError("its list of tensors is too long")
        content = _interpret(io.BytesIO(archive.read(pickles[0])))

        def record(storage: _Storage) -> bytes:
            return archive.read(entries[f"{folder}data/{storage.key}"])

        return _made(_chosen(content, key), record)


def _read_legacy(file: BinaryIO, length: int, key: str | None) -> State:
    """Read the older format: pickles one after the other, then all storages."""
    if length == 0:
        raise ValueError("it is empty")
    if any(_interpret(file) != value for value in _LEGACY):
        raise _NoTensors("it was not written by torch")
    system = _interpret(file)
    if isinstance(system, dict) and system.get("little_endian") is False:
        raise _NoTensors("its numbers are big-endian")
    storages: dict[str, _Storage] = {}
    content = _interpret(file, storages)
    names = _interpret(file)
    places: dict[str, tuple[int, int]] = {}
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("its list of storages is damaged")
    if len(names) != len(storages) or set(names) != set(storages):
        raise ValueError("its list of storages does not fit its tensors")
    for name in names:
        (count,) = struct.unpack("<q", file.read(8))
        size = count * _item_size(storages[name].dtype)
        if count != storages[name].count or size > length - file.tell():
            raise ValueError("it ends before its tensors do")
        places[name] = (file.tell(), size)
        file.seek(size, io.SEEK_CUR)

    def record(storage: _Storage) -> bytes:
        start, size = places[storage.key]
        file.seek(start)
        return file.read(size)

    return _made(_chosen(content, key), record)


def _chosen(content: Any, key: str | None) -> dict[str, _Tensor]:
    """Take the dictionary of tensors out of what a file holds."""
    if key is not None:
        if not isinstance(content, dict) or key not in content:
            raise _NoTensors(f"it lacks the entry {key!r}")
        content = content[key]
    checked: dict[str, _Tensor] = _checked(content)
    return checked


def _checked(content: Any) -> Any:
    """Refuse anything but a dictionary of tensors."""
    kinds = (_Tensor, require_torch().Tensor)
    if not isinstance(content, dict) or not content:
        raise _NoTensors("it holds no tensors by name")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, kinds):
            shown = repr(name[:80]) if isinstance(name, str) else str(name)[:80]
            foreign = isinstance(value, _Name)
            why = f" but {value.name[:80]!r}, and nothing is unpickled" if foreign else ""
            raise _NoTensors(f"its entry {shown} is no tensor{why}")
    return content


def _made(chosen: dict[str, _Tensor], record: Callable[[_Storage], bytes]) -> State:
    """Make the tensors; those of one storage share their memory."""
    torch = require_torch()
    flat: dict[str, tuple[_Storage, Any]] = {}
    state = {}
    for name, tensor in chosen.items():
        storage = tensor.storage
        if storage.key not in flat:
            dtype = getattr(torch, storage.dtype)
            data = bytearray(record(storage))
            if len(data) != storage.count * _item_size(storage.dtype):
                raise ValueError(f"the numbers of {name[:80]!r} are not all there")
            made = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
            flat[storage.key] = (storage, made)
        first, numbers = flat[storage.key]
        if (first.dtype, first.count) != (storage.dtype, storage.count):
            raise ValueError("two tensors take the same numbers for different ones")
        state[name] = numbers.as_strided(tensor.size, tensor.stride, tensor.offset)
    return state


def _item_size(dtype: str) -> int:
    size: int = getattr(require_torch(), dtype).itemsize
    return size


def _storage(identity: Any, found: dict[str, _Storage] | None) -> _Storage:
    """Describe a storage from what torch writes about it."""
    kind, storage_type, key, _, count, *view = identity
    if kind != "storage" or not isinstance(storage_type, _Name) or any(view):
        raise ValueError("a storage is described in an unknown way")
    module, _, name = storage_type.name.rpartition(".")
    if module != "torch" or name not in _STORAGES:
        raise _NoTensors(f"its tensors are of the unknown type {storage_type.name[:80]!r}")
    if not isinstance(key, str) or type(count) is not int or count < 0:
        raise ValueError("a storage has no name or no size")
    storage = _Storage(_STORAGES[name], key, count)
    if found is not None:
        known = found.setdefault(key, storage)
        if (known.dtype, known.count) != (storage.dtype, storage.count):
            raise ValueError("a storage is described twice")
    return storage


def _reduced(called: Any, arguments: Any) -> Any:
    """Stand in for a call that a file asks for; only those that describe tensors mean anything."""
    name = called.name if isinstance(called, _Name) else ""
    if name in {"torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor"}:
        storage, offset, size, stride, *_ = arguments
        if not isinstance(storage, _Storage):
            raise ValueError("a tensor has no storage")
        return _Tensor(storage, offset, tuple(size), tuple(stride))
    if name == "torch._utils._rebuild_parameter":
        return arguments[0]
    if name == "collections.OrderedDict":
        made: dict[Any, Any] = {}
        for pair in arguments[0] if arguments else ():
            _put(made, *pair)
        return made
    if name == "torch.Size":
        return tuple(arguments[0])
    return called if isinstance(called, _Name) else _Name("a Python object")


def _put(target: dict[Any, Any], key: Any, value: Any) -> None:
    # Hashing nested tuples may take forever, and no state has such keys.
    if isinstance(key, str | int | float | bytes | None):
        target[key] = value


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": list,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_GATHERED = {
    *("TUPLE", "FROZENSET", "LIST", "APPEND", "APPENDS", "ADDITEMS", "SETITEM", "SETITEMS", "DICT"),
    "POP_MARK",
}
_IGNORED = {"PROTO", "FRAME"}
_LITERALS = {
    *("INT", "LONG", "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE"),
    *("BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}


class _Machine:
    """Interprets the opcodes of one pickle; see the text at the top of this file."""

    def __init__(self, found: dict[str, _Storage] | None) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.found = found

    def since_mark(self) -> list[Any]:
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def step(self, name: str, argument: Any) -> None:
        """Do one opcode."""
        if name in _LITERALS:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _TUPLES:
            count = _TUPLES[name]
            values = tuple(self.stack[-count:])
            if len(values) != count:
                raise ValueError("a tuple lacks values")
            self.stack[-count:] = [values]
        elif name == "MARK":
            self.marks.append(len(self.stack))
        elif name in {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}:
            self.memo[len(self.memo) if name == "MEMOIZE" else int(argument)] = self.stack[-1]
        elif name in {"GET", "BINGET", "LONG_BINGET"}:
            self.stack.append(self.memo[int(argument)])
        elif name in _GATHERED:
            self.gather(name)
        else:
            self.refer(name, argument)

    def gather(self, name: str) -> None:
        """Put the values since a mark, or the last ones, together."""
        values = [self.stack.pop()] if name == "APPEND" else []
        if name == "SETITEM":
            values = self.stack[-2:]
            del self.stack[-2:]
        elif name != "APPEND":
            values = self.since_mark()
        if name in {"TUPLE", "FROZENSET"}:
            self.stack.append(tuple(values))
        elif name == "LIST":
            self.stack.append(values)
        elif name in {"APPEND", "APPENDS", "ADDITEMS"}:
            if isinstance(self.stack[-1], list):
                self.stack[-1].extend(values)
        elif name in {"SETITEM", "SETITEMS", "DICT"}:
            if name == "DICT":
                self.stack.append({})
            if isinstance(self.stack[-1], dict):
                for key, value in zip(values[::2], values[1::2], strict=True):
                    _put(self.stack[-1], key, value)

    def refer(self, name: str, argument: Any) -> None:
        """Do an opcode that names or makes something."""
        if name == "GLOBAL":
            self.stack.append(_Name(".".join(argument.split(" ", 1))))
        elif name == "STACK_GLOBAL":
            attribute, module = self.stack.pop(), self.stack.pop()
            if not isinstance(attribute, str) or not isinstance(module, str):
                raise ValueError("a name is no text")
            self.stack.append(_Name(f"{module}.{attribute}"))
        elif name == "BINPERSID":
            self.stack.append(_storage(self.stack.pop(), self.found))
        elif name in {"REDUCE", "NEWOBJ"}:
            arguments, called = self.stack.pop(), self.stack.pop()
            self.stack.append(_reduced(called, arguments))
        elif name == "NEWOBJ_EX":
            del self.stack[-2:]
        elif name in {"POP", "BUILD"}:
            # What BUILD drops is the state of an object: of a dictionary, torch's notes on layers.
            self.stack.pop()
        else:
            raise ValueError(f"its pickle has the unknown opcode {name}")


def _interpret(file: BinaryIO, found: dict[str, _Storage] | None = None) -> Any:
    """Read one pickle into inert values; `found` collects the storages that it refers to."""
    machine = _Machine(found)
    for opcode, argument, _ in pickletools.genops(file):
        if opcode.name == "STOP":
            return machine.stack.pop()
        if opcode.name not in _IGNORED:
            machine.step(opcode.name, argument)
    raise ValueError("its pickle does not end")
