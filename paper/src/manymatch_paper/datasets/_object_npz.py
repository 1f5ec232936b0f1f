"""Reading .npz files with pickled object arrays, without running what such a file may contain.

Benchmarks store lists of paths and matrices with holes as object arrays, which NumPy pickles.
Unpickling as such can run any code. Here the only things a pickle may name are those that make
NumPy arrays, types and numbers; everything else is refused before anything is called.
"""

from __future__ import annotations

import io
import pickle
import struct
import tokenize
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from manymatch._files import read_bytes, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

_LARGEST = 1 << 30

# What the readers of archives, headers and pickles raise for damaged bytes.
_DAMAGE = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    SyntaxError,
    OverflowError,
    MemoryError,
    RuntimeError,
    struct.error,
    tokenize.TokenError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    zlib.error,
)


def _encode(text: str, encoding: str) -> bytes:
    """Stand in for what old pickles make bytes with."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it wants to encode as {encoding!r}")
    return text.encode("latin1")


# Builtin numbers, text and containers are opcodes of their own and name nothing. The package of
# NumPy's functions was renamed, so both names occur in files; NumPy itself says which they are.
_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
}
for _core in ("numpy.core", "numpy._core"):
    _ADMITTED |= {
        (f"{_core}.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        (f"{_core}.multiarray", "scalar"): np.float64(0.0).__reduce__()[0],
        (f"{_core}.numeric", "_frombuffer"): np.empty(1).__reduce_ex__(5)[0],
    }


class _Unpickler(pickle.Unpickler):
    """Knows how to make arrays and refuses to make anything else."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it wants to use {module}.{name}, which arrays do not need"
            ) from None

    def persistent_load(self, pid: object) -> Any:
        raise pickle.UnpicklingError(f"it refers to another object {pid!r}")


def read_object_npz(path: object, want: str, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Read named arrays of an .npz file, which may be arrays of objects.

    Parameters
    ----------
    path : path
        The file.
    want : str
        What it should be, for the error sentence.
    names : iterable of str
        Arrays that must be there.

    Raises
    ------
    ValueError
        If the file is missing, damaged, lacks an array, or a pickle in it names anything but
        NumPy's arrays, scalars and types.
    """
    data = read_bytes(path, want)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {name: _member(archive, name) for name in names}
    except _DAMAGE as error:
        raise unreadable(path, want, str(error) or type(error).__name__) from error


def _member(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    try:
        entry = archive.getinfo(f"{name}.npy")
    except KeyError:
        raise ValueError(f"it lacks the array {name!r}") from None
    if entry.file_size > _LARGEST:
        raise ValueError(f"its array {name!r} is larger than {_LARGEST >> 30} GB")
    content = io.BytesIO(archive.read(entry))
    version = npy.read_magic(content)
    if version == (1, 0):
        shape, _, dtype = npy.read_array_header_1_0(content)
    else:
        shape, _, dtype = npy.read_array_header_2_0(content)
    if not dtype.hasobject:
        content.seek(0)
        plain: NDArray[Any] = npy.read_array(content, allow_pickle=False)
        return plain
    array = _Unpickler(content).load()
    if not isinstance(array, np.ndarray):
        raise TypeError(f"its array {name!r} holds a {type(array).__name__}")
    return array.reshape(shape)
