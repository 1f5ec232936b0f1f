"""Files of weights: which belong to a network, and their tensors by name.

They are read by safetensors, by `torch.load(weights_only=True)` and, without torch, by
`read_tensors` if their hash is in the catalogue; none of them runs anything that a file contains.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import io
import pickle
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import require
from manymatch.features.device import require_torch
from manymatch.io.files import MissingFileError, as_path, read_json

if TYPE_CHECKING:
    import torch

    from manymatch.features.registry import Model

State: TypeAlias = "dict[str, torch.Tensor]"
SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")
INDEX = "model.safetensors.index.json"
# Types of numbers by the name of their storage in torch.
_STORAGES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2"}
_STORAGES |= {"LongStorage": "<i8", "IntStorage": "<i4", "ByteStorage": "u1", "BoolStorage": "?"}


class WeightsError(ValueError):
    """Weights are missing, damaged, or those of another network."""


class MissingWeightsError(WeightsError, MissingFileError):
    """A file of weights that was named is not there."""


def sha256_of(path: Path) -> str:
    """Compute the SHA-256 of a file in hexadecimal digits, once until the file changes."""
    status = path.stat()
    return _sha256(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache
def _sha256(path: Path, *_: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, of bounded length."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".:")[:200] if lines else type(error).__name__


def weight_files(path: Path) -> list[Path]:
    """Files of one network: a file itself, or all shards of a folder; empty if some are missing."""
    if path.is_file():
        return [path]
    index = path / INDEX
    if index.is_file():
        try:
            names = set(read_json(index, "a list of shards")["weight_map"].values())
            # Their names alone: a list that comes with the files must not point to others.
            files = [path / Path(name).name for name in sorted(names)]
        except (ValueError, LookupError, TypeError, AttributeError):
            return []
        return files if all(file.is_file() for file in files) else []
    for pattern in ("model.safetensors", *(f"*{suffix}" for suffix in SUFFIXES)):
        files = sorted(file for file in path.glob(pattern) if file.is_file())
        if files:
            return files
    return []


def _checked_files(path: Path) -> list[Path]:
    """Return the files of one network, or say why there are none."""
    if not path.is_dir():
        return [path]
    files = weight_files(path)
    if not files:
        raise _unreadable(path, "no complete weights are in this folder")
    if len(files) > 1 and not (path / INDEX).is_file():
        raise _unreadable(path, f"it holds {len(files)} files: name one of them")
    return files


def load_state(path: object, key: str | None = None) -> State:
    """Read the tensors of a file to the CPU, or of a folder with one file or all shards.

    `key` is the entry that holds the tensors, where a file of torch holds more than one network.
    """
    state: State = {}
    for file in _checked_files(as_path(path, "weights")):
        state.update(_read_file(file, key))
    return state


def _read_file(file: Path, key: str | None) -> State:
    torch = require_torch()
    with _reading(file):
        if file.suffix.lower() == SUFFIXES[0]:
            library = require("safetensors.torch", "reading .safetensors files", "features")
            content = library.load_file(file, device="cpu")
        else:
            # A mapped file takes memory for the tensors that are used; the older format has none.
            mapped = zipfile.is_zipfile(file)
            with warnings.catch_warnings(action="ignore"):
                content = _load(torch, file, key, mapped=mapped)
    if not isinstance(content, dict) or not content:
        raise _unreadable(file, "it holds no tensors by name")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise _unreadable(file, f"its entry {str(name)[:80]!r} is not a tensor")
    return dict(content)


def read_arrays(path: Path, model: Model) -> dict[str, NDArray[Any]]:
    """Read the tensors of a file or folder as arrays; those of a published file without torch."""
    found: dict[str, NDArray[Any]] = {}
    for file in _checked_files(path):
        with _reading(file):
            if file.suffix.lower() == SUFFIXES[0]:
                library = require("safetensors.numpy", "reading .safetensors files", "features")
                found |= library.load_file(file)
            elif sha256_of(file) in model.sha256.values():
                found |= read_tensors(file, model.entry)
            else:
                require("torch", f"weights other than the published file ({file})", "features")
                state = _read_file(file, model.entry)
                found |= {name: tensor.numpy() for name, tensor in state.items()}
    return found


@contextlib.contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Turn everything that can be wrong with a file into a `WeightsError`."""
    if file.suffix.lower() not in SUFFIXES:
        raise _unreadable(file, "its name does not end so")
    if not file.is_file():
        raise _unreadable(file, "there is no such file")
    try:
        yield
    except (ModuleNotFoundError, WeightsError):
        raise
    except pickle.UnpicklingError as error:
        what = "code or objects beside tensors, which are not unpickled, or is damaged"
        raise _unreadable(file, f"it holds {what}: {first_line(error)}") from error
    except Exception as error:
        # The libraries raise errors of a dozen kinds for damaged files.
        raise _unreadable(file, f"it is damaged: {first_line(error)}") from error


class _StandIn:
    """Stands for an object of a class that a weight file names; it drops all that it is given."""

    def __new__(cls, *_: object) -> Self:
        return object.__new__(cls)

    def __setstate__(self, state: object) -> None:
        pass


def _load(torch: Any, file: Path, key: str | None, *, mapped: bool) -> Any:
    """Read a file of torch, or its entry `key`; objects beside the tensors become stand-ins."""
    io = torch.serialization
    named = io.get_unsafe_globals_in_checkpoint(file) if mapped else ()
    with io.safe_globals([(type("StandIn", (_StandIn,), {}), name) for name in named]):
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
    if key is None:
        return content
    if not isinstance(content, dict) or key not in content:
        raise _unreadable(file, f"it lacks the entry {key!r}")
    return content[key]


def _unreadable(path: Path, reason: str) -> WeightsError:
    kinds = ", ".join(SUFFIXES[:-1])
    return (WeightsError if path.exists() else MissingWeightsError)(
        f"weights must be a {kinds} or {SUFFIXES[-1]} file of tensors, got {str(path)!r} ({reason})"
    )


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
    arrays = {}
    for name, (key, offset, shape, stride) in tensors.items():
        steps = [step * numbers[key].itemsize for step in stride]
        view = np.lib.stride_tricks.as_strided(numbers[key][offset:], shape, steps)
        arrays[name] = np.ascontiguousarray(view).reshape(shape)
    return arrays
