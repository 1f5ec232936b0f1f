"""Slow and obvious two-view geometry: one edge at a time, from the definitions."""

import math

import numpy as np

DENOMINATOR_FLOOR = 2.2e-16
MIN_DEPTH = 0.01


def cross_matrix(v):
    """Matrix whose product with u is the cross product of v and u."""
    return np.array([[0.0, -v[2], v[1]], [v[2], 0.0, -v[0]], [-v[1], v[0], 0.0]])


def essential(R, t):
    """Essential matrix of the pose that maps camera 0 to camera 1."""
    return cross_matrix(t) @ R


def rotation_from_vector(w):
    """Rotation matrix of a rotation vector (radians), by the exponential series in closed form."""
    angle = float(np.linalg.norm(w))
    K = cross_matrix(w)
    if angle < 1e-8:
        return np.eye(3) + K + 0.5 * K @ K
    return (
        np.eye(3) + (math.sin(angle) / angle) * K + ((1.0 - math.cos(angle)) / angle**2) * (K @ K)
    )


def rotation_from_quaternion(q):
    """Rotation matrix of a (w, x, y, z) quaternion."""
    w, x, y, z = np.asarray(q, dtype=float) / np.linalg.norm(q)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def bearing(x):
    """Unit ray through a point (2,) on the plane z = 1."""
    v = np.array([x[0], x[1], 1.0])
    return v / np.linalg.norm(v)


def sampson_squared(x0, x1, R, t):
    """Squared Sampson error of one correspondence; NaN where it is not defined."""
    E = essential(R, t)
    h0 = np.array([x0[0], x0[1], 1.0])
    h1 = np.array([x1[0], x1[1], 1.0])
    e = E @ h0
    g = E.T @ h1
    denominator = e[0] ** 2 + e[1] ** 2 + g[0] ** 2 + g[1] ** 2
    if not denominator > DENOMINATOR_FLOOR:
        return math.nan
    value = float(h1 @ e) ** 2 / denominator
    return value if math.isfinite(value) else math.nan


def in_front(x0, x1, R, t):
    """Whether the point seen along both rays is ahead of both cameras by 0.01 baselines."""
    b0, b1 = bearing(x0), bearing(x1)
    u = R @ b0
    a, p, s = -u @ b1, -u @ t, b1 @ t
    floor = MIN_DEPTH * (1.0 - a * a)
    return bool(p - a * s > floor and s - a * p > floor)


def residuals(x0, x1, edges, R, t):
    """Squared residuals (E,) and cheirality flags (E,) of every edge."""
    with np.errstate(all="ignore"):
        r2 = np.array([sampson_squared(x0[i], x1[j], R, t) for i, j in edges])
        front = np.array([in_front(x0[i], x1[j], R, t) for i, j in edges], dtype=bool)
    return r2.reshape(len(edges)), front.reshape(len(edges))


def inliers(x0, x1, edges, eps, R, t):
    """Inlier flags (E,): squared residual strictly below eps squared, and in front."""
    r2, front = residuals(x0, x1, edges, R, t)
    with np.errstate(invalid="ignore"):
        return (r2 < eps * eps) & front


def angle_between(R_a, R_b):
    """Angle in radians of the rotation between two rotations, accurate near zero."""
    return 2.0 * math.asin(min(1.0, float(np.linalg.norm(R_a - R_b)) / (2.0 * math.sqrt(2.0))))
