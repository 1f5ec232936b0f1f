"""What all readers and writers share: limits, whole files, arrays, one kind of error."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import shutil
import stat
import tempfile
import threading
import time
import tokenize
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import refusal, require
from manymatch.io.remote import RemotePath, is_remote, located, masked

PathLike: TypeAlias = str | os.PathLike[str]
# For packages that build on this one.
__all__ = ["require"]

#: How much a file may make a reader hold. The environment variable ``MANYMATCH_MAX_<NAME>``, in
#: upper case, sets another number.
#:
#: - pixels: of an image. 178 million are 0.5 GB as RGB, and Pillow itself refuses little more.
#: - array_mb: the arrays of one file in megabytes, 8 bytes a number, which is what they are
#:   converted to; also the size of a file that is read whole.
#: - text_mb: a text that is read whole (lists, CSV, JSON), in megabytes.
#: - records: the lines or entries of a file that become objects: pairs, images, cameras.
LIMITS = {"pixels": 178_000_000, "array_mb": 256, "text_mb": 64, "records": 2_000_000}
#: Longest line of a text that is read line by line, in bytes.
LONGEST_LINE = 16_000_000
#: Longest name of a file in bytes, on every usual file system.
LONGEST_NAME = 255

_MEGABYTE = 1_000_000
# By the letter of `stat.filemode`.
_SPECIAL = {"d": "a folder", "p": "a FIFO", "s": "a socket", "c": "a device", "b": "a device"}
# Seconds after which a temporary file or folder belongs to a process that was killed.
_ABANDONED = 3600.0
# What Python, the linker, torch, OpenCV and HDF5 say.
_NO_MEMORY = re.compile(
    r"(can't|cannot|failed to|unable to) (allocate|start new thread|map segment)"
    r"|not enough memory|out of memory|memory allocation failed",
    re.IGNORECASE,
)
# Letters of a sentence of ours; those of libraries are cut earlier.
_LONGEST_REASON = 600
# tomllib takes time and memory with the square of the dots of a key, and of some texts.
_LONGEST_TOML, _MOST_DOTS = 50_000, 1_000
# How the entry of a member begins in the directory of an archive, and how many are read.
_MEMBER, _MOST_MEMBERS = b"PK\x01\x02", 10_000
# What zipfile and NumPy, which evaluates the header of an array, raise for damaged files.
_DAMAGE = (
    *(ValueError, SyntaxError, TypeError, RecursionError, OverflowError, MemoryError, EOFError),
    *(RuntimeError, KeyError, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


def limit(name: str) -> int:
    """Return a number of `LIMITS`, or the one that the environment sets instead."""
    variable = f"MANYMATCH_MAX_{name.upper()}"
    text = os.environ.get(variable, "")
    if text and (not text.isdecimal() or int(text) == 0):
        raise refusal(variable, "a whole number of at least 1", text)
    return int(text) if text else LIMITS[name]


def too_large(what: str, name: str) -> ValueError:
    """Make the error of something beyond a limit; `what` is the subject of the sentence."""
    more = f"MANYMATCH_MAX_{name.upper()}"
    return ValueError(f"{what} than {limit(name):,}, the limit that {more} sets")


def check_size(numbers: int, what: str = "its arrays") -> None:
    """Refuse arrays of more numbers than fit into the limit array_mb."""
    if numbers * 8 > limit("array_mb") * _MEGABYTE:
        raise too_large(f"refused: {what} expand to more megabytes", "array_mb")


class MissingFileError(FileNotFoundError, ValueError):
    """A named file or folder does not exist: bad input like any other, and what `open` raises."""


def error_type(cause: object) -> type[ValueError]:
    """Return `MissingFileError` if a missing file is the cause of an error, else `ValueError`."""
    return MissingFileError if isinstance(cause, FileNotFoundError) else ValueError


def unreadable(path: object, want: str, reason: str, cause: object = None) -> ValueError:
    """Make the error "path must be <want>, got <path> (<reason>)"."""
    return error_type(cause)(f"path must be {want}, got {str(path)!r} ({reason})")


def brief(error: BaseException) -> str:
    """Return what an error says in one line of bounded length: some quote a whole file."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    said = masked(" ".join(str(error).split())) or type(error).__name__
    most = _LONGEST_REASON if isinstance(error, ValueError) else _LONGEST_REASON // 3
    return said if len(said) <= most else f"{said[:most]}..."


@contextlib.contextmanager
def reading(path: object, want: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn the given errors of a block that reads `path` into the one of `unreadable`."""
    try:
        yield
    except errors as error:
        raise unreadable(path, want, brief(error), error) from error


def out_of_memory(error: BaseException) -> bool:
    """Tell whether an error is a lack of memory, for which libraries have their own errors."""
    if type(error) is SystemError and error.__cause__ is not None:  # of a function in C
        error = error.__cause__
    said = "" if isinstance(error, ValueError) else str(error)
    return isinstance(error, MemoryError) or _NO_MEMORY.search(said) is not None


# ----------------------------------------------------------------------- names of files


def as_path(path: object, name: str = "path") -> Path:
    """Check that an argument is the name of a file; one at an address is a `RemotePath`."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise refusal(name, "the name of a file", path)
    return located(path)


def local_path(path: object, name: str = "path") -> Path:
    """Check that an argument is the name of a file or folder of this machine."""
    place = as_path(path, name)
    if is_remote(place):
        raise ValueError(f"{name} must be on this machine, got {str(place)!r}")
    return place


def as_folder(path: object, name: str = "folder", *, output: bool = False) -> Path:
    """Check that an argument is an existing folder or, for `output`, any address."""
    folder = as_path(path, name)
    # A web server does not tell folders from files.
    unknown = is_remote(folder) and (output or folder.protocol in ("http", "https"))
    if not unknown and not folder.is_dir():
        kind = ValueError if folder.exists() else MissingFileError
        raise kind(f"{name} must be an existing folder, got {str(folder)!r}")
    return folder


def output_folder(path: object, name: str = "out") -> Path:
    """Check, before a long computation, that files can be written to a folder; none is left."""
    folder, probe = as_path(path, name), temporary_name()
    try:
        if is_remote(folder):
            if folder.is_file():
                raise FileExistsError(errno.EEXIST, "it is a file")
            write_remote(folder / probe, b"")
            (folder / probe).unlink()
        else:
            if any(len(os.fsencode(part)) > LONGEST_NAME for part in folder.parts):
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))  # noqa: TRY301
            place = next(p for p in (folder, *folder.parents) if p.exists() or p.is_symlink())
            if not place.is_dir():
                raise FileExistsError(errno.EEXIST, f"{str(place)!r} is a file")
            # Tried, as permissions and quotas differ.
            (place / probe).mkdir()
            (place / probe).rmdir()
    except OSError as error:
        want, reason = "a folder that can be written to", error.strerror or str(error)
        raise ValueError(f"{name} must be {want}, got {str(folder)!r} ({reason})") from error
    return folder


def output_file(path: object, name: str) -> Path:
    """Check, before a long computation, that a file can be written."""
    target = as_path(path, name)
    if target.is_dir():
        raise ValueError(f"{name} must be a file, got the folder {str(target)!r}")
    output_folder(target.parent, f"the folder of {name}")
    return target


def safe_name(text: str) -> str:
    """Turn any text into the name of a file or folder: letters, digits and ``._+-``."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", text).strip("._") or "set"


def name_end(name: str, most_bytes: int) -> str:
    """Return the longest end of a name that takes at most `most_bytes` in UTF-8."""
    return name.encode("utf-8", "surrogateescape")[-most_bytes:].decode("utf-8", "ignore")


# -------------------------------------------------------------------------------- reading

# The last file at an address: pixels and tags of an image are read one after the other.
_last = threading.local()
# Entries of fsspec's description of a file that change with its content.
_VERSIONS = ("ETag", "etag", "LastModified", "created", "modified", "mtime", "updated")


def open_regular(path: Path, most: str = "array_mb") -> BinaryIO:
    """Open a file for reading; a `ValueError` says why it cannot be read, without its name.

    A FIFO or a device could block for ever, and is refused like a folder. A file at an address is
    read whole; `most` is the name of the limit of its size in `LIMITS`.
    """
    try:
        if is_remote(path):
            return BytesIO(_fetched(path, most))
        _refuse_special(path.stat())
        # Not to block if the name has become a FIFO since.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise MissingFileError("there is no such file") from error
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    try:
        _refuse_special(os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _refuse_special(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _SPECIAL.get(stat.filemode(status.st_mode)[0], "not a regular file")
        raise ValueError(f"it is {kind}")


def _fetched(path: RemotePath, most: str) -> bytes:
    """Read a whole file at an address, or return the last one again if it has not changed."""
    largest = limit(most) * _MEGABYTE
    with path.system() as (system, place):
        info = system.info(place)
        if info["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        size = info.get("size")
        known = (path, [(name, info[name]) for name in _VERSIONS if name in info], size)
        if known[1] and getattr(_last, "known", None) == known:
            return bytes(_last.data)
        if size is None:
            with system.open(place, "rb") as file:
                data = bytes(file.read(largest + 1))
        else:
            data = bytes(system.cat_file(place, start=0, end=min(size, largest + 1)))
    if len(data) > largest:
        raise too_large("it has more megabytes", most)
    _last.known, _last.data = known, data
    return data


def file_size(file: BinaryIO) -> int:
    """Return the size of a file that `open_regular` opened."""
    return file.getbuffer().nbytes if isinstance(file, BytesIO) else os.fstat(file.fileno()).st_size


def read_bytes(path: object, want: str, most: str = "array_mb") -> bytes:
    """Read a whole file that is not empty, of at most the size of the limit `most`."""
    source = as_path(path)
    wrong = (OSError, ValueError, MemoryError)
    with reading(source, want, *wrong), open_regular(source, most) as file:
        size = file_size(file)
        if size > limit(most) * _MEGABYTE:
            raise too_large("it has more megabytes", most)
        data = file.read(size)  # not to its end, as it may be growing
        if not data:
            raise ValueError("it is empty")
        return data


def read_text(path: object, want: str) -> str:
    """Read a whole text in UTF-8, with or without a byte order mark."""
    data = read_bytes(path, want, "text_mb")
    with reading(path, want, ValueError):
        return data.decode("utf-8-sig")


def read_json(path: object, want: str) -> Any:
    """Read a JSON document."""
    text = read_text(path, want)
    with reading(path, want, ValueError, RecursionError):
        return json.loads(text)


def read_toml(path: object, want: str) -> dict[str, Any]:
    """Read a short text in TOML."""
    text = read_text(path, want)
    with reading(path, want, ValueError, RecursionError):
        if len(text) > _LONGEST_TOML or text.count(".") > _MOST_DOTS:
            most = f"{_LONGEST_TOML:,} characters or {_MOST_DOTS:,} dots"
            raise ValueError(f"it has more than {most}")
        return tomllib.loads(text)


def read_lines(file: BinaryIO, errors: str = "strict") -> Iterator[tuple[int, str]]:
    """Go through the lines of a text in UTF-8 and their numbers, without their ends."""
    # Lines end at "\n" alone: file names may contain other separators.
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), 1):
        if len(line) == LONGEST_LINE:
            raise ValueError(f"line {number} is longer than {LONGEST_LINE:,} bytes")
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        yield number, text.decode("utf-8", errors).removesuffix("\n").removesuffix("\r")


# -------------------------------------------------------------------------------- writing


def temporary_name() -> str:
    """Make a name for a file or folder that is not finished."""
    return f".{os.urandom(16).hex()}.tmp"


def remove_abandoned(folder: Path) -> None:
    """Remove temporary files and folders that a process left which was killed long ago."""
    for path in () if is_remote(folder) else folder.glob(".*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _ABANDONED:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextlib.contextmanager
def _unfinished(folder: Path, written: Path) -> Iterator[Path]:
    """Give a temporary folder in `folder`, as only there a rename is atomic; errors name `written`.

    The error of a full disk names nothing.
    """
    remote = is_remote(folder)
    place = Path(tempfile.mkdtemp(prefix="manymatch-")) if remote else folder / temporary_name()
    try:
        place.mkdir(exist_ok=remote)
        yield place
    except OSError as error:
        if error.errno is not None:
            error.filename = str(error.filename or written).replace(str(place), str(written))
        raise
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _finish(source: Path, target: Path) -> None:
    """Give a finished file its name."""
    if is_remote(target):
        write_remote(target, source)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)


@contextlib.contextmanager
def whole_file(path: object) -> Iterator[Path]:
    """Give a temporary name to write to; the file becomes `path` when the block ends well."""
    target = as_path(path)
    if not is_remote(target) and (target.is_dir() or not target.parent.is_dir()):
        raise refusal("path", "a file in an existing folder", str(target))
    with _unfinished(target.parent, target) as place:
        yield (temporary := place / target.name)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        _finish(temporary, target)


@contextlib.contextmanager
def whole_files(folder: Path, replaced: Iterable[str] = ()) -> Iterator[Path]:
    """Give a temporary folder; its files move to `folder`, which is made, when the block ends well.

    Files of `folder` that are named in `replaced` are removed then.
    """
    make_folder(folder)
    remove_abandoned(folder)
    with _unfinished(folder, folder) as place:
        yield place
        for name in replaced:
            (folder / name).unlink(missing_ok=True)
            for parent in () if is_remote(folder) else Path(name).parents[:-1]:
                with contextlib.suppress(OSError):  # it has other files
                    (folder / parent).rmdir()
        for source in sorted(path for path in place.rglob("*") if path.is_file()):
            _finish(source, folder / source.relative_to(place).as_posix())


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; at an address they are made with their first file."""
    if not is_remote(folder):
        folder.mkdir(parents=True, exist_ok=True)


def write_remote(path: RemotePath, source: bytes | Path) -> None:
    """Put a whole file at an address at once, from memory or from a file of this machine."""
    with path.system() as (system, place):
        local = isinstance(source, Path)
        put = system.put_file if local else system.pipe_file
        given = (str(source), place) if local else (place, source)
        try:
            put(*given)
        except FileNotFoundError:
            # The folder is made where that is needed, but no bucket: its name may be mistaken.
            folder = place.rpartition("/")[0]
            top = folder.strip("/").partition("/")[0]
            if folder.strip("/") == top or not system.exists(top):
                raise NotADirectoryError(errno.ENOTDIR, f"there is no {top!r}") from None
            system.makedirs(folder, exist_ok=True)
            put(*given)


def write_whole(path: object, write: Callable[[BinaryIO], object]) -> None:
    """Write a file that appears under its name only when it is complete."""
    with whole_file(path) as temporary, temporary.open("xb") as file:
        write(file)


def write_text(path: object, text: str) -> None:
    """Write a text as `write_whole` writes a file."""
    write_whole(path, lambda file: file.write(text.encode("utf-8")))


def write_npz(path: object, arrays: Mapping[str, Any]) -> None:
    """Write arrays to an .npz file as `write_whole` writes a file, without pickles."""
    packed = BytesIO()  # in memory: an archive that fails half way has somewhere to write its end
    np.savez_compressed(packed, allow_pickle=False, **arrays)
    write_whole(path, lambda file: file.write(packed.getbuffer()))


# --------------------------------------------------------------------------------- arrays


def npz_names(data: bytes, path: object, want: str) -> set[str]:
    """Names of the arrays of an .npz file."""
    with reading(path, want, *_DAMAGE, OSError):
        if data.count(_MEMBER) > _MOST_MEMBERS:
            raise ValueError(f"it has more than {_MOST_MEMBERS:,} members")
        archive = zipfile.ZipFile(BytesIO(data))
        return {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}


def read_npz(
    data: bytes,
    path: object,
    want: str,
    names: Collection[str],
    optional: Collection[str] = (),
    objects: Callable[[bytes], NDArray[Any]] | None = None,
) -> dict[str, Any]:
    """Read the named arrays of an .npz file, without pickles.

    All of `names` must be there; those of `optional` are left out if they are missing. `objects`
    reads the pickle of an array of Python objects; without it such an array is refused.
    """
    present = npz_names(data, path, want)
    with reading(path, want, *_DAMAGE, OSError), zipfile.ZipFile(BytesIO(data)) as archive:
        if missing := [name for name in names if name not in present]:
            raise ValueError(f"it lacks the array {missing[0]!r}")
        numbers, arrays = 0, {}
        for name in (*names, *present.intersection(optional)):
            entry = archive.getinfo(f"{name}.npy")
            with archive.open(entry) as file:
                arrays[name] = _read_array(file, entry.file_size, numbers, objects)
                file.read(1)  # compares the checksum
            numbers += arrays[name].size
        return arrays


def _read_array(
    file: Any, size: int, before: int = 0, objects: Callable[[bytes], Any] | None = None
) -> NDArray[Any]:
    """Read an array of at most `size` bytes, after others of `before` numbers."""
    formats = np.lib.format
    first = formats.read_magic(file) == (1, 0)
    read = formats.read_array_header_1_0 if first else formats.read_array_header_2_0
    shape, _, dtype = read(file)
    numbers = math.prod(map(abs, shape))
    check_size(before + (size // 8 if dtype.hasobject else numbers))
    if objects is not None and dtype.kind == "O":
        return objects(file.read(size))  # type: ignore[no-any-return]
    if not dtype.hasobject and numbers * dtype.itemsize > size:
        raise ValueError("an array declares more numbers than it has")
    file.seek(0)
    array: NDArray[Any] = formats.read_array(file, allow_pickle=False)
    return array
