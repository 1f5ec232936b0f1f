"""AssociationGraph: what holds for every graph, against plain Python."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from manymatch.graph import AssociationGraph

no_deadline = settings(deadline=None)


@st.composite
def inputs(draw):
    """Draw points, edges with repetitions, similarities and ranks."""
    n0, n1 = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    pairs = st.tuples(st.integers(0, n0 - 1), st.integers(0, n1 - 1))
    edges = draw(st.lists(pairs, max_size=30))
    count = len(edges)
    similarity = draw(st.lists(st.floats(-1, 1, width=32), min_size=count, max_size=count))
    rank = draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    return rng.normal(size=(n0, 2)), rng.normal(size=(n1, 2)), edges, similarity, rank


def first_ones(edges):
    return [i for i, edge in enumerate(edges) if edge not in edges[:i]]


@no_deadline
@given(inputs())
def test_duplicates(case):
    points0, points1, edges, similarity, rank = case
    graph = AssociationGraph(points0, points1, edges, similarity, rank)
    kept = first_ones(edges)
    assert [tuple(e) for e in graph.edges.tolist()] == [edges[i] for i in kept]
    assert graph.similarity.tolist() == [similarity[i] for i in kept]
    assert graph.rank.tolist() == [rank[i] for i in kept]
    assert graph.num_duplicates == len(edges) - len(kept)


@no_deadline
@given(inputs())
def test_degrees(case):
    graph = AssociationGraph(*case)
    for side, degree in enumerate(graph.degrees()):
        ends = graph.edges[:, side].tolist()
        assert degree.tolist() == [ends.count(i) for i in range(len(degree))]


@no_deadline
@given(inputs(), st.data())
def test_filter_equals_the_graph_of_the_kept_edges(case, data):
    graph = AssociationGraph(*case)
    mask = data.draw(st.lists(st.booleans(), min_size=len(graph), max_size=len(graph)))
    kept = [i for i, keep in enumerate(mask) if keep]
    part = graph.filter(mask)
    assert part == AssociationGraph(
        case[0], case[1], graph.edges[kept], graph.similarity[kept], graph.rank[kept]
    )


@no_deadline
@given(inputs(), st.integers(0, 40))
def test_head_is_a_filter(case, n):
    graph = AssociationGraph(*case)
    assert graph.head(n) == graph.filter(np.arange(len(graph)) < n)


@no_deadline
@given(inputs(), st.integers(1, 5))
def test_graphs_are_nested_by_rank(case, k):
    graph = AssociationGraph(*case)
    smaller, larger = graph.up_to_rank(k), graph.up_to_rank(k + 1)
    assert larger.up_to_rank(k) == smaller
    assert all(r <= k for r in smaller.rank)
    assert len(larger) - len(smaller) == graph.rank.tolist().count(k + 1)


@no_deadline
@given(inputs())
def test_compact_maps_back(case):
    graph = AssociationGraph(*case)
    small, index0, index1 = graph.compact()
    np.testing.assert_array_equal(small.points0, graph.points0[index0])
    np.testing.assert_array_equal(small.points1, graph.points1[index1])
    back = np.stack([index0[small.edges[:, 0]], index1[small.edges[:, 1]]], axis=1)
    np.testing.assert_array_equal(back, graph.edges)
    assert all((degree > 0).all() for degree in small.degrees())
    assert small.compact()[0] == small


@no_deadline
@given(inputs())
def test_save_and_load(tmp_path_factory, case):
    graph = AssociationGraph(*case)
    path = tmp_path_factory.mktemp("graph") / "graph.npz"
    graph.save(path)
    assert AssociationGraph.load(path) == graph
