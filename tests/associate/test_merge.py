"""Coincident keypoints: groups, positions, candidates and their order."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from manymatch import AssociationGraph, merge_coincident


@st.composite
def graphs(draw):
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


def test_two_orientations_of_one_corner():
    graph = AssociationGraph(
        [[5, 5], [9, 9], [5, 5]],
        [[1, 1], [2, 2]],
        [[0, 0], [2, 1], [1, 1], [2, 0]],
        [0.9, 0.8, 0.7, 0.95],
        [1, 1, 2, 2],
    )
    merged, index0, index1 = merge_coincident(graph)
    assert merged.points0.tolist() == [[5, 5], [9, 9]]
    assert index0.tolist() == [0, 1, 0]
    assert index1.tolist() == [0, 1]
    # (0, 0) and (2, 0) became one: rank 1 of the former, similarity of the latter.
    assert merged.edges.tolist() == [[0, 0], [0, 1], [1, 1]]
    assert merged.similarity.tolist() == pytest.approx([0.95, 0.8, 0.7])
    assert merged.rank.tolist() == [1, 1, 2]


@given(graphs(), st.sampled_from([0.0, 1.0, 1.5, 10.0]))
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


@given(graphs(), st.sampled_from([0.0, 1.0, 2.0]), st.randoms(use_true_random=False))
def test_groups_do_not_depend_on_the_order_of_keypoints(graph, tolerance, shuffle):
    order = np.array(shuffle.sample(range(len(graph.points0)), len(graph.points0)))
    merged, index0, _ = merge_coincident(graph, tolerance)
    moved = AssociationGraph(graph.points0[order], graph.points1, np.zeros((0, 2)))
    other, moved0, _ = merge_coincident(moved, tolerance)
    assert np.array_equal(other.points0[moved0], merged.points0[index0][order])


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


def test_empty_graph():
    graph = AssociationGraph([], [], [])
    assert merge_coincident(graph)[0] is graph


@pytest.mark.parametrize("tolerance", [-1.0, np.nan, np.inf, "1", None])
def test_bad_tolerance(tolerance):
    with pytest.raises(ValueError, match="tolerance_px must be"):
        merge_coincident(AssociationGraph([], [], []), tolerance)


def test_bad_graph():
    with pytest.raises(ValueError, match="graph must be an AssociationGraph"):
        merge_coincident([[0, 0]])
