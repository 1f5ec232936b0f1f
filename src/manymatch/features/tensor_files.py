"""Tensors of files, read without executing anything and without more memory than the file fills.

Files of torch are pickles, which torch rebuilds by calling what they name. Here `_pickles` makes
text, numbers, lists, dictionaries and descriptions of tensors of them. Anything else that a file
names becomes a token that can be stored but not called. Only the tensors that are asked for are
made, at the end, each from as many bytes of the file as it needs.
"""

from __future__ import annotations

import dataclasses
import io
import math
import os
import struct
import zipfile
from typing import TYPE_CHECKING, Any

from manymatch._pickles import LARGEST_PICKLE, Machine, Token
from manymatch._validate import require
from manymatch.features.device import require_torch
from manymatch.io.files import MissingFileError, open_regular

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import BinaryIO

    import torch

    State = dict[str, torch.Tensor]

SAFETENSORS = ".safetensors"
SUFFIXES = (SAFETENSORS, ".pth", ".pt", ".bin", ".ckpt")

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
_MOST_AXES = 64
# What our checks, the system and the libraries of archives and of torch raise for damaged files.
_DAMAGE = (
    *(ValueError, OSError, EOFError, MemoryError, OverflowError, RuntimeError, struct.error),
    zipfile.BadZipFile,
)


class WeightsError(ValueError):
    """Weights are missing, damaged, or those of another network."""


class MissingWeightsError(WeightsError, MissingFileError):
    """A file of weights that was named is not there."""


def read_tensors(file: Path, key: str | None = None) -> State:
    """Read the tensors of one file by name, to the CPU; `key` is as in `weights.load_state`.

    The memory that is taken is that of the wanted tensors as the file holds them.
    """
    if file.suffix.lower() not in SUFFIXES:
        raise unreadable(file, "its name does not end so")
    try:
        opened = open_regular(file)
    except ValueError as error:
        raise unreadable(file, str(error), error) from error
    try:
        with opened:
            if file.suffix.lower() == SAFETENSORS:
                return _read_safetensors(file)
            read = _read_archive if zipfile.is_zipfile(opened) else _read_legacy
            opened.seek(0)
            return read(opened, os.fstat(opened.fileno()).st_size, key)
    except _NoTensors as error:
        raise unreadable(file, str(error)) from None
    except _DAMAGE as error:
        raise unreadable(file, f"it is damaged: {first_line(error)}") from error


def unreadable(path: Path, reason: str, cause: object = None) -> WeightsError:
    """Make the error of a file or folder that holds no tensors by name."""
    kinds = ", ".join(SUFFIXES[:-1])
    missing = isinstance(cause, FileNotFoundError)
    return (MissingWeightsError if missing else WeightsError)(
        f"weights must be a {kinds} or {SUFFIXES[-1]} file of tensors, got {str(path)!r} ({reason})"
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, of bounded length."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".")[:200] if lines else type(error).__name__


def _read_safetensors(file: Path) -> State:
    library = require("safetensors.torch", "reading .safetensors files", "features")
    from safetensors import SafetensorError

    try:
        content: State = _checked(library.load_file(file, device="cpu"))
    except (SafetensorError, AttributeError) as error:
        # An older torch lacks some types of numbers as attributes.
        raise ValueError(first_line(error)) from error
    return content


class _NoTensors(Exception):  # noqa: N818 (its text is the end of another sentence)
    """A file is whole but holds something else."""


# ----------------------------------------------------------------------------------- torch


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
        content = archive.read(pickles[0])
        content = _Pickle(io.BytesIO(content), len(content)).run()

        def record(storage: _Storage) -> bytes:
            name = f"{folder}data/{storage.key}"
            return archive.read(name) if name in entries else b""

        return _made(_chosen(content, key), record)


def _read_legacy(file: BinaryIO, length: int, key: str | None) -> State:
    """Read the older format: pickles one after the other, then all storages."""
    if length == 0:
        raise ValueError("it is empty")

    def pickle() -> _Pickle:
        return _Pickle(file, min(length - file.tell(), LARGEST_PICKLE))

    if any(pickle().run() != value for value in _LEGACY):
        raise _NoTensors("it was not written by torch")
    system = pickle().run()
    if isinstance(system, dict) and system.get("little_endian") is False:
        raise _NoTensors("its numbers are big-endian")
    state = pickle()
    content, storages = state.run(), state.storages
    names = pickle().run()
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
            shown = repr(name[:80]) if isinstance(name, str) else name.name
            foreign = isinstance(value, Token)
            why = f" but {value.name[:80]!r}, and nothing is unpickled" if foreign else ""
            raise _NoTensors(f"its entry {shown} is no tensor{why}")
    return content


def _made(chosen: dict[str, _Tensor], record: Callable[[_Storage], bytes]) -> State:
    """Make the tensors; those of one storage share their memory."""
    torch = require_torch()
    flat: dict[str, Any] = {}
    state = {}
    for name, tensor in chosen.items():
        storage = tensor.storage
        if storage.key not in flat:
            dtype = getattr(torch, storage.dtype)
            data = bytearray(record(storage))
            if len(data) != storage.count * _item_size(storage.dtype):
                raise ValueError(f"the numbers of {name[:80]!r} are not all there")
            made = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
            flat[storage.key] = made
        state[name] = flat[storage.key].as_strided(tensor.size, tensor.stride, tensor.offset)
    return state


def _item_size(dtype: str) -> int:
    size: int = getattr(require_torch(), dtype).itemsize
    return size


class _Pickle(Machine):
    """Interprets a pickle of torch, and collects the storages that it refers to."""

    lenient = True

    def __init__(self, file: BinaryIO, length: int) -> None:
        super().__init__(file, length)
        self.storages: dict[str, _Storage] = {}

    def named(self, module: str, name: str) -> Token:
        """Let a file name anything, as tensors may be beside it."""
        return Token(f"{module}.{name}")

    def called(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """Stand in for a call; only those that describe tensors mean anything."""
        match function, arguments:
            case (
                Token("torch._utils._rebuild_tensor_v2" | "torch._utils._rebuild_tensor"),
                (_Storage() as storage, offset, tuple(size), tuple(stride), *_),
            ):
                return _Tensor(storage, offset, size, stride)
            case Token("torch._utils._rebuild_parameter"), (tensor, *_):
                return tensor
            case Token("torch.Size"), (tuple(size),):
                return size
            case Token("collections.OrderedDict"), ():
                return {}
            case Token("collections.OrderedDict"), (list(pairs),):
                self.spend(100 * len(pairs))
                if any(type(pair) not in (list, tuple) or len(pair) != 2 for pair in pairs):
                    raise ValueError("it has a key without a value")
                return {self.key(key): value for key, value in pairs}
        return function if isinstance(function, Token) else Token("a Python object")

    def built(self, record: Any, state: Any) -> None:
        """Drop the state of an object: of a dictionary, torch's notes on layers."""

    def identified(self, identity: Any) -> _Storage:
        """Describe a storage from what torch writes about it."""
        match identity:
            case ("storage", Token(kind), str(key), _, int(count), *view) if not any(view):
                module, _, name = kind.rpartition(".")
            case _:
                raise ValueError("a storage is described in an unknown way")
        if module != "torch" or name not in _STORAGES:
            raise _NoTensors(f"its tensors are of the unknown type {kind[:80]!r}")
        storage = _Storage(_STORAGES[name], key, count)
        known = self.storages.setdefault(key, storage)
        if count < 0 or (known.dtype, known.count) != (storage.dtype, storage.count):
            raise ValueError("a storage has no size, or two")
        return known
