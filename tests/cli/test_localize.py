"""``manymatch localize``: files, JSON, exit codes, and one sentence for bad input."""

import json
import shutil

import pytest

from tests.support import command
from tests.support.command import one_sentence
from tests.support.scene_model import FOCAL, make_place

pytest.importorskip("cv2")

QUICK = (
    *("--preset", "classic", "--max-keypoints", "500", "--longest", "320"),
    *("--set", "max_iterations=2000", "--cameras", FOCAL),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("place"), count=6)


def run(place, *arguments):
    given = ("--map", place.model, "--images", place.photos, *QUICK)
    return command.run("localize", *arguments, *given)


def test_poses_are_printed_and_written(place, tmp_path):
    out = tmp_path / "out"
    result = run(place, place.folder / "new", "--out", out)
    assert result.exit_code == 0, result.output
    assert "2 photographs: 2 solved." in result.stdout
    assert {path.name for path in out.iterdir()} == {"localized.json", "poses.txt", "map.png"}
    names = [line.split()[0] for line in (out / "poses.txt").read_text().splitlines()]
    assert names == list(place.queries)
    assert f"{out / 'map.png'}" in result.stdout


def test_json_has_everything_and_files_of_earlier_runs_go(place, tmp_path):
    (tmp_path / "map.png").write_bytes(b"old")
    given = (place.query(0), place.query(1), "--out", tmp_path, "--no-picture", "--json")
    result = run(place, *given)
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert [one["name"] for one in record["queries"]] == list(place.queries)
    assert record["queries"][1]["confidence"]["verdict"] == "solved"
    assert record["files"].keys() == {"json", "poses"}
    assert not (tmp_path / "map.png").exists()


def test_exit_code_1_without_a_pose_or_with_an_unreadable_photograph(place, tmp_path):
    other = make_place(tmp_path / "other", count=3, seed=9)
    result = run(place, other.query(), "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "1 photograph: 1 no match." in result.stdout
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    shutil.copy(place.query(), mixed)
    (mixed / "x.jpg").write_bytes(b"")
    result = run(place, mixed, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "1 solved" in result.stdout
    assert "1 failed" in result.stdout


def test_bad_input_is_one_sentence(place, tmp_path):
    assert "--map is missing" in one_sentence(command.run("localize", place.query()))
    missing = command.run("localize", place.query(), "--map", place.model, "--preset", "classic")
    assert "images must be the folder of the model's photographs" in one_sentence(missing)
    assert "no such file" in one_sentence(run(place, tmp_path / "gone.jpg"))
    empty = tmp_path / "empty"
    empty.mkdir()
    words = one_sentence(command.run("localize", place.query(), "--map", empty))
    assert "it holds no cameras.bin or cameras.txt" in words
    assert "similar must be" in one_sentence(run(place, place.query(), "--similar", "0"))
