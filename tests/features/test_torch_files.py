"""Files of torch without torch: the same tensors, and no file runs code or takes more memory."""

import collections
import io
import os
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from manymatch.features.torch_files import read_tensors

torch = pytest.importorskip("torch")


@st.composite
def states(draw):
    kinds = [torch.float32, torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool]
    state = {}
    for k in range(draw(st.integers(1, 4))):
        shape = draw(st.lists(st.integers(0, 4), max_size=3))
        values = torch.arange(int(np.prod(shape))).reshape(shape).to(draw(st.sampled_from(kinds)))
        if len(shape) > 1 and draw(st.booleans()):
            values = values.transpose(0, 1)
        state[f"layer.{k}"] = values[1:] if shape and draw(st.booleans()) else values
    return state


@settings(max_examples=60, deadline=None)
@given(states(), st.booleans())
def test_tensors_are_those_that_torch_saved(tmp_path_factory, state, archive):
    path = tmp_path_factory.mktemp("state") / "a.pth"
    torch.save(collections.OrderedDict(state), path, _use_new_zipfile_serialization=archive)
    found = read_tensors(path)
    assert list(found) == list(state)
    for name, value in state.items():
        np.testing.assert_array_equal(found[name], value.numpy())
        assert found[name].dtype == value.numpy().dtype
    torch.save({"inner": state, "epoch": 3}, path, _use_new_zipfile_serialization=archive)
    assert list(read_tensors(path, "inner")) == list(state)
    with pytest.raises(pickle.UnpicklingError, match="lacks the entry"):
        read_tensors(path, "other")
    with pytest.raises(pickle.UnpicklingError, match="is not a tensor"):
        read_tensors(path)


class Hostile:
    """Runs a function when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def as_archive(data, numbers=4):
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        archive.writestr("a/data.pkl", data)
        archive.writestr("a/data/0", bytes(4 * numbers))
    return memory.getvalue()


def as_sequence(data):
    start = [pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {})]
    return b"".join([*start, data, pickle.dumps([], 2)])


@pytest.mark.parametrize("pack", [as_archive, as_sequence])
@pytest.mark.parametrize(
    "call",
    [
        (os.mkdir, "made"),
        (eval, "__import__('os').mkdir('made')"),
        (getattr, "", "join"),
        (bytearray, 10**12),
        (torch.load, "other.pth"),
        (np.zeros, 10**12),
    ],
)
def test_a_file_cannot_call_anything(tmp_path, monkeypatch, pack, call):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "hostile.pth"
    path.write_bytes(pack(pickle.dumps({"weight": Hostile(*call)}, 2)))
    with pytest.raises(pickle.UnpicklingError, match="it names"):
        read_tensors(path)
    assert [file.name for file in tmp_path.iterdir()] == ["hostile.pth"]


class Storage:
    """Stands in a pickle for numbers of a file."""

    def __init__(self, length, key="0"):
        self.length, self.key = length, key


class Pickler(pickle.Pickler):
    def persistent_id(self, value):
        if isinstance(value, Storage):
            return ("storage", torch.FloatStorage, value.key, "cpu", value.length)
        return None


def claimed(length, offset, shape, stride, count=1):
    """A file of at most ten thousand numbers whose tensors claim to be something."""
    storage, memory = Storage(length), io.BytesIO()
    rebuild = torch._utils._rebuild_tensor_v2
    empty = collections.OrderedDict()
    tensors = {
        f"t{k}": Hostile(rebuild, storage, offset, shape, stride, False, empty)  # noqa: FBT003
        for k in range(count)
    }
    Pickler(memory, 2).dump(tensors)
    return as_archive(memory.getvalue(), min(length, 10_000))


@pytest.mark.parametrize(
    "claim",
    [
        (10**12, 0, (10**12,), (1,)),
        (4, 0, (5,), (1,)),
        (4, 1, (4,), (1,)),
        (4, -1, (4,), (1,)),
        (4, 0, (10**6, 10**6), (0, 0)),
        (4, 3, (4,), (-1,)),
        (4, 0, (2.0, 2), (2, 1)),
        (4, 0, (2, 2), (1,)),
        (4, 0, [4], [1]),
        (10_000, 0, (100, 100), (1, 100), 50),
    ],
)
def test_sizes_are_checked_before_memory_is_taken(tmp_path, claim):
    path = tmp_path / "a.pth"
    path.write_bytes(claimed(4, 0, (2, 2), (2, 1)))
    assert read_tensors(path)["t0"].shape == (2, 2)
    path.write_bytes(claimed(*claim))
    with pytest.raises((pickle.UnpicklingError, ValueError)):
        read_tensors(path)


def test_a_compressed_archive_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", bytes(10**6))
    with pytest.raises(pickle.UnpicklingError, match="compressed"):
        read_tensors(tmp_path / "a.pth")


@pytest.mark.parametrize("pack", [as_archive, as_sequence])
@pytest.mark.parametrize(
    ("instructions", "reason"),
    [
        (b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b".", "later protocol|expected"),
        (b"\x80\x05\x96" + (4).to_bytes(8, "little") + b"abcd.", "later protocol"),
        (b"\x80\x02Nr" + (2**32 - 1).to_bytes(4, "little") + b".", "more values"),
        (b"\x80\x02Np99999999999\n.", "more values"),
    ],
)
def test_instructions_that_take_memory_are_refused(tmp_path, pack, instructions, reason):
    path = tmp_path / "a.pth"
    path.write_bytes(pack(instructions))
    with pytest.raises((pickle.UnpicklingError, ValueError), match=reason):
        read_tensors(path)


@settings(max_examples=100, deadline=None)
@example(b"\0\0\0\x96", 11, False)  # noqa: FBT003
@given(st.binary(max_size=60), st.integers(0, 400), st.booleans())
def test_damage_is_an_error_or_changes_numbers(tmp_path_factory, noise, place, archive):
    path = tmp_path_factory.mktemp("damaged") / "a.pth"
    torch.save({"weight": torch.ones(3, 4)}, path, _use_new_zipfile_serialization=archive)
    data = bytearray(path.read_bytes())
    data[place : place + len(noise)] = noise
    path.write_bytes(data)
    try:
        found = read_tensors(path)
    except Exception as error:  # noqa: BLE001 - of any kind, but no crash
        assert not isinstance(error, MemoryError)  # noqa: PT017
    else:
        assert sum(value.nbytes for value in found.values()) <= len(data)
