"""The samplers of the core, and the number of iterations that they need."""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from manymatch import _core
from tests.oracles.problems import random_graph
from tests.oracles.sampling import constrained_law, iteration_bound

SMALLEST_P_VALUE = 1e-3
GRAPHS = {
    "square": [(i, j) for i in range(6) for j in (i, (i + 1) % 6, (i + 3) % 6)],
    "hub": [(i, 0) for i in range(7)] + [(i, i) for i in range(1, 7)] + [(2, 3), (4, 1), (5, 6)],
    "degrees": [
        *((0, 0), (1, 0), (1, 1), (1, 2), (2, 2), (2, 3), (3, 3), (3, 4), (3, 5), (3, 0)),
        *((4, 4), (5, 5), (5, 1)),
    ],
}


def draw(edges, count, seed=0, proposals=None):
    return _core.sample(
        np.asarray(edges, dtype=np.int32), proposals, seed, count, uniform_edges=False
    )


def merged_chi_square(observed, expected):
    """p-value of counts, with rare outcomes merged until each expects at least ten."""
    order = np.argsort(expected)
    observed, expected = np.asarray(observed)[order], np.asarray(expected)[order]
    rare = int(np.searchsorted(np.cumsum(expected), 10.0)) + 1
    observed = np.append(observed[:rare].sum(), observed[rare:])
    expected = np.append(expected[:rare].sum(), expected[rare:])
    return chisquare(observed, expected * observed.sum() / expected.sum()).pvalue


def follows_the_law(edges, seed, proposals=None):
    """Whether samples have the enumerated law, of the graph of the proposals."""
    kept = np.flatnonzero(np.ones(len(edges), bool) if proposals is None else proposals)
    law, success = constrained_law(edges[kept], 5)
    assert success > 0.5
    rows = draw(edges, 100_000, seed, proposals)
    assert np.isin(rows, kept).all()
    counts = Counter(frozenset(row) for row in np.searchsorted(kept, rows).tolist())
    assert set(counts) <= set(law)
    observed, expected = [counts[o] for o in law], [len(rows) * p for p in law.values()]
    return merged_chi_square(observed, expected) > SMALLEST_P_VALUE


@pytest.mark.parametrize("name", GRAPHS)
def test_law_equals_the_enumerated_algorithm(name):
    assert follows_the_law(np.array(GRAPHS[name], dtype=np.int32), 17)


def test_law_with_proposals_is_that_of_the_smaller_graph():
    edges = np.array(GRAPHS["square"] + [(6, 0), (0, 4), (5, 1)], dtype=np.int32)
    assert follows_the_law(edges, 5, ~np.isin(np.arange(len(edges)), [1, 4, 7, 18]))


def test_attempts_are_limited_to_fifty_on_a_small_graph():
    # Left vertex i reaches right 0 to i: one wrong choice anywhere ruins the attempt.
    edges = np.array([(i, j) for i in range(5) for j in range(i + 1)], dtype=np.int32)
    _, success = constrained_law(edges, 5)
    expected = (1.0 - success) ** 50
    assert 0.001 < expected < 0.5
    missing = (draw(edges, 20_000, seed=3) == -1).all(axis=1).mean()
    assert abs(missing - expected) < 5.0 * np.sqrt(expected * (1.0 - expected) / 20_000)


def test_large_seeds_are_all_different():
    edges = random_graph(np.random.default_rng(6), 50, 50, 5)
    first = {
        tuple(draw(edges, 1, seed=s)[0].tolist()) for s in (0, 1, 2**31, 2**32, 2**63, 2**64 - 1)
    }
    assert len(first) == 6


def test_the_only_matching_is_found_among_dead_ends():
    # Right vertices 0..3 are shared by many; only left vertices 0..4 reach right vertex 4 or more.
    edges = np.array([(i, j) for i in range(30) for j in range(4)] + [(0, 4)], dtype=np.int32)
    rows = draw(edges, 200, seed=1)
    drawn = rows[(rows >= 0).all(axis=1)]
    assert len(drawn) > 190
    assert (drawn == len(edges) - 1).any(axis=1).all()


def test_vertex_numbers_may_have_holes():
    rng = np.random.default_rng(8)
    edges = random_graph(rng, 30, 30, 4)
    spread = edges * np.int32(1000) + np.int32(7)
    np.testing.assert_array_equal(draw(spread, 500, seed=4), draw(edges, 500, seed=4))


def test_uniform_edges_draw_five_distinct_edges_equally_often():
    edges = np.array([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 5), (3, 5)], dtype=np.int32)
    rows = _core.sample(edges, None, 21, 60_000, uniform_edges=True)
    assert all(len(set(row)) == 5 for row in rows.tolist())
    counts = Counter(map(frozenset, rows.tolist()))
    assert len(counts) == 21
    assert chisquare(list(counts.values())).pvalue > SMALLEST_P_VALUE


def test_iteration_bounds_equal_the_definition():
    rng = np.random.default_rng(1)
    cases = [
        (inliers, edges, 1_000, 100_000, 0.9999, 3.0)
        for edges in (5, 6, 10, 64, 200, 1024)
        for inliers in range(edges + 1)
    ]
    for _ in range(3000):
        edges, low = int(rng.integers(5, 5000)), int(rng.integers(1, 1000))
        budget = low, low + int(rng.integers(0, 1_000_000))
        chances = float(rng.uniform(0.5, 0.999999)), float(rng.uniform(0.1, 10.0))
        cases.append((int(rng.integers(0, edges + 1)), edges, *budget, *chances))
    for case in cases:
        # The ceiling may round the other way when the quotient is a whole number up to 1e-12.
        assert abs(_core.iteration_bound(*case) - iteration_bound(*case)) <= 1
    # Half of very many edges: p = 2^-5, 3 log(1e-4) / log(1 - p) = 870.3.
    assert _core.iteration_bound(500_000_000, 1_000_000_000, 1, 10**6, 0.9999, 3.0) == 871
    largest = 2**31 - 1  # does not overflow
    assert _core.iteration_bound(5, 10_000, 1, largest, 0.9999, 3.0) == largest
    assert _core.iteration_bound(60, 1024, 1, largest, 0.9999, 1e9) == largest
