"""Your own candidates, several per keypoint, to a relative pose and one-to-one matches."""

import manymatch
from manymatch.datasets.synthetic import EASY, make_scene
from manymatch.evaluate import pose_error_deg

# Any detector and matcher will do; here a synthetic scene stands in for them.
scene = make_scene(EASY, seed=1)
points0, points1 = scene.graph.points0, scene.graph.points1  # (N, 2) pixels
edges = scene.graph.edges  # (E, 2) candidates, best first; a keypoint may occur many times

graph = manymatch.AssociationGraph(points0, points1, edges)
K = [[800, 0, 511.5], [0, 800, 383.5], [0, 0, 1]]
estimate = manymatch.estimate_relative_pose(graph, K, K)

if not estimate.success:
    raise SystemExit(f"no pose: {estimate.failure}")
print(f"{graph.num_edges} candidates, {len(estimate.matches)} one-to-one matches")
print(f"rotation\n{estimate.pose.R.round(4)}\ntranslation direction {estimate.pose.t.round(4)}")
error = pose_error_deg(estimate.pose, scene.pose.R, scene.pose.t)
print(f"pose error {error:.3f} degrees")
