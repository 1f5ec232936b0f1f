"""An estimator of matches whose every answer is known, for tests of calibration."""

from types import SimpleNamespace

import numpy as np

from manymatch import RelativePose
from manymatch_lab import match_runs


def said(edges):
    """A probability that depends on the keypoints, from 0.05 to 0.95."""
    return 0.05 + 0.1 * ((3 * edges[:, 0] + edges[:, 1]) % 10)


def use_fake_estimator(monkeypatch):
    """Make runs take every second edge, from the seed on; returns the list of calls."""
    calls = []

    def estimate(graph, _camera0, _camera1, method, options, **_):
        calls.append((method, options.seed, options.threshold_px, graph.num_edges))
        matches = graph.edges[options.seed % 2 :: 2]
        pose = RelativePose(np.eye(3), [1.0, 0.0, 0.0])
        return SimpleNamespace(pose=pose, matches=matches, match_probability=said(matches))

    monkeypatch.setattr(match_runs, "estimate_relative_pose", estimate)
    return calls


def use_blind_estimator(monkeypatch):
    """Make runs find nothing."""

    def estimate(graph, *_, **__):
        return SimpleNamespace(pose=None, matches=graph.edges[:0], match_probability=np.zeros(0))

    monkeypatch.setattr(match_runs, "estimate_relative_pose", estimate)
