"""Matchings of small bipartite graphs by brute force, and minimum-cost ones by SciPy."""

import numpy as np
from scipy.optimize import linear_sum_assignment


def is_matching(edges):
    """Whether no vertex occurs twice."""
    edges = np.asarray(edges).reshape(-1, 2)
    return len(set(edges[:, 0])) == len(edges) == len(set(edges[:, 1]))


def all_matchings(edges):
    """Every matching of the graph, the empty one included, as tuples of edge indices."""
    edges = [tuple(edge) for edge in edges]

    def extend(start, used0, used1):
        yield ()
        for e in range(start, len(edges)):
            i, j = edges[e]
            if i not in used0 and j not in used1:
                for rest in extend(e + 1, used0 | {i}, used1 | {j}):
                    yield (e, *rest)

    return list(extend(0, frozenset(), frozenset()))


def minimum_cost_maximum_matching(edges, cost, n0, n1):
    """Cardinality and least total cost among the maximum matchings.

    A rectangular assignment in which a missing edge costs more than all edges together, so that the
    assignment first uses as many real edges as possible.
    """
    edges, cost = np.asarray(edges), np.asarray(cost, dtype=float)
    if len(edges) == 0:
        return 0, 0.0
    missing = 1.0 + 2.0 * float(np.abs(cost).sum())
    table = np.full((n0, n1), missing)
    present = np.zeros((n0, n1), dtype=bool)
    table[edges[:, 0], edges[:, 1]] = cost
    present[edges[:, 0], edges[:, 1]] = True
    rows, columns = linear_sum_assignment(table)
    real = present[rows, columns]
    return int(real.sum()), float(table[rows[real], columns[real]].sum())
