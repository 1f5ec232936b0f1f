"""Downloads of single files: they resume where they stopped, and only the right bytes are kept."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import logging
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from manymatch.features.tensor_files import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

#: Seconds without a connection after which a server counts as out of reach.
CONNECT_S = 10.0
#: Seconds without a byte after which a connection counts as dead.
READ_S = 30.0
#: A connection that brings less than this many bytes in as many seconds is given up.
STALL_S, STALL_BYTES = 60.0, 1 << 16
#: Connections without a new byte, one after the other, after which a download fails.
ATTEMPTS = 3

_CHUNK = 1 << 20
_log = logging.getLogger("manymatch")


class DownloadError(Exception):
    """A download failed; the text is a short reason."""


def sha256_of(path: Path) -> str:
    """Compute the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(url: str, path: Path, sha256: str = "") -> Path:
    """Download one file, which appears under its name only when it is complete and right.

    Until then it is kept beside it under ``<name>.part``, and a later call resumes from there if
    the server still has the same file. `sha256` is the hash that it must have, or the first digits
    of it; a file with another one is deleted.
    """
    part = path.with_name(f"{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _fetch(url, part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
    except KeyboardInterrupt:
        _log.warning("stopped; %s and the same command resumes from there", _kept(part))
        raise
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise DownloadError(f"{_reason(error)}; {_kept(part)}") from None
    found = sha256_of(part)
    if not found.startswith(sha256):
        _forget(part)
        raise DownloadError(
            f"{url} gave a file with the SHA-256 {found} instead of {sha256}, which is not kept"
        )
    part.replace(path)
    _forget(part)
    return path


def _fetch(url: str, part: Path) -> None:
    """Bring the whole file to `part`, over as many connections as it takes."""
    fruitless, most = 0, _size(part)
    while True:
        try:
            _connect(url, part)
        except urllib.error.HTTPError:
            raise
        except (OSError, http.client.HTTPException) as error:
            fruitless = 0 if _size(part) > most else fruitless + 1
            most = max(most, _size(part))
            if fruitless >= ATTEMPTS:
                raise
            _log.info("%s: %s, trying again", url, _reason(error))
        else:
            return


def _connect(url: str, part: Path) -> None:
    """Bring what is missing over one connection."""
    done, validator = _resumable(url, part)
    request = urllib.request.Request(url, headers={"User-Agent": "manymatch"})  # noqa: S310
    if done:
        request.add_header("Range", f"bytes={done}-")
    try:
        answer = _opener().open(request, timeout=CONNECT_S)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not done:
            raise
        _forget(part)
        raise ConnectionError("the server has another file now") from None
    with answer:
        note = _note(url, answer)
        start, total = _extent(answer)
        if start != done or (done and (note["validator"], total) != validator):
            if start:
                # A rest of another file.
                _forget(part)
                raise ConnectionError("the server has another file now")
            done = 0
        note["size"] = total
        _sidecar(part).write_text(json.dumps(note), encoding="utf-8")
        with part.open("ab" if done else "wb") as file, _progress(url, done, total) as show:
            received = _copy(answer, file, done, total, show)
    if total is not None and received != total:
        raise ConnectionError(f"the connection broke after {received} of {total} bytes")


def _copy(
    answer: http.client.HTTPResponse,
    file: BinaryIO,
    done: int,
    total: int | None,
    show: Callable[[int], object],
) -> int:
    """Write what a server sends, and return how many bytes there are then."""
    since, at_start = time.monotonic(), done
    # One answer of the network at a time, so that a trickle is noticed.
    while chunk := answer.read1(_CHUNK):
        done += file.write(chunk)
        if total is not None and done > total:
            raise ValueError("the server sent more bytes than it announced")
        show(done)
        now = time.monotonic()
        if now - since > STALL_S:
            if done - at_start < STALL_BYTES:
                raise TimeoutError(f"only {done - at_start} bytes in {now - since:.0f} s")
            since, at_start = now, done
    return done


def _resumable(url: str, part: Path) -> tuple[int, tuple[str, int | None]]:
    """How much of a file is here, and what tells whether the server's is still the same."""
    try:
        note = json.loads(_sidecar(part).read_text(encoding="utf-8"))
        known = (str(note["validator"]), note["size"])
        usable = note["url"] == url and note["validator"] and isinstance(note["size"], int)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        usable, known = False, ("", None)
    size = _size(part)
    return (size if usable and size < note["size"] else 0), known


def _note(url: str, answer: Any) -> dict[str, Any]:
    headers = answer.headers
    return {"url": url, "validator": headers.get("ETag") or headers.get("Last-Modified") or ""}


def _extent(answer: Any) -> tuple[int, int | None]:
    """First byte that a server sends, and the size of the whole file if it says so."""
    if answer.status == http.HTTPStatus.PARTIAL_CONTENT:
        unit, _, extent = str(answer.headers.get("Content-Range", "")).partition(" ")
        first, _, rest = extent.partition("-")
        _, _, total = rest.partition("/")
        if unit != "bytes":
            raise ValueError("the server sent a part of the file without saying which")
        return int(first), int(total)
    length = answer.headers.get("Content-Length")
    return 0, None if length is None else int(length)


def _sidecar(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _sidecar(part).unlink(missing_ok=True)


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def _kept(part: Path) -> str:
    size = _size(part)
    return f"{1e-6 * size:.1f} MB are kept in {part}" if size else "nothing is kept"


def _reason(error: BaseException) -> str:
    """Return a short reason: for an error of urllib, that of the error it wraps."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return first_line(error)


class _Connection(http.client.HTTPConnection):
    """A connection whose time-out changes once it stands."""

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(READ_S)


class _SecureConnection(http.client.HTTPSConnection):
    """The same with encryption."""

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(READ_S)


class _Handler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)


class _SecureHandler(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_SecureConnection, req, context=ssl.create_default_context())


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_Handler, _SecureHandler)


@contextlib.contextmanager
def _progress(url: str, done: int, total: int | None) -> Iterator[Callable[[int], object]]:
    """Show how far a download is: a bar on a terminal, one line in a log."""
    name = url.rsplit("/", 1)[-1]
    if not sys.stderr.isatty():
        size = "unknown size" if total is None else f"{1e-6 * total:.0f} MB"
        rest = f", from {1e-6 * done:.0f} MB on" if done else ""
        _log.warning("downloading %s (%s%s)", url, size, rest)
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total, completed=done)
        yield lambda now: bar.update(task, completed=now)
