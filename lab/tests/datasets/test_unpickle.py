"""Pickles are read as `pickle.load` reads them, and hostile ones run nothing and stay small."""

import io
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from manymatch_lab.datasets.unpickle import LARGEST_PICKLE, MOST_OPCODES, unpickle
from tests.support.data_folder import data_folder
from tests.support.synthetic_trees import MEGADEPTH_FILES, objects, published_pickle

PUBLISHED = (data_folder() or Path()) / "real_index/loftr/megadepth_test_1500_scene_info"
with_published = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="needs the published indexes")


def assert_same(mine, theirs):
    """Compare two values and their types; arrays may differ in byte order only."""
    assert type(mine) is type(theirs)
    if isinstance(mine, np.ndarray):
        assert (mine.dtype, mine.shape) == (theirs.dtype.newbyteorder("="), theirs.shape)
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


@with_published
@pytest.mark.parametrize("name", MEGADEPTH_FILES)
def test_published_index_equals_pickle_load(name):
    data = (PUBLISHED / f"{name}.npz").read_bytes()
    assert_same(unpickle(data), pickle.loads(data))  # noqa: S301 - the published file


numbers = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4).flatmap(
    lambda shape: hnp.arrays(
        st.sampled_from("?bhilBHILefdFD").flatmap(
            lambda code: st.sampled_from([np.dtype(code), np.dtype(code).newbyteorder(">")])
        ),
        shape,
    )
)
letters = st.characters(exclude_categories=["Cs", "Cc"])
atoms = st.one_of(
    *(st.none(), st.booleans(), st.integers(-(2**80), 2**80), st.floats(), st.text(max_size=6)),
    *(st.binary(max_size=300), numbers, hnp.arrays("S4", (3,))),
    *(hnp.arrays(kind, (3,), elements=st.text(letters, max_size=2)) for kind in ("<U3", ">U2")),
    numbers.map(np.asfortranarray),
    numbers.filter(lambda array: array.size).map(lambda array: array.ravel()[0]),
)
values = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=5).map(tuple),
        st.lists(inner, max_size=4).map(objects),
        inner.map(lambda one: [one, one]),
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), values, max_size=4), st.sampled_from([2, 3, 4, 5, 0]))
def test_any_value_equals_pickle_load(value, protocol):
    # 0 stands for the names of NumPy before version 2.
    data = pickle.dumps(value, protocol) if protocol else published_pickle(value)
    assert_same(unpickle(data), pickle.loads(data))  # noqa: S301 - made here


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
OBJECT_STATE = b"(K\x03\x8c\x01|NNNK\x08K\x08K?tb"


def dtype(kind="f8", state=b"(K\x03\x8c\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"):
    return name("numpy", "dtype") + text(kind) + b"\x89\x88\x87R" + state


def array(shape, content, kind=None):
    return EMPTY + b"(K\x01" + shape + (kind or dtype()) + b"\x89" + content + b"tb"


def long_text(size=1 << 20):
    return b"X" + struct.pack("<I", size) + b"a" * size


HUGE = b"\x8a\x05\x00\x00\x00\x00\x01"  # 2**32
# Calls of functions: nothing may run, whether the reader refuses them or hands out stand-ins.
CALLS = {
    "os.system": pickle.dumps(Call(os.system, "touch ran")),
    "os.system as text": b"cos\nsystem\n(X\x09\x00\x00\x00touch rantR",
    "os.system as an instance": b"(X\x09\x00\x00\x00touch ranios\nsystem\n",
    "eval": pickle.dumps(Call(eval, "open('ran', 'w')")),
    "getattr": name("builtins", "getattr") + name("builtins", "__import__") + text("os") + b"\x85R"
    + text("system") + b"\x86R" + text("touch ran") + b"\x85R",
    "nested calls": pickle.dumps([Call(os.path.join, Call(os.system, "touch ran"), "x")]),
    "io.open": pickle.dumps(Call(io.open, "ran", "w")),
    "numpy.load": pickle.dumps(Call(np.load, "x")),
    "numpy.save": pickle.dumps(Call(np.save, "ran", 1)),
    "a state of a class": name("os", "system") + b"}\x8c\x08__call__\x8c\x01xsb",
    "slots of a class": name("os", "system") + b"N}\x8c\x08__code__\x8c\x01xs\x86b",
    "a new object": name("subprocess", "Popen") + text("touch ran") + b"\x85\x81",
    "a new object with keywords": name("subprocess", "Popen") + b")}\x92",
}  # fmt: skip
# Files of arrays that are damaged or would take memory, time or stack.
DAMAGED = {
    "ndarray called": NDARRAY + HUGE + b"\x85R",
    "huge array": EMPTY.replace(b"K\x00\x85", HUGE + b"\x85"),
    "shape without content": array(HUGE + b"\x85", b"C\x00"),
    "negative shape": array(b"J\xff\xff\xff\xff\x85", b"C\x00"),
    "nested shape": array(b"K\x01\x85\x85", b"C\x00"),
    "60 axes": array(b"(" + b"K\x01" * 70 + b"t", b"C\x08" + b"x" * 8),
    "too many bytes": array(b"K\x01\x85", b"C\x09" + b"x" * 9),
    "list as content": array(b"K\x00\x85", b"]"),
    "array without content": EMPTY,
    "type without state": array(b"K\x00\x85", b"C\x00", dtype(state=b"")),
    "unknown type": array(b"K\x00\x85", b"C\x00", dtype("V8")),
    "type with fields": array(b"K\x00\x85", b"C\x00", dtype("f8,f8")),
    "large type": array(b"K\x01\x85", b"C\x00", dtype("S99999999")),
    "objects out of bytes": array(b"K\x01\x85", b"C\x08" + b"A" * 8, dtype("O8", OBJECT_STATE)),
    "object as a scalar": name("numpy.core.multiarray", "scalar") + dtype("O8", OBJECT_STATE)
    + b"C\x08" + b"A" * 8 + b"\x86R",
    "invalid characters": array(b"K\x01\x85", b"C\x04\xff\xff\xff\xff", dtype("U1")),
    "type as a value": dtype(),
    "name as a value": NDARRAY,
    "large buffer": b"\x96" + struct.pack("<Q", 1 << 60),
    "large text": b"\x8d" + struct.pack("<Q", 1 << 62),
    "large memo index": b"Nr\xff\xff\xff\x7f",
    "buffer from elsewhere": b"\x97",
    "persistent identity": b"K\x01Q",
    "extension": b"\x82\x01",
    "list that contains itself": b"]\x94h\x00a",
    "array that contains itself": EMPTY + b"\x94(K\x01K\x01\x85" + dtype("O8", OBJECT_STATE)
    + b"\x89]h\x00atb",
    "deep lists": b"]" * 200_000 + b"a" * 199_999,
    "deep tuple as a key": b"})" + b"\x85" * 200_000 + b"Ns",
    "tuple of tuples as a key": b"})\x94"
    + b"".join(b"h%ch%c\x86\x94" % (i, i) for i in range(99)) + b"Ns",
    "tuple with a state as a key": b"})" + b"\x85Nb" * 200_000 + b"Ns",
    "doubled lists": b"]\x94"
    + b"".join(b"](h" + bytes([i]) + b"h" + bytes([i]) + b"e\x94" for i in range(30)),
    "repeated list": b"](]\x94(" + b"N" * 60_000 + b"e" + b"h\x00" * 60_000 + b"e",
    "repeated text": long_text() + b"\x94](" + b"h\x00" * 1000 + b"e",
    "text encoded often": long_text() + b"\x940]("
    + (name("_codecs", "encode") + b"h\x00" + text("latin1") + b"\x86R") * 1000 + b"e",
    "arrays of the same bytes": b"B" + long_text()[1:] + b"\x940]("
    + array(b"M\x00\x02M\x00\x01\x86", b"h\x00") * 1000 + b"e",
    "codec that runs": name("_codecs", "encode") + text("x") + text("zlib_codec") + b"\x86R",
    "key that is a list": b"}]Ns",
    "nothing": b"",
    "mark to pop": b"](a",
    "unknown memo": b"h\x07",
    "unknown opcode": b"\xff",
    "unfinished name": b"cos",
    "many opcodes": b"N0" * (MOST_OPCODES // 2) + b"N",
    "large pickle": b"B" + struct.pack("<I", LARGEST_PICKLE) + bytes(LARGEST_PICKLE),
}  # fmt: skip


def whole(payload):
    return payload if payload[:1] == b"\x80" else b"\x80\x04" + payload + b"."


@pytest.mark.parametrize("attack", CALLS)
def test_named_functions_are_never_called(tmp_path, monkeypatch, attack):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="it wants to use '"):
        unpickle(whole(CALLS[attack]))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("attack", DAMAGED)
def test_damaged_or_huge_pickle_is_refused_in_a_sentence(attack):
    with pytest.raises(ValueError, match="its pickle cannot be read: ") as caught:
        unpickle(whole(DAMAGED[attack]))
    assert "\n" not in str(caught.value)
    assert np.arange(3.0).tobytes() == struct.pack("3d", 0, 1, 2)


SMALL = published_pickle(
    {
        "image_paths": objects(["a/b.jpg", None]),
        "poses": objects([np.eye(4), None]),
        "pair_infos": [(np.array([0, 1]), np.float64(0.5), np.arange(4.0))] * 2,
    }
)


@settings(max_examples=300)
@given(st.data())
def test_altered_pickle_is_refused_or_small(draw):
    data = bytearray(SMALL)
    for _ in range(draw.draw(st.integers(1, 4))):
        at, start = (draw.draw(st.integers(0, len(data) - 1)) for _ in range(2))
        more = data[start : start + draw.draw(st.integers(0, 40))]
        more = more or draw.draw(st.binary(max_size=8))
        data[at : at + draw.draw(st.integers(0, 20))] = more
    try:
        value = unpickle(bytes(data))
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017 - most of them are refused, not all
    else:
        assert len(repr(value)) < 100_000
