"""The same result for any number of threads, order of calls and instruction set."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import manymatch
from manymatch import AssociationGraph, Options, _core
from tests.golden import golden_estimates as golden_module
from tests.oracles.geometry import angle_between
from tests.oracles.problems import nearby_pose, random_problem

F = 800.0
K = np.array([[F, 0.0, 512.0], [0.0, F, 384.0], [0.0, 0.0, 1.0]])
METHODS = ("auto", "hcm-mcm", "hcm", "mcm", "cm")
OPTIONS = Options(min_iterations=500, max_iterations=4000, seed=5)


def make_graph(seed, n=150, noise=0.5):
    """A graph with four candidates a vertex and about a fifth of its edges true."""
    rng = np.random.default_rng([21, seed])
    problem = random_problem(rng, n=n, max_degree=5, noise=noise)
    rank = rng.integers(1, 4, size=len(problem.edges))
    points = (F * x + K[:2, 2] for x in (problem.x0, problem.x1))
    return AssociationGraph(*points, problem.edges, rank=rank)


def fingerprint(estimate):
    """Everything found, without the clock and the settings, with arrays as bytes."""
    values = {}
    for field in dataclasses.fields(estimate):
        value = getattr(estimate, field.name)
        if field.name in {"timing", "options", "_pair"}:
            continue
        values[field.name] = plain(value)
    return values


def plain(value):
    """Return what can be compared bit by bit."""
    if isinstance(value, manymatch.RelativePose):
        return (value.R.tobytes(), value.t.tobytes())
    if isinstance(value, manymatch.Alternative):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    # NaN does not equal itself.
    return value.tobytes() if isinstance(value, np.ndarray) else repr(value)


def run(graph, method, options):
    """Estimate and take the fingerprint."""
    return fingerprint(manymatch.estimate_relative_pose(graph, K, K, method, options))


@pytest.mark.parametrize("guidance", [0.0, 0.5])
def test_any_number_of_threads_gives_the_same_bits(guidance):
    for seed in range(2):
        graph = make_graph(seed)
        options = OPTIONS.replace(guidance=guidance, threads=1)
        one = run(graph, "hcm-mcm", options)
        assert one["success"]
        for threads in (2, 8, 0, 3):
            assert run(graph, "hcm-mcm", options.replace(threads=threads)) == one


@pytest.mark.parametrize("method", METHODS)
def test_earlier_calls_do_not_matter(method):
    graphs = [make_graph(seed, n=40 + 30 * seed) for seed in range(5)]
    first = [run(graph, method, OPTIONS) for graph in graphs]
    again = [run(graph, method, OPTIONS) for graph in graphs]
    backwards = [run(graph, method, OPTIONS) for graph in graphs[::-1]][::-1]
    assert first == again == backwards


def test_the_seed_matters():
    graph = make_graph(0)
    options = OPTIONS.replace(max_iterations=500)
    poses = {run(graph, "hcm", options.replace(seed=seed))["model"] for seed in range(6)}
    assert len(poses) > 1


@pytest.fixture
def instruction_set():
    """Switch the instruction set for one test."""
    yield _core.force_instruction_set
    _core.force_instruction_set(None)


def test_an_unknown_instruction_set_is_refused(instruction_set):
    assert _core.instruction_set() in _core.instruction_sets()
    assert "baseline" in _core.instruction_sets()
    with pytest.raises(ValueError, match="sse9"):
        instruction_set("sse9")


def test_scores_agree_between_instruction_sets(instruction_set):
    rng = np.random.default_rng(31)
    for _ in range(20):
        problem = random_problem(rng, n=100)
        pose = nearby_pose(rng, problem.R, problem.t, 1e-3)
        results = []
        for name in _core.instruction_sets():
            instruction_set(name)
            results.append(
                _core.score(problem.x0, problem.x1, problem.edges, problem.eps, 0.3, 0.01, *pose)
            )
        for hcm, cardinality, inliers, r2 in results[1:]:
            assert hcm == pytest.approx(results[0][0], rel=1e-9)
            assert cardinality == results[0][1]
            np.testing.assert_array_equal(inliers, results[0][2])
            np.testing.assert_allclose(r2, results[0][3], rtol=1e-9, atol=1e-20)


@pytest.mark.parametrize("method", METHODS)
def test_wide_instruction_sets_give_the_same_bits(method, instruction_set):
    wide = [name for name in _core.instruction_sets() if name != "baseline"]
    if len(wide) < 2:
        pytest.skip("needs a processor with both AVX2 and AVX-512")
    graphs = [make_graph(seed) for seed in range(4)]
    results = []
    for name in wide:
        instruction_set(name)
        results.append([run(graph, method, OPTIONS) for graph in graphs])
    assert all(result == results[0] for result in results[1:])


@pytest.mark.parametrize("method", METHODS)
def test_baseline_selects_the_same_pose(method, instruction_set):
    graphs = [make_graph(seed) for seed in range(12)]
    names = _core.instruction_sets()
    if len(names) < 2:
        pytest.skip("only the baseline instruction set can run here")
    instruction_set("baseline")
    base = [manymatch.estimate_relative_pose(g, K, K, method, OPTIONS) for g in graphs]
    for name in names[1:]:
        instruction_set(name)
        other = [manymatch.estimate_relative_pose(g, K, K, method, OPTIONS) for g in graphs]
        same = [
            angle_between(a.pose.R, b.pose.R) < 1e-6 and np.linalg.norm(a.pose.t - b.pose.t) < 1e-6
            for a, b in zip(base, other, strict=True)
        ]
        # Rounding may tip one iteration's tie; it must stay the exception.
        assert sum(same) >= len(graphs) - 1


ROOT = Path(__file__).resolve().parents[2]
CASES = ("a fifth true", "small", "hubs")
ESTIMATE = """
import json, sys
from manymatch import _core
from tests.golden.golden_estimates import METHODS, run
found = {name: {method: run(name, method) for method in METHODS} for name in sys.argv[1:]}
json.dump({"instruction_set": _core.instruction_set(), "estimates": found}, sys.stdout)
"""
SHOW = "from manymatch.cli.app import main; main()"


def in_process(code, *arguments, isa):
    """Run Python code in a process of its own under one instruction set."""
    environment = os.environ | {"MANYMATCH_ISA": isa}
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return subprocess.run(  # noqa: S603
        [sys.executable, "-c", code, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("isa", _core.instruction_sets())
def test_every_path_of_this_machine_finds_the_golden_poses(isa):
    done = in_process(ESTIMATE, *CASES, isa=isa)
    assert done.returncode == 0, done.stderr
    answer, golden = json.loads(done.stdout), golden_module.load()
    assert answer["instruction_set"] == isa
    for name in CASES:
        for method in golden_module.METHODS:
            found, expected = answer["estimates"][name][method], golden["estimates"][name][method]
            if isa != "baseline" and golden_module.library_digest() == golden["library"]:
                assert found == expected
            else:
                R = [np.reshape(e["R"], (3, 3)) for e in (found, expected)]
                assert angle_between(*R) < 1e-7
                np.testing.assert_allclose(found["t"], expected["t"], atol=1e-7)
                assert found["iterations"] == expected["iterations"]
                assert found["cardinality"] == expected["cardinality"]


def test_an_empty_variable_means_the_best_path():
    done = in_process(SHOW, "--version", "--verbose", isa="")
    assert f"instruction set {_core.instruction_sets()[0]} " in done.stdout


def test_an_unknown_path_is_one_sentence():
    done = in_process(SHOW, "--version", "--verbose", isa="sse9")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    sets = " ".join(_core.instruction_sets())
    assert f"MANYMATCH_ISA must be one of {sets} on this machine" in lines[0]
    assert "'sse9'" in lines[0]


def test_an_unknown_path_stops_the_estimator():
    done = in_process(ESTIMATE, *CASES[:1], isa="AVX2")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ValueError: MANYMATCH_ISA must be one of")
