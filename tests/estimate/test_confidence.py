"""How sure an estimate is: verdict, chance against a slow twin, and input that is no scene."""

import dataclasses
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import manymatch
from manymatch.datasets.synthetic import (
    EASY,
    LOW_PARALLAX,
    ORDERING,
    PLANAR,
    make_scene,
    rotation_matrix,
)
from manymatch.estimate import confidence
from manymatch.estimate.confidence import assess
from manymatch.estimate.prepare import PreparedPair
from manymatch.estimate.relative_pose import prepare
from manymatch.estimate.uncertainty import planar_twin
from manymatch.evaluate import pose_error_deg

K = np.array([[800.0, 0.0, 512.0], [0.0, 800.0, 384.0], [0.0, 0.0, 1.0]])
OPTIONS = manymatch.Options(min_iterations=500, max_iterations=3000)


# The default and the paper's method.
BOTH = pytest.mark.parametrize("method", ["auto", "hcm-mcm"])


def solve(graph, camera0=K, camera1=K, options=OPTIONS, method="hcm-mcm"):
    estimate = manymatch.estimate_relative_pose(graph, camera0, camera1, method, options)
    return estimate, assess(estimate)


def solve_scene(config, seed, method="hcm-mcm"):
    scene = make_scene(config, seed)
    return scene, *solve(scene.graph, scene.camera0, scene.camera1, method=method)


def clutter(rng, count=80):
    points = [rng.uniform((0, 0), (1023, 767), (count, 2)) for _ in range(2)]
    looks = [rng.standard_normal((count, 16)) for _ in range(2)]
    return manymatch.AssociationGraph(*points, *manymatch.associate(*looks, k=5))


def plain(record):
    """Assert that a record is plain JSON, without NaN, and return what a reader gets."""
    return json.loads(json.dumps(record, allow_nan=False))


# The verdict


@BOTH
@pytest.mark.parametrize("config", [EASY, ORDERING])
def test_a_scene_that_is_solved_says_so(config, method):
    scene, estimate, sure = solve_scene(config, 3, method)
    assert pose_error_deg(estimate.pose, scene.pose.R, scene.pose.t) < 2
    assert sure.verdict == "solved"
    assert sure.chance < 1e-10
    assert sure.chance_matches < 0.5 * sure.num_matches == 0.5 * estimate.cardinality
    assert sure.rotation_sd_deg < 1
    assert sure.translation_sd_deg < 2
    assert sure.parallax_deg == estimate.parallax_deg
    assert 0.3 < sure.noise_px < 0.8  # 0.5 px were added
    assert sure.rotation_only < 0.1


@pytest.mark.parametrize("method", ["auto", "hcm-mcm", "hcm", "mcm", "cm"])
def test_clutter_is_weak_by_every_method(method):
    estimate, sure = solve(clutter(np.random.default_rng(1)), method=method)
    assert estimate.success
    assert sure.verdict == "weak"
    assert "by chance" in sure.reason
    assert sure.chance > 0.01
    assert abs(sure.chance_matches - sure.num_matches) < 4


@BOTH
def test_the_claimed_chance_is_not_too_small_on_clutter(method):
    options = manymatch.Options(min_iterations=1000, max_iterations=1000)
    claimed = [
        solve(
            clutter(np.random.default_rng([seed, 2])),
            options=options.replace(seed=seed),
            method=method,
        )[1]
        for seed in range(40)
    ]
    chances = np.array([sure.chance for sure in claimed])
    # Binomial(40, p) exceeds these counts with probability below 1e-3.
    assert np.sum(chances <= 0.5) <= 29
    assert np.sum(chances <= 0.1) <= 10
    assert np.sum(chances <= 0.01) <= 3
    assert not any(sure.verdict == "solved" for sure in claimed)


@BOTH
def test_a_rotation_is_degenerate(method):
    scene, estimate, sure = solve_scene(LOW_PARALLAX, 2, method)
    assert sure.verdict == "degenerate"
    assert sure.low_parallax
    assert sure.parallax_deg == estimate.parallax_deg < 0.3
    assert "trust the rotation" in sure.reason
    # The rotation is known, and the claim says so.
    assert np.linalg.norm(estimate.pose.R - scene.pose.R) < 0.01
    assert sure.rotation_sd_deg < 1 < sure.translation_sd_deg


@BOTH
def test_a_plane_is_seen_and_called_degenerate_only_if_a_second_pose_fits(method):
    verdicts = set()
    for seed in range(300, 316):
        scene, estimate, sure = solve_scene(PLANAR, seed, method)
        verdicts.add(sure.verdict)
        if sure.verdict == "weak":
            continue
        assert sure.planar > 0.9
        assert (sure.verdict == "degenerate") == (sure.planar_twin >= 0.9)
        if sure.verdict == "solved":
            assert pose_error_deg(estimate.pose, scene.pose.R, scene.pose.t) < 5
    assert verdicts >= {"solved", "degenerate"}


def test_depth_is_no_plane():
    assert solve_scene(EASY, 4)[2].planar < 0.5


def test_matches_that_hardly_determine_the_pose_are_weak():
    # Everything in one corner of the image, seen with little parallax.
    config = dataclasses.replace(
        EASY, baseline=(0.06, 0.06), noise_px=0.7, width=300, height=225, num_outliers=0
    )
    verdicts = [solve_scene(config, seed)[2] for seed in range(4)]
    assert all(sure.verdict in ("weak", "degenerate") for sure in verdicts)
    assert any("hardly determine" in sure.reason for sure in verdicts)


# Input that is no scene


def graph_of(points0, points1, edges):
    return manymatch.AssociationGraph(points0, points1, np.reshape(edges, (-1, 2)))


def test_a_failed_estimate_is_failed():
    graph = graph_of(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros((0, 2), dtype=int))
    estimate, sure = solve(graph)
    assert not estimate.success
    assert sure.verdict == "failed"
    assert estimate.failure in sure.reason
    assert sure.chance == 1.0
    record = plain(sure.to_dict())
    assert record["covariance"] == [[None] * 5] * 5
    assert record["rotation_sd_deg"] is None
    assert record["chance_matches"] is None
    assert str(sure).startswith("Failed: ")
    assert "\n" not in str(sure)


def test_five_matches_say_nothing():
    scene = make_scene(EASY, 0)
    matches = scene.true_matches[:5]
    estimate, sure = solve(
        graph_of(scene.graph.points0, scene.graph.points1, matches), scene.camera0, scene.camera1
    )
    assert estimate.success
    assert (sure.verdict, sure.chance) == ("weak", 1.0)
    assert "number of distinct matches is 5" in sure.reason
    assert np.isnan(sure.covariance).all()
    assert sure.translation_sd_deg == math.inf
    plain(sure.to_dict())
    assert "unknown" in str(sure)


@pytest.mark.parametrize("count", [6, 7, 8, 12])
def test_few_matches_do_not_crash(count):
    scene = make_scene(EASY, 1)
    matches = scene.true_matches[:count]
    sure = solve(
        graph_of(scene.graph.points0, scene.graph.points1, matches), scene.camera0, scene.camera1
    )[1]
    assert sure.verdict in ("weak", "degenerate")
    plain(sure.to_dict())


@pytest.mark.parametrize("distinct", [1, 2, 5, 7])
def test_repeated_points_do_not_crash(distinct):
    rng = np.random.default_rng(distinct)
    places = [rng.uniform(0, 700, (distinct, 2)) for _ in range(2)]
    index = np.arange(40) % distinct
    graph = graph_of(places[0][index], places[1][index], np.column_stack([range(40)] * 2))
    sure = solve(graph)[1]
    # Forty keypoints, but as few places: nothing here is a pose.
    assert sure.verdict != "solved"
    plain(sure.to_dict())
    str(sure)


LINE = np.linspace(0, 700, 50)[:, None] * [1.0, 0.7]
SPREAD = np.random.default_rng(3).uniform(0, 700, (60, 2))


@pytest.mark.parametrize("points", [(SPREAD, SPREAD), (LINE, LINE + 30.0)], ids=["equal", "line"])
def test_equal_images_and_points_on_a_line_are_not_solved(points):
    sure = solve(graph_of(*points, np.column_stack([range(len(points[0]))] * 2)))[1]
    assert sure.verdict in ("weak", "degenerate", "failed")
    plain(sure.to_dict())


def test_pixels_that_cannot_be_undistorted_take_no_part():
    scene, estimate, _ = solve_scene(EASY, 0)
    pair = prepare(scene.graph, scene.camera0, scene.camera1, estimate.options)
    expected = confidence.random_matchings(pair, estimate, runs=3, iterations=100)
    # One keypoint more, without a place: the others are rearranged as before.
    pair.x1 = np.vstack([pair.x1, [[np.nan, np.nan]]])
    pair.edges = np.vstack([pair.edges, [[0, len(pair.x1) - 1]]]).astype(np.int32)
    pair.graph = manymatch.AssociationGraph(
        np.zeros((len(pair.x0), 2)), np.zeros((len(pair.x1), 2)), pair.edges
    )
    found = confidence.random_matchings(pair, estimate, runs=3, iterations=100)
    assert np.abs(found - expected).max() <= 3
    assert found.min() > 5


def test_other_arguments_are_refused():
    _, estimate, _ = solve_scene(EASY, 0)
    with pytest.raises(ValueError, match=r"estimate must be an Estimate, got 3"):
        assess(3)
    other = dataclasses.replace(estimate, pose=None, homography=np.eye(3), _cameras=None)
    with pytest.raises(ValueError, match=r"estimate must be one of a relative pose"):
        assess(other)


def test_an_estimate_can_be_pickled_and_assessed():
    _, estimate, sure = solve_scene(EASY, 0)
    again = pickle.loads(pickle.dumps(estimate))  # noqa: S301
    assert plain(assess(again).to_dict()) == plain(sure.to_dict())
    assert "_graph" not in repr(estimate)


def test_it_depends_on_the_input_and_the_seed_only():
    _, estimate, first = solve_scene(ORDERING, 5)
    solve_scene(EASY, 1)
    again = assess(estimate)
    assert plain(again.to_dict()) == plain(first.to_dict())
    alone = dataclasses.replace(estimate, options=estimate.options.replace(threads=1))
    assert plain(assess(alone).to_dict()) == plain(first.to_dict())
    other = dataclasses.replace(estimate, options=estimate.options.replace(seed=9))
    assert assess(other).chance != first.chance


# Chance


def rearranged_slowly(points, rng):
    """Columns, then rows, then each part moved and turned, one point at a time."""
    n = len(points)
    part = {}
    columns = [[], [], []]
    for place, i in enumerate(sorted(range(n), key=lambda i: (points[i][0], i))):
        columns[place * 3 // n].append(i)
    for c, column in enumerate(columns):
        for place, i in enumerate(sorted(column, key=lambda i: (points[i][1], i))):
            part[i] = 3 * c + place * 3 // len(column)
    members = [[i for i in range(n) if part[i] == p] for p in range(9)]
    middles = [sum(complex(*points[i]) for i in m) / len(m) if m else 0j for m in members]
    place, turns = rng.permutation(9), rng.integers(0, 4, 9)
    moved = []
    for i in range(n):
        offset = (complex(*points[i]) - middles[part[i]]) * 1j ** int(turns[part[i]])
        goal = middles[place[part[i]]] + offset
        moved.append((goal.real, goal.imag))
    return np.array(moved)


@pytest.mark.parametrize("count", [1, 2, 7, 9, 10, 31, 200])
def test_rearranging_equals_its_slow_twin(count):
    points = np.random.default_rng(count).normal(size=(count, 2))
    fast = confidence.rearrange(points, np.random.default_rng(5))
    slow = rearranged_slowly(points.tolist(), np.random.default_rng(5))
    np.testing.assert_allclose(fast, slow, atol=1e-12)


def test_random_matchings_are_those_of_the_public_estimator_on_moved_pixels():
    scene, estimate, _ = solve_scene(EASY, 6)
    graph = scene.graph
    pair = prepare(graph, scene.camera0, scene.camera1, estimate.options)
    found = confidence.random_matchings(pair, estimate, runs=4, iterations=200)
    rng = np.random.default_rng(np.random.SeedSequence([estimate.options.seed, confidence._STREAM]))
    used = np.unique(graph.edges[:, 1])
    slow = []
    for _ in range(4):
        x1 = pair.x1.copy()
        x1[used] = rearranged_slowly(x1[used].tolist(), rng)
        moved = manymatch.AssociationGraph(pair.x0, x1, graph.edges, rank=graph.rank)
        options = estimate.options.replace(
            min_iterations=200,
            max_iterations=200,
            seed=int(rng.integers(2**63)),
            threshold_px=pair.eps,
        )
        slow.append(
            manymatch.estimate_relative_pose(moved, np.eye(3), np.eye(3), "hcm-mcm", options)
        )
    np.testing.assert_array_equal(found, [e.cardinality for e in slow])
    # What is left of the scene after rearranging is far from the scene.
    assert found.max() < 0.5 * estimate.cardinality


def test_the_filter_runs_once_for_all_searches_and_changes_none(monkeypatch):
    scene = make_scene(ORDERING, seed=4)
    options = manymatch.Options(max_iterations=1000)
    estimate = manymatch.estimate_relative_pose(scene.graph, K, K, "auto", options)
    pair = prepare(scene.graph, K, K, options)
    once = confidence.random_matchings(pair, estimate, runs=8, iterations=60)
    plain, given = PreparedPair.for_core, []

    def every_time(self, x1, kept=None):
        given.append(kept)
        return plain(self, x1)

    monkeypatch.setattr(PreparedPair, "for_core", every_time)
    each = confidence.random_matchings(pair, estimate, runs=8, iterations=60)
    np.testing.assert_array_equal(once, each)
    kept = given[1]
    assert given[0] is None
    assert all(np.array_equal(mask, kept) for mask in given[1:])
    size = (1.0, 1.0)
    np.testing.assert_array_equal(kept, manymatch.gms_filter(scene.graph, size, size).mask)
    assert 0 < kept.sum() < kept.size


@BOTH
def test_longer_searches_find_what_the_short_ones_say(method):
    graph = clutter(np.random.default_rng(8), 120)
    options = manymatch.Options(min_iterations=4000, max_iterations=4000)
    typical, long = [], []
    for seed in range(6):
        seeded = options.replace(seed=seed)
        estimate = manymatch.estimate_relative_pose(graph, K, K, method, seeded)
        pair = prepare(graph, K, K, seeded)
        typical.append(confidence.chance_of_matching(pair, estimate, estimate.cardinality)[1])
        long.extend(confidence.random_matchings(pair, estimate, runs=2, iterations=4000))
    # The samples of "auto" repeat themselves sooner, so that it finds less: the careful side.
    above = np.mean(typical) - np.mean(long)
    assert -1.5 < above < (2.5 if method == "auto" else 1.5)


def test_the_tail_is_that_of_a_gumbel_variable():
    rng = np.random.default_rng(0)
    sizes = np.array([10, 12, 11, 11, 13, 10])
    scale = math.sqrt(6 * (4 * 0.09 * sizes.mean() + 5 * sizes.var(ddof=1)) / 9) / math.pi
    location = sizes.mean() - 0.5772156649 * scale
    drawn = location + 1.4 * scale * rng.gumbel(size=(20_000, 10)).max(axis=1)
    for size in (12, 14, 16, 18):
        chance = confidence.tail(sizes, size, ratio=10.0)[0]
        assert chance == pytest.approx(np.mean(drawn >= size - 0.5), abs=0.015)


# What holds for every estimate

QUICK = manymatch.Options(min_iterations=500, max_iterations=2000)
methods = st.sampled_from(["auto", "hcm-mcm"])
coordinates = st.floats(-10, 10, allow_subnormal=False)
vectors = arrays(np.float64, 3, elements=st.floats(-1, 1, allow_subnormal=False))


@given(
    points=st.integers(1, 60).flatmap(lambda n: arrays(np.float64, (n, 2), elements=coordinates)),
    seed=st.integers(0, 2**32),
)
def test_rearranging_keeps_what_is_within_a_part(points, seed):
    part = confidence.parts_of(points)
    sizes = np.bincount(part, minlength=9)
    assert sizes.max() <= math.ceil(math.ceil(len(points) / 3) / 3)
    moved = confidence.rearrange(points, np.random.default_rng(seed))
    assert moved.shape == points.shape
    np.testing.assert_array_equal(moved, confidence.rearrange(points, np.random.default_rng(seed)))
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
    chance, typical = confidence.tail(np.array(sizes), size, ratio)
    assert 0.0 <= chance <= 1.0
    assert typical >= np.mean(sizes)
    assert confidence.tail(np.array(sizes), size + 1, ratio)[0] <= chance
    assert confidence.tail(np.array(sizes), size, 2 * ratio)[0] >= chance


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


def record(scene, method, graph=None, cameras=None, options=QUICK):
    graph = scene.graph if graph is None else graph
    cameras = (scene.camera0, scene.camera1) if cameras is None else cameras
    estimate = manymatch.estimate_relative_pose(graph, *cameras, method, options)
    return assess(estimate)


@settings(max_examples=6)
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
    plain_options = QUICK.replace(disable=("filter",))
    options = plain_options.replace(threshold_px=s * QUICK.threshold_px)
    first = record(scene, method, graph, (K, K), plain_options).to_dict()
    other = record(scene, method, scaled, (scale @ K, scale @ K), options).to_dict()
    assert other.pop("noise_px") == pytest.approx(s * first.pop("noise_px"), rel=1e-9)
    assert json.dumps(other) == json.dumps(first)


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000), config=st.sampled_from([EASY, ORDERING]), method=methods)
def test_swapping_the_images_tells_the_same(seed, config, method):
    scene = make_scene(dataclasses.replace(config, noise_px=0.4), seed)
    graph = scene.graph
    swapped = manymatch.AssociationGraph(
        graph.points1, graph.points0, graph.edges[:, ::-1], graph.similarity, graph.rank
    )
    options = QUICK.replace(max_iterations=10_000)
    first = record(scene, method, options=options)
    second = record(scene, method, swapped, (scene.camera1, scene.camera0), options)
    if abs(first.num_matches - second.num_matches) > 3:
        return  # one of the two searches did not get there
    assert max(first.chance, second.chance) < 1e-6
    assert first.verdict == second.verdict
    assert second.parallax_deg == pytest.approx(first.parallax_deg, rel=0.1)
    # The two searches end in poses that differ by what the matches leave open.
    assert 1 / 3 < second.rotation_sd_deg / first.rotation_sd_deg < 3
