"""Graphs with several sources: whom "auto" trusts, what matchers say, and what stays the same."""

import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays

import manymatch
from manymatch import _core
from manymatch.estimate.problem import match_features, probability_of
from manymatch.estimate.relative_pose import RELATIVE_POSE, sampson_distances
from tests.oracles.auto import joint_ranks
from tests.oracles.auto_graphs import K, constant, off_by, true_scene, with_graph, wrong_scene
from tests.oracles.geometry import angle_between
from tests.support.synthetic_problems import CAMERA, apart, query_graph, same

TRUST = "score/trust.h"


def run(graph, **settings):
    chosen = {"min_iterations": 500, "max_iterations": 4000, **settings}
    return manymatch.estimate_relative_pose(graph, K, K, options=manymatch.Options(**chosen))


def trust_by_definition(source, prior, squared, dimensions):
    """Trust of every source, one model, source and edge after the other."""
    first, last = constant("kFirstWrong", TRUST), constant("kLastWrong", TRUST)
    shares = []
    for s in range(max(source) + 1):
        own = [e for e in range(len(source)) if source[e] == s]
        total = sum(prior[e] for e in own)
        best = promise = 0.0
        if total > 0.0:
            promise = sum(prior[e] ** 2 for e in own) / total
        for row in squared:
            near = sum(prior[e] for e in own if row[e] <= 1.0)
            far = sum(prior[e] for e in own if first**2 < row[e] < last**2)
            chance = far / (last**dimensions - first**dimensions)
            if total > 0.0:
                spread = math.sqrt(promise * max(chance, promise))
                excess = near - chance - constant("kChanceDeviations", TRUST) * spread
                best = max(best, excess / total)
        shares.append(best / promise if promise > 0.0 else 0.0)
    if max(shares) <= 0.0:
        return [1.0] * len(shares)
    return [_core.trust_factor(s / max(shares)) for s in shares]


@given(st.integers(1, 70), st.integers(1, 4), st.integers(0, 3), st.integers(1, 3), st.data())
def test_trust_equals_its_definition(edges, sources, models, dimensions, data):
    source = data.draw(arrays(np.int32, edges, elements=st.integers(0, sources - 1)))
    prior = data.draw(arrays(np.float64, edges, elements=st.sampled_from([0.06, 0.15, 0.3])))
    values = st.sampled_from([0.1, 0.5, 2.0, 30.0, 100.0, 400.0])
    squared = data.draw(arrays(np.float64, (models, edges), elements=values))
    expected = trust_by_definition(source.tolist(), prior.tolist(), squared.tolist(), dimensions)
    found = _core.source_trust(source, prior, squared, dimensions)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@given(st.integers(1, 50), st.integers(1, 3), st.integers(0, 60), st.data())
def test_beliefs_count_relative_to_their_source(edges, sources, considered, data):
    belief = data.draw(arrays(np.float64, edges, elements=st.floats(0.01, 1.0)))
    source = data.draw(arrays(np.int32, edges, elements=st.integers(0, sources - 1)))
    listed = np.arange(min(considered, edges), dtype=np.int32)
    found = _core.belief_factors(belief, source, listed)
    for e in range(edges):
        own = belief[:considered][source[:considered] == source[e]]
        expected = np.clip(belief[e] / own.mean(), 1 / 3, 3) if len(own) else 1.0
        assert found[e] == pytest.approx(expected, rel=1e-9)
    alone = _core.belief_factors(belief, None, listed)
    np.testing.assert_array_equal(
        alone, _core.belief_factors(belief, np.zeros(edges, np.int32), listed)
    )


@st.composite
def listed_edges(draw):
    """Edges of several sources in any order, with what may be known of them."""
    number = draw(st.integers(0, 40))

    def maybe(dtype, elements):
        return draw(st.none() | arrays(dtype, number, elements=elements))

    edges = np.stack([np.arange(number)] * 2, axis=1).astype(np.int32)
    rank, source = (maybe(np.int32, st.integers(k, k + 2)) for k in (1, 0))
    return edges, rank, source, maybe(np.float64, st.sampled_from([0.1, 0.5, 1.0]))


@given(listed_edges(), st.integers(0, 45))
def test_which_edges_are_considered(known, count):
    """Of each source by rank, then by what matchers say, then by place."""
    edges, rank, source, belief = known
    rank = np.ones(len(edges)) if rank is None else rank
    source = np.zeros(len(edges), int) if source is None else source
    belief = np.ones(len(edges)) if belief is None else belief
    rows = sorted(range(len(edges)), key=lambda e: (rank[e], -belief[e], e))
    expected = [[e for e in rows if source[e] == s][:count] for s in range(3)]
    assert _core.best_edges(*known, count).tolist() == sorted(itertools.chain(*expected))


@given(listed_edges(), st.integers(0, 45))
def test_order_of_merged_graph_decides_which_edges_are_considered(known, count):
    edges, rank, _, belief = known
    points = np.zeros((len(edges), 2))
    graph = manymatch.AssociationGraph(points, points, edges, rank=rank, prior=belief)
    merged = manymatch.merge_graphs([graph])
    of_core = merged.edges.astype(np.int32), merged.rank, merged.source, merged.prior
    first = list(range(min(count, len(edges))))
    assert _core.best_edges(*of_core, count).tolist() == first


@pytest.mark.parametrize("seed", range(3))
def test_trust_of_a_pair_is_that_of_its_pose(seed):
    """What the searches find out is what residuals of the pose say, computed here."""
    merged = manymatch.merge_graphs(
        [true_scene(20 + seed, 300).graph, wrong_scene(30 + seed, 100).graph]
    )
    source = np.where((merged.source == 1) | (merged.edges[:, 0] % 3 == 0), 1, 0)
    graph = with_graph(merged, source=source)
    # Without the filter, the prior is that of the rank.
    found = run(graph, disable=("filter",))
    rays = [
        np.column_stack([points[graph.edges[:, side]], np.ones(len(source))]) @ np.linalg.inv(K).T
        for side, points in enumerate((graph.points0, graph.points1))
    ]
    essential = found.pose.essential()
    error = np.einsum("ei,ij,ej->e", rays[1], essential, rays[0]) * K[0][0] / found.threshold_px
    slopes = (rays[0] @ essential.T)[:, :2], (rays[1] @ essential)[:, :2]
    squared = error**2 / sum((slope**2).sum(axis=1) for slope in slopes)
    squared = np.where(found.inliers, squared, np.maximum(squared, 1.5))  # not behind a camera
    prior = (0.3 / np.minimum(joint_ranks(graph), constant("kRanks"))).tolist()
    expected = trust_by_definition(source.tolist(), prior, [squared.tolist()], 1)
    np.testing.assert_allclose(found.source_trust, expected, atol=0.01)
    assert 0.1 < expected[1] < 0.6


def test_noisy_source_does_not_spoil_an_exact_one():
    """Keypoints of one source are ten times as exact as those of the other, which has more."""

    def error(graph, pose):
        found = manymatch.estimate_absolute_pose(graph, CAMERA, threshold_px=4.0)
        return apart(found.pose, pose)

    alone, together = [], []
    for seed in range(8):
        exact, pose = query_graph(seed, noise=0.15)
        noisy, _ = query_graph(seed, right=300, wrong=100, noise=1.5)
        alone.append(error(exact, pose))
        together.append(error(manymatch.merge_graphs([exact, noisy]), pose))
    assert np.mean(together) < 1.5 * np.mean(alone)


def test_probabilities_count_candidates_as_far_as_their_source_is_trusted():
    right, wrong = true_scene(40, 60).graph, wrong_scene(41, 400).graph
    merged = manymatch.merge_graphs([right, wrong])
    found = run(merged)
    pair = found._pair
    assert found.source_trust[1] < 0.5
    distance = sampson_distances(pair, found.pose.R, found.pose.t) / pair.eps
    number = {tuple(edge): e for e, edge in enumerate(merged.edges.tolist())}
    matched = np.array([number[tuple(match)] for match in found.matches.tolist()])
    known = pair.edges, pair.rank, found._kept, distance, found.inliers, matched

    def match_probability(*known, **more):
        return probability_of(match_features(*known, **more), RELATIVE_POSE.match_coefficients)

    plain = match_probability(*known)
    ones = np.ones(merged.num_edges)
    np.testing.assert_array_equal(match_probability(*known, weight=ones), plain)
    trusted = match_probability(*known, weight=found.source_trust[merged.source])
    np.testing.assert_array_equal(found.match_probability, trusted)
    # Wrong candidates of a source that shows nothing are no evidence against the pose.
    assert (trusted > plain).mean() > 0.9
    without = run(merged, disable=("trust",))
    assert not len(without.source_trust)
    # A source without weight is not there, but for what an edge has by itself.
    alone = np.where(merged.source == 0, 1.0, 0.0)
    own = merged.source == 0
    place = np.cumsum(own) - 1
    of_one = (
        *(pair.edges[own], pair.rank[own], found._kept[own], distance[own]),
        *(found.inliers[own], place[matched[own[matched]]]),
    )
    some = match_features(*known, weight=alone)[own[matched]]
    np.testing.assert_allclose(some[:, 1:], match_features(*of_one)[:, 1:], rtol=1e-9)


def test_order_of_sources_does_not_matter():
    right, wrong = true_scene(7, 80), wrong_scene(8, 300)
    one = run(manymatch.merge_graphs([right.graph, wrong.graph]))
    other = run(manymatch.merge_graphs([wrong.graph, right.graph]))
    assert np.degrees(angle_between(one.pose.R, other.pose.R)) < 0.2
    np.testing.assert_allclose(one.source_trust, other.source_trust[::-1], atol=0.1)


def test_one_source_and_equal_priors_change_nothing():
    graph = true_scene(9, 120).graph
    said = run(with_graph(graph, prior=np.full(graph.num_edges, 0.25)))
    for other in (run(manymatch.merge_graphs([graph])), said):
        assert same(other, run(graph))
        assert other.source_trust.size == 0


def test_priors_of_the_matcher_tell_two_motions_apart():
    first, second = true_scene(10, 60), true_scene(11, 60)
    both = manymatch.merge_graphs([first.graph, second.graph])
    for favoured in (0, 1):
        prior = np.where(both.source == favoured, 1.0, 0.2)
        graph = manymatch.AssociationGraph(
            both.points0, both.points1, both.edges, rank=both.rank, prior=prior
        )
        assert off_by(run(graph), (first, second)[favoured]) < 0.5


def test_number_of_threads():
    merged = manymatch.merge_graphs([true_scene(12, 100).graph, wrong_scene(13, 200).graph])
    for threads in (2, 8):
        assert same(run(merged, threads=1), run(merged, threads=threads))


def test_more_edges_are_considered_with_more_sources():
    # The true edges stand behind those of a source that fills what is considered.
    count = int(constant("kConsideredEdges"))
    right, wrong = true_scene(14, 300), wrong_scene(15, count).graph
    stacked = manymatch.merge_graphs([wrong, right.graph])
    stacked = stacked.reordered(np.argsort(stacked.source, kind="stable"))
    plain = with_graph(stacked)
    assert plain.source is None
    assert off_by(run(stacked), right) < 0.5
    assert off_by(run(plain), right) > 5.0


@pytest.mark.parametrize("known", ["rank", "prior"])
def test_long_lists_in_any_order(known):
    """Edges of a better rank or prior are considered wherever they stand."""
    count = int(constant("kConsideredEdges"))
    right, wrong = true_scene(16, 150).graph, wrong_scene(17, 3 * count).graph
    stacked = manymatch.merge_graphs([right, wrong])
    values = np.where(stacked.source == 0, *{"rank": (1, 5), "prior": (1.0, 0.1)}[known])
    points = stacked.points0, stacked.points1
    listed = manymatch.AssociationGraph(*points, stacked.edges, **{known: values})
    order = np.random.default_rng(0).permutation(listed.num_edges)
    assert off_by(run(listed.reordered(order)), true_scene(16, 150)) < 0.5
    blind = manymatch.AssociationGraph(*points, stacked.edges[order])
    assert off_by(run(blind), true_scene(16, 150)) > 5.0
