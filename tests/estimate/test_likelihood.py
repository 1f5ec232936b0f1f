"""The paper's likelihood statements on small graphs, by enumeration of every configuration."""

import itertools
import math

import numpy as np
import pytest

from manymatch import _core
from tests.oracles import likelihood, scores
from tests.oracles.matching import all_matchings
from tests.oracles.problems import random_graph, random_problem

EPS = 0.7
SMALL_DELTAS = (1e-2, 1e-3, 1e-4, 1e-6)


def small_cases(count, seed):
    """Random graphs of at most 12 edges with random inlier masks."""
    rng = np.random.default_rng(seed)
    while count:
        n0, n1 = rng.integers(1, 6, size=2)
        edges = random_graph(rng, int(n0), int(n1), 4)[:12]
        if len(edges):
            count -= 1
            yield edges, rng.random(len(edges)) < rng.uniform(0.2, 1.0), int(n0), int(n1)


def test_log_likelihood_tends_to_the_dominant_cardinality_form():
    for edges, inlier, _, _ in small_cases(100, seed=2):
        sizes = [len(m) for m in all_matchings(edges[inlier])]
        largest = max(sizes)
        gaps = []
        for delta in SMALL_DELTAS:
            exact = likelihood.log_likelihood(edges, inlier, EPS, delta)
            gap = exact - likelihood.log_surrogate(edges, inlier, EPS, delta)
            smaller = math.fsum(delta ** (largest - s) for s in sizes if s < largest)
            assert gap == pytest.approx(math.log1p(smaller / sizes.count(largest)), abs=1e-9)
            gaps.append(gap)
        assert all(a >= b - 1e-9 for a, b in itertools.pairwise(gaps))
        assert 0.0 <= gaps[-1] + 1e-9 < 1e-3


def test_mcm_is_the_slope_of_the_log_likelihood():
    for edges, inlier, n0, n1 in small_cases(100, seed=3):
        kept = np.ascontiguousarray(edges[inlier])
        a, b = 1e-9, 1e-11
        # The constant |E| log(delta / eps) is the only other term that depends on delta.
        difference = likelihood.log_likelihood(edges, inlier, EPS, b)
        difference -= likelihood.log_likelihood(edges, inlier, EPS, a)
        slope = len(edges) - difference / math.log(b / a)
        cardinality = len(_core.max_matching(kept, None))
        assert slope == pytest.approx(cardinality, abs=1e-5)
        assert cardinality == scores.cardinality(kept, n0, n1)
        assert cardinality == likelihood.maximum_matchings(edges, inlier)[0]


def test_hcm_is_the_one_sided_likelihood_vertex_by_vertex():
    for q, delta in ((0.1, 0.01), (0.3, 0.01), (0.3, 0.2), (0.3, 1e-5)):
        for edges, inlier, n0, n1 in small_cases(60, seed=4):
            p, a0, a1 = _core.priors(edges, n0, n1, q, delta)
            for side, (a, count) in enumerate(((a0, n0), (a1, n1))):
                for vertex, incident in enumerate(scores.neighbours(edges, side, count)):
                    mass = math.fsum(p[e] for e in incident)
                    if not incident or mass > 0.999:
                        continue
                    joint = likelihood.vertex_likelihood(incident, inlier, p, EPS, delta)
                    fixed = likelihood.vertex_prefactor(incident, p, EPS, delta)
                    w = math.fsum(p[e] for e in incident if inlier[e])
                    assert joint / fixed == pytest.approx(1.0 + a[vertex] * w, rel=1e-9)
                    C, share = mass / (1.0 - mass) / delta, w / mass
                    assert joint / fixed == pytest.approx(1.0 + C * share, rel=1e-9)


@pytest.mark.parametrize("given", [False, True])
def test_hcm_of_a_pose_is_the_sum_of_both_one_sided_log_likelihoods(given):
    rng = np.random.default_rng(5)
    for _ in range(50):
        problem = random_problem(rng, n=8, max_degree=3)
        n = len(problem.x0)
        p = scores.marginal_probabilities(problem.edges, n, n, 0.3)
        if given:
            p = rng.uniform(0.01, 0.9, len(p))
            # The candidates of a keypoint are together less likely than certain.
            p /= np.maximum(1.0, 1.1 * max(np.bincount(side, p).max() for side in problem.edges.T))
        hcm, _, inlier, _ = _core.score(
            *(problem.x0, problem.x1, problem.edges, problem.eps, 0.3, 0.01),
            *(problem.R, problem.t),
            belief=p if given else None,
        )
        total = 0.0
        for side in (0, 1):
            for incident in filter(None, scores.neighbours(problem.edges, side, n)):
                total += math.log(
                    likelihood.vertex_likelihood(incident, inlier, p, problem.eps, 0.01)
                    / likelihood.vertex_prefactor(incident, p, problem.eps, 0.01)
                )
        assert inlier.any()
        assert hcm == pytest.approx(total, rel=1e-9)
