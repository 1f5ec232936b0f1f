"""Fetching weights: the only place of this package that uses a network."""

from __future__ import annotations

import logging
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from manymatch._files import write_whole

if TYPE_CHECKING:
    from http.client import HTTPResponse

#: Seconds without an answer after which a server counts as out of reach.
TIMEOUT_S = 5.0
# What a network of transformers needs; other formats of the same weights stay where they are.
_HUB_FILES = (
    "config.json",
    "preprocessor_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
)
_CHUNK = 1 << 20

_log = logging.getLogger("manymatch")


class DownloadError(Exception):
    """Nothing came; the text is a short reason."""


def is_offline(offline: bool = False) -> bool:
    """Tell whether downloads are forbidden, by argument or by environment."""
    names = ("MANYMATCH_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return offline or any(
        os.environ.get(n, "").upper() in {"1", "ON", "YES", "TRUE"} for n in names
    )


def from_hub(hub_id: str) -> Path:
    """Download a repository of the hub to its cache, where other programs find it too."""
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ModuleNotFoundError:
        raise DownloadError("huggingface_hub is not installed") from None
    try:
        # One short question first: the library repeats failing downloads for minutes.
        huggingface_hub.HfApi().model_info(hub_id, timeout=TIMEOUT_S)
        folder = huggingface_hub.snapshot_download(
            hub_id, allow_patterns=list(_HUB_FILES), etag_timeout=TIMEOUT_S
        )
    except errors.GatedRepoError:
        raise DownloadError("the hub wants the licence accepted first") from None
    except errors.RepositoryNotFoundError:
        raise DownloadError("the hub has no such repository, or wants a login") from None
    except Exception as error:  # noqa: BLE001 (whatever its HTTP library raises is no news here)
        raise DownloadError(_reason(error)) from None
    return Path(folder)


def from_url(url: str, path: Path) -> Path:
    """Download one file; it appears under its name only when it is complete."""
    request = urllib.request.Request(url, headers={"User-Agent": "manymatch"})  # noqa: S310

    def copy(answer: HTTPResponse, file: BinaryIO) -> None:
        size, done = int(answer.headers.get("Content-Length", 0)), 0
        _log.warning("downloading %s to %s (%.0f MB)", url, path, 1e-6 * size)
        while chunk := answer.read(_CHUNK):
            done += file.write(chunk)
        if size and done != size:
            raise OSError(f"the connection broke after {done} of {size} bytes")

    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, lambda file: copy(answer, file))
    except (OSError, ValueError) as error:
        raise DownloadError(_reason(error)) from None
    return path


def _reason(error: BaseException) -> str:
    """Say in a few words why; what lies under the wrappers tells more than they do."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
