"""What must hold for every estimate's confidence."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import manymatch
from manymatch.datasets.synthetic import rotation_matrix
from manymatch.datasets.synthetic import EASY, ORDERING, make_scene
from manymatch.estimate import _chance
from manymatch.estimate._planarity import planar_twin
from manymatch.estimate.confidence import assess

OPTIONS = manymatch.Options(min_iterations=500, max_iterations=2000)
methods = st.sampled_from(["auto", "hcm-mcm"])
coordinates = st.floats(-10, 10, allow_subnormal=False)
vectors = arrays(np.float64, 3, elements=st.floats(-1, 1, allow_subnormal=False))


@given(
    points=st.integers(1, 60).flatmap(lambda n: arrays(np.float64, (n, 2), elements=coordinates)),
    seed=st.integers(0, 2**32),
)
def test_rearranging_keeps_what_is_within_a_part(points, seed):
    part = _chance.parts_of(points)
    sizes = np.bincount(part, minlength=9)
    assert sizes.max() <= math.ceil(math.ceil(len(points) / 3) / 3)
    moved = _chance.rearrange(points, np.random.default_rng(seed))
    assert moved.shape == points.shape
    np.testing.assert_array_equal(moved, _chance.rearrange(points, np.random.default_rng(seed)))
    for p in range(9):
        before, after = points[part == p], moved[part == p]
        gaps = [np.linalg.norm(x[:, None] - x[None], axis=2) for x in (before, after)]
        np.testing.assert_allclose(gaps[0], gaps[1], atol=1e-9)


@given(
    sizes=st.lists(st.integers(0, 500), min_size=2, max_size=12),
    size=st.integers(0, 2000),
    ratio=st.floats(1, 1e6),
)
def test_the_chance_falls_with_the_size_and_grows_with_the_search(sizes, size, ratio):
    chance, typical = _chance.tail(np.array(sizes), size, ratio)
    assert 0.0 <= chance <= 1.0
    assert typical >= np.mean(sizes)
    assert _chance.tail(np.array(sizes), size + 1, ratio)[0] <= chance
    assert _chance.tail(np.array(sizes), size, 2 * ratio)[0] >= chance


@given(turn=vectors, t=vectors, plane=vectors)
def test_the_twin_has_the_same_homography(turn, t, plane):
    if np.linalg.norm(t) < 1e-2 or np.linalg.norm(plane) < 1e-2:
        return
    R, t = rotation_matrix(turn), t / np.linalg.norm(t)
    homography = R + np.outer(t, plane)
    values = np.linalg.svd(homography, compute_uv=False)
    # Without a gap between the singular values there is no second pose, or it is ill-determined.
    if min(values[0] - values[1], values[1] - values[2]) < 1e-2 or np.linalg.det(homography) < 1e-2:
        return
    x0 = np.random.default_rng(0).uniform(-0.3, 0.3, (20, 2))
    twin = planar_twin(R, t, plane, x0)
    assert twin is not None
    R1, t1 = twin
    np.testing.assert_allclose(R1 @ R1.T, np.eye(3), atol=1e-9)
    assert np.linalg.det(R1) > 0
    # H / middle singular value = R1 + t1 v1' for some plane v1: the rest of the rows are t1's.
    rest = homography / values[1] - R1
    across = rest - np.outer(t1, t1 @ rest)
    assert np.linalg.norm(across) < 1e-6
    assert np.linalg.norm(R1 - R) > 1e-4


def record(scene, method, graph=None, cameras=None, options=OPTIONS):
    graph = scene.graph if graph is None else graph
    cameras = (scene.camera0, scene.camera1) if cameras is None else cameras
    estimate = manymatch.estimate_relative_pose(graph, *cameras, method, options)
    return assess(graph, *cameras, estimate)


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10_000), power=st.sampled_from([-3, -1, 1, 4]), method=methods)
def test_pixels_may_be_of_any_size(seed, power, method):
    scene = make_scene(EASY, seed)
    s = 2.0**power  # exact in binary, so that even rounding stays the same
    K = scene.camera0.K
    scale = np.diag([s, s, 1.0])
    graph = scene.graph
    scaled = manymatch.AssociationGraph(
        s * graph.points0, s * graph.points1, graph.edges, graph.similarity, graph.rank
    )
    # The motion filter rounds its grids to whole pixels, so that it alone knows how large they are.
    plain_options = OPTIONS.replace(without=("filter",))
    options = plain_options.replace(threshold_px=s * OPTIONS.threshold_px)
    plain = record(scene, method, graph, (K, K), plain_options).to_dict()
    other = record(scene, method, scaled, (scale @ K, scale @ K), options).to_dict()
    assert other.pop("noise_px") == pytest.approx(s * plain.pop("noise_px"), rel=1e-9)
    assert json.dumps(other) == json.dumps(plain)


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10_000), config=st.sampled_from([EASY, ORDERING]), method=methods)
def test_swapping_the_images_tells_the_same(seed, config, method):
    scene = make_scene(dataclasses.replace(config, noise_px=0.4), seed)
    graph = scene.graph
    swapped = manymatch.AssociationGraph(
        graph.points1, graph.points0, graph.edges[:, ::-1], graph.similarity, graph.rank
    )
    options = OPTIONS.replace(max_iterations=10_000)
    first = record(scene, method, options=options)
    second = record(scene, method, swapped, (scene.camera1, scene.camera0), options)
    if abs(first.num_matches - second.num_matches) > 3:
        return  # one of the two searches did not get there
    assert max(first.chance, second.chance) < 1e-6
    assert first.verdict == second.verdict
    assert second.parallax_deg == pytest.approx(first.parallax_deg, rel=0.1)
    assert second.rotation_sd_deg == pytest.approx(first.rotation_sd_deg, rel=0.7)
