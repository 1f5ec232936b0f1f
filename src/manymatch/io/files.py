"""What all readers and writers share: limits, regular and whole files, arrays, one kind of error.

A reader knows what it will allocate before it allocates: sizes that a file declares are held
against the bytes that it has and against `LIMITS`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import re
import stat
import tempfile
import threading
import tokenize
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import refusal, require
from manymatch.io.remote import RemotePath, is_remote, located

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import BinaryIO

    from numpy.typing import NDArray

# For packages that build on this one.
__all__ = ["require"]

#: What a file may make a reader hold. The environment variable ``MANYMATCH_MAX_<NAME>``, in upper
#: case, sets another number.
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
# No stream of deflate, the compression of .npz and .h5 files, becomes longer than so many times.
_MOST_DEFLATED = 1032
# Arrays of an archive; each takes some memory before anything of it is read.
_MOST_MEMBERS = 10_000
# Of the header of an array: what NumPy parses at most, and the lengths before it.
_LONGEST_HEADER = 10_000 + 12
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def limit(name: str) -> int:
    """Return a number of `LIMITS`, or what the environment says instead."""
    variable = f"MANYMATCH_MAX_{name.upper()}"
    text = os.environ.get(variable, "")
    if not text:
        return LIMITS[name]
    if not text.isdecimal() or int(text) == 0:
        raise refusal(variable, "a whole number of at least 1", text)
    return int(text)


def too_large(what: str, name: str) -> ValueError:
    """Make the error of what is beyond a limit; `what` is the subject of the sentence."""
    more = f"MANYMATCH_MAX_{name.upper()}"
    return ValueError(f"{what} than {limit(name):,}, the limit that {more} sets")


# Error code of OpenCV.
_OPENCV_NO_MEMORY = -4


class MissingFileError(FileNotFoundError, ValueError):
    """A file or folder that was named is not there.

    Every reader raises it: it is bad input like any other, and what `open` would raise.
    """


def error_type(cause: object) -> type[ValueError]:
    """Return `MissingFileError` if a missing file is the cause of an error, else `ValueError`."""
    return MissingFileError if isinstance(cause, FileNotFoundError) else ValueError


def unreadable(path: object, want: str, reason: str, cause: object = None) -> ValueError:
    """Make the error "path must be <want>, got <path> (<reason>)"."""
    return error_type(cause)(f"path must be {want}, got {str(path)!r} ({reason})")


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
    """Check that an argument is the name of an existing folder.

    For `output` an address is one as well, as folders there are made with their first file.
    """
    folder = as_path(path, name)
    # A web server does not tell folders from files.
    if is_remote(folder) and (output or folder.protocol in ("http", "https")):
        return folder
    if not folder.is_dir():
        kind = ValueError if folder.exists() else MissingFileError
        raise kind(f"{name} must be an existing folder, got {str(folder)!r}")
    return folder


def output_folder(path: object, name: str = "out") -> Path:
    """Check that files can be written to a folder, or that it can be made; nothing is left there.

    This is for the time before a long computation, whose result is to be written afterwards.
    """
    folder = as_path(path, name)
    reason = _why_unwritable(folder)
    if reason:
        want = "a folder that can be written to"
        raise ValueError(f"{name} must be {want}, got {str(folder)!r} ({reason})")
    return folder


def output_file(path: object, name: str) -> Path:
    """Check that a file can be written, its folder made where there is none, before the work."""
    target = as_path(path, name)
    if target.is_dir():
        raise ValueError(f"{name} must be a file, got the folder {str(target)!r}")
    output_folder(target.parent, f"the folder of {name}")
    return target


def _why_unwritable(folder: Path) -> str:
    """Say why nothing can be written to a folder; empty if something can."""
    if is_remote(folder):
        try:
            if folder.is_file():
                return "it is a file"
            tried = folder / f".{os.urandom(16).hex()}.tmp"
            write_remote(tried, b"")
            tried.unlink()
        except OSError as error:
            return error.strerror or str(error)
        return ""
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in folder.parts):
        return os.strerror(errno.ENAMETOOLONG)
    place = folder
    try:
        # A link that leads nowhere is in the way as well.
        while not (place.exists() or place.is_symlink()):
            place = place.parent
        if not place.is_dir():
            return f"{str(place)!r} is a file"
        # Only trying it tells: permissions do not bind everyone, and there are quotas.
        probe = place / f".{os.urandom(16).hex()}.tmp"
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def open_regular(path: Path, most: str = "array_mb", *, again: bool = False) -> BinaryIO:
    """Open a file for reading; a `ValueError` says why there is nothing to read, without its name.

    A FIFO or a device could block for ever or never end, and is refused like a folder. A file at an
    address is read whole; `most` is the name of the limit in `LIMITS` of its size, and one that is
    opened `again` soon is read once unless it has changed.
    """
    if is_remote(path):
        return BytesIO(_fetched(path, most, again=again))
    try:
        _refuse_special(path.stat().st_mode)
        # Between the two calls the name may become another file's; a FIFO must not block then.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise MissingFileError("there is no such file") from error
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    try:
        _refuse_special(os.fstat(descriptor).st_mode)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


# The last file that a thread opens again: of an image, pixels and tags are read after each other.
_last = threading.local()
# What a file system may say about a file that changes whenever its content does.
_VERSIONS = ("ETag", "etag", "LastModified", "created", "modified", "mtime", "updated")


def _fetched(path: RemotePath, most: str, *, again: bool) -> bytes:
    """Read a whole file at an address, of at most the size of a limit; errors as `open_regular`."""
    largest = limit(most) * _MEGABYTE
    try:
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
    except FileNotFoundError as error:
        raise MissingFileError("there is no such file") from error
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    if len(data) > largest:
        raise too_large("it has more megabytes", most)
    if again:
        _last.known, _last.data = known, data
    return data


def write_remote(path: RemotePath, source: bytes | Path) -> None:
    """Put a whole file at an address at once, from memory or from a file of this machine."""
    with path.system() as (system, place):

        def put() -> None:
            if isinstance(source, bytes):
                system.pipe_file(place, source)
            else:
                system.put_file(str(source), place)

        try:
            put()
        except FileNotFoundError:
            # The folder is made where that is needed, but no bucket: its name may be mistaken.
            folder = place.rpartition("/")[0]
            top = folder.strip("/").partition("/")[0]
            if folder.strip("/") == top or not system.exists(top):
                raise NotADirectoryError(errno.ENOTDIR, f"there is no {top!r}") from None
            system.makedirs(folder, exist_ok=True)
            put()


def file_size(file: BinaryIO) -> int:
    """Return the size of a file that `open_regular` opened."""
    if isinstance(file, BytesIO):
        return file.getbuffer().nbytes
    return os.fstat(file.fileno()).st_size


def _refuse_special(mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = next((name for test, name in _KINDS if test(mode)), "no regular file")
        raise ValueError(f"it is {kind}")


def read_bytes(path: object, want: str, most: str = "array_mb") -> bytes:
    """Read a whole file; one that is missing, empty or no regular file is an error.

    `most` is the name of the limit in `LIMITS` of its size.
    """
    source = as_path(path)
    wrong = (OSError, ValueError, MemoryError)
    with reading(source, want, *wrong), open_regular(source, most) as file:
        size = file_size(file)
        if size > limit(most) * _MEGABYTE:
            raise too_large("it has more megabytes", most)
        # Not to its end, as it may be growing, and files of /proc have no size.
        data = file.read(size)
        if not data:
            raise ValueError("it is empty")
        return data


def read_text(path: object, want: str) -> str:
    """Read a whole text in UTF-8, with or without a byte order mark."""
    data = read_bytes(path, want, "text_mb")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise unreadable(path, want, f"it is no UTF-8 text: {error.reason}") from error


@contextlib.contextmanager
def reading(path: object, want: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn the given errors of a block that reads `path` into the one of `unreadable`."""
    try:
        yield
    except errors as error:
        # Messages of libraries may have several lines.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise unreadable(path, want, reason, error) from error


@contextlib.contextmanager
def whole_file(path: object) -> Iterator[Path]:
    """Give a name beside `path` to write to, which becomes `path` when the block ends well.

    The file and its name are on disk then. At an address it is written when the block has ended.
    """
    target = as_path(path)
    if is_remote(target):
        with tempfile.TemporaryDirectory(prefix="manymatch-") as place:
            yield (local := Path(place) / "file")
            write_remote(target, local)
        return
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
    sync_folder(target.parent)


@contextlib.contextmanager
def whole_files(folder: Path, replaced: Iterable[str] = ()) -> Iterator[Path]:
    """Give a folder to write files to, which all move to `folder` when the block ends well.

    `folder` is made if needed. Files that go then are named in `replaced`, by their paths in
    `folder`; those that the block did not write stay as they are if it fails.
    """
    if is_remote(folder):
        with tempfile.TemporaryDirectory(prefix="manymatch-") as local:
            yield Path(local)
            for name in replaced:
                (folder / name).unlink(missing_ok=True)
            for source in sorted(path for path in Path(local).rglob("*") if path.is_file()):
                write_remote(folder / source.relative_to(local).as_posix(), source)
        return
    make_folder(folder)
    with _locked(folder):
        # Of runs that were killed; nobody else is here now.
        for left in folder.glob(f".{'[0-9a-f]' * 32}.tmp/"):
            _remove_tree(left)
        place = folder / f".{os.urandom(16).hex()}.tmp"
        place.mkdir()
        try:
            yield place
            _move_files(place, folder, replaced)
        finally:
            _remove_tree(place)
    sync_folder(folder)


def _move_files(place: Path, folder: Path, replaced: Iterable[str]) -> None:
    """Move all files of a folder to another one in the place of others."""
    for name in replaced:
        (folder / name).unlink(missing_ok=True)
        for parent in Path(name).parents[:-1]:
            with contextlib.suppress(OSError):  # it has other files
                (folder / parent).rmdir()
    for source in sorted(path for path in place.rglob("*") if path.is_file()):
        target = folder / source.relative_to(place)
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)


def _remove_tree(folder: Path) -> None:
    """Remove a folder of our own; unlike `shutil.rmtree` also when no file can be opened."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    folder.rmdir()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait until no other process is in this block with the same folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # not on every network file system
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the names of the files of a folder are on disk."""
    if is_remote(folder):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no such operation.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, that stay after a crash; one that is there is left."""
    if is_remote(folder):
        return
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for place in missing:
        sync_folder(place.parent)


def safe_name(text: str) -> str:
    """Turn any text into the name of a file or folder: letters, digits and ``._+-``."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", text).strip("._") or "set"


def name_end(name: str, most_bytes: int) -> str:
    """Return the end of a name that takes at most so many bytes in UTF-8."""
    return name.encode("utf-8", "surrogateescape")[-most_bytes:].decode("utf-8", "ignore")


def write_whole(path: object, write: Callable[[BinaryIO], object]) -> None:
    """Write a file that appears under its name only when it is complete."""
    with whole_file(path) as temporary, temporary.open("xb") as file:
        write(file)


def write_text(path: object, text: str) -> None:
    """Write a text as `write_whole` writes a file."""
    write_whole(path, lambda file: file.write(text.encode("utf-8")))


def write_npz(path: object, arrays: Mapping[str, Any]) -> None:
    """Write arrays to an .npz file as `write_whole` writes a file, without pickles.

    It is packed in memory: an archive that cannot be finished has somewhere to write to then.
    """
    packed = BytesIO()
    try:
        np.savez_compressed(packed, allow_pickle=False, **arrays)
    except ValueError as error:
        # NumPy closes the archive on the way, and its complaint hides what went wrong.
        if isinstance(error.__context__, MemoryError):
            raise error.__context__ from None
        raise
    write_whole(path, lambda file: file.write(packed.getbuffer()))


def npz_names(data: bytes, path: object, want: str) -> set[str]:
    """Names of the arrays of an .npz file."""
    with reading(path, want, ValueError):
        return _array_names(_open_zip(data))


def read_npz(
    data: bytes,
    path: object,
    want: str,
    names: Iterable[str],
    optional: Iterable[str] = (),
    objects: Callable[[bytes], NDArray[Any]] | None = None,
) -> dict[str, NDArray[Any]]:
    """Read the named arrays of an .npz file, without pickles.

    All of `names` must be there; those of `optional` are left out where they are not. `objects`
    reads what an array of Python objects consists of; without it such an array is refused.
    """
    with reading(path, want, ValueError, MemoryError):
        archive = _open_zip(data)
        present = _array_names(archive)
        for name in (wanted := list(names)):
            if name not in present:
                raise ValueError(f"it lacks the array {name!r}")
        wanted += [name for name in optional if name in present]
        sizes = Sizes()
        return {name: _read_member(archive, name, sizes, objects) for name in wanted}


def as_text(array: NDArray[Any]) -> str:
    """Return the text of an array that holds one."""
    if array.shape != () or array.dtype.kind != "U":
        raise ValueError("a text is wanted where it has numbers")
    if array.dtype.itemsize > limit("text_mb") * _MEGABYTE:
        raise too_large("its text has more megabytes", "text_mb")
    return str(array)


class Sizes:
    """Adds up the arrays of one file, and refuses the one that is too much."""

    def __init__(self) -> None:
        self._bytes = 0

    def add(self, shape: Sequence[int], dtype: np.dtype[Any], what: str) -> None:
        """Count an array before it is made."""
        self._bytes += math.prod(shape) * max(dtype.itemsize, 8)
        if self._bytes > limit("array_mb") * _MEGABYTE:
            size = " x ".join(map(str, shape))
            raise too_large(f"with {what} of {size:.60} its arrays have more megabytes", "array_mb")


def read_npy(data: bytes) -> NDArray[Any]:
    """Read the array of an .npy file without pickles; a damaged one is a `ValueError`."""
    return _read_array(BytesIO(data), len(data), "its array", Sizes(), None)


def _read_array(
    file: Any,
    size: int,
    what: str,
    sizes: Sizes,
    objects: Callable[[bytes], NDArray[Any]] | None,
) -> NDArray[Any]:
    """Read an array of a stream that has, or is said to have, `size` bytes."""
    head = BytesIO(file.read(min(size, _LONGEST_HEADER)))
    try:
        version = np.lib.format.read_magic(head)
        shape, fortran, dtype = _HEADERS[version](head)
    except (
        # NumPy evaluates the header as a Python literal and repeats what the parser raises.
        ValueError,
        SyntaxError,
        TypeError,
        tokenize.TokenError,
        RecursionError,
        OverflowError,
        MemoryError,
        # Of a version that only types with names of fields need.
        KeyError,
    ) as error:
        raise ValueError(f"{what} has a damaged header: {error}") from error
    if dtype.hasobject:
        if objects is None or dtype.kind != "O":
            raise ValueError(f"{what} holds Python objects, which are not read")
        sizes.add((size // 8,), dtype, what)
        return objects(head.read() + file.read(size))
    if any(length < 0 for length in shape):
        raise ValueError(f"{what} has a damaged header: its shape is {shape}")
    declared, there = math.prod(shape) * dtype.itemsize, size - head.tell()
    if declared != there:
        raise ValueError(f"{what} has a damaged header: {declared} bytes of {there} are declared")
    sizes.add(shape, dtype, what)
    content = bytearray(declared)
    start = head.read(declared)
    content[: len(start)] = start
    view, done = memoryview(content), len(start)
    while done < declared:
        count = file.readinto(view[done : done + _MEGABYTE])
        if not count:
            raise ValueError(f"{what} is cut off")
        done += count
    try:
        return np.ndarray(shape, dtype, content, order="F" if fortran else "C")
    except OverflowError as error:
        raise ValueError(f"{what} has a damaged header: {error}") from error


def _open_zip(data: bytes) -> zipfile.ZipFile:
    """Open an archive in memory; a damaged one is a `ValueError`."""
    # What each entry of the list of contents begins with.
    if data.count(b"PK\1\2") > _MOST_MEMBERS:
        raise ValueError(f"it has more than {_MOST_MEMBERS:,} members")
    try:
        return zipfile.ZipFile(BytesIO(data))
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise ValueError(str(error)) from error


def _array_names(archive: zipfile.ZipFile) -> set[str]:
    names = archive.namelist()
    return {name.removesuffix(".npy") for name in names if name.endswith(".npy")}


def _read_member(
    archive: zipfile.ZipFile,
    name: str,
    sizes: Sizes,
    objects: Callable[[bytes], NDArray[Any]] | None,
) -> NDArray[Any]:
    """Read one array of an archive; a damaged one is a `ValueError`."""
    entry, what = archive.getinfo(f"{name}.npy"), f"the array {name!r}"
    if entry.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise ValueError(f"{what} is compressed in a way that NumPy does not use")
    try:
        with archive.open(entry) as file:
            array = _read_array(file, entry.file_size, what, sizes, objects)
            # The checksum is compared when the end is reached.
            file.read(1)
            return array
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        # A RuntimeError says that the member is encrypted.
        raise ValueError(f"{what}: {error}") from error


def h5_item(group: Any, name: str) -> Any:
    """Return what a group of an .h5 file has by a name, with "/" for groups in groups, or None.

    A link that leads elsewhere, in particular into another file, is a `ValueError`.
    """
    import h5py

    item = group
    for part in name.split("/"):
        if part in ("", "."):
            continue
        try:
            link = item.get(part, getlink=True) if isinstance(item, h5py.Group) else None
            if link is None:
                return None
            elsewhere = not isinstance(link, h5py.HardLink)
            item = None if elsewhere else item[part]
        except (RuntimeError, KeyError, TypeError) as error:
            raise ValueError(f"{part!r} cannot be read: {error}") from error
        if elsewhere:
            raise ValueError(f"{part!r} is a link to another place, which is not followed")
    return item


def read_h5(dataset: Any, name: str, sizes: Sizes) -> NDArray[Any]:
    """Read a dataset of numbers; a damaged one, or one that is not all in the file, is refused."""
    what = f"the dataset {name!r}"
    try:
        if dataset.is_virtual or dataset.external:
            raise ValueError(f"{what} is in another file, which is not read")
        shape, dtype = dataset.shape, dataset.dtype
        if shape is None or dtype.kind not in "biuf":
            raise ValueError(f"{what} holds no numbers")
        # A piece is unpacked whole, however little of it is used.
        for extent in (shape, dataset.chunks or ()):
            sizes.add(extent, dtype, what)
        declared, stored = math.prod(shape) * dtype.itemsize, dataset.id.get_storage_size()
        if declared > _MOST_DEFLATED * stored:
            raise ValueError(f"{what} declares {declared} bytes, of which it has {stored}")
        return np.asarray(dataset[()])
    except (TypeError, MemoryError, RuntimeError, KeyError, OSError) as error:
        # h5py raises TypeError for a damaged type of numbers.
        raise ValueError(f"{what} cannot be read: {error}") from error


def out_of_memory(error: BaseException) -> bool:
    """Tell whether an error is a lack of memory, for which OpenCV and torch have their own."""
    kind = type(error)
    if kind is SystemError and error.__cause__ is not None:
        # Of a function in C that does not see the lack and returns a result.
        return out_of_memory(error.__cause__)
    opencv = kind.__module__ == "cv2" and getattr(error, "code", None) == _OPENCV_NO_MEMORY
    return isinstance(error, MemoryError) or kind.__name__ == "OutOfMemoryError" or opencv
