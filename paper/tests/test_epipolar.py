"""The epipolar-line example and the measured delta."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from typer.testing import CliRunner

from manymatch.estimate.options import Options
from manymatch.estimate.relative_pose import score_pose
from manymatch.evaluate.sources import SyntheticSource
from manymatch.graph import AssociationGraph
from manymatch_paper.cli.experiment import app
from manymatch_paper.experiments import _epipolar_example as example_module
from manymatch_paper.experiments import epipolar
from manymatch_paper.experiments._epipolar_example import (
    decoded,
    epipolar_lines,
    find_example,
    transferred,
)
from manymatch_paper.experiments._false_inliers import (
    APART_PX,
    count_false_inliers,
    rival_edges,
)
from manymatch_paper.experiments.registry import load_report
from tools.street import render_scene

SIZE = (320, 240)


@pytest.fixture(scope="module")
def scene():
    return render_scene(2, SIZE, supersample=1)


def test_epipolar_lines_go_through_the_matches(scene):
    rng = np.random.default_rng(0)
    points = rng.uniform((0, 0), (SIZE[0] - 1, SIZE[1] - 1), (200, 2))
    truth = transferred(scene, points)
    known = np.isfinite(truth).all(axis=1)
    assert 30 < known.sum() < 200
    lines = epipolar_lines(scene, points)
    np.testing.assert_allclose(np.hypot(lines[:, 0], lines[:, 1]), 1.0)
    distance = (lines[:, :2] * truth).sum(axis=1) + lines[:, 2]
    np.testing.assert_allclose(distance[known], 0.0, atol=1e-6)


def test_transferred_points_are_where_the_other_depth_has_them_too(scene):
    """There and back by the two depth images: the same pixel, but for the depth's own grid."""
    points = np.array([[x, y] for x in range(20, 300, 20) for y in range(20, 220, 20)], float)
    truth = transferred(scene, points)
    known = np.isfinite(truth).all(axis=1)
    back = dataclasses.replace(
        scene,
        pose=scene.pose.inverse(),
        depth0=scene.depth1,
        depth1=scene.depth0,
        camera0=scene.camera1,
        camera1=scene.camera0,
    )
    again = transferred(back, truth[known])
    error = np.linalg.norm(again - points[known], axis=1)
    assert np.nanmedian(error) < 0.5
    sky = ~np.isfinite(scene.depth0)
    if sky.any():
        y, x = np.argwhere(sky)[0]
        assert np.isnan(transferred(scene, np.array([[float(x), float(y)]]))).all()


def test_the_false_candidate_is_an_inlier_elsewhere(scene, monkeypatch):
    monkeypatch.setattr(example_module, "_MARGIN_PX", 10)
    monkeypatch.setattr(example_module, "_OTHER_PX", 20.0)
    found = find_example(scene, threshold_px=1.5)
    assert abs(found.line[:2] @ found.false + found.line[2]) < 1.5
    assert abs(found.line[:2] @ found.truth + found.line[2]) < 1e-6
    assert np.linalg.norm(found.false - found.truth) > 20.0
    graph = AssociationGraph([found.point0] * 2, [found.truth, found.false], [[0, 0], [1, 1]])
    options = Options(threshold_px=1.5)
    inliers = score_pose(graph, scene.camera0, scene.camera1, scene.pose, options).inliers
    assert inliers.all()
    assert 1 <= found.rank <= 5
    assert found.true_rank != found.rank


def test_a_scene_without_one_says_so(scene, monkeypatch):
    monkeypatch.setattr(example_module, "_OTHER_PX", 1e4)
    with pytest.raises(ValueError, match="got seed 2, which has none"):
        find_example(scene)


def test_rivals_are_candidates_elsewhere_than_an_inlier_of_rank_one():
    points1 = [[0, 0], [5, 0], [50, 0], [90, 0]]
    edges = [[0, 0], [1, 1], [0, 1], [0, 2], [1, 2], [2, 3]]
    graph = AssociationGraph(np.zeros((3, 2)), points1, edges, rank=[1, 1, 2, 2, 2, 3])
    inlier = np.array([True, False, True, True, True, True])
    # Keypoint 0 has an inlier of rank one at (0, 0): (5, 0) is the same place, (50, 0) is not.
    # Keypoint 1 has none, keypoint 2 has no candidate of rank one.
    assert rival_edges(graph, inlier, 10.0).tolist() == [False, False, False, True, False, False]
    assert rival_edges(graph, inlier, 4.0).tolist() == [False, False, True, True, False, False]


@pytest.mark.parametrize("index", [0, 1])
def test_counts_agree_with_a_slow_loop(index):
    posed = SyntheticSource.of("ordering", 5)[index]
    options = Options()
    found = count_false_inliers(posed, options, 3_000)
    graph = posed.graph

    def inlier(i, j):
        one = AssociationGraph(graph.points0[[i]], graph.points1[[j]], [[0, 0]])
        return bool(score_pose(one, posed.camera0, posed.camera1, posed.pose, options).inliers[0])

    rivals = []
    for i in range(len(graph.points0)):
        at = [e for e in range(len(graph)) if graph.edges[e, 0] == i]
        first = [e for e in at if graph.rank[e] == 1 and inlier(*graph.edges[e])]
        for e in at if first else []:
            step = graph.points1[graph.edges[e, 1]] - graph.points1[graph.edges[first[0], 1]]
            if np.linalg.norm(step) > APART_PX:
                rivals.append(inlier(*graph.edges[e]))
    assert (found.rivals, found.rival_inliers) == (len(rivals), sum(rivals))
    # All pairs that are no candidates: the random ones are a sample of them.
    n0, n1 = len(graph.points0), len(graph.points1)
    taken = {tuple(edge) for edge in graph.edges.tolist()}
    others = [(i, j) for i in range(n0) for j in range(n1) if (i, j) not in taken]
    whole = AssociationGraph(graph.points0, graph.points1, others)
    share = score_pose(whole, posed.camera0, posed.camera1, posed.pose, options).inliers.mean()
    assert found.drawn <= 3_000
    spread = 5.0 * (share * (1.0 - share) / found.drawn) ** 0.5
    assert abs(found.drawn_inliers / found.drawn - share) < spread + 1e-3


def test_the_command_measures_and_draws_and_can_draw_again(tmp_path, monkeypatch, scene):
    monkeypatch.setattr(example_module, "render_scene", lambda *_: scene)
    monkeypatch.setattr(example_module, "_MARGIN_PX", 10)
    monkeypatch.setattr(example_module, "_OTHER_PX", 20.0)
    result = CliRunner().invoke(
        app,
        [
            *("epipolar", "synthetic:ordering", "nowhere"),
            *("--limit", "3", "--draws", "2000", "--out", str(tmp_path)),
        ],
    )
    assert result.exit_code == 0, result.output
    text = (tmp_path / "epipolar.md").read_text(encoding="utf-8")
    assert "Measured δ; the paper assumes 0.01" in text
    assert "nowhere was not run: set must be" in text
    assert {"epipolar_line.pdf", "epipolar_line.png", "epipolar.tex", "epipolar.json"} <= {
        path.name for path in tmp_path.iterdir()
    }
    again = load_report(tmp_path / "epipolar.json")
    assert again.markdown() == text
    entry = again.data["sets"][0]
    assert entry["pairs"] == 3
    assert 0.0 < entry["random"]["share"] < 0.05
    assert entry["random"]["low"] <= entry["random"]["share"] <= entry["random"]["high"]
    image = decoded(again.data["example"]["images"][0])
    assert image.shape == scene.image0.shape
    assert np.abs(image.astype(int) - scene.image0).mean() < 6.0


def test_a_set_without_any_rival_has_a_dash():
    shown = epipolar._text(epipolar._share(np.zeros((3, 2), dtype=np.int64)))
    assert shown == "–"
    assert epipolar._share(np.array([[10, 1], [30, 3]]))["share"] == 0.1
