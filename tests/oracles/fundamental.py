"""Fundamental matrices from their definition, one correspondence or sample at a time."""

import numpy as np
from scipy.optimize import least_squares


def homogeneous(points):
    """Append a one to points (..., 2)."""
    points = np.asarray(points, dtype=np.float64)
    return np.concatenate([points, np.ones((*points.shape[:-1], 1))], axis=-1)


def seven_point(points0, points1):
    """All real F (K, 3, 3) with norm one through seven correspondences (7, 2).

    By the singular value decomposition and the roots of det(x A + (1 - x) B), interpolated.
    """
    x0, x1 = homogeneous(points0), homogeneous(points1)
    rows = np.einsum("ki,kj->kij", x1, x0).reshape(7, 9)
    A, B = np.linalg.svd(rows)[2][7:].reshape(2, 3, 3)
    at = np.array([-1.0, 0.0, 0.5, 2.0])
    values = [np.linalg.det(x * A + (1 - x) * B) for x in at]
    roots = np.roots(np.polyfit(at, values, 3))
    real = roots[np.abs(roots.imag) < 1e-9 * (1 + np.abs(roots))].real
    matrices = [x * A + (1 - x) * B for x in real]
    return [F / np.linalg.norm(F) for F in matrices]


def epipole(F):
    """Unit vector e with F' e = 0, that of image 1."""
    return np.linalg.svd(F)[0][:, 2]


def sides(F, e, points0, points1):
    """Whether each correspondence (N, 2) has e x x1 and F x0 in the same direction."""
    x0, x1 = homogeneous(points0), homogeneous(points1)
    return np.einsum("ki,ki->k", np.cross(e, x1), x0 @ F.T) > 0


def sampson2(F, points0, points1):
    """Squared Sampson distances (N,)."""
    x0, x1 = homogeneous(points0), homogeneous(points1)
    lines1, lines0 = x0 @ F.T, x1 @ F
    numerator = np.einsum("ki,ki->k", x1, lines1)
    return numerator**2 / (np.sum(lines1[:, :2] ** 2, axis=1) + np.sum(lines0[:, :2] ** 2, axis=1))


def refined(F, points0, points1):
    """Matrix of rank two with the least sum of squared Sampson distances near F."""

    def matrix(parameters):
        U, s, Vt = np.linalg.svd(parameters.reshape(3, 3))
        rank_two = U @ np.diag([s[0], s[1], 0.0]) @ Vt
        return rank_two / np.linalg.norm(rank_two)

    def residuals(parameters):
        F = matrix(parameters)
        x0, x1 = homogeneous(points0), homogeneous(points1)
        sign = np.sign(np.einsum("ki,ij,kj->k", x1, F, x0))
        return sign * np.sqrt(sampson2(F, points0, points1))

    found = least_squares(residuals, F.ravel(), xtol=1e-15, ftol=1e-15, gtol=1e-15)
    return matrix(found.x)
