"""Scores and refinements of the paper's reference implementation, reproduced."""

import numpy as np
import pytest

from manymatch import _core
from tests.data_folder import data_folder
from tests.oracles.geometry import angle_between, rotation_from_quaternion

pytestmark = pytest.mark.data

NAMES = [f"{ratio}_{n:02d}" for ratio in ("0.05", "0.10", "0.20", "0.40") for n in range(3)]
Q, DELTA = 0.3, 0.01


def load(name):
    """Arrays of one reference file, or skip."""
    folder = data_folder()
    path = folder / "vectors" / name if folder else None
    if path is None or not path.is_file():
        pytest.skip(f"needs {name} in the vectors folder of the reference data (MANYMATCH_DATA)")
    return np.load(path)


@pytest.fixture(scope="module")
def score_file():
    with load("score_vectors.npz") as file:
        yield file


@pytest.fixture(scope="module")
def refine_file():
    with load("refine_vectors.npz") as file:
        yield file


def normalised(points, K):
    """Pixels (N, 2) to the plane z = 1."""
    homogeneous = np.column_stack([points, np.ones(len(points))])
    return np.ascontiguousarray((homogeneous @ np.linalg.inv(K).T)[:, :2])


def graph_of(file, name):
    """Points on the normalised plane, edges and eps of one reference graph."""
    x0 = normalised(file[f"{name}/kp1"], file[f"{name}/K1"])
    x1 = normalised(file[f"{name}/kp2"], file[f"{name}/K2"])
    edges = np.column_stack([file[f"{name}/idx1"], file[f"{name}/idx2"]]).astype(np.int32)
    return x0, x1, edges, float(file[f"{name}/max_error"])


def unpack(bits, count):
    """Boolean mask (count,) from packed bits."""
    return np.unpackbits(bits)[:count].astype(bool)


def test_the_names_are_those_of_the_file(score_file, refine_file):
    assert sorted(score_file["names"]) == sorted(refine_file["names"]) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_scores(score_file, name):
    x0, x1, edges, eps = graph_of(score_file, name)
    prior, _, _ = _core.priors(edges, len(x0), len(x1), Q, DELTA)
    np.testing.assert_allclose(prior, score_file[f"{name}/prob"], rtol=1e-12)
    poses = zip(score_file[f"{name}/q"], score_file[f"{name}/t"], strict=True)
    compared = 0
    for k, (q, t) in enumerate(poses):
        if score_file[f"{name}/margin"][k] < 1e-12:
            continue
        hcm, cardinality, inliers, _ = _core.score(
            x0, x1, edges, eps, Q, DELTA, rotation_from_quaternion(q), t
        )
        mask = unpack(score_file[f"{name}/mask"][k], len(edges))
        np.testing.assert_array_equal(inliers, mask)
        assert inliers.sum() == score_file[f"{name}/edge_inliers"][k]
        assert cardinality == score_file[f"{name}/cardinality"][k]
        assert hcm == pytest.approx(-score_file[f"{name}/hcm"][k], rel=1e-9, abs=1e-9)
        compared += 1
    assert compared >= 45


@pytest.mark.parametrize("kind", ["local", "polish"])
@pytest.mark.parametrize("name", NAMES)
def test_refinements(refine_file, name, kind):
    x0, x1, edges, eps = graph_of(refine_file, name)
    function = {"local": _core.local_refine, "polish": _core.final_polish}[kind]
    reference = {
        key: refine_file[f"{name}/{kind}_{key}"]
        for key in ("q", "t", "done", "used", "initial_cost", "cost", "lm_iterations")
    }
    limit = {"local": 25, "polish": 100}[kind]
    same_pose, converged = 0, 0
    for k, (q, t) in enumerate(
        zip(refine_file[f"{name}/q_in"], refine_file[f"{name}/t_in"], strict=True)
    ):
        R_out, t_out, before, after, used, weight = function(
            x0, x1, edges, eps, rotation_from_quaternion(q), t
        )
        if not reference["done"][k]:
            continue
        theirs = unpack(reference["used"][k], len(edges))
        np.testing.assert_array_equal(used, theirs)
        if k == 0:
            expected = refine_file[f"{name}/{kind}_weights0"]
            np.testing.assert_allclose(weight[used], expected, rtol=1e-12)
        # The reference reports the mean over the edges used, not the sum.
        assert before / used.sum() == pytest.approx(reference["initial_cost"][k], rel=1e-9)
        if reference["lm_iterations"][k] >= limit:
            continue
        converged += 1
        direction = reference["t"][k] / np.linalg.norm(reference["t"][k])
        close = angle_between(R_out, rotation_from_quaternion(reference["q"][k])) < 1e-4
        same_pose += close and bool(np.linalg.norm(t_out - direction) < 1e-3)
        if kind == "polish":
            assert after / used.sum() <= reference["cost"][k] * (1.0 + 1e-6)
    assert converged >= 10
    # The truncated cost has many small local minima, so two schedules may part ways in a few.
    assert same_pose >= converged - 2
