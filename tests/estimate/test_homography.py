"""Homographies: against slow twins, by their symmetries, and where there is none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manymatch
from manymatch import AssociationGraph, Options, _core, estimate_homography
from tests.oracles import homography as oracle
from tests.oracles.auto_graphs import with_graph
from tests.support.data_folder import stored_graph
from tests.support.synthetic_problems import (
    PLANAR,
    SIZE,
    corner_error,
    mapped,
    planar_graph,
    random_homography,
)


def test_four_point_solver_against_the_null_space():
    rng = np.random.default_rng(1)
    points0 = rng.uniform(-1, 1, (4000, 4, 2))
    points1 = np.array([mapped(random_homography(rng), SIZE * (p + 1) / 2) for p in points0]) / 400
    points1[::2] = rng.uniform(-1, 1, (2000, 4, 2))
    sample, H = _core.four_point(points0, points1)
    expected = [oracle.four_point(a, b) for a, b in zip(points0, points1, strict=True)]
    solvable = {i for i, h in enumerate(expected) if h is not None}
    assert set(sample.tolist()) <= solvable
    assert len(sample) > 0.99 * len(solvable)  # the others are nearly collinear
    off = [min(np.abs(h - expected[i]).max(), 1.0) for i, h in zip(sample, H, strict=True)]
    assert np.mean(np.array(off) < 1e-7) > 0.999


def test_affine_maps_have_a_third_row_of_zero_zero_one():
    graph, _ = planar_graph(2, affine=True)
    estimate = estimate_homography(graph, options=PLANAR, model="affine")
    assert estimate.homography[2].tolist() == [0.0, 0.0, 1.0]
    far = with_graph(graph, points0=graph.points0 + 1e13)
    moved = estimate_homography(far, options=PLANAR, model="affine")
    assert moved.homography[2].tolist() == [0.0, 0.0, 1.0]
    eight = estimate_homography(graph, options=PLANAR)
    assert estimate.cardinality <= eight.cardinality + 2
    with pytest.raises(ValueError, match="model must be one of 'homography', 'affine'"):
        estimate_homography(graph, model="similarity")


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.25, 0.5, 2.0, 64.0]))
def test_the_unit_of_pixels_does_not_matter(seed, scale):
    graph, _ = planar_graph(seed)
    scaled = with_graph(graph, points0=scale * graph.points0, points1=scale * graph.points1)
    options = PLANAR.replace(disable=("filter",))  # which counts in whole pixels
    first = estimate_homography(graph, "auto", options)
    second = estimate_homography(scaled, "auto", options, threshold_px=scale * PLANAR.threshold_px)
    np.testing.assert_array_equal(first.matches, second.matches)
    S = np.diag([scale, scale, 1.0])
    expected = S @ first.homography @ np.linalg.inv(S)
    np.testing.assert_allclose(second.homography, expected, rtol=1e-6, atol=1e-9)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_shifted_images_shift_the_homography(seed):
    graph, truth = planar_graph(seed)
    shifted = with_graph(graph, points0=graph.points0 + 4096.0, points1=graph.points1 - 2048.0)
    estimate = estimate_homography(shifted, "hcm-mcm", PLANAR)
    into, out = np.eye(3), np.eye(3)
    into[:2, 2], out[:2, 2] = 4096.0, 2048.0
    assert corner_error(out @ estimate.homography @ into, truth) < 3.0


def test_pure_translation_and_identity_are_exact():
    points = np.random.default_rng(0).uniform(0, 500, (40, 2))
    graph = AssociationGraph.from_matches(points, points + np.array([30.0, -12.0]))
    H = estimate_homography(graph).homography
    assert H[2, 2] == 1.0
    np.testing.assert_allclose(H, [[1, 0, 30], [0, 1, -12], [0, 0, 1]], atol=1e-9)


def test_a_mirrored_image_has_no_homography():
    points = np.random.default_rng(0).uniform(0, 500, (200, 2))
    graph = AssociationGraph.from_matches(points, points * [-1.0, 1.0])
    estimate = estimate_homography(graph, "auto", PLANAR)
    assert not estimate.success or estimate.cardinality < 20


def test_points_beyond_the_horizon_are_outliers():
    rng = np.random.default_rng(5)
    H = np.array([[1.0, 0.1, 5.0], [0.0, 1.2, -3.0], [0.0, 4e-3, 1.0]])  # horizon at y = -250
    points = rng.uniform([0, 0], [500, 500], (60, 2))
    beyond = rng.uniform([0, -900], [500, -400], (20, 2))
    both = np.concatenate([points, beyond])
    estimate = estimate_homography(AssociationGraph.from_matches(both, mapped(H, both)))
    assert estimate.inliers[:60].all()
    assert not estimate.inliers[60:].any()
    np.testing.assert_allclose(estimate.homography, H, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("pair", ["oxford/bikes_1_2", "oxford/graf_1_2", "homogr/adam"])
def test_real_images(pair):
    graph, arrays = stored_graph(f"homography/{pair}.npz")
    truth, size = arrays["H"], arrays["size0"].astype(float)
    estimate = manymatch.estimate_homography(graph, options=Options(threshold_px=3.0))
    middle = np.array([size * f for f in (0.3, 0.5, 0.7)])
    off = np.linalg.norm(mapped(estimate.homography, middle) - mapped(truth, middle), axis=1)
    assert off.max() < 3.0


def test_exact_points_in_one_place_do_not_outweigh_the_others():
    """Two thirds of the points are exact and close together; the corners are far from them."""
    corners = np.array([[0, 0, 1], [1000, 0, 1], [1000, 800, 1], [0, 800, 1]], float)
    errors = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        near, far = rng.normal([500, 400], 60, (300, 2)), rng.uniform(0, [1000, 800], (150, 2))
        noise = np.concatenate([rng.normal(0, 0.1, (300, 2)), rng.uniform(-2, 2, (150, 2))])
        points = np.concatenate([near, far])
        graph = manymatch.AssociationGraph.from_matches(points, points + noise)
        found = manymatch.estimate_homography(graph, threshold_px=3.0, seed=seed)
        mapped = corners @ found.homography.T
        errors.append(np.linalg.norm(mapped[:, :2] / mapped[:, 2:] - corners[:, :2], axis=1).mean())
    assert np.mean(errors) < 0.65
