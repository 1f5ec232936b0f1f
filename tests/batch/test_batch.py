"""Batches: rows, failures, resuming, refusing, order."""

import dataclasses
import errno
import json
import os
import shutil
import sys

import pytest

from manymatch import read_matches
from manymatch.batch.batch import run_batch
from manymatch.batch.work import COLUMNS, VERDICTS
from manymatch.geometry.camera import Camera
from manymatch.io import read_matches_npz
from manymatch.io.pairs import Pair, read_pairs
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.matcher import Matcher
from tests.support.small_batch import CONFIG, FOCAL, K, assert_same, rows
from tests.support.synthetic_alternatives import with_alternatives
from tests.support.synthetic_images import make_images

parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("cv2")


def test_every_pair_is_a_row(done, pairs):
    folder, summary = done
    table = rows(folder)
    assert [(row["name0"], row["name1"]) for row in table] == [(p.name0, p.name1) for p in pairs]
    assert [row["index"] for row in table] == [str(i) for i in range(len(pairs))]
    assert list(table[0]) == list(COLUMNS)
    assert summary.finished == summary.total == summary.computed == len(pairs)
    assert sum(summary.counts.values()) == len(pairs)
    assert summary.with_pose == sum(row["success"] == "true" for row in table) > 0
    assert {row["camera0_source"] for row in table} == {"found"}
    assert summary.notes[0].startswith("In 21 of 21 pairs a focal length was unknown and is found")


def test_rows_are_what_the_matcher_says(done, pairs):
    row = rows(done[0])[3]
    result = Matcher(CONFIG).match(pairs[3].path0, pairs[3].path1)
    estimate, confidence = result.estimate, result.confidence
    assert row["verdict"] in VERDICTS
    assert (row["verdict"], row["reason"]) == (confidence.verdict, confidence.reason)
    expected = {
        "candidates": result.graph.num_edges,
        "inliers": estimate.num_inliers,
        "matches": len(estimate.matches),
        "hcm": estimate.hcm,
        "mean_probability": estimate.match_probability.mean(),
        "pose_probability": confidence.pose_probability,
        "alternatives": len(estimate.alternatives),
        "threshold_px": estimate.threshold_px,
        **{f"R{i}{j}": estimate.pose.R[i, j] for i in range(3) for j in range(3)},
        **{f"t{i}": estimate.pose.t[i] for i in range(3)},
    }
    assert {name: float(row[name]) for name in expected} == expected


def test_rows_have_the_probabilities_of_the_poses(pairs, monkeypatch, tmp_path):
    """How many poses there are beside the chosen one, and how probable the second is."""
    plain = Matcher.match_features

    def several(self, *arguments, **settings):
        result = plain(self, *arguments, **settings)
        number = int(result.estimate.success) * 2
        estimate = with_alternatives(result.estimate, (0.3, 0.125)[:number])
        estimate = dataclasses.replace(estimate, noise_px=0.25)
        return dataclasses.replace(result, estimate=estimate)

    monkeypatch.setattr(Matcher, "match_features", several)
    run_batch(pairs, None, tmp_path, CONFIG, limit=1, workers=1, formats=["npz"])
    [row] = rows(tmp_path)
    assert (row["alternatives"], row["second_probability"]) == ("2", "0.3")
    assert row["noise_px"] == "0.25"
    stored = read_matches_npz(next((tmp_path / "matches").iterdir()))
    assert [other.probability for other in stored.alternatives] == [0.3, 0.125]


def test_parquet_table_equals_csv_table(done):
    folder, summary = done
    table = parquet.read_table(folder / "pairs.parquet")
    assert table.column_names == list(COLUMNS)
    for row, other in zip(table.to_pylist(), rows(folder), strict=True):
        for name, kind in COLUMNS.items():
            text = other[name]
            if text == "":
                assert row[name] is None
            elif kind == "bool":
                assert row[name] is (text == "true")
            else:
                assert row[name] == type(row[name])(text)
    header = json.loads(table.schema.metadata[b"manymatch"])
    assert header["config"]["sources"]["classic"]["max_keypoints"] == 150
    assert header["versions"]["manymatch"]
    assert summary.files == (folder / "pairs.csv", folder / "pairs.parquet")


def test_number_of_workers_does_not_change_the_bytes(done, pairs, tmp_path):
    run_batch(pairs, None, tmp_path, CONFIG, workers=3, formats=["npz"])
    assert_same(tmp_path, done[0])


def test_limits_one_after_another_give_the_same_table(done, pairs, tmp_path):
    seen = []
    for limit in (1, 4, 11, None, None):
        summary = run_batch(
            pairs, None, tmp_path, CONFIG, workers=2, limit=limit, progress=seen.append
        )
        assert summary.finished == summary.total == (limit or len(pairs))
    assert summary.computed == 0
    assert rows(tmp_path) == rows(done[0])
    assert json.loads((tmp_path / "run.json").read_text())["ends"] == [1, 4, 11, len(pairs)]
    assert [p.finished for p in seen if p.seconds_left is None] == [0, 1, 4, 11, len(pairs)]
    assert all(p.seconds_left >= 0 for p in seen if p.seconds_left is not None)
    # A limit within what is done needs no more work.
    assert run_batch(pairs, None, tmp_path, CONFIG, limit=7).finished == 7


def test_pair_that_cannot_be_tried_is_a_row(tmp_path):
    folder = tmp_path / "views"
    make_images(folder, 2)
    (folder / "text.png").write_text("no image")
    (folder / "empty.png").write_bytes(b"")
    import PIL.Image

    PIL.Image.new("L", (1, 1)).save(folder / "dot.png")
    (tmp_path / "list.txt").write_text(
        "view000.png missing.png\ntext.png view000.png\nview000.png empty.png\n"
        "view000.png dot.png\ndot.png dot.png\nview000.png view001.png\n"
        f"view000.png view001.png 0 0 {K.replace('59.5', '4000')} {K} "
        "1 0 0 1 0 1 0 0 0 0 1 0 0 0 0 1\n"
    )
    pairs = read_pairs(tmp_path / "list.txt", folder)
    summary = run_batch(pairs, None, tmp_path / "out", CONFIG, workers=2)
    table = rows(tmp_path / "out")
    assert [row["verdict"] == "error" for row in table] == [1, 1, 1, 0, 0, 0, 1]
    assert summary.counts["error"] == 4
    for row, words in zip(
        table, ["no such file", "no format", "empty", None, None, None, "camera0"], strict=True
    ):
        if words is None:
            assert row["error"] == ""
        else:
            assert words in row["error"]
            assert row["success"] == "false"
    for row in table[3:5]:
        assert (row["verdict"], row["success"]) == ("failed", "false")
        assert row["failure"]


@pytest.mark.parametrize("letter", ["ä", "語", "𝕏", "a"])
def test_long_names_do_not_end_a_batch(pairs, tmp_path, letter):
    """Systems limit names of files in bytes, and a letter may have four bytes."""
    long = letter * 136
    missing = tmp_path / (letter * 300)
    batch = [
        dataclasses.replace(pairs[0], name0=long, name1=long),
        dataclasses.replace(pairs[1], name1=missing.name, path1=missing),
        pairs[2],
    ]
    summary = run_batch(batch, None, tmp_path / "out", CONFIG, workers=1, formats=["npz"])
    assert summary.finished == 3
    assert summary.counts["error"] == 1
    assert "File name too long" in rows(tmp_path / "out")[1]["error"]
    assert len(list((tmp_path / "out" / "matches").iterdir())) == 2


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        (OSError(errno.EMFILE, "Too many open files"), 1),
        (MemoryError(), 1000),
        (RuntimeError("can't allocate lock"), 1000),
        (ImportError("libhdf5.so: failed to map segment from shared object"), 1),
    ],
)
def test_fault_of_the_machine_is_no_row(pairs, done, tmp_path, monkeypatch, fault, times):
    """Its block is done again when all others are done; the next call repairs what is left."""
    from manymatch.io.files import open_regular

    left = [times]

    def opened(path, **how):
        if left[0] and path == pairs[0].path0:
            left[0] -= 1
            raise fault
        return open_regular(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr("manymatch.io.files.open_regular", opened)
        if times == 1:
            first = run_batch(pairs, None, tmp_path, CONFIG, workers=1, formats=["npz"])
            assert (first.finished, first.counts["error"]) == (len(pairs), 0)
        else:
            with pytest.raises(ValueError, match=r"view000\.png"):
                run_batch(pairs, None, tmp_path, CONFIG, workers=1, formats=["npz"])
            # The tables have the others.
            assert len(rows(tmp_path)) == len(pairs) - 6
    run_batch(pairs, None, tmp_path, CONFIG, workers=1, formats=["npz"])
    assert_same(tmp_path, done[0])


@pytest.mark.parametrize(
    "name",
    ["run.json", "pairs.csv", "pairs.parquet", "summary.json", "parts", "matches",
     "parts/000000.parquet", "features.h5", "matches.h5", "database.db",
     "index.html", "pictures", "parts-0123456789ab"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["file", "folder", "nothing"])
def test_links_in_the_folder_are_refused(pairs, tmp_path, name, kind):
    victim, link = tmp_path / "victim", tmp_path / "out" / name
    if kind == "file":
        victim.write_bytes(b"precious")
    elif kind == "folder":
        victim.mkdir()
    link.parent.mkdir(parents=True)
    link.symlink_to(victim)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=f"folder of a run must have no links, got '.*/{name}'"):
        run_batch(pairs, None, tmp_path / "out", CONFIG, limit=1, formats=["npz"])
    with pytest.raises(ValueError, match="folder of a run must have no links"):
        read_matches(tmp_path / "out")
    assert sorted(tmp_path.rglob("*")) == before
    assert kind != "file" or victim.read_bytes() == b"precious"


def test_link_to_the_folder_itself_is_followed(pairs, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    assert run_batch(pairs, None, tmp_path / "out", CONFIG, limit=1).finished == 1
    assert (tmp_path / "disk" / "pairs.csv").exists()


def test_missing_parts_of_a_finished_batch_are_told(done, pairs, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(done[0], copy)
    for block in (3, 8):
        (copy / "parts" / f"{block:06d}.parquet").unlink()
    with pytest.raises(ValueError, match=r"\(its parts have 19 of 21 finished pairs;"):
        read_matches(copy)
    summary = run_batch(pairs, None, copy, CONFIG, formats=["npz"])
    assert summary.computed == 2
    assert_same(copy, done[0])


def test_spreadsheets_do_not_run_names_as_formulas(pairs, tmp_path):
    names = ["=1+1", "+1", "-1", "@a", "\ta", "'quoted", "plain=1"]
    batch = [dataclasses.replace(pair, name0=name) for pair, name in zip(pairs, names)]  # noqa: B905
    run_batch(batch, None, tmp_path, CONFIG, workers=1)
    cells = [row["name0"] for row in rows(tmp_path)]
    assert cells == [*(f"'{name}" for name in names[:-1]), names[-1]]
    table = parquet.read_table(tmp_path / "pairs.parquet").to_pylist()
    assert [row["name0"] for row in table] == names
    # Numbers are no texts, however they begin.
    assert any(row["t0"].startswith("-") for row in rows(tmp_path))


def test_read_only_cache_does_not_end_a_batch(pairs, done, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("manymatch.features.feature_cache.write_whole", fail)
    with pytest.warns(UserWarning, match="Read-only file system") as warned:
        run_batch(pairs, None, tmp_path / "out", CONFIG, workers=1, cache=tmp_path / "cache")
    assert len([w for w in warned if "cannot be written to" in str(w.message)]) == 1
    assert rows(tmp_path / "out") == rows(done[0])


def test_retry_errors_does_failed_pairs_again(tmp_path):
    folder = tmp_path / "views"
    names = make_images(folder, 3)
    (tmp_path / "list.txt").write_text(f"{names[0]} {names[1]}\n{names[0]} {names[2]}\n")
    pairs = read_pairs(tmp_path / "list.txt", folder)
    content = pairs[0].path1.read_bytes()
    pairs[0].path1.unlink()
    out = tmp_path / "out"
    assert run_batch(pairs, None, out, CONFIG).counts["error"] == 1
    pairs[0].path1.write_bytes(content)
    assert run_batch(pairs, None, out, CONFIG).computed == 0
    summary = run_batch(pairs, None, out, CONFIG, retry_errors=True)
    assert (summary.computed, summary.counts["error"]) == (1, 0)
    run_batch(pairs, None, tmp_path / "fresh", CONFIG)
    assert rows(out) == rows(tmp_path / "fresh")


def test_cameras_of_the_list_are_used(images, tmp_path):
    T = "1 0 0 -1 0 1 0 -0.5 0 0 1 0 0 0 0 1"
    (tmp_path / "list.txt").write_text(
        f"view000.png view002.png 0 0 {K} {K} {T}\nview001.png view002.png\n"
        f"view001.png view003.png 0 0 {K} {K} {T}\n"
    )
    pairs = read_pairs(tmp_path / "list.txt", images)
    run_batch(pairs, None, tmp_path / "out", CONFIG)
    table = rows(tmp_path / "out")
    assert [row["camera0_source"] for row in table] == ["given", "found", "given"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"k": 3}, r"config\.sources\.classic\.k was 5 and is 3 now"),
        ({"seed": 1}, r"config\.estimation\.seed was 0 and is 1"),
        ({"method": "cm"}, r'method was "auto" and is "cm" now'),
        ({"disable": ["ranks"]}, r'disable was \[\] and is \["ra'),
        ({"threshold_px": 2.5}, r"threshold_px was "),
        ({"pairs": slice(0, 5)}, "pair_count was 21 and is 5 now"),
        ({"pairs": slice(None, None, -1)}, "the folder holds results for a different pair list"),
        ({"formats": []}, "matches was true and is false now"),
        ({"cameras": "130,130,59.5,44.5"}, "cameras was null"),
    ],
)
def test_folder_of_another_batch_is_refused(done, pairs, change, says):
    before = (done[0] / "run.json").read_bytes()
    named = {"pairs", "formats", "cameras"}
    how = {"formats": ["npz"], **{name: change[name] for name in named & change.keys()}}
    chosen = pairs[how.pop("pairs", slice(None))]
    config = MatcherConfig.of(CONFIG, **{n: change[n] for n in change.keys() - named})
    with pytest.raises(ValueError, match=says):
        run_batch(chosen, None, done[0], config, **how)
    assert (done[0] / "run.json").read_bytes() == before


def test_an_automatic_threshold_is_part_of_the_header(pairs, tmp_path):
    config = MatcherConfig.of(CONFIG, threshold_px="auto")
    summary = run_batch(pairs, None, tmp_path, config, limit=2)
    assert summary.with_pose
    assert run_batch(pairs, None, tmp_path, config, limit=2).computed == 0
    record = json.loads((tmp_path / "summary.json").read_text())
    assert record["config"]["estimation"]["threshold_px"] == "auto"
    # What was used is a number, and that of the pair.
    assert all(0.01 < float(row["threshold_px"]) < 100 for row in rows(tmp_path))
    fixed = MatcherConfig.of(CONFIG, threshold_px=2.0)
    with pytest.raises(ValueError, match=r'threshold_px was "auto" and is 2\.0 now'):
        run_batch(pairs, None, tmp_path, fixed, limit=2)


def test_same_names_in_another_folder_are_refused(done, pairs, tmp_path):
    moved = [Pair(p.name0, p.name1, tmp_path / p.name0, tmp_path / p.name1) for p in pairs]
    with pytest.raises(ValueError, match="results for a different image folder"):
        run_batch(moved, None, done[0], CONFIG, formats=["npz"])


@pytest.mark.parametrize(
    "config",
    [
        dataclasses.replace(MatcherConfig.of(CONFIG, threads=2), preset="mine"),
        MatcherConfig.of(CONFIG, method="auto", gms=False, keep=None),
    ],
    ids=["threads and label", "defaults of the method"],
)
def test_settings_that_change_no_row_continue_the_batch(done, pairs, config):
    assert run_batch(pairs, None, done[0], config, formats=["npz"]).computed == 0


def test_cameras_for_all(pairs, tmp_path):
    run_batch(pairs, None, tmp_path, CONFIG, limit=2, cameras="130,130,59.5,44.5")
    for row in rows(tmp_path):
        assert (row["camera0_source"], row["focal1_px"]) == ("given", "130.0")


def test_camera_that_does_not_fit_is_an_error_row(pairs, tmp_path):
    camera = Camera("PINHOLE", 640, 480, [500, 500, 320, 240])
    own = Camera.from_matrix([[FOCAL, 0, 59.5], [0, FOCAL, 44.5], [0, 0, 1]])
    with_own = Pair("a", "b", pairs[0].path0, pairs[0].path1, own, own)
    run_batch([*pairs[:1], with_own], None, tmp_path, CONFIG, cameras=camera)
    table = rows(tmp_path)
    assert "640" in table[0]["error"]
    assert table[1]["error"] == ""


def test_pyarrow_is_needed(pairs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match=r"a batch needs pyarrow: .*manymatch\[images\]"):
        run_batch(pairs, None, tmp_path, CONFIG, limit=1)


@pytest.mark.parametrize(
    "change",
    [
        {"pairs": []},
        {"pairs": ["a"]},
        {"workers": -1},
        {"limit": 0},
        {"memory_mb": -1},
        {"formats": ["hdf5"]},
    ],
)
def test_bad_arguments(pairs, tmp_path, change):
    chosen = change.pop("pairs", pairs)
    with pytest.raises(ValueError, match=r"^(pairs|workers|limit|memory_mb|formats) must be"):
        run_batch(chosen, None, tmp_path / "out", CONFIG, **change)
    assert not (tmp_path / "out").exists()
