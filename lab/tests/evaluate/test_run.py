"""Runs over a set: seeds, resuming, refusing, the same answer for any number of workers."""

import json
import os
import signal
from dataclasses import replace

import numpy as np
import pytest

from manymatch import Camera, Options, estimate_relative_pose, pose_error_deg, score_pose
from manymatch.associate.candidates import Association
from manymatch.batch.parts import RunInterrupted
from manymatch_lab.evaluate.run import COLUMNS, RunConfig, RunResult, run_set, run_sets
from tests.support.synthetic_runs import SmallGraphs

QUICK = Options(min_iterations=50, max_iterations=50)
ALL = Association.uncapped(5)
CONFIG = RunConfig("hcm-mcm", ALL, QUICK, seeds=2)


def without_seconds(result):
    return [
        {**r, "trials": [{k: v for k, v in t.items() if k != "seconds"} for t in r["trials"]]}
        for r in result.records
    ]


def test_errors_are_those_of_the_estimator_with_the_pairs_seeds(tmp_path):
    source = SmallGraphs(3)
    result = run_set(source, {"a": CONFIG}, tmp_path)["a"]
    assert result.errors.shape == (2, 3)
    for index in range(3):
        posed = source[index]
        for repetition in range(2):
            options = QUICK.replace(seed=index + 1 + repetition)
            estimate = estimate_relative_pose(
                posed.graph, posed.camera0, posed.camera1, "hcm-mcm", options
            )
            expected = pose_error_deg(estimate.pose, posed.R, posed.t)
            assert result.errors[repetition, index] == expected
            assert result.column("seed")[repetition, index] == index + 1 + repetition
            assert result.column("cardinality")[repetition, index] == estimate.cardinality


def test_the_threshold_counts_pixels_at_working_size(tmp_path):
    class Enlarged(SmallGraphs):
        def __getitem__(self, index):
            posed = super().__getitem__(index)
            return replace(posed, working0=halved(posed.size0), working1=halved(posed.size1))

    def halved(size):
        return (size[0] // 2, size[1] // 2)

    wide = replace(CONFIG, options=QUICK.replace(threshold_px=2.0))
    expected = run_set(SmallGraphs(2), {"a": wide}, tmp_path / "wide")["a"]
    found = run_set(Enlarged(2), {"a": CONFIG}, tmp_path / "enlarged")["a"]
    np.testing.assert_array_equal(found.errors, expected.errors)
    narrow = run_set(SmallGraphs(2), {"a": CONFIG}, tmp_path / "narrow")["a"]
    assert (narrow.column("num_inliers") < expected.column("num_inliers")).any()


def test_same_rows_for_any_number_of_workers(tmp_path):
    one = run_set(SmallGraphs(5), {"a": CONFIG}, tmp_path / "1", workers=1)["a"]
    three = run_set(SmallGraphs(5), {"a": CONFIG}, tmp_path / "3", workers=3)["a"]
    assert without_seconds(one) == without_seconds(three)
    assert one.indices == list(range(5))


def test_run_without_limit_computes_the_remaining_pairs(tmp_path):
    source = SmallGraphs(4)
    assert len(run_set(source, {"a": CONFIG}, tmp_path, limit=2)["a"]) == 2
    source.asked.clear()
    whole = run_set(source, {"a": CONFIG}, tmp_path)["a"]
    assert sorted(source.asked) == [2, 3]
    expected = run_set(SmallGraphs(4), {"a": CONFIG}, tmp_path / "new")["a"]
    assert without_seconds(whole) == without_seconds(expected)
    # A finished run computes nothing.
    source.asked.clear()
    assert run_set(source, {"a": CONFIG}, tmp_path)["a"].records == whole.records
    assert source.asked == []


def test_a_damaged_part_is_named_and_computed_again_without_it(tmp_path):
    whole = run_set(SmallGraphs(6), {"a": CONFIG}, tmp_path)["a"]
    path = tmp_path / "a" / "parts" / "000001.parquet"
    path.write_bytes(path.read_bytes()[:-25])
    source = SmallGraphs(6)
    with pytest.raises(ValueError, match=r"parts/000001\.parquet"):
        run_set(source, {"a": CONFIG}, tmp_path)
    path.unlink()
    again = run_set(source, {"a": CONFIG}, tmp_path)["a"]
    assert sorted(source.asked) == [4, 5]
    assert without_seconds(again) == without_seconds(whole)


@pytest.mark.parametrize(
    ("source", "config", "part"),
    [
        (SmallGraphs(2), replace(CONFIG, seeds=3), "config.seeds was 2 and is 3 now"),
        (
            SmallGraphs(2),
            replace(CONFIG, options=Options(max_iterations=60, min_iterations=50)),
            "max_iterations",
        ),
        (SmallGraphs(2), replace(CONFIG, association=Association.paper()), "config.association"),
        (SmallGraphs(2, label="b"), CONFIG, "source.label"),
    ],
)
def test_results_of_another_configuration_are_not_mixed(tmp_path, source, config, part):
    run_set(SmallGraphs(2), {"a": CONFIG}, tmp_path)
    with pytest.raises(ValueError, match=part):
        run_set(source, {"a": config}, tmp_path)


def test_reasons_are_counted_and_the_pairs_keep_their_names(tmp_path):
    source = SmallGraphs(4, broken=frozenset({1, 3}), bins=("near", "near", "far", "far"))
    result = run_set(source, {"a": CONFIG}, tmp_path)["a"]
    (reason,) = result.not_run
    assert reason.count == 2
    assert result.fault_sentences() == [
        "Small: 2 of 4 pairs could not be run: image 1 must be an image, got no file "
        "(and others alike)."
    ]
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert [r["count"] for r in summary["reasons_not_run"]] == [2]
    assert result.names[1] == ("1a", "1b")
    # A pair that could not be run counts in its bin.
    assert {name: one["pairs"] for name, one in summary["bins"].items()} == {"near": 2, "far": 2}


def test_pairs_that_could_not_be_run_are_tried_again_when_asked(tmp_path):
    run_set(SmallGraphs(3, broken=frozenset({1})), {"a": CONFIG}, tmp_path)
    healed = SmallGraphs(3)
    assert run_set(healed, {"a": CONFIG}, tmp_path)["a"].not_run
    assert healed.asked == []
    result = run_set(healed, {"a": CONFIG}, tmp_path, retry_errors=True)["a"]
    assert healed.asked == [1]
    assert result.not_run == []
    expected = run_set(SmallGraphs(3), {"a": CONFIG}, tmp_path / "new")["a"]
    assert without_seconds(result) == without_seconds(expected)


def test_probe_says_whether_the_true_pose_would_enter_the_pool(tmp_path):
    options = Options(min_iterations=300, max_iterations=300, pool_size=20)
    config = RunConfig("hcm-mcm", ALL, options, seeds=1, probe=True, proposals_rank=1)
    source = SmallGraphs(4)
    result = run_set(source, {"a": config}, tmp_path)["a"]
    for index in range(4):
        posed = source[index]
        truth = score_pose(posed.graph, posed.camera0, posed.camera1, posed.pose, options).hcm
        row = result.records[index]["trials"][0]
        assert row["probe_hcm"] == truth
        assert row["enters"] == (not row["pool_full"] or truth > row["pool_worst"])
    assert result.column("pool_full").all()


def test_tables_are_written(tmp_path):
    run_set(SmallGraphs(2, bins=("near", "far")), {"a": CONFIG}, tmp_path)
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert summary["pairs"] == 2
    assert set(summary["bins"]) == {"near", "far"}
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(tmp_path / "a" / "pairs.parquet")
    assert table.column_names == list(COLUMNS)
    assert table.num_rows == 4
    assert json.loads(table.schema.metadata[b"manymatch"])["config"]["seeds"] == 2


def test_interruption_keeps_what_is_finished(tmp_path):
    class Stopping(SmallGraphs):
        def __getitem__(self, index):
            if len(self.asked) == 2:
                os.kill(os.getpid(), signal.SIGINT)
            return super().__getitem__(index)

    with pytest.raises(RunInterrupted) as stop:
        run_set(Stopping(8), {"a": CONFIG}, tmp_path, workers=1)
    assert 0 < stop.value.finished < 8
    source = SmallGraphs(8)
    result = run_set(source, {"a": CONFIG}, tmp_path)["a"]
    assert len(source.asked) == 8 - stop.value.finished
    assert len(result) == 8


def test_a_folder_of_another_run_is_refused_before_any_set_is_begun(tmp_path):
    run_sets([SmallGraphs(1, name="last")], {"a": CONFIG}, tmp_path)
    first = SmallGraphs(2)
    other = {"a": replace(CONFIG, seeds=1)}
    refused = r"last/a': the folder holds results .* \(config\.seeds was 2 and is 1 now"
    with pytest.raises(ValueError, match=refused):
        run_sets([first, SmallGraphs(1, name="last")], other, tmp_path)
    assert first.asked == []
    assert not (tmp_path / "synthetic" / "small").exists()


def test_every_estimator_gets_its_usual_association():
    usual = Association(5, max_edges=2048, gms=False, keep=None)
    assert (RunConfig().estimator, RunConfig().association) == ("auto", usual)
    assert Association().for_method("auto") == usual
    for estimator in ("hcm-mcm", "cm", "poselib"):
        assert RunConfig(estimator).association == Association.paper()
    assert RunConfig("auto", Association.paper()).association == Association.paper()
    # A copy keeps what it had: another estimator on the same candidates.
    assert replace(RunConfig(), estimator="cm").association == usual


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"estimator": "hcn"}, "estimator must be one of"),
        ({"seeds": 0}, "seeds must be"),
        ({"estimator": "mcm", "probe": True}, "probe must be False"),
        ({"probe": True}, "probe must be False with auto"),
        ({"estimator": "poselib", "proposals_rank": 1}, "proposals_rank must be None"),
        ({"proposals_rank": 0}, "proposals_rank must be"),
    ],
)
def test_bad_settings_are_one_sentence(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        RunConfig(**settings)


def test_a_folder_without_a_run_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="run must be a folder of manymatch eval"):
        RunResult.load(tmp_path)
    (tmp_path / "run.json").write_text("{}\n")
    with pytest.raises(ValueError, match="there is no format"):
        RunResult.load(tmp_path)


# ---------------------------------------------------------------- unknown focal lengths


HIDDEN = replace(CONFIG, estimator="auto", unknown_focal=True)


def test_hidden_cameras_are_found(tmp_path):
    source = SmallGraphs(3)
    result = run_set(source, {"a": HIDDEN}, tmp_path)["a"]
    for index in range(3):
        posed = source[index]
        hidden = Camera.unknown(*posed.size0), Camera.unknown(*posed.size1)
        graph = HIDDEN.association.apply(posed.graph, **posed.sizes)
        estimate = estimate_relative_pose(graph, *hidden, "auto", QUICK.replace(seed=index + 1))
        assert result.errors[0, index] == pose_error_deg(estimate.pose, posed.R, posed.t)
        assert result.column("focal0_px")[0, index] == estimate.camera0.focal
        error = abs(estimate.camera0.focal / posed.camera0.focal - 1.0)
        assert result.column("focal_error")[0, index] == pytest.approx(error)
    summary = result.summary()
    assert (
        summary["focal_error_quartiles"]
        == np.quantile(result.column("focal_error"), (0.25, 0.5, 0.75)).tolist()
    )
    assert 0.0 <= summary["focal_determined"] <= 1.0
    assert "unknown_focal on instead of off" in summary["differs_from_paper"]
    known = run_set(source, {"a": CONFIG}, tmp_path / "known")["a"]
    assert np.isnan(known.column("focal_error")).all()
    assert "focal_error_quartiles" not in known.summary()


def test_repetitions_share_a_focal_length_over_all_pairs(tmp_path):
    shared = replace(HIDDEN, camera_per="all")
    source = SmallGraphs(4)
    result = run_set(source, {"a": shared, "b": HIDDEN}, tmp_path / "one", workers=1)
    focal = result["a"].column("focal0_px")
    assert (focal == focal[:, :1]).all()
    assert focal[0, 0] != focal[1, 0]
    alone = result["b"].column("own_focal0_px")
    np.testing.assert_array_equal(result["a"].column("own_focal0_px"), alone)
    assert np.nanmin(alone[0]) <= focal[0, 0] <= np.nanmax(alone[0])
    # However it is run, and continued.
    run_set(SmallGraphs(4), {"a": shared}, tmp_path / "two", limit=2, workers=2)
    again = run_set(SmallGraphs(4), {"a": shared}, tmp_path / "two", workers=3)["a"]
    assert without_seconds(again) == without_seconds(result["a"])
    source.asked.clear()
    run_set(source, {"a": shared}, tmp_path / "one")
    assert source.asked == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"estimator": "opencv"}, "^unknown_focal must be False with opencv"),
        ({"estimator": "hcm-mcm", "probe": True}, "^probe must be False with unknown_focal"),
        ({"unknown_focal": False, "camera_per": "all"}, "^camera_per must be 'pair' without"),
        ({"estimator": "poselib", "camera_per": "all"}, "^camera_per must be 'pair' .* 'all'$"),
        ({"camera_per": "each"}, "^camera_per must be one of 'pair', .*, got 'each'"),
    ],
)
def test_settings_that_need_known_cameras_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(HIDDEN, **change)
