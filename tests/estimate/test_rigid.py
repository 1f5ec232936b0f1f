"""Rigid transforms and similarities: against slow twins, by their symmetries, and without any."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

import manymatch
from manymatch import (
    AssociationGraph,
    Options,
    _core,
    estimate_rigid_transform,
    estimate_similarity,
)
from manymatch._validate import METHODS
from manymatch.estimate.match_probability import RIGID, match_features
from tests.oracles import rigid as oracle
from tests.support.data_folder import data_folder

OPTIONS = Options(max_iterations=3_000, threads=1)
THRESHOLD = 0.06
NOISE = 0.01
ESTIMATORS = {"rigid": estimate_rigid_transform, "similarity": estimate_similarity}
both_problems = pytest.mark.parametrize("problem", list(ESTIMATORS))


def random_transform(rng, problem="rigid"):
    """Any rotation, a translation, and a scale where there is one."""
    scale = np.exp(rng.uniform(-0.7, 0.7)) if problem == "similarity" else 1.0
    R = Rotation.from_quat(rng.standard_normal(4)).as_matrix()
    return oracle.matrix(scale * R, rng.uniform(-3, 3, 3))


def random_graph(seed, problem="rigid", right=60, wrong=40, partners=2, noise=NOISE):
    """Points with several candidates each, of which the right one is often not the first."""
    rng = np.random.default_rng(seed)
    truth = random_transform(rng, problem)
    scale = oracle.scale_of(truth)
    points0 = rng.uniform(-1, 1, (right + wrong, 3)) * [1.5, 1.0, 0.6]
    points1 = oracle.mapped(truth, points0)
    points1 += scale * noise * rng.standard_normal(points1.shape)
    points1[right:] = rng.uniform(points1.min(axis=0), points1.max(axis=0), (wrong, 3))
    edges, rank = [], []
    for i in range(right + wrong):
        others = [int(j) for j in rng.choice(right + wrong, partners, replace=False) if j != i]
        if i < right:
            others.insert(int(rng.integers(len(others) + 1)), i)
        edges += [(i, j) for j in others]
        rank += list(range(1, len(others) + 1))
    order = np.argsort(rank, kind="stable")
    graph = AssociationGraph(
        points0, points1, np.array(edges)[order], rank=np.array(rank, np.int32)[order]
    )
    return graph, truth, scale * THRESHOLD


def error(transform, truth):
    """Largest distance of the corners of the cloud after the two transforms, at scale one."""
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
    off = oracle.mapped(transform, corners) - oracle.mapped(truth, corners)
    return np.linalg.norm(off, axis=1).max() / oracle.scale_of(truth)


def same(first, second):
    """Whether two estimates are equal to the bit."""
    return (
        np.array_equal(first.transform, second.transform)
        and np.array_equal(first.matches, second.matches)
        and np.array_equal(first.inliers, second.inliers)
        and np.array_equal(first.match_probability, second.match_probability)
        and (first.hcm, first.iterations, first.refinements, repr(first.noise_px))
        == (second.hcm, second.iterations, second.refinements, repr(second.noise_px))
        and len(first.alternatives) == len(second.alternatives)
        and all(
            np.array_equal(a.model, b.model) and a.probability == b.probability
            for a, b in zip(first.alternatives, second.alternatives, strict=True)
        )
    )


@both_problems
def test_three_point_solver_against_singular_values(problem):
    rng = np.random.default_rng(1)
    points0 = rng.uniform(-1, 1, (4000, 3, 3))
    points1 = np.array([oracle.mapped(random_transform(rng, problem), p) for p in points0])
    points1 += 0.02 * rng.standard_normal(points1.shape)
    solve = _core.similarity_three_point if problem == "similarity" else _core.rigid_three_point
    sample, transforms = solve(points0, points1, 1.0, 0.0)
    assert len(sample) > 0.999 * len(points0)  # the others are nearly collinear
    expected = [
        oracle.least_squares_transform(points0[i], points1[i], problem == "similarity")
        for i in sample
    ]
    off = np.abs(transforms - expected).max(axis=(1, 2))
    assert np.mean(off < 1e-9) > 0.999


@both_problems
def test_sides_must_agree(problem):
    rng = np.random.default_rng(2)
    points0, points1 = rng.uniform(-1, 1, (2, 3000, 3, 3))
    solve = _core.similarity_three_point if problem == "similarity" else _core.rigid_three_point
    tolerance = 0.3
    sample, _ = solve(points0, points1, tolerance, 0.0)
    sides = [np.linalg.norm(p - np.roll(p, 1, axis=1), axis=2) for p in (points0, points1)]
    scale = np.ones(len(points0))
    if problem == "similarity":
        scale = np.sqrt((sides[1] ** 2).sum(axis=1) / (sides[0] ** 2).sum(axis=1))
    off = np.abs(scale[:, None] * sides[0] - sides[1]).max(axis=1)
    expected = np.flatnonzero((off < tolerance * np.sqrt(scale)) & (scale < 16) & (scale > 1 / 16))
    assert len(expected) > 50
    assert set(sample.tolist()) <= set(expected.tolist())
    assert len(sample) > 0.98 * len(expected)  # nearly collinear ones have no transform


@both_problems
def test_residuals_and_inliers_against_the_definition(problem):
    score = _core.score_similarity if problem == "similarity" else _core.score_rigid
    for seed in range(5):
        graph, truth, _ = random_graph(seed, problem)
        edges = np.ascontiguousarray(graph.edges, np.int32)
        hcm, cardinality, inliers, r2 = score(
            graph.points0, graph.points1, edges, THRESHOLD, 0.3, 0.01, truth
        )
        expected = oracle.errors2(truth, graph.points0[edges[:, 0]], graph.points1[edges[:, 1]])
        np.testing.assert_allclose(r2, expected, rtol=1e-9)
        np.testing.assert_array_equal(inliers, expected < THRESHOLD**2)
        assert hcm > 0
        assert 50 <= cardinality <= inliers.sum()


@both_problems
@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_transform(problem, method):
    for seed in range(4):
        graph, truth, threshold = random_graph(seed, problem)
        estimate = ESTIMATORS[problem](graph, threshold, method, OPTIONS)
        assert estimate.success
        assert estimate.failure == ""
        assert estimate.problem == problem
        assert estimate.pose is None
        assert estimate.threshold_px == threshold
        assert error(estimate.transform, truth) < 0.03
        A = estimate.transform[:3, :3] / estimate.scale
        np.testing.assert_allclose(A @ A.T, np.eye(3), atol=1e-9)
        assert np.linalg.det(A) > 0
        np.testing.assert_array_equal(estimate.transform[3], [0, 0, 0, 1])
        if problem == "rigid":
            assert estimate.scale == 1.0
        else:
            assert abs(estimate.scale / oracle.scale_of(truth) - 1) < 0.02
        right = np.mean(estimate.matches[:, 0] == estimate.matches[:, 1])
        assert right > 0.95
        assert len(estimate.matches) >= 55


@both_problems
def test_result_is_consistent_with_itself(problem):
    graph, truth, threshold = random_graph(7, problem)
    estimate = ESTIMATORS[problem](graph, threshold, "auto", OPTIONS)
    ends = graph.edges.T
    mapped = oracle.mapped(estimate.transform, graph.points0[ends[0]])
    distance = np.linalg.norm(mapped - graph.points1[ends[1]], axis=1)
    if problem == "rigid":
        near = np.abs(distance - threshold) < 1e-9
        assert np.array_equal(estimate.inliers[~near], (distance < threshold)[~near])
    else:  # the clouds are about as large as each other at the true scale
        assert estimate.inliers[distance < 0.8 * threshold].all()
        assert not estimate.inliers[distance > 1.25 * threshold].any()
    assert estimate.num_inliers == estimate.inliers.sum()
    assert estimate.cardinality == len(estimate.matches)
    for column in estimate.matches.T:
        assert len(np.unique(column)) == len(column)
    inlier_edges = {tuple(edge) for edge in graph.edges[estimate.inliers].tolist()}
    assert {tuple(match) for match in estimate.matches.tolist()} <= inlier_edges
    assert estimate.match_probability.shape == (len(estimate.matches),)
    assert ((estimate.match_probability > 0) & (estimate.match_probability < 1)).all()
    assert ESTIMATORS[problem](graph, threshold, "hcm-mcm", OPTIONS).match_probability is None
    # The noise was put on points1 alone and is taken to be that of both.
    expected = NOISE * oracle.scale_of(truth) / np.sqrt(2.0)
    assert abs(estimate.noise_px / expected - 1) < 0.3


@both_problems
def test_refinement_reaches_the_optimum(problem):
    graph, truth, threshold = random_graph(3, problem, right=80, wrong=0, partners=1)
    graph = graph.filter(graph.edges[:, 0] == graph.edges[:, 1])
    estimate = ESTIMATORS[problem](graph, 9 * threshold, "cm", OPTIONS)
    # The errors of the estimator, up to one factor, and its loss at a third of the threshold.
    ends = graph.edges.T
    factor = np.sqrt(oracle.scale_of(truth))
    best = oracle.refined(
        *(truth, graph.points0[ends[0]], graph.points1[ends[1]]),
        *(3 * threshold / factor, problem == "similarity"),
    )
    assert error(estimate.transform, best) < 1e-3 * error(best, truth) + 1e-5


@both_problems
@pytest.mark.parametrize("method", METHODS)
def test_threads_do_not_matter(problem, method):
    graph, _, threshold = random_graph(11, problem, right=25, wrong=75)
    one = ESTIMATORS[problem](graph, threshold, method, OPTIONS)
    for threads in (2, 8):
        other = ESTIMATORS[problem](graph, threshold, method, OPTIONS.replace(threads=threads))
        assert same(one, other)


@both_problems
def test_instruction_sets_agree(problem):
    graph, _, threshold = random_graph(12, problem, right=25, wrong=75)
    results = {}
    try:
        for name in _core.instruction_sets():
            _core.force_instruction_set(name)
            results[name] = ESTIMATORS[problem](graph, threshold, "auto", OPTIONS)
    finally:
        _core.force_instruction_set(None)
    best = results.pop(_core.instruction_sets()[0])
    for name, other in results.items():
        if name == "baseline":
            assert error(other.transform, best.transform) < 1e-6
        else:
            assert same(best, other)


def test_samples_come_from_the_proposals():
    graph, truth, threshold = random_graph(13)
    right = graph.edges[:, 0] == graph.edges[:, 1]
    all_right = estimate_rigid_transform(graph, threshold, "hcm", OPTIONS, proposals=right)
    none_right = estimate_rigid_transform(graph, threshold, "hcm", OPTIONS, proposals=~right)
    assert error(all_right.transform, truth) < 0.03
    assert none_right.transform is None or error(none_right.transform, truth) > 0.5


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(list(ESTIMATORS)), st.sampled_from(["auto", "cm"]))
def test_swapped_clouds_have_the_inverse(seed, problem, method):
    graph, truth, threshold = random_graph(seed, problem)
    swapped = AssociationGraph(graph.points1, graph.points0, graph.edges[:, ::-1], rank=graph.rank)
    there = ESTIMATORS[problem](graph, threshold, method, OPTIONS)
    back = ESTIMATORS[problem](swapped, threshold / oracle.scale_of(truth), method, OPTIONS)
    assert error(there.transform, truth) < 0.04
    assert error(np.linalg.inv(back.transform), truth) < 0.04
    assert abs(there.cardinality - back.cardinality) <= 3


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
    moved = AssociationGraph(
        oracle.mapped(move0, graph.points0),
        oracle.mapped(move1, graph.points1),
        graph.edges,
        rank=graph.rank,
    )
    estimate = ESTIMATORS[problem](moved, unit * threshold, "auto", OPTIONS)
    back = np.linalg.inv(move1) @ estimate.transform @ move0
    assert error(back, truth) < 0.04


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([2.0**-30, 0.125, 8.0, 2.0**20]))
def test_the_unit_of_the_points_does_not_matter(seed, unit):
    graph, _, threshold = random_graph(seed)
    scaled = AssociationGraph(
        unit * graph.points0, unit * graph.points1, graph.edges, rank=graph.rank
    )
    first = estimate_rigid_transform(graph, threshold, "auto", OPTIONS)
    second = estimate_rigid_transform(scaled, unit * threshold, "auto", OPTIONS)
    np.testing.assert_array_equal(first.matches, second.matches)
    np.testing.assert_array_equal(first.transform[:3, :3], second.transform[:3, :3])
    np.testing.assert_array_equal(unit * first.transform[:3, 3], second.transform[:3, 3])
    # Powers of two change no digit, and a similarity of one side by one is one of the scale.
    grown = AssociationGraph(graph.points0, unit * graph.points1, graph.edges, rank=graph.rank)
    third = estimate_similarity(graph, threshold, "auto", OPTIONS)
    fourth = estimate_similarity(grown, unit * threshold, "auto", OPTIONS)
    np.testing.assert_array_equal(third.matches, fourth.matches)
    np.testing.assert_array_equal(unit * third.transform[:3], fourth.transform[:3])
    assert fourth.scale == pytest.approx(unit * third.scale, rel=1e-12)


def test_far_from_the_origin():
    graph, truth, threshold = random_graph(5)
    offset = np.array([4.5e5, 5.2e6, 300.0])  # map coordinates
    moved = AssociationGraph(
        graph.points0 + offset, graph.points1 - offset, graph.edges, rank=graph.rank
    )
    estimate = estimate_rigid_transform(moved, threshold, "auto", OPTIONS)
    into, out = np.eye(4), np.eye(4)
    into[:3, 3], out[:3, 3] = offset, offset
    assert error(out @ estimate.transform @ into, truth) < 0.03


@both_problems
def test_agreement_with_pycolmap(problem):
    pycolmap = pytest.importorskip("pycolmap")
    solve = {
        "rigid": pycolmap.estimate_rigid3d_robust,
        "similarity": pycolmap.estimate_sim3d_robust,
    }[problem]
    for seed in range(10):
        graph, truth, threshold = random_graph(seed, problem, right=70, wrong=30, partners=1)
        graph = graph.up_to_rank(1)
        ends = graph.edges.T
        pycolmap_options = pycolmap.RANSACOptions(max_error=threshold, random_seed=1)
        found = solve(graph.points0[ends[0]], graph.points1[ends[1]], pycolmap_options)
        model = np.vstack([found["tgt_from_src"].matrix(), [0, 0, 0, 1]])
        for method in ("auto", "cm"):
            estimate = ESTIMATORS[problem](graph, threshold, method, OPTIONS)
            ours, theirs = error(estimate.transform, truth), error(model, truth)
            assert error(estimate.transform, model) < 0.04
            assert ours < max(1.5 * theirs, 0.02)
        # The same inliers but for those at the threshold.
        assert np.mean(estimate.inliers != np.asarray(found["inlier_mask"])) < 0.05


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
            AssociationGraph(points0, points1, edges), threshold, method, OPTIONS
        )
        assert error(estimate.transform, truth) < 0.05


def test_a_mirrored_cloud_has_no_transform():
    points = np.random.default_rng(0).uniform(0, 5, (200, 3))
    graph = AssociationGraph.from_matches(points, points * [-1.0, 1.0, 1.0])
    for estimator in ESTIMATORS.values():
        estimate = estimator(graph, 0.05, "auto", OPTIONS)
        assert not estimate.success or estimate.cardinality < 20


@both_problems
def test_a_plane_is_enough(problem):
    rng = np.random.default_rng(6)
    truth = random_transform(rng, problem)
    points = np.column_stack([rng.uniform(-1, 1, (40, 2)), np.zeros(40)])
    graph = AssociationGraph.from_matches(points, oracle.mapped(truth, points))
    for method in METHODS:
        estimate = ESTIMATORS[problem](graph, 0.05, method, OPTIONS)
        np.testing.assert_allclose(estimate.transform, truth, atol=1e-7)


LINE = np.column_stack([np.linspace(0, 4, 30), np.linspace(1, 3, 30), np.linspace(5, 4, 30)])


@both_problems
@pytest.mark.parametrize(
    ("points0", "points1", "reason"),
    [
        (np.zeros((0, 3)), np.zeros((0, 3)), "no points on side 0 and side 1"),
        (LINE[:2], LINE[:2], "2 edges"),
        (LINE, LINE + 1.0, "no sample gave a"),
        (np.full((20, 3), 7.0), np.full((20, 3), 9.0), "no sample gave a"),
    ],
)
def test_what_cannot_be_solved_says_why(problem, points0, points1, reason):
    for method in METHODS:
        estimate = ESTIMATORS[problem](
            AssociationGraph.from_matches(points0, points1), 0.05, method, OPTIONS
        )
        assert not estimate.success
        assert reason in estimate.failure
        assert estimate.transform is None
        assert np.isnan(estimate.scale)
        assert estimate.matches.shape == (0, 2)
        assert not estimate.inliers.any()
        assert estimate.match_probability is None or len(estimate.match_probability) == 0


@both_problems
def test_noisy_points_on_a_line_are_no_transform(problem):
    noise = np.random.default_rng(1).normal(0, 0.01, (2, 30, 3))
    graph = AssociationGraph.from_matches(LINE + noise[0], LINE + noise[1] + 2.0)
    for method in METHODS:
        estimate = ESTIMATORS[problem](graph, 0.1, method, OPTIONS)
        assert not estimate.success
        assert estimate.failure
        assert estimate.transform is None


@both_problems
@pytest.mark.parametrize("threshold", [1e-300, 1e-9, 50.0, 1e300])
def test_any_threshold_and_any_size_of_the_points(problem, threshold):
    rng = np.random.default_rng(2)
    points = rng.uniform(-1, 1, (30, 3))
    for size in (1e-200, 1.0, 1e200, 1e307):
        graph = AssociationGraph.from_matches(size * points, size * points[:, [1, 2, 0]])
        estimate = ESTIMATORS[problem](graph, threshold, "auto", OPTIONS)
        assert estimate.success == (estimate.transform is not None)
        assert estimate.success or estimate.failure
        if estimate.success:
            assert np.isfinite(estimate.transform).all()


@both_problems
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"graph": "g.npz"}, "graph must be an AssociationGraph"),
        ({"threshold": 0.0}, "threshold must be a finite number above 0, got 0"),
        ({"threshold": "auto"}, "threshold must be a finite number above 0, got 'auto'"),
        ({"threshold": float("nan")}, "threshold must be a finite number above 0"),
        ({"threshold_px": 2.0}, "threshold_px must be left out .* got threshold_px=2.0"),
        ({"options": Options(threshold_px="auto")}, "options.threshold_px must be a number"),
        ({"method": "ransac"}, "method must be one of"),
        ({"options": {"seed": 1}}, "options must be an Options"),
        ({"proposals": [True]}, "proposals must be a boolean array"),
        ({"sed": 1}, "sed is no argument .* did you mean 'seed'"),
    ],
)
def test_bad_arguments_are_one_sentence(problem, arguments, sentence):
    points = np.random.default_rng(0).uniform(0, 1, (10, 3))
    given_arguments = {
        "graph": AssociationGraph.from_matches(points, points),
        "threshold": 0.1,
        **arguments,
    }
    with pytest.raises(ValueError, match=sentence) as error:
        ESTIMATORS[problem](**given_arguments)
    assert "\n" not in str(error.value)


@both_problems
def test_points_of_images_are_refused(problem):
    points = np.zeros((5, 2))
    with pytest.raises(ValueError, match=r"graph must have points in space \(N, 3\) as points0"):
        ESTIMATORS[problem](AssociationGraph.from_matches(points, points), 0.1)


def test_chance_agreements_grow_with_the_volume():
    # 30 inliers, and 234 candidates in the shell from 2 to 5 thresholds, whose volume is 117 times
    # that of the ball within the threshold: 2 of the inliers are there by chance.
    distance = np.concatenate([np.full(30, 0.5), np.full(234, 3.0)])
    edges = np.column_stack([np.arange(264), np.arange(264)]).astype(np.int32)
    inliers = distance < 1.0
    features = match_features(
        edges, None, np.zeros(0, bool), distance, inliers, np.flatnonzero(inliers), model=RIGID
    )
    np.testing.assert_allclose(features[:, 1], np.log((30 - 3 - 2) / (np.sqrt(2.0) + 3.0)))


@both_problems
@pytest.mark.parametrize("pair", ["lidar", "3dmatch", "fgr_range"])
def test_real_clouds(problem, pair):
    data = data_folder()
    if data is None or not (data / "registration").is_dir():
        pytest.skip("the reference data is not here")
    path = sorted((data / "registration" / pair).glob("*.npz"))[0]
    with np.load(path) as file:
        graph = AssociationGraph(
            file["points0"].astype(float),
            file["points1"].astype(float),
            file["edges"].astype(np.int64),
            rank=file["rank"].astype(np.int32),
        )
        truth, voxel = oracle.matrix(file["R"], file["t"]), float(file["voxel"])
    estimator = getattr(manymatch, ESTIMATORS[problem].__name__)
    estimate = estimator(graph, 1.5 * voxel)
    right = graph.points0[estimate.matches[:, 0]]
    off = oracle.mapped(estimate.transform, right) - oracle.mapped(truth, right)
    assert np.sqrt(np.mean(np.sum(off**2, axis=1))) < 4 * voxel
