"""Batches of noise-free five-point problems with a known pose, by kind of scene and motion."""

from dataclasses import dataclass

import numpy as np

KINDS = ("general", "near-planar", "planar", "forward", "sideways", "wide")


@dataclass(frozen=True)
class Batch:
    """Bearings (n, 5, 3) in both cameras and the poses (n, 3, 3), (n, 3) that made them."""

    b0: np.ndarray
    b1: np.ndarray
    R: np.ndarray
    t: np.ndarray


def rotations(rng, count, max_angle):
    """Rotation matrices (count, 3, 3) about random axes by up to max_angle radians."""
    axis = rng.normal(size=(count, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    angle = rng.uniform(0.0, max_angle, size=(count, 1, 1))
    K = np.zeros((count, 3, 3))
    K[:, 0, 1], K[:, 0, 2], K[:, 1, 2] = -axis[:, 2], axis[:, 1], -axis[:, 0]
    K -= K.transpose(0, 2, 1)
    return np.eye(3) + np.sin(angle) * K + (1.0 - np.cos(angle)) * (K @ K)


def translations(rng, count, kind):
    """Unit translations (count, 3)."""
    t = rng.normal(size=(count, 3))
    if kind == "forward":
        t[:, :2] *= 0.02
    if kind == "sideways":
        t[:, 2] = 0.0
    return t / np.linalg.norm(t, axis=1, keepdims=True)


def scene_points(rng, count, kind):
    """World points (count, 5, 3) in front of the first camera."""
    span = 2.0 if kind == "wide" else 0.7
    plane = rng.uniform(-span, span, size=(count, 5, 2))
    depth = rng.uniform(2.0, 8.0, size=(count, 5, 1))
    if kind in {"planar", "near-planar"}:
        normal = np.concatenate([rng.uniform(-0.5, 0.5, (count, 1, 2)), np.ones((count, 1, 1))], 2)
        rays = np.concatenate([plane, np.ones((count, 5, 1))], axis=2)
        depth = 4.0 / np.maximum((rays * normal).sum(axis=2, keepdims=True), 0.4)
    if kind == "near-planar":
        depth = depth * (1.0 + 1e-3 * rng.normal(size=depth.shape))
    return np.concatenate([plane, np.ones((count, 5, 1))], axis=2) * depth


def make_batch(rng, count, kind):
    """count problems of one kind; all five points are in front of both cameras."""
    kept = [[], [], [], []]
    while sum(map(len, kept[0])) < count:
        R = rotations(rng, count, 0.8)
        t = translations(rng, count, kind)
        X0 = scene_points(rng, count, kind)
        X1 = np.einsum("nij,nkj->nki", R, X0) + t[:, None, :]
        ahead = (X1[:, :, 2] > 0.2).all(axis=1)
        for store, values in zip(kept, (X0, X1, R, t), strict=True):
            store.append(values[ahead])
    X0, X1, R, t = (np.concatenate(values)[:count] for values in kept)
    unit0 = X0 / np.linalg.norm(X0, axis=2, keepdims=True)
    unit1 = X1 / np.linalg.norm(X1, axis=2, keepdims=True)
    return Batch(unit0, unit1, R, t)


def essentials(R, t):
    """Essential matrices (k, 3, 3), scaled to unit Frobenius norm, of poses with |t| = 1."""
    T = np.zeros((len(t), 3, 3))
    T[:, 0, 1], T[:, 0, 2], T[:, 1, 2] = -t[:, 2], t[:, 1], -t[:, 0]
    T -= T.transpose(0, 2, 1)
    return T @ R / np.sqrt(2.0)


def essential_gap(A, B):
    """Frobenius distance up to sign of matrices (..., 3, 3) of unit norm."""
    plus = np.linalg.norm(A - B, axis=(-2, -1))
    minus = np.linalg.norm(A + B, axis=(-2, -1))
    return np.minimum(plus, minus)
