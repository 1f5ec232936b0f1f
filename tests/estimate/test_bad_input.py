"""Bad input is refused by name; legal but hopeless input is reported and never crashes."""

import numpy as np
import pytest

import manymatch
from manymatch import AssociationGraph, Options, RelativePose

K = np.array([[800.0, 0.0, 512.0], [0.0, 800.0, 384.0], [0.0, 0.0, 1.0]])
RNG = np.random.default_rng(0)
GRAPH = AssociationGraph(
    RNG.uniform(0, 1000, (30, 2)), RNG.uniform(0, 700, (30, 2)), [(i, i) for i in range(30)]
)
RANKED = AssociationGraph(GRAPH.points0, GRAPH.points1, GRAPH.edges, rank=np.ones(30, dtype=int))
POSE = RelativePose(np.eye(3), [1.0, 0.0, 0.0])
QUICK = Options(min_iterations=10, max_iterations=50)


def with_entry(matrix, row, column, value):
    """A copy of a matrix with one entry replaced."""
    changed = np.array(matrix, dtype=float)
    changed[row, column] = value
    return changed


BAD_CAMERAS = {
    "text": "800",
    "none": None,
    "shape": np.eye(4),
    "vector": [800.0, 512.0, 384.0],
    "zeros": np.zeros((3, 3)),
    "singular": with_entry(K, 0, 0, 0.0),
    "nan": with_entry(K, 1, 1, np.nan),
    "infinite": with_entry(K, 0, 2, np.inf),
    "negative focal length": with_entry(K, 0, 0, -800.0),
    "unknown model": {"model": "NOBODY", "width": 9, "height": 9, "params": [1.0, 0.0, 0.0]},
    "missing params": {"model": "PINHOLE", "width": 9, "height": 9},
    "wrong number of params": {"model": "PINHOLE", "width": 9, "height": 9, "params": [1.0, 2.0]},
    "nan params": {"model": "SIMPLE_PINHOLE", "width": 9, "height": 9, "params": [np.nan, 1, 1]},
}
BAD_GRAPHS = {"none": None, "array": np.zeros((5, 2)), "tuple": (GRAPH.points0, GRAPH.points1)}
BAD_OPTIONS = {"dict": {"seed": 1}, "number": 3, "class": Options}
BAD_METHODS = {"unknown": "ransac", "none": None, "number": 1, "case": "HCM"}
BAD_PROPOSALS = {
    "short": np.ones(29, dtype=bool),
    "long": np.ones(31, dtype=bool),
    "indices": np.arange(30),
    "floats": np.ones(30),
    "table": np.ones((30, 1), dtype=bool),
    "text": "all",
}
BAD_POSES = {"none": None, "matrix": np.eye(4), "tuple": (np.eye(3), np.ones(3))}
BAD_PROBLEMS = {
    "none": None,
    "graph": GRAPH,
    "number": 3,
    "pair": [(GRAPH, K)],
    "bad graph inside": [(GRAPH, K, K), (None, K, K)],
    "bad camera inside": [(GRAPH, K, np.zeros((3, 3)))],
}
BAD_THREADS = {"negative": -1, "float": 1.5, "text": "all", "none": None}


def cases(**tables):
    """All (argument, value) pairs of the tables as pytest parameters."""
    return [
        pytest.param(argument, value, id=f"{argument}: {name}")
        for argument, table in tables.items()
        for name, value in table.items()
    ]


@pytest.mark.parametrize(
    ("argument", "value"),
    cases(
        graph=BAD_GRAPHS,
        camera0=BAD_CAMERAS,
        camera1=BAD_CAMERAS,
        method=BAD_METHODS,
        options=BAD_OPTIONS,
        proposals=BAD_PROPOSALS,
    ),
)
def test_estimate_relative_pose_names_the_argument(argument, value):
    arguments = {"graph": GRAPH, "camera0": K, "camera1": K, "options": QUICK, argument: value}
    with pytest.raises(ValueError, match=rf"\b{argument}\b"):
        manymatch.estimate_relative_pose(**arguments)


@pytest.mark.parametrize(
    ("argument", "value"),
    cases(
        graph=BAD_GRAPHS,
        camera0=BAD_CAMERAS,
        camera1=BAD_CAMERAS,
        pose=BAD_POSES,
        options=BAD_OPTIONS,
    ),
)
def test_score_pose_names_the_argument(argument, value):
    arguments = {"graph": GRAPH, "camera0": K, "camera1": K, "pose": POSE, argument: value}
    with pytest.raises(ValueError, match=rf"\b{argument}\b"):
        manymatch.score_pose(**arguments)


@pytest.mark.parametrize(
    ("argument", "value"),
    cases(problems=BAD_PROBLEMS, method=BAD_METHODS, options=BAD_OPTIONS, threads=BAD_THREADS),
)
def test_estimate_relative_poses_names_the_argument(argument, value):
    arguments = {"problems": [(GRAPH, K, K)], "options": QUICK, argument: value}
    with pytest.raises(ValueError, match=rf"\b{argument}\b"):
        manymatch.estimate_relative_poses(**arguments)


@pytest.mark.parametrize(
    ("argument", "value"),
    cases(
        threshold_px={
            "zero": 0.0,
            "negative": -1.0,
            "nan": np.nan,
            "infinite": np.inf,
            "text": "1",
        },
        min_iterations={"negative": -1, "float": 10.5, "text": "10", "above max": 200_000},
        max_iterations={"negative": -1, "zero": 0, "float": 0.5, "below min": 10},
        confidence={"zero": 0.0, "one": 1.0, "nan": np.nan},
        safety={"zero": 0.0, "negative": -3.0, "nan": np.nan},
        pool_size={"zero": 0, "negative": -1, "float": 2.5},
        q={"zero": 0.0, "one": 1.0, "nan": np.nan},
        delta={"zero": 0.0, "one": 1.0, "nan": np.nan},
        guidance={"negative": -0.1, "above one": 1.1, "nan": np.nan},
        seed={"negative": -1, "float": 0.5, "text": "0"},
        threads={"negative": -1, "float": 0.5},
    ),
)
def test_options_name_the_field(argument, value):
    with pytest.raises(ValueError, match=rf"\b{argument}\b"):
        Options(**{argument: value})


def test_guidance_needs_ranks():
    guided = QUICK.replace(guidance=0.5)
    with pytest.raises(ValueError, match=r"\branks\b.*\bguidance\b"):
        manymatch.estimate_relative_pose(GRAPH, K, K, options=guided)
    manymatch.estimate_relative_pose(RANKED, K, K, options=guided)


@pytest.mark.parametrize(
    ("argument", "value"),
    cases(
        points0={"nan": np.full((30, 2), np.nan), "infinite": np.full((30, 2), np.inf)},
        points1={"three columns": np.zeros((30, 3)), "text": [["a", "b"]] * 30},
        edges={
            "out of range": [(0, 30)],
            "negative": [(-1, 0)],
            "three columns": [(0, 1, 2)],
            "fractions": [(0.5, 1.0)],
        },
    ),
)
def test_graphs_name_the_field(argument, value):
    arguments = {"points0": GRAPH.points0, "points1": GRAPH.points1, "edges": GRAPH.edges}
    with pytest.raises(ValueError, match=rf"\b{argument}\b"):
        AssociationGraph(**{**arguments, argument: value})


def equal_points(count):
    """A graph whose keypoints are all at one pixel."""
    points = np.full((count, 2), 100.0)
    return AssociationGraph(points, points, [(i, i) for i in range(count)])


HOPELESS = {
    "no points": AssociationGraph(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros((0, 2), dtype=int)),
    "no edges": AssociationGraph(GRAPH.points0, GRAPH.points1, np.zeros((0, 2), dtype=int)),
    "one edge": GRAPH.head(1),
    "four edges": GRAPH.head(4),
    "all points equal": equal_points(30),
    "star": AssociationGraph(GRAPH.points0, GRAPH.points1, [(0, j) for j in range(30)]),
    "star on the right": AssociationGraph(
        GRAPH.points0, GRAPH.points1, [(i, 0) for i in range(30)]
    ),
    "five on four": AssociationGraph(
        GRAPH.points0, GRAPH.points1, [(i, j) for i in range(5) for j in range(4)]
    ),
    "the same edge many times": AssociationGraph(GRAPH.points0, GRAPH.points1, [(3, 3)] * 30),
}


@pytest.mark.parametrize("method", ["hcm-mcm", "hcm", "mcm"])
@pytest.mark.parametrize("name", HOPELESS)
def test_hopeless_graphs_fail_with_a_reason(name, method):
    graph = HOPELESS[name]
    estimate = manymatch.estimate_relative_pose(graph, K, K, method, QUICK)
    assert estimate.success is False
    assert estimate.pose is None
    assert isinstance(estimate.failure, str)
    assert len(estimate.failure.split()) >= 3
    assert estimate.inliers.shape == (graph.num_edges,)
    assert not estimate.inliers.any()
    assert estimate.matches.shape == (0, 2)
    assert (estimate.hcm, estimate.cardinality, estimate.num_inliers) == (0.0, 0, 0)


@pytest.mark.parametrize("name", ["no points", "no edges", "four edges", "all points equal"])
def test_hopeless_graphs_fail_with_cm_as_well(name):
    estimate = manymatch.estimate_relative_pose(HOPELESS[name], K, K, "cm", QUICK)
    assert estimate.success is False
    assert estimate.pose is None
    assert estimate.failure


def test_too_few_proposals_fail_with_a_reason():
    for count in (0, 4):
        proposals = np.arange(30) < count
        estimate = manymatch.estimate_relative_pose(GRAPH, K, K, options=QUICK, proposals=proposals)
        assert estimate.success is False
        assert len(estimate.failure.split()) >= 3


def test_hopeless_graphs_among_others():
    problems = [(graph, K, K) for graph in HOPELESS.values()]
    estimates = manymatch.estimate_relative_poses(problems, options=QUICK)
    assert [e.success for e in estimates] == [False] * len(problems)
    assert manymatch.estimate_relative_poses([]) == []


def test_scores_of_hopeless_graphs_are_zero_or_finite():
    for graph in HOPELESS.values():
        score = manymatch.score_pose(graph, K, K, POSE)
        assert np.isfinite(score.hcm)
        assert score.inliers.shape == (graph.num_edges,)
        assert score.num_inliers == score.inliers.sum()
        assert score.cardinality <= score.num_inliers


def test_repeated_edges_change_nothing():
    doubled = AssociationGraph(
        GRAPH.points0, GRAPH.points1, np.concatenate([GRAPH.edges, GRAPH.edges[::-1]])
    )
    assert doubled.num_edges == GRAPH.num_edges
    a = manymatch.estimate_relative_pose(GRAPH, K, K, options=QUICK)
    b = manymatch.estimate_relative_pose(doubled, K, K, options=QUICK)
    assert a.pose == b.pose
