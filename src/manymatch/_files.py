"""What all readers and writers share: names, whole files, one kind of error."""

from __future__ import annotations

import contextlib
import os
import struct
import tokenize
import uuid
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from numpy.typing import NDArray

#: What NumPy, the zip reader and h5py raise for damaged files.
DAMAGE = (
    OSError,
    ValueError,
    AttributeError,
    EOFError,
    KeyError,
    TypeError,
    SyntaxError,
    OverflowError,
    MemoryError,
    RuntimeError,
    NotImplementedError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def unreadable(path: object, want: str, reason: str) -> ValueError:
    """Make the error "path must be <want>, got <path> (<reason>)"."""
    return ValueError(f"path must be {want}, got {str(path)!r} ({reason})")


def as_path(path: object, name: str = "path") -> Path:
    """Check that an argument is the name of a file."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise refusal(name, "the name of a file", path)
    return Path(path)


def read_bytes(path: object, want: str) -> bytes:
    """Read a whole file; one that is missing or empty is an error."""
    source = as_path(path)
    try:
        data = source.read_bytes()
    except FileNotFoundError as error:
        raise unreadable(source, want, "there is no such file") from error
    except (OSError, ValueError) as error:
        raise unreadable(source, want, str(error) or type(error).__name__) from error
    if not data:
        raise unreadable(source, want, "it is empty")
    return data


@contextlib.contextmanager
def whole_file(path: object) -> Iterator[Path]:
    """Give a name beside `path` to write to, which becomes `path` when the block ends well."""
    target = as_path(path)
    if target.is_dir() or not target.parent.is_dir():
        raise refusal("path", "a file in an existing folder", str(target))
    # In the same folder, as only there a rename is atomic.
    temporary = target.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: object, write: Callable[[BinaryIO], object]) -> None:
    """Write a file that appears under its name only when it is complete."""
    with whole_file(path) as temporary, temporary.open("xb") as file:
        write(file)


def npz_names(data: bytes, path: object, want: str) -> set[str]:
    """Names of the arrays of an .npz file."""
    try:
        with np.load(BytesIO(data), allow_pickle=False) as content:
            return set(content.files)
    except DAMAGE as error:
        raise unreadable(path, want, str(error) or type(error).__name__) from error


def read_npz(data: bytes, path: object, want: str, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Read the named arrays of an .npz file, all of which must be there."""
    try:
        with np.load(BytesIO(data), allow_pickle=False) as content:
            missing = [name for name in names if name not in content]
            if missing:
                raise ValueError(f"it lacks the array {missing[0]!r}")
            arrays = {name: content[name] for name in names}
    except DAMAGE as error:
        raise unreadable(path, want, str(error) or type(error).__name__) from error
    for name, array in arrays.items():
        # A member of the archive that is no array comes back as bytes.
        if not isinstance(array, np.ndarray):
            raise unreadable(path, want, f"{name} is no array")
    return arrays
