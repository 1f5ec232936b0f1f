"""Ctrl-C ends a long run with KeyboardInterrupt, on one thread and on several."""

import signal
import subprocess
import sys

import pytest

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
        manymatch.estimate_relative_poses(problems, "hcm-mcm", options=options, threads=2)
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
