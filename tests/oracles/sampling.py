"""The exact law of the constrained sampler on graphs small enough to enumerate."""

from collections import defaultdict
from functools import cache

from tests.oracles.matching import is_matching


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
