"""Calibration of match probabilities: data, tables, figure and command."""

import dataclasses

import numpy as np
import pytest

from manymatch import AssociationGraph
from manymatch_lab.datasets.synthetic import EASY, make_scene
from manymatch_lab.evaluate import estimators
from manymatch_lab.experiments import calibration
from manymatch_lab.measures.match_truth import epipolar_distance, known_truth
from manymatch_lab.measures.reliability import reliability
from manymatch_lab.pose_runs import PoseSets
from tests.support.synthetic_matches import fake_estimate, said, use_fake_estimator
from tests.support.synthetic_runs import SmallGraphs, TrueEdgesGraphs
from tests.support.synthetic_spreads import as_json, texts


@pytest.fixture
def fake(monkeypatch):
    return use_fake_estimator(monkeypatch)


def three_sources():
    kinds = ((4, "b", "sift"), (2, "c", "sift"), (2, "b", "vit"))
    return [SmallGraphs(n, name, name.upper(), kind) for n, name, kind in kinds]


@pytest.fixture
def data(tmp_path, fake):
    sources = [TrueEdgesGraphs(3), *three_sources()]
    missing = [{"set": "lost", "why": "it is not here"}]
    found = as_json(calibration.run(PoseSets(sources, tmp_path, missing), seeds=2, bins=5))
    assert len(fake) == 22
    return found


def judged(source, pixels=3.0, seeds=2):
    """Probability, truth, pair and pose error of a source's matches under the fake estimator."""
    columns = []
    for index in range(len(source)):
        posed = source[index]
        for seed in range(index + 1, index + 1 + seeds):
            matches = posed.graph.edges[seed % 2 :: 2]
            known = known_truth(posed, matches)
            truth = epipolar_distance(posed, matches) < pixels if known is None else known
            columns.append((said(matches), truth, np.full(len(matches), index)))
    return [np.concatenate(column) for column in zip(*columns, strict=True)]


def with_nan(values):
    return [np.nan if value is None else value for value in values]


def check(found, probability, truth, groups, strata=None):
    expected = reliability(probability.round(6), truth, 5, groups=groups, strata=strata).to_dict()
    for name, value in expected.items():
        if name in ("low", "high", "probability", "share"):
            np.testing.assert_allclose(with_nan(found[name]), with_nan(value))
        else:
            assert found[name] == pytest.approx(value), name


def test_every_set_by_its_own_truth(data):
    synthetic, sift, vit = data["runs"]
    assert [run["representation"] for run in data["runs"]] == ["synthetic", "sift", "vit"]
    truths = [entry["truth"] for entry in synthetic["sets"] + sift["sets"]]
    assert truths == ["exact", "epipolar", "epipolar"]
    check(synthetic["sets"][0]["reliability"], *judged(TrueEdgesGraphs(3)))
    check(synthetic["sets"][0]["epipolar"], *judged(SmallGraphs(3)))
    check(sift["sets"][0]["reliability"], *judged(SmallGraphs(4)))
    check(sift["sets"][1]["reliability"], *judged(SmallGraphs(2)))
    assert "epipolar" not in vit["sets"][0]
    assert synthetic["pooled"] == synthetic["sets"][0]["reliability"]


def test_sets_that_were_fitted_on_stand_apart(tmp_path, fake):
    sets = PoseSets(three_sources(), tmp_path)
    data = as_json(calibration.run(sets, seeds=2, bins=5, tuned_on=["c", "c"]))
    assert data["settings"]["tuned_on"] == ["c"]
    fitted, others = data["runs"][0]["splits"]
    assert (fitted["label"], fitted["pairs"]) == ("tuned on", 2)
    assert (others["label"], others["pairs"]) == ("others", 4)
    check(fitted["reliability"], *judged(SmallGraphs(2)))
    check(others["reliability"], *judged(SmallGraphs(4)))
    assert [split["label"] for split in data["runs"][1]["splits"]] == ["others"]
    assert [split["pairs"] for split in data["all"][0]["splits"]] == [2, 6]
    before = len(fake)
    with pytest.raises(ValueError, match="tuned_on must be one of b, c, got 'd'"):
        calibration.run(sets, tuned_on=["d"])
    assert len(fake) == before


def test_matches_are_judged_by_pose_error_and_threshold(data):
    parts = {part["label"]: part["reliability"] for part in data["runs"][2]["parts"]}
    assert list(parts) == [
        "pose error below 5°",
        "pose error of 5° or more",
        "epipolar truth at 1 px",
        "epipolar truth at 2 px",
        "epipolar truth at 5 px",
    ]
    for pixels in (1, 2, 5):
        check(parts[f"epipolar truth at {pixels} px"], *judged(SmallGraphs(2), pixels))
    # The fake estimator's poses are all far off.
    assert parts["pose error below 5°"] is None
    assert parts["pose error of 5° or more"] == data["runs"][2]["pooled"]
    assert [part["label"] for part in data["runs"][0]["parts"]] == list(parts)[:2]


def test_coarse_poses_are_named(tmp_path, monkeypatch):
    class Coarse(SmallGraphs):
        def __getitem__(self, index):
            posed = super().__getitem__(index)
            # Points of image 1 are off, as with a pose that is, by several pixels.
            graph = posed.graph
            points1 = np.add(graph.points1, [0.0, 8.0])
            seen = graph.edges, graph.similarity, graph.rank
            moved = AssociationGraph(graph.points0, points1, *seen)
            return dataclasses.replace(posed, graph=moved)

    fine, coarse = SmallGraphs(2), Coarse(2, name="c", title="C")

    def estimate(graph, camera0, camera1, _method, options, **_):
        index = options.seed - 1
        matches = graph.edges[make_scene(EASY, index).is_true]
        probability = np.full(len(matches), 0.9)
        return fake_estimate(fine[index].pose, matches, probability, (camera0, camera1))

    monkeypatch.setattr(estimators, "estimate_relative_pose", estimate)
    data = as_json(calibration.run(PoseSets([fine, coarse], tmp_path)))
    (run,) = data["runs"]
    assert [entry["coarse"] for entry in run["sets"]] == [False, True]
    for entry, source in zip(run["sets"], (fine, coarse), strict=True):
        distances = [
            epipolar_distance(source[i], source[i].graph.edges[make_scene(EASY, i).is_true])
            for i in range(2)
        ]
        assert entry["median_px"] == pytest.approx(np.median(np.concatenate(distances)), abs=1e-4)
    parts = {part["label"]: part["reliability"] for part in run["parts"]}
    assert parts["sets without coarse poses"] == run["sets"][0]["reliability"]
    assert texts(calibration.tables(data)[0])[1][4] == f"{run['sets'][1]['median_px']:.2f}"

    class Known(Coarse):
        def __getitem__(self, index):
            true = make_scene(EASY, index).is_true
            return dataclasses.replace(super().__getitem__(index), true_edges=true)

    # Exact truth does not depend on the pose.
    known = calibration.run(PoseSets([Known(2, name="d")], tmp_path))["runs"][0]["sets"][0]
    assert known["median_px"] == run["sets"][1]["median_px"]
    assert not known["coarse"]
    # With all sets alike there is nothing to leave out.
    alone = calibration.run(PoseSets([coarse], tmp_path))["runs"][0]
    assert all(part["label"] != "sets without coarse poses" for part in alone["parts"])


def test_another_truth_needs_no_new_run(tmp_path, fake):
    sources = [SmallGraphs(2, name="c", title="C", representation="sift")]
    calibration.run(PoseSets(sources, tmp_path), seeds=2)
    before = len(fake)
    assert before == 4
    again = calibration.run(PoseSets(sources, tmp_path), seeds=2, truth_px=1.0, bins=5)
    assert len(fake) == before
    check(again["runs"][0]["pooled"], *judged(SmallGraphs(2), 1.0))
    labels = [part["label"] for part in again["runs"][0]["parts"]]
    assert "epipolar truth at 3 px" in labels
    assert "epipolar truth at 1 px" not in labels
    with pytest.raises(ValueError, match="truth_px must be a finite number above 0"):
        calibration.run(PoseSets(sources, tmp_path), truth_px=0.0)
