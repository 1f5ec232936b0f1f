"""``manymatch batch``: folders, lists, exit codes."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manymatch.batch.batch import BatchSummary, run_batch
from manymatch.batch.outputs import count_reasons
from manymatch.batch.parts import RunProgress
from manymatch.batch.work import VERDICTS
from manymatch.cli import batch, console
from manymatch_lab.datasets import exhaustive_pairs
from tests.support.command import one_sentence, run
from tests.support.small_batch import CONFIG, FLAGS, K, rows
from tests.support.synthetic_images import make_images
from tests.support.wording import assert_reads_well, assert_sentence

pytest.importorskip("cv2")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views")
    make_images(folder, 4)
    return folder


def test_over_a_folder(images, tmp_path):
    result = run("batch", images, "--out", tmp_path, *FLAGS, "--limit", 5)
    assert result.exit_code == 0, result.output
    assert "5 of 5 pairs" in result.stdout
    assert "5 of 5 pairs: " in result.stderr
    run_batch(exhaustive_pairs(images), None, tmp_path / "library", CONFIG, limit=5)
    assert rows(tmp_path) == rows(tmp_path / "library")
    again = run("batch", images, "--out", tmp_path, *FLAGS, "--limit", 6, "--json")
    record = json.loads(again.stdout)
    assert (record["finished"], record["computed"], record["interrupted"]) == (6, 1, False)
    assert json.loads((tmp_path / "summary.json").read_text())["config"]["sources"]["classic"][
        "longest"
    ]


def test_shards(images, tmp_path):
    formats = ["--format", "npz", "--format", "colmap, parquet"]
    command = ("batch", images, "--out", tmp_path, *FLAGS, *formats)
    for shard in ("2/2", "1/2"):
        assert not (tmp_path / "colmap").exists()
        result = run(*command, "--shard", shard)
        assert result.exit_code == 0, result.output
        assert "3 of 3 pairs" in result.stdout
    result = run(*command, "--block", 1)
    assert result.exit_code == 0, result.output
    assert "6 of 6 pairs" in result.stdout
    assert "colmap/matches.txt" in result.stdout.replace("\n", "")
    assert (tmp_path / "colmap" / "matches.txt").exists()
    assert len(list((tmp_path / "matches").iterdir())) == 6
    refused = one_sentence(run(*command, "--block", 2, "--json"))
    assert "the folder holds results of other settings (block was 1 and is 2 now)" in refused


def test_with_a_list(images, tmp_path):
    T = "1 0 0 -1 0 1 0 -0.5 0 0 1 0 0 0 0 1"
    (tmp_path / "list.txt").write_text(f"view000.png view002.png 0 0 {K} {K} {T}\n")
    arguments = (tmp_path / "list.txt", "--images", images, "--out", tmp_path / "out", *FLAGS)
    result = run("batch", *arguments, "--workers", 1)
    assert result.exit_code == 0, result.output
    assert "1 of 1 pair in" in result.stdout


def test_pairs_that_could_not_be_run_are_counted_with_their_reasons(images, tmp_path):
    (tmp_path / "damaged.png").write_text("no image")
    for name in ("view000.png", "view001.png"):
        (tmp_path / name).symlink_to(images / name)
    names = ["view000.png view001.png", "a.png view000.png", "view000.png b.png", "c.png d.png"]
    (tmp_path / "list.txt").write_text("\n".join([*names, "damaged.png view000.png"]))
    arguments = ("batch", tmp_path / "list.txt", "--out", tmp_path / "out", *FLAGS)
    for _ in range(2):
        # Some pairs have a pose, yet a script has to know.
        result = run(*arguments)
        assert result.exit_code == 1, result.output
        last = result.stdout.splitlines()[-1]
        begin = "5 of 7 images could not be read, so 4 of 5 pairs could not be run; 3 pairs: "
        assert last.startswith(begin)
        assert "(there is no such file) (and others alike); 1 pair: " in last
        assert "in no format that Pillow reads" in last
        assert_sentence(last)
    record = json.loads(run(*arguments, "--json").stdout)
    assert [reason["count"] for reason in record["reasons"]] == [3, 1]
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["reasons"]
    assert run(*arguments, "--limit", 1, "--out", tmp_path / "first").exit_code == 0
    (tmp_path / "list.txt").write_text("a.png b.png\n")
    alone = run(*arguments[:2], "--out", tmp_path / "alone", *FLAGS)
    assert alone.exit_code == 1
    assert re.search(r"1 of 1 pair in .*1 error\.", alone.stdout)


@given(
    st.tuples(*[st.integers(0, 3)] * len(VERDICTS)),
    st.integers(0, 4),
    st.one_of(st.floats(0, 200_000), st.sampled_from([0.0, 0.99, 59.6, 3599.7])),
)
def test_every_summary_reads_well(numbers, left, seconds):
    counts = dict(zip(VERDICTS, numbers, strict=True))
    error = counts["error"]
    finished = sum(counts.values())
    summary = BatchSummary(
        folder=Path("out"),
        total=finished + left,
        finished=finished,
        computed=finished // 2,
        with_pose=counts["solved"],
        counts=counts,
        seconds=seconds,
        files=(),
        reasons=tuple(count_reasons([f"no file '{i}'" for i in range(error)])),
        images=finished + 1,
        unreadable=error // 2,
    )
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        batch.print_summary(summary, as_json=False)
    for line in printed.getvalue().splitlines():
        assert_sentence(line)
    for remaining in (None, seconds):
        progress = RunProgress(finished, finished + left, counts, remaining)
        assert_reads_well(console.progress_text(progress))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.txt"], "there is no such file"),
        (["views", "--images", "views"], "--images must be left out"),
        (["views", "--out", "file", "--json"], "out must be a folder"),
        (["views", "--out", "file/deep", "--json"], "'file' is a file"),
        (["views", "--out", "/proc/manymatch", "--json"], "out must be a folder that can be"),
        (["views", "--cameras", "800,800", "--json"], "cameras must be a focal length"),
        (["views", "--cameras", "views", "--json"], "cameras must be a COLMAP model"),
        (["views", "--cameras", "none.json", "--json"], "cameras must be a JSON file"),
        (["views", "--format", "png", "--json"], "formats must be among parquet, npz, h5, colmap"),
    ],
)
def test_with_bad_input(images, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "views").symlink_to(images)
    (tmp_path / "file").write_text("")
    assert says in one_sentence(run("batch", *arguments, "--preset", "classic"))
    assert not (tmp_path / "out").exists()


def test_cameras_that_are_shared(images, tmp_path):
    arguments = ("batch", images, "--out", tmp_path, *FLAGS, "--limit", 2, "--cameras", "unknown")
    result = run(*arguments, "--camera-per", "all")
    assert result.exit_code == 0, result.output
    assert {row["camera0_source"] for row in rows(tmp_path)} == {"found"}
    assert {row["camera0_group"] for row in rows(tmp_path)} == {"120x90, 102.0 px, 0.5"}
    refused = run(*arguments, "--camera-per", "each")
    assert "--camera-per must be one of 'pair', 'image', 'folder', 'all'" in one_sentence(refused)
