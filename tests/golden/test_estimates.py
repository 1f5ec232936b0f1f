"""The same graphs and seeds give the poses they always gave, to the last bit.

A failure means that results changed. If they were meant to:
``python -m tests.golden.golden_estimates`` renews the file.
"""

import numpy as np
import pytest

from manymatch import _core
from tests.golden.exact_graphs import make_graph
from tests.golden.golden_estimates import CASES, METHODS, graph_digest, library_digest, load, run
from tests.oracles.geometry import angle_between

COUNTS = ("cardinality", "num_inliers", "iterations", "refinements", "pooled")


@pytest.fixture(scope="module")
def golden():
    return load()


@pytest.fixture(params=_core.instruction_sets())
def instruction_set(request):
    _core.force_instruction_set(request.param)
    yield request.param
    _core.force_instruction_set(None)


@pytest.mark.parametrize("name", CASES)
def test_the_graphs_are_the_same(golden, name):
    assert graph_digest(make_graph(*CASES[name][0])) == golden["graphs"][name]


@pytest.mark.parametrize("name", CASES)
def test_every_method_gives_the_same_estimate(golden, name, instruction_set):
    exact = instruction_set != "baseline" and library_digest() == golden["library"]
    for method in METHODS:
        expected, found = golden["estimates"][name][method], run(name, method)
        if exact:
            assert found == expected, method
            continue
        # Without a fused multiply-add, or with another C library, the last bits differ.
        R, t = np.reshape(found["R"], (3, 3)), np.array(found["t"])
        assert angle_between(R, np.reshape(expected["R"], (3, 3))) < 1e-7, method
        assert np.linalg.norm(t - expected["t"]) < 1e-7, method
        assert found["hcm"] == pytest.approx(expected["hcm"], rel=1e-9), method
        assert {k: found[k] for k in COUNTS} == {k: expected[k] for k in COUNTS}, method


def test_the_file_holds_every_case(golden):
    assert golden["estimates"].keys() == CASES.keys()
    assert all(found.keys() == set(METHODS) for found in golden["estimates"].values())
