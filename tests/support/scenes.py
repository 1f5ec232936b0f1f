"""Scenes of many photographs whose cameras are known: pairs as matching would give them."""

import dataclasses
import itertools

import numpy as np

from manymatch import Camera, RelativePose
from manymatch.io.matches import ImageRecord
from manymatch.reconstruct.pair_graph import PairGraph, Photo, PhotoPair

CAMERA = Camera("PINHOLE", 640, 480, [600.0, 600.0, 319.5, 239.5])


@dataclasses.dataclass(frozen=True)
class Scene:
    """A graph of pairs, the true poses (R, t), world to camera, and the world points (N, 3)."""

    graph: PairGraph
    poses: list
    world: np.ndarray

    def relative(self, i, j):
        (R0, t0), (R1, t1) = self.poses[i], self.poses[j]
        return R1 @ R0.T, t1 - R1 @ R0.T @ t0


def looking_at(centre, target):
    """Pose of a camera at a place that looks at another, with y down."""
    z = np.subtract(target, centre) / np.linalg.norm(np.subtract(target, centre))
    x = np.cross([0.0, 1.0, 0.0], z)
    x /= np.linalg.norm(x)
    R = np.array([x, np.cross(z, x), z])
    return R, -R @ centre


def arc(number=8, points=400, noise=0.3, seed=0, step=12.0, camera=CAMERA, records=None):
    """Photographs on an arc around a cloud of points, each of which sees all of them.

    Pairs up to three steps apart are matched, with exact poses and noise in the keypoints.
    """
    rng = np.random.default_rng(seed)
    world = rng.uniform(-1.0, 1.0, (points, 3))
    angles = np.deg2rad(step) * np.arange(number)
    centres = 5.0 * np.column_stack([np.sin(angles), 0.1 * np.cos(3 * angles), -np.cos(angles)])
    poses = [looking_at(centre, np.zeros(3)) for centre in centres]
    photos = []
    for k, (R, t) in enumerate(poses):
        seen = world @ R.T + t
        pixels = camera.project(seen[:, :2] / seen[:, 2:]) + rng.normal(0.0, noise, (points, 2))
        record = ImageRecord(f"{k:02d}.jpg", camera=camera)
        photos.append(Photo(record if records is None else records[k], pixels))
    scene = Scene(PairGraph(tuple(photos), ()), poses, world)
    pairs = []
    for i, j in itertools.combinations(range(number), 2):
        if j - i <= 3:
            chosen = np.sort(rng.choice(points, points // 2, replace=False))
            matches = np.column_stack([chosen, chosen])
            pose = RelativePose(*scene.relative(i, j))
            pairs.append(PhotoPair(i, j, pose, matches, np.ones(len(chosen)), 0.99, 5.0))
    return dataclasses.replace(scene, graph=PairGraph(tuple(photos), tuple(pairs)))
