"""An object that turns in front of a background, while the camera moves."""

from typing import NamedTuple

import numpy as np

from manymatch import AssociationGraph, RelativePose, associate
from manymatch_lab.datasets.synthetic import rotation_matrix
from tests.oracles.problems import K

SIZE = np.array([1023.0, 767.0])


class TwoMotions(NamedTuple):
    """Candidates, and the motions of the background and of the object in the camera."""

    graph: AssociationGraph
    poses: tuple[RelativePose, ...]


def two_motions(background: int, moving: int, seed: int, outliers: int = 60) -> TwoMotions:
    """Return a scene of so many points, seen with noise of half a pixel by cameras `K`."""
    rng = np.random.default_rng([seed, 91])
    R, turn = (_turn(rng, *angles) for angles in ((2.0, 12.0), (10.0, 35.0)))
    t = rng.standard_normal(3) * [1.0, 0.6, 0.6]
    t *= rng.uniform(0.5, 1.0) / np.linalg.norm(t)
    centre = np.array([*rng.uniform((-1.2, -0.7), (1.2, 0.7)), 6.0])

    def far(number):
        rays = np.column_stack([rng.uniform((0, 0), SIZE, (number, 2)), np.ones(number)])
        points = rays @ np.linalg.inv(K).T * rng.uniform(5.0, 14.0, (number, 1))
        return points, points @ R.T + t

    def near(number):
        around = rng.standard_normal((number, 3))
        around *= rng.uniform(0.5, 1.4, (number, 1)) / np.linalg.norm(around, axis=1)[:, None]
        return centre + around, (centre + around @ turn.T) @ R.T + t

    parts = _seen(far, background), _seen(near, moving)
    looks = rng.standard_normal((background + moving, 64)) / 8.0
    points, descriptors = [], []
    for pixels in (np.concatenate(both) for both in zip(*parts, strict=True)):
        noise = 0.5 * rng.standard_normal(pixels.shape)
        points.append(np.concatenate([pixels + noise, rng.uniform((0, 0), SIZE, (outliers, 2))]))
        seen = looks + 0.3 / 8.0 * rng.standard_normal(looks.shape)
        descriptors.append(np.concatenate([seen, rng.standard_normal((outliers, 64)) / 8.0]))
    shift = R @ (centre - turn @ centre) + t
    graph = AssociationGraph(*points, *associate(*descriptors, k=5))
    poses = ((R, t), (R @ turn, shift))
    return TwoMotions(graph, tuple(RelativePose(A, b / np.linalg.norm(b)) for A, b in poses))


def _turn(rng, low, high):
    axis = rng.standard_normal(3)
    return rotation_matrix(axis / np.linalg.norm(axis) * np.radians(rng.uniform(low, high)))


def _seen(draw, number):
    """Pixels (number, 2) in both images of points that both see."""
    found = [np.zeros((0, 2)), np.zeros((0, 2))]
    while len(found[0]) < number:
        both = [points @ K.T for points in draw(400)]
        pixels = [points[:, :2] / points[:, 2:] for points in both]
        inside = np.all([(p > 8).all(1) & (p < SIZE - 8).all(1) for p in pixels], axis=0)
        inside &= np.all([points[:, 2] > 0.5 for points in both], axis=0)
        found = [np.concatenate([f, p[inside]]) for f, p in zip(found, pixels, strict=True)]
    return [side[:number] for side in found]
