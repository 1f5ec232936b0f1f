"""Association operators: candidates between two images from their descriptors.

Arrays are associated by the compiled core. Tensors on a GPU are associated there by torch, which
their owner has imported; the results are equal.
"""

from __future__ import annotations

import math
import os
import sys
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manymatch import _core
from manymatch._validate import (
    INT32_MAX,
    IndexArray,
    choice,
    int_array,
    integer,
    number_array,
    refusal,
    within,
)
from manymatch.options import usable_cores

#: Rules that choose edges by their ranks in the lists of their two ends, see `associate`.
OPERATORS = ("mutual", "oneway", "union")

# Products with fewer entries are faster on one thread.
_MIN_ENTRIES_TO_SHARE, _MAX_THREADS = 2**18, 64
# Entries of one tile of the product on a GPU; it takes about 40 bytes an entry with its order.
_DEVICE_TILE_ENTRIES = 2**22
_NORM_FLOOR = 1e-12

# glibc returns the arrays of each call to the system and gets them again page by page, which takes
# milliseconds, until a block as large as this one has been freed. It is never written to.
_ = np.empty(2**23, dtype=np.uint8)
del _

_Edges: TypeAlias = tuple[IndexArray, NDArray[np.float32], NDArray[np.int32]]
_Lists: TypeAlias = tuple[NDArray[np.int32], NDArray[np.float32]]
_WANT = "an (N, D) array of numbers with D of at least 1"

# Columns of SIFT, which COLMAP stores as uint8; no binary descriptor of OpenCV has 1024 bits.
_SIFT_COLUMNS = 128


def associate(
    desc0: ArrayLike,
    desc1: ArrayLike,
    k: int = 5,
    operator: str = "mutual",
    max_edges: int | None = None,
) -> _Edges:
    """Find the candidate correspondences of two images from their descriptors.

    Descriptors are scaled to unit length, ``x / max(|x|, 1e-12)``; the similarity of two is their
    cosine. The row rank of ``(i, j)`` is the position of j, from 1, among all descriptors of image
    1 by (similarity descending, j ascending); the column rank is that of i among image 0 by
    (similarity descending, i ascending). A descriptor that is all zero or has an entry that is
    not finite has no edges and no influence on the ranks of others.

    Arrays of uint8 are binary descriptors, bits packed into bytes, as OpenCV gives them for ORB,
    BRIEF, BRISK, FREAK and AKAZE: their similarity is ``1 - 2 d / (8 D)`` with the Hamming distance
    d, the cosine of the bits as -1 and 1. (uint8 with 128 columns is SIFT as COLMAP stores it, and
    compared as numbers. To compare other bytes as numbers, pass them as float32.)

    Parameters
    ----------
    desc0, desc1 : (N0, D) and (N1, D) array_like or torch.Tensor
        Descriptors of image 0 and 1, of any real type; none are legal. Tensors are on one device
        and stay on a GPU: only the lists of nearest neighbours, ``8 k (N0 + N1)`` bytes, come to
        the host. (Packed bits are compared on the host.)
    k : int
        Neighbourhood size K, 1 or more; it may exceed the number of keypoints.
    operator : {"mutual", "oneway", "union"}
        ``"mutual"`` keeps an edge if both its ranks are at most K, ``"union"`` if one of them is,
        ``"oneway"`` if the row rank is (from image 0 to image 1; swap the arguments for the other
        direction).
    max_edges : int, optional
        Keep only the first edges.

    Returns
    -------
    edges : (E, 2) int64 ndarray
        Indices into ``desc0`` and ``desc1``, by (rank, decreasing similarity, i, j).
    similarity : (E,) float32 ndarray
        Cosine of every edge.
    rank : (E,) int32 ndarray
        The first K at which the operator keeps the edge: the larger of the two ranks for
        ``"mutual"``, the smaller for ``"union"``, the row rank for ``"oneway"``.

    Notes
    -----
    The result is a function of the descriptors alone: not of threads, instruction set or the order
    of the keypoints, and equal descriptors tie exactly. Products of 16-bit integers only choose,
    with a rigorous bound of their rounding error, the pairs whose cosine is summed in float64 in a
    fixed order. Memory peaks at about ``6 D (N0 + N1)`` bytes
    (``4 D (N0 + N1)`` more for types other than float32 and float64), 16 MiB and
    ``(64 k + 80) (N0 + N1)`` bytes. There are as many threads as OPENBLAS_NUM_THREADS,
    MKL_NUM_THREADS or OMP_NUM_THREADS says, else one per core.

    Examples
    --------
    >>> import numpy as np
    >>> edges, similarity, rank = associate(np.eye(3), np.eye(3)[[1, 0, 2]], k=1)
    >>> edges.tolist()
    [[0, 1], [1, 0], [2, 2]]
    """
    count = integer(k, "k", 1)
    choice(operator, "operator", OPERATORS)
    limit = None if max_edges is None else integer(max_edges, "max_edges", 0)
    if _is_tensor(desc0) and _is_tensor(desc1):
        _check_devices(desc0, desc1)
        # The host computes if the tensors are on it, if their device lacks float64, and for bits.
        if desc0.device.type not in ("cpu", "mps") and "uint8" not in f"{desc0.dtype}{desc1.dtype}":
            k0, k1 = _list_lengths(len(desc0), len(desc1), count, operator)
            lists = *_device_lists(desc0, desc1, k0), *_device_lists(desc1, desc0, k1)
            return _core.edges_of_lists(*lists, operator, limit)
        desc0, desc1 = _on_host(desc0), _on_host(desc1)
    x0, x1 = _descriptors(desc0, "desc0"), _descriptors(desc1, "desc1")
    _check_dimensions(x0.shape, x1.shape)
    return _associate_arrays(x0, x1, count, operator, limit)


def associate_owned(
    desc0: ArrayLike,
    owners0: ArrayLike,
    desc1: ArrayLike,
    owners1: ArrayLike,
    k: int = 5,
    operator: str = "mutual",
) -> _Edges:
    """Find candidates between keypoints, whose similarity is the best of their descriptors'.

    A place that SIFT describes under two orientations is one keypoint: it has one list of
    neighbours, and is in a list once. Otherwise as `associate`.

    Parameters
    ----------
    desc0, desc1 : (M0, D) and (M1, D) array_like
        Descriptors, in any order.
    owners0, owners1 : (M0,) and (M1,) array_like of int
        The keypoint that each row belongs to, from 0; edges are pairs of these numbers.
    k, operator
        As in `associate`.
    """
    count = integer(k, "k", 1)
    owner0, owner1 = _owners(owners0, desc0, "0"), _owners(owners1, desc1, "1")
    choice(operator, "operator", OPERATORS)
    rows0, rows1 = (
        _descriptors(_on_host(desc) if _is_tensor(desc) else desc, f"desc{side}")
        for side, desc in enumerate((desc0, desc1))
    )
    _check_dimensions(rows0.shape, rows1.shape)
    # Only keypoints that own a row take part; their order decides between equal similarities.
    (names0, places0), (names1, places1) = (
        np.unique(owner, return_inverse=True) for owner in (owner0, owner1)
    )
    owners = (places0.astype(np.int32), places1.astype(np.int32))
    edges, similarity, rank = _associate_arrays(rows0, rows1, count, operator, None, owners)
    return np.stack([names0[edges[:, 0]], names1[edges[:, 1]]], axis=1), similarity, rank


def _is_tensor(value: object) -> TypeGuard[Any]:
    """Return whether a value is a torch tensor, without importing torch."""
    return type(value).__module__.split(".")[0] == "torch" and hasattr(value, "device")


def _check_dimensions(shape0: tuple[int, ...], shape1: tuple[int, ...]) -> None:
    """Check that descriptors of both images have the same length and can be numbered."""
    # An empty image has no descriptors whose length could be wrong.
    if shape0[1] != shape1[1] and shape0[0] and shape1[0]:
        raise ValueError(
            f"desc1 must have the dimension of desc0, {shape0[1]}, got shape {tuple(shape1)}"
        )
    for name, shape in (("desc0", shape0), ("desc1", shape1)):
        if shape[0] > INT32_MAX:
            raise ValueError(f"{name} must have at most {INT32_MAX} rows, got {shape[0]}")


def _descriptors(value: Any, name: str) -> NDArray[Any]:
    """Convert to a contiguous (N, D) array of float32, float64 or uint8, copying if needed."""
    array = number_array(value, name, _WANT, (None, None))
    if array.shape[1] == 0 and len(array):
        raise refusal(name, _WANT, array)
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    # float32 represents every value of these types exactly.
    small = np.can_cast(array.dtype, np.float32, "safe")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype=np.float32 if small else np.float64)


def _num_threads() -> int:
    """Return the number of threads that the environment gives to linear algebra."""
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "")
        if text.isdigit() and int(text) > 0:
            return min(int(text), _MAX_THREADS)
    return min(usable_cores(), _MAX_THREADS)


def _list_lengths(count0: int, count1: int, k: int, operator: str) -> tuple[int, int]:
    """Neighbours to keep for a keypoint of image 0 and of image 1."""
    return min(k, count1), 0 if operator == "oneway" else min(k, count0)


def _associate_arrays(
    x0: NDArray[Any],
    x1: NDArray[Any],
    k: int,
    operator: str,
    max_edges: int | None,
    owners: tuple[NDArray[np.int32] | None, NDArray[np.int32] | None] = (None, None),
) -> _Edges:
    """Associate contiguous arrays of float32 or float64, or of packed bits.

    `owners` are the keypoints of the rows, numbered without gaps; by default each has one row.
    """
    threads = _num_threads() if len(x0) * len(x1) >= _MIN_ENTRIES_TO_SHARE else 1
    k0, k1 = _list_lengths(len(x0), len(x1), k, operator)
    if not (len(x0) and len(x1)):
        x0, x1 = (np.zeros((len(x), 1), dtype=np.float32) for x in (x0, x1))
    bits = _packed_bits(x0, x1)
    if bits:
        # A power of two of at most 1 / sqrt(bits): all products and sums are exact.
        step = 2.0 ** -math.ceil(math.log2(bits) / 2)
        unit0, unit1 = (
            np.float32(step) * (2 * np.unpackbits(x, axis=1) - np.float32(1)) for x in (x0, x1)
        )
        valid0, valid1 = (np.ones(len(x), dtype=bool) for x in (x0, x1))
    else:
        x0, x1 = (x.astype(np.float32) if x.dtype == np.uint8 else x for x in (x0, x1))
        unit0, unit1 = (np.empty(x.shape, dtype=np.float32) for x in (x0, x1))
        valid0, valid1 = _core.unit_rows(x0, unit0, threads), _core.unit_rows(x1, unit1, threads)
    left, right = (unit0, valid0, owners[0]), (unit1, valid1, owners[1])
    found = _core.nearest_edges(*left, *right, k0, k1, operator, max_edges, threads)
    edges, similarity, rank = found
    if bits:
        similarity = (similarity / (step * step * bits)).astype(np.float32)
    return edges, similarity, rank


def _packed_bits(x0: NDArray[Any], x1: NDArray[Any]) -> int:
    """Return the number of bits per descriptor, or 0 for descriptors that are numbers."""
    packed = [x.dtype == np.uint8 and x.shape[1] != _SIFT_COLUMNS for x in (x0, x1)]
    if packed[0] != packed[1]:
        raise ValueError(
            "desc1 must be packed bits (uint8) if desc0 is, and only then, got "
            f"{x0.dtype} and {x1.dtype}"
        )
    return 8 * int(x0.shape[1]) if packed[0] else 0


def _check_devices(desc0: Any, desc1: Any) -> None:
    """Check two tensors, as `_descriptors` checks arrays."""
    for name, value in (("desc0", desc0), ("desc1", desc1)):
        wrong = value.dtype.is_complex or str(value.dtype) == "torch.bool"
        if value.ndim != 2 or wrong or (value.shape[1] == 0 and len(value)):
            raise ValueError(
                f"{name} must be {_WANT}, got a tensor of shape {tuple(value.shape)} "
                f"and dtype {value.dtype}"
            )
    if desc0.device != desc1.device:
        raise ValueError(
            f"desc1 must be on the device of desc0, {desc0.device}, got {desc1.device}"
        )
    _check_dimensions(tuple(desc0.shape), tuple(desc1.shape))


def _on_host(tensor: Any) -> NDArray[Any]:
    plain = tensor.detach().cpu()
    # NumPy has no bfloat16.
    return np.asarray(plain.float() if str(plain.dtype) == "torch.bfloat16" else plain)


def _device_lists(x: Any, y: Any, k: int) -> _Lists:
    """Find the best ``k`` neighbours among the rows of ``y`` for every row of ``x``.

    The product is float64, rounded to float32, so that the order in which the device adds does not
    matter and ties stay ties. The sort is stable: the first of equal neighbours is the best.
    """
    torch: Any = sys.modules["torch"]  # whoever made a tensor has imported it
    if not (len(x) and len(y) and k):
        return np.zeros((len(x), k), np.int32), np.zeros((len(x), k), np.float32)
    (left, valid), (right, eligible) = _unit_rows(x.detach()), _unit_rows(y.detach())
    right = right.to(torch.float64).T
    parts = []
    for row in range(0, len(x), max(1, _DEVICE_TILE_ENTRIES // len(y))):
        part = slice(row, row + max(1, _DEVICE_TILE_ENTRIES // len(y)))
        similarity = (left[part].to(torch.float64) @ right).to(torch.float32)
        similarity[~(valid[part, None] & eligible[None, :])] = -torch.inf
        found, index = similarity.sort(dim=1, descending=True, stable=True)
        parts.append((index[:, :k].cpu(), found[:, :k].cpu()))
    index, similarity = (torch.cat(some).numpy() for some in zip(*parts, strict=True))
    none = np.isneginf(similarity)
    return np.where(none, -1, index).astype(np.int32), np.where(none, 0, similarity + 0.0)


def _unit_rows(x: Any) -> tuple[Any, Any]:
    """Rows ``x / max(|x|, 1e-12)`` in float32, and which are finite and not all zero."""
    torch: Any = sys.modules["torch"]
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


def _owners(owners: ArrayLike, desc: ArrayLike, image: str) -> IndexArray:
    name = f"owners{image}"
    count = len(np.asarray(desc))
    array = int_array(owners, name, f"one keypoint per row of desc{image} ({count})", (count,))
    within(array, 0, 2**31 - 1, name, "numbers of keypoints, from 0")
    return array
