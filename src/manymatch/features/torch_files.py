"""Tensors of published files that torch wrote, read with NumPy alone.

Such a file is a pickle beside the numbers. Only files whose hash is in the catalogue come here, and
still no name in the pickle is looked up: tensors become tuples, and every other name is refused.
"""

from __future__ import annotations

import collections
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_STORAGES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2"}
_STORAGES |= {"LongStorage": "<i8", "IntStorage": "<i4", "ByteStorage": "u1", "BoolStorage": "?"}


class _Tensor(NamedTuple):
    """Which numbers of a storage are a tensor."""

    key: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class _Unpickler(pickle.Unpickler):
    """Knows tensors, ordered dicts and plain values; `storages` are types of numbers by key."""

    def __init__(self, stream: Any, storages: dict[str, np.dtype[Any]]) -> None:
        super().__init__(stream)
        self.storages = storages

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name in the file."""
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda key, offset, shape, stride, *_: _Tensor(key, offset, shape, stride)
        if module == "torch" and name in _STORAGES:
            return np.dtype(_STORAGES[name])
        raise pickle.UnpicklingError(f"it names {module}.{name}"[:100])

    def persistent_load(self, pid: Any) -> str:
        """Return the key of a storage: a word, a type, the key, a device and a length are given."""
        _, dtype, key, *_ = pid
        self.storages[key] = dtype
        return str(key)


def read_tensors(path: Path, entry: str | None = None) -> dict[str, NDArray[Any]]:
    """Read the tensors of a published file, or of one of its entries, by name."""
    stream, storages = io.BytesIO(path.read_bytes()), dict[str, np.dtype[Any]]()
    if zipfile.is_zipfile(stream):
        archive = zipfile.ZipFile(stream)
        (pickled,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
        content = _Unpickler(archive.open(pickled), storages).load()
        folder = pickled.removesuffix(".pkl")
        found = {key: archive.read(f"{folder}/{key}") for key in storages}
    else:
        # Pickles of a magic number, the version, types of the machine that wrote it, the tensors,
        # and the keys of the storages, which follow one after the other with their lengths.
        stream.seek(0)
        *_, content, keys = (_Unpickler(stream, storages).load() for _ in range(5))
        lengths = (int.from_bytes(stream.read(8), "little") for _ in keys)
        found = {
            key: stream.read(n * storages[key].itemsize)
            for key, n in zip(keys, lengths, strict=True)
        }
    numbers = {key: np.frombuffer(data, storages[key]) for key, data in found.items()}
    tensors = content if entry is None else content[entry]
    return {name: _array(tensor, numbers[tensor.key]) for name, tensor in tensors.items()}


def _array(tensor: _Tensor, values: NDArray[Any]) -> NDArray[Any]:
    steps = [step * values.itemsize for step in tensor.stride]
    view = np.lib.stride_tricks.as_strided(values[tensor.offset :], tensor.shape, steps)
    return np.ascontiguousarray(view).reshape(tensor.shape)
