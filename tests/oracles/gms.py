"""The many-to-many GMS filter step by step, without any economy: every setting from the start."""

import math
from itertools import product

import numpy as np

SCALES = (1.0, 1.0 / 2.0, 1.0 / math.sqrt(2.0), math.sqrt(2.0), 2.0)
PLACEMENTS = ((0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (0.5, 0.5))
# The neighbours of a cell as (dx, dy), once around, starting at the top left.
RING = ((-1, -1), (0, -1), (1, -1), (1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0))


def gms(
    points0,
    points1,
    edges,
    size0,
    size1,
    threshold=4.0,
    grid=20,
    scales=True,
    rotations=True,
    crop=True,
    integer_mean=True,
):
    """Mask (E,), scale and number of rotation steps; None and None when nothing is kept."""
    edges = np.asarray(edges).reshape(-1, 2)
    best, won = np.zeros(len(edges), dtype=bool), (None, None)
    if len(edges) == 0:
        return best, *won
    ends0, ends1 = points0[edges[:, 0]], points1[edges[:, 1]]
    x0, x1 = relative_positions(ends0, ends1, size0, size1, grid, crop)
    for scale, rotation in product(SCALES if scales else (1.0,), range(8 if rotations else 1)):
        mask = np.zeros(len(edges), dtype=bool)
        for shift in PLACEMENTS:
            mask |= one_setting(
                edges, x0, x1, grid, scale, rotation, shift, threshold, integer_mean
            )
        if mask.sum() > best.sum():
            best, won = mask, (scale, rotation)
    return best, *won


def relative_positions(ends0, ends1, size0, size1, grid, crop):
    """Positions in [0, 1) of the ends of every edge (E, 2) in its image, in single precision."""
    if crop:
        spans = [np.ptp(ends, axis=0) for ends in (ends0, ends1)]
        margin = math.ceil(max(float(s) for span in spans for s in span) / (2 * (grid - 1)))
        boxes = [
            (ends.min(axis=0) - margin, np.floor(span + 2 * margin) + 1)
            for ends, span in zip((ends0, ends1), spans, strict=True)
        ]
    else:
        boxes = [enlarged(ends0, size0), enlarged(ends1, size1)]
    return [
        (ends - origin).astype(np.float32) / size.astype(np.float32)
        for ends, (origin, size) in zip((ends0, ends1), boxes, strict=True)
    ]


def enlarged(ends, size):
    """Origin and size of the image, moved out by whole pixels until every point is inside."""
    origin = np.minimum(0.0, np.floor(ends.min(axis=0)))
    size = np.asarray(size, dtype=float) - origin
    last = np.floor((ends - origin).astype(np.float32).max(axis=0).astype(float))
    return origin, np.maximum(size, last + 1)


def one_setting(edges, x0, x1, grid, scale, rotation, shift, threshold, integer_mean):
    """Mask (E,) of one scale, rotation and placement of the left grid."""
    side = int(grid * scale)
    cells0 = [left_cell(x, grid, shift) for x in x0]
    cells1 = [tuple(int(v) for v in np.floor(x * np.float32(side))) for x in x1]
    inside = {}
    for e, (a, b) in enumerate(zip(cells0, cells1, strict=True)):
        if a is not None:
            inside.setdefault(a, {}).setdefault(b, []).append(e)
    m = {(a, b): cardinality(edges[es]) for a, row in inside.items() for b, es in row.items()}
    n = {a: len({edges[e, 0] for es in row.values() for e in es}) for a, row in inside.items()}
    mask = np.zeros(len(edges), dtype=bool)
    for a, row in inside.items():
        # Row-major cell indices: the lowest one of the cells with the largest support.
        b = min(row, key=lambda b: (-m[a, b], b[1], b[0]))
        score, total, pairs = m[a, b], n[a], 1
        for u, (dx, dy) in enumerate(RING):
            ex, ey = RING[(u - rotation) % 8]
            left, right = (a[0] + dx, a[1] + dy), (b[0] + ex, b[1] + ey)
            if all(0 <= v < grid for v in left) and all(0 <= v < side for v in right):
                score += m.get((left, right), 0)
                total += n.get(left, 0)
                pairs += 1
        mean = total // pairs if integer_mean else total / pairs
        if score >= threshold * math.sqrt(mean):
            mask[row[b]] = True
    return mask


def left_cell(x, grid, shift):
    """Cell (column, row) of a point in the left grid, or None where it is skipped."""
    cell = []
    for value, offset in zip(x, shift, strict=True):
        index = math.floor(float(value * np.float32(grid)) + offset)
        if index >= grid or (offset > 0 and index < 1):
            return None
        cell.append(index)
    return tuple(cell)


def cardinality(edges):
    """Size of a maximum matching of the edges (E, 2), one augmenting path after the other."""
    candidates = {}
    for i, j in edges.tolist():
        candidates.setdefault(i, []).append(j)
    owner = {}

    def augment(i, seen):
        for j in candidates[i]:
            if j not in seen:
                seen.add(j)
                if j not in owner or augment(owner[j], seen):
                    owner[j] = i
                    return True
        return False

    return sum(augment(i, set()) for i in candidates)
