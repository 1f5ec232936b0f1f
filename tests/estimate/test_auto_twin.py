"""Method "auto" against a slow loop that follows it one step at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manymatch
from manymatch.options import AUTO_PARTS
from tests.oracles.auto import auto
from tests.oracles.auto_graphs import K, constant, synthetic_graph, with_graph
from tests.oracles.geometry import angle_between, residuals
from tests.oracles.matching import is_matching, minimum_cost_maximum_matching
from tests.oracles.sampling import SAMPLE_SIZE
from tests.oracles.scores import cardinality

CAMERA = manymatch.Camera.from_matrix(K)


def options(**changes):
    return manymatch.Options(
        **{"min_iterations": 150, "max_iterations": 400, "pool_size": 15, **changes}
    )


def assert_same_run(graph, settings, proposals=None):
    estimate = manymatch.estimate_relative_pose(graph, K, K, "auto", settings, proposals)
    twin, loop, price = auto(graph, CAMERA, settings, proposals)
    assert estimate.iterations == twin.iterations
    assert estimate.refinements == twin.local_refinements + twin.pool_refinements
    assert estimate.pooled == len(twin.pool)
    assert estimate.worst_pooled == pytest.approx(min(m.hcm for m, _ in twin.pool), rel=1e-12)
    assert angle_between(estimate.pose.R, twin.R) < 1e-8
    assert np.linalg.norm(estimate.pose.t - twin.t) < 1e-8
    assert_cheapest(graph, estimate.pose, estimate.matches, loop, price)
    if loop.settlement is None:
        assert estimate.alternatives == ()
        assert np.isnan([estimate.noise_px, estimate.noise_sd_px]).all()
    else:
        assert_same_last_stage(graph, estimate, loop, price)
    return estimate, twin, loop


def assert_same_last_stage(graph, estimate, loop, price):
    """Noise, support and alternatives of the estimate are those of the twin."""
    pixels = estimate.threshold_px
    stated = np.array([estimate.noise_px, estimate.noise_sd_px]) / pixels
    np.testing.assert_allclose(stated, loop.settlement.noise(), rtol=1e-6)
    assert estimate.support == pytest.approx(loop.settlement.best.support, rel=1e-6)
    others = loop.settlement.alternatives()
    odds = np.exp([advantage / constant("kNatsPerOdds") for *_, advantage in others])
    expected = []
    for (pose, support, _), probability in zip(others, odds / (1.0 + odds.sum()), strict=True):
        inliers = loop.inliers_of(graph.edges, *pose)
        size = cardinality(graph.edges[inliers], len(loop.x0), len(loop.x1))
        if probability >= constant("kLeastProbability") and size >= SAMPLE_SIZE:
            expected.append((pose, support, probability))
    assert len(estimate.alternatives) == len(expected)
    for alternative, known in zip(estimate.alternatives, expected, strict=True):
        pose, support, probability = known
        assert angle_between(alternative.model.R, pose[0]) < 1e-6
        assert np.linalg.norm(alternative.model.t - pose[1]) < 1e-6
        assert alternative.support == pytest.approx(support, rel=1e-6)
        assert alternative.probability == pytest.approx(probability, rel=1e-5)
        assert alternative.cardinality == len(alternative.matches)
        assert_cheapest(graph, alternative.model, alternative.matches, loop, price)


def assert_cheapest(graph, pose, matches, loop, price):
    """The matches are a largest matching of all inliers, the one of the least price of those."""
    r2, _ = residuals(loop.x0, loop.x1, graph.edges, pose.R, pose.t)
    inliers = np.flatnonzero(loop.inliers_of(graph.edges, pose.R, pose.t))
    cost = r2 / loop.eps**2 + price
    size, least = minimum_cost_maximum_matching(
        graph.edges[inliers], cost[inliers], len(loop.x0), len(loop.x1)
    )
    number = {tuple(edge): e for e, edge in enumerate(graph.edges.tolist())}
    chosen = [number[tuple(match)] for match in matches.tolist()]
    assert len(chosen) == size
    assert cost[chosen].sum() == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_the_estimator_equals_its_slow_twin(seed):
    synthetic = synthetic_graph(seed, n=50, candidates=2 + seed % 2, first=0.7, present=0.9)
    estimate, twin, loop = assert_same_run(synthetic.graph, options(seed=seed, max_iterations=1500))
    assert 150 < estimate.iterations < 1500
    assert loop.guides
    assert twin.pool_refinements < len(twin.pool)
    assert angle_between(estimate.pose.R, synthetic.R) < np.radians(2.0)
    # Expectation maximisation ends within a few percent of the largest likelihood.
    near = loop.settlement.near(loop.settlement.best.pose)
    freedom = near.fit(free=True)[1]
    correction = np.sqrt(freedom / (freedom - SAMPLE_SIZE))
    assert estimate.noise_px == pytest.approx(near.likeliest_scale() * correction, rel=0.1)


def test_the_twin_lists_alternatives():
    # Few true edges among many wrong ones: some other poses have nearly as much support.
    listed = 0
    for seed in range(6):
        synthetic = synthetic_graph(30 + seed, n=40, candidates=3, first=0.5, present=0.3)
        estimate, *_ = assert_same_run(synthetic.graph, options(seed=seed))
        listed += len(estimate.alternatives)
    assert listed >= 6


@pytest.mark.parametrize("name", AUTO_PARTS)
def test_the_twin_without_a_part(name):
    synthetic = synthetic_graph(20, n=60, candidates=3, noise=0.4)
    assert_same_run(synthetic.graph, options(seed=1, disable=(name,)))


def test_the_twin_without_residuals_elsewhere():
    for name in ("weights", "polish", "distinct"):
        synthetic = synthetic_graph(28, n=60, candidates=3, noise=0.4)
        assert_same_run(synthetic.graph, options(seed=3, disable=(name, "residuals")))


def test_the_twin_without_all():
    synthetic = synthetic_graph(21, n=60, candidates=3, noise=0.4)
    assert_same_run(synthetic.graph, options(seed=2, disable=tuple(AUTO_PARTS)))


def test_without_ranks():
    synthetic = synthetic_graph(22, n=60, candidates=2, ranked=False)
    assert_same_run(synthetic.graph, options())


@pytest.mark.parametrize("name", [None, "filter"])
def test_points_that_move_together(name):
    # Far points move alike: the motion filter keeps most true edges, which guide then.
    synthetic = synthetic_graph(23, n=150, candidates=2, depth=(30.0, 40.0))
    kept = manymatch.gms_filter(synthetic.graph, (1, 1), (1, 1)).mask
    assert 20 < kept.sum() < synthetic.graph.num_edges
    settings = options(disable=() if name is None else (name,))
    _, _, loop = assert_same_run(synthetic.graph, settings)
    assert len(loop.guides) == 2
    assert loop.guides[0][1].sum() <= loop.guides[1][1].sum()


def test_proposals():
    synthetic = synthetic_graph(24, n=60)
    proposals = np.random.default_rng(1).random(synthetic.graph.num_edges) < 0.6
    _, _, loop = assert_same_run(synthetic.graph, options(), proposals)
    assert len(loop.edges) == synthetic.graph.num_edges


def test_ranks_beyond_the_last_level():
    synthetic = synthetic_graph(25, n=40, candidates=8)
    assert synthetic.graph.rank.max() > constant("kRanks")
    assert_same_run(synthetic.graph, options(max_iterations=250))


def test_more_edges_than_are_explored():
    # The narrow part is a choice by prior, not the first edges: ranks do not ascend here.
    synthetic = synthetic_graph(26, n=260, candidates=5, first=0.8)
    order = np.random.default_rng(2).permutation(synthetic.graph.num_edges)
    graph = with_graph(
        synthetic.graph, edges=synthetic.graph.edges[order], rank=synthetic.graph.rank[order]
    )
    _, _, loop = assert_same_run(graph, options(max_iterations=160))
    assert len(loop.edges) == constant("kSearchedEdges") < len(loop.wide) == graph.num_edges


def test_more_edges_than_are_considered():
    synthetic = synthetic_graph(27, n=450, candidates=5, first=0.8)
    proposals = np.zeros(synthetic.graph.num_edges, bool)
    proposals[:500] = True
    proposals[-40:] = True
    for named in (None, proposals):
        _, _, loop = assert_same_run(synthetic.graph, options(max_iterations=151), named)
        if named is None:
            assert len(loop.wide) == constant("kConsideredEdges")
            assert len(loop.edges) == constant("kSearchedEdges")
        else:  # proposals are used wherever they stand
            assert len(loop.wide) > constant("kConsideredEdges")
            assert loop.proposals.sum() == 540 < len(loop.edges) < len(loop.wide)


@settings(max_examples=80)
@given(st.data())
def test_any_graph_gives_an_answer_or_a_reason(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n0, n1 = (data.draw(st.sampled_from([1, 4, 6, 15, 40])) for _ in range(2))
    count = data.draw(st.integers(0, 80))
    # Some points coincide, lie on a line, or nowhere near an image.
    spread = data.draw(st.sampled_from([0.0, 1.0, 1000.0, 1e12]))
    points = [spread * rng.random((n, 2)) for n in (n0, n1)]
    if data.draw(st.booleans()):
        points = [np.round(p, -2) for p in points]
    edges = np.column_stack([rng.integers(0, n0, count), rng.integers(0, n1, count)])
    rank = rng.integers(1, 9, count) if data.draw(st.booleans()) else None
    graph = manymatch.AssociationGraph(*points, edges, rank=rank)
    proposals = None
    if data.draw(st.booleans()):
        proposals = rng.random(graph.num_edges) < data.draw(st.floats(0.0, 1.0))
    chosen = manymatch.Options(
        min_iterations=1,
        max_iterations=data.draw(st.sampled_from([1, 64, 150])),
        threshold_px=data.draw(st.sampled_from([1e-3, 1.0, 50.0])),
        q=data.draw(st.sampled_from([1e-6, 0.3, 0.999])),
        delta=data.draw(st.sampled_from([1e-6, 0.01, 0.999])),
        pool_size=data.draw(st.sampled_from([1, 20])),
        disable=data.draw(st.sets(st.sampled_from(list(AUTO_PARTS)))),
        threads=1,
    )
    estimate = manymatch.estimate_relative_pose(graph, K, K, "auto", chosen, proposals)
    assert estimate.success == (not estimate.failure)
    assert is_matching(estimate.matches)
    assert estimate.match_probability.shape == (len(estimate.matches),)
    assert ((estimate.match_probability >= 0.0) & (estimate.match_probability <= 1.0)).all()
    if estimate.success:
        score = manymatch.score_pose(graph, K, K, estimate.pose, chosen)
        assert (score.hcm, score.cardinality) == (estimate.hcm, estimate.cardinality)
        np.testing.assert_array_equal(score.inliers, estimate.inliers)
    else:
        assert len(estimate.matches) == 0
