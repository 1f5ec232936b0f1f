"""The five-point solver: truth found, constraints met, and PoseLib's roots, root by root."""

import numpy as np
import poselib
import pytest

from manymatch import _core
from tests.oracles.five_point_problems import (
    KINDS,
    essential_gap,
    essentials,
    make_batch,
    nearest_to_truth,
)

# A pose is found if R and t together are this close (Frobenius norm), the sign of t included.
FOUND_WITHIN = 1e-6
FOUND_RATE = 0.999


@pytest.fixture(scope="module", params=KINDS)
def solved(request):
    """A batch of problems of one kind and the poses found for it."""
    batch = make_batch(
        np.random.default_rng([5, KINDS.index(request.param)]), 20_000, request.param
    )
    return batch, *_core.five_point(batch.b0, batch.b1)


def test_the_true_pose_is_found(solved):
    batch, problem, R, t = solved
    gap = nearest_to_truth(batch, problem, R, t)
    assert (gap < FOUND_WITHIN).mean() >= FOUND_RATE


def poselib_solutions(batch, count):
    """Problem, R and t of the poses that PoseLib finds for the first problems."""
    found = [(k, p) for k in range(count) for p in poselib.relpose_5pt(batch.b0[k], batch.b1[k])]
    return tuple(np.array(part) for part in zip(*((k, p.R, p.t) for k, p in found), strict=True))


def meets_constraints(batch, problem, R, t, tolerance=1e-8):
    """Which poses (k,) satisfy the epipolar constraints of their five points."""
    E = essentials(R, t)
    residual = np.einsum("kli,kij,klj->kl", batch.b1[problem], E, batch.b0[problem])
    return np.abs(residual).max(axis=1) < tolerance


def unmatched(problem, R, t, other_problem, other_R, other_t, tolerance):
    """Share of the poses that have no counterpart among the other ones."""
    others = essentials(other_R, other_t)
    missing = 0
    for k, E in zip(problem, essentials(R, t), strict=True):
        low, high = np.searchsorted(other_problem, [k, k + 1])
        if low == high or essential_gap(others[low:high], E).min() > tolerance:
            missing += 1
    return missing / len(problem)


def test_roots_agree_with_poselib(solved):
    batch, problem, R, t = solved
    count = 2000
    theirs = poselib_solutions(batch, count)
    ours = (problem[problem < count], R[problem < count], t[problem < count])
    # Only poses that solve their problem are held against the other side. Near double roots both
    # may lose some; PoseLib loses more of them, as its roots are not polished.
    ours_good = meets_constraints(batch, *ours)
    theirs_good = meets_constraints(batch, *theirs)
    found_by_us = unmatched(*(v[theirs_good] for v in theirs), *ours, 1e-4)
    found_by_them = unmatched(*(v[ours_good] for v in ours), *theirs, 1e-4)
    assert found_by_us < 0.0015
    assert found_by_them < 0.05
    assert ours_good.all()
    assert theirs_good.mean() > 0.9
