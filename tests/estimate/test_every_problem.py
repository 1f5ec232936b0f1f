"""What holds for the estimator of every geometric problem (tests/support/synthetic_problems.py).

Each problem has a file with its own tests; relative poses have several.
"""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manymatch import AssociationGraph, Options, _core
from manymatch._validate import METHODS
from manymatch.estimate.many import PROBLEMS
from tests.support.synthetic_problems import CASES, same

every_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
# Thresholds at which the loss of all residuals is nearly their square.
WIDE = dict.fromkeys(CASES, 60.0) | {"relative": 20.0, "fundamental": 4.0, "absolute": 100.0}
every_method = pytest.mark.parametrize("method", METHODS)


@every_case
@every_method
def test_every_method_finds_the_model(case, method):
    for seed in range(4):
        graph, truth = case.graph(seed)
        right = 1 + int(graph.edges[graph.edges[:, 0] == graph.edges[:, 1]].max())
        estimate = case.estimate(graph, method, truth=truth)
        assert estimate.success
        assert estimate.failure == ""
        assert estimate.problem == case.problem
        assert estimate.length("threshold") == pytest.approx(case.limit(truth))
        assert case.of(estimate) is estimate.model
        assert case.error(case.of(estimate), truth) < case.close
        assert np.mean(estimate.matches[:, 0] == estimate.matches[:, 1]) > 0.9
        assert len(estimate.matches) >= 0.88 * right
        assert case.problem in repr(estimate).lower()


@every_case
def test_the_result_is_consistent_with_itself(case):
    graph, truth = case.graph(7, noise=0.4 * case.limit())  # many residuals near the threshold
    estimate = case.estimate(graph, truth=truth)
    error = np.sqrt(case.error2(estimate, graph)) / case.limit(truth)
    error = np.nan_to_num(error, nan=np.inf)
    near = np.abs(error - 1.0) < max(case.slack, 1e-6)
    assert np.array_equal(estimate.inliers[~near], error[~near] < 1.0)
    assert estimate.num_inliers == estimate.inliers.sum()
    assert estimate.cardinality == len(estimate.matches)
    for column in estimate.matches.T:
        assert len(np.unique(column)) == len(column)
    inlier_edges = {tuple(edge) for edge in graph.edges[estimate.inliers].tolist()}
    assert {tuple(match) for match in estimate.matches.tolist()} <= inlier_edges
    assert estimate.match_probability.shape == (len(estimate.matches),)
    assert ((estimate.match_probability > 0) & (estimate.match_probability < 1)).all()
    for method in METHODS[1:]:
        assert case.estimate(graph, method, truth=truth).match_probability is None


@every_case
def test_errors_are_those_of_the_definition(case):
    for seed in range(5):
        graph, truth = case.graph(seed)
        estimate = case.estimate(graph, "hcm", truth=truth)
        found = PROBLEMS[case.problem].errors(estimate._pair, estimate._model)
        expected = np.sqrt(case.error2(estimate, graph)) / case.limit(truth)
        if case.problem == "similarity":  # the symmetric error is at the scale of the clouds
            expected *= np.median(found / expected)
        defined = np.isfinite(found) & np.isfinite(expected)
        assert defined.mean() > 0.5
        np.testing.assert_allclose(found[defined], expected[defined], rtol=1e-5, atol=1e-7)


@every_case
@every_method
def test_threads_do_not_matter(case, method):
    graph, truth = case.graph(11, right=40, wrong=75)
    one = case.estimate(graph, method, truth=truth)
    for threads in (2, 8):
        options = case.options.replace(threads=threads)
        assert same(one, case.estimate(graph, method, options, truth))
    other = case.estimate(graph, method, case.options.replace(seed=5), truth)
    assert not same(one, other)  # the comparison sees differences


@every_case
def test_instruction_sets_agree(case):
    graph, truth = case.graph(12, right=50, wrong=75)
    results = {}
    try:
        for name in _core.instruction_sets():
            _core.force_instruction_set(name)
            results[name] = case.estimate(graph, truth=truth)
    finally:
        _core.force_instruction_set(None)
    best = results.pop(_core.instruction_sets()[0])
    for name, other in results.items():
        if name == "baseline":
            assert case.error(case.of(other), case.of(best)) < 1e-4
        else:
            assert same(best, other)


@every_case
def test_samples_come_from_the_proposals(case):
    graph, truth = case.graph(13)
    right = graph.edges[:, 0] == graph.edges[:, 1]
    all_right = case.estimate(graph, "hcm", truth=truth, proposals=right)
    none_right = case.estimate(graph, "hcm", truth=truth, proposals=~right)
    assert case.error(case.of(all_right), truth) < case.close
    assert not none_right.success or case.error(case.of(none_right), truth) > 2 * case.close


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.optimum])
def test_refinement_reaches_the_optimum(name):
    # Without wrong candidates and with a wide threshold the loss is nearly that of least squares.
    case = CASES[name]
    noise = 0.01 if case.threshold else 0.05
    graph, truth = case.graph(3, right=80, wrong=0, partners=1, noise=noise)
    graph = graph.filter(graph.edges[:, 0] == graph.edges[:, 1])
    wide = dataclasses.replace(
        case, threshold=9 * case.threshold, options=case.options.replace(threshold_px=WIDE[name])
    )
    ends = graph.points0[graph.edges[:, 0]], graph.points1[graph.edges[:, 1]]
    best = case.optimum(truth, *ends, wide.limit(truth))
    found = case.of(wide.estimate(graph, "cm", truth=truth))
    assert case.error(found, best) < 5e-3 * case.error(best, truth)


@settings(max_examples=6)
@given(st.integers(0, 10_000), st.sampled_from(["auto", "hcm-mcm", "cm"]))
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.inverse])
def test_swapped_sides_have_the_inverse(name, seed, method):
    case = CASES[name]
    graph, truth = case.graph(seed)
    swapped = AssociationGraph(graph.points1, graph.points0, graph.edges[:, ::-1], rank=graph.rank)
    there = case.estimate(graph, method, truth=truth)
    back = case.estimate(swapped, method, truth=case.inverse(truth))
    assert case.error(case.of(there), truth) < 1.5 * case.close
    assert case.error(case.inverse(case.of(back)), truth) < 1.5 * case.close
    assert abs(there.cardinality - back.cardinality) <= 4


def check_failed(case, estimate, reason):
    """Assert that an estimate has no model and nothing of one, and says why."""
    assert not estimate.success
    assert estimate.failure
    assert reason in estimate.failure
    assert case.of(estimate) is None
    assert estimate.matches.shape == (0, 2)
    assert not estimate.inliers.any()
    assert estimate.match_probability is None or len(estimate.match_probability) == 0


def on_a_line(dimension, count=30):
    """Points in an image, or in front of a camera."""
    if dimension == 2:
        return np.linspace([0.0, 50.0], [400.0, 250.0], count)
    return np.linspace([0.0, 0.0, 4.0], [1.0, 0.5, 6.0], count)


@every_case
@every_method
def test_what_cannot_be_solved_says_why(case, method):
    line0, line1 = map(on_a_line, case.dimensions)
    few = case.sample_size - 1
    equal = np.tile(line0[:1], (20, 1)), np.tile(line1[:1], (20, 1)), ""
    on_lines = [(line0, 2 * line1, ""), (line0, line1[::-1], ""), equal]
    for points0, points1, reason in [
        (line0[:0], line1[:0], "image 0" if case.dimensions == (2, 2) else "side 0"),
        (line0[:few], line1[:few], f"{few} edges"),
        *(on_lines if case.problem != "relative" else []),
    ]:
        graph = AssociationGraph.from_matches(points0, points1)
        check_failed(case, case.estimate(graph, method), reason)
    graph = AssociationGraph.from_matches(line0, line1)
    for count in (0, few):
        failed = case.estimate(graph, method, proposals=np.arange(30) < count)
        check_failed(case, failed, f"proposals leave {count}")


# A relative pose of points on a line is found, and its verdict says that it is not determined.
@pytest.mark.parametrize("case", [case for case in CASES.values() if case.problem != "relative"])
@every_method
def test_noisy_points_on_a_line_have_no_model(case, method):
    rng = np.random.default_rng(1)
    noisy = [
        line + rng.normal(0, 0.2 if line.shape[1] == 2 else 1e-3, line.shape)
        for line in map(on_a_line, case.dimensions)
    ]
    check_failed(case, case.estimate(AssociationGraph.from_matches(*noisy), method), "")


@every_case
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"graph": "g.npz"}, "graph must be an AssociationGraph"),
        ({"graph": np.zeros((5, 2))}, "graph must be an AssociationGraph"),
        ({"method": "ransac"}, "method must be one of"),
        ({"method": None}, "method must be one of"),
        ({"options": {"seed": 1}}, "options must be an Options"),
        ({"options": Options}, "options must be an Options"),
        ({"proposals": [True]}, "proposals must be a boolean array"),
        ({"proposals": np.ones((30, 1), bool)}, "proposals must be a boolean array"),
        ({"proposals": np.arange(30)}, "proposals must be a boolean array"),
        ({"proposals": "all"}, "proposals must be a boolean array"),
        ({"sed": 1}, "sed is neither an argument .* did you mean 'seed'"),
        ({"options": Options(guidance=0.5)}, "ranks"),
    ],
)
def test_bad_arguments_are_one_sentence(case, arguments, sentence):
    lines = map(on_a_line, case.dimensions)
    given = {"graph": AssociationGraph(*lines, [[i, i] for i in range(30)]), **arguments}
    with pytest.raises(ValueError, match=sentence) as error:
        case.estimate(given.pop("graph"), **given)
    assert "\n" not in str(error.value)


@every_case
def test_points_of_another_dimension_are_refused(case):
    lines = map(on_a_line, (5 - d for d in case.dimensions))
    with pytest.raises(ValueError, match="graph must have"):
        case.estimate(AssociationGraph.from_matches(*lines))
