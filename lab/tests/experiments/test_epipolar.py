"""The epipolar-line example and the measured delta."""

import dataclasses

import numpy as np
import pytest
from typer.testing import CliRunner

from manymatch.estimate.relative_pose import score_pose
from manymatch.geometry.pose import RelativePose
from manymatch.graph import AssociationGraph
from manymatch.io.pairs import demo_pair
from manymatch.options import Options
from manymatch_lab.command import app
from manymatch_lab.engine import load_report
from manymatch_lab.evaluate.inputs import SyntheticGraphs
from manymatch_lab.experiments import epipolar
from manymatch_lab.experiments.epipolar import (
    APART_PX,
    count_false_inliers,
    epipolar_lines,
    find_example,
    other_edges,
)


def test_epipolar_lines_go_through_the_matches():
    scene = SyntheticGraphs("easy", 5)[0]
    edges = scene.graph.edges[scene.true_edges]
    first, second = scene.graph.points0[edges[:, 0]], scene.graph.points1[edges[:, 1]]
    lines = epipolar_lines(scene.camera0.K, scene.camera1.K, scene.pose, first)
    np.testing.assert_allclose(np.hypot(lines[:, 0], lines[:, 1]), 1.0)
    distance = (lines[:, :2] * second).sum(axis=1) + lines[:, 2]
    # Keypoints have noise of about a pixel.
    assert np.median(np.abs(distance)) < 1.5


def test_both_candidates_of_the_example_are_inliers_apart_from_each_other():
    pair = demo_pair()
    found = find_example(pair)
    pose = RelativePose(pair.R, pair.t / np.linalg.norm(pair.t))
    graph = AssociationGraph(
        [found["point0"]] * 2, [found["match"], found["false"]], [[0, 0], [1, 1]]
    )
    inliers = score_pose(graph, pair.camera0, pair.camera1, pose, Options()).inliers
    assert inliers.all()
    line = np.array(found["line"])
    for name in ("match", "false"):
        assert abs(line[:2] @ found[name] + line[2]) < 2.0
    assert np.linalg.norm(np.subtract(found["false"], found["match"])) > 40.0
    assert found["match_rank"] == 1 < found["false_rank"] <= 5


def test_a_pair_without_an_example_says_so(monkeypatch):
    pair = demo_pair()
    with pytest.raises(ValueError, match="pair must have cameras and a pose"):
        find_example(dataclasses.replace(pair, R=None, t=None))
    monkeypatch.setattr(epipolar, "_OTHER_PX", 1e4)
    with pytest.raises(ValueError, match="which has none"):
        find_example(pair)


def test_others_are_candidates_elsewhere_than_an_inlier_of_rank_one():
    points1 = [[0, 0], [5, 0], [50, 0], [90, 0]]
    edges = [[0, 0], [1, 1], [0, 1], [0, 2], [1, 2], [2, 3]]
    graph = AssociationGraph(np.zeros((3, 2)), points1, edges, rank=[1, 1, 2, 2, 2, 3])
    inlier = np.array([True, False, True, True, True, True])
    # Keypoint 0 has an inlier of rank one at (0, 0): (5, 0) is the same place, (50, 0) is not.
    # Keypoint 1 has none, keypoint 2 has no candidate of rank one.
    assert other_edges(graph, inlier, 10.0).tolist() == [False, False, False, True, False, False]
    assert other_edges(graph, inlier, 4.0).tolist() == [False, False, True, True, False, False]


@pytest.mark.parametrize("index", [0, 1])
def test_counts_agree_with_a_slow_loop(index):
    posed = SyntheticGraphs("ordering", 5)[index]
    options = Options()
    found = count_false_inliers(posed, options, 3_000)
    graph = posed.graph

    def inlier(i, j):
        one = AssociationGraph(graph.points0[[i]], graph.points1[[j]], [[0, 0]])
        return bool(score_pose(one, posed.camera0, posed.camera1, posed.pose, options).inliers[0])

    marked = []
    for i in range(len(graph.points0)):
        at = [e for e in range(len(graph)) if graph.edges[e, 0] == i]
        first = [e for e in at if graph.rank[e] == 1 and inlier(*graph.edges[e])]
        for e in at if first else []:
            step = graph.points1[graph.edges[e, 1]] - graph.points1[graph.edges[first[0], 1]]
            if np.linalg.norm(step) > APART_PX:
                marked.append(inlier(*graph.edges[e]))
    assert (found.others, found.other_inliers) == (len(marked), sum(marked))
    # All pairs that are no candidates: the random ones are a sample of them.
    n0, n1 = len(graph.points0), len(graph.points1)
    taken = {tuple(edge) for edge in graph.edges.tolist()}
    others = [(i, j) for i in range(n0) for j in range(n1) if (i, j) not in taken]
    whole = AssociationGraph(graph.points0, graph.points1, others)
    share = score_pose(whole, posed.camera0, posed.camera1, posed.pose, options).inliers.mean()
    assert found.drawn <= 3_000
    spread = 5.0 * (share * (1.0 - share) / found.drawn) ** 0.5
    assert abs(found.drawn_inliers / found.drawn - share) < spread + 1e-3


def test_the_command_measures_and_draws_and_can_draw_again(tmp_path):
    arguments = ["epipolar", "synthetic:ordering", "nowhere", "--limit", "3", "--draws", "2000"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    again = load_report(tmp_path / "epipolar.json")
    assert again.markdown() == (tmp_path / "epipolar.md").read_text(encoding="utf-8")
    assert (tmp_path / "epipolar_line.pdf").is_file()
    assert [entry["set"] for entry in again.data["missing"]] == ["nowhere"]
    (entry,) = again.data["sets"]
    assert entry["pairs"] == 3
    assert 0.0 < entry["random"]["share"] < 0.05
    assert entry["random"]["low"] <= entry["random"]["share"] <= entry["random"]["high"]
