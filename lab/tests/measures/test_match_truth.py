"""Matches that runs keep, and what is true of them."""

import dataclasses

import numpy as np
import pytest

from manymatch.options import Options
from manymatch_lab.datasets.synthetic import EASY, make_scene
from manymatch_lab.evaluate.posed_graph import read_posed_graph, write_posed_graph
from manymatch_lab.evaluate.run import RunConfig, run_set
from manymatch_lab.experiments.calibration import SetMatches
from manymatch_lab.measures.match_truth import epipolar_distance, known_truth
from tests.oracles.geometry import in_front, sampson_squared
from tests.support.synthetic_matches import said, use_fake_estimator
from tests.support.synthetic_runs import SmallGraphs, TrueEdgesGraphs

QUICK = Options(min_iterations=50, max_iterations=50)


def shrunk(posed, factor):
    """A pair whose keypoints were found in images that many times smaller."""
    working = {
        f"working{side}": tuple(length // factor for length in size)
        for side, size in enumerate((posed.size0, posed.size1))
    }
    return dataclasses.replace(posed, **working)


def run_matches(source, folder, seeds=1):
    config = RunConfig("auto", options=QUICK, seeds=seeds, matches=True)
    return SetMatches.of(run_set(source, {"a": config}, folder)["a"])


@pytest.fixture
def fake(monkeypatch):
    return use_fake_estimator(monkeypatch)


def test_matches_are_those_of_the_estimator(tmp_path, fake):
    source = TrueEdgesGraphs(3)
    found = run_matches(source, tmp_path, 2)
    assert sorted(fake) == sorted(
        ("auto", seed, 1.0, source[index].graph.num_edges)
        for index in range(3)
        for seed in (index + 1, index + 2)
    )
    assert (found.pairs, found.unreadable, found.unmatched) == (3, 0, 0)
    place = 0
    for index in range(3):
        posed = source[index]
        for seed in (index + 1, index + 2):
            matches = posed.graph.edges[seed % 2 :: 2]
            part = slice(place, place + len(matches))
            place += len(matches)
            assert (found.pair[part] == index).all()
            np.testing.assert_allclose(found.probability[part], said(matches), atol=1e-6)
            np.testing.assert_allclose(
                found.distance_px[part], epipolar_distance(posed, matches), atol=1e-4
            )
            assert found.known[part].tolist() == known_truth(posed, matches).tolist()
            assert len(set(found.error_deg[part].tolist())) == 1
    assert len(found.pair) == place
    assert np.isinf(found.distance_px).any()


@pytest.mark.usefixtures("fake")
def test_unreadable_pairs_have_no_matches(tmp_path):
    found = run_matches(SmallGraphs(3, broken=frozenset({1})), tmp_path)
    assert (found.pairs, found.unreadable) == (3, 1)
    assert set(found.pair.tolist()) == {0, 2}


def test_estimators_without_probabilities_are_refused():
    with pytest.raises(ValueError, match="matches must be False with hcm-mcm"):
        RunConfig("hcm-mcm", matches=True)


def test_epipolar_distance_equals_the_slow_twin():
    posed = shrunk(SmallGraphs()[0], 2)
    assert posed.pixels == pytest.approx(2.0)
    rng = np.random.default_rng(0)
    sizes = len(posed.graph.points0), len(posed.graph.points1)
    matches = np.column_stack([rng.integers(0, size, 300) for size in sizes])
    matches = np.concatenate([matches, posed.graph.edges[:50]])
    x0 = posed.camera0.unproject(posed.graph.points0)
    x1 = posed.camera1.unproject(posed.graph.points1)
    # Working pixels for one unit of the normalised plane.
    scale = 2.0 / (1.0 / posed.camera0.focal + 1.0 / posed.camera1.focal) / posed.pixels
    t = posed.t / np.linalg.norm(posed.t)
    found = epipolar_distance(posed, matches)
    for (i, j), value in zip(matches, found, strict=True):
        arguments = (x0[i], x1[j], posed.R, t)
        expected = scale * sampson_squared(*arguments) ** 0.5 if in_front(*arguments) else np.inf
        assert value == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert 20 < np.isinf(found).sum() < 330


def test_known_truth_looks_up_true_edges():
    posed = TrueEdgesGraphs()[1]
    true = {tuple(edge) for edge in make_scene(EASY, 1).true_matches.tolist()}
    matches = np.concatenate([posed.graph.edges[::-3], [[0, 0], [1, 0]]])
    found = known_truth(posed, matches)
    candidates = {tuple(edge) for edge in posed.graph.edges.tolist()}
    assert found.tolist() == [tuple(m) in true & candidates for m in matches.tolist()]
    assert 0 < found.sum() < len(found)
    assert known_truth(SmallGraphs()[1], matches) is None


def test_true_edges_are_checked_and_kept_in_files(tmp_path):
    posed = TrueEdgesGraphs()[0]
    with pytest.raises(ValueError, match="true_edges must be a boolean array of shape"):
        dataclasses.replace(posed, true_edges=[True])
    with pytest.raises(ValueError, match="read-only"):
        posed.true_edges[0] = True
    write_posed_graph(tmp_path / "a.npz", posed)
    assert read_posed_graph(tmp_path / "a.npz").true_edges.tolist() == posed.true_edges.tolist()
    write_posed_graph(tmp_path / "b.npz", SmallGraphs()[0])
    assert read_posed_graph(tmp_path / "b.npz").true_edges is None
    arrays = dict(np.load(tmp_path / "a.npz"))
    np.savez(tmp_path / "c.npz", **{**arrays, "true_edges": arrays["true_edges"][1:]})
    with pytest.raises(ValueError, match=r"c\.npz.*true_edges must be a boolean array"):
        read_posed_graph(tmp_path / "c.npz")
