"""Comparing curves of recall against number of edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from manymatch._validate import FloatArray, float_array, integer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeVar

    from numpy.typing import ArrayLike

    Key = TypeVar("Key")

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


def frontier_regret(
    curves: Mapping[Key, tuple[ArrayLike, ArrayLike]],
) -> dict[Key, FloatArray]:
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
