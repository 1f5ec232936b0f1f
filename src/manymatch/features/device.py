"""Where networks run, in which precision, and with which versions of which libraries."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from manymatch._environment import require
from manymatch._validate import refusal

if TYPE_CHECKING:
    import torch

DEVICES = ("auto", "cuda", "mps", "cpu")
PRECISIONS = ("auto", "float32", "bfloat16", "float16")
#: End of the sentence that says that a package for networks is missing.
WITHOUT_NETWORKS = ', or take the preset "classic", which does without'
# A change of any of them may make other features.
_LIBRARIES = ("numpy", "torch", "transformers", "timm", "kornia")


def require_torch() -> Any:
    """Import torch, or say how to get it."""
    return require("torch", "this representation", "features", WITHOUT_NETWORKS)


def choose_device(device: object = "auto") -> torch.device:
    """Turn "auto", "cuda", "cuda:1", "mps" or "cpu" into a device that is there."""
    torch = require_torch()
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        if torch.backends.mps.is_available():
            return torch.device("mps")
        return torch.device("cpu")
    want = 'one of "auto", "cuda", "cuda:<n>", "mps", "cpu"'
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError):
        raise refusal("device", want, device) from None
    here = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (chosen.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if chosen.type not in here:
        raise refusal("device", want, device)
    if not here[chosen.type]:
        raise ValueError(f"device must be one that this machine has, got {str(device)!r}")
    return chosen


def choose_precision(precision: str, device: torch.device) -> str:
    """Turn "auto" into a precision: float32 on CPUs and MPS, bfloat16 products on CUDA."""
    if precision not in PRECISIONS:
        raise refusal("precision", f"one of {', '.join(PRECISIONS)}", precision)
    if precision != "auto":
        return precision
    return "bfloat16" if device.type == "cuda" else "float32"


@contextlib.contextmanager
def inference(device: torch.device, precision: str) -> Any:
    """Run without gradients; lower precision only inside products, sums stay in float32."""
    torch = require_torch()
    with torch.inference_mode():
        if precision == "float32":
            yield
        else:
            with torch.autocast(device.type, dtype=getattr(torch, precision)):
                yield


def weights_hash(module: torch.nn.Module | None) -> str:
    """Hash every parameter and buffer with its name; "" for what has none."""
    if module is None:
        return ""
    torch = require_torch()
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        value = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        # As bytes: NumPy has no bfloat16.
        digest.update(value.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


@functools.cache
def library_versions() -> dict[str, str]:
    """Return the versions of the packages that compute numbers, where they are installed."""
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    try:
        # Installed under several names.
        import cv2
    except ModuleNotFoundError:
        return found
    return {**found, "opencv": cv2.__version__}
