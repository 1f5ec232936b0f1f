"""The exact law of the constrained sampler on small graphs, and the adaptive iteration bound."""

import math
from collections import defaultdict
from fractions import Fraction
from functools import cache

from tests.oracles.matching import is_matching

SAMPLE_SIZE = 5
NEGLIGIBLE = 1e-7


def constrained_law(edges, size):
    """Probability of every edge set of the given size, and of an attempt to succeed at all.

    One attempt: left vertices in random order, at each a uniform cyclic start in its edge list and
    the first edge whose right vertex is free. A failed attempt is repeated, hence the law is that
    of one attempt given success.

    Returns
    -------
    law : dict from frozenset of edge indices to float
    success : float
    """
    incident = defaultdict(list)
    for e, (i, _) in enumerate(edges):
        incident[int(i)].append(e)
    right = [int(j) for _, j in edges]

    @cache
    def attempt(remaining, chosen):
        if len(chosen) == size:
            return {chosen: 1.0}
        outcomes = defaultdict(float)
        used = {right[e] for e in chosen}
        for i in remaining:
            for start in range(len(incident[i])):
                order = incident[i][start:] + incident[i][:start]
                free = [e for e in order if right[e] not in used]
                then = chosen | {free[0]} if free else chosen
                weight = 1.0 / (len(remaining) * len(order))
                for outcome, probability in attempt(remaining - {i}, then).items():
                    outcomes[outcome] += weight * probability
        return dict(outcomes)

    law = attempt(frozenset(incident), frozenset())
    assert all(is_matching([edges[e] for e in outcome]) for outcome in law)
    total = sum(law.values())
    return {outcome: probability / total for outcome, probability in law.items()}, total


def all_inlier_probability(num_inliers, num_edges):
    """Probability that five distinct edges are all inliers, as a fraction."""
    if num_inliers < SAMPLE_SIZE:
        return Fraction(0)
    p = Fraction(1)
    for u in range(SAMPLE_SIZE):
        p *= Fraction(num_inliers - u, num_edges - u)
    return p


def iteration_bound(num_inliers, num_edges, min_iterations, max_iterations, confidence, safety):
    """Iterations after which the search may stop."""
    p = float(all_inlier_probability(num_inliers, num_edges))
    if p >= 1.0 - NEGLIGIBLE:
        return min_iterations
    if p <= NEGLIGIBLE:
        return max_iterations
    needed = math.ceil(safety * math.log(1.0 - confidence) / math.log1p(-p))
    return min(max(needed, min_iterations), max_iterations)
