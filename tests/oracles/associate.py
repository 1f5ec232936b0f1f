"""Quadratic twins of the association operators: every similarity, every rank, plain Python."""

import math

import numpy as np


def unit_rows(descriptors):
    """Rows x / max(|x|, 1e-12) rounded to float32, and None for rows that take no part."""
    rows = []
    for row in np.asarray(descriptors, dtype=np.float64).tolist():
        if not all(math.isfinite(v) for v in row):
            rows.append(None)
            continue
        norm = max(math.hypot(*row), 1e-12)
        unit = [float(np.float32(v / norm)) for v in row]
        rows.append(unit if any(unit) else None)
    return rows


def similarities(desc0, desc1):
    """Cosine of every pair that takes part, as {(i, j): float32 number}."""
    rows0, rows1 = unit_rows(desc0), unit_rows(desc1)
    return {
        (i, j): float(np.float32(math.fsum(u * v for u, v in zip(a, b, strict=True))))
        for i, a in enumerate(rows0)
        if a is not None
        for j, b in enumerate(rows1)
        if b is not None
    }


def hamming_similarities(desc0, desc1):
    """One minus twice the share of bits that differ, of every pair of rows of packed bits."""
    bits = 8 * np.shape(desc0)[1]
    return {
        (i, j): float(
            np.float32(1 - 2 * sum((p ^ q).bit_count() for p, q in zip(a, b, strict=True)) / bits)
        )
        for i, a in enumerate(np.asarray(desc0).tolist())
        for j, b in enumerate(np.asarray(desc1).tolist())
    }


def ranks(similarity):
    """Row rank and column rank of every pair: two dictionaries."""
    by_row, by_column = {}, {}
    for i, j in similarity:
        by_row.setdefault(i, []).append(j)
        by_column.setdefault(j, []).append(i)
    row_rank, column_rank = {}, {}
    for i, others in by_row.items():
        for place, j in enumerate(sorted(others, key=lambda j: (-similarity[i, j], j)), 1):
            row_rank[i, j] = place
    for j, others in by_column.items():
        for place, i in enumerate(sorted(others, key=lambda i: (-similarity[i, j], i)), 1):
            column_rank[i, j] = place
    return row_rank, column_rank


def first_k(similarity, operator):
    """Rank of every pair: the first K at which the operator keeps it."""
    row_rank, column_rank = ranks(similarity)
    choose = {"mutual": max, "union": min, "oneway": lambda row, _: row}[operator]
    return {pair: choose(row_rank[pair], column_rank[pair]) for pair in similarity}


def associate(desc0, desc1, k, operator="mutual", max_edges=None, similarity_of=similarities):
    """Edges [(i, j)], similarities and ranks in the order (rank, -similarity, i, j)."""
    similarity = similarity_of(desc0, desc1)
    rank = first_k(similarity, operator)
    kept = [pair for pair in similarity if rank[pair] <= k]
    kept.sort(key=lambda pair: (rank[pair], -similarity[pair], pair))
    kept = kept[:max_edges]
    return kept, [similarity[pair] for pair in kept], [rank[pair] for pair in kept]


def associate_by_sorting(desc0, desc1, k, operator, owners0=None, owners1=None):
    """Sort every row and column of the whole matrix, in NumPy, for sizes the twin is too slow for.

    Similarities come from a float64 product, so that the inputs must be free of pairs whose
    similarity differs by a rounding only. With owners, keypoints have the best similarity of their
    rows.
    """
    units = [unit_rows(x) for x in (desc0, desc1)]
    width = np.shape(desc0)[1]
    filled = [np.array([row or [0.0] * width for row in rows]) for rows in units]
    takes_part = [np.array([row is not None for row in rows]) for rows in units]
    similarity = (filled[0] @ filled[1].T).astype(np.float32) + np.float32(0)
    similarity[~(takes_part[0][:, None] & takes_part[1])] = -np.inf
    if owners0 is not None:
        of_rows = similarity
        similarity = np.full((max(owners0) + 1, max(owners1) + 1), -np.inf, dtype=np.float32)
        np.maximum.at(similarity, (owners0[:, None], owners1[None]), of_rows)
    row_rank, column_rank = _places(similarity), _places(similarity.T).T
    choose = {"mutual": np.maximum, "union": np.minimum, "oneway": lambda row, _: row}[operator]
    rank = choose(row_rank, column_rank)
    i, j = np.nonzero((rank <= k) & np.isfinite(similarity))
    value, rank = similarity[i, j], rank[i, j]
    order = np.lexsort((j, i, -value, rank))
    return np.stack([i, j], axis=1)[order], value[order], rank[order]


def _places(similarity):
    """Position, from 1, of every entry in its row; the smaller index first among equals."""
    place = np.empty(similarity.shape, dtype=np.int64)
    order = np.argsort(-similarity, axis=1, kind="stable")
    np.put_along_axis(place, order, np.arange(1, similarity.shape[1] + 1)[None], axis=1)
    return place
