"""Two clouds of points with several candidates each: rotation and translation, and which match.

Usage: 09_register_clouds.py
"""

import numpy as np

import manymatch as mm

rng = np.random.default_rng(3)

# A cloud, and the same turned, moved and measured again. Every point has three candidates, and the
# right one is as often second or third as first, as where a shape repeats.
points0 = rng.uniform(-1, 1, (300, 3))
R = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
points1 = points0 @ R.T + [0.5, 0.2, -0.3] + rng.normal(0, 0.005, (300, 3))
candidates = rng.integers(0, 300, (300, 3))
candidates[np.arange(300), rng.integers(0, 3, 300)] = np.arange(300)

edges = [(i, candidates[i, k]) for k in range(3) for i in range(300)]  # best first
ranks = np.repeat([1, 2, 3], 300)
graph = mm.AssociationGraph(points0, points1, edges, rank=ranks)

estimate = mm.estimate_rigid_transform(graph, threshold=0.02)
right = estimate.matches[:, 0] == estimate.matches[:, 1]
turn = np.degrees(np.arccos((np.trace(estimate.transform[:3, :3] @ R.T) - 1) / 2))
print(estimate.transform.round(3))
print(f"{len(right)} matches, {right.mean():.0%} right, rotation off by {turn:.3f} degrees")
