"""Data sets by name: our own, those of installed packages, and packages that are broken."""

import json
from importlib import metadata

import pytest

from manymatch_lab import datasets
from manymatch_lab.datasets import Dataset, DatasetInfo, Layout, LayoutPart, registry
from tests.support.command import one_sentence, run

SHELF = DatasetInfo(
    "shelf",
    "Shelf",
    "a shelf",
    "From nowhere.",
    Layout(("shelf",), (LayoutPart("a list", ("list.txt",)),)),
    load=lambda root, **options: Dataset("shelf", "Shelf", (), notes=(f"{root} {options}",)),
    check=lambda root: f"nothing is in {root}",
    num_pairs=0,
    options=("seed",),
)
INFOS = [SHELF]
NO_INFOS = [SHELF, "shelf"]


@pytest.fixture
def install(monkeypatch):
    """Pretend that packages with entry points of these values are the installed ones."""

    def install(*values):
        points = [metadata.EntryPoint("sets", value, "manymatch.datasets") for value in values]
        real = metadata.entry_points
        monkeypatch.setattr(
            registry.metadata,
            "entry_points",
            lambda **given: points if given["group"] == "manymatch.datasets" else real(**given),
        )
        registry._found.cache_clear()

    yield install
    registry._found.cache_clear()


def test_sets_of_an_installed_package(install, tmp_path):
    install(f"{__name__}:INFOS")
    assert datasets.names()[-2:] == ["shelf", "folder"]
    assert datasets.info("shelf") is SHELF
    assert datasets.load("shelf", "x", seed=3).notes == ("x {'seed': 3}",)
    assert datasets.check("shelf", "x") == "nothing is in x"
    with pytest.raises(ValueError, match="shelf takes the options seed, got sede"):
        datasets.load("shelf", "x", sede=3)
    with pytest.raises(ValueError, match="folder takes the options pairs, images, name, got seed"):
        datasets.load("folder", tmp_path, seed=3)
    assert registry.faults() == ()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_package:INFOS", "ModuleNotFoundError: No module named 'no_such_package'"),
        (f"{__name__}:NOTHING", "AttributeError: .*NOTHING"),
        (f"{__name__}:NO_INFOS", "TypeError: it has a str instead of a DatasetInfo"),
        (f"{__name__}:SHELF", "TypeError: 'DatasetInfo' object is not iterable"),
    ],
)
def test_a_broken_package_is_one_sentence_and_no_obstacle(install, tmp_path, value, reason):
    install(value, f"{__name__}:INFOS")
    assert datasets.names()[-2:] == ["shelf", "folder"]
    (fault,) = registry.faults()
    assert fault.startswith(f"the data sets of the package {value} cannot be used")
    with pytest.raises(
        ValueError, match=rf"^name must be one of .*, shelf, folder, got 'x'; .*{reason}"
    ):
        datasets.load("x")
    assert fault in one_sentence(run("datasets", "x"))
    assert json.loads(run("datasets", "--json").stdout)["faults"] == [fault]
    assert "cannot be used" in run("datasets").stdout
    (tmp_path / "pairs.txt").write_text("a.jpg b.jpg\n")
    assert len(datasets.load("folder", tmp_path)) == 1


def test_unknown_names_get_a_suggestion():
    with pytest.raises(ValueError, match=r"did you mean 'folder', got 'foldr'"):
        datasets.load("foldr", ".")
    with pytest.raises(ValueError, match="name must be one of"):
        datasets.info(["folder"])


def test_a_set_file_names_the_set_its_root_and_its_sizes(install, tmp_path):
    install(f"{__name__}:INFOS")
    (tmp_path / "mine.toml").write_text(
        'dataset = "shelf"\nroot = "there"\nlongest1 = 0\nseed = 3\n'
    )
    found = registry.find(str(tmp_path / "mine.toml"))
    assert (found.dataset, found.root) == ("shelf", tmp_path / "there")
    dataset = found.load()
    assert (dataset.longest0, dataset.longest1) == (None, 0)
    read, said = dataset.notes
    assert read == f"{tmp_path / 'there'} {{'seed': 3}}"
    assert said == f"shelf: longest1 0 by {tmp_path / 'mine.toml'}"


def test_a_set_file_in_the_root_of_a_set_applies(install, tmp_path):
    install(f"{__name__}:INFOS")
    (tmp_path / "set.toml").write_text('dataset = "shelf"\nlongest0 = 300\n')
    for dataset in (datasets.load("shelf", tmp_path), registry.find(tmp_path).load()):
        assert (dataset.longest0, dataset.longest1) == (300, None)
    assert registry.find(f"shelf:{tmp_path}").longest0 == 300
    # It is that of another set.
    (tmp_path / "set.toml").write_text("longest0 = 300\n")
    assert datasets.load("shelf", tmp_path).longest0 is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("longest2 = 0", "keys must be among .*, did you mean 'longest.', got 'longest2'"),
        ("longest1 = -1", "longest1 must be an integer of at least 0, got -1"),
        ("longest1 = 1.5", "longest1 must be an integer"),
        ('longest1 = "0"', "longest1 must be an integer"),
        ("root = 3", "root must be the name of a folder, got 3"),
        ('dataset = "foldr"', "did you mean 'folder'"),
        ("pairs = []", "pairs must be a text or a number"),
        ("pairs = 7", "pairs must be the name of a file, got 7"),
        ('name = "../up"', "name must be at most 100 letters, digits"),
        ('name = ".."', "name must be at most 100 letters, digits"),
        ("longest1", "the settings of a set"),
        (f"#{'x' * 100_000}", "more than 50,000 characters"),
    ],
)
def test_a_wrong_set_file_is_one_sentence(tmp_path, text, says):
    (tmp_path / "set.toml").write_text(text)
    (tmp_path / "pairs.txt").write_text("a.jpg b.jpg\n")
    with pytest.raises(ValueError, match=says) as refused:
        datasets.load("folder", tmp_path)
    assert "\n" not in str(refused.value)
    assert datasets.check("folder", tmp_path) == str(refused.value)
