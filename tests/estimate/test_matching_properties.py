"""Maximum matchings against SciPy and against brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manymatch import _core
from tests.oracles.matching import all_matchings, is_matching, minimum_cost_maximum_matching
from tests.oracles.problems import random_graph, unique_edges
from tests.oracles.scores import cardinality


def assert_maximum(edges, n0, n1):
    """The compiled matching is a matching of the right size, in ascending order of edges."""
    chosen = _core.max_matching(edges, None)
    assert is_matching(edges[chosen])
    assert np.all(np.diff(chosen) > 0)
    assert len(chosen) == cardinality(edges, n0, n1)
    assert _core.cardinality(edges, np.ones(len(edges), dtype=bool)) == len(chosen)


@pytest.mark.parametrize("block", range(10))
def test_cardinality_equals_scipy_on_random_subgraphs(block):
    rng = np.random.default_rng([block, 1])
    for _ in range(1200):
        n0, n1 = rng.integers(1, 60, size=2)
        edges = random_graph(rng, int(n0), int(n1), int(rng.integers(1, 7)))
        used = rng.random(len(edges)) < rng.uniform(0.1, 1.0)
        assert _core.cardinality(edges, used) == cardinality(edges[used], int(n0), int(n1))
        assert_maximum(np.ascontiguousarray(edges[used]), int(n0), int(n1))


def zigzag(length):
    """A path on which taking the first free candidate blocks the last vertex completely.

    Left vertex i < length - 1 sees right i, then i + 1; the last one sees right 0 only. The one
    augmenting path then runs through every vertex.
    """
    edges = [(i, j) for i in range(length - 1) for j in (i, i + 1)]
    return np.array([*edges, (length - 1, 0)], dtype=np.int32)


@pytest.mark.parametrize("length", [2, 3, 10, 63, 64, 65, 500])
def test_one_long_augmenting_path(length):
    edges = zigzag(length)
    assert len(_core.max_matching(edges, None)) == length
    rng = np.random.default_rng(length)
    for _ in range(5):
        relabel0, relabel1 = rng.permutation(length), rng.permutation(length)
        shuffled = np.column_stack([relabel0[edges[:, 0]], relabel1[edges[:, 1]]]).astype(np.int32)
        assert_maximum(np.ascontiguousarray(shuffled[rng.permutation(len(edges))]), length, length)


def test_a_path_of_two_hundred_thousand_vertices_needs_no_deep_stack():
    edges = zigzag(100_000)
    assert _core.cardinality(edges, np.ones(len(edges), dtype=bool)) == 100_000
    assert len(_core.max_matching(edges, None)) == 100_000


def test_many_paths_that_compete():
    rng = np.random.default_rng(3)
    for _ in range(300):
        parts, offset = [], 0
        for _ in range(int(rng.integers(2, 6))):
            length = int(rng.integers(2, 15))
            parts.append(zigzag(length) + offset)
            offset += length
        bridges = rng.integers(0, offset, size=(int(rng.integers(0, 8)), 2))
        edges = unique_edges(np.concatenate([*parts, bridges]))
        edges = np.ascontiguousarray(edges[rng.permutation(len(edges))])
        assert_maximum(edges, offset, offset)


@pytest.mark.parametrize(("left", "right"), [(5, 4), (4, 5), (1, 30), (30, 1), (12, 12)])
def test_complete_graphs(left, right):
    edges = np.array([(i, j) for i in range(left) for j in range(right)], dtype=np.int32)
    assert len(_core.max_matching(edges, None)) == min(left, right)


def test_no_edges():
    none = np.zeros((0, 2), dtype=np.int32)
    assert len(_core.max_matching(none, None)) == 0
    assert len(_core.max_matching(none, np.zeros(0))) == 0


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_small_graphs_by_enumeration(edges):
    edges = unique_edges(edges)
    largest = max(len(m) for m in all_matchings(edges))
    chosen = _core.max_matching(edges, None)
    assert len(chosen) == largest
    assert is_matching(edges[chosen])


@pytest.mark.parametrize("block", range(4))
def test_least_cost_among_the_maximum_ones(block):
    rng = np.random.default_rng([block, 2])
    for _ in range(400):
        n0, n1 = rng.integers(1, 25, size=2)
        edges = random_graph(rng, int(n0), int(n1), int(rng.integers(1, 7)))
        cost = rng.random(len(edges))
        if rng.random() < 0.3:
            cost = np.round(cost, 1)
        chosen = _core.max_matching(edges, cost)
        assert is_matching(edges[chosen])
        assert np.all(np.diff(chosen) > 0)
        size, least = minimum_cost_maximum_matching(edges, cost, int(n0), int(n1))
        assert len(chosen) == size
        assert cost[chosen].sum() == pytest.approx(least, rel=1e-9, abs=1e-12)


def test_costs_of_the_size_of_squared_residuals():
    rng = np.random.default_rng(5)
    for _ in range(200):
        edges = random_graph(rng, 15, 15, 5)
        cost = 1e-6 * rng.random(len(edges))
        chosen = _core.max_matching(edges, cost)
        size, least = minimum_cost_maximum_matching(edges, cost * 1e6, 15, 15)
        assert len(chosen) == size
        assert 1e6 * cost[chosen].sum() == pytest.approx(least, rel=1e-9, abs=1e-12)


def test_cost_never_reduces_the_cardinality():
    # The cheap middle edge blocks both outer ones; a maximum matching must still take those.
    edges = np.array([(0, 0), (1, 0), (1, 1)], dtype=np.int32)
    chosen = _core.max_matching(edges, np.array([100.0, 0.0, 100.0]))
    np.testing.assert_array_equal(chosen, [0, 2])
