"""Files at addresses of fsspec, such as ``s3://bucket/folder``, with the methods of a path.

Nothing here is imported or called for files of this machine. Every fault of a file system, of
whatever library, is an `OSError` with one sentence; addresses are told without passwords and keys.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import io
import os
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeGuard
from urllib.parse import quote, unquote

from manymatch._validate import require

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import BinaryIO

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://")
# What `Path` makes of one.
_MANGLED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]")
_LOCAL = ("file", "local")
_WEB = ("http", "https")
# What may be a secret: a user and password before the host, and what follows a question mark.
_USER = re.compile(r"(?<=://)[^/@\s'\"]*@")
_QUERY = re.compile(r"(?<=\?)[^\s'\"<>]+")
_CODES = {
    PermissionError: errno.EACCES,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
}
_URL = re.compile(r"\w://[^\s'\"<>]*")


def masked(text: str) -> str:
    """Return a text whose addresses are without what may be a password or a key.

    Examples
    --------
    >>> masked("ftp://me:secret@host/a.jpg and https://host/b.jpg?key=secret")
    'ftp://***@host/a.jpg and https://host/b.jpg?***'
    """
    return _URL.sub(lambda url: _QUERY.sub("***", url[0]), _USER.sub("***@", text))


def located(path: str | os.PathLike[str]) -> Path:
    """Return the path of a name or an address; what begins with ``file://`` is of this machine.

    Other addresses are `RemotePath`, which has the methods of `Path` that are used here.
    """
    if is_remote(path):
        return path  # type: ignore[return-value]
    if not (isinstance(path, str) and _ADDRESS.match(path)):
        place = Path(path)
        if _MANGLED.match(str(place)) and not Path(place.parts[0]).exists():
            raise ValueError(
                f"path must be an address as a text, as a Path has one slash of it only, got "
                f"{str(place)!r}"
            )
        return place
    scheme, _, rest = path.partition("://")
    if scheme not in _LOCAL:
        return RemotePath(path)  # type: ignore[return-value]
    return Path(rest)


def is_remote(path: object) -> TypeGuard[RemotePath]:
    """Tell whether a path is one at an address."""
    return isinstance(path, RemotePath)


class RemotePath:
    """A file or folder at an address, with those methods of `pathlib.Path` that are used here.

    Other methods raise a `ValueError`, which says that something on this machine is wanted.
    """

    __slots__ = ("_listed", "_name", "_query", "_root")

    def __init__(self, address: str, listed: Mapping[str, Any] | None = None) -> None:
        self._root, _, rest = address.partition("://")
        name, mark, query = rest.partition("?") if self._root in _WEB else (rest, "", "")
        self._name, self._query = name.rstrip("/"), mark + query
        # What the listing of its folder said about it.
        self._listed = listed

    @property
    def address(self) -> str:
        """The whole address, secrets included."""
        return f"{self._root}://{self._name}{self._query}"

    def __str__(self) -> str:
        # Elsewhere a question mark is part of a name.
        return masked(self.address) if self._root in _WEB else _USER.sub("***@", self.address)

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def __fspath__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    def __lt__(self, other: RemotePath) -> bool:
        return self.address < other.address

    def __reduce__(self) -> tuple[Any, ...]:
        return RemotePath, (self.address,)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Path, name):
            raise AttributeError(name)
        raise ValueError(f"path must be a file or folder of this machine, got {str(self)!r}")

    def __truediv__(self, name: str | PurePosixPath) -> RemotePath:
        text = str(name)
        parts = [part for part in text.split("/") if part not in ("", ".")]
        # Also as it is written in addresses, which some servers decode.
        if text.startswith("/") or _ADDRESS.match(text) or ".." in map(unquote, parts):
            raise ValueError(f"names must be of files below {str(self)!r}, got {text!r}")
        if self._root in _WEB:
            parts = [quote(part) for part in parts]
        return self._at("/".join([self._name, *parts]) if self._name else "/".join(parts))

    def _at(self, name: str, listed: Mapping[str, Any] | None = None) -> RemotePath:
        return RemotePath(f"{self._root}://{name}{self._query}", listed)

    @property
    def tells_folders(self) -> bool:
        """Whether folders can be told from files, which a web server does not."""
        return self._root not in _WEB

    @property
    def _pure(self) -> PurePosixPath:
        return PurePosixPath(unquote(self._name) if self._root in _WEB else self._name)

    @property
    def name(self) -> str:
        """Last part of the address."""
        return self._pure.name

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return self._pure.stem

    @property
    def suffix(self) -> str:
        """Ending of the name."""
        return self._pure.suffix

    @property
    def parent(self) -> RemotePath:
        """The folder of it; that of a bucket is itself."""
        return self._at(self._name.rpartition("/")[0] or self._name)

    def with_name(self, name: str) -> RemotePath:
        """Return another file of the same folder."""
        return self.parent / name

    def resolve(self) -> RemotePath:
        """Return itself."""
        return self

    def absolute(self) -> RemotePath:
        """Return itself."""
        return self

    def info(self) -> Mapping[str, Any]:
        """Return what the file system says: type, size (None if unknown) and more."""
        if self._listed is not None:
            return self._listed
        with self._system() as (system, path):
            return dict(system.info(path))

    def _type(self) -> str | None:
        with contextlib.suppress(FileNotFoundError):
            return str(self.info()["type"])
        return None

    def exists(self) -> bool:
        """Tell whether there is something."""
        return self._type() is not None

    def is_file(self) -> bool:
        """Tell whether it is a file."""
        return self._type() == "file"

    def is_dir(self) -> bool:
        """Tell whether it is a folder, in which something is."""
        return self._type() == "directory"

    def iterdir(self) -> Iterator[RemotePath]:
        """Go through what is in a folder; one that is not there is empty."""
        listed: list[dict[str, Any]] = []
        with contextlib.suppress(FileNotFoundError), self._system() as (system, path):
            own, listed = path.strip("/"), system.ls(path, detail=True)
        for entry in listed:
            place = entry["name"].strip("/")
            # Some list the folder itself.
            if place != own:
                yield self._at(f"{self._name}/{place.rpartition('/')[2]}", entry)

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """Go through the files and folders below whose names match, level by level."""
        first, _, rest = pattern.partition("/")
        for child in self.iterdir():
            if fnmatch.fnmatchcase(child.name, first):
                if not rest:
                    yield child
                elif child.is_dir():
                    yield from child.glob(rest)

    def mkdir(self, parents: bool = True, exist_ok: bool = True) -> None:
        """Do nothing: a folder is made with its first file."""

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove a file."""
        missing = (FileNotFoundError,) if missing_ok else ()
        with contextlib.suppress(*missing), self._system() as (system, path):
            system.rm_file(path)

    def read_bytes(self, size: int | None, most: int) -> bytes:
        """Read so many bytes, or where the size is unknown at most one more than `most`."""
        with self._system() as (system, path):
            if size is not None:
                return bytes(system.cat_file(path, start=0, end=size)) if size else b""
            with system.open(path, "rb") as file:
                return bytes(file.read(most + 1))

    def open_ranges(self) -> BinaryIO:
        """Open a file of which parts are read, each when it is asked for."""
        return _Ranges(self)  # type: ignore[return-value]

    def write_bytes(self, data: bytes, *, new: bool = False) -> None:
        """Write a whole file; a `new` one is a `FileExistsError` if another is there already."""
        with self._system() as (system, path):
            if not new:
                self._in_folder(lambda: system.pipe_file(path, data))
                return
            failure: Exception | None = None
            try:
                if not system.exists(path):
                    self._in_folder(lambda: system.pipe_file(path, data, mode="create"))
                    return
            except Exception as error:  # noqa: BLE001 - a library's own for what is there already
                failure = error
            if not system.exists(path):
                raise failure if failure is not None else FileNotFoundError(path)
            # A request that was repeated finds what it wrote itself.
            if bytes(system.cat_file(path)) != data:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self))

    def upload(self, source: Path) -> None:
        """Write a whole file from one of this machine, of any size."""
        with self._system() as (system, path):
            self._in_folder(lambda: system.put_file(str(source), path))

    def _in_folder(self, write: Any) -> None:
        """Write a file; where folders must be made before, make its folder."""
        try:
            write()
        except FileNotFoundError:
            # A bucket is not made: its name may be mistaken.
            folder, top = self.parent, self._at(self._name.partition("/")[0])
            if folder == top or not top.exists():
                reason = f"there is no {str(top)!r}"
                raise NotADirectoryError(errno.ENOTDIR, reason) from None
            with folder._system() as (system, path):  # noqa: SLF001 - of the same class
                system.makedirs(path, exist_ok=True)
            write()

    @contextlib.contextmanager
    def _system(self) -> Iterator[tuple[Any, str]]:
        """Give the file system and the path there; its errors become `OSError` of one sentence."""
        fsspec = require("fsspec", f"the address {str(self)!r}", "remote")
        if "::" in self._name:
            raise ValueError(f"path must be an address of one file system, got {str(self)!r}")
        try:
            system, path = fsspec.url_to_fs(self.address)
        except ImportError as error:
            raise ModuleNotFoundError(
                f"the address {str(self)!r} needs a package that is not installed: {error}",
                name=error.name,
            ) from error
        except ValueError as error:
            raise ValueError(
                f"path must be an address that fsspec knows, got {str(self)!r} "
                f"({masked(str(error))})"
            ) from error
        except Exception as error:  # some connect here
            raise self._fault(error) from error
        try:
            # Others write there as well.
            system.invalidate_cache(path)
            yield system, path
        except (MemoryError, FileExistsError):
            raise
        except Exception as error:  # each file system raises what its library does
            raise self._fault(error) from error

    def _fault(self, error: Exception) -> OSError:
        """Return an error of any kind as one of the system, of one sentence."""
        cause: Any = error
        if isinstance(error, FileNotFoundError):
            # A web server that does not answer is a missing file for fsspec as well.
            if self._root not in _WEB or not isinstance(error.__cause__, OSError):
                return FileNotFoundError(errno.ENOENT, "there is no such file", str(self))
            cause = error.__cause__
        # All else is a fault of the system or of the way to it, and may be gone next time.
        code = next((code for kind, code in _CODES.items() if isinstance(cause, kind)), errno.EIO)
        said = " ".join(masked(getattr(cause, "strerror", None) or str(cause)).split())
        return OSError(code, said or type(cause).__name__, str(self))


class _Ranges(io.RawIOBase):
    """A file at an address; every call of `read` fetches what it returns."""

    def __init__(self, path: RemotePath) -> None:
        self._path, self._place = path, 0
        self._size = int(path.info()["size"])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place."""
        self._place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place}.get(whence, self._size)
        return self._place

    def readinto(self, buffer: Any) -> int:
        """Read as much as there is, at most a buffer."""
        end = min(self._place + len(buffer), self._size)
        if end <= self._place:
            return 0
        with self._path._system() as (system, path):  # noqa: SLF001 - of the same file
            data = system.cat_file(path, start=self._place, end=end)
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)
