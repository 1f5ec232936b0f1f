"""The same result for any number of threads, order of calls and instruction set."""

import os
import subprocess
import sys

import numpy as np
import pytest

from manymatch import Options, _core, estimate_relative_pose
from manymatch._validate import METHODS
from tests.oracles.problems import K, random_problem
from tests.support.synthetic_problems import same

OPTIONS = Options(min_iterations=500, max_iterations=4000, seed=5)


def run(seed, method, options=OPTIONS, n=150):
    """Estimate of a graph with four candidates a vertex and about a fifth of its edges true."""
    rng = np.random.default_rng([21, seed])
    problem = random_problem(rng, n=n, max_degree=5, noise=0.5)
    graph = problem.graph(rank=rng.integers(1, 4, size=len(problem.edges)))
    return estimate_relative_pose(graph, K, K, method, options)


@pytest.mark.parametrize("guidance", [0.0, 0.5])
def test_any_number_of_threads_gives_the_same_bits(guidance):
    for seed in range(2):
        options = OPTIONS.replace(guidance=guidance, threads=1)
        one = run(seed, "hcm-mcm", options)
        assert one.success
        for threads in (2, 8, 0, 3):
            assert same(run(seed, "hcm-mcm", options.replace(threads=threads)), one)


@pytest.mark.parametrize("method", METHODS)
def test_earlier_calls_do_not_matter(method):
    def all_runs(seeds):
        return [run(seed, method, n=40 + 30 * seed) for seed in seeds]

    first, again, backwards = all_runs(range(5)), all_runs(range(5)), all_runs(range(4, -1, -1))
    assert all(map(same, first, again))
    assert all(map(same, first, backwards[::-1]))


def under(isa, code, *arguments):
    return subprocess.run(  # noqa: S603
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"MANYMATCH_ISA": isa},
        capture_output=True,
        text=True,
        check=False,
    )


VERSION = "from manymatch.cli.app import main; main()", "--version", "--verbose"


# What each instruction set computes is compared in tests/golden/test_estimates.py.
@pytest.mark.parametrize("isa", [*_core.instruction_sets(), ""])
def test_the_variable_chooses_the_instruction_set(isa):
    expected = isa or _core.instruction_sets()[0]
    assert f"instruction set {expected} " in under(isa, *VERSION).stdout


def test_an_unknown_instruction_set_is_one_sentence():
    done, sets = under("sse9", *VERSION), " ".join(_core.instruction_sets())
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"MANYMATCH_ISA must be one of {sets} on this machine" in line
    assert "'sse9'" in line
    assert "baseline" in sets
    with pytest.raises(ValueError, match="sse9"):
        _core.force_instruction_set("sse9")
    stopped = under("AVX2", "import manymatch as m, numpy as n; m.associate(n.eye(3), n.eye(3))")
    assert stopped.returncode == 1
    assert stopped.stderr.splitlines()[-1].startswith("ValueError: MANYMATCH_ISA must be one of")
