"""The rank of an edge from both of its ends, by its definition and by what must not change it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import manymatch
from manymatch import _core
from tests.oracles.auto import joint_ranks


@st.composite
def graphs(draw):
    """Few keypoints with many edges, in any order, with what may be known of them."""
    n0, n1 = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    every = [(i, j) for i in range(n0) for j in range(n1)]
    edges = draw(st.lists(st.sampled_from(every), unique=True))
    values = st.sampled_from([0.25, 0.5, 0.75])

    def maybe(dtype, elements):
        return draw(st.none() | arrays(dtype, len(edges), elements=elements))

    return manymatch.AssociationGraph(
        *(np.zeros((n0, 2)), np.zeros((n1, 2)), np.array(edges, int).reshape(-1, 2)),
        similarity=maybe(np.float32, values),
        rank=draw(arrays(np.int32, len(edges), elements=st.integers(1, 4))),
        source=maybe(np.int32, st.integers(0, 2)),
        prior=maybe(np.float64, values),
    )


def ranks_of(graph):
    edges = np.ascontiguousarray(graph.edges, dtype=np.int32)
    return _core.joint_ranks(edges, graph.rank, graph.similarity, graph.source, graph.prior)


@given(graphs())
def test_definition(graph):
    np.testing.assert_array_equal(ranks_of(graph), joint_ranks(graph))


@given(graphs(), st.randoms(use_true_random=False))
def test_order_of_edges_does_not_matter(graph, random):
    order = np.array(random.sample(range(graph.num_edges), graph.num_edges), int)
    np.testing.assert_array_equal(ranks_of(graph.reordered(order)), ranks_of(graph)[order])


@given(graphs())
def test_swapped_sides_give_the_same_ranks(graph):
    swapped = manymatch.AssociationGraph(
        graph.points1, graph.points0, graph.edges[:, ::-1], **graph.of_edges()
    )
    np.testing.assert_array_equal(ranks_of(swapped), ranks_of(graph))


def descriptors(seed):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, 6)).astype(np.float32) for n in (60, 80)]


def graph_of(operator, k, first, second):
    found = manymatch.associate(first, second, k=k, operator=operator)
    return manymatch.AssociationGraph(*(np.zeros((len(d), 2)) for d in (first, second)), *found)


def test_mutual_graph_keeps_its_ranks():
    for seed in range(5):
        graph = graph_of("mutual", 5, *descriptors(seed))
        np.testing.assert_array_equal(ranks_of(graph), graph.rank)


def test_list_from_one_side_gets_its_mutual_ranks():
    """Where both ends are among the K nearest of each other, one list is nearly enough."""
    for operator in ("oneway", "union"):
        equal, common = 0, 0
        for seed in range(5):
            first, second = descriptors(seed)
            mutual = graph_of("mutual", 5, first, second)
            listed = graph_of(operator, 5, first, second)
            found = dict(zip(map(tuple, listed.edges.tolist()), ranks_of(listed), strict=True))
            listed_too = [found[tuple(edge)] for edge in mutual.edges.tolist()]
            ranks = list(zip(listed_too, mutual.rank, strict=True))
            assert all(one <= both for one, both in ranks)
            equal, common = equal + sum(a == b for a, b in ranks), common + len(ranks)
        assert equal > 0.8 * common


def test_nothing_known_gives_no_ranks():
    edges = np.array([[0, 0], [0, 1]], np.int32)
    assert not len(_core.joint_ranks(edges, None, None, None, None))
