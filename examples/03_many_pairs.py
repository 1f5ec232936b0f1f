"""Many pairs at once, all cores, and the accuracy over all of them."""

import manymatch
from manymatch.datasets.synthetic import ORDERING, make_scenes
from manymatch.evaluate import pose_auc, pose_error_deg

scenes = list(make_scenes(ORDERING, count=8))
problems = [(scene.graph, scene.camera0, scene.camera1) for scene in scenes]
options = manymatch.Options(max_iterations=20_000)

for method in ("cm", "hcm-mcm", "auto"):
    estimates = manymatch.estimate_relative_poses(problems, method=method, options=options)
    errors = [
        pose_error_deg(estimate.pose, scene.pose.R, scene.pose.t)
        for estimate, scene in zip(estimates, scenes, strict=True)
    ]
    auc = ", ".join(f"{value:.1f}" for value in pose_auc(errors))
    print(f"{method}: AUC at 5, 10, 20 degrees {auc}")
