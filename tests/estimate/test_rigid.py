"""Rigid transforms and similarities: against slow twins, by their symmetries, and without any."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manymatch
from manymatch import (
    AssociationGraph,
    Options,
    _core,
    estimate_rigid_transform,
    estimate_similarity,
)
from manymatch._validate import METHODS
from tests.oracles import rigid as oracle
from tests.oracles.auto_graphs import with_graph
from tests.support.data_folder import stored_graph
from tests.support.synthetic_problems import CASES, CLOUDS, random_transform
from tests.support.synthetic_problems import transform_error as error

ESTIMATORS = {"rigid": estimate_rigid_transform, "similarity": estimate_similarity}
SOLVERS = {"rigid": _core.rigid_three_point, "similarity": _core.similarity_three_point}
both_problems = pytest.mark.parametrize("problem", list(ESTIMATORS))
THRESHOLD = CASES["rigid"].threshold


def random_graph(seed, problem="rigid", **changes):
    graph, truth = CASES[problem].graph(seed, **changes)
    return graph, truth, CASES[problem].limit(truth)


@both_problems
def test_three_point_solver_against_singular_values(problem):
    rng = np.random.default_rng(1)
    points0 = rng.uniform(-1, 1, (4000, 3, 3))
    points1 = np.array(
        [oracle.mapped(random_transform(rng, problem == "similarity"), p) for p in points0]
    )
    points1 += 0.02 * rng.standard_normal(points1.shape)
    sample, transforms = SOLVERS[problem](points0, points1, 1.0, 0.0)
    assert len(sample) > 0.999 * len(points0)  # the others are nearly collinear
    expected = [
        oracle.least_squares_transform(points0[i], points1[i], problem == "similarity")
        for i in sample
    ]
    off = np.abs(transforms - expected).max(axis=(1, 2))
    assert np.mean(off < 1e-9) > 0.999


@both_problems
@pytest.mark.parametrize("method", METHODS)
def test_a_transform_turns_and_scales(problem, method):
    graph, truth, threshold = random_graph(0, problem)
    estimate = ESTIMATORS[problem](graph, threshold, method, CLOUDS)
    scale = estimate.scale if problem == "similarity" else 1.0
    A = estimate.transform[:3, :3] / scale
    np.testing.assert_allclose(A @ A.T, np.eye(3), atol=1e-9)
    assert np.linalg.det(A) > 0
    np.testing.assert_array_equal(estimate.transform[3], [0, 0, 0, 1])
    assert abs(scale / oracle.scale_of(truth) - 1) < 0.02
    if method == "auto":
        # The noise of 0.01 was put on points1 alone and is taken to be that of both.
        expected = 0.01 * oracle.scale_of(truth) / np.sqrt(2.0)
        assert abs(estimate.noise / expected - 1) < 0.3


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from(list(ESTIMATORS)),
    st.sampled_from([2.0**-20, 0.25, 1.0, 4096.0]),
)
def test_moved_clouds_move_the_transform(seed, problem, unit):
    graph, truth, threshold = random_graph(seed, problem)
    rng = np.random.default_rng(seed)
    move0, move1 = random_transform(rng), random_transform(rng)
    move0[:3] *= unit
    move1[:3] *= unit
    moved = with_graph(
        graph,
        points0=oracle.mapped(move0, graph.points0),
        points1=oracle.mapped(move1, graph.points1),
    )
    estimate = ESTIMATORS[problem](moved, unit * threshold, "auto", CLOUDS)
    back = np.linalg.inv(move1) @ estimate.transform @ move0
    assert error(back, truth) < 0.04


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([2.0**-30, 0.125, 8.0, 2.0**20]))
def test_the_unit_of_the_points_does_not_matter(seed, unit):
    graph, _, threshold = random_graph(seed)
    scaled = with_graph(graph, points0=unit * graph.points0, points1=unit * graph.points1)
    first = estimate_rigid_transform(graph, threshold, "auto", CLOUDS)
    second = estimate_rigid_transform(scaled, unit * threshold, "auto", CLOUDS)
    np.testing.assert_array_equal(first.matches, second.matches)
    np.testing.assert_array_equal(first.transform[:3, :3], second.transform[:3, :3])
    np.testing.assert_array_equal(unit * first.transform[:3, 3], second.transform[:3, 3])
    # Powers of two change no digit; scaling one side scales the similarity.
    grown = with_graph(graph, points1=unit * graph.points1)
    third = estimate_similarity(graph, threshold, "auto", CLOUDS)
    fourth = estimate_similarity(grown, unit * threshold, "auto", CLOUDS)
    np.testing.assert_array_equal(third.matches, fourth.matches)
    np.testing.assert_array_equal(unit * third.transform[:3], fourth.transform[:3])
    assert fourth.scale == pytest.approx(unit * third.scale, rel=1e-12)


def test_far_from_the_origin():
    graph, truth, threshold = random_graph(5)
    offset = np.array([4.5e5, 5.2e6, 300.0])  # map coordinates
    moved = with_graph(graph, points0=graph.points0 + offset, points1=graph.points1 - offset)
    estimate = estimate_rigid_transform(moved, threshold, "auto", CLOUDS)
    shift = oracle.matrix(np.eye(3), offset)
    assert error(shift @ estimate.transform @ shift, truth) < 0.03


@both_problems
def test_scale_does_not_collapse(problem):
    # Many candidates end at a few points of one small place of cloud 1, where a scale of zero would
    # put all of cloud 0; the true transform has fewer.
    graph, truth, threshold = random_graph(4, problem, right=30, wrong=0, partners=1)
    graph = graph.filter(graph.edges[:, 0] == graph.edges[:, 1])
    rng = np.random.default_rng(0)
    scale = oracle.scale_of(truth)
    crowd0 = rng.uniform(-1, 1, (120, 3))
    place = oracle.mapped(truth, np.zeros((1, 3)))
    crowd1 = place + 0.5 * scale * THRESHOLD * rng.uniform(-1, 1, (12, 3))
    points0, points1 = np.vstack([graph.points0, crowd0]), np.vstack([graph.points1, crowd1])
    crowd = np.column_stack([np.arange(120), np.arange(120) % 12]) + len(graph.points0)
    edges = np.concatenate([graph.edges, crowd])
    for method in METHODS:
        estimate = ESTIMATORS[problem](
            AssociationGraph(points0, points1, edges), threshold, method, CLOUDS
        )
        assert error(estimate.transform, truth) < 0.05


def test_a_mirrored_cloud_has_no_transform():
    points = np.random.default_rng(0).uniform(0, 5, (200, 3))
    graph = AssociationGraph.from_matches(points, points * [-1.0, 1.0, 1.0])
    for estimator in ESTIMATORS.values():
        estimate = estimator(graph, 0.05, "auto", CLOUDS)
        assert not estimate.success or estimate.cardinality < 20


@both_problems
def test_a_plane_is_enough(problem):
    rng = np.random.default_rng(6)
    truth = random_transform(rng, problem == "similarity")
    points = np.column_stack([rng.uniform(-1, 1, (40, 2)), np.zeros(40)])
    graph = AssociationGraph.from_matches(points, oracle.mapped(truth, points))
    for method in METHODS:
        estimate = ESTIMATORS[problem](graph, 0.05, method, CLOUDS)
        np.testing.assert_allclose(estimate.transform, truth, atol=1e-7)


@both_problems
@pytest.mark.parametrize("threshold", [1e-300, 1e-9, 50.0, 1e300])
def test_any_threshold_and_any_size_of_the_points(problem, threshold):
    rng = np.random.default_rng(2)
    points = rng.uniform(-1, 1, (30, 3))
    for size in (1e-200, 1.0, 1e200, 1e307):
        graph = AssociationGraph.from_matches(size * points, size * points[:, [1, 2, 0]])
        estimate = ESTIMATORS[problem](graph, threshold, "auto", CLOUDS)
        assert estimate.success == (estimate.transform is not None)
        assert estimate.success or estimate.failure
        if estimate.success:
            assert np.isfinite(estimate.transform).all()


@both_problems
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"threshold": 0.0}, "threshold must be a finite number above 0, got 0"),
        ({"threshold": "auto"}, "threshold must be a finite number above 0, got 'auto'"),
        ({"threshold": float("nan")}, "threshold must be a finite number above 0"),
        ({"threshold_px": 2.0}, "threshold_px must be left out .* got threshold_px=2.0"),
        ({"options": Options(threshold_px="auto")}, "options.threshold_px must be a number"),
    ],
)
def test_bad_thresholds_are_one_sentence(problem, arguments, sentence):
    points = np.random.default_rng(0).uniform(0, 1, (10, 3))
    graph = AssociationGraph.from_matches(points, points)
    with pytest.raises(ValueError, match=f"^{sentence}[^\n]*$"):
        ESTIMATORS[problem](**{"graph": graph, "threshold": 0.1, **arguments})


@both_problems
@pytest.mark.parametrize("pair", ["lidar", "3dmatch", "fgr_range"])
def test_real_clouds(problem, pair):
    graph, arrays = stored_graph(f"registration/{pair}/*.npz")
    truth, voxel = oracle.matrix(arrays["R"], arrays["t"]), float(arrays["voxel"])
    estimator = getattr(manymatch, ESTIMATORS[problem].__name__)
    estimate = estimator(graph, 1.5 * voxel)
    right = graph.points0[estimate.matches[:, 0]]
    off = oracle.mapped(estimate.transform, right) - oracle.mapped(truth, right)
    assert np.sqrt(np.mean(np.sum(off**2, axis=1))) < 4 * voxel


@both_problems
def test_memory_of_assess_grows_with_the_matches(problem):
    points = np.random.default_rng(3).uniform(0, 5, (20_000, 3))
    found = ESTIMATORS[problem](AssociationGraph.from_matches(points, points + 1.0), 0.05)
    assert len(found.matches) == 20_000
    tracemalloc.start()
    confidence = manymatch.assess(found)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert confidence.verdict == "solved"
    assert peak < 100e6
