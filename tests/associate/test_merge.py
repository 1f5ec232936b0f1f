"""Merging: several sources in one graph with their order and names; coincident keypoints."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from manymatch import AssociationGraph, merge_coincident, merge_graphs


@st.composite
def graphs(draw):
    """Draw a graph with any of ranks, similarities and priors; ranks may fall along the list."""
    n0, n1 = (draw(st.integers(1, 6)) for _ in "01")
    pair = st.tuples(st.integers(0, n0 - 1), st.integers(0, n1 - 1))
    edges = draw(st.lists(pair, max_size=12, unique=True))

    def of_edges(values):
        several = st.lists(values, min_size=len(edges), max_size=len(edges))
        return draw(st.none() | several)

    points = np.arange(2.0 * (n0 + n1)).reshape(-1, 2)
    return AssociationGraph(
        points[:n0],
        points[n0:],
        np.array(edges).reshape(-1, 2),
        of_edges(st.sampled_from([0.0, 0.25, 0.5])),
        of_edges(st.integers(1, 3)),
        prior=of_edges(st.sampled_from([0.1, 0.5, 1.0])),
    )


def part(merged, several, number):
    """The edges of one source of a merged graph, in its own indices."""
    before = [
        sum(len(getattr(g, side)) for g in several[:number]) for side in ("points0", "points1")
    ]
    own = merged.filter(merged.source == number)
    return own.edges - before, own


def best_first(graph):
    """The graph with its edges by rank, by prior or else similarity, and as listed."""
    rank, values = graph.rank, graph.similarity if graph.prior is None else graph.prior

    def key(e):
        return 0 if rank is None else rank[e], 0 if values is None else -values[e], e

    return graph.reordered(np.array(sorted(range(graph.num_edges), key=key), dtype=int))


@given(st.lists(graphs(), min_size=1, max_size=4))
def test_every_source_is_there_best_first(several):
    merged = merge_graphs(several)
    assert merged.num_edges == sum(g.num_edges for g in several)
    for side in ("points0", "points1"):
        stacked = np.concatenate([getattr(g, side) for g in several])
        assert np.array_equal(getattr(merged, side), stacked)
    assert merged.source_names == tuple(map(str, range(len(several))))
    for number, graph in enumerate(several):
        edges, own = part(merged, several, number)
        ranks = np.zeros(graph.num_edges)
        if merged.rank is not None:  # where a graph has none, ranks are by place
            found = dict(zip(map(tuple, edges.tolist()), own.rank.tolist(), strict=True))
            ranks = [found[tuple(edge)] for edge in best_first(graph).edges.tolist()]
        wanted = best_first(graph).reordered(np.argsort(ranks, kind="stable"))
        assert np.array_equal(edges, wanted.edges)
        if graph.rank is not None:
            assert np.array_equal(own.rank, wanted.rank)
        if graph.prior is not None:
            assert np.array_equal(own.prior, wanted.prior)
        elif merged.prior is not None:
            assert (own.prior == 1.0).all()
        if merged.similarity is not None:
            assert np.array_equal(own.similarity, wanted.similarity)
    assert (merged.similarity is None) == any(g.similarity is None for g in several)
    assert (merged.rank is None) == all(g.rank is None for g in several)


@given(graphs())
def test_one_graph_stays_the_graph(graph):
    merged = merge_graphs([graph], ["only"])
    graph = best_first(graph)
    assert merged.source_names == ("only",)
    assert not merged.source.any()
    further = graph.of_edges() | {"source": merged.source, "source_names": ["only"]}
    assert merged == AssociationGraph(graph.points0, graph.points1, graph.edges, **further)


@given(st.lists(graphs(), min_size=1, max_size=3), st.randoms(), st.booleans(), st.booleans())
def test_order_of_the_lists_does_not_matter(several, random, ranked, similar):
    """Where ranks and what is known of the edges tell them apart."""
    distinct, shuffled = [], []
    for graph in several:
        number = graph.num_edges
        values = random.sample(range(1, 100), number)
        further = {
            "rank": [random.randint(1, 3) for _ in values] if ranked else None,
            "similarity" if similar else "prior": np.array(values) / 128.0,
        }
        one = AssociationGraph(graph.points0, graph.points1, graph.edges, **further)
        distinct.append(one)
        shuffled.append(one.reordered(random.sample(range(number), number)))
    assert merge_graphs(shuffled) == merge_graphs(distinct)


@given(st.lists(graphs(), min_size=2, max_size=4), st.randoms())
def test_order_of_the_graphs_does_not_matter(several, random):
    """Every source has the same edges of the same ranks, in the same order."""
    order = random.sample(range(len(several)), len(several))
    one, other = merge_graphs(several), merge_graphs([several[i] for i in order])
    for place, number in enumerate(order):
        edges, own = part(one, several, number)
        moved, same = part(other, [several[i] for i in order], place)
        assert edges.tolist() == moved.tolist()
        assert np.array_equal(own.rank, same.rank)


@given(graphs(), graphs(), graphs())
def test_merging_in_steps(a, b, c):
    steps = merge_graphs([merge_graphs([a, b], ["a", "b"]), merge_graphs([c], ["c"])])
    if (a.rank is None) == (b.rank is None) == (c.rank is None):
        assert steps.edges.tolist() == merge_graphs([a, b, c]).edges.tolist()
    assert steps.source_names == ("a", "b", "c")
    named = merge_graphs([merge_graphs([a, b], ["a", "b"]), c], ["ab", "c"])
    assert named.source_names == ("ab a", "ab b", "c")


def test_edges_are_interleaved_by_rank_and_place():
    points = np.zeros((3, 2))
    a = AssociationGraph(points, points, [[0, 0], [1, 1], [2, 2], [0, 1]], rank=[1, 1, 1, 2])
    b = AssociationGraph(points, points, [[2, 0], [2, 1], [2, 2]], rank=[1, 2, 3])
    merged = merge_graphs([a, b])
    assert merged.source.tolist() == [0, 1, 0, 0, 0, 1, 1]
    assert merged.rank.tolist() == [1, 1, 1, 1, 2, 2, 3]
    assert merged.edges.tolist() == [[0, 0], [5, 3], [1, 1], [2, 2], [0, 1], [5, 4], [5, 5]]


def test_ranks_where_only_one_graph_has_them():
    points = np.zeros((2, 2))
    a = AssociationGraph(points, points, [[0, 0]], rank=[4])
    b = AssociationGraph(points, points, [[0, 0], [1, 0], [1, 1], [0, 1]])
    merged = merge_graphs([a, b])
    assert merged.rank[merged.source == 1].tolist() == [1, 2, 2, 2]
    assert merge_graphs([b, b]).rank is None


def test_joined_keypoints():
    places = [[0.0, 0.0], [10.0, 0.0]]
    a = AssociationGraph(places, places, [[0, 0], [1, 1]], [0.2, 0.1], [1, 1], prior=[0.4, 0.3])
    near = np.array(places) + 0.4
    b = AssociationGraph(near, near, [[1, 1], [0, 1]], [0.9, 0.8], [1, 2], prior=[0.5, 0.6])
    merged = merge_graphs([a, b], ["a", "b"], tolerance_px=1.0)
    assert len(merged.points0) == len(merged.points1) == 2
    # The two edges (1, 1) are one: the best of what they have, and the source of the first.
    assert merged.edges.tolist() == [[0, 0], [1, 1], [0, 1]]
    assert merged.source.tolist() == [0, 1, 1]
    assert merged.rank.tolist() == [1, 1, 2]
    assert merged.similarity.tolist() == pytest.approx([0.2, 0.9, 0.8])
    assert merged.prior.tolist() == [0.4, 0.5, 0.6]
    assert len(merge_graphs([a, b], tolerance_px=0.0).points0) == 4


def test_points_in_space():
    cloud = np.eye(3)
    graph = AssociationGraph(cloud, cloud, [[0, 1]])
    assert merge_graphs([graph, graph]).edges.tolist() == [[0, 1], [3, 4]]
    with pytest.raises(ValueError, match=r"^graphs\[1\] must have points in space"):
        merge_graphs([graph, AssociationGraph(cloud[:, :2], cloud[:, :2], [[0, 1]])])


SMALL = AssociationGraph(np.zeros((1, 2)), np.zeros((1, 2)), [[0, 0]])


@pytest.mark.parametrize(
    ("graphs", "names", "message"),
    [
        ([], None, r"^graphs must be a list of AssociationGraph, at least one, got"),
        (SMALL, None, r"^graphs must be a list of AssociationGraph, at least one, got"),
        (None, None, r"^graphs must be a list of AssociationGraph, at least one, got None"),
        ([SMALL, 3], None, r"^graphs\[1\] must be an AssociationGraph or .*, got 3"),
        ([SMALL], ["a", "b"], r"^names must be 1 different names, one per graph, got"),
        ([SMALL, SMALL], ["a", "a"], r"^names must be 2 different names, one per graph, got"),
        ([SMALL, SMALL], "ab", r"^names must be 2 different names, one per graph, got 'ab'"),
        ([SMALL, SMALL], ["a", ""], r"^names must be 2 different names, one per graph, got"),
        ([merge_graphs([SMALL])] * 2, None, r"^names must be given for sources of equal names"),
        ([SMALL] * 65, None, r"^graphs must have 64 sources at most, got 65"),
    ],
)
def test_bad_arguments(graphs, names, message):
    with pytest.raises(ValueError, match=message):
        merge_graphs(graphs, names)


@st.composite
def coincident_graphs(draw):
    """Draw graphs whose keypoints lie on a small grid, so that many coincide."""
    sides = [
        draw(st.lists(st.tuples(*[st.integers(0, 3)] * 2), min_size=1, max_size=10)) for _ in "01"
    ]
    pair = st.tuples(*(st.integers(0, len(side) - 1) for side in sides))
    edges = draw(st.lists(pair, max_size=25, unique=True))
    rank = draw(st.lists(st.integers(1, 3), min_size=len(edges), max_size=len(edges)))
    score = draw(
        st.lists(st.sampled_from([0.0, 0.25, 0.5]), min_size=len(edges), max_size=len(edges))
    )
    return AssociationGraph(*(np.array(s, dtype=float) for s in sides), edges, score, rank)


def components(points, tolerance):
    """Find groups by brute force: sets of indices, by their smallest member."""
    groups = []
    for n, point in enumerate(points):
        near = [g for g in groups if any(np.hypot(*(points[m] - point)) <= tolerance for m in g)]
        groups = [g for g in groups if g not in near] + [{n}.union(*near)]
    return sorted(groups, key=min)


@given(coincident_graphs(), st.sampled_from([0.0, 1.0, 1.5, 10.0]))
def test_against_brute_force(graph, tolerance):
    merged, *index = merge_coincident(graph, tolerance)
    for points, new, place in zip(
        (graph.points0, graph.points1), (merged.points0, merged.points1), index, strict=True
    ):
        groups = components(points, tolerance)
        assert [set(np.flatnonzero(place == n).tolist()) for n in range(len(new))] == groups
        means = [np.unique(points[list(g)], axis=0).mean(axis=0) for g in groups]
        assert new == pytest.approx(np.array(means))
    if len(merged.points0) + len(merged.points1) == len(graph.points0) + len(graph.points1):
        assert merged is graph
        return
    best = {}
    for (i, j), score, rank in zip(graph.edges, graph.similarity, graph.rank, strict=True):
        end = (int(index[0][i]), int(index[1][j]))
        old = best.get(end, (99, 99.0))
        best[end] = (min(old[0], int(rank)), min(old[1], -float(score)))
    order = sorted(best, key=lambda end: (best[end], end))
    assert [tuple(e) for e in merged.edges.tolist()] == order
    assert [(r, -s) for r, s in zip(merged.rank, merged.similarity, strict=True)] == [
        best[end] for end in order
    ]


def test_order_where_ranks_or_similarities_are_missing():
    points0, points1 = [[0, 0], [0, 0], [4, 4]], [[0, 0], [1, 1]]
    edges = [[2, 1], [1, 1], [0, 0], [0, 1]]
    plain, _, _ = merge_coincident(AssociationGraph(points0, points1, edges))
    assert plain.edges.tolist() == [[1, 1], [0, 1], [0, 0]]
    assert plain.similarity is None
    ranked, _, _ = merge_coincident(AssociationGraph(points0, points1, edges, rank=[1, 2, 1, 1]))
    assert ranked.edges.tolist() == [[1, 1], [0, 1], [0, 0]]
    assert ranked.rank.tolist() == [1, 1, 1]
    scored, _, _ = merge_coincident(AssociationGraph(points0, points1, edges, [0.1, 0.2, 0.3, 0.4]))
    assert scored.edges.tolist() == [[0, 1], [0, 0], [1, 1]]


def test_positions_stay_exact():
    point = [0.1 + 0.2, 1 / 3]
    merged, _, _ = merge_coincident(AssociationGraph([point] * 3, [[0, 0]], [[2, 0]]))
    assert merged.points0.tolist() == [point]
    empty = AssociationGraph([], [], [])
    assert merge_coincident(empty)[0] is empty
    for tolerance in (-1.0, np.nan, np.inf, "1", None):
        with pytest.raises(ValueError, match="tolerance_px must be"):
            merge_coincident(empty, tolerance)
    with pytest.raises(ValueError, match="graph must be an AssociationGraph"):
        merge_coincident([[0, 0]])
