"""How well does a pose explain a graph? Compare the true pose with one that is a little off."""

import numpy as np

import manymatch
from manymatch.datasets.synthetic import EASY, make_scene

scene = make_scene(EASY, seed=2)
angle = np.deg2rad(2.0)
turn = np.array([[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]])
poses = {
    "true pose": scene.pose,
    "turned by 2 degrees": manymatch.RelativePose(turn @ scene.pose.R, scene.pose.t),
}

print(f"{scene.graph.num_edges} candidates, {len(scene.true_matches)} true matches")
for name, pose in poses.items():
    score = manymatch.score_pose(scene.graph, scene.camera0, scene.camera1, pose)
    print(
        f"{name}: hcm {score.hcm:.1f}, one-to-one matches {score.cardinality}, "
        f"consistent candidates {score.num_inliers}"
    )
