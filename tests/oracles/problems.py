"""Random graphs and poses on the normalised plane, for the tests of the compiled core."""

from dataclasses import dataclass

import numpy as np

from manymatch import AssociationGraph
from tests.oracles.geometry import rotation_from_vector

FOCAL = 800.0
CENTRE = np.array([512.0, 384.0])
K = np.array([[FOCAL, 0.0, CENTRE[0]], [0.0, FOCAL, CENTRE[1]], [0.0, 0.0, 1.0]])


@dataclass(frozen=True)
class Problem:
    """A graph on the plane z = 1 with its true pose and threshold."""

    x0: np.ndarray
    x1: np.ndarray
    edges: np.ndarray
    eps: float
    R: np.ndarray
    t: np.ndarray

    def graph(self, edges=None, rank=None):
        """The same in pixels of the camera K, with other edges if they are given."""
        edges = self.edges if edges is None else edges
        return AssociationGraph(pixels(self.x0), pixels(self.x1), edges, rank=rank)


def pixels(x, focal=FOCAL):
    """Points of the normalised plane in pixels."""
    return focal * x + CENTRE


def random_pose(rng, max_angle=0.6):
    """A rotation of up to max_angle radians and a unit translation."""
    axis = rng.normal(size=3)
    R = rotation_from_vector(axis / np.linalg.norm(axis) * rng.uniform(0.0, max_angle))
    t = rng.normal(size=3)
    return R, t / np.linalg.norm(t)


def two_view_points(rng, count, R, t, depth=(2.0, 8.0)):
    """Images (count, 2) of points that are in front of both cameras."""
    found0, found1 = [], []
    while len(found0) < count:
        ray = np.append(rng.uniform(-0.8, 0.8, size=2), 1.0)
        point = ray * rng.uniform(*depth)
        moved = R @ point + t
        if moved[2] > 0.2:
            found0.append(point[:2] / point[2])
            found1.append(moved[:2] / moved[2])
    return np.array(found0), np.array(found1)


def unique_edges(edges):
    """First occurrence of every edge, in order, as (E, 2) int32."""
    return np.array(
        list(dict.fromkeys(map(tuple, np.asarray(edges).tolist()))), dtype=np.int32
    ).reshape(-1, 2)


def random_graph(rng, n0, n1, max_degree):
    """Random edges with up to max_degree at a left vertex, some vertices left isolated."""
    edges = []
    for i in range(n0):
        if rng.random() < 0.15:
            continue
        degree = int(rng.integers(1, max_degree + 1))
        edges += [(i, int(j)) for j in rng.choice(n1, size=min(degree, n1), replace=False)]
    edges = np.array(edges, dtype=np.int32).reshape(-1, 2)
    return edges[rng.permutation(len(edges))]


def random_problem(rng, n=40, max_degree=5, noise=0.3, focal=800.0, threshold_px=1.0):
    """n true correspondences among random clutter edges, with noise in units of the threshold."""
    eps = threshold_px / focal
    R, t = random_pose(rng)
    x0, x1 = two_view_points(rng, n, R, t)
    x0 = x0 + rng.normal(scale=noise * eps, size=x0.shape)
    x1 = x1 + rng.normal(scale=noise * eps, size=x1.shape)
    true = [(i, i) for i in range(n) if rng.random() < 0.6]
    clutter = random_graph(rng, n, n, max_degree - 1) if max_degree > 1 else np.zeros((0, 2), int)
    edges = unique_edges([*true, *clutter.tolist()])
    return Problem(x0, x1, edges[rng.permutation(len(edges))], eps, R, t)


def add_hub(rng, problem, side, vertex, degree):
    """The same problem with one vertex joined to the given number of vertices of the other side."""
    others = rng.choice(len(problem.x1 if side == 0 else problem.x0), size=degree, replace=False)
    hub = [(vertex, int(o)) if side == 0 else (int(o), vertex) for o in others]
    edges = unique_edges([*problem.edges.tolist(), *hub])
    return Problem(problem.x0, problem.x1, edges, problem.eps, problem.R, problem.t)


def nearby_pose(rng, R, t, size):
    """A pose some radians away from the given one."""
    moved = t + rng.normal(scale=size, size=3)
    return R @ rotation_from_vector(rng.normal(scale=size, size=3)), moved / np.linalg.norm(moved)
