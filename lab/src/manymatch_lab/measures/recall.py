"""Correspondence recall: how many patches that have a true partner keep an edge to one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree

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

Key = TypeVar("Key")

#: Distances in space, in centimetres, below which two patches show the same place.
TAUS_CM = (1.0, 2.0, 5.0)


@dataclasses.dataclass(frozen=True, eq=False)
class PatchTruth:
    """Where the patches of two images are in space, and which of them have a partner."""

    points0: FloatArray  # (N, 3) centres in a frame that both share, in metres; NaN if not valid
    points1: FloatArray
    taus_cm: tuple[float, ...]  # thresholds
    #: (N,) distance in metres to the nearest valid patch of the other image, infinity where none is
    #: within the largest threshold.
    nearest0: FloatArray
    nearest1: FloatArray

    @classmethod
    def of(
        cls, points0: ArrayLike, points1: ArrayLike, taus_cm: Sequence[float] = TAUS_CM
    ) -> PatchTruth:
        """Find the partners of (N, 3) patch centres in metres; a row with NaN is not valid."""
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
    """Recall against number of edges, for K = 1, 2, ..."""

    edges: FloatArray  # (K,)
    recall: FloatArray  # (T, K) in [0, 1], a row a threshold; NaN where nothing is eligible

    @property
    def mean(self) -> FloatArray:
        """Recall averaged over the thresholds, (K,)."""
        return np.asarray(self.recall.mean(axis=0))


def graph_recall(truth: PatchTruth, edges: ArrayLike, rank: ArrayLike, k: int) -> RecallCurve:
    """Recall of the nested graphs of one pair, for K = 1 to k.

    The edges (E, 2) join patches of image 0 and 1; the rank (E,) of an edge is the first K at which
    it is there. The recall of a pair is the mean over its two images, the recall of an image the
    share of its eligible patches that have a correct edge.
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
    each a graph of its own, and their counts and recalls are averaged. The operators are those of
    `manymatch.associate`.
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

    Of a pair without eligible patches at a threshold only the edges count there.
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
    """Distance of every point (N, 3) to the nearest one of the other set; infinity beyond a radius.

    A row with NaN has no neighbour and is nobody's neighbour.
    """
    valid = [np.flatnonzero(np.isfinite(points).all(axis=1)) for points in (points0, points1)]
    inner = points0[valid[0]], points1[valid[1]]
    nearest = np.full(len(points0), np.inf), np.full(len(points1), np.inf)
    if not (len(inner[0]) and len(inner[1])):
        return nearest
    for side in (0, 1):
        tree = cKDTree(inner[1 - side])
        # Search a little further: our own distance, which also judges the edges, decides.
        found = tree.query(inner[side], distance_upper_bound=radius * (1.0 + 1e-9))[1]
        near = np.flatnonzero(found < len(inner[1 - side]))
        distance = _distance(inner[side][near], inner[1 - side][found[near]])
        nearest[side][valid[side][near]] = np.where(distance < radius, distance, np.inf)
    return nearest


def _distance(a: FloatArray, b: FloatArray) -> FloatArray:
    """Distances between rows, the same to the last bit whichever comes first."""
    square = np.square(a - b)
    return np.asarray(np.sqrt(square[:, 0] + square[:, 1] + square[:, 2]))


#: Budgets at which two curves are compared.
NUM_BUDGETS = 201


def frontier(edges: ArrayLike, recall: ArrayLike, budgets: ArrayLike) -> FloatArray:
    """Highest recall (M,) of any point (N,) whose edges are within a budget (M,).

    NaN below the smallest point.
    """
    x, y = _curve(edges, recall)
    wanted = float_array(budgets, "budgets", "numbers of edges", (None,))
    order = np.argsort(x, kind="stable")
    best = np.maximum.accumulate(y[order])
    last = np.searchsorted(x[order], wanted, "right") - 1
    return np.where(last >= 0, best[np.maximum(last, 0)], np.nan)


def frontier_regret(curves: Mapping[Key, tuple[ArrayLike, ArrayLike]]) -> dict[Key, FloatArray]:
    """How far the points (edges, recall) of each curve are below the frontier of all of them.

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

    Both are (edges, recall) with edges that never fall, and are interpolated linearly at budgets
    spaced uniformly over the range that they share. Returns the mean of the absolute difference of
    recall, and of `other` minus `curve`; NaN where the ranges have nothing in common.
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
