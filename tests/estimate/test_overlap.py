"""Overlap of two clouds: against a slow twin, and as evidence where candidates mislead."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

from manymatch import AssociationGraph, Options, _core, estimate_rigid_transform
from tests.support.clouds import moved, repeated_object, surface
from tests.support.synthetic_problems import random_transform

OPTIONS = Options(max_iterations=2000)
THRESHOLD = 0.05


def share_near(points, other, radius):
    """Share of points whose cell has a centre within the radius of a point of the other cloud."""
    centres = (np.floor(points / (0.5 * radius)) + 0.5) * (0.5 * radius)
    return np.mean(cKDTree(other).query(centres)[0] <= radius)


def test_share_against_brute_force():
    rng = np.random.default_rng(0)
    points0, points1 = surface(rng, 700), surface(rng, 500)
    radius = 0.15
    transforms = [np.eye(4)]
    for _ in range(20):
        transform = random_transform(rng, free_scale=True)
        transform[:3, 3] *= 0.2
        transforms.append(transform)
    found = _core.cloud_overlap(points0, points1, radius, np.array(transforms))
    expected = [
        np.sqrt(
            share_near(moved(T, points0), points1, radius)
            * share_near(moved(np.linalg.inv(T), points1), points0, radius)
        )
        for T in transforms
    ]
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert found[0] > 0.9


def test_share_does_not_depend_on_the_order_of_the_clouds():
    rng = np.random.default_rng(1)
    points0, points1 = surface(rng, 300), surface(rng, 3000)
    transform = random_transform(rng, free_scale=True)
    forth = _core.cloud_overlap(points0, points1, 0.1, transform[None])
    back = _core.cloud_overlap(points1, points0, 0.1, np.linalg.inv(transform)[None])
    np.testing.assert_allclose(forth, back, atol=1e-12)


def test_points_that_are_not_finite_are_ignored():
    points = surface(np.random.default_rng(2), 300)
    bad = np.concatenate([points, np.full((5, 3), np.nan), np.full((5, 3), np.inf)])
    share = _core.cloud_overlap(bad, bad, 0.1, np.eye(4)[None])
    np.testing.assert_array_equal(share, [1.0])


@pytest.mark.parametrize("points", [np.zeros((500, 3)), np.ones((20, 3)), np.zeros((0, 3))])
def test_clouds_without_a_surface_have_no_overlap(points):
    assert len(_core.cloud_overlap(points, points, 0.1, np.eye(4)[None])) == 0


@pytest.mark.parametrize("seed", range(5))
def test_overlap_decides_where_more_candidates_agree_with_a_wrong_transform(seed):
    graph, truth, wrong = repeated_object(seed)
    misled = estimate_rigid_transform(graph, THRESHOLD, options=OPTIONS, disable=("overlap",))
    np.testing.assert_allclose(misled.transform, wrong, atol=0.05)
    estimate = estimate_rigid_transform(graph, THRESHOLD, options=OPTIONS)
    np.testing.assert_allclose(estimate.transform, truth, atol=0.05)


def test_overlap_gives_the_same_for_any_number_of_threads():
    graph = repeated_object(7)[0]
    one, two, eight = (
        estimate_rigid_transform(graph, THRESHOLD, options=OPTIONS, threads=n) for n in (1, 2, 8)
    )
    np.testing.assert_array_equal(one.transform, two.transform)
    np.testing.assert_array_equal(one.transform, eight.transform)
    assert one.support == two.support == eight.support


def test_plain_matches_say_nothing_about_overlap():
    graph = repeated_object(3)[0]
    matches = AssociationGraph.from_matches(
        *(p[e] for p, e in zip((graph.points0, graph.points1), graph.edges.T, strict=True))
    )
    with_it, without = (
        estimate_rigid_transform(matches, THRESHOLD, options=OPTIONS, disable=parts)
        for parts in ((), ("overlap",))
    )
    np.testing.assert_array_equal(with_it.transform, without.transform)
    assert with_it.support == without.support
