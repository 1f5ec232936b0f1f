"""The paper's data sets as `manymatch.datasets` and ``manymatch datasets`` find them."""

import functools
import json

import pytest

from manymatch import datasets
from tests.support import command
from tests.support.synthetic_trees import make_metu, make_navi

NAMES = [
    "scannet1500",
    "megadepth1500",
    "navi-multi",
    "navi-wild",
    "navi-wild-diagnostic",
    "metu-cc",
    "metu-cs",
    "folder",
]


@pytest.fixture
def run():
    return functools.partial(command.run, "datasets")


def test_names_and_infos():
    assert datasets.names() == NAMES
    for name in NAMES:
        info = datasets.info(name)
        assert info.name == name
        assert all((info.title, info.about, info.get, info.tree))
        # The table has to fit a terminal, the tree a page.
        assert len(info.about) <= 60
        assert all(len(line) <= 100 for line in info.tree.splitlines())
    assert [datasets.info(name).num_pairs for name in NAMES] == [
        *(1500, 1491, 1500, 1500, 1500, 1382, 1208),
        None,
    ]


def test_unknown_names_get_a_suggestion():
    with pytest.raises(ValueError, match=r"did you mean 'navi-wild', got 'navi-wld'"):
        datasets.load("navi-wld", ".")
    for call in (datasets.info, lambda name: datasets.check(name, ".")):
        with pytest.raises(ValueError, match=r"^name must be one of scannet1500, "):
            call("?")
    with pytest.raises(ValueError, match="name must be one of"):
        datasets.info(["navi-wild"])


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


def test_the_list(run):
    result = run()
    assert result.exit_code == 0
    for name in NAMES:
        assert name in result.stdout
    assert "1,491" in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    record = json.loads(run("--json").stdout)
    assert [entry["name"] for entry in record["datasets"]] == NAMES


def test_one_without_a_root(run):
    result = run("metu-cs")
    assert result.exit_code == 0
    assert "CC BY-NC-SA" in result.stdout
    assert "index/scene_info_test" in result.stdout
    assert json.loads(run("metu-cs", "--json").stdout)["pairs"] == 1208


def test_checks_and_exit_codes(run, tmp_path):
    result = run("navi-wild", "--root", tmp_path)
    assert result.exit_code == 2
    assert (
        "Not complete: root must have the list estimation/pairs_wildset_0-40.csv" in result.stdout
    )
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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["navi-wil"], "did you mean 'navi-wild'"),
        (["metu-cc", "--splits", "x"], "--splits must come with a NAVI data set"),
    ],
)
def test_wrong_calls_are_one_sentence(run, arguments, says):
    result = run(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
