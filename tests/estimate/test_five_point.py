"""The five-point solver against PoseLib's, root by root; the core's tests check the rest."""

import numpy as np
import poselib
import pytest

from manymatch import _core
from tests.oracles.five_point_problems import KINDS, essential_gap, essentials, make_batch


def poselib_solutions(batch):
    """Problem, R and t of the poses that PoseLib finds."""
    bearings = zip(batch.b0, batch.b1, strict=True)
    found = [(k, p) for k, pair in enumerate(bearings) for p in poselib.relpose_5pt(*pair)]
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


@pytest.mark.parametrize("kind", KINDS)
def test_roots_agree_with_poselib(kind):
    batch = make_batch(np.random.default_rng([5, KINDS.index(kind)]), 2000, kind)
    ours, theirs = _core.five_point(batch.b0, batch.b1), poselib_solutions(batch)
    # Only poses that solve their problem are held against the other side. Near double roots both
    # may lose some; PoseLib loses more of them, as its roots are not polished.
    ours_good = meets_constraints(batch, *ours)
    theirs_good = meets_constraints(batch, *theirs)
    assert unmatched(*(v[theirs_good] for v in theirs), *ours, 1e-4) < 0.0015
    assert unmatched(*(v[ours_good] for v in ours), *theirs, 1e-4) < 0.05
    assert ours_good.all()
    assert theirs_good.mean() > 0.9
