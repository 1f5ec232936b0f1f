"""The paper's data sets as `manymatch_lab.datasets` and ``manymatch datasets`` find them."""

import functools
import json

import pytest

from manymatch_lab import datasets
from tests.support import command
from tests.support.synthetic_trees import make_metu, make_navi

NAMES = datasets.names()


@pytest.fixture
def run():
    return functools.partial(command.run, "datasets")


@pytest.mark.parametrize("name", NAMES)
def test_roots_are_checked(name, tmp_path):
    with pytest.raises(ValueError, match=f"root must be the folder of {name}, got None"):
        datasets.load(name)
    with pytest.raises(ValueError, match="root must be an existing folder"):
        datasets.load(name, tmp_path / "nowhere")
    with pytest.raises(ValueError, match="root must be"):
        datasets.load(name, 3)
    said = datasets.check(name, tmp_path)
    assert said.startswith("root must have")
    assert "\n" not in said


def test_unknown_options_are_refused(tmp_path):
    with pytest.raises(ValueError, match="scannet1500 takes no option, got splits"):
        datasets.load("scannet1500", tmp_path, splits=tmp_path)
    with pytest.raises(ValueError, match="navi-wild takes the options splits, got split"):
        datasets.load("navi-wild", tmp_path, split=tmp_path)


def test_list_names_every_set(run):
    result = run()
    assert result.exit_code == 0
    for name in NAMES:
        assert name in result.stdout
    assert "1,491" in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    record = json.loads(run("--json").stdout)
    assert [entry["name"] for entry in record["datasets"]] == NAMES


def test_checks_and_exit_codes(run, tmp_path):
    result = run("navi-wild", "--root", tmp_path)
    assert result.exit_code == 2
    assert "Not complete: root must have the annotations" in " ".join(result.stdout.split())
    make_navi(tmp_path, per_bin=500)
    result = run("navi-wild", "--root", tmp_path)
    assert result.exit_code == 0
    assert "Complete in" in result.stdout
    assert "1,500 pairs of 1 objects" in result.stdout
    (tmp_path / "splits").rename(tmp_path / "lists")
    assert run("navi-wild", "--root", tmp_path).exit_code == 2
    result = run("navi-wild", "--root", tmp_path, "--splits", tmp_path / "lists/navi", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["missing"] is None
    make_metu(tmp_path)
    result = run("metu-cc", "--root", tmp_path, "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["missing"].endswith("4 pairs instead of 1,382")
