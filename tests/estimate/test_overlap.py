"""Overlap of two clouds: against a slow twin, and as evidence where candidates mislead."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

from manymatch import AssociationGraph, Options, _core, estimate_rigid_transform
from manymatch.estimate.evidence import evidence
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
    points0, points1 = surface(rng, 500), surface(rng, 400)
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


def twin_of_gap(points0, points1, transform, spacing):
    """Mean distance from the tangent planes of the other cloud, in spacings."""
    gaps = []
    for points, other in (
        (moved(transform, points0), points1),
        (moved(np.linalg.inv(transform), points1), points0),
    ):
        tree = cKDTree(other)
        neighbours = other[tree.query(other, k=11)[1]]
        centred = neighbours - neighbours.mean(axis=1, keepdims=True)
        normal = np.linalg.svd(centred)[2][:, 2]
        distance, nearest = tree.query(points)
        across = np.abs(np.sum(normal[nearest] * (points - other[nearest]), axis=1))
        gaps.append(across[distance < 4.0 * spacing].mean() / spacing)
    return np.sqrt(gaps[0] * gaps[1])


NOWHERE = np.full((2, 3), np.nan)


def test_gap_between_surfaces_against_a_slow_twin():
    rng = np.random.default_rng(3)
    points0, points1, spacing = surface(rng, 900), surface(rng, 800), 0.08
    tilt = random_transform(rng)
    tilt[:3, 3] *= 0.1
    transforms = np.array([np.eye(4), tilt])
    found = _core.cloud_surfaces(points0, points1, spacing, transforms, NOWHERE)[:, 0]
    expected = [twin_of_gap(points0, points1, T, spacing) for T in transforms]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found[1] > 3.0 * found[0]


def test_points_in_front_of_what_a_sensor_saw():
    """A wall seen from 2 m, and the same wall with a quarter of it moved towards the sensor."""
    rng = np.random.default_rng(4)
    wall, other = (np.column_stack([rng.uniform(-1, 1, (900, 2)), np.full(900, 2.0)]) for _ in "ab")
    board = (other[:, :2] > 0.0).all(axis=1)
    other[board] *= 0.5  # towards the sensor: each point hides one of the wall
    places = np.array([[0.0, 0.0, 0.0], [np.nan] * 3])
    shares = _core.cloud_surfaces(wall, other, 0.1, np.eye(4)[None], places)[0, 1:]
    np.testing.assert_allclose(shares, [board.mean(), 0.0], atol=0.03)
    behind = np.eye(4)
    behind[2, 3] = -1.5  # maps the wall to before the other cloud, which is then behind it
    shares = _core.cloud_surfaces(wall, other, 0.1, behind[None], places)[0, 1:]
    np.testing.assert_array_equal(shares, 0.0)


def test_viewpoints_make_an_impossible_transform_improbable():
    """Candidates agree on a shift that hides what the sensor of cloud 1 saw."""
    rng = np.random.default_rng(6)
    points0 = surface(rng, 1000)
    points1 = surface(rng, 1000)
    chosen = np.flatnonzero(np.linalg.norm(points0[:, :2], axis=1) < 0.5)
    points1 = np.concatenate([points1, points0[chosen] + [0.0, 0.0, 1.0]])
    edges = np.stack([chosen, 1000 + np.arange(len(chosen))], axis=1)
    graph = AssociationGraph(points0, points1, edges)
    odds = []
    for place in (np.nan, -6.0, 6.0):
        places = [[np.nan] * 3, [0.0, 0.0, place]]
        found = estimate_rigid_transform(graph, THRESHOLD, options=OPTIONS, viewpoints=places)
        np.testing.assert_allclose(found.transform[:3, 3], [0.0, 0.0, 1.0], atol=1e-6)
        odds.append(evidence(found).odds)
    assert odds[0] == odds[1]  # from below, cloud 0 is behind what was seen
    assert odds[2] < odds[0] - 5.0


@pytest.mark.parametrize("viewpoints", [[0.0, 0.0, 0.0], "here", [[0, 0, 0]]])
def test_viewpoints_of_the_wrong_shape(viewpoints):
    graph = repeated_object(0)[0]
    with pytest.raises(ValueError, match="viewpoints must be the places"):
        estimate_rigid_transform(graph, THRESHOLD, viewpoints=viewpoints)


def test_surfaces_of_plain_matches_say_nothing():
    points = surface(np.random.default_rng(5), 300)
    graph = AssociationGraph.from_matches(points, points)
    known = evidence(estimate_rigid_transform(graph, THRESHOLD))
    assert len(known.features) == 3
    assert len(evidence(estimate_rigid_transform(repeated_object(0)[0], THRESHOLD)).features) == 5
