"""Slow and obvious transforms of space: from singular values and from the definitions."""

import numpy as np
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation


def least_squares_transform(points0, points1, free_scale):
    """Transform (4, 4) of least squares by the singular value decomposition (Kabsch).

    With a free scale that of the least sum of ``|x1 - s R x0 - t|^2 / s``, which is the ratio of
    the sizes of the clouds.
    """
    middle0, middle1 = points0.mean(axis=0), points1.mean(axis=0)
    a, b = points0 - middle0, points1 - middle1
    U, _, Vt = np.linalg.svd(b.T @ a)
    R = U @ np.diag([1.0, 1.0, np.linalg.det(U @ Vt)]) @ Vt
    scale = np.sqrt(np.sum(b**2) / np.sum(a**2)) if free_scale else 1.0
    return matrix(scale * R, middle1 - scale * R @ middle0)


def matrix(A, t):
    """Transform (4, 4) of x1 = A x0 + t."""
    transform = np.eye(4)
    transform[:3, :3], transform[:3, 3] = A, t
    return transform


def mapped(transform, points):
    """Map points (N, 3)."""
    return points @ transform[:3, :3].T + transform[:3, 3]


def scale_of(transform):
    """Scale of a similarity."""
    return np.cbrt(np.linalg.det(transform[:3, :3]))


def errors2(transform, points0, points1):
    """Squared errors (N,): geometric means of the squared distances in the two spaces."""
    there = np.sum((mapped(transform, points0) - points1) ** 2, axis=1)
    back = np.sum((mapped(np.linalg.inv(transform), points1) - points0) ** 2, axis=1)
    return np.sqrt(there * back)


def refined(start, points0, points1, loss_scale, free_scale):
    """Minimise Cauchy's loss of the errors over correspondences."""

    def transform_of(parameters):
        R = Rotation.from_rotvec(parameters[:3]).as_matrix()
        return matrix(np.exp(parameters[6]) * R if free_scale else R, parameters[3:6])

    def residuals(parameters):
        error2 = errors2(transform_of(parameters), points0, points1)
        return np.sqrt(loss_scale**2 * np.log1p(error2 / loss_scale**2))

    scale = scale_of(start)
    first = np.concatenate(
        [
            Rotation.from_matrix(start[:3, :3] / scale).as_rotvec(),
            start[:3, 3],
            [np.log(scale)] if free_scale else [],
        ]
    )
    found = least_squares(residuals, first, xtol=1e-15, ftol=1e-15, gtol=1e-15)
    return transform_of(found.x)
