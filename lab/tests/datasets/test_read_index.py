"""Published index files: the values of `pickle.load`, and nothing run from hostile files."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from manymatch_lab.datasets.loading import read_index
from tests.support.data_folder import data_folder
from tests.support.synthetic_trees import MEGADEPTH_FILES, objects, published_pickle

PUBLISHED = (data_folder() or Path()) / "real_index/loftr/megadepth_test_1500_scene_info"
ENTRIES = ("image_paths", "intrinsics", "poses", "pair_infos")
with_published = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="needs the published indexes")


def read(path, *names):
    return read_index(path, "a file of arrays", names)


class Call:
    """Pickles as a call."""

    def __init__(self, function, *arguments):
        self.parts = (function, arguments)

    def __reduce__(self):
        return self.parts


@st.composite
def damaged(draw, data):
    """A file with bits turned, bytes put in, parts left out or repeated."""
    data = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                data[at:at] = draw(st.binary(min_size=1, max_size=8))
            case 2:
                del data[at : at + draw(st.integers(1, 20))]
            case _:
                start = draw(st.integers(0, len(data) - 1))
                data[at:at] = data[start : start + draw(st.integers(1, 40))]
        if not data:
            return b"\x80"
    return bytes(data)


def assert_same(mine, theirs):
    """Compare two values with their types."""
    assert type(mine) is type(theirs)
    if isinstance(mine, np.ndarray) and mine.dtype != object:
        assert mine.dtype == theirs.dtype.newbyteorder("=")
        np.testing.assert_array_equal(mine, theirs)
    elif isinstance(mine, np.ndarray | list | tuple):
        for one, other in zip(mine, theirs, strict=True):
            assert_same(one, other)
    elif isinstance(mine, dict):
        assert list(mine) == list(theirs)
        assert_same(list(mine.values()), list(theirs.values()))
    else:
        assert mine == theirs


@with_published
@pytest.mark.parametrize("name", MEGADEPTH_FILES)
def test_published_files_read_as_pickle_does(name):
    path = PUBLISHED / f"{name}.npz"
    theirs = pickle.loads(path.read_bytes())  # noqa: S301 - the published file
    assert_same(read(path, *ENTRIES), {name: theirs[name] for name in ENTRIES})


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_with_objects_read_as_numpy_does(tmp_path, save):
    entries = {
        "paths": objects(["a.jpg", None, "ü.jpg"]),
        "matrices": objects([np.eye(3), None, np.arange(6).reshape(2, 3)]),
        "plain": np.arange(12.0).reshape(3, 4),
        "text": np.array([["a", "bc"]]),
        "grid": np.array([["x", None], ["y", 3]], dtype=object),
    }
    save(tmp_path / "a.npz", **entries)
    with np.load(tmp_path / "a.npz", allow_pickle=True) as theirs:
        assert_same(read(tmp_path / "a.npz", *entries), dict(theirs))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (published_pickle({"a": 1}), "lacks the entry 'w'"),
        (published_pickle([1]), "holds a list instead of a dictionary"),
        (b"no pickle", "neither an archive of arrays nor a pickle"),
        (b"PK\x03\x04 no archive", "not a zip file"),
        (pickle.dumps({"w": Call(eval, "1 / 0")}), "eval"),
        (pickle.dumps({"w": Call(print, "run")}), "print"),
    ],
)
def test_wrong_and_hostile_files_are_one_sentence(tmp_path, capsys, content, says):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=says) as refused:
        read(tmp_path / "a.npz", "w")
    assert "\n" not in str(refused.value)
    assert capsys.readouterr().out == ""


def test_hostile_archives_run_nothing(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", w=objects([Call(print, "run")]))
    with pytest.raises(ValueError, match="print"):
        read(tmp_path / "a.npz", "w")
    assert capsys.readouterr().out == ""
