"""An estimator of matches whose every answer is known, for tests of calibration."""

from types import SimpleNamespace

import numpy as np

from manymatch import RelativePose
from manymatch_lab.evaluate import estimators


def said(edges):
    """A probability that depends on the keypoints, from 0.05 to 0.95."""
    return 0.05 + 0.1 * ((3 * edges[:, 0] + edges[:, 1]) % 10)


def fake_estimate(pose, matches, probability, cameras):
    row = dict.fromkeys(("failure", "iterations", "cardinality", "hcm"))
    return SimpleNamespace(
        pose=pose,
        matches=matches,
        match_probability=probability,
        num_inliers=len(matches),
        timing={"total": 0.0},
        cameras=cameras,
        to_row=lambda: row,
    )


def use_fake_estimator(monkeypatch):
    """Make runs take every second edge, from the seed on; returns the list of calls."""
    calls = []

    def estimate(graph, camera0, camera1, method, options, **_):
        calls.append((method, options.seed, options.threshold_px, graph.num_edges))
        matches = graph.edges[options.seed % 2 :: 2]
        pose = RelativePose(np.eye(3), [1.0, 0.0, 0.0])
        return fake_estimate(pose, matches, said(matches), (camera0, camera1))

    monkeypatch.setattr(estimators, "estimate_relative_pose", estimate)
    return calls
