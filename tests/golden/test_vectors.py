"""Scores, refinements and GMS masks of the paper's reference implementation, reproduced."""

import re

import numpy as np
import pytest

import manymatch
from manymatch import _core
from tests.oracles.geometry import angle_between, rotation_from_quaternion
from tests.support.data_folder import data_folder

pytestmark = pytest.mark.data

NAMES = [f"{ratio}_{n:02d}" for ratio in ("0.05", "0.10", "0.20", "0.40") for n in range(3)]
Q, DELTA = 0.3, 0.01
SETTING = re.compile(r"am([01])_s([01])_r([01])_t([0-9.]+)")


def load(name):
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


@pytest.fixture(scope="module")
def gms_file():
    with load("gms_vectors.npz") as file:
        yield file


def normalised(points, K):
    homogeneous = np.column_stack([points, np.ones(len(points))])
    return np.ascontiguousarray((homogeneous @ np.linalg.inv(K).T)[:, :2])


def graph_of(file, name):
    """Points on the normalised plane, edges and eps of one reference graph."""
    x0 = normalised(file[f"{name}/kp1"], file[f"{name}/K1"])
    x1 = normalised(file[f"{name}/kp2"], file[f"{name}/K2"])
    edges = np.column_stack([file[f"{name}/idx1"], file[f"{name}/idx2"]]).astype(np.int32)
    return x0, x1, edges, float(file[f"{name}/max_error"])


def unpack(bits, count):
    return np.unpackbits(bits)[:count].astype(bool)


def test_the_names_are_those_of_the_files(score_file, refine_file, gms_file):
    for file in (score_file, refine_file, gms_file):
        assert sorted(file["names"]) == sorted(NAMES)


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


def refine_all(file, name, kind):
    """Our and the reference's refinement of the poses of one graph where theirs converged.

    Checks what has to be equal before any step is taken, and returns for each pose the relative
    excess of our final cost and whether the poses agree.
    """
    x0, x1, edges, eps = graph_of(file, name)
    function, limit = {"local": (_core.local_refine, 25), "polish": (_core.final_polish, 100)}[kind]
    theirs = {
        key: file[f"{name}/{kind}_{key}"]
        for key in ("q", "t", "done", "used", "initial_cost", "cost", "lm_iterations")
    }
    excess, agree = [], []
    for k in np.flatnonzero(theirs["done"] & (theirs["lm_iterations"] < limit)):
        start = rotation_from_quaternion(file[f"{name}/q_in"][k]), file[f"{name}/t_in"][k]
        R, t, before, after, used, weight = function(x0, x1, edges, eps, *start)
        np.testing.assert_array_equal(used, unpack(theirs["used"][k], len(edges)))
        if k == 0:
            expected = file[f"{name}/{kind}_weights0"]
            np.testing.assert_allclose(weight[used], expected, rtol=1e-12)
        # The reference reports the mean over the edges used, ours is the sum.
        assert before / used.sum() == pytest.approx(theirs["initial_cost"][k], rel=1e-9)
        excess.append(after / used.sum() / theirs["cost"][k] - 1.0)
        direction = theirs["t"][k] / np.linalg.norm(theirs["t"][k])
        angle = angle_between(R, rotation_from_quaternion(theirs["q"][k]))
        agree.append(angle < 1e-5 and np.linalg.norm(t - direction) < 1e-4)
    return np.array(excess), np.array(agree)


@pytest.mark.parametrize("name", NAMES)
def test_final_polish_reaches_the_same_minimum(refine_file, name):
    excess, agree = refine_all(refine_file, name, "polish")
    assert len(excess) >= 17
    assert (excess < 1e-6).all()
    assert agree.all()


def test_local_refine_reaches_the_same_minimum_or_one_as_good(refine_file):
    results = [refine_all(refine_file, name, "local") for name in NAMES]
    excess, agree = (np.concatenate(values) for values in zip(*results, strict=True))
    assert len(excess) >= 220
    # The truncated cost has many small local minima, and two schedules part ways now and then.
    same = np.abs(excess) < 1e-6
    assert same.mean() > 0.9
    assert agree[same].all()
    assert (excess > 1e-6).mean() < 0.05
    assert np.mean(excess) < 0.001


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_gives_the_reference_mask(gms_file, name):
    edges = np.column_stack([gms_file[f"{name}/idx1"], gms_file[f"{name}/idx2"]])
    graph = manymatch.AssociationGraph(gms_file[f"{name}/kp1"], gms_file[f"{name}/kp2"], edges)
    sizes = gms_file[f"{name}/size1"], gms_file[f"{name}/size2"]
    settings = [key.split("/")[1] for key in gms_file.files if re.fullmatch(f"{name}/.*/mask", key)]
    assert len(settings) == 24
    for setting in settings:
        crop, scales, rotations, threshold = SETTING.fullmatch(setting).groups()
        result = manymatch.gms_filter(
            graph,
            *sizes,
            threshold=float(threshold),
            crop=crop == "1",
            scales=scales == "1",
            rotations=rotations == "1",
        )
        expected = gms_file[f"{name}/{setting}/mask"]
        np.testing.assert_array_equal(result.mask, expected, err_msg=setting)
        assert result.num_kept == gms_file[f"{name}/{setting}/count"] == expected.sum()
