"""How well does a pose explain the candidates? Compare the true pose with one that is 2° off.

Needs only `pip install .`.
"""

from pathlib import Path

import numpy as np

import manymatch as mm

PHOTOS = Path(__file__).parent / "photos"

graph = mm.io.load_graph(PHOTOS / "candidates.csv")  # between street0.jpg and street3.jpg
pair = mm.io.read_pairs(PHOTOS / "pairs.txt", PHOTOS)[2]  # their cameras and true pose
angle = np.deg2rad(2.0)
turn = np.array([[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]])
poses = {
    "true pose": mm.RelativePose(pair.R, pair.t),
    "turned by 2 degrees": mm.RelativePose(turn @ pair.R, pair.t),
}

print(f"{graph.num_edges} candidates")
for name, pose in poses.items():
    score = mm.score_pose(graph, pair.camera0, pair.camera1, pose)
    print(
        f"{name}: {score.num_inliers} candidates agree, {score.cardinality} of them one-to-one, "
        f"HCM score {score.hcm:.1f}"
    )
