"""Scores, priors and matchings of the core against slow twins."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manymatch import _core
from tests.oracles import scores
from tests.oracles.geometry import sampson_squared
from tests.oracles.matching import is_matching
from tests.oracles.problems import (
    add_hub,
    nearby_pose,
    random_graph,
    random_pose,
    random_problem,
    unique_edges,
)
from tests.oracles.scores import cardinality

TOLERANCE = 1e-9
DELTA = 0.01


def assert_same_score(problem, q, delta, R, t):
    """Compare every output of the compiled score with the twin's."""
    arguments = (problem.x0, problem.x1, problem.edges, problem.eps, q, delta, R, t)
    hcm, cardinality, inliers, r2 = _core.score(*arguments)
    expected_hcm, expected_cardinality, expected_inliers = scores.score(*arguments)
    np.testing.assert_array_equal(inliers, expected_inliers)
    assert cardinality == expected_cardinality
    assert hcm == pytest.approx(expected_hcm, rel=TOLERANCE, abs=TOLERANCE)
    ends0, ends1 = problem.x0[problem.edges[:, 0]], problem.x1[problem.edges[:, 1]]
    with np.errstate(all="ignore"):
        expected_r2 = [sampson_squared(a, b, R, t) for a, b in zip(ends0, ends1, strict=True)]
    np.testing.assert_allclose(r2, expected_r2, rtol=1e-7, atol=1e-12 * problem.eps**2)


def poses_to_score(rng, problem):
    """The truth, two poses close to it and a random one."""
    yield problem.R, problem.t
    yield nearby_pose(rng, problem.R, problem.t, 2e-3)
    yield nearby_pose(rng, problem.R, problem.t, 2e-2)
    yield random_pose(rng)


@pytest.mark.parametrize("q", [0.05, 0.3, 1.0 / 3.0, 0.5, 0.95])
@pytest.mark.parametrize("max_degree", [1, 3, 5, 8])
def test_score_equals_the_twin_on_random_graphs(q, max_degree):
    rng = np.random.default_rng([max_degree, round(1000 * q)])
    for _ in range(25):
        problem = random_problem(rng, n=int(rng.integers(5, 30)), max_degree=max_degree)
        for R, t in poses_to_score(rng, problem):
            assert_same_score(problem, q, DELTA, R, t)


@pytest.mark.parametrize("q", [0.3, 1.0 / 3.0, 0.6])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("degree", [6, 8, 9, 16, 30])
def test_hubs_beyond_any_table_size(q, side, degree):
    rng = np.random.default_rng([side, degree])
    for _ in range(4):
        problem = add_hub(rng, random_problem(rng, n=32), side, int(rng.integers(32)), degree)
        for R, t in poses_to_score(rng, problem):
            assert_same_score(problem, q, DELTA, R, t)


def test_graphs_of_the_size_used_in_practice():
    rng = np.random.default_rng(8)
    problem = random_problem(rng, n=340, max_degree=5)
    for R, t in poses_to_score(rng, problem):
        assert_same_score(problem, 0.3, DELTA, R, t)


def test_non_finite_coordinates_are_outliers():
    rng = np.random.default_rng(9)
    for bad in (np.nan, np.inf, -np.inf):
        problem = random_problem(rng, n=25)
        spoiled = rng.choice(25, size=5, replace=False)
        problem.x0[spoiled[:3], rng.integers(0, 2, size=3)] = bad
        problem.x1[spoiled[3:]] = bad
        hcm, _, inliers, r2 = _core.score(
            problem.x0, problem.x1, problem.edges, problem.eps, 0.3, DELTA, problem.R, problem.t
        )
        touched = np.isin(problem.edges[:, 0], spoiled[:3])
        touched |= np.isin(problem.edges[:, 1], spoiled[3:])
        assert touched.any()
        assert not inliers[touched].any()
        assert not np.isfinite(r2[touched]).any()
        assert np.isfinite(hcm)
        assert_same_score(problem, 0.3, DELTA, problem.R, problem.t)


def test_isolated_vertices_add_nothing():
    problem = random_problem(np.random.default_rng(10), n=20)
    far = np.full((7, 2), 0.1)
    padded = [np.vstack([far, x, far]) for x in (problem.x0, problem.x1)]
    rest = problem.eps, 0.3, DELTA, problem.R, problem.t
    plain = _core.score(problem.x0, problem.x1, problem.edges, *rest)
    shifted = _core.score(*padded, problem.edges + np.int32(7), *rest)
    assert shifted[0] == pytest.approx(plain[0], rel=1e-12)
    assert shifted[1] == plain[1]
    np.testing.assert_array_equal(shifted[2], plain[2])


def test_no_edge_and_no_inlier_score_zero():
    problem = random_problem(np.random.default_rng(11), n=20)
    for edges in (problem.edges, problem.edges[:0]):
        score = _core.score(
            problem.x0, problem.x1, edges, 1e-18, 0.3, DELTA, np.eye(3), np.array([1.0, 0, 0])
        )
        assert score[:2] == (0.0, 0)
        assert not score[2].any()
        assert len(score[2]) == len(score[3]) == len(edges)


def test_priors_and_constants_equal_the_paper():
    rng = np.random.default_rng(12)
    for q in (0.1, 0.3, 1.0 / 3.0, 0.8):
        edges = random_graph(rng, 30, 25, 6)
        p, a0, a1 = _core.priors(edges, 30, 25, q, DELTA)
        expected = scores.marginal_probabilities(edges, 30, 25, q)
        np.testing.assert_allclose(p, expected, rtol=1e-14)
        for side, (a, count) in enumerate(((a0, 30), (a1, 25))):
            for vertex, incident in enumerate(scores.neighbours(edges, side, count)):
                mass = scores.match_probability(incident, expected)
                constant = 1.0 / (max(1.0 - mass, 1e-9) * DELTA)
                assert a[vertex] == (pytest.approx(constant, rel=1e-9) if incident else 0.0)


@settings(max_examples=300)
@given(
    edges=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=25),
    q=st.floats(0.01, 0.99),
    delta=st.floats(1e-6, 0.99),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_small_graph(edges, q, delta, seed):
    problem = random_problem(np.random.default_rng(seed), n=6)
    problem = dataclasses.replace(problem, edges=unique_edges(edges), eps=0.02)
    assert_same_score(problem, q, delta, problem.R, problem.t)


def test_the_threshold_is_strict_and_depth_starts_at_a_hundredth_of_the_baseline():
    R, t = np.eye(3), np.array([1.0, 0.0, 0.0])
    x0 = np.array([[0.0, 0.0]])
    x1 = np.array([[0.5, 0.002]])
    edge = np.zeros((1, 2), dtype=np.int32)
    r = float(np.sqrt(_core.sampson(x0, x1, R, t)[0][0]))
    assert not _core.score(x0, x1, edge, r * (1 - 1e-12), 0.3, DELTA, R, t)[2][0]
    assert _core.score(x0, x1, edge, r * (1 + 1e-12), 0.3, DELTA, R, t)[2][0]
    # A point at depth z straight ahead of camera 0 appears at 1/z in camera 1.
    for depth, expected in ((0.0099, False), (0.0101, True), (1e3, True)):
        assert _core.sampson(x0, np.array([[1.0 / depth, 0.0]]), R, t)[1][0] == expected
    assert not _core.sampson(x0, np.array([[-0.5, 0.0]]), R, t)[1][0]


@pytest.mark.parametrize("block", range(4))
def test_cardinality_equals_scipy_on_random_subgraphs(block):
    rng = np.random.default_rng([block, 1])
    for _ in range(1200):
        n0, n1 = map(int, rng.integers(1, 60, size=2))
        edges = random_graph(rng, n0, n1, int(rng.integers(1, 7)))
        used = rng.random(len(edges)) < rng.uniform(0.1, 1.0)
        kept = np.ascontiguousarray(edges[used])
        chosen = _core.max_matching(kept, None)
        assert is_matching(kept[chosen])
        assert np.all(np.diff(chosen) > 0)
        assert len(chosen) == cardinality(kept, n0, n1) == _core.cardinality(edges, used)
