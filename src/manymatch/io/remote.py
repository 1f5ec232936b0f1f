"""Files at addresses such as ``s3://bucket/folder``: `UPath` with clear errors and no secrets.

Every error of a file system and its library becomes an `OSError` of one sentence. Addresses are
shown without passwords and keys. Files of this machine never come here.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, TypeGuard
from urllib.parse import quote, unquote, urlsplit

from manymatch._validate import require

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://")
# What `Path` makes of an address.
_COLLAPSED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]")
_LOCAL, _WEB = ("file", "local"), ("http", "https")
# What may be a secret: a user and password before the host, which may have spaces, quotes, "@" and,
# if no "@" is before it, "/"; and the query of a web address. `Path` leaves one slash of two.
_USER = re.compile(
    r"([a-z][a-z0-9+.-]+:/{1,2})"
    r"(?:[^/\s@:]*:(?!\d+\s)[^/\n]*|[^/\s]*|[^/\s@:]*:(?!\d+/)[^\s@]*)@",
    re.IGNORECASE,
)
_QUERY = re.compile(r"(https?://[^\s<>?]*\?)[^\s<>]*[^\s<>'\"]", re.IGNORECASE)
_WHOLE_QUERY = re.compile(r"\A(https?://[^?]*\?).+", re.IGNORECASE | re.DOTALL)
_CODES = {
    PermissionError: errno.EACCES,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
    NotImplementedError: errno.EROFS,
}


def masked(text: str) -> str:
    """Replace passwords and keys in the addresses of a text.

    Examples
    --------
    >>> masked("ftp://me:secret@host/a.jpg and https://host/b.jpg?key=secret")
    'ftp://***@host/a.jpg and https://host/b.jpg?***'
    """
    return _QUERY.sub(r"\1***", _USER.sub(r"\1***@", _WHOLE_QUERY.sub(r"\1***", text)))


def located(path: str | os.PathLike[str]) -> Path:
    """Return the path of a name or an address; ``file://`` is on this machine.

    Other addresses are `RemotePath`, which has the methods of `Path` that are used here.
    """
    if is_remote(path):
        return path  # type: ignore[return-value]
    if not (isinstance(path, str) and _ADDRESS.match(path)):
        place = Path(path)
        if _COLLAPSED.match(str(place)) and not Path(place.parts[0]).exists():
            raise ValueError(
                f'path must be an address as a string ("s3://…"), got {masked(str(place))!r}: '
                'pathlib.Path collapses "//"'
            )
        return place
    scheme, mark, rest = path.partition("://")
    scheme = scheme.lower()
    if scheme in _LOCAL:
        return Path(rest)
    return RemotePath(f"{scheme}{mark}{rest}")  # type: ignore[return-value]


def is_remote(path: object) -> TypeGuard[RemotePath]:
    """Tell whether a path is at an address."""
    return isinstance(path, RemotePath)


class RemotePath:
    """A file or folder at an address: the methods of `UPath`, with errors of one sentence."""

    __slots__ = ("_path",)

    def __init__(self, address: Any) -> None:
        self._path = address
        if isinstance(address, str):
            upath = require("upath", f"the address {masked(address)!r}", "remote")
            want = f"path must be an address that fsspec knows, got {masked(address)!r}"
            if "::" in address:
                raise ValueError(f"{want} (it is a chain of addresses)")
            try:
                self._path = upath.UPath(address)
            except ValueError as error:
                raise ValueError(f"{want} ({masked(str(error))})") from error

    def __str__(self) -> str:
        return masked(str(self._path).rstrip("/"))

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def __fspath__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return is_remote(other) and bool(self._path == other._path)

    def __hash__(self) -> int:
        return hash(self._path)

    def __lt__(self, other: RemotePath) -> bool:
        return str(self._path) < str(other._path)

    def __reduce__(self) -> tuple[Any, ...]:
        return RemotePath, (self._path,)

    def __truediv__(self, name: str | PurePosixPath) -> RemotePath:
        text = str(name)
        # ".." also as it is written in addresses, which some servers decode.
        if text.startswith("/") or _ADDRESS.match(text) or ".." in unquote(text).split("/"):
            raise ValueError(f"names must be of files below {str(self)!r}, got {text!r}")
        if self._path.protocol not in _WEB:
            return RemotePath(self._path / text)
        base, mark, query = str(self._path).partition("?")
        return RemotePath(type(self._path)(f"{base.rstrip('/')}/{quote(text)}{mark}{query}"))

    @property
    def parent(self) -> RemotePath:
        """The folder of the file; a bucket is its own folder."""
        return RemotePath(self._path.parent)

    def mkdir(self, parents: bool = True, exist_ok: bool = True) -> None:
        """Do nothing: a folder is made with its first file."""

    def iterdir(self) -> Iterator[RemotePath]:
        """List a folder; one that does not exist is empty."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return iter([child for child in self._guarded(self._path.iterdir) if child != self])
        return iter(())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in ("name", "stem", "suffix"):
            web = self._path.protocol in _WEB
            place = unquote(urlsplit(str(self._path)).path) if web else self._path.path
            return getattr(PurePosixPath(place), name)
        found = getattr(self._path, name)
        return functools.partial(self._guarded, found) if callable(found) else found

    def _guarded(self, method: Any, *args: Any, **settings: Any) -> Any:
        """Call a method of the `UPath`; paths that it returns are of this class."""
        with self.system():
            found = method(*args, **settings)
            if isinstance(found, Iterator):
                return iter([RemotePath(path) for path in found])
            return RemotePath(found) if isinstance(found, type(self._path)) else found

    @contextlib.contextmanager
    def system(self) -> Iterator[tuple[Any, str]]:
        """Give the file system of fsspec and the place there; its errors become `OSError`."""
        try:
            system = self._path.fs
            system.invalidate_cache(self._path.path)  # other processes write there as well
            yield system, self._path.path
        except ImportError as error:
            needs = f"the address {str(self)!r} needs a package that is not installed: {error}"
            raise ModuleNotFoundError(needs, name=error.name) from error
        except (MemoryError, FileExistsError):
            raise
        except Exception as error:  # each file system raises what its library does
            cause: Any = error
            if isinstance(error, FileNotFoundError):
                # fsspec reports a web server that does not answer as a missing file, too.
                if self._path.protocol not in _WEB or not isinstance(error.__cause__, OSError):
                    missing = errno.ENOENT, "there is no such file", str(self)
                    raise FileNotFoundError(*missing) from error
                cause = error.__cause__
            codes = (code for kind, code in _CODES.items() if isinstance(cause, kind))
            said = " ".join(str(getattr(cause, "strerror", None) or cause).split())
            # The library may quote a password or key of the address in a form of its own.
            options = " ".join(self._path.storage_options)
            if re.search("pass|secret|token|key", options) or "***" in str(self):
                said = ""
            given = next(codes, errno.EIO), masked(said) or type(cause).__name__, str(self)
            raise OSError(*given) from error
