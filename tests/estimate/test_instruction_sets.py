"""MANYMATCH_ISA chooses the compiled path of a whole process; every path gives the same answer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from manymatch import _core
from tests.golden.golden_estimates import METHODS, library_digest, load
from tests.oracles.geometry import angle_between

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
    answer, golden = json.loads(done.stdout), load()
    assert answer["instruction_set"] == isa
    for name in CASES:
        for method in METHODS:
            found, expected = answer["estimates"][name][method], golden["estimates"][name][method]
            if isa != "baseline" and library_digest() == golden["library"]:
                assert found == expected
            else:
                R = [np.reshape(e["R"], (3, 3)) for e in (found, expected)]
                assert angle_between(*R) < 1e-7
                np.testing.assert_allclose(found["t"], expected["t"], atol=1e-7)
                assert found["iterations"] == expected["iterations"]
                assert found["cardinality"] == expected["cardinality"]


@pytest.mark.parametrize("isa", _core.instruction_sets())
def test_the_command_shows_the_path(isa):
    done = in_process(SHOW, "--version", "--verbose", isa=isa)
    assert done.returncode == 0, done.stderr
    assert f"instruction set {isa} (also here: " in done.stdout


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
