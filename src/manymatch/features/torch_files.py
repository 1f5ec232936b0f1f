"""Tensors of files that torch wrote, read with NumPy alone.

Such a file is a pickle beside the numbers. Unpickling can call any function that a file names, so
here only the names of tensors are known, and every other name is refused. What a tensor says of
its size is compared with the file before memory is taken.
"""

from __future__ import annotations

import collections
import io
import math
import pickle
import pickletools
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_STORAGES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}
# First number of a file of the format before zip archives.
_MAGIC = 0x1950A86A20F9469CFC6C


class _Storage(NamedTuple):
    """Numbers of one or more tensors, somewhere in the file."""

    key: str
    dtype: np.dtype[Any]
    length: int


class _Tensor(NamedTuple):
    """Which numbers of a storage are a tensor."""

    storage: _Storage
    offset: Any
    shape: tuple[Any, ...]
    stride: tuple[Any, ...]

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """Take the tensor out of its storage."""
        whole = (self.offset, *self.shape, *self.stride)
        if not all(isinstance(n, int) and n >= 0 for n in whole):
            raise pickle.UnpicklingError("a tensor has a size that is no whole number")
        last = self.offset + sum(
            (n - 1) * step for n, step in zip(self.shape, self.stride, strict=True)
        )
        if 0 not in self.shape and (last >= len(values) or math.prod(self.shape) > len(values)):
            raise pickle.UnpicklingError("a tensor is larger than what the file holds of it")
        steps = [step * values.itemsize for step in self.stride]
        view = np.lib.stride_tricks.as_strided(values[self.offset :], self.shape, steps)
        return np.ascontiguousarray(view)


class _Unpickler(pickle.Unpickler):
    """Knows tensors, ordered dicts and plain values, and nothing else."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self.stream = stream
        self.storages: dict[str, _Storage] = {}

    def load(self) -> Any:
        """Read the next pickle, once no instruction in it can make Python take memory.

        Torch writes protocol 2. A later protocol has byte arrays that are allocated before their
        bytes are read, and a memo is as long as the largest index that a file names.
        """
        start, size = self.stream.tell(), len(self.stream.getbuffer())
        for instruction, argument, _ in pickletools.genops(self.stream):
            if instruction.proto > 2:
                raise pickle.UnpicklingError("its pickle has a later protocol than torch writes")
            if instruction.name.endswith("PUT") and not 0 <= (argument or 0) <= size:
                raise pickle.UnpicklingError("its pickle numbers more values than it can hold")
        self.stream.seek(start)
        return super().load()

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name in the file."""
        if (module, name) == ("collections", "OrderedDict"):
            # Torch fills an empty one; with arguments it could be copied over and over.
            return lambda: collections.OrderedDict()
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, shape, stride, *_: _Tensor(
                _checked(storage, _Storage), offset, _checked(shape, tuple), _checked(stride, tuple)
            )
        if module == "torch" and name in _STORAGES:
            return np.dtype(_STORAGES[name])
        raise pickle.UnpicklingError(f"it names {module}.{name}"[:100])

    def persistent_load(self, pid: Any) -> _Storage:
        """Return the storage that a tuple names: a word, a type, a key, a device and a number."""
        kind, dtype, key, _, length, *_ = pid
        if kind != "storage":
            raise pickle.UnpicklingError("it refers to something else than numbers")
        found = _Storage(_checked(key, str), _checked(dtype, np.dtype), _checked(length, int))
        self.storages[found.key] = found
        return found


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise pickle.UnpicklingError(f"{kind.__name__} expected, got {type(value).__name__}")
    return value


def read_tensors(path: Path, entry: str | None = None) -> dict[str, NDArray[Any]]:
    """Read the tensors of a file, or of one of its entries, by name.

    Raises
    ------
    pickle.UnpicklingError
        If the file names anything but tensors, or sizes that it does not hold.
    Exception
        Of many kinds, if the file is damaged.
    """
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return _tensors(*_of_archive(archive), entry)
    return _tensors(*_of_sequence(path.read_bytes()), entry)


_Numbers = Callable[[_Storage], "NDArray[Any]"]


def _of_archive(archive: zipfile.ZipFile) -> tuple[Any, _Numbers, int]:
    """Return what an archive holds, how to get the numbers of a storage, and bytes of all."""
    entries = {entry.filename: entry for entry in archive.infolist()}
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
        raise pickle.UnpicklingError("it is compressed, which torch never does")
    (pickled,) = (name for name in entries if name.endswith("/data.pkl"))
    folder = pickled.removesuffix("data.pkl")
    content = _Unpickler(io.BytesIO(archive.read(pickled))).load()

    def numbers(storage: _Storage) -> NDArray[Any]:
        values = np.frombuffer(archive.read(f"{folder}data/{storage.key}"), storage.dtype)
        if len(values) != storage.length:
            raise pickle.UnpicklingError("a storage has another size than the file says")
        return values

    return content, numbers, sum(entry.file_size for entry in entries.values())


def _of_sequence(data: bytes) -> tuple[Any, _Numbers, int]:
    """Return the same for the older format: pickles, and the storages one after the other."""
    stream = io.BytesIO(data)
    # Magic number, version, types of the machine that wrote it; the tensors; keys of storages.
    parts = [_Unpickler(stream) for _ in range(5)]
    magic, _, _, content, keys = (part.load() for part in parts)
    if magic != _MAGIC:
        raise pickle.UnpicklingError("it is not a file of torch")
    places: dict[str, tuple[int, int]] = {}
    for key in _checked(keys, list):
        length = int.from_bytes(stream.read(8), "little")
        places[key] = (stream.tell(), length)
        stream.seek(length * parts[3].storages[key].dtype.itemsize, io.SEEK_CUR)

    def numbers(storage: _Storage) -> NDArray[Any]:
        start, length = places[storage.key]
        if length != storage.length:
            raise pickle.UnpicklingError("a storage has another size than the file says")
        return np.frombuffer(data, storage.dtype, length, start)

    return content, numbers, len(data)


def _tensors(
    content: Any, numbers: _Numbers, size: int, entry: str | None
) -> dict[str, NDArray[Any]]:
    """Take the tensors out of what was unpickled; together they are not larger than the file."""
    if entry is not None:
        if not isinstance(content, dict) or entry not in content:
            raise pickle.UnpicklingError(f"it lacks the entry {entry!r}")
        content = content[entry]
    if not isinstance(content, dict) or not content:
        raise pickle.UnpicklingError("it holds no tensors by name")
    found = {}
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, _Tensor):
            raise pickle.UnpicklingError(f"its entry {str(name)[:80]!r} is not a tensor")
        found[name] = tensor.of(numbers(tensor.storage))
        size -= found[name].nbytes
        if size < 0:
            raise pickle.UnpicklingError("its tensors are larger than the file")
    return found
