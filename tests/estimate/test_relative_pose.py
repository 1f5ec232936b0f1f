"""estimate_relative_pose: bad input, what holds for every estimate, Ctrl-C, order of methods."""

import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import manymatch
from manymatch import AssociationGraph, Options, RelativePose
from manymatch_lab.datasets import synthetic
from manymatch_lab.evaluate.statistics import bootstrap_interval
from tests.oracles.geometry import angle_between
from tests.oracles.problems import K, random_problem
from tests.oracles.ransac import Loop
from tests.support.synthetic_problems import same

RNG = np.random.default_rng(0)
GRAPH = AssociationGraph(
    RNG.uniform(0, 1000, (30, 2)), RNG.uniform(0, 700, (30, 2)), [(i, i) for i in range(30)]
)
RANKED = AssociationGraph(GRAPH.points0, GRAPH.points1, GRAPH.edges, rank=np.ones(30, dtype=int))
POSE = RelativePose(np.eye(3), [1.0, 0.0, 0.0])
QUICK = Options(min_iterations=10, max_iterations=50)


BAD_CAMERAS = {
    "text": "800",
    "none": None,
    "nan": np.where(K == 1.0, np.nan, K),
    "unknown model": {"model": "NOBODY", "width": 9, "height": 9, "params": [1.0, 0.0, 0.0]},
}
BAD_POSES = {"none": None, "matrix": np.eye(4), "tuple": (np.eye(3), np.ones(3))}


@pytest.mark.parametrize("camera", BAD_CAMERAS.values(), ids=BAD_CAMERAS)
@pytest.mark.parametrize("side", [0, 1])
def test_bad_cameras_are_named(side, camera):
    arguments = {"graph": GRAPH, "camera0": K, "camera1": K, f"camera{side}": camera}
    for function, more in (
        (manymatch.estimate_relative_pose, {}),
        (manymatch.score_pose, {"pose": POSE}),
    ):
        with pytest.raises(ValueError, match=rf"\bcamera{side}\b"):
            function(**arguments, **more)


@pytest.mark.parametrize("pose", BAD_POSES.values(), ids=BAD_POSES)
def test_score_pose_names_the_pose(pose):
    with pytest.raises(ValueError, match=r"\bpose\b"):
        manymatch.score_pose(GRAPH, K, K, pose)
    with pytest.raises(ValueError, match=r"^max_iteration is neither .*did you mean 'max_iterat"):
        manymatch.score_pose(GRAPH, K, K, POSE, max_iteration=3)


def test_candidates_are_accepted_as_graphs():
    found = manymatch.Candidates(RANKED, {})
    estimate = manymatch.estimate_relative_pose(RANKED, K, K, options=QUICK)
    assert same(manymatch.estimate_relative_pose(found, K, K, options=QUICK), estimate)
    assert same(manymatch.estimate_many([(found, K, K)], options=QUICK)[0], estimate)
    scores = [manymatch.score_pose(graph, K, K, POSE).hcm for graph in (found, RANKED)]
    assert scores[0] == scores[1]
    graph = AssociationGraph.from_matches(*np.random.default_rng(0).random((2, 20, 2)))
    plane, size = manymatch.Candidates(graph, {}), (9, 9)
    for function in (manymatch.estimate_homography, manymatch.merge_coincident):
        assert repr(function(plane))[:30] == repr(function(graph))[:30]
    masks = [manymatch.gms_filter(each, size, size).mask for each in (plane, graph)]
    assert np.array_equal(*masks)
    with pytest.raises(ValueError, match=r"what candidates\(\) returns, got a value of type"):
        manymatch.estimate_relative_pose(SimpleNamespace(graph="g.npz" * 20), K, K)


def test_fields_of_options_are_keywords():
    problem, budget = (RANKED, K, K), {"seed": 3, "max_iterations": 40, "threshold_px": 2.0}
    wanted = Options(seed=3, min_iterations=40, max_iterations=40, threshold_px=2.0)
    for estimate in (
        manymatch.estimate_relative_pose(*problem, **budget),
        *manymatch.estimate_many([problem], **budget),
        *manymatch.estimate_many([problem], options=[Options(seed=9)], **budget),
        manymatch.estimate_homography(RANKED, **budget),
        manymatch.estimate_relative_pose(*problem, options=Options(seed=9), **budget),
    ):
        assert estimate.options == wanted
    reference = manymatch.estimate_relative_pose(*problem, options=wanted)
    assert same(manymatch.estimate_relative_pose(*problem, **budget), reference)
    wide = manymatch.score_pose(*problem, POSE, threshold_px=50.0)
    assert wide.hcm == manymatch.score_pose(*problem, POSE, Options(threshold_px=50.0)).hcm
    assert wide.hcm != manymatch.score_pose(*problem, POSE).hcm


UNSOLVABLE = {
    name: AssociationGraph(GRAPH.points0, GRAPH.points1, np.reshape(edges, (-1, 2)).astype(int))
    for name, edges in {
        "no edges": [],
        "star": [(0, j) for j in range(30)],
        "star on the right": [(i, 0) for i in range(30)],
        "five on four": [(i, j) for i in range(5) for j in range(4)],
        "the same edge many times": [(3, 3)] * 30,
    }.items()
}


# Plain consensus samples without the one-to-one constraint, so a star is a sample for it.
@pytest.mark.parametrize("method", ["auto", "hcm-mcm", "hcm", "mcm"])
@pytest.mark.parametrize("name", UNSOLVABLE)
def test_unsolvable_graphs_fail_with_a_reason(name, method):
    graph = UNSOLVABLE[name]
    estimate = manymatch.estimate_relative_pose(graph, K, K, method, QUICK)
    assert estimate.success is False
    assert estimate.pose is None
    assert len(estimate.failure.split()) >= 3
    assert estimate.inliers.shape == (graph.num_edges,)
    assert not estimate.inliers.any()
    assert estimate.matches.shape == (0, 2)
    assert (estimate.hcm, estimate.cardinality, estimate.num_inliers) == (0.0, 0, 0)


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ((0, 5), "no keypoints in image 0"),
        ((5, 0), "no keypoints in image 1"),
        ((0, 0), "no keypoints in image 0 and image 1"),
        ((5, 1), "no candidates between 5 keypoints in image 0 and 1 keypoint in image 1"),
    ],
)
def test_images_without_keypoints_are_named(counts, reason):
    graph = AssociationGraph(*(np.zeros((count, 2)) for count in counts), [])
    estimate = manymatch.estimate_relative_pose(graph, K, K)
    assert estimate.failure == manymatch.estimate_homography(graph).failure == reason
    assert manymatch.assess(estimate).reason == f"No pose was found: {reason}."
    assert reason in repr(estimate)


def test_scores_of_unsolvable_graphs_are_zero_or_finite():
    for graph in UNSOLVABLE.values():
        score = manymatch.score_pose(graph, K, K, POSE)
        assert np.isfinite(score.hcm)
        assert score.inliers.shape == (graph.num_edges,)
        assert score.num_inliers == score.inliers.sum()
        assert score.cardinality <= score.num_inliers


METHODS = ("hcm", "mcm", "hcm-mcm")


def compacted(graph):
    """Normalised points of the vertices in use, renumbered edges, eps for one pixel."""
    camera = manymatch.Camera.from_matrix(K)
    used0, first = np.unique(graph.edges[:, 0], return_inverse=True)
    used1, second = np.unique(graph.edges[:, 1], return_inverse=True)
    edges = np.column_stack([first, second]).astype(np.int32)
    x0 = np.ascontiguousarray(camera.unproject(graph.points0[used0]))
    x1 = np.ascontiguousarray(camera.unproject(graph.points1[used1]))
    return x0, x1, np.ascontiguousarray(edges), 1.0 / K[0, 0]


def assert_same_run(graph, method, options, proposals=None):
    estimate = manymatch.estimate_relative_pose(graph, K, K, method, options, proposals)
    twin = Loop(*compacted(graph), method, options, proposals).run()
    assert estimate.iterations == twin.iterations
    assert estimate.refinements == twin.local_refinements + twin.pool_refinements
    assert estimate.success == (twin.R is not None)
    if estimate.success:
        assert angle_between(estimate.pose.R, twin.R) < 1e-8
        assert np.linalg.norm(estimate.pose.t - twin.t) < 1e-8
    return estimate


# Seed of the problem, its settings, and the options.
TWIN_RUNS = {
    **{f"seed {s}": ([s, 1], {"n": 60}, (100, 1500, {"seed": s})) for s in range(6)},
    **{
        f"pool of {size}": ([4, size], {"noise": 0.7}, (300, 800, {"pool_size": size}))
        for size in (1, 2, 7, 5000)
    },
    **{
        f"{low} to {high} iterations": (6, {"max_degree": 2, "noise": 0.2}, (low, high, {}))
        for low, high in ((1, 1), (1, 50), (10, 11), (500, 500), (1, 10_000))
    },
    "prior of a third": (8, {"max_degree": 5}, (100, 500, {"q": 1.0 / 3.0, "delta": 0.05})),
    "prior of 0.6": (8, {"max_degree": 5}, (100, 500, {"q": 0.6, "delta": 0.05})),
    **{
        f"late best model {s}": (
            *([s, 77], {"n": 60, "max_degree": 3}),
            (1, 3000, {"seed": s, "confidence": 0.5, "safety": 0.2}),
        )
        for s in range(4)
    },
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", TWIN_RUNS)
def test_the_loop_equals_its_slow_twin(name, method):
    seed, changes, (low, high, more) = TWIN_RUNS[name]
    problem = random_problem(np.random.default_rng(seed), **{"n": 50, "max_degree": 4, **changes})
    options = Options(min_iterations=low, max_iterations=high, **{"seed": 5, **more})
    estimate = assert_same_run(problem.graph(), method, options)
    assert estimate.success or high == 1


@pytest.mark.parametrize("method", METHODS)
def test_hard_graphs_run_to_the_limit(method):
    rng = np.random.default_rng(2)
    problem = random_problem(rng, n=120, max_degree=5, noise=0.5)
    wrong = rng.permutation(120)
    edges = np.array([(i, wrong[j]) if i > 25 else (i, j) for i, j in problem.edges])
    options = Options(min_iterations=50, max_iterations=2000, seed=3)
    assert assert_same_run(problem.graph(edges), method, options).iterations == 2000


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("share", [0.2, 0.6])
def test_proposals_restrict_the_samples_and_nothing_else(method, share):
    rng = np.random.default_rng([3, round(10 * share)])
    graph = random_problem(rng, n=70, max_degree=4).graph()
    proposals = rng.random(graph.num_edges) < share
    options = Options(min_iterations=100, max_iterations=1000, seed=11)
    assert_same_run(graph, method, options, proposals)


@pytest.mark.parametrize("method", [*METHODS, "cm"])
def test_scores_are_those_of_the_pose(method):
    for seed in range(5):
        problem = random_problem(np.random.default_rng([9, seed]), n=80, max_degree=3)
        graph = problem.graph()
        options = Options(min_iterations=500, max_iterations=5000, seed=seed)
        estimate = manymatch.estimate_relative_pose(graph, K, K, method, options)
        assert angle_between(estimate.pose.R, problem.R) < np.radians(1.0)
        score = manymatch.score_pose(graph, K, K, estimate.pose, options)
        for name in ("hcm", "cardinality", "num_inliers"):
            assert getattr(estimate, name) == getattr(score, name)
        np.testing.assert_array_equal(estimate.inliers, score.inliers)
        assert all(seconds >= 0.0 for seconds in estimate.timing.values())


def test_guidance_samples_by_rank_and_none_ignores_the_ranks():
    rng = np.random.default_rng(10)
    problem = random_problem(rng, n=70, max_degree=4)
    rank = rng.integers(1, 4, size=len(problem.edges))
    graph = problem.graph()
    ranked = AssociationGraph(graph.points0, graph.points1, graph.edges, rank=rank)

    def run(graph, proposals=None, guidance=0.0):
        options = Options(min_iterations=100, max_iterations=800, seed=2, guidance=guidance)
        return manymatch.estimate_relative_pose(graph, K, K, "hcm-mcm", options, proposals)

    assert same(run(ranked, guidance=1.0), run(graph, rank == 1))
    assert same(run(ranked), run(graph))


PROGRAM = """
import sys
import numpy as np
import manymatch

rng = np.random.default_rng(0)
points0, points1 = rng.uniform(0, 1000, (2, 300, 2))
edges = np.column_stack([np.repeat(np.arange(300), 3), rng.integers(0, 300, 900)])
graph = manymatch.AssociationGraph(points0, points1, edges)
K = [[800, 0, 500], [0, 800, 500], [0, 0, 1]]
budget = 2**31 - 1
options = manymatch.Options(
    min_iterations=budget, max_iterations=budget, threads=int(sys.argv[2])
)
print("ready", flush=True)
try:
    if sys.argv[1] == "many":
        problems = [(graph, K, K)] * 4
        manymatch.estimate_many(problems, "hcm-mcm", options=options, threads=2)
    else:
        manymatch.estimate_relative_pose(graph, K, K, sys.argv[1], options)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize(
    ("what", "threads"),
    [("auto", 1), ("auto", 2), ("hcm-mcm", 1), ("hcm-mcm", 2), ("mcm", 1), ("cm", 2), ("many", 1)],
)
def test_sigint_ends_a_forced_run(what, threads):
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", PROGRAM, what, str(threads)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "ready\n"
        # Give the run time to be inside the compiled loop; a finished run would print nothing.
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        process.send_signal(signal.SIGINT)
        # The limit only keeps a broken build from hanging here for hours.
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert output == "interrupted\n", errors
    assert process.returncode == 0


COMPARED = ("cm", "hcm", "mcm", "hcm-mcm")
SOLVED_DEG = 5.0
OPTIONS = Options(min_iterations=1_000, max_iterations=20_000)


def solved(config, pairs):
    """Share of solved pairs by method, as arrays of zeros and ones."""
    scenes = list(synthetic.make_scenes(config, pairs, seed=1000))
    problems = [(scene.graph, scene.camera0, scene.camera1) for scene in scenes]
    result = {}
    for method in COMPARED:
        estimates = manymatch.estimate_many(problems, method=method, options=OPTIONS)
        errors = [
            manymatch.pose_error_deg(estimate.pose, scene.pose.R, scene.pose.t)
            for estimate, scene in zip(estimates, scenes, strict=True)
        ]
        result[method] = (np.array(errors) < SOLVED_DEG).astype(float)
    return result


@pytest.mark.statistics
def test_repeated_rows_separate_the_scores():
    ordering = solved(synthetic.ORDERING, 40)
    for worse, better in (("cm", "hcm"), ("hcm", "mcm"), ("cm", "hcm-mcm")):
        gain = bootstrap_interval(ordering[better] - ordering[worse], np.mean)
        assert gain.low > 0.0
    # On 40 pairs two or three either way are chance.
    gain = bootstrap_interval(ordering["hcm-mcm"] - ordering["mcm"], np.mean)
    assert gain.high >= 0.0
    assert gain.value > -0.1


@pytest.mark.statistics
def test_without_rows_every_method_solves_the_same_pairs():
    control = solved(synthetic.CONTROL, 20)
    for method in COMPARED:
        assert control[method].mean() > 0.9
        gain = bootstrap_interval(control[method] - control["hcm-mcm"], np.mean)
        assert gain.low <= 0.0 <= gain.high
