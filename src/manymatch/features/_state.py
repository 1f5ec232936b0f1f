"""Reading and loading weights: tensors only, nothing is executed, nothing is missing silently."""

from __future__ import annotations

import json
import pickle
import struct
import warnings
import zipfile
from typing import TYPE_CHECKING, Any

from manymatch._files import as_path
from manymatch.features.device import require_torch

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import torch

SAFETENSORS = ".safetensors"
SUFFIXES = (SAFETENSORS, ".pth", ".pt", ".bin")
_INDEX = "model.safetensors.index.json"
# What torch.load raises for damaged files, besides pickle.UnpicklingError.
_TORCH_ERRORS = (
    OSError,
    ValueError,
    RuntimeError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    TypeError,
    struct.error,
)


class WeightsError(ValueError):
    """Weights are missing, damaged, or those of another network."""


def weight_files(folder: Path) -> list[Path]:
    """Files of one network in a folder, all shards; empty if there are none or some are missing."""
    index = folder / _INDEX
    if index.is_file():
        try:
            shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            files = [folder / name for name in sorted(shards)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return []
        return files if files and all(file.is_file() for file in files) else []
    for pattern in ("model.safetensors", *(f"*{suffix}" for suffix in SUFFIXES)):
        files = sorted(file for file in folder.glob(pattern) if file.is_file())
        if files:
            return files
    return []


def load_state(path: object, key: str | None = None) -> dict[str, torch.Tensor]:
    """Read the tensors of a file or folder to the CPU, without executing anything in it.

    Parameters
    ----------
    path : path
        A ``.safetensors``, ``.pth``, ``.pt`` or ``.bin`` file, or a folder with one of those or
        with the shards of one network.
    key : str, optional
        Name of the entry that holds the tensors, where a file holds more than one network.

    Raises
    ------
    WeightsError
        If it cannot be read, or holds something else.
    """
    source = as_path(path, "weights")
    if not source.is_dir():
        return _read(source, key)
    files = weight_files(source)
    if not files:
        raise _unreadable(source, "no complete weights are in this folder")
    if len(files) > 1 and not (source / _INDEX).is_file():
        raise _unreadable(source, f"it holds {len(files)} files: name one of them")
    state: dict[str, torch.Tensor] = {}
    for file in files:
        state.update(_read(file, key))
    return state


def load_strictly(
    module: torch.nn.Module, state: dict[str, torch.Tensor], name: str
) -> torch.nn.Module:
    """Copy a state into a module whose keys and shapes must be the same.

    Parameters
    ----------
    module : torch.nn.Module
        Receives the weights.
    state : dict of str to tensor
        As `load_state` returns it.
    name : str
        Of the model, for the error.

    Returns
    -------
    torch.nn.Module
        The module, in evaluation mode and without gradients.

    Raises
    ------
    WeightsError
        If keys are missing or unexpected, or shapes differ.
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


def _read(file: Path, key: str | None) -> dict[str, torch.Tensor]:
    torch = require_torch()
    if file.suffix.lower() not in SUFFIXES:
        raise _unreadable(file, "its name does not end so")
    if not file.is_file():
        raise _unreadable(file, "there is no such file")
    content = (
        _read_safetensors(file)
        if file.suffix == SAFETENSORS
        else _read_torch(file, lazy=key is not None)
    )
    if key is not None:
        if not isinstance(content, dict) or key not in content:
            raise _unreadable(file, f"it lacks the entry {key!r}")
        content = content[key]
    if not isinstance(content, dict) or not content:
        raise _unreadable(file, "it holds no tensors by name")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise _unreadable(file, f"its entry {name!r} is no tensor")
    return content


def _read_safetensors(file: Path) -> Any:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'reading .safetensors files needs safetensors: pip install "manymatch[features]"'
        ) from error
    try:
        return load_file(file, device="cpu")
    except (SafetensorError, OSError, ValueError) as error:
        raise _unreadable(file, f"it is damaged: {_first_line(error)}") from error


def _read_torch(file: Path, *, lazy: bool) -> Any:
    """Read a file of torch; lazily where only a part of a large checkpoint is wanted."""
    torch = require_torch()
    mapped = lazy and zipfile.is_zipfile(file)
    try:
        with warnings.catch_warnings():
            # It warns of pickles that it then refuses anyway.
            warnings.simplefilter("ignore", UserWarning)
            return torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        # Torch's own text advises to unpickle anyway, which runs whatever the file says.
        why = "it is damaged, or holds Python objects other than tensors, which are not unpickled"
        raise _unreadable(file, why) from error
    except _TORCH_ERRORS as error:
        raise _unreadable(file, f"it is damaged: {_first_line(error)}") from error


def _unreadable(path: Path, reason: str) -> WeightsError:
    kinds = ", ".join(SUFFIXES[:-1])
    return WeightsError(
        f"weights must be a {kinds} or {SUFFIXES[-1]} file of tensors, got {str(path)!r} ({reason})"
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
