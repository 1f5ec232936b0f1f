"""Clouds of points on a surface."""

import numpy as np

from manymatch import AssociationGraph
from tests.support.synthetic_problems import random_transform


def moved(transform, points):
    return points @ transform[:3, :3].T + transform[:3, 3]


def surface(rng, count):
    """Draw points on a bumpy surface without symmetry."""
    x, y = rng.uniform(-1, 1, (2, count))
    return np.stack([x, y, 0.3 * np.sin(3 * x + y) + 0.2 * np.cos(5 * y * x) + 0.2 * x * y], axis=1)


def repeated_object(seed):
    """Two clouds of a surface, the second with an object of the first in another place as well.

    Most candidates lead to the object in the other place.
    """
    rng = np.random.default_rng(seed)
    points0 = surface(rng, 1200)
    truth, wrong = random_transform(rng), random_transform(rng)
    on_object = np.flatnonzero(np.linalg.norm(points0 - points0[0], axis=1) < 0.5)[:80]
    points1 = np.concatenate([moved(truth, points0), moved(wrong, points0[on_object])])
    points1 += 0.005 * rng.standard_normal(points1.shape)
    elsewhere = np.setdiff1d(np.arange(len(points0)), on_object)
    right = rng.choice(elsewhere, 3 * len(on_object) // 4, replace=False)
    false = rng.choice(elsewhere, 200, replace=False)
    edges = np.concatenate(
        [
            np.stack([right, right], axis=1),
            np.stack([on_object, len(points0) + np.arange(len(on_object))], axis=1),
            np.stack([false, rng.permutation(false)], axis=1),
        ]
    )
    edges = np.unique(edges, axis=0)
    return AssociationGraph(points0, points1, edges), truth, wrong
