"""Where networks run, in which precision, and with which versions of which libraries."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import choice, refusal, require

if TYPE_CHECKING:
    import torch

#: Of a backbone's matrix products and convolutions; the first is the default.
PRECISIONS = ("float32", "bfloat16", "float16")
# What the presets "embedded" and "fused" run with.
_NETWORKS = ("efficientnet-lite0", "xfeat", "aliked-t16")
# A change of any of them may make other features.
_LIBRARIES = ("numpy", "onnxruntime", "torch", "transformers", "timm")
#: Those of `library_versions` that compute numbers where no network runs.
WITHOUT_NETWORK = ("numpy", "opencv")


def default_preset(*, one_source: bool = False, here: bool = False) -> tuple[str, str]:
    """Return the preset that is used when none is named, and why.

    `one_source` asks for one with one source, `here` for one that needs no download.
    """
    from manymatch.features.registry import find_model
    from manymatch.features.weights import can_download, whereabouts

    lacking = []
    if not (_is_installed("onnxruntime") or _is_installed("torch")):
        lacking = ["onnxruntime is not installed"]
    for model in map(find_model, () if lacking else _NETWORKS):
        if whereabouts(model) is None and (here or not can_download(model)):
            lacking.append(f"the weights of {model.name} are not here")
    if lacking:
        return "classic", f'The preset is "classic", as {lacking[0]}.'
    if one_source:
        return "embedded", 'The preset is "embedded", the default where one source is changed.'
    return "fused", 'The preset is "fused", as its networks run here.'


def works_now() -> str:
    """End a sentence that says that a network lacks something with a preset that lacks nothing."""
    if importlib.util.find_spec("cv2") is None:
        return ""
    return f', or take the preset "{default_preset(here=True)[0]}", which works now'


def require_runtime() -> None:
    """Say how to get ONNX Runtime, if neither that nor torch is installed."""
    # Not imported here, but where what it reports to its makers is switched off.
    if not (_is_installed("torch") or _is_installed("onnxruntime")):
        require("onnxruntime", "this network", "images", works_now)


def require_torch() -> Any:
    """Import torch, or say how to get it."""
    return require("torch", "this network", "features", works_now)


class Device(str):
    """Where networks run: "cuda", "cuda:<n>", "mps", "cpu" or "torch".

    On "cpu", networks that are written as lists of operators run in ONNX Runtime if that is
    installed; all others, and all of them on "torch", run in torch on the CPU.
    """

    __slots__ = ()

    @property
    def type(self) -> str:
        """The name without a number, for records."""
        return self.partition(":")[0]

    @property
    def torch(self) -> Device:
        """What torch calls it."""
        return Device("cpu") if self == "torch" else self

    @property
    def runs_onnx(self) -> bool:
        """Whether ONNX Runtime is used where a network allows it."""
        return self == "cpu" and _is_installed("onnxruntime")


def choose_device(device: object = "auto") -> Device:
    """Turn "auto", "cuda", "cuda:1", "mps", "cpu" or "torch" into a device that is there."""
    # Importing torch to ask it for a GPU takes a second, where none can be.
    linux, files = sys.platform.startswith("linux"), ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
    gpu = _is_installed("torch") and (not linux or any(map(os.path.exists, files)))
    if device in ("cpu", "torch") or (device == "auto" and not gpu):
        return Device("cpu" if device == "auto" else device)
    if not re.fullmatch(r"auto|(cpu|cuda|mps)(:\d{1,2})?", str(device)):
        want = 'one of "auto", "cuda", "cuda:<n>", "mps", "cpu", "torch"'
        raise refusal("device", want, device)
    torch = require("torch", f"the device {str(device)!r}", "features")
    if device == "auto":
        if torch.cuda.is_available():
            return Device("cuda")
        return Device("mps" if torch.backends.mps.is_available() else "cpu")
    chosen = torch.device(device)
    index, here = chosen.index or 0, {"cpu": 1, "cuda": torch.cuda.device_count()}
    if index >= here.get(chosen.type, int(torch.backends.mps.is_available())):
        raise ValueError(f"device must be one that this machine has, got {str(device)!r}")
    return Device("cpu" if chosen.type == "cpu" else device)


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def network_threads(*, alone: bool) -> int:
    """Threads of a network in ONNX Runtime, which do not change its results.

    All together they are ``OMP_NUM_THREADS``, or all cores of the process. Unless a network runs
    `alone`, two have half of them each: the images of a pair are described at the same time, and
    one thread for each image is faster than both for one image after the other.
    """
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    several = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if several else os.cpu_count() or 1
    threads = min(max(1, int(wanted)), cores) if wanted.isdecimal() else cores
    return threads if alone else max(1, threads // 2)


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


def check_precision(precision: object, device: Device | torch.device | None) -> None:
    """Refuse an unknown precision, and one in which networks cannot run on this CPU."""
    chosen = choice(precision, "precision", PRECISIONS)
    on_cpu = device is not None and device.type in ("cpu", "torch")
    if on_cpu and chosen != PRECISIONS[0] and not runs_on_cpu(chosen):
        raise ValueError(f"precision must be float32 on this CPU, which fails in {chosen}")


# Networks take turns in this process and, on the CPU, in others with the same file.
_turn = threading.RLock()
_places = threading.BoundedSemaphore(2)
_turn_file = -1


@contextlib.contextmanager
def take_turn(device: Device | torch.device) -> Iterator[None]:
    """Wait until no other network runs; `take_turns` extends this to several processes."""
    with _turn, contextlib.ExitStack() as stack:
        if device.type in ("cpu", "torch") and _turn_file >= 0:
            fcntl.flock(_turn_file, fcntl.LOCK_EX)
            stack.callback(fcntl.flock, _turn_file, fcntl.LOCK_UN)
        yield


@contextlib.contextmanager
def two_at_a_time(device: Device) -> Iterator[None]:
    """Wait until at most one other network runs, or none if several processes take turns."""
    with _places if _turn_file < 0 else take_turn(device):
        yield


@contextlib.contextmanager
def inference(device: Any, precision: str = "float32") -> Iterator[None]:
    """Run torch without gradients, in exactly the precision asked for.

    A lower one holds inside products only, sums stay in float32. Float32 is that of IEEE 754: TF32
    and bfloat16, which torch may use instead, are switched off while the context lasts.

    Networks take turns: on the CPU each uses all of torch's threads, two at a time would hinder
    each other, and with fewer threads each the last bits would depend on how many run.
    """
    torch = require_torch()
    check_precision(precision, device)
    with take_turn(device), contextlib.ExitStack() as stack:
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


def to_device(module: Any, device: Device) -> Any:
    """Move a network; kernels that are stored channels last for CPUs stay so there only."""
    if isinstance(getattr(module, "device", None), Device):
        return module.to(device)
    torch = require_torch()
    order = torch.preserve_format if device.torch == "cpu" else torch.contiguous_format
    return module.to(device.torch, memory_format=order)


def weights_hash(module: Any) -> str:
    """Hash every parameter and buffer with its name; "" for what has none."""
    if module is None:
        return ""
    digest, tensors = hashlib.sha256(), getattr(module, "tensors", None)
    for name, value in sorted((tensors.used if tensors else module.state_dict()).items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        if tensors is None:
            # As bytes: NumPy has no bfloat16.
            flat = value.detach().cpu().contiguous().reshape(-1)
            value = flat.view(require_torch().uint8).numpy()  # noqa: PLW2901
        digest.update(np.ascontiguousarray(value).data)
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


def torch_threads() -> int | None:
    """Return the number of threads of torch, on which last bits depend; None without torch."""
    return int(require_torch().get_num_threads()) if _is_installed("torch") else None
