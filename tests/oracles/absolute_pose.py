"""Slow and obvious camera poses: one point at a time, from the definitions."""

import math

import numpy as np
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation


def project(R, t, point, f=1.0):
    """Where a point of the world is seen on the plane, and its depth."""
    x, y, z = R @ point + t
    return f * np.array([x / z, y / z]), z


def reprojection_error2(R, t, seen, point, f=1.0):
    """Squared distance on the plane; NaN behind the camera."""
    where, depth = project(R, t, point, f)
    return float(np.sum((where - seen) ** 2)) if depth > 0.0 else math.nan


def refined(R, t, seen, points):
    """Least squares of the reprojection error over correspondences."""

    def residuals(step):
        moved = Rotation.from_rotvec(step[:3]).as_matrix() @ R
        return np.concatenate(
            [project(moved, t + step[3:], X)[0] - x for x, X in zip(seen, points, strict=True)]
        )

    step = least_squares(residuals, np.zeros(6), xtol=1e-14, ftol=1e-14, gtol=1e-14).x
    return Rotation.from_rotvec(step[:3]).as_matrix() @ R, t + step[3:]
