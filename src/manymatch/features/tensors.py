"""Tensors of weight files, and networks that take them.

Files are read by safetensors, by `torch.load(weights_only=True)` and, where a file has objects
beside its tensors, by `read_weights`. None of them runs anything that a file contains. A network
takes a file only if all of its tensors are there.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import require
from manymatch.features.device import require_torch
from manymatch.io.files import MissingFileError, as_path, open_regular, read_text
from manymatch.io.unpickle import read_weights

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch
    from numpy.typing import NDArray

    State = dict[str, torch.Tensor]

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")
INDEX = "model.safetensors.index.json"


class WeightsError(ValueError):
    """Weights are missing, damaged, or those of another network."""


class MissingWeightsError(WeightsError, MissingFileError):
    """A file of weights that was named is not there."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, of bounded length."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".:")[:200] if lines else type(error).__name__


def weight_files(folder: Path) -> list[Path]:
    """Files of one network in a folder, all shards; empty if there are none or some are missing."""
    index = folder / INDEX
    if index.is_file():
        try:
            names = set(json.loads(read_text(index, "a list of shards"))["weight_map"].values())
            # Their names alone: a list that comes with the files must not point to others.
            files = [folder / Path(name).name for name in sorted(names)]
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
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
    if file.suffix.lower() not in SUFFIXES:
        raise _unreadable(file, "its name does not end so")
    try:
        # Refuses missing files, and devices and FIFOs, which might never end.
        open_regular(file).close()
    except ValueError as error:
        raise _unreadable(file, str(error), error) from error
    try:
        if file.suffix.lower() == SUFFIXES[0]:
            library = require("safetensors.torch", "reading .safetensors files", "features")
            content = library.load_file(file, device="cpu")
        else:
            # A mapped file takes memory for the tensors that are used; the older format has none.
            mapped = zipfile.is_zipfile(file)
            with warnings.catch_warnings(action="ignore"):
                content = _load(torch, file, key, mapped=mapped)
    except (ModuleNotFoundError, WeightsError):
        raise
    except pickle.UnpicklingError as error:
        what = "code or objects beside tensors, which are not unpickled, or is damaged"
        raise _unreadable(file, f"it holds {what}: {first_line(error)}") from error
    except Exception as error:
        # The libraries raise errors of a dozen kinds for damaged files.
        raise _unreadable(file, f"it is damaged: {first_line(error)}") from error
    if not isinstance(content, dict) or not content:
        raise _unreadable(file, "it holds no tensors by name")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise _unreadable(file, f"its entry {str(name)[:80]!r} is not a tensor")
    return dict(content)


def _load(torch: Any, file: Path, key: str | None, *, mapped: bool) -> Any:
    """Read a file of torch, or its entry `key`."""
    try:
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError:
        if not mapped:
            raise
        with contextlib.suppress(ValueError), open_regular(file) as stream:
            return {k: torch.from_numpy(v) for k, v in read_weights(stream, key).items()}
        raise
    if key is None:
        return content
    if not isinstance(content, dict) or key not in content:
        raise _unreadable(file, f"it lacks the entry {key!r}")
    return content[key]


def _unreadable(path: Path, reason: str, cause: object = None) -> WeightsError:
    kinds = ", ".join(SUFFIXES[:-1])
    missing = isinstance(cause, FileNotFoundError)
    return (MissingWeightsError if missing else WeightsError)(
        f"weights must be a {kinds} or {SUFFIXES[-1]} file of tensors, got {str(path)!r} ({reason})"
    )


def load_strictly(module: torch.nn.Module, state: State, name: str) -> torch.nn.Module:
    """Copy a state with the same keys and shapes into a module, and freeze that."""
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
    missing: Iterable[str],
    unexpected: Iterable[str],
    mismatched: Iterable[str],
) -> None:
    """Raise one sentence unless a file and a network have the same keys and shapes."""
    kinds = {f"missing of {total}": missing, "unexpected": unexpected}
    kinds["of another shape"] = mismatched
    listed = {what: sorted(keys) for what, keys in kinds.items()}
    faults = [f"{len(k)} {what} (first {k[0]!r})" for what, k in listed.items() if k]
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

    Folded in float64, a norm changes a network's output by rounding only. With kernels channels
    last torch keeps all maps so, which is faster for small networks on CPUs (`to_device` undoes it
    elsewhere). A norm belongs to the convolution before it among the children of a module; networks
    that register them in another order must not be given here.
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
