"""Synthetic graphs that have the same bits on every machine.

Random numbers are integers from a hash, and everything after them is one correctly rounded
operation at a time: no matrix product, no sine, nothing a library may compute in another order.
"""

from dataclasses import dataclass

import numpy as np

import manymatch

FOCAL, CENTRE = 800.0, (512.0, 384.0)
CAMERA = manymatch.Camera("PINHOLE", 1024, 768, (FOCAL, FOCAL, *CENTRE))


@dataclass(frozen=True)
class SyntheticGraph:
    """A graph, its true pose and which of its edges are true."""

    graph: manymatch.AssociationGraph
    R: np.ndarray
    t: np.ndarray
    is_true: np.ndarray


class Numbers:
    """A stream of pseudo-random numbers: SplitMix64, so that no NumPy release can change it."""

    def __init__(self, seed):
        self._state = np.array([seed], dtype=np.uint64)

    def integers(self, count, below):
        """Whole numbers (count,) in [0, below)."""
        return (self._words(count) >> np.uint64(11)).astype(np.int64) % below

    def uniform(self, count, low, high):
        """Numbers (count,) in [low, high)."""
        unit = (self._words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return low + (high - low) * unit

    def _words(self, count):
        steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = steps + self._state
        if count:
            self._state = x[-1:].copy()
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def rotation(q):
    w, x, y, z = q
    n = w * w + x * x + y * y + z * z
    rows = [
        [w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z],
    ]
    return np.array(rows) / n


def make_graph(seed, num_edges, inlier_ratio, hubs=0, noise_px=0.5):
    """About `num_edges` edges of which the given share is true.

    With `hubs`, wrong edges end at that many keypoints of image 1 only, which then have more edges
    than the score's tables hold.
    """
    numbers = Numbers(seed)
    num_true = round(inlier_ratio * num_edges)
    n = max(num_true, num_edges // 4)
    R = rotation((1.0, *numbers.uniform(3, -0.15, 0.15).tolist()))
    t = numbers.uniform(3, -1.0, 1.0)
    t = t / np.sqrt((t[0] * t[0] + t[1] * t[1]) + t[2] * t[2])
    z = numbers.uniform(n, 4.0, 10.0)
    X = [numbers.uniform(n, -0.6, 0.6) * z, numbers.uniform(n, -0.45, 0.45) * z, z]
    Y = [((R[k, 0] * X[0] + R[k, 1] * X[1]) + R[k, 2] * X[2]) + t[k] for k in range(3)]
    points = []
    for side in (X, Y):
        axes = [side[axis] / side[2] * FOCAL + CENTRE[axis] for axis in (0, 1)]
        spread = [numbers.uniform(n, -noise_px, noise_px) for _ in range(2)]
        points.append(np.column_stack([a + s for a, s in zip(axes, spread, strict=True)]))
    wrong = np.column_stack(
        [numbers.integers(num_edges - num_true, n), numbers.integers(num_edges - num_true, n)]
    )
    if hubs:
        wrong[:, 1] %= hubs
    wrong = np.unique(wrong[wrong[:, 0] != wrong[:, 1]], axis=0)
    true = np.repeat(np.arange(num_true), 2).reshape(-1, 2)
    edges = np.concatenate([true, wrong])
    order = np.argsort(numbers.integers(len(edges), 2**52), kind="stable")
    edges = edges[order]
    rank = 1 + numbers.integers(len(edges), 3)
    graph = manymatch.AssociationGraph(points[0], points[1], edges, rank=rank)
    return SyntheticGraph(graph, R, t, edges[:, 0] == edges[:, 1])
