"""Association operators: candidates between two images from their descriptors."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from manymatch import _core
from manymatch._validate import INT32_MAX, IndexArray, integer, refusal, suggest

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: How an edge is chosen from the positions it has in the lists of its two ends.
OPERATORS = ("mutual", "oneway", "union")

# A tile of the product, 16 MiB of float32: smaller ones cost the matrix product speed. The result
# does not depend on it.
_TILE_ROWS, _TILE_COLUMNS = 2048, 2048

# Products with fewer entries are not worth a second thread.
_MIN_ENTRIES_TO_SHARE = 2**18

_MAX_THREADS = 64

_Edges: TypeAlias = tuple[IndexArray, NDArray[np.float32], NDArray[np.int32]]

_WANT = "an (N, D) array of numbers with D of at least 1"


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

    Parameters
    ----------
    desc0 : (N0, D) array_like or torch.Tensor
        Descriptors of image 0, of any real type. A tensor on a GPU stays there: only the lists of
        nearest neighbours, ``8 k (N0 + N1)`` bytes, come to the host.
    desc1 : (N1, D) array_like or torch.Tensor
        Descriptors of image 1; a tensor on the same device if ``desc0`` is one.
    k : int
        Neighbourhood size K, 1 or more; it may exceed the number of keypoints.
    operator : {"mutual", "oneway", "union"}
        ``"mutual"`` keeps an edge if both its ranks are at most K, ``"union"`` if one of them is,
        ``"oneway"`` if the row rank is (from image 0 to image 1; swap the arguments for the other
        direction).
    max_edges : int, optional
        Keep only that many edges from the front of the order.

    Returns
    -------
    edges : (E, 2) int64 ndarray
        ``(i, j)``, indices into ``desc0`` and ``desc1``, by (rank ascending, similarity descending,
        i, j).
    similarity : (E,) float32 ndarray
        Cosine of every edge.
    rank : (E,) int32 ndarray
        The first K at which the operator keeps the edge: the larger of the two ranks for
        ``"mutual"``, the smaller for ``"union"``, the row rank for ``"oneway"``. So the edges of
        rank at most K' are what the operator gives with ``k=K'``, for every K' up to K.

    Raises
    ------
    ValueError
        If an argument has another shape, type or range, or the dimensions D differ. No descriptors
        at all are legal and give no edges.

    Notes
    -----
    The similarity is defined without reference to a BLAS: unit descriptors are rounded to float32,
    their inner product is summed in float64 in a fixed order and rounded to float32. A float32
    matrix product only chooses, with a rigorous bound of its rounding error, which pairs are worth
    that. The result is therefore a function of the descriptors alone: not of threads, BLAS, tile
    shapes, instruction set or the order of the keypoints, and equal descriptors tie exactly.

    Besides input and output, memory peaks at about ``4 D (N0 + N1)`` bytes for the unit descriptors
    (twice that for types other than float32 and float64, or arrays that are not contiguous), 16 MiB
    for a tile of the product and ``(64 k + 80) (N0 + N1)`` bytes for the lists and the sorting of
    edges, however many pairs there are; K counts as N where it is larger.

    The work is shared by as many threads as BLAS uses: OPENBLAS_NUM_THREADS, MKL_NUM_THREADS or
    OMP_NUM_THREADS if one is set, else one per core.

    Examples
    --------
    >>> import numpy as np
    >>> edges, similarity, rank = associate(np.eye(3), np.eye(3)[[1, 0, 2]], k=1)
    >>> edges.tolist()
    [[0, 1], [1, 0], [2, 2]]
    """
    count = integer(k, "k", 1)
    if operator not in OPERATORS:
        want = f"one of {', '.join(map(repr, OPERATORS))}"
        raise ValueError(f"operator must be {want}, got {operator!r}{suggest(operator, OPERATORS)}")
    limit = None if max_edges is None else integer(max_edges, "max_edges", 0)
    if is_tensor(desc0) or is_tensor(desc1):
        return _associate_tensors(desc0, desc1, count, operator, limit)
    x0, x1 = _descriptors(desc0, "desc0"), _descriptors(desc1, "desc1")
    check_dimensions(x0.shape, x1.shape)
    return _associate_arrays(x0, x1, count, operator, limit)


def is_tensor(value: object) -> bool:
    """Tell whether a value is a torch tensor, without importing torch."""
    return type(value).__module__.split(".")[0] == "torch" and hasattr(value, "device")


def check_dimensions(shape0: tuple[int, ...], shape1: tuple[int, ...]) -> None:
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
    """Convert to a contiguous (N, D) array of float32 or float64, copying only if needed."""
    if np.ma.is_masked(value):
        raise ValueError(f"{name} must be {_WANT}, got a masked array with masked values")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise refusal(name, _WANT, value) from error
    if array.shape == (0,):
        array = array.reshape(0, 1)
    if array.ndim != 2 or array.dtype.kind not in "fiu" or (array.shape[1] == 0 and len(array)):
        raise refusal(name, _WANT, array)
    # Exactly those types whose every value float32 holds.
    small = np.can_cast(array.dtype, np.float32, "safe")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype=np.float32 if small else np.float64)


def _num_threads() -> int:
    """Threads that BLAS uses, as far as the environment tells."""
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "")
        if text.isdigit() and int(text) > 0:
            return min(int(text), _MAX_THREADS)
    cores = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    return min(len(cores), _MAX_THREADS)


def _list_lengths(count0: int, count1: int, k: int, operator: str) -> tuple[int, int]:
    """Neighbours to keep for a keypoint of image 0 and of image 1."""
    return min(k, count1), 0 if operator == "oneway" else min(k, count0)


def _associate_arrays(
    x0: NDArray[Any], x1: NDArray[Any], k: int, operator: str, max_edges: int | None
) -> _Edges:
    """Associate contiguous arrays of float32 or float64."""
    threads = _num_threads() if len(x0) * len(x1) >= _MIN_ENTRIES_TO_SHARE else 1
    unit0: NDArray[np.float32] = np.empty(x0.shape, dtype=np.float32)
    unit1: NDArray[np.float32] = np.empty(x1.shape, dtype=np.float32)
    valid0, valid1 = _core.unit_rows(x0, unit0, threads), _core.unit_rows(x1, unit1, threads)
    k0, k1 = _list_lengths(len(x0), len(x1), k, operator)
    if not (len(x0) and len(x1)):
        unit0, unit1 = (np.zeros((len(x), 1), dtype=np.float32) for x in (x0, x1))
    neighbours = _core.Neighbours(unit0, valid0, unit1, valid1, k0, k1, threads)
    buffer = np.empty(min(_TILE_ROWS, len(x0)) * min(_TILE_COLUMNS, len(x1)), dtype=np.float32)
    for column in range(0, len(x1), _TILE_COLUMNS):
        right = unit1[column : column + _TILE_COLUMNS].T
        for row in range(0, len(x0), _TILE_ROWS):
            left = unit0[row : row + _TILE_ROWS]
            tile = buffer[: len(left) * right.shape[1]].reshape(len(left), right.shape[1])
            neighbours.scan(np.matmul(left, right, out=tile), row, column)
    return neighbours.edges(operator, max_edges)


def _associate_tensors(
    desc0: Any, desc1: Any, k: int, operator: str, max_edges: int | None
) -> _Edges:
    """Associate torch tensors where they are."""
    from manymatch.associate import _torch as on_device

    x0, x1 = on_device.checked(desc0, desc1, _WANT)
    check_dimensions(tuple(x0.shape), tuple(x1.shape))
    if on_device.on_host(x0):
        host0, host1 = (np.ascontiguousarray(on_device.to_host(x)) for x in (x0, x1))
        return _associate_arrays(host0, host1, k, operator, max_edges)
    k0, k1 = _list_lengths(len(x0), len(x1), k, operator)
    lists0, lists1 = on_device.neighbours(x0, x1, k0, k1)
    return _core.edges_of_lists(*lists0, *lists1, operator, max_edges)
