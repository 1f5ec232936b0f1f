"""Files of torch without torch: the same tensors, only of published files, and none runs code."""

import collections
import functools
import io
import os
import pickle
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manymatch.features import weight_files
from manymatch.features.detectors.xfeat import build_xfeat
from manymatch.features.device import weights_hash
from manymatch.features.network import Tensors
from manymatch.features.registry import models
from manymatch.features.weight_files import WeightsError, read_tensors
from manymatch.features.weights import load_network

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


MODEL = models()["xfeat"]


@pytest.mark.parametrize("pack", [as_archive, as_sequence])
def test_other_files_than_the_published_one_are_read_by_torch(tmp_path, monkeypatch, pack):
    """It refuses everything but tensors, and checks sizes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(weight_files, "read_tensors", None)
    path = tmp_path / "own.pth"
    build = functools.partial(load_network, MODEL, build_xfeat, weights=path)
    state = {name: torch.from_numpy(x) for name, x in random_xfeat().tensors.used.items()}
    torch.save(state, path, _use_new_zipfile_serialization=pack is as_archive)
    assert weights_hash(build()[0]) == weights_hash(random_xfeat())
    path.write_bytes(pack(pickle.dumps({"weight": Hostile(os.mkdir, "made")}, 2)))
    with pytest.raises(WeightsError, match=r"it holds code or objects|it is damaged"):
        build()
    assert [file.name for file in tmp_path.iterdir()] == ["own.pth"]
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match="weights other than the published file"):
        build()


def random_xfeat():
    return build_xfeat(Tensors(None))[0]
