"""Q1: nested graphs with fixed proposals, and the probe of the true pose."""

import dataclasses

import numpy as np
import pytest

from manymatch import Options, estimate_relative_pose, score_pose
from manymatch_lab.experiments import q1_more_candidates as q1
from manymatch_lab.pose_runs import PoseSets
from tests.support.synthetic_runs import SmallGraphs
from tests.support.synthetic_spreads import synthetic_result


def test_measured_from_runs():
    # 180 and 0 degrees: AUC 0 and 100; a probe that is missing counts as outside.
    first = synthetic_result([[180.0, 180.0], [180.0, 180.0]], [10, 30], enters=[[1, 0], [1, None]])
    second = synthetic_result([[0.0, 180.0], [0.0, 0.0]], [40, 80], enters=[[1, 1], [1, 0]])
    found = q1._measured([first, second])
    assert found["median_edges"] == [20.0, 60.0]
    assert found["inclusion"] == [50.0, 75.0]
    assert found["auc"][0]["mean"] == [0.0] * 3
    # Half of the errors below each threshold: the curve is at one half, then at one.
    assert found["delta"][1]["min"] == pytest.approx([50.0] * 3)
    assert found["delta"][1]["max"] == pytest.approx([100.0] * 3)
    macro = q1._macro([[first, second], [first, first]])
    assert macro["macro_inclusion"] == [50.0, 62.5]
    assert macro["macro_delta"][1]["mean"] == pytest.approx([37.5] * 3)
    assert macro["macro_delta"][1]["sd"] == pytest.approx([625**0.5 / 2**0.5] * 3)


class WrongTruth(SmallGraphs):
    """Scenes whose alleged pose is turned, the later ones by more, so that some cannot enter."""

    def __getitem__(self, index):
        posed = super().__getitem__(index)
        angle = np.radians(0.4 * index)
        turn = np.array(
            [[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]]
        )
        return dataclasses.replace(posed, R=turn @ posed.R)


def test_probe_against_a_slow_twin(tmp_path):
    source = WrongTruth(3)
    data = q1.run(PoseSets([source], tmp_path), k=2, seeds=2, iterations=300)
    inside = []
    for k in (1, 2):
        entered = 0
        for index in range(3):
            posed = source[index]
            graph = posed.graph.filter(posed.graph.rank <= k)
            seen = graph, posed.camera0, posed.camera1
            for seed in (index + 1, index + 2):
                options = Options(min_iterations=300, max_iterations=300, seed=seed)
                first = graph.rank == 1
                estimate = estimate_relative_pose(*seen, "hcm-mcm", options, proposals=first)
                assert estimate.iterations == 300
                truth = score_pose(*seen, posed.pose, options)
                entered += estimate.pooled < 100 or truth.hcm > estimate.worst_pooled
        inside.append(100.0 * entered / 6)
    assert data["runs"][0]["sets"][0]["inclusion"] == pytest.approx(inside)
    assert 0.0 < inside[1] < 100.0
