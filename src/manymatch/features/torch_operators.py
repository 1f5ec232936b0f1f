"""The operators of `manymatch.features.network` in torch, for GPUs and without ONNX Runtime."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from manymatch.features.network import Network


# Constants of networks where they were run.
_placed: weakref.WeakKeyDictionary[Network, dict[tuple[str, str], Tensor]]
_placed = weakref.WeakKeyDictionary()


def run_operators(
    network: Network, outputs: Sequence[str], inputs: Mapping[str, NDArray[Any]]
) -> list[NDArray[Any]]:
    """Compute some values of a network from arrays by name, where the network is."""
    place = network.device.torch
    given = {name: torch.from_numpy(value).to(place) for name, value in inputs.items()}
    return [value.float().cpu().numpy() for value in evaluate(network, outputs, given)]


def evaluate(
    network: Network, outputs: Sequence[str], inputs: Mapping[str, Tensor]
) -> list[Tensor]:
    """Compute some values of a network from tensors by name."""
    place, constants = network.device.torch, _placed.setdefault(network, {})
    # Kernels channels last keep all maps so, which is faster on CPUs.
    orders = {4: torch.channels_last} if place == "cpu" else {}
    values: dict[str, Any] = {"": None, **inputs}
    for kind, names, output, attributes in network.needed(outputs):
        for name in names:
            if name in network.constants:
                if (place, name) not in constants:
                    value = network.constants[name]
                    order = orders.get(value.ndim, torch.contiguous_format)
                    with torch.inference_mode(mode=False):
                        placed = torch.tensor(value).to(place)
                        constants[place, name] = placed.contiguous(memory_format=order)
                values[name] = constants[place, name]
        arguments = [values[name] for name in names]
        values[output] = _OPERATORS[kind](*arguments, **attributes)
    return [values[name] for name in outputs]


def _convolution(
    x: Tensor,
    kernel: Tensor,
    bias: Tensor | None = None,
    *,
    pads: Sequence[int],
    strides: Sequence[int] = (1, 1),
    group: int = 1,
) -> Tensor:
    top, left, bottom, right = pads
    if (top, left) != (bottom, right):
        x, top, left = functional.pad(x, (left, right, top, bottom)), 0, 0
    return functional.conv2d(x, kernel, bias, tuple(strides), (top, left), groups=group)


def _sliced(x: Tensor, start: Tensor, end: Tensor, axis: Tensor) -> Tensor:
    whole = [slice(None)] * x.ndim
    whole[int(axis)] = slice(int(start), int(end))
    return x[tuple(whole)]


def _deformed(
    x: Tensor, kernel: Tensor, moves: Tensor, bias: Tensor, *, pads: Sequence[int]
) -> Tensor:
    """Sample the map where the pixels of the kernel have moved to, and convolve."""
    rows, columns = x.shape[2:]
    steps = [torch.arange(n, device=x.device) for n in (*kernel.shape[2:], rows, columns)]
    down, right, y, x_places = torch.meshgrid(*steps, indexing="ij")
    offsets = moves.reshape(*kernel.shape[2:], 2, rows, columns)
    places = (
        (2.0 * (x_places + right - pads[1] + offsets[:, :, 1]) + 1.0) / columns - 1.0,
        (2.0 * (y + down - pads[0] + offsets[:, :, 0]) + 1.0) / rows - 1.0,
    )
    where = torch.stack(places, dim=-1).reshape(1, -1, columns, 2)
    sampled = functional.grid_sample(x, where, align_corners=False)
    sampled = sampled.reshape(x.shape[1], -1, rows, columns)
    found = torch.einsum("ckyx,ock->oyx", sampled, kernel.flatten(2))
    return found[None] + bias.reshape(1, -1, 1, 1)


# By the names of ONNX, with its arguments.
_OPERATORS: dict[str, Callable[..., Tensor]] = {
    "Add": torch.add,
    "AveragePool": lambda x, *, kernel_shape, strides: functional.avg_pool2d(
        x, kernel_shape, strides
    ),
    "Cast": lambda x, *, to: x.float(),  # noqa: ARG005 - there is no other
    "Clip": torch.clamp,
    "Concat": lambda *parts, axis: torch.cat(parts, dim=axis),
    "Conv": _convolution,
    "Cos": torch.cos,
    "DeformConv": _deformed,
    "DepthToSpace": lambda x, *, blocksize: functional.pixel_shuffle(x, blocksize),
    "Div": torch.div,
    "Exp": torch.exp,
    "Gelu": functional.gelu,
    "GridSample": lambda x, where, *, mode: functional.grid_sample(
        x, where, f"bi{mode}", align_corners=False
    ),
    "LayerNormalization": lambda x, *norm: functional.layer_norm(x, x.shape[-1:], *norm),
    "LogSoftmax": lambda x, *, axis: x.log_softmax(dim=axis),
    "MatMul": torch.matmul,
    "Min": torch.minimum,
    "Mul": torch.mul,
    "Neg": torch.neg,
    "ReduceL2": lambda x, axis: torch.linalg.vector_norm(x, dim=int(axis), keepdim=True),
    "ReduceMean": lambda x, axis: x.mean(dim=axis.tolist(), keepdim=True),
    "Relu": torch.relu,
    "Reshape": lambda x, shape: x.reshape(shape.tolist()),
    "Resize": lambda x, _, scales, *, mode: functional.interpolate(
        x, scale_factor=scales[2:].tolist(), mode=f"bi{mode}"
    ),
    "Sigmoid": torch.sigmoid,
    "Sin": torch.sin,
    "Slice": _sliced,
    "Sub": torch.sub,
    "Sqrt": torch.sqrt,
    "Softmax": lambda x, *, axis: x.softmax(dim=axis),
    "SpaceToDepth": lambda x, *, blocksize: functional.pixel_unshuffle(x, blocksize),
    "Transpose": lambda x, *, perm: x.permute(perm),
}
