"""``manymatch batch``: folders, lists, exit codes."""

import json

import pytest

from manymatch.datasets import exhaustive_pairs
from manymatch.runs.batch import run_batch
from tests.support.command import one_sentence, run
from tests.support.small_batch import CONFIG, FLAGS, K, rows
from tests.support.synthetic_images import make_images

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
    assert "5/5 pairs" in result.stderr
    run_batch(CONFIG, exhaustive_pairs(images), tmp_path / "library", limit=5)
    assert rows(tmp_path) == rows(tmp_path / "library")
    again = run("batch", images, "--out", tmp_path, *FLAGS, "--limit", 6, "--json")
    record = json.loads(again.stdout)
    assert (record["finished"], record["computed"], record["interrupted"]) == (6, 1, False)
    assert json.loads((tmp_path / "summary.json").read_text())["config"]["features"]["longest"]


def test_with_a_list(images, tmp_path):
    T = "1 0 0 -1 0 1 0 -0.5 0 0 1 0 0 0 0 1"
    (tmp_path / "list.txt").write_text(f"view000.png view002.png 0 0 {K} {K} {T}\n")
    arguments = (tmp_path / "list.txt", "--images", images, "--out", tmp_path / "out", *FLAGS)
    result = run("batch", *arguments, "--with-rank-one", "--workers", 1)
    assert result.exit_code == 0, result.output
    assert "pose AUC" in result.stdout
    assert "rank-one" in result.stdout


def test_without_a_single_pose(tmp_path):
    (tmp_path / "list.txt").write_text("a.png b.png\n")
    result = run("batch", tmp_path / "list.txt", "--out", tmp_path / "out", *FLAGS)
    assert result.exit_code == 1
    assert "1 error" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.txt"], "there is no such file"),
        (["views", "--images", "views"], "--images must be left out"),
        (["views", "--out", "file", "--json"], "out must be a folder"),
        (["views", "--out", "file/deep", "--json"], "'file' is a file"),
        (["views", "--out", "/proc/manymatch", "--json"], "out must be a folder that can be"),
        (["views", "--cameras", "800,800", "--json"], "cameras must be four numbers"),
        (["views", "--cameras", "views", "--json"], "cameras must be a COLMAP model"),
        (["views", "--cameras", "none.json", "--json"], "cameras must be a text file"),
        (["views", "--format", "png", "--json"], "formats must be among npz, h5, colmap"),
    ],
)
def test_with_bad_input(images, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "views").symlink_to(images)
    (tmp_path / "file").write_text("")
    assert says in one_sentence(run("batch", *arguments, "--preset", "classic"))
    assert not (tmp_path / "out").exists()


def test_formats(images, tmp_path):
    result = run(
        "batch", images, "--out", tmp_path, *FLAGS, "--limit", 2, "--format", "npz, colmap"
    )
    assert result.exit_code == 0, result.output
    assert len(list((tmp_path / "matches").iterdir())) == 2
    assert "colmap/matches.txt" in result.stdout.replace("\n", "")
