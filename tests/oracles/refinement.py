"""Slow twins of the refinement rules: what is gathered, how it is weighted, what is minimised."""

import numpy as np
from scipy.optimize import least_squares

from tests.oracles.geometry import essential, residuals, rotation_from_vector

MINIMAL_SET = 5


def gather(x0, x1, edges, limit_squared, R, t):
    """Edges (E,) bool with squared residual below the limit and the point in front."""
    r2, front = residuals(x0, x1, edges, R, t)
    with np.errstate(invalid="ignore"):
        return (r2 < limit_squared) & front


def harmonic_weights(edges, used):
    """1/d_i + 1/d_j with degrees counted among the used edges; 0 elsewhere."""
    weight = np.zeros(len(edges))
    degree0, degree1 = {}, {}
    for (i, j), use in zip(edges, used, strict=True):
        if use:
            degree0[i] = degree0.get(i, 0) + 1
            degree1[j] = degree1.get(j, 0) + 1
    for e, ((i, j), use) in enumerate(zip(edges, used, strict=True)):
        if use:
            weight[e] = 1.0 / degree0[i] + 1.0 / degree1[j]
    return weight


def robust(r2, eps, loss):
    """Loss of squared residuals."""
    if loss == "truncated":
        return np.minimum(r2, eps * eps)
    if loss == "cauchy":
        return eps * eps * np.log1p(r2 / (eps * eps))
    return np.asarray(r2, dtype=float)


def signed_sampson(x0, x1, R, t):
    """Signed Sampson residuals (n,) of corresponding points (n, 2)."""
    E = essential(R, t)
    h0 = np.column_stack([x0, np.ones(len(x0))])
    h1 = np.column_stack([x1, np.ones(len(x1))])
    e, g = h0 @ E.T, h1 @ E
    return (h1 * e).sum(axis=1) / np.sqrt((e[:, :2] ** 2).sum(axis=1) + (g[:, :2] ** 2).sum(axis=1))


def weighted_cost(x0, x1, weight, R, t, eps, loss):
    """Sum of weight times loss."""
    return float(weight @ robust(signed_sampson(x0, x1, R, t) ** 2, eps, loss))


def cauchy_minimum(x0, x1, weight, R, t, eps):
    """A local minimum of the weighted Cauchy cost near a pose, by SciPy's trust region."""
    basis = np.linalg.svd(t.reshape(1, 3))[2][1:]

    def pose(step):
        moved = t + step[3:] @ basis
        return R @ rotation_from_vector(step[:3]), moved / np.linalg.norm(moved)

    def scaled(step):
        # Sums of squares of these numbers are the weighted Cauchy cost in units of eps squared.
        r = signed_sampson(x0, x1, *pose(step)) / eps
        return np.sqrt(weight * np.log1p(r * r)) * np.sign(r)

    found = least_squares(scaled, np.zeros(5), xtol=1e-15, ftol=1e-15, gtol=1e-15)
    return pose(found.x)
