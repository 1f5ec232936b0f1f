"""The paper's likelihood of a hypothesis on a small graph, by enumeration of all configurations.

For graphs of a dozen edges only: a configuration is a matching, and there are exponentially many.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from manymatch import _core

if TYPE_CHECKING:
    from collections.abc import Sequence


def matchings(edges: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Return all 1-to-1 subsets of the edges, the empty one included, as edge numbers.

    Ordered by size, then by the numbers.
    """
    found: list[tuple[int, ...]] = [()]
    for e, (i, j) in enumerate(edges):
        found += [
            (*chosen, e)
            for chosen in found
            if all(edges[other][0] != i and edges[other][1] != j for other in chosen)
        ]
    return sorted(found, key=lambda chosen: (len(chosen), chosen))


def log_conditional(
    matching: Sequence[int], inlier: Sequence[bool], eps: float, delta: float
) -> float:
    """Log-likelihood of a hypothesis if exactly these edges are real; -inf with an outlier.

    A real edge has a residual from U(0, eps), any other one from U(0, eps / delta).
    """
    if not all(inlier[e] for e in matching):
        return -math.inf
    return -len(inlier) * math.log(eps / delta) + len(matching) * math.log(1.0 / delta)


@dataclasses.dataclass(frozen=True)
class Likelihood:
    """Exact likelihood of a hypothesis and what approximates it.

    Attributes
    ----------
    exact : float
        Log-likelihood with a uniform prior over all matchings.
    dominant : float
        Log of the terms of largest cardinality alone, the constant included.
    cardinality, multiplicity : int
        Size m* of a maximum matching of the inliers, and how many of them there are, N*.
    num_inliers : int
        Inlier edges: the score of plain consensus.
    hcm : float
        The harmonic score.
    """

    exact: float
    dominant: float
    cardinality: int
    multiplicity: int
    num_inliers: int
    hcm: float


def likelihood(
    edges: Sequence[tuple[int, int]],
    inlier: Sequence[bool],
    eps: float,
    delta: float,
    q: float,
) -> Likelihood:
    """Compute everything about one hypothesis.

    Parameters
    ----------
    edges : sequence of (int, int)
        Candidates, vertices counted from 0 on each side.
    inlier : sequence of bool
        Which of them are inliers under the hypothesis.
    eps : float
        Inlier threshold, in any unit of the residual.
    delta, q : float
        The model's parameters: chance that a false edge is an inlier, and probability that a
        vertex's real match is among its candidates.
    """
    every = matchings(edges)
    terms = [log_conditional(m, inlier, eps, delta) for m in every]
    prior = -math.log(len(every))
    largest = max(len(m) for m, term in zip(every, terms, strict=True) if term > -math.inf)
    count = sum(
        len(m) == largest and term > -math.inf for m, term in zip(every, terms, strict=True)
    )
    top = max(terms)
    exact = prior + top + math.log(math.fsum(math.exp(term - top) for term in terms))
    constant = prior - len(edges) * math.log(eps / delta)
    dominant = constant + math.log(count) + largest * math.log(1.0 / delta)
    array = np.array(edges, dtype=np.int32).reshape(-1, 2)
    used = np.array(inlier, dtype=np.bool_)
    return Likelihood(
        exact=exact,
        dominant=dominant,
        cardinality=_core.cardinality(array, used),
        multiplicity=count,
        num_inliers=int(used.sum()),
        hcm=_hcm(array, used, q, delta),
    )


def _hcm(edges: np.ndarray, inlier: np.ndarray, q: float, delta: float) -> float:
    """Sum of log(1 + a_v sum of p over inliers at v) over the vertices v of both sides."""
    if not len(edges):
        return 0.0
    n0, n1 = (int(n) + 1 for n in edges.max(axis=0))
    p, *odds = _core.priors(edges, n0, n1, q, delta)
    kept = np.where(inlier, p, 0.0)
    return float(
        sum(
            np.log1p(a * np.bincount(edges[:, side], weights=kept, minlength=len(a))).sum()
            for side, a in enumerate(odds)
        )
    )
