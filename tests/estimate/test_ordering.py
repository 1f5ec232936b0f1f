"""The scorers' order on made scenes with rows, and none without: a small, seeded experiment."""

import numpy as np
import pytest

import manymatch
from manymatch.datasets import synthetic
from manymatch.evaluate import paired_bootstrap_interval, pose_error_deg

METHODS = ("cm", "hcm", "mcm", "hcm-mcm")
PAIRS = 40
SOLVED_DEG = 5.0
OPTIONS = manymatch.Options(min_iterations=1_000, max_iterations=20_000)


def solved(config):
    """Share of solved pairs by method, as (PAIRS,) arrays of zeros and ones."""
    scenes = list(synthetic.make_scenes(config, PAIRS, seed=1000))
    problems = [(scene.graph, scene.camera0, scene.camera1) for scene in scenes]
    result = {}
    for method in METHODS:
        estimates = manymatch.estimate_relative_poses(problems, method=method, options=OPTIONS)
        errors = [
            pose_error_deg(estimate.pose, scene.pose.R, scene.pose.t)
            for estimate, scene in zip(estimates, scenes, strict=True)
        ]
        result[method] = (np.array(errors) < SOLVED_DEG).astype(float)
    return result


@pytest.fixture(scope="module")
def ordering():
    return solved(synthetic.ORDERING)


@pytest.fixture(scope="module")
def control():
    return solved(synthetic.CONTROL)


@pytest.mark.parametrize(("worse", "better"), [("cm", "hcm"), ("hcm", "mcm"), ("cm", "hcm-mcm")])
def test_rows_separate_the_scorers(ordering, worse, better):
    gain = paired_bootstrap_interval(ordering[better], ordering[worse], np.mean)
    assert gain.low > 0.0


def test_two_stages_are_not_below_mcm(ordering):
    gain = paired_bootstrap_interval(ordering["hcm-mcm"], ordering["mcm"], np.mean)
    # On 40 pairs two or three either way are chance.
    assert gain.high >= 0.0
    assert gain.value > -0.1


def test_without_rows_every_method_solves_the_same_pairs(control):
    for method in METHODS:
        assert control[method].mean() > 0.9
        gain = paired_bootstrap_interval(control[method], control["hcm-mcm"], np.mean)
        assert gain.low <= 0.0 <= gain.high
