"""``manymatch datasets``: the list, one set, and what a folder lacks."""

import json

from tests.support.command import one_sentence, run
from tests.support.synthetic_trees import write_image


def test_a_folder_that_lacks_something_is_bad_input(tmp_path):
    folder = tmp_path / "[bold]"
    folder.mkdir()
    result = run("datasets", "folder", "--root", folder)
    assert result.exit_code == 2
    assert "[bold]" in result.stdout
    record = json.loads(run("datasets", "folder", "--root", folder, "--json").stdout)
    assert record["missing"]


def test_wrong_calls_are_one_sentence():
    assert "whose scenes manymatch eval computes" in one_sentence(run("datasets", "synthetic:easy"))
    assert "--splits must come with the name" in one_sentence(run("datasets", "--splits", "x"))
    assert "--root must be an existing folder" in one_sentence(run("datasets", "--root", "x"))
    assert "did you mean 'folder'" in one_sentence(run("datasets", "foldr"))
    result = run("datasets", "folder", "--splits", "x")
    assert "--splits must come with a NAVI data set" in one_sentence(result)


def test_ticks_for_the_parts_of_a_set(tmp_path):
    (tmp_path / "pairs.txt").write_text("a.jpg b.jpg\n")
    text = run("datasets", "folder", "--root", tmp_path).stdout
    assert "✓ a list of pairs" in text
    assert "✗ images" in text
    assert "– depth" in text
    parts = json.loads(run("datasets", "folder", "--root", tmp_path, "--json").stdout)["parts"]
    assert [part["found"] is not None for part in parts] == [True] + [False] * 4
    assert parts[0]["found"] == str(tmp_path / "pairs.txt")
    assert "found" not in json.loads(run("datasets", "folder", "--json").stdout)["parts"][0]
    assert not any(mark in run("datasets", "folder").stdout for mark in "✓✗–")


def test_list_marks_the_sets_that_a_folder_has(tmp_path):
    for name in ("pairs.txt", "a.jpg"):
        (tmp_path / name).touch()
    lines = run("datasets", "--root", tmp_path).stdout.splitlines()
    assert [line for line in lines if line.startswith("✓  folder ")]
    (tmp_path / "a.jpg").unlink()
    text = run("datasets", "--root", tmp_path).stdout
    assert "✗  folder " in text
    assert "✓" not in text
    record = json.loads(run("datasets", "--root", tmp_path, "--json").stdout)["datasets"]
    assert [e["name"] for e in record if e["parts"][0]["found"]] == ["folder"]


def test_a_folder_a_list_or_a_set_file_is_checked_by_its_name(tmp_path):
    write_image(tmp_path / "x" / "a.jpg")
    (tmp_path / "x" / "pairs.txt").write_text("a.jpg a.jpg\n")
    (tmp_path / "s.toml").write_text('root = "x"\nlongest1 = 0\n')
    for spec in ("x", "x/pairs.txt", "s.toml"):
        result = run("datasets", tmp_path / spec)
        assert result.exit_code == 0, result.output
        assert f"Complete in {tmp_path / 'x'}" in result.stdout
    assert "longest1 0 by" in result.stdout
    assert run("datasets", f"folder:{tmp_path / 'x'}").exit_code == 0
    (tmp_path / "x" / "pairs.txt").unlink()
    lacking = run("datasets", tmp_path / "x")
    assert lacking.exit_code == 2
    assert "Not complete: root must have a list pairs.txt, got no text file" in lacking.stdout
    both = run("datasets", tmp_path / "x", "--root", tmp_path)
    assert "--root must come with the name of a data set" in one_sentence(both)
