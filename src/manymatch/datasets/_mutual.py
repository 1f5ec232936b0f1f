"""Mutual K-nearest neighbours in NumPy, for made scenes only."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def unit_rows(descriptors: FloatArray) -> FloatArray:
    """Rows of ``descriptors`` (N, D) scaled to length one; the norm is floored at 1e-12."""
    norm = np.linalg.norm(descriptors, axis=1, keepdims=True)
    return np.asarray(descriptors / np.maximum(norm, 1e-12), dtype=np.float64)


def mutual_candidates(
    descriptors0: FloatArray, descriptors1: FloatArray, k: int, max_edges: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int32]]:
    """Edges ``(i, j)`` that are mutual at some ``K <= k``, best first.

    The rank of an edge is the larger of its position in row i (similarity descending, j ascending)
    and in column j (similarity descending, i ascending), counted from one. The order is total:
    rank, then decreasing similarity, then i, then j.

    Parameters
    ----------
    descriptors0, descriptors1 : (N0, D), (N1, D) float64
        One descriptor a keypoint; they are normalised here.
    k : int
        Largest rank that is kept.
    max_edges : int, optional
        Keep only that many edges from the front of the order.

    Returns
    -------
    edges (E, 2) int64, similarity (E,) float32, rank (E,) int32
    """
    # Ranking uses the rounded values that are handed out, so the order can be checked from outside.
    similarity = (unit_rows(descriptors0) @ unit_rows(descriptors1).T).astype(np.float32)
    # A stable sort of the negated values keeps the smaller index first among equals.
    row_rank = _positions(np.argsort(-similarity, axis=1, kind="stable"))
    column_rank = _positions(np.argsort(-similarity.T, axis=1, kind="stable")).T
    first_k = np.maximum(row_rank, column_rank)
    i, j = np.nonzero(first_k <= k)
    value, rank = similarity[i, j], first_k[i, j]
    order = np.lexsort((j, i, -value, rank))[:max_edges]
    edges = np.column_stack((i, j))[order].astype(np.int64)
    return edges, value[order], rank[order].astype(np.int32)


def _positions(order: NDArray[np.intp]) -> NDArray[np.int64]:
    """Position, counted from one, of every column in its row's order (N, M)."""
    position = np.empty(order.shape, dtype=np.int64)
    np.put_along_axis(position, order, np.arange(1, order.shape[1] + 1)[None, :], axis=1)
    return position
