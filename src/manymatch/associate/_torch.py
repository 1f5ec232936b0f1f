"""Nearest neighbours of torch tensors on their own device. Imported only for such tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

_Lists: TypeAlias = "tuple[NDArray[np.int32], NDArray[np.float32]]"

# Entries of one tile of the product; it takes about 40 bytes an entry with its sort keys.
_TILE_ENTRIES = 2**22
_NONE = -(2**63)  # key of a candidate that does not exist
_INDEX_BITS = 32
_NORM_FLOOR = 1e-12


def checked(desc0: Any, desc1: Any, want: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Check two descriptor tensors and detach them; nothing is copied.

    Raises
    ------
    ValueError
        If one is no tensor, has another shape or type, or lives on another device.
    """
    for name, value in (("desc0", desc0), ("desc1", desc1)):
        if not isinstance(value, torch.Tensor):
            raise ValueError(  # noqa: TRY004 (the package refuses input by ValueError)
                f"{name} must be a torch tensor like the other descriptors, "
                f"got a value of type {type(value).__name__}"
            )
        wrong = value.dtype.is_complex or value.dtype == torch.bool
        if value.ndim != 2 or wrong or (value.shape[1] == 0 and len(value)):
            raise ValueError(
                f"{name} must be {want}, got a tensor of shape {tuple(value.shape)} "
                f"and dtype {value.dtype}"
            )
    if desc0.device != desc1.device:
        raise ValueError(
            f"desc1 must be on the device of desc0, {desc0.device}, got {desc1.device}"
        )
    return desc0.detach(), desc1.detach()


def on_host(x: torch.Tensor) -> bool:
    """Tell whether the host does the work: the tensor is there, or its device lacks float64."""
    return x.device.type in ("cpu", "mps")


def to_host(x: torch.Tensor) -> NDArray[Any]:
    """Return a float32 or float64 array, sharing the memory of a tensor that is already one."""
    wide = x.dtype in (torch.float64, torch.int32, torch.int64)
    return np.asarray(x.cpu().to(torch.float64 if wide else torch.float32).numpy())


def unit_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows ``x / max(|x|, 1e-12)`` in float32, and which are finite and not all zero."""
    wide = x.to(torch.float64)
    finite = torch.isfinite(wide).all(dim=1)
    wide = torch.where(finite[:, None], wide, 0.0)
    # A power of two near the largest entry: exact, and squares neither overflow nor vanish.
    _, exponent = torch.frexp(wide.abs().amax(dim=1, keepdim=True))
    scale = torch.ldexp(torch.ones_like(wide[:, :1]), -exponent.clamp(min=-1000))
    wide = wide * scale
    norm = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    unit = (wide * (1.0 / torch.maximum(norm, _NORM_FLOOR * scale))).to(torch.float32)
    return unit, (unit != 0).any(dim=1)


def neighbours(x0: torch.Tensor, x1: torch.Tensor, k0: int, k1: int) -> tuple[_Lists, _Lists]:
    """Find lists of the best ``k0`` neighbours of rows of ``x0`` and ``k1`` of rows of ``x1``.

    The product is float64, rounded to float32: its own rounding is far below that, so ties are ties
    whatever order the device adds in.
    """
    count0, count1 = len(x0), len(x1)
    keys0 = torch.full((count0, k0), _NONE, dtype=torch.int64, device=x0.device)
    keys1 = torch.full((count1, k1), _NONE, dtype=torch.int64, device=x0.device)
    if count0 and count1:
        (unit0, valid0), (unit1, valid1) = unit_rows(x0), unit_rows(x1)
        right = unit1.to(torch.float64).T
        rows = max(1, _TILE_ENTRIES // count1)
        for row in range(0, count0, rows):
            part = slice(row, row + rows)
            value = _ordered((unit0[part].to(torch.float64) @ right).to(torch.float32))
            valid = valid0[part, None] & valid1[None, :]
            if k0:
                keys = torch.where(valid, value + _index_part(0, count1, x0.device), _NONE)
                keys0[part] = keys.topk(k0, dim=1).values
            if k1:
                places = _index_part(row, row + len(value), x0.device)
                keys = torch.where(valid, value + places[:, None], _NONE).T
                best = keys.topk(min(k1, keys.shape[1]), dim=1).values
                keys1 = torch.cat((keys1, best), dim=1).topk(k1, dim=1).values
    return _lists(keys0), _lists(keys1)


def _ordered(similarity: torch.Tensor) -> torch.Tensor:
    """Integers in the order of float32 numbers, in the upper half of int64."""
    bits = (similarity + 0.0).view(torch.int32)  # -0 becomes +0: they are equal
    order = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return order.to(torch.int64) << _INDEX_BITS


def _index_part(start: int, stop: int, device: torch.device) -> torch.Tensor:
    """Lower half of a key: larger for a smaller index."""
    return 2**_INDEX_BITS - 1 - torch.arange(start, stop, device=device)


def _lists(keys: torch.Tensor) -> _Lists:
    """Take keys, best first, apart on the host."""
    host = keys.cpu().numpy()
    index = (2**_INDEX_BITS - 1 - (host & (2**_INDEX_BITS - 1))).astype(np.int32)
    order = (host >> _INDEX_BITS).astype(np.int32)
    bits = np.where(order < 0, order ^ np.int32(0x7FFFFFFF), order).astype(np.int32)
    none = host == _NONE
    return np.where(none, np.int32(-1), index), np.where(none, 0, bits.view(np.float32)).astype(
        np.float32
    )
