"""Correspondence recall: how many patches that have a true partner keep an edge to one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from manymatch.associate.neighbours import associate
from manymatch_lab.checks import (
    BoolArray,
    FloatArray,
    IndexArray,
    float_array,
    int_array,
    integer,
    real,
)

if TYPE_CHECKING:
    Key = TypeVar("Key")

#: Distances in space, in centimetres, below which two patches show the same place.
TAUS_CM = (1.0, 2.0, 5.0)

# Pairs of points that are compared at once: some 30 MB.
_CHUNK = 2**19
# Cells along an axis at most, so that three indices fit a 64-bit key.
_MOST_CELLS = 10**6


@dataclasses.dataclass(frozen=True, eq=False)
class PatchTruth:
    """Where the patches of two images are in space, and which of them have a partner.

    Attributes
    ----------
    points0, points1 : (N0, 3) and (N1, 3) float64 ndarray
        Centres in a frame that both share, in metres; NaN where a patch is not valid.
    taus_cm : tuple of float
        Thresholds in centimetres.
    nearest0, nearest1 : (N0,) and (N1,) float64 ndarray
        Distance in metres to the nearest valid patch of the other image, infinity where none is
        within the largest threshold.
    """

    points0: FloatArray
    points1: FloatArray
    taus_cm: tuple[float, ...]
    nearest0: FloatArray
    nearest1: FloatArray

    @classmethod
    def of(
        cls, points0: ArrayLike, points1: ArrayLike, taus_cm: Sequence[float] = TAUS_CM
    ) -> PatchTruth:
        """Find the partners.

        Parameters
        ----------
        points0, points1 : (N, 3) array_like
            Patch centres in metres, in one frame; a row with NaN is not valid.
        taus_cm : sequence of float
            Thresholds in centimetres.
        """
        want = "an (N, 3) array of metres"
        places = [
            float_array(points, name, want, (None, 3), finite=False)
            for name, points in (("points0", points0), ("points1", points1))
        ]
        taus = tuple(real(tau, "taus_cm", 0.0) for tau in taus_cm)
        if not taus:
            raise ValueError("taus_cm must hold at least one threshold, got none")
        nearest = nearest_within(places[0], places[1], max(taus) / 100.0)
        return cls(places[0], places[1], taus, *nearest)

    @property
    def taus_m(self) -> FloatArray:
        """Thresholds in metres."""
        return np.array(self.taus_cm) / 100.0

    def eligible(self, side: int) -> BoolArray:
        """Mask (T, N) of the patches of image 0 or 1 that have a partner, a row a threshold."""
        nearest = self.nearest1 if side else self.nearest0
        return np.asarray(nearest[None, :] < self.taus_m[:, None])

    def distances(self, edges: IndexArray) -> FloatArray:
        """Distance in metres between the ends of (E, 2) edges; NaN where one is not valid."""
        return _distance(self.points0[edges[:, 0]], self.points1[edges[:, 1]])

    def swapped(self) -> PatchTruth:
        """Exchange the images."""
        return PatchTruth(self.points1, self.points0, self.taus_cm, self.nearest1, self.nearest0)


@dataclasses.dataclass(frozen=True, eq=False)
class RecallCurve:
    """Recall against number of edges, for K = 1, 2, ...

    Attributes
    ----------
    edges : (K,) float64 ndarray
        Number of edges.
    recall : (T, K) float64 ndarray
        Recall in [0, 1], a row a threshold; NaN where nothing is eligible.
    """

    edges: FloatArray
    recall: FloatArray

    @property
    def mean(self) -> FloatArray:
        """Recall averaged over the thresholds, (K,)."""
        return np.asarray(self.recall.mean(axis=0))


def graph_recall(truth: PatchTruth, edges: ArrayLike, rank: ArrayLike, k: int) -> RecallCurve:
    """Recall of the nested graphs of one pair.

    Parameters
    ----------
    truth : PatchTruth
        The patches.
    edges : (E, 2) array_like
        Indices of patches of image 0 and 1.
    rank : (E,) array_like
        First K at which an edge is there, from 1.
    k : int
        Largest K.

    Returns
    -------
    RecallCurve
        A pair's recall is the mean of those of its two images; an image's is the share of its
        eligible patches that have a correct edge.
    """
    most = integer(k, "k", 1)
    pairs = int_array(edges, "edges", "an (E, 2) array of indices", (None, 2))
    ranks = int_array(rank, "rank", "one whole number an edge", (len(pairs),))
    counts = (len(truth.points0), len(truth.points1))
    for side in (0, 1):
        if np.any((pairs[:, side] < 0) | (pairs[:, side] >= counts[side])):
            raise ValueError(
                f"edges must hold indices of patches, got one beyond {counts[side] - 1}"
            )
    distance = truth.distances(pairs)
    steps = np.arange(1, most + 1)
    recall = np.empty((2, len(truth.taus_cm), most))
    for side in (0, 1):
        eligible = truth.eligible(side)
        for row, tau in enumerate(truth.taus_m):
            correct = distance < tau
            first = np.full(counts[side], most + 1)
            np.minimum.at(first, pairs[correct, side], ranks[correct])
            found = np.bincount(first[eligible[row]], minlength=most + 2)[1 : most + 1].cumsum()
            total = np.count_nonzero(eligible[row])
            recall[side, row] = found / total if total else np.nan
    sizes = (ranks[:, None] <= steps).sum(axis=0).astype(np.float64)
    return RecallCurve(sizes, recall.mean(axis=0))


def descriptor_recall(
    truth: PatchTruth, desc0: ArrayLike, desc1: ArrayLike, k: int, operator: str = "mutual"
) -> RecallCurve:
    """Recall of the graphs that an operator makes of descriptors, K = 1 to k, without a cap.

    The search covers all patches, valid or not. One-way association is made in both directions,
    each a graph of its own, and their counts and recalls are averaged.

    Parameters
    ----------
    truth : PatchTruth
        The patches.
    desc0, desc1 : (N, D) array_like
        Their descriptors.
    k : int
        Largest K.
    operator : {"mutual", "oneway", "union"}
        As `manymatch.associate` has them.
    """
    edges, _, rank = associate(desc0, desc1, k, operator)
    there = graph_recall(truth, edges, rank, k)
    if operator != "oneway":
        return there
    edges, _, rank = associate(desc1, desc0, k, operator)
    back = graph_recall(truth.swapped(), edges, rank, k)
    return RecallCurve((there.edges + back.edges) / 2, (there.recall + back.recall) / 2)


def macro_mean(curves: Sequence[RecallCurve], objects: Sequence[str]) -> RecallCurve:
    """Average over the pairs of each object, then over objects, all of them weighing the same.

    Parameters
    ----------
    curves : sequence of RecallCurve
        One a pair; those without eligible patches at a threshold count there for nothing but
        their edges.
    objects : sequence of str
        What each pair shows.
    """
    if not curves or len(curves) != len(objects):
        raise ValueError(
            f"curves must hold one or more with an object each, got {len(curves)} curves and "
            f"{len(objects)} objects"
        )
    groups: dict[str, list[RecallCurve]] = {}
    for curve, name in zip(curves, objects, strict=True):
        groups.setdefault(name, []).append(curve)
    edges = [np.mean([curve.edges for curve in group], axis=0) for group in groups.values()]
    recalls = [known_mean([curve.recall for curve in group]) for group in groups.values()]
    return RecallCurve(np.mean(edges, axis=0), known_mean(recalls))


def known_mean(arrays: Sequence[FloatArray]) -> FloatArray:
    """Mean over arrays of one shape, entry by entry, of what is not NaN; NaN where nothing is."""
    stack = np.stack(arrays)
    known = ~np.isnan(stack)
    count = known.sum(axis=0)
    total = np.where(known, stack, 0.0).sum(axis=0)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def nearest_within(
    points0: FloatArray, points1: FloatArray, radius: float
) -> tuple[FloatArray, FloatArray]:
    """Distance of every point to the nearest one of the other set, if that is below a radius.

    Points are sorted into cubes of that size, so that only neighbouring cubes are compared.

    Parameters
    ----------
    points0, points1 : (N, 3) float64 ndarray
        A row with NaN has no neighbour and is none.
    radius : float
        Above zero, in the points' unit.

    Returns
    -------
    two (N,) float64 ndarrays
        Infinity where there is none.
    """
    nearest = np.full(len(points0), np.inf), np.full(len(points1), np.inf)
    valid = [np.flatnonzero(np.isfinite(points).all(axis=1)) for points in (points0, points1)]
    if not (len(valid[0]) and len(valid[1])):
        return nearest
    inner0, inner1 = points0[valid[0]], points1[valid[1]]
    low = np.minimum(inner0.min(axis=0), inner1.min(axis=0))
    extent = float((np.maximum(inner0.max(axis=0), inner1.max(axis=0)) - low).max())
    # A little more than the radius, as the division rounds.
    size = max(radius * (1.0 + 1e-9), extent / _MOST_CELLS)
    for i, j in _neighbours((inner0 - low) / size, (inner1 - low) / size):
        distance = _distance(inner0[i], inner1[j])
        near = distance < radius
        np.minimum.at(nearest[0], valid[0][i[near]], distance[near])
        np.minimum.at(nearest[1], valid[1][j[near]], distance[near])
    return nearest


def _neighbours(
    scaled0: FloatArray, scaled1: FloatArray
) -> Iterator[tuple[IndexArray, IndexArray]]:
    """Go through all pairs of points in the same or touching unit cubes, some at a time."""
    # One empty layer around, so that the key of a neighbour is never that of another cube.
    cells0, cells1 = (np.floor(points).astype(np.int64) + 1 for points in (scaled0, scaled1))
    shape = np.maximum(cells0.max(axis=0), cells1.max(axis=0)) + 2
    weights = np.array([shape[1] * shape[2], shape[2], 1])
    keys0, keys1 = cells0 @ weights, cells1 @ weights
    order = np.argsort(keys1, kind="stable")
    keys1 = keys1[order]
    for x in (-1, 0, 1):
        for y in (-1, 0, 1):
            # The three cubes along the last axis are neighbours in the order as well.
            centre = keys0 + x * weights[0] + y * weights[1]
            first = np.searchsorted(keys1, centre - 1, "left")
            counts = np.searchsorted(keys1, centre + 1, "right") - first
            yield from _expanded(first, counts, order)


def _expanded(
    first: IndexArray, counts: IndexArray, order: IndexArray
) -> Iterator[tuple[IndexArray, IndexArray]]:
    """Pair every i with the `counts[i]` entries of `order` from `first[i]` on."""
    ends = counts.cumsum()
    start = 0
    while start < len(counts):
        before = ends[start - 1] if start else 0
        # At least one row, whatever it takes.
        stop = max(start + 1, int(np.searchsorted(ends, before + _CHUNK, "right")))
        part = counts[start:stop]
        i = np.repeat(np.arange(start, stop), part)
        offset = np.arange(len(i)) - np.repeat(ends[start:stop] - part - before, part)
        yield i, order[first[i] + offset]
        start = stop


def _distance(a: FloatArray, b: FloatArray) -> FloatArray:
    """Distances between rows, the same to the last bit whichever comes first."""
    difference = a - b
    square = difference * difference
    return np.asarray(np.sqrt(square[:, 0] + square[:, 1] + square[:, 2]))


#: Budgets at which two curves are compared.
NUM_BUDGETS = 201


def frontier(edges: ArrayLike, recall: ArrayLike, budgets: ArrayLike) -> FloatArray:
    """Highest recall of any point with at most so many edges.

    Parameters
    ----------
    edges, recall : (N,) array_like
        All points that were tested.
    budgets : (M,) array_like
        Numbers of edges.

    Returns
    -------
    (M,) float64 ndarray
        NaN below the smallest point.
    """
    x, y = _curve(edges, recall)
    wanted = float_array(budgets, "budgets", "numbers of edges", (None,))
    order = np.argsort(x, kind="stable")
    best = np.maximum.accumulate(y[order])
    last = np.searchsorted(x[order], wanted, "right") - 1
    return np.where(last >= 0, best[np.maximum(last, 0)], np.nan)


def frontier_regret(curves: Mapping[Key, tuple[ArrayLike, ArrayLike]]) -> dict[Key, FloatArray]:
    """How far the points of each curve are below the frontier of all of them.

    Parameters
    ----------
    curves : mapping to (edges, recall)
        Such as the layers of a network at one rank of debiasing and in one bin, with an entry
        for every K.

    Returns
    -------
    dict to (K,) float64 ndarrays
        At each point's number of edges: the frontier's recall minus its own, 0 or more.
    """
    checked = {key: _curve(*curve) for key, curve in curves.items()}
    if not checked:
        return {}
    edges = np.concatenate([x for x, _ in checked.values()])
    recall = np.concatenate([y for _, y in checked.values()])
    return {key: frontier(edges, recall, x) - y for key, (x, y) in checked.items()}


def interpolated_gap(
    curve: tuple[ArrayLike, ArrayLike],
    other: tuple[ArrayLike, ArrayLike],
    num_budgets: int = NUM_BUDGETS,
) -> tuple[float, float]:
    """Compare two curves at the same numbers of edges.

    Both are interpolated linearly at budgets spaced uniformly over the range that they share.

    Parameters
    ----------
    curve, other : (edges, recall)
        With edges that never fall.
    num_budgets : int
        How many budgets.

    Returns
    -------
    absolute, signed : float
        Mean of the absolute difference of recall, and of `other` minus `curve`; NaN where the
        ranges have nothing in common.
    """
    count = integer(num_budgets, "num_budgets", 2)
    (x0, y0), (x1, y1) = _rising(*curve), _rising(*other)
    low, high = max(x0[0], x1[0]), min(x0[-1], x1[-1])
    if low > high:
        return float("nan"), float("nan")
    budgets = np.linspace(low, high, count)
    difference = np.interp(budgets, x1, y1) - np.interp(budgets, x0, y0)
    return float(np.abs(difference).mean()), float(difference.mean())


def _curve(edges: ArrayLike, recall: ArrayLike) -> tuple[FloatArray, FloatArray]:
    x = float_array(edges, "edges", "one number a point", (None,))
    if not len(x):
        raise ValueError("edges must hold at least one point, got none")
    return x, float_array(recall, "recall", "one number a point", (len(x),))


def _rising(edges: ArrayLike, recall: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Check a curve, and keep the last of points with the same number of edges."""
    x, y = _curve(edges, recall)
    if (np.diff(x) < 0).any():
        raise ValueError(f"edges must never fall along a curve, got {x.tolist()}")
    last = np.append(np.diff(x) > 0, True)
    return x[last], y[last]
