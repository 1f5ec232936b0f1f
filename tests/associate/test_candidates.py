"""Candidates from descriptors: steps in order, what they count, and its refusals."""

import inspect

import numpy as np
import pytest

import manymatch
from manymatch._validate import METHODS
from manymatch.associate import candidates as frontend
from manymatch.associate.candidates import Association
from manymatch.associate.neighbours import associate
from manymatch_lab.datasets.synthetic import SceneConfig, make_scene

COUNTS = ["keypoints0", "keypoints1", "associated", "after_cap", "after_gms", "kept"]


@pytest.fixture(scope="module")
def scene():
    return make_scene(SceneConfig(num_points=300, num_outliers=100, family_size=3), 1)


@pytest.fixture(scope="module")
def inputs(scene):
    sizes = [(camera.width, camera.height) for camera in (scene.camera0, scene.camera1)]
    points = scene.graph.points0, scene.graph.points1
    return *points, scene.descriptors0, scene.descriptors1, *sizes


def test_steps_are_those_taken_one_by_one(inputs):
    points0, points1, desc0, desc1, size0, size1 = inputs
    result = manymatch.candidates(*inputs, 4, "hcm-mcm", max_edges=700, keep=250)
    whole = manymatch.AssociationGraph(points0, points1, *associate(desc0, desc1, 4))
    capped = whole.head(700)
    left = capped.filter(manymatch.gms_filter(capped, size0, size1).mask)
    assert result.graph == left.head(250)
    numbers = [len(points0), len(points1), len(whole), len(capped), len(left), len(result.graph)]
    assert result.counts == dict(zip(COUNTS, numbers, strict=True))
    assert list(result.counts) == COUNTS
    # The scene is large enough for every step to have had something to do.
    assert len(whole) > len(capped) > len(left) > len(result.graph) == 250
    assert result.gms.num_kept == len(left)


@pytest.mark.parametrize("method", METHODS)
def test_method_decides_filter_and_cut(inputs, method):
    decided = {"gms": False, "keep": None} if method == "auto" else {"gms": True, "keep": 1024}
    explicit = manymatch.candidates(*inputs, k=5, max_edges=2048, **decided)
    found = manymatch.candidates(*inputs, method=method)
    assert found.graph == explicit.graph
    assert (found.gms is None) == (method == "auto")
    # Arguments that are given win over the method.
    assert manymatch.candidates(*inputs, method=method, keep=99).graph.num_edges == 99
    assert manymatch.candidates(*inputs, method=method, gms=True).gms is not None


def test_configuration_of_the_paper(inputs):
    points0, points1, desc0, desc1, size0, size1 = inputs
    whole = manymatch.AssociationGraph(points0, points1, *associate(desc0, desc1))
    named = Association.paper().apply(whole, size0, size1)
    assert manymatch.candidates(*inputs, method="hcm-mcm").graph == named
    assert manymatch.candidates(*inputs, **Association.paper().to_dict()).graph == named
    with pytest.raises(ValueError, match="gms must be True or False here, got None"):
        Association().apply(whole, size0, size1)


def test_everything_off_is_the_association(inputs):
    points0, points1, desc0, desc1, _, _ = inputs
    result = manymatch.candidates(*inputs, max_edges=None, gms=False, keep=None)
    edges, similarity, rank = associate(desc0, desc1)
    assert result.graph == manymatch.AssociationGraph(points0, points1, edges, similarity, rank)
    assert result.gms is None
    assert {result.counts[name] for name in COUNTS[2:]} == {len(edges)}


def test_options_reach_their_steps(inputs, monkeypatch):
    chosen = {"threshold": 2.0, "grid": 9}
    chosen |= dict.fromkeys(("scales", "rotations", "crop", "integer_mean"), False)
    calls = []

    def record(function):
        def run(*arguments, **named):
            bound = inspect.signature(function).bind(*arguments, **named)
            bound.apply_defaults()
            calls.append(bound.arguments)
            return function(*arguments, **named)

        return run

    for function in (associate, manymatch.gms_filter):
        monkeypatch.setattr(frontend, function.__name__, record(function))
    result = manymatch.candidates(*inputs, k=2, operator="union", keep=None, gms=chosen)
    first, second = calls
    assert (first["k"], first["operator"], first["max_edges"]) == (2, "union", None)
    assert {name: second[name] for name in chosen} == chosen
    assert result.graph == second["graph"].filter(result.gms.mask)


@pytest.mark.parametrize("method", ["auto", "hcm-mcm"])
def test_estimator_takes_the_result(scene, inputs, method):
    graph = manymatch.candidates(*inputs, method=method).graph
    options = manymatch.Options(max_iterations=2_000, seed=1)
    estimate = manymatch.estimate_relative_pose(
        graph, scene.camera0, scene.camera1, method, options
    )
    error = manymatch.pose_error_deg(estimate.pose, scene.pose.R, scene.pose.t)
    assert error < 2.0


def test_no_keypoints():
    empty = np.zeros((0, 2)), np.zeros((0, 8))
    result = manymatch.candidates(
        empty[0], np.ones((3, 2)), empty[1], np.eye(3, 8), (10, 10), (10, 10)
    )
    assert result.graph.num_edges == 0
    assert list(result.counts.values()) == [0, 3, 0, 0, 0, 0]


BAD = [
    ({"desc0": np.eye(4)}, r"desc0 must have one row per keypoint \(3\), got shape \(4, 4\)"),
    ({"desc1": np.eye(2)}, r"desc1 must have one row per keypoint \(3\), got shape \(2, 2\)"),
    ({"desc1": np.eye(3, 5)}, "desc1 must have the dimension of desc0"),
    ({"points0": np.zeros((3, 3))}, r"points0 must be an \(N, 2\) array of pixels"),
    ({"points1": np.full((3, 2), np.nan)}, "points1 must hold finite numbers"),
    ({"k": 0}, "k must be an integer of at least 1, got 0"),
    ({"max_edges": -1}, "max_edges must be an integer of at least 0, got -1"),
    ({"keep": 1.5}, "keep must be an integer of at least 0, got 1.5"),
    ({"keep": "all"}, "keep must be an integer of at least 0, got 'all'"),
    ({"gms": 1}, "gms must be True or False, got 1"),
    ({"method": "ransac"}, "method must be one of"),
    ({"operator": "mutal"}, "operator must be one of"),
    ({"size0": (0, 10)}, "size0 must be two positive finite numbers"),
    ({"size1": None, "gms": False}, "size1 must be two positive finite numbers"),
    ({"gms": {"grid": 0}}, r"grid must be an integer in \[2, 256\], got 0"),
    ({"gms": {"grids": 9}}, r"every key of gms must be one of 'threshold', .*, got 'grids', did"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_refusals(change, message):
    arguments = {"points0": np.zeros((3, 2)), "points1": np.zeros((3, 2)), "desc0": np.eye(3)}
    arguments |= {"desc1": np.eye(3), "size0": (10, 10), "size1": (10, 10), **change}
    with pytest.raises(ValueError, match=message):
        manymatch.candidates(**arguments)


def test_keypoints_with_several_descriptors_take_the_best_of_them():
    rng = np.random.default_rng(3)
    points0, points1 = 100 * rng.random((6, 2)), 100 * rng.random((6, 2))
    desc1 = rng.normal(size=(6, 16))
    turned = desc1 + 0.01 * rng.normal(size=(6, 16))
    desc0 = np.concatenate([rng.normal(size=(6, 16)), turned])
    found = manymatch.candidates(
        points0, points1, desc0, desc1, (100, 100), (100, 100), k=1, gms=False,
        owners0=np.tile(np.arange(6), 2), owners1=np.arange(6),
    )  # fmt: skip
    assert sorted(map(tuple, found.graph.edges.tolist())) == [(i, i) for i in range(6)]
    with pytest.raises(ValueError, match="owners0 and owners1 must be given together"):
        manymatch.candidates(
            points0, points1, desc1, desc1, (9, 9), (9, 9), owners0=np.arange(6)
        )  # fmt: skip
