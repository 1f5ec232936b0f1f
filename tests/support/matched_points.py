"""Matched points as programs for other libraries have them: lists with outliers, and candidates."""

import dataclasses

import numpy as np
from scipy.spatial.transform import Rotation

from tests.oracles import fundamental

SIZE = (640, 480)
K = np.array([[800.0, 0.0, 320.0], [0.0, 790.0, 240.0], [0.0, 0.0, 1.0]])


def project(points, R=None, t=None):
    """Pixels (N, 2) of points in space (N, 3), seen by a camera at (R, t)."""
    moved = points if R is None else points @ R.T + t
    pixels = moved @ K.T
    return pixels[:, :2] / pixels[:, 2:]


@dataclasses.dataclass
class Matched:
    """Rows of matched points of which the first `right` are right."""

    world: np.ndarray
    points0: np.ndarray
    points1: np.ndarray
    R: np.ndarray
    t: np.ndarray
    right: int

    @property
    def mask(self):
        return np.arange(len(self.points0)) < self.right


def matched(count=120, right=90, seed=0, noise=0.3, plane=False):
    """Two views of points in front of both cameras (or on a plane), and their places in space."""
    rng = np.random.default_rng(seed)
    world = rng.uniform((-2, -1.5, 4), (2, 1.5, 8), (count, 3))
    if plane:
        world[:, 2] = 6.0 + 0.2 * world[:, 0]
    R = Rotation.from_rotvec([0.05, 0.2, -0.03]).as_matrix()
    t = np.array([-0.9, 0.1, 0.15])
    points0 = project(world) + rng.normal(0, noise, (count, 2))
    points1 = project(world, R, t) + rng.normal(0, noise, (count, 2))
    points1[right:] = rng.uniform(0, SIZE, (count - right, 2))
    return Matched(world, points0, points1, R, t, right)


def with_candidates(first, second, extra=2, seed=1):
    """Rows of a list in which every point of `first` has its partner and `extra` others.

    Grouped by point, as programs make them; the partner is at a random place of its group. Returns
    both columns, the edges, and which of the rows are those of the partners.
    """
    rng = np.random.default_rng(seed)
    edges, own = [], []
    for i in range(len(first)):
        others = rng.choice(np.delete(np.arange(len(second)), i), extra, replace=False)
        group = rng.permutation([i, *others])
        edges += [(i, j) for j in group]
        own += [j == i for j in group]
    edges = np.array(edges)
    return first[edges[:, 0]], second[edges[:, 1]], edges, np.array(own)


def turn_deg(first, second):
    return np.degrees(Rotation.from_matrix(np.asarray(first).T @ second).magnitude())


def direction_deg(first, second):
    first, second = np.ravel(first), np.ravel(second)
    cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


def alike(first, second, tolerance):
    """Whether two matrices are the same up to scale and sign."""
    first, second = (np.asarray(m) / np.linalg.norm(m) for m in (first, second))
    return min(np.abs(first - second).max(), np.abs(first + second).max()) < tolerance


def map_difference_px(first, second, points):
    """Largest distance between the images of points (N, 2) under two homographies."""
    mapped = [np.c_[points, np.ones(len(points))] @ np.asarray(H).T for H in (first, second)]
    pixels = [m[:, :2] / m[:, 2:] for m in mapped]
    return np.linalg.norm(pixels[0] - pixels[1], axis=1).max()


def only_these_are_ours(ours, original):
    """Public names of the original that are something else in its switch."""
    names = [name for name in dir(original) if not name.startswith("_")]
    return {name for name in names if getattr(ours, name) is not getattr(original, name)}


def epipolar_distance(F, data):
    """Median Sampson distance of the exact points under a fundamental matrix, in pixels."""
    points = project(data.world), project(data.world, data.R, data.t)
    return np.median(np.sqrt(fundamental.sampson2(np.asarray(F), *points)))


AFFINE = np.array([[1.1, 0.2, 12.0], [-0.1, 0.9, -7.0]])


def affine_points():
    """Points and their images under an affine map, with noise; every fourth one is wrong."""
    rng = np.random.default_rng(4)
    points = rng.uniform(0, 500, (80, 2))
    mapped = points @ AFFINE[:, :2].T + AFFINE[:, 2] + rng.normal(0, 0.3, (80, 2))
    mapped[::4] = rng.uniform(0, 500, (20, 2))
    return points, mapped


def affine_error_px(A):
    return np.abs((np.asarray(A) - AFFINE) @ [250, 250, 1]).max()
