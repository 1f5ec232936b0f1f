"""Small networks as lists of ONNX operators, which ONNX Runtime or torch runs.

A network is written down once, operator by operator, from the tensors of its published file. On a
CPU ONNX Runtime runs it, which needs no torch; `manymatch.features.torch_operators` runs the same
list on a GPU, and where ONNX Runtime is not installed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import struct
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manymatch.features.device import Device, inference, network_threads, two_at_a_time

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

# Of the operators, and of the format that goes with it.
_OPSET, _FORMAT = 20, 9
# Numbers of types in ONNX.
_TYPES = {"float32": 1, "uint8": 2, "int64": 7}

Array = NDArray[Any]
_NOTHING: Array = np.zeros(0)


class Tensors:
    """Weights by name, or reproducible random ones for tests and timing.

    `used` has what a network asked for, by name, with zeros for what the file lacks.
    """

    def __init__(self, state: Mapping[str, Array] | None) -> None:
        self._state, self.used = state, dict[str, Array]()

    def __call__(self, name: str, *shape: int) -> Array:
        """Return a tensor of this shape; zeros, if the file has none."""
        if self._state is None:
            found = _random(name, shape)
        else:
            found = self._state.get(name, _NOTHING)
            found = found if found.shape == shape else np.zeros(shape, np.float32)
        self.used[name] = found
        return found


def _random(name: str, shape: tuple[int, ...]) -> Array:
    """Make weights that keep activations of order one; norms are the identity, biases zero."""
    if len(shape) < 2:
        zero = name.endswith(("bias", "running_mean"))
        return np.full(shape, 0.0 if zero else 1.0, np.float32)
    values = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)
    return np.asarray(values / np.sqrt(values[0].size), np.float32)


class Operator(NamedTuple):
    """One step: which operator of ONNX, names of values that go in and come out, attributes."""

    kind: str
    inputs: tuple[str, ...]
    output: str
    attributes: dict[str, Any]


class Network:
    """A list of operators, and who runs it.

    Values are called by names, which `input` and `add` return. Attributes of operators are
    integers, floats, texts or lists of integers.
    """

    #: As of a torch module: there is nothing to train.
    training = False
    #: Whether it runs once for a pair, with all cores; else once for each image, two at a time.
    alone = False

    def __init__(self, tensors: Tensors) -> None:
        self.tensors, self.operators = tensors, list[Operator]()
        self.constants, self.inputs = dict[str, Array](), dict[str, tuple[str, int]]()
        self.device = Device("cpu")
        self._sessions: dict[tuple[str, ...], InferenceSession] = {}
        self._making = threading.Lock()

    def input(self, name: str, axes: int, dtype: str = "float32") -> str:
        """Add an array that is given when the network runs."""
        self.inputs[name] = (dtype, axes)
        return name

    def add(self, kind: str, *inputs: str | ArrayLike, **attributes: Any) -> str:
        """Add an operator and return the name of its value; arrays are constants."""
        names = []
        for value in inputs:
            name = value if isinstance(value, str) else f"c{len(self.constants)}"
            if not isinstance(value, str):
                self.constants[name] = np.ascontiguousarray(value)
            names.append(name)
        output = f"v{len(self.operators)}"
        self.operators.append(Operator(kind, tuple(names), output, attributes))
        return output

    def convolve(
        self,
        x: str,
        name: str,
        shape: tuple[int, ...],
        *,
        norm: str = "",
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = False,
        pads: Sequence[int] | None = None,
        **attributes: Any,
    ) -> str:
        """Add a convolution with the kernel `name` + ".weight" of (out, in, rows, columns).

        A batch norm after it, called `norm`, is folded into it in double precision. By default the
        map keeps its size.
        """
        kernel, shift = self.folded(name, shape, norm=norm, eps=eps, affine=affine, bias=bias)
        around = [(n - 1) // 2 for n in shape[2:]] * 2 if pads is None else list(pads)
        inputs = [kernel] if shift is None else [kernel, shift]
        return self.add("Conv", x, *inputs, pads=around, **attributes)

    def folded(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        norm: str = "",
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = False,
    ) -> tuple[Array, Array | None]:
        """Return kernel and bias of a convolution with the norm after it; None without a bias."""
        out = shape[0]
        kernel = self.tensors(f"{name}.weight", *shape)
        shift = self.tensors(f"{name}.bias", out) if bias else None
        if not norm:
            return kernel, shift
        mean, variance = (
            self.tensors(f"{norm}.running_{what}", out).astype(np.float64)
            for what in ("mean", "var")
        )
        gain, offset = (
            (self.tensors(f"{norm}.weight", out), self.tensors(f"{norm}.bias", out))
            if affine
            else (np.ones(out), np.zeros(out))
        )
        factor = gain / np.sqrt(variance + eps)
        folded = kernel * factor.reshape(-1, *[1] * (len(shape) - 1))
        shift = offset + ((0.0 if shift is None else shift) - mean) * factor
        return folded.astype(np.float32), shift.astype(np.float32)

    def to(self, device: Device) -> Network:
        """Choose where it runs from now on."""
        self.device = device
        return self

    def needed(self, outputs: Iterable[str]) -> list[Operator]:
        """Return the operators without which these values cannot be computed, in their order."""
        wanted, kept = set(outputs), []
        for operator in reversed(self.operators):
            if operator.output in wanted:
                wanted.update(operator.inputs)
                kept.append(operator)
        return kept[::-1]

    def run(
        self, outputs: Sequence[str], inputs: Mapping[str, Array], precision: str = "float32"
    ) -> list[Array]:
        """Compute some values from arrays by name; `precision` as in `inference`."""
        if self.device.runs_onnx:
            with two_at_a_time(self.device):
                found: list[Array] = self._session(tuple(outputs)).run(list(outputs), dict(inputs))
            return found
        from manymatch.features.torch_operators import run_operators

        with inference(self.device.torch, precision):
            return run_operators(self, outputs, inputs)

    def _session(self, outputs: tuple[str, ...]) -> InferenceSession:
        """Return a session that computes these values and nothing else."""
        with self._making:
            if outputs not in self._sessions:
                # Read when it is imported: it would otherwise send events to its makers.
                os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
                import onnxruntime

                _share_memory()
                options = onnxruntime.SessionOptions()
                options.add_session_config_entry("session.use_env_allocators", "1")
                options.intra_op_num_threads = network_threads(alone=self.alone)
                # Threads that wait must leave the cores to others.
                options.add_session_config_entry("session.intra_op.allow_spinning", "0")
                options.log_severity_level = 3
                self._sessions[outputs] = onnxruntime.InferenceSession(
                    self.to_onnx(outputs), options, providers=["CPUExecutionProvider"]
                )
            return self._sessions[outputs]

    def to_onnx(self, outputs: Sequence[str]) -> bytes:
        """Write the file of ONNX that computes some values, in the format of Protocol Buffers.

        Numbers of fields are those of onnx.proto.
        """
        operators = self.needed(outputs)
        used = {name for operator in operators for name in operator.inputs}
        graph: list[tuple[int, str | bytes]] = [(2, "network")]
        for kind, names, output, attributes in operators:
            own = [(5, _attribute(name, value)) for name, value in attributes.items()]
            graph.append(
                (1, _message(*((1, name) for name in names), (2, output), (4, kind), *own))
            )
        for name, value in self.constants.items():
            if name in used:
                lengths = [(1, length) for length in value.shape]
                held = ((2, _TYPES[value.dtype.name]), (8, name), (9, value.tobytes()))
                graph.append((5, _message(*lengths, *held)))
        for name, (dtype, axes) in self.inputs.items():
            if name in used:
                graph.append((11, _declared(name, dtype, axes)))
        graph += [(12, _declared(name, "float32")) for name in outputs]
        return _message((1, _FORMAT), (7, _message(*graph)), (8, _message((1, ""), (2, _OPSET))))


@functools.cache
def _share_memory() -> None:
    """Have all networks use the same memory, as those of an image run one after the other."""
    import onnxruntime as ort

    kind, type_ = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, ort.OrtMemType.DEFAULT
    # Another library of this process may have done so; the defaults of its settings are these.
    with contextlib.suppress(RuntimeError):
        ort.create_and_register_allocator(ort.OrtMemoryInfo("Cpu", kind, 0, type_), None)


def _declared(name: str, dtype: str, axes: int | None = None) -> bytes:
    """Declare a value, of any lengths along its axes if their number is known."""
    lengths = [(1, _message((2, f"{name}{axis}"))) for axis in range(axes or 0)]
    shape = [] if axes is None else [(2, _message(*lengths))]
    return _message((1, name), (2, _message((1, _message((1, _TYPES[dtype]), *shape)))))


def _attribute(name: str, value: float | str | Sequence[int]) -> bytes:
    if isinstance(value, float):
        return _message((1, name), (2, value), (20, 1))
    if isinstance(value, int):
        return _message((1, name), (3, value), (20, 2))
    if isinstance(value, str):
        return _message((1, name), (4, value), (20, 3))
    return _message((1, name), *((8, number) for number in value), (20, 7))


def _message(*fields: tuple[int, int | float | str | bytes]) -> bytes:
    """Encode numbered fields: integers, floats, and texts or messages with their lengths."""
    parts = []
    for number, value in fields:
        if isinstance(value, float):
            parts += [_varint(number << 3 | 5), struct.pack("<f", value)]
        elif isinstance(value, int):
            parts += [_varint(number << 3), _varint(value)]
        else:
            data = value.encode() if isinstance(value, str) else value
            parts += [_varint(number << 3 | 2), _varint(len(data)), data]
    return b"".join(parts)


def _varint(number: int) -> bytes:
    """Encode an integer in groups of seven bits, a negative one as 64 bits."""
    rest, encoded = number % 2**64, bytearray()
    while rest > 127:
        encoded.append(rest % 128 + 128)
        rest //= 128
    return bytes([*encoded, rest])
