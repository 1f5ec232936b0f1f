"""Slow and obvious homographies: one correspondence at a time, from the definitions."""

import math

import numpy as np
from scipy.optimize import least_squares


def transfer(H, point):
    """Mapped point and its third coordinate."""
    x, y, w = H @ np.array([point[0], point[1], 1.0])
    return np.array([x / w, y / w]), w


def transfer_error2(H, point0, point1):
    """Mean of the squared errors in the two images; NaN beyond the line at infinity."""
    inverse = np.linalg.inv(H)
    if np.linalg.det(H) < 0.0:
        return math.nan
    forward, w = transfer(H, point0)
    back, v = transfer(inverse, point1)
    if not (w > 0.0 and v > 0.0):
        return math.nan
    return 0.5 * (np.sum((forward - point1) ** 2) + np.sum((back - point0) ** 2))


def four_point(points0, points1):
    """Homography of norm one through four correspondences, from a null space, or None.

    None if a triangle of three of them changes its orientation; the sign makes the third coordinate
    of the last point positive.
    """
    for skipped in range(4):
        corners = [k for k in range(4) if k != skipped]
        if _area(points0[corners]) * _area(points1[corners]) <= 0.0:
            return None
    rows = []
    for (x, y), (u, v) in zip(points0, points1, strict=True):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y, -u])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y, -v])
    H = np.linalg.svd(np.array(rows))[2][-1].reshape(3, 3)
    return H * np.sign(transfer(H, points0[3])[1])


def _area(triangle):
    (ax, ay), (bx, by) = triangle[1] - triangle[0], triangle[2] - triangle[0]
    return ax * by - ay * bx


def refined(H, points0, points1):
    """Least squares of the symmetric transfer error over correspondences, H[2, 2] = 1."""

    def residuals(entries):
        model = np.append(entries, 1.0).reshape(3, 3)
        inverse = np.linalg.inv(model)
        rows = []
        for point0, point1 in zip(points0, points1, strict=True):
            rows.extend(transfer(model, point0)[0] - point1)
            rows.extend(transfer(inverse, point1)[0] - point0)
        return np.array(rows)

    start = (H / H[2, 2]).ravel()[:8]
    found = least_squares(residuals, start, x_scale=np.abs(start) + 1e-3, xtol=1e-14, ftol=1e-14)
    return np.append(found.x, 1.0).reshape(3, 3)
