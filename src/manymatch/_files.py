"""What all readers and writers share: paths, whole files, .npz archives, one kind of error."""

from __future__ import annotations

import contextlib
import os
import tokenize
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


def unreadable(path: object, want: str, reason: str) -> ValueError:
    """Make the error "path must be <want>, got <path> (<reason>)"."""
    return ValueError(f"path must be {want}, got {str(path)!r} ({reason})")


def as_path(path: object, name: str = "path") -> Path:
    """Check that an argument is the name of a file."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise refusal(name, "the name of a file", path)
    return Path(path)


def as_folder(path: object, name: str = "folder") -> Path:
    """Check that an argument is the name of an existing folder."""
    folder = as_path(path, name)
    if not folder.is_dir():
        raise ValueError(f"{name} must be an existing folder, got {str(folder)!r}")
    return folder


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
def reading(path: object, want: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn the given errors of a block that reads `path` into the one of `unreadable`."""
    try:
        yield
    except errors as error:
        raise unreadable(path, want, str(error) or type(error).__name__) from error


@contextlib.contextmanager
def whole_file(path: object) -> Iterator[Path]:
    """Give a name beside `path` to write to, which becomes `path` when the block ends well."""
    target = as_path(path)
    if target.is_dir() or not target.parent.is_dir():
        raise refusal("path", "a file in an existing folder", str(target))
    # In the same folder, as only there a rename is atomic.
    temporary = target.with_name(f".{os.urandom(16).hex()}.tmp")
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


def write_text(path: object, text: str) -> None:
    """Write a text as `write_whole` writes a file."""
    write_whole(path, lambda file: file.write(text.encode("utf-8")))


def npz_names(data: bytes, path: object, want: str) -> set[str]:
    """Names of the arrays of an .npz file."""
    with reading(path, want, ValueError):
        return _array_names(_open_zip(data))


def read_npz(
    data: bytes, path: object, want: str, names: Iterable[str], optional: Iterable[str] = ()
) -> dict[str, NDArray[Any]]:
    """Read the named arrays of an .npz file, without pickles.

    All of `names` must be there; those of `optional` are left out where they are not.
    """
    with reading(path, want, ValueError):
        archive = _open_zip(data)
        present = _array_names(archive)
        arrays = {}
        for name in names:
            if name not in present:
                raise ValueError(f"it lacks the array {name!r}")
            arrays[name] = _read_member(archive, name)
        for name in optional:
            if name in present:
                arrays[name] = _read_member(archive, name)
        return arrays


def read_npy(data: bytes) -> NDArray[Any]:
    """Read the array of an .npy file without pickles; a damaged one is a `ValueError`."""
    try:
        array: NDArray[Any] = np.lib.format.read_array(BytesIO(data), allow_pickle=False)
    except (
        # NumPy evaluates the header as a Python literal and repeats what the parser raises.
        SyntaxError,
        TypeError,
        tokenize.TokenError,
        RecursionError,
        # The header announces an array that is too large.
        OverflowError,
        MemoryError,
    ) as error:
        raise ValueError(f"its array has a damaged header: {error}") from error
    return array


def _open_zip(data: bytes) -> zipfile.ZipFile:
    """Open an archive in memory; a damaged one is a `ValueError`."""
    try:
        return zipfile.ZipFile(BytesIO(data))
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise ValueError(str(error)) from error


def _array_names(archive: zipfile.ZipFile) -> set[str]:
    names = archive.namelist()
    return {name.removesuffix(".npy") for name in names if name.endswith(".npy")}


def _read_member(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Read one array of an archive; a damaged one is a `ValueError`."""
    entry = archive.getinfo(f"{name}.npy")
    if entry.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise ValueError(f"the array {name!r} is compressed in a way that NumPy does not use")
    try:
        content = archive.read(entry)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        # A RuntimeError says that the member is encrypted.
        raise ValueError(f"the array {name!r}: {error}") from error
    return read_npy(content)
