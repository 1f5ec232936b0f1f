"""Runs that keep matches: what they keep, going on, Ctrl-C, pairs that say nothing."""

import dataclasses
import os
import signal

import numpy as np
import pytest

from manymatch.associate.candidates import Association
from manymatch.batch.parts import RunInterrupted
from manymatch.options import Options
from manymatch_lab.datasets.synthetic import EASY, make_scene
from manymatch_lab.evaluate.posed_graph import read_posed_graph, write_posed_graph
from manymatch_lab.evaluate.run import RunConfig
from manymatch_lab.match_runs import epipolar_distance, known_truth, run_matches
from tests.oracles.geometry import in_front, sampson_squared
from tests.support.synthetic_matches import said, use_fake_estimator
from tests.support.synthetic_runs import SmallGraphs, TrueEdgesGraphs

QUICK = Options(min_iterations=50, max_iterations=50)


def shrunk(posed, factor):
    """A pair whose keypoints were found in images that many times smaller."""
    (width0, height0), (width1, height1) = posed.size0, posed.size1
    return dataclasses.replace(
        posed,
        working0=(width0 // factor, height0 // factor),
        working1=(width1 // factor, height1 // factor),
    )


def quick_config(seeds=1):
    return RunConfig(
        estimator="auto", association=Association().for_method("auto"), options=QUICK, seeds=seeds
    )


@pytest.fixture
def fake(monkeypatch):
    return use_fake_estimator(monkeypatch)


def test_matches_are_those_of_the_estimator(tmp_path, fake):
    source = TrueEdgesGraphs(3)
    found = run_matches(source, quick_config(2), tmp_path, workers=1)
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
    assert len(found) == place
    assert np.isinf(found.distance_px).any()


def test_thresholds_count_pixels_at_working_size(tmp_path, fake):
    class Enlarged(SmallGraphs):
        def __getitem__(self, index):
            return shrunk(super().__getitem__(index), 2)

    plain = run_matches(SmallGraphs(1), quick_config(), tmp_path / "a")
    large = run_matches(Enlarged(1), quick_config(), tmp_path / "b")
    assert [call[2] for call in fake] == [1.0, 2.0]
    np.testing.assert_allclose(large.distance_px, plain.distance_px / 2, atol=1e-4)
    assert large.known is None


def test_goes_on_and_computes_nothing_twice(tmp_path, fake):
    first = run_matches(TrueEdgesGraphs(4), quick_config(), tmp_path, limit=2)
    assert (first.pairs, len(fake)) == (2, 2)
    shown = []
    whole = run_matches(TrueEdgesGraphs(4), quick_config(), tmp_path, progress=shown.append)
    assert (whole.pairs, len(fake)) == (4, 4)
    assert [shown[0].finished, shown[-1].finished, shown[-1].total] == [2, 4, 4]
    again = run_matches(TrueEdgesGraphs(4), quick_config(), tmp_path)
    assert len(fake) == 4
    np.testing.assert_array_equal(again.probability, whole.probability)
    # A limit selects the first pairs, also if the folder has more.
    part = run_matches(TrueEdgesGraphs(4), quick_config(), tmp_path, limit=2)
    np.testing.assert_array_equal(part.distance_px, first.distance_px)
    with pytest.raises(ValueError, match=r"config.seeds was 1 and is 2 now"):
        run_matches(TrueEdgesGraphs(4), quick_config(2), tmp_path)


def test_unreadable_pairs_are_counted(tmp_path, fake):
    source = SmallGraphs(3, broken=frozenset({1}))
    found = run_matches(source, quick_config(), tmp_path)
    assert (found.pairs, found.unreadable) == (3, 1)
    assert [reason.sentence for reason in found.not_run] == [
        "image 1 must be an image, got no file"
    ]
    assert set(found.pair.tolist()) == {0, 2}
    assert len(fake) == 2
    again = run_matches(SmallGraphs(3), quick_config(), tmp_path, retry_errors=True)
    assert again.not_run == []
    assert set(again.pair.tolist()) == {0, 1, 2}


def test_an_estimator_without_probabilities_is_refused(tmp_path):
    config = dataclasses.replace(quick_config(), estimator="hcm-mcm")
    with pytest.raises(ValueError, match=r"estimator must give probabilities.*'hcm-mcm'"):
        run_matches(SmallGraphs(1), config, tmp_path)


@pytest.mark.usefixtures("fake")
def test_ctrl_c_keeps_what_is_finished(tmp_path):
    class Stopping(SmallGraphs):
        def __getitem__(self, index):
            if index == 5:
                os.kill(os.getpid(), signal.SIGINT)
            return super().__getitem__(index)

    with pytest.raises(RunInterrupted) as stop:
        run_matches(Stopping(8), quick_config(), tmp_path, workers=1)
    assert 0 < stop.value.finished < 8
    source = SmallGraphs(8)
    assert run_matches(source, quick_config(), tmp_path).pairs == 8
    assert len(source.asked) == 8 - stop.value.finished


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
