"""Truth of matches: true edges, and Sampson distances under the true pose."""

import dataclasses

import numpy as np
import pytest

from manymatch import AssociationGraph, Camera
from manymatch.datasets.synthetic import EASY, make_scene
from manymatch.evaluate.posed_graph import PosedGraph, read_posed_graph, write_posed_graph
from manymatch.evaluate.sources import SyntheticSource
from manymatch_paper.measures.match_truth import epipolar_distance, known_truth
from tests.support.synthetic_runs import KnowingSource, SmallSource


def plain_distance(posed, match):
    """Sampson distance in working pixels, and the signs of the depths, one match in plain steps."""
    K0, K1 = np.linalg.inv(posed.camera0.K), np.linalg.inv(posed.camera1.K)
    x0 = K0 @ [*posed.graph.points0[match[0]], 1.0]
    x1 = K1 @ [*posed.graph.points1[match[1]], 1.0]
    t = posed.t / np.linalg.norm(posed.t)
    cross = np.array([[0, -t[2], t[1]], [t[2], 0, -t[0]], [-t[1], t[0], 0]])
    E = cross @ posed.R
    line1, line0 = E @ x0, E.T @ x1
    distance = abs(x1 @ line1) / np.sqrt((line1[:2] ** 2).sum() + (line0[:2] ** 2).sum())
    # Depths a, b with a R x0 + t = b x1 in the least-squares sense.
    a, b = np.linalg.lstsq(np.column_stack([posed.R @ x0, -x1]), -t, rcond=None)[0]
    focal = [(K[0, 0] + K[1, 1]) / 2 for K in (posed.camera0.K, posed.camera1.K)]
    return distance / (0.5 * (1 / focal[0] + 1 / focal[1])) / posed.pixels, a > 0 and b > 0


def test_epipolar_distance_equals_the_slow_twin():
    posed = dataclasses.replace(SmallSource()[0], pixels=2.5)
    rng = np.random.default_rng(0)
    sizes = len(posed.graph.points0), len(posed.graph.points1)
    matches = np.column_stack([rng.integers(0, size, 300) for size in sizes])
    matches = np.concatenate([matches, posed.graph.edges[:50]])
    found = epipolar_distance(posed, matches)
    behind = 0
    for match, value in zip(matches, found, strict=True):
        distance, in_front = plain_distance(posed, match)
        behind += not in_front
        assert value == pytest.approx(distance if in_front else np.inf, rel=1e-6, abs=1e-9)
    assert 20 < behind < 330


def test_known_truth_looks_up_true_edges():
    posed = KnowingSource()[1]
    true = {tuple(edge) for edge in make_scene(EASY, 1).true_matches.tolist()}
    matches = np.concatenate([posed.graph.edges[::-3], [[0, 0], [1, 0]]])
    found = known_truth(posed, matches)
    candidates = {tuple(edge) for edge in posed.graph.edges.tolist()}
    assert found.tolist() == [tuple(m) in true & candidates for m in matches.tolist()]
    assert 0 < found.sum() < len(found)
    assert known_truth(SmallSource()[1], matches) is None


def test_nothing_to_judge():
    posed = KnowingSource()[0]
    assert epipolar_distance(posed, []).shape == (0,)
    assert known_truth(posed, np.zeros((0, 2), int)).shape == (0,)
    empty = AssociationGraph(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros((0, 2), int))
    camera = Camera.from_matrix(np.diag([500.0, 500.0, 1.0]), 640, 480)
    bare = PosedGraph(
        *("a", "b", empty, camera, camera, (640, 480), (640, 480)),
        *(np.eye(3), np.array([1.0, 0.0, 0.0]), 1),
        true_edges=np.zeros(0, bool),
    )
    assert known_truth(bare, []).shape == (0,)


def test_a_keypoint_that_is_not_there_is_refused():
    posed = SmallSource()[0]
    for match in ([[-1, 0]], [[0, len(posed.graph.points1)]]):
        with pytest.raises(ValueError, match=r"matches must hold keypoints of image [01]"):
            epipolar_distance(posed, match)


def test_true_edges_are_checked_and_kept_in_files(tmp_path):
    posed = KnowingSource()[0]
    with pytest.raises(ValueError, match="true_edges must be a boolean array of shape"):
        dataclasses.replace(posed, true_edges=[True])
    with pytest.raises(ValueError, match="read-only"):
        posed.true_edges[0] = True
    write_posed_graph(tmp_path / "a.npz", posed)
    assert read_posed_graph(tmp_path / "a.npz").true_edges.tolist() == posed.true_edges.tolist()
    write_posed_graph(tmp_path / "b.npz", SmallSource()[0])
    assert read_posed_graph(tmp_path / "b.npz").true_edges is None
    arrays = dict(np.load(tmp_path / "a.npz"))
    np.savez(tmp_path / "c.npz", **{**arrays, "true_edges": arrays["true_edges"][1:]})
    with pytest.raises(ValueError, match=r"c\.npz.*true_edges must be a boolean array"):
        read_posed_graph(tmp_path / "c.npz")


def test_made_sources_know_their_true_edges():
    posed = SyntheticSource.of("easy", 5)[3]
    edges = {tuple(edge) for edge in posed.graph.edges[posed.true_edges].tolist()}
    true = {
        tuple(edge) for edge in make_scene(SyntheticSource.of("easy", 5).config, 3).true_matches
    }
    assert edges
    assert edges <= true
