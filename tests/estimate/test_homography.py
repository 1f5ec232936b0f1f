"""Homographies: against slow twins, by their symmetries, and on input that has none."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manymatch
from manymatch import AssociationGraph, Options, _core, estimate_homography
from manymatch._validate import METHODS
from manymatch.estimate.match_probability import HOMOGRAPHY, match_features
from tests.oracles import homography as oracle
from tests.support.data_folder import data_folder

OPTIONS = Options(threshold_px=2.0, max_iterations=3_000, threads=1)
SIZE = np.array([800.0, 600.0])


def random_homography(rng):
    """Rotation, scale, shear and some perspective about the middle of the image."""
    angle, scale = rng.uniform(-np.pi, np.pi), np.exp(rng.uniform(-0.7, 0.7))
    c, s = scale * np.cos(angle), scale * np.sin(angle)
    A = np.array([[c, -s], [s, c]]) + rng.uniform(-0.15, 0.15, (2, 2))
    H = np.eye(3)
    H[:2, :2] = A
    H[2, :2] = rng.uniform(-0.3, 0.3, 2) / SIZE
    to_middle, back = np.eye(3), np.eye(3)
    to_middle[:2, 2], back[:2, 2] = -SIZE / 2, SIZE / 2 + rng.uniform(-50, 50, 2)
    H = back @ H @ to_middle
    return H / H[2, 2]


def mapped(H, points):
    """Map points (N, 2)."""
    homogeneous = np.column_stack([points, np.ones(len(points))]) @ H.T
    return homogeneous[:, :2] / homogeneous[:, 2:]


def random_graph(seed, right=70, wrong=30, partners=2, noise=0.3):
    """Keypoints with several candidates each, of which the right one is often not the first."""
    rng = np.random.default_rng(seed)
    H = random_homography(rng)
    points0 = rng.uniform(0, SIZE, (right + wrong, 2))
    points1 = mapped(H, points0) + noise * rng.standard_normal((right + wrong, 2))
    points1[right:] = rng.uniform(points1.min(axis=0), points1.max(axis=0), (wrong, 2))
    edges, rank = [], []
    for i in range(right + wrong):
        others = rng.choice(right + wrong, partners, replace=False)
        place = int(rng.integers(partners)) if i < right else partners
        chosen = [int(j) for j in others if j != i]
        if i < right:
            chosen.insert(min(place, len(chosen)), i)
        edges += [(i, j) for j in chosen]
        rank += list(range(1, len(chosen) + 1))
    order = np.argsort(rank, kind="stable")
    graph = AssociationGraph(
        points0, points1, np.array(edges)[order], rank=np.array(rank, np.int32)[order]
    )
    return graph, H


def corner_error(H, truth):
    """Largest distance of the corners after the two transfers."""
    corners = np.array([[0, 0], [SIZE[0], 0], SIZE, [0, SIZE[1]]])
    return np.linalg.norm(mapped(H, corners) - mapped(truth, corners), axis=1).max()


def same(first, second):
    """Whether two estimates agree in everything but the time."""
    return all(
        np.array_equal(getattr(first, f.name), getattr(second, f.name), equal_nan=True)
        if isinstance(getattr(first, f.name), np.ndarray)
        else getattr(first, f.name) == getattr(second, f.name)
        or getattr(first, f.name) != getattr(first, f.name)
        or f.name == "alternatives"
        for f in dataclasses.fields(first)
        if f.name not in ("timing", "options", "_graph", "_pair")
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


def random_affine(rng):
    A = random_homography(rng)
    A[2] = 0.0, 0.0, 1.0
    return A


def test_three_point_solver_against_the_linear_system():
    rng = np.random.default_rng(4)
    points0, points1 = rng.uniform(-1, 1, (2, 3000, 3, 2))
    sample, H = _core.three_point_affine(points0, points1)
    np.testing.assert_array_equal(H[:, 2, :2], 0.0)
    np.testing.assert_allclose(np.linalg.norm(H, axis=(1, 2)), 1.0)
    found = dict(zip(sample.tolist(), H, strict=True))
    wrong = 0
    for i, (a, b) in enumerate(zip(points0, points1, strict=True)):
        triangles = [np.column_stack([p, np.ones(3)]) for p in (a, b)]
        areas = [np.linalg.det(t) for t in triangles]
        if np.prod(areas) <= 0.0:
            assert i not in found  # mirrored
        elif min(map(abs, areas)) > 1e-2:
            expected = np.linalg.solve(triangles[0], b).T
            wrong += not np.allclose(found[i][:2] / found[i][2, 2], expected, rtol=1e-9, atol=1e-9)
    assert len(found) > 1000
    assert wrong == 0


@pytest.mark.parametrize("method", METHODS)
def test_affine_maps(method):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        truth = random_affine(rng)
        points0 = rng.uniform(0, SIZE, (100, 2))
        points1 = mapped(truth, points0) + 0.3 * rng.standard_normal((100, 2))
        points1[60:] = rng.uniform(0, SIZE, (40, 2))
        graph = AssociationGraph.from_matches(points0, points1)
        estimate = estimate_homography(graph, method, OPTIONS, model="affine")
        assert estimate.homography[2].tolist() == [0.0, 0.0, 1.0]
        assert corner_error(estimate.homography, truth) < 1.0
        eight = estimate_homography(graph, method, OPTIONS)
        assert estimate.cardinality <= eight.cardinality + 2
        for threads in (2, 8):
            options = OPTIONS.replace(threads=threads)
            assert same(estimate, estimate_homography(graph, method, options, model="affine"))
    with pytest.raises(ValueError, match="model must be one of 'homography', 'affine'"):
        estimate_homography(graph, model="similarity")


def test_affine_refinement_reaches_the_least_squares_optimum():
    cv2 = pytest.importorskip("cv2")
    rng = np.random.default_rng(1)
    truth = random_affine(rng)
    points0 = rng.uniform(0, SIZE, (80, 2))
    points1 = mapped(truth, points0) + 0.05 * rng.standard_normal((80, 2))
    graph = AssociationGraph.from_matches(points0, points1)
    estimate = estimate_homography(graph, "cm", OPTIONS.replace(threshold_px=60.0), model="affine")
    # The error in image 0 is that of image 1 through a map that is nearly the same for all.
    lone = np.linalg.lstsq(np.column_stack([points0, np.ones(80)]), points1, rcond=None)[0].T
    best = np.vstack([lone, [0.0, 0.0, 1.0]])
    assert corner_error(estimate.homography, best) < 0.3 * corner_error(best, truth)
    other = cv2.estimateAffine2D(points0, points1, ransacReprojThreshold=2.0)[0]
    assert corner_error(estimate.homography, truth) < 1.2 * corner_error(
        np.vstack([other, [0.0, 0.0, 1.0]]), truth
    )


def test_affine_maps_among_many():
    graph, _ = random_graph(2)
    calls = [("homography", graph, {"model": "affine"}), ("homography", graph)] * 2
    together = manymatch.estimate_many(calls, options=OPTIONS)
    alone = estimate_homography(graph, "auto", OPTIONS, model="affine")
    assert same(together[0], alone)
    assert same(together[2], alone)
    assert same(together[1], estimate_homography(graph, "auto", OPTIONS))


def test_residuals_and_inliers_against_the_definition():
    rng = np.random.default_rng(2)
    for seed in range(5):
        graph, H = random_graph(seed)
        H = H * rng.uniform(0.1, 10)
        edges = np.ascontiguousarray(graph.edges, np.int32)
        hcm, cardinality, inliers, r2 = _core.score_homography(
            graph.points0, graph.points1, edges, 2.0, 0.3, 0.01, H
        )
        expected = [oracle.transfer_error2(H, graph.points0[i], graph.points1[j]) for i, j in edges]
        np.testing.assert_allclose(r2, expected, rtol=1e-7)
        np.testing.assert_array_equal(inliers, np.array(expected) < 4.0)
        assert hcm > 0
        assert 50 <= cardinality <= inliers.sum()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_homography(method):
    for seed in range(4):
        graph, truth = random_graph(seed)
        estimate = estimate_homography(graph, method, OPTIONS)
        assert estimate.success
        assert estimate.failure == ""
        assert estimate.pose is None
        assert estimate.homography[2, 2] == 1.0
        assert corner_error(estimate.homography, truth) < 2.0
        right = np.mean(estimate.matches[:, 0] == estimate.matches[:, 1])
        assert right > 0.9
        assert len(estimate.matches) >= 65
        assert "homography" in repr(estimate)


def test_result_is_consistent_with_itself():
    graph, _ = random_graph(7)
    estimate = estimate_homography(graph, "auto", OPTIONS)
    H = estimate.homography
    error2 = np.array(
        [oracle.transfer_error2(H, graph.points0[i], graph.points1[j]) for i, j in graph.edges]
    )
    near = np.abs(error2 - OPTIONS.threshold_px**2) < 1e-6
    assert np.array_equal(estimate.inliers[~near], (error2 < OPTIONS.threshold_px**2)[~near])
    assert estimate.num_inliers == estimate.inliers.sum()
    assert estimate.cardinality == len(estimate.matches)
    for column in estimate.matches.T:
        assert len(np.unique(column)) == len(column)
    inlier_edges = {tuple(edge) for edge in graph.edges[estimate.inliers].tolist()}
    assert {tuple(match) for match in estimate.matches.tolist()} <= inlier_edges
    assert estimate.match_probability.shape == (len(estimate.matches),)
    assert ((estimate.match_probability > 0) & (estimate.match_probability < 1)).all()
    assert estimate_homography(graph, "hcm-mcm", OPTIONS).match_probability is None


def test_refinement_reaches_the_least_squares_optimum():
    # Without wrong candidates and with a wide threshold the loss is nearly that of least squares.
    graph, truth = random_graph(3, right=80, wrong=0, partners=1, noise=0.05)
    graph = graph.filter(graph.edges[:, 0] == graph.edges[:, 1])
    estimate = estimate_homography(graph, "cm", OPTIONS.replace(threshold_px=60.0))
    ends = graph.edges
    best = oracle.refined(truth, graph.points0[ends[:, 0]], graph.points1[ends[:, 1]])
    assert corner_error(estimate.homography, best) < 1e-3
    assert corner_error(estimate.homography, best) < 0.1 * corner_error(best, truth)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("threads", [2, 8])
def test_threads_do_not_matter(method, threads):
    graph, _ = random_graph(11, right=25, wrong=75)
    one = estimate_homography(graph, method, OPTIONS)
    assert same(one, estimate_homography(graph, method, OPTIONS.replace(threads=threads)))


def test_instruction_sets_agree():
    graph, _ = random_graph(12, right=25, wrong=75)
    results = {}
    try:
        for name in _core.instruction_sets():
            _core.force_instruction_set(name)
            results[name] = estimate_homography(graph, "auto", OPTIONS)
    finally:
        _core.force_instruction_set(None)
    best = results.pop(_core.instruction_sets()[0])
    for name, other in results.items():
        if name == "baseline":
            assert corner_error(other.homography, best.homography) < 1e-6
        else:
            assert same(best, other)


def test_samples_come_from_the_proposals():
    graph, truth = random_graph(13)
    right = graph.edges[:, 0] == graph.edges[:, 1]
    none_right = estimate_homography(graph, "hcm", OPTIONS, proposals=~right)
    all_right = estimate_homography(graph, "hcm", OPTIONS, proposals=right)
    assert corner_error(all_right.homography, truth) < 2.0
    assert corner_error(none_right.homography, truth) > 10.0


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["auto", "hcm-mcm", "cm"]))
def test_swapped_images_have_the_inverse(seed, method):
    graph, truth = random_graph(seed)
    swapped = AssociationGraph(graph.points1, graph.points0, graph.edges[:, ::-1], rank=graph.rank)
    there = estimate_homography(graph, method, OPTIONS)
    back = estimate_homography(swapped, method, OPTIONS)
    assert corner_error(there.homography, truth) < 3.0
    assert corner_error(np.linalg.inv(back.homography), truth) < 3.0
    assert abs(there.cardinality - back.cardinality) <= 3


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.25, 0.5, 2.0, 64.0]))
def test_the_unit_of_pixels_does_not_matter(seed, scale):
    graph, _ = random_graph(seed)
    scaled = AssociationGraph(
        scale * graph.points0, scale * graph.points1, graph.edges, rank=graph.rank
    )
    options = OPTIONS.replace(disable=("filter",))  # which counts in whole pixels
    first = estimate_homography(graph, "auto", options)
    second = estimate_homography(
        scaled, "auto", options.replace(threshold_px=scale * OPTIONS.threshold_px)
    )
    np.testing.assert_array_equal(first.matches, second.matches)
    S = np.diag([scale, scale, 1.0])
    np.testing.assert_allclose(
        second.homography, S @ first.homography @ np.linalg.inv(S), rtol=1e-6, atol=1e-9
    )


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_shifted_images_shift_the_homography(seed):
    graph, truth = random_graph(seed)
    shifted = AssociationGraph(
        graph.points0 + 4096.0, graph.points1 - 2048.0, graph.edges, rank=graph.rank
    )
    estimate = estimate_homography(shifted, "hcm-mcm", OPTIONS)
    into, out = np.eye(3), np.eye(3)
    into[:2, 2], out[:2, 2] = 4096.0, 2048.0
    assert corner_error(out @ estimate.homography @ into, truth) < 3.0


def test_pure_translation_and_identity_are_exact():
    points = np.random.default_rng(0).uniform(0, 500, (40, 2))
    graph = AssociationGraph.from_matches(points, points + np.array([30.0, -12.0]))
    H = estimate_homography(graph).homography
    np.testing.assert_allclose(H, [[1, 0, 30], [0, 1, -12], [0, 0, 1]], atol=1e-9)


def test_a_mirrored_image_has_no_homography():
    points = np.random.default_rng(0).uniform(0, 500, (200, 2))
    graph = AssociationGraph.from_matches(points, points * [-1.0, 1.0])
    estimate = estimate_homography(graph, "auto", OPTIONS)
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


LINE = np.column_stack([np.linspace(0, 400, 30), np.linspace(50, 250, 30)])


@pytest.mark.parametrize(
    ("points0", "points1", "reason"),
    [
        (np.zeros((0, 2)), np.zeros((0, 2)), "no keypoints in image 0 and image 1"),
        (LINE[:3], LINE[:3], "3 edges"),
        (LINE, 2 * LINE, "no sample gave a homography"),
        (np.full((20, 2), 7.0), np.full((20, 2), 9.0), "no sample gave a homography"),
    ],
)
def test_what_cannot_be_solved_says_why(points0, points1, reason):
    for method in METHODS:
        estimate = estimate_homography(
            AssociationGraph.from_matches(points0, points1), method, OPTIONS
        )
        assert not estimate.success
        assert reason in estimate.failure
        assert estimate.homography is None
        assert estimate.matches.shape == (0, 2)
        assert not estimate.inliers.any()
        assert estimate.match_probability is None or len(estimate.match_probability) == 0


def test_noisy_points_on_a_line_are_no_homography():
    noise = np.random.default_rng(1).normal(0, 0.2, (2, 30, 2))
    graph = AssociationGraph.from_matches(LINE + noise[0], 1.5 * LINE + noise[1])
    for method in METHODS:
        estimate = estimate_homography(graph, method, OPTIONS)
        assert not estimate.success
        assert estimate.failure
        assert estimate.homography is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"graph": "g.npz"}, "graph must be an AssociationGraph"),
        ({"method": "ransac"}, "method must be one of"),
        ({"options": {"seed": 1}}, "options must be an Options"),
        ({"proposals": [True]}, "proposals must be a boolean array"),
        ({"options": Options(guidance=0.5)}, "ranks"),
    ],
)
def test_bad_arguments_are_one_sentence(arguments, sentence):
    points = np.random.default_rng(0).uniform(0, 100, (10, 2))
    given_arguments = {"graph": AssociationGraph.from_matches(points, points), **arguments}
    if "options" in arguments and isinstance(arguments["options"], Options):
        given_arguments["graph"] = AssociationGraph(points, points, [[i, i] for i in range(10)])
    with pytest.raises(ValueError, match=sentence):
        estimate_homography(**given_arguments)


def test_chance_agreements_grow_with_the_area():
    # 30 inliers, and 42 candidates in the ring from 2 to 5 thresholds, whose area is 21 times that
    # of the disc within the threshold: 2 of the inliers are there by chance.
    distance = np.concatenate([np.full(30, 0.5), np.full(42, 3.0)])
    edges = np.column_stack([np.arange(72), np.arange(72)]).astype(np.int32)
    inliers = distance < 1.0
    features = match_features(
        edges, None, np.zeros(0, bool), distance, inliers, np.flatnonzero(inliers), model=HOMOGRAPHY
    )
    competition, excess, size, *_ = features.T
    np.testing.assert_allclose(competition, 0.0, atol=1e-12)
    np.testing.assert_allclose(excess, np.log((30 - 4 - 2) / (np.sqrt(2.0) + 3.0)))
    np.testing.assert_allclose(size, np.log((30 - 4) / np.sqrt(72.0)))


@pytest.mark.parametrize("pair", ["oxford/bikes_1_2", "oxford/graf_1_2", "homogr/adam"])
def test_real_images(pair):
    data = data_folder()
    if data is None or not (data / "homography").is_dir():
        pytest.skip("the reference data is not here")
    with np.load(data / "homography" / f"{pair}.npz") as file:
        graph = AssociationGraph(
            file["points0"].astype(float),
            file["points1"].astype(float),
            file["edges"].astype(np.int64),
            rank=file["rank"].astype(np.int32),
        )
        truth, size = file["H"], file["size0"].astype(float)
    estimate = manymatch.estimate_homography(graph, options=Options(threshold_px=3.0))
    middle = np.array([size * f for f in (0.3, 0.5, 0.7)])
    off = np.linalg.norm(mapped(estimate.homography, middle) - mapped(truth, middle), axis=1)
    assert off.max() < 3.0
