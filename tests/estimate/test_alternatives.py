"""Scenes that two poses explain alike: both are listed, each with matches of its own."""

import numpy as np
import pytest

import manymatch
from benchmarks.accuracy import alternatives
from benchmarks.accuracy.alternatives import K, case_of, scene_cases
from manymatch import pose_error_deg
from manymatch._validate import METHODS
from tests.oracles.auto_graphs import constant, synthetic_graph
from tests.oracles.matching import is_matching
from tests.support.synthetic_problems import corner_error, mapped

SEEDS = range(12)
OPTIONS = manymatch.Options(max_iterations=5_000, threads=1)


def solve(scene, seed):
    return manymatch.estimate_relative_pose(scene.graph, K, K, "auto", OPTIONS, seed=seed)


@pytest.mark.parametrize("kind", alternatives.SCENES)
def test_scenes_have_two_exact_solutions(kind):
    for seed in SEEDS[:4]:
        scene = alternatives.SCENES[kind](seed)
        sizes = [
            manymatch.score_pose(scene.graph, K, K, pose, threshold_px=1.5).cardinality
            for pose in (scene.true, scene.other)
        ]
        assert min(sizes) > 0.85 * max(sizes)
        assert min(sizes) > 50
        assert pose_error_deg(scene.other, scene.true.R, scene.true.t) > 15.0


@pytest.mark.parametrize("kind", alternatives.SCENES)
def test_both_poses_are_listed_with_probabilities_and_matches(kind):
    both = 0
    for seed in SEEDS:
        scene = alternatives.SCENES[kind](seed)
        estimate = solve(scene, seed)
        both += case_of(estimate, (scene.true.R, scene.true.t), scene.other).both
        stated = [other.probability for other in estimate.alternatives]
        assert stated == sorted(stated, reverse=True)
        assert min(stated) >= constant("kLeastProbability")
        assert 0.0 < 1.0 - sum(stated) < 1.0
        for other in estimate.alternatives:
            assert is_matching(other.matches)
            # As many as any matching of its inliers has, and all of them inliers.
            score = manymatch.score_pose(scene.graph, K, K, other.model, OPTIONS)
            assert other.cardinality == len(other.matches) == score.cardinality
            inliers = set(map(tuple, scene.graph.edges[score.inliers].tolist()))
            assert inliers.issuperset(map(tuple, other.matches.tolist()))
            assert other.support > 0.0
    assert both >= len(SEEDS) - 1


@pytest.mark.parametrize("kind", alternatives.SCENES)
def test_pose_with_equal_alternative_is_not_called_solved(kind):
    # What is stated for the true pose is about one half, chosen or not.
    cases = list(scene_cases(kind, 15))
    stated = [case.probability[case.right] for case in cases if case.right >= 0]
    assert len(stated) >= 14
    assert 0.35 < np.mean(stated) < 0.8
    assert np.mean([case.probability.max() for case in cases]) < 0.9


def test_the_motion_filter_does_not_decide_between_two_motions():
    # It keeps the edges of one, which have more support; the other is listed all the same.
    decided = []
    for seed in SEEDS[:6]:
        estimate = solve(alternatives.facade_scene(seed), seed)
        second = max(estimate.alternatives, key=lambda other: other.support)
        stated = second.probability / (second.probability + chosen_probability(estimate))
        by_support = (second.support - estimate.support) / constant("kNatsPerOdds")
        decided.append((stated, 1.0 / (1.0 + np.exp(-by_support))))
    stated, by_support = np.array(decided).T
    assert np.median(stated) > 2.0 * np.median(by_support)


def chosen_probability(estimate):
    return 1.0 - sum(other.probability for other in estimate.alternatives)


def test_a_scene_with_one_pose_has_no_likely_alternative():
    for seed in range(6):
        synthetic = synthetic_graph(80 + seed, 120, candidates=2, first=0.8, present=0.9)
        estimate = manymatch.estimate_relative_pose(synthetic.graph, K, K, "auto", OPTIONS)
        assert pose_error_deg(estimate.pose, synthetic.R, synthetic.t) < 2.0
        assert chosen_probability(estimate) > 0.95


@pytest.mark.parametrize("method", METHODS[1:])
def test_only_auto_has_alternatives(method):
    scene = alternatives.plane_scene(0)
    estimate = manymatch.estimate_relative_pose(scene.graph, K, K, method, OPTIONS)
    assert estimate.alternatives == ()
    assert np.isnan(estimate.support)


def test_alternatives_of_a_homography():
    # Two planes that move each in its own way, of nearly as many points.
    rng = np.random.default_rng(5)
    first = np.array([[1.0, 0.05, 30.0], [-0.05, 1.0, -10.0], [0.0, 0.0, 1.0]])
    second = np.array([[0.9, -0.2, 150.0], [0.2, 0.9, 40.0], [0.0, 0.0, 1.0]])
    points = rng.uniform(0.0, 800.0, (110, 2))
    moved = np.concatenate([mapped(first, points[:56]), mapped(second, points[56:])])
    moved += rng.normal(scale=0.3, size=moved.shape)
    edges = np.repeat(np.arange(110), 2).reshape(-1, 2)
    graph = manymatch.AssociationGraph(points, moved, edges)
    estimate = manymatch.estimate_homography(graph, "auto", OPTIONS)
    models = [estimate.homography, *(other.model for other in estimate.alternatives)]
    assert min(corner_error(model, first) for model in models) < 3.0
    assert min(corner_error(model, second) for model in models) < 3.0
    assert all(model[2, 2] == pytest.approx(1.0) for model in models)
