"""Arrays out of pickles: the same values as `pickle.load`, and nothing from files that attack."""

import io
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from manymatch._pickles import MOST_STEPS
from manymatch_lab.datasets.pickled_arrays import read_pickle, read_pickled_arrays
from tests.support.data_folder import data_folder
from tests.support.synthetic_trees import MEGADEPTH_FILES, objects, published_pickle

WANT = "a file of arrays"
PUBLISHED = (data_folder() or Path()) / "real_index/loftr/megadepth_test_1500_scene_info"
with_published = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="needs the published indexes")


def read(path, *names):
    return read_pickled_arrays(path, WANT, names)


def raw_npz(path, name, payload, descr="'|O'", shape="(1,)"):
    """Write an .npz whose one array is any pickle."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    header = header.ljust(117) + "\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + payload
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.npy", content)


def assert_same(mine, theirs):
    """Compare two values with their types; arrays may differ in the order of bytes only."""
    assert type(mine) is type(theirs)
    if isinstance(mine, np.ndarray):
        assert mine.dtype == theirs.dtype.newbyteorder("=")
        assert mine.shape == theirs.shape
        assert mine.flags.writeable
        if mine.dtype == object:
            assert_same(mine.ravel().tolist(), theirs.ravel().tolist())
        else:
            assert mine.tobytes() == theirs.astype(mine.dtype).tobytes()
    elif isinstance(mine, dict):
        assert list(mine) == list(theirs)
        assert_same(list(mine.values()), list(theirs.values()))
    elif isinstance(mine, list | tuple):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            assert_same(one, other)
    else:
        assert mine == theirs or (mine != mine and theirs != theirs)  # noqa: PLR0124 - NaN


# --- The same as pickle.load -------------------------------------------------------------------


@with_published
@pytest.mark.parametrize("name", MEGADEPTH_FILES)
def test_published_files(name):
    data = (PUBLISHED / f"{name}.npz").read_bytes()
    assert_same(read_pickle(data), pickle.loads(data))  # noqa: S301 - the published file


numbers = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4).flatmap(
    lambda shape: hnp.arrays(
        st.sampled_from("?bhilBHILefdFD").flatmap(
            lambda code: st.sampled_from([np.dtype(code), np.dtype(code).newbyteorder(">")])
        ),
        shape,
    )
)
letters = st.characters(exclude_categories=["Cs", "Cc"])
texts = st.one_of(
    hnp.arrays("S4", (3,)),
    *(hnp.arrays(kind, (3,), elements=st.text(letters, max_size=2)) for kind in ("<U3", ">U2")),
)
atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**80), 2**80),
    st.floats(),
    st.text(max_size=6),
    st.binary(max_size=300),
    numbers,
    texts,
    numbers.map(np.asfortranarray),
    numbers.map(lambda array: array.ravel()[::2]),
    numbers.filter(lambda array: array.size).map(lambda array: array.ravel()[0]),
)
values = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=5).map(tuple),
        st.lists(inner, max_size=4).map(objects),
        st.lists(inner, min_size=6, max_size=6).map(
            lambda six: np.asfortranarray(objects(six).reshape(2, 3))
        ),
        inner.map(lambda one: [one, one]),
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), values, max_size=4), st.integers(2, 5))
def test_any_dictionary_of_any_age(value, protocol):
    data = pickle.dumps(value, protocol)
    assert_same(read_pickle(data), pickle.loads(data))  # noqa: S301 - made here


@given(st.dictionaries(st.text(max_size=5), values, max_size=4))
def test_names_of_numpy_before_version_2(value):
    data = published_pickle(value)
    assert_same(read_pickle(data), pickle.loads(data))  # noqa: S301 - made here


def test_archives_with_objects(tmp_path):
    path = tmp_path / "a.npz"
    entries = {
        "paths": objects(["a.jpg", None, "ü.jpg"]),
        "matrices": objects([np.eye(3), None, np.arange(6).reshape(2, 3)]),
        "plain": np.arange(12.0).reshape(3, 4),
        "text": np.array([["a", "bc"]]),
        "grid": np.array([["x", None], ["y", 3]], dtype=object),
    }
    for save in (np.savez, np.savez_compressed):
        save(path, **entries)
        with np.load(path, allow_pickle=True) as theirs:
            assert_same(read(path, *entries), dict(theirs))


def test_a_file_and_its_entries(tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(published_pickle({"a": [1, 2], "b": None}))
    assert read(path, "a") == {"a": [1, 2]}
    for content, says in (
        (published_pickle({"a": 1}), "lacks the entry 'w'"),
        (published_pickle([1]), "holds a list instead of a dictionary"),
        (b"no pickle", "neither an archive of arrays nor a pickle"),
        (b"PK\x03\x04 no archive", "not a zip file"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=says):
            read(path, "w")
    np.savez(path, v=1)
    with pytest.raises(ValueError, match="lacks the array 'w'"):
        read(path, "v", "w")
    raw_npz(path, "v", pickle.dumps([1]))
    with pytest.raises(ValueError, match="holds a list instead of an array"):
        read(path, "v")
    with pytest.raises(ValueError, match="no such file"):
        read(tmp_path / "none.npz", "v")


# --- Files that attack -------------------------------------------------------------------------


class Call:
    """Pickles as a call, with a state if there is one."""

    def __init__(self, function, *arguments, state=None):
        self.parts = (function, arguments, *([] if state is None else [state]))

    def __reduce__(self):
        return self.parts


def text(word):
    return b"\x8c" + bytes([len(word)]) + word.encode()


def name(module, word):
    return text(module) + text(word) + b"\x93"


NDARRAY = name("numpy", "ndarray")
EMPTY = name("numpy.core.multiarray", "_reconstruct") + NDARRAY + b"K\x00\x85C\x01b\x87R"


def dtype(kind="f8", state=b"(K\x03\x8c\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"):
    return name("numpy", "dtype") + text(kind) + b"\x89\x88\x87R" + state


def array(shape, content, kind=None, fortran=b"\x89"):
    return EMPTY + b"(K\x01" + shape + (kind or dtype()) + fortran + content + b"tb"


F8 = np.dtype("f8")
HUGE = b"\x8a\x05\x00\x00\x00\x00\x01"  # 2**32
ATTACKS = {
    "a command": (pickle.dumps(Call(os.system, "touch ran")), "wants to use 'posix.system'"),
    "code": (pickle.dumps(Call(eval, "open('ran', 'w')")), "wants to use 'builtins.eval'"),
    "an attribute": (pickle.dumps(Call(getattr, 1, "real")), "wants to use 'builtins.getattr'"),
    "a nested name": (name("numpy", "ndarray.__setstate__"), "wants to use"),
    "another function": (pickle.dumps(Call(np.load, "x")), "wants to use 'numpy.load'"),
    "a file": (pickle.dumps(Call(io.open, "ran", "w")), "wants to use"),
    "a name as text": (b"cos\nsystem\n(X\x01\x00\x00\x00xtR", "wants to use 'os.system'"),
    "a new line in a name": (name("os\nx", "system"), r"wants to use 'os\\nx.system'"),
    "an array that is called": (NDARRAY + HUGE + b"\x85R", "calls ndarray with arguments"),
    "an array with strides": (
        pickle.dumps(Call(np.ndarray, (2,), "f8", b"x" * 16, 0, (1 << 40,))),
        "calls ndarray with arguments",
    ),
    "a new object": (NDARRAY + b"K\x08\x85\x81", "opcode NEWOBJ"),
    "a new object with names": (NDARRAY + b"K\x08\x85}\x92", "opcode NEWOBJ_EX"),
    "a huge array": (EMPTY.replace(b"K\x00\x85", HUGE + b"\x85"), "calls _reconstruct"),
    "a shape without content": (array(HUGE + b"\x85", b"C\x00"), "0 instead of 34,359,738,368"),
    "a negative shape": (array(b"J\xff\xff\xff\xff\x85", b"C\x00"), "impossible shape"),
    "a shape of shapes": (array(b"K\x01\x85\x85", b"C\x00"), "impossible shape"),
    "a shape of many sides": (array(b"(" + b"K\x01" * 60 + b"t", b"C\x08" + b"x" * 8), "shape"),
    "a large shape of nothing": (array(HUGE + HUGE + b"K\x00\x87", b"C\x00"), "impossible shape"),
    "too many bytes": (array(b"K\x01\x85", b"C\x09" + b"x" * 9), "9 instead of 8 bytes"),
    "content that is a list": (array(b"K\x00\x85", b"]"), "without content"),
    "a second content": (
        array(b"K\x00\x85", b"C\x00") + b"(K\x01K\x00\x85" + dtype() + b"\x89C\x00tb",
        "second content",
    ),
    "an array without content": (EMPTY, "array without content"),
    "a type without a state": (array(b"K\x00\x85", b"C\x00", dtype(state=b"")), "without a type"),
    "a type with fields": (dtype(state=b"(K\x03\x8c\x01|NX\x01\x00\x00\x00a\x85}K\x08K\x01K\x00tb"),
                           "a state that NumPy does not"),
    "a type with parts": (dtype(state=b"(K\x03\x8c\x01<" + dtype() + b"NNK\x08K\x08K\x00tb"),
                          "a state that NumPy does not"),
    "a type with a second state": (dtype() + b"(K\x03\x8c\x01>NNNK\x08K\x08K\x00tb", "a state"),
    "an unknown type": (dtype("V8"), "calls dtype with arguments"),
    "a type of fields": (dtype("f8,f8"), "calls dtype with arguments"),
    "a large type": (dtype("S99999999"), "calls dtype with arguments"),
    "a state of something else": (b"]}b", "a state that NumPy does not"),
    "a state of a name": (NDARRAY + b"}b", "a state that NumPy does not"),
    "objects out of bytes": (array(b"K\x01\x85", b"C\x08" + b"A" * 8,
                             dtype("O8", b"(K\x03\x8c\x01|NNNK\x08K\x08K?tb")), "without content"),
    "an object as a scalar": (
        name("numpy.core.multiarray", "scalar")
        + dtype("O8", b"(K\x03\x8c\x01|NNNK\x08K\x08K?tb") + b"C\x08" + b"A" * 8 + b"\x86R",
        "without content",
    ),
    "booleans of other bytes": (
        array(b"K\x01\x85", b"C\x01\x07", dtype("b1", b"(K\x03\x8c\x01|NNNK\x01K\x01K\x00tb")),
        "booleans other than",
    ),
    "text of no characters": (array(b"K\x01\x85", b"C\x04\xff\xff\xff\xff", dtype("U1")), "text"),
    "a type as a value": (dtype(), "a type in place of a value"),
    "a name as a value": (NDARRAY, "a token in place of a value"),
    "a buffer as a value": (b"\x96" + bytes(8), "a bytearray in place of a value"),
    "a large buffer": (b"\x96" + struct.pack("<Q", 1 << 60), "ends in the middle"),
    "a large text": (b"\x8d" + struct.pack("<Q", 1 << 62), "ends in the middle"),
    "large bytes": (b"B\xff\xff\xff\xff", "ends in the middle"),
    "a buffer from elsewhere": (b"\x97", "opcode NEXT_BUFFER"),
    "a buffer made read-only": (b"\x96" + bytes(8) + b"\x98", "opcode READONLY_BUFFER"),
    "a persistent identity": (b"K\x01Q", "opcode BINPERSID"),
    "a persistent name": (b"Pid\n", "opcode PERSID"),
    "an extension": (b"\x82\x01", "opcode EXT1"),
    "an instance": (b"(ios\nsystem\n", "opcode INST"),
    "an object": (b"(cos\nsystem\nX\x01\x00\x00\x00xo", "wants to use"),
    "a set": (b"\x8f", "opcode EMPTY_SET"),
    "an old text": (b"U\x01a", "opcode SHORT_BINSTRING"),
    "an old number": (b"I1\n", "opcode INT"),
    "a value that is dropped": (b"NN0", "opcode POP"),
    "values that are dropped": (b"N(N1", "opcode POP_MARK"),
    "a frozen set": (b"(N\x91", "opcode FROZENSET"),
    "a long name": (
        b"X" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20) + b"\x94h\x00\x93",
        "a name that is too long",
    ),
    "a list that contains itself": (b"]\x94h\x00a", "contains itself"),
    "an array that contains itself": (
        EMPTY + b"\x94(K\x01K\x01\x85" + dtype("O8", b"(K\x03\x8c\x01|NNNK\x08K\x08K?tb")
        + b"\x89]h\x00atb",
        "contains itself",
    ),
    "deep nesting": (b"]" * 200_000 + b"a" * 199_999, "nested more than 32 levels"),
    "a billion lists": (
        b"]\x94" + b"".join(b"](" + b"h" + bytes([i]) + b"h" + bytes([i]) + b"e\x94"
                            for i in range(30)),
        "repeating it",
    ),
    "a long list that is repeated": (
        b"](]\x94(" + b"N" * 60_000 + b"e" + b"h\x00" * 60_000 + b"e",
        "repeating it",
    ),
    "text that is repeated": (
        b"X" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20) + b"\x94](" + b"h\x00" * 1000 + b"e",
        "repeating it",
    ),
    "bytes that are made again": (
        b"X" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20) + b"\x94"
        + (name("_codecs", "encode") + b"h\x00" + text("latin1") + b"\x86R") * 1000,
        "repeating it",
    ),
    "arrays of the same bytes": (
        b"B" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20) + b"\x94"
        + array(b"M\x00\x02M\x00\x01\x86", b"h\x00") * 1000,
        "repeating it",
    ),
    "a codec that is no text": (
        name("_codecs", "encode") + text("x") + text("zlib_codec") + b"\x86R",
        "calls encode with arguments",
    ),
    "a key that is a list": (b"}]Ns", "keys other than text"),
    "a key without a value": (b"}(\x8c\x01au", "a key without a value"),
    "nothing": (b"", "a value that it does not have"),
    "nothing to pop": (b"a", "a value that it does not have"),
    "a mark to pop": (b"](a", "a value that it does not have"),
    "an end without a beginning": (b"]e", "did not begin"),
    "an unknown memory": (b"h\x07", "refers to a value that it does not have"),
    "something else changed": (b"K\x01K\x02a", "no list"),
    "an unknown opcode": (b"\xff", "opcode 0xff"),
    "a name that does not end": (b"cos", "a name that does not end"),
    "a name that is no text": (b"K\x01K\x02\x93", "a name that is no text"),
    "no text": (b"\x8c\x01\xff", "decode"),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_are_one_sentence(tmp_path, monkeypatch, attack):
    monkeypatch.chdir(tmp_path)
    payload, says = ATTACKS[attack]
    payload = payload if payload[:1] == b"\x80" else b"\x80\x04" + payload + b"."
    before = repr(F8), F8.itemsize, F8.byteorder, F8.fields
    (tmp_path / "a.npz").write_bytes(payload)
    raw_npz(tmp_path / "b.npz", "v", payload)
    for file in ("a.npz", "b.npz"):
        with pytest.raises(ValueError, match=says) as caught:
            read(tmp_path / file, "v")
        assert str(caught.value).startswith("path must be a file of arrays, got ")
        assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz"]
    assert (repr(F8), F8.itemsize, F8.byteorder, F8.fields) == before
    np.testing.assert_array_equal(np.arange(3.0) + 1, [1, 2, 3])


SMALL = published_pickle(
    {
        "image_paths": objects(["a/b.jpg", None]),
        "poses": objects([np.eye(4), None]),
        "pair_infos": [(np.array([0, 1]), np.float64(0.5), np.arange(4.0))] * 2,
    }
)


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


@settings(max_examples=1500)
@given(damaged(SMALL))
def test_damaged_pickles_are_one_sentence_or_values(data):
    try:
        value = read_pickle(data)
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017 - most of them are refused, not all
    else:
        assert len(repr(value)) < 100_000
    assert np.arange(3.0).tobytes() == struct.pack("3d", 0, 1, 2)


@with_published
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_damaged_published_file(data):
    content = damaged((PUBLISHED / f"{MEGADEPTH_FILES[-1]}.npz").read_bytes())
    try:
        read_pickle(data.draw(content))
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017


def archive_of_objects():
    file = io.BytesIO()
    np.savez_compressed(file, v=objects([np.eye(2), None, "a"]), w=np.arange(3))
    return file.getvalue()


@settings(max_examples=500, deadline=None)
@given(damaged(archive_of_objects()))
def test_damaged_archives_are_one_sentence_or_values(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    path.write_bytes(data)
    try:
        read(path, "v", "w")
    except ValueError as error:
        assert str(error).startswith("path must be")  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017


@with_published
def test_every_cut_of_a_published_file():
    data = (PUBLISHED / f"{MEGADEPTH_FILES[0]}.npz").read_bytes()
    for end in [*range(0, 2000, 7), *range(2000, len(data), 40_009), len(data) - 1]:
        with pytest.raises(ValueError, match=r"middle of a value|does not end"):
            read_pickle(data[:end])


# --- Memory ------------------------------------------------------------------------------------

IN_A_PROCESS = """
import resource, sys
from pathlib import Path
from manymatch_lab.datasets.pickled_arrays import read_pickled_arrays
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, [used + (int(sys.argv[2]) << 20)] * 2)
try:
    read_pickled_arrays(sys.argv[1], "a file", ["v"])
except ValueError as error:
    print(error)
"""
MANY_STEPS = {
    "lists that are remembered": b"]\x94" * (MOST_STEPS // 2),
    "dictionaries": b"}" * MOST_STEPS,
}
LARGE = {
    attack: ATTACKS[attack][0]
    for attack in (
        "a huge array",
        "a shape without content",
        "a large buffer",
        "deep nesting",
        "a billion lists",
        "text that is repeated",
        "bytes that are made again",
        "arrays of the same bytes",
    )
} | {
    **MANY_STEPS,
    "text in a compressed archive": b"X\x00\x00\x00\x04" + bytes(1 << 26),
}


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process")
@pytest.mark.parametrize("attack", LARGE)
def test_memory_is_bounded(tmp_path, attack):
    """60 MB suffice for files of a megabyte; 400 MB for all opcodes that are allowed."""
    payload = b"\x80\x04" + LARGE[attack] + b"."
    path = tmp_path / "a.npz"
    if "archive" in attack:
        file = io.BytesIO()
        np.save(file, objects([1]))
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("v.npy", file.getvalue()[:128] + payload)
    else:
        path.write_bytes(payload)
    limit = "400" if attack in MANY_STEPS else "60"
    done = subprocess.run(  # noqa: S603 - ourselves
        [sys.executable, "-c", IN_A_PROCESS, path, limit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("path must be a file"), done.stderr
    assert ("more than 2,097,152 opcodes" in done.stdout) == (attack in MANY_STEPS)
