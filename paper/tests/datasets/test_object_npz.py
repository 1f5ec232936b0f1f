import io
import os
import pickle
import zipfile

import numpy as np
import pytest

from manymatch_paper.datasets._object_npz import read_object_npz
from tests.support.synthetic_trees import objects

WANT = "a file of arrays"


def read(path, *names):
    return read_object_npz(path, WANT, names)


def raw_npz(path, name, payload, descr="'|O'", shape="(1,)"):
    """Write an .npz whose one array is any pickle."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    header = header.ljust(117) + "\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + payload
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.npy", content)


def test_arrays_come_back_as_numpy_would_read_them(tmp_path):
    path = tmp_path / "a.npz"
    values = {
        "paths": objects(["a.jpg", None, "ü.jpg"]),
        "matrices": objects([np.eye(3), None, np.arange(6).reshape(2, 3)]),
        "pairs": objects([((0, 1), 0.5, np.ones((2, 2), dtype=np.float32)), ((np.int64(2), 3), 1)]),
        "plain": np.arange(12.0).reshape(3, 4),
        "text": np.array([["a", "bc"]]),
        "grid": np.array([["x", None], ["y", 3]], dtype=object),
    }
    np.savez(path, **values)
    mine = read(path, *values)
    with np.load(path, allow_pickle=True) as numpys:
        for name in values:
            assert mine[name].shape == numpys[name].shape
            assert mine[name].dtype == numpys[name].dtype
            assert repr(mine[name].tolist()) == repr(numpys[name].tolist())


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_of_every_age(tmp_path, protocol):
    values = objects([np.eye(2), np.float32(1.5), "a", (1, 2), b"x"])
    raw_npz(tmp_path / "a.npz", "v", pickle.dumps(values, protocol), shape="(5,)")
    (array,) = read(tmp_path / "a.npz", "v").values()
    assert array[0].tolist() == [[1, 0], [0, 1]]
    assert array[1:].tolist() == [1.5, "a", (1, 2), b"x"]


class Attack:
    def __init__(self, function, *arguments):
        self.parts = function, arguments

    def __reduce__(self):
        return self.parts


@pytest.mark.parametrize("function", [os.system, eval, getattr, io.open, np.load, np.save])
def test_a_pickle_that_runs_code_is_refused(tmp_path, function):
    ran = tmp_path / "ran"
    argument = f"open({str(ran)!r}, 'w')" if function is eval else f"touch {ran}"
    for payload in (Attack(function, argument), objects([Attack(function, argument)])):
        raw_npz(tmp_path / "a.npz", "v", pickle.dumps(payload))
        with pytest.raises(ValueError, match=r"^path must be a file of arrays, got .*wants to use"):
            read(tmp_path / "a.npz", "v")
    assert not ran.exists()


def test_a_codec_that_is_no_text_is_refused(tmp_path):
    payload = b"c_codecs\nencode\n(Vx\nVzlib_codec\ntR."
    raw_npz(tmp_path / "a.npz", "v", payload)
    with pytest.raises(ValueError, match="wants to encode as 'zlib_codec'"):
        read(tmp_path / "a.npz", "v")


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"", "Ran out of input"),
        (pickle.dumps(objects([1]))[:-4], "trunc|Ran out"),
        (pickle.dumps([1]), "holds a list"),
        (b"\x80\x04\x95garbage", "."),
        (b"(P1\n.", "."),
        (pickle.dumps(objects([1, 2])), "reshape"),
        (b".", "."),
    ],
)
def test_damage_is_one_sentence(tmp_path, payload, says):
    raw_npz(tmp_path / "a.npz", "v", payload)
    with pytest.raises(ValueError, match=says) as caught:
        read(tmp_path / "a.npz", "v")
    assert str(caught.value).startswith("path must be a file of arrays, got ")
    assert "\n" not in str(caught.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        read(tmp_path / "a.npz", "v")
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(ValueError, match="not a zip file"):
        read(tmp_path / "a.npz", "v")
    np.savez(tmp_path / "b.npz", v=1)
    with pytest.raises(ValueError, match="lacks the array 'w'"):
        read(tmp_path / "b.npz", "v", "w")
