"""`estimate_many`: the results of one at a time, in the order given, of every kind."""

import numpy as np
import pytest

import manymatch
from manymatch import AssociationGraph, Options
from manymatch.estimate.many import PROBLEMS
from manymatch_lab.datasets.synthetic import EASY, make_scene
from tests.support.synthetic_problems import same

QUICK = Options(min_iterations=50, max_iterations=200)
SCENES = [make_scene(EASY, seed) for seed in range(3)]
RNG = np.random.default_rng(0)
PLANE0 = RNG.uniform(0, 500, (60, 2))
PLANE = AssociationGraph.from_matches(PLANE0, 1.1 * PLANE0 + RNG.normal(0, 0.3, (60, 2)))
CLOUD0 = RNG.uniform(-1, 1, (60, 3))
SEEN = AssociationGraph.from_matches(400 * CLOUD0[:, :2] / (CLOUD0[:, 2:] + 3) + 250, CLOUD0)
CLOUD = AssociationGraph.from_matches(CLOUD0, CLOUD0 + RNG.normal(0, 0.01, (60, 3)))

# What the function of each problem takes after the method and the options are left out.
CALLS = {
    "relative": [(scene.graph, scene.camera0, scene.camera1) for scene in SCENES],
    "homography": [(PLANE,), (SCENES[0].graph,), (PLANE, {"model": "affine"})],
    "fundamental": [(scene.graph,) for scene in SCENES],
    "absolute": [(SEEN, [400, 400, 250, 250]), (SEEN, manymatch.Camera.unknown(500, 500))],
    "rigid": [(CLOUD, 0.05), (CLOUD, 0.1)],
    "similarity": [(CLOUD, 0.05)],
}


def test_every_problem_has_a_call():
    assert set(CALLS) == set(PROBLEMS)
    for name, problem in PROBLEMS.items():
        assert problem.name == name
        assert problem.estimate is getattr(manymatch, problem.estimate.__name__)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_the_results_are_those_of_one_at_a_time(threads):
    """Kinds alternate, named by text and by function, and come back in the order given."""
    calls = [(name, call) for name in CALLS for call in CALLS[name]]
    mixed = [calls[i] for i in np.random.default_rng(1).permutation(len(calls))]
    problems = [
        (PROBLEMS[name].estimate if i % 2 else name, *call) for i, (name, call) in enumerate(mixed)
    ]
    together = manymatch.estimate_many(problems, options=QUICK, threads=threads)
    for (name, call), estimate in zip(mixed, together, strict=True):
        named = call[-1] if isinstance(call[-1], dict) else {}
        alone = PROBLEMS[name].estimate(*call[: len(call) - bool(named)], options=QUICK, **named)
        assert estimate.problem == alone.problem == name
        assert estimate.success
        assert same(estimate, alone)


def test_keywords_of_a_problem_are_those_of_its_function():
    graph, K0, K1 = CALLS["relative"][0]
    proposals = np.arange(graph.num_edges) < 40
    own = {"proposals": proposals, "seed": 7, "threshold_px": 2.0}
    wide = {"threshold_px": 3.0}
    problems = [
        ("relative", graph, K0, K1, own),
        (graph, K0, K1, proposals),
        (manymatch.estimate_homography, PLANE, wide),
        ("homography", PLANE, None),
    ]
    pose, plain, plane, narrow = manymatch.estimate_many(problems, "hcm", QUICK, seed=3)
    assert pose.options == QUICK.replace(seed=7, threshold_px=2.0)
    assert plain.options == narrow.options == QUICK.replace(seed=3)
    assert plane.options == QUICK.replace(seed=3, threshold_px=3.0)
    for estimate, settings in ((pose, own), (plain, {"proposals": proposals, "seed": 3})):
        alone = manymatch.estimate_relative_pose(graph, K0, K1, "hcm", QUICK, **settings)
        assert same(estimate, alone)
    assert same(plane, manymatch.estimate_homography(PLANE, "hcm", QUICK, seed=3, **wide))
    each = [QUICK.replace(seed=i) for i in range(4)]
    assert [e.options.seed for e in manymatch.estimate_many(problems, options=each)] == [7, 1, 2, 3]


def test_none_and_unsolvable():
    assert manymatch.estimate_many([]) == []
    empty = AssociationGraph(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros((0, 2), int))
    problems = [("homography", empty), ("homography", PLANE)]
    assert [e.success for e in manymatch.estimate_many(problems, options=QUICK)] == [False, True]


@pytest.mark.parametrize(
    ("problems", "message"),
    [
        (PLANE, "problems must be an iterable of tuples"),
        (3, "problems must be an iterable of tuples"),
        ([("homography", PLANE), PLANE], r"problems\[1\] must be a tuple"),
        ([()], r"problems\[0\] must be a tuple"),
        ([("plane", PLANE)], r"problems\[0\] must begin with one of 'relative', .*, got 'plane'"),
        ([("homographi", PLANE)], "did you mean 'homography'"),
        ([(len, PLANE)], r"problems\[0\] must begin with one of"),
        ([(np.zeros(3), PLANE)], r"problems\[0\] must begin with one of"),
        ([("homography",)], r"problems\[0\] must be \(graph,\), \(graph, proposals\) or"),
        ([("relative", PLANE)], r"problems\[0\] must be \(graph, camera0, camera1\), "),
        ([("homography", PLANE, {"sead": 1})], r"problems\[0\] must .* did you mean 'seed'"),
        ([("homography", PLANE, {"threads": 1})], r"problems\[0\] must have keywords of"),
        ([("homography", PLANE, {"seed": -1})], r"^problems\[0\]: seed must be"),
        ([("homography", PLANE), ("homography", 3)], r"^problems\[1\]: graph must be"),
        ([("homography", PLANE, [True])], r"^problems\[0\]: proposals must be"),
        ([("relative", PLANE, "K", np.eye(3))], r"^problems\[0\]: camera0 must be"),
        ([("rigid", CLOUD, 0.05, {"threshold_px": 3.0})], r"problems\[0\].* got 'threshold_px'"),
    ],
)
def test_bad_problems_are_one_sentence(problems, message):
    with pytest.raises(ValueError, match=message) as error:
        manymatch.estimate_many(problems)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "best"}, "method must be one of"),
        ({"options": 3}, "options must be"),
        ({"options": [QUICK] * 2}, "options must be .* a sequence of 1 Options"),
        ({"threads": -1}, "threads must be"),
        ({"sead": 1}, "sead is neither an argument .* did you mean 'seed'"),
    ],
)
def test_bad_settings_are_one_sentence(settings, message):
    with pytest.raises(ValueError, match=message):
        manymatch.estimate_many([("homography", PLANE)], **settings)
