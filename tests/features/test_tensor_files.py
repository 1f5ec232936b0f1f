"""Files of tensors: as torch reads them where they are whole, one sentence where they are not."""

from __future__ import annotations

import io
import json
import pickle
import struct
import subprocess
import sys
import zipfile
from collections import Counter, OrderedDict, deque
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from manymatch.features.registry import models  # noqa: E402
from manymatch.features.tensor_files import WeightsError, read_tensors  # noqa: E402
from manymatch.features.weights import packaged_file  # noqa: E402
from tests.support.tiny_networks import one_sentence  # noqa: E402

STATE = {
    "weight": torch.arange(12.0).reshape(3, 4),
    "turned": torch.arange(6.0).reshape(2, 3).T,
    "half": torch.tensor([0.5, -1.5]).half(),
    "brain": torch.tensor([1.0, 2.0]).bfloat16(),
    "count": torch.tensor(7),
    "mask": torch.tensor([True, False]),
    "none": torch.zeros(0, 3),
}


def whole(state, suffix, *, legacy=False):
    """Bytes of a file."""
    if suffix == ".safetensors":
        return safetensors.save({key: value.contiguous() for key, value in state.items()})
    buffer = io.BytesIO()
    torch.save(state, buffer, _use_new_zipfile_serialization=not legacy)
    return buffer.getvalue()


KINDS = {
    "zip": whole(STATE, ".pth"),
    "entry": whole({"model": STATE, "epoch": 3}, ".pth"),
    "legacy": whole(STATE, ".pth", legacy=True),
    "safetensors": whole(STATE, ".safetensors"),
}


def written(folder, kind, data):
    suffix = ".safetensors" if kind == "safetensors" else ".pth"
    path = folder / f"file{suffix}"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", [".pth", ".pt", ".bin", ".ckpt", ".PTH"])
def test_whole_files(tmp_path, kind, suffix):
    path = written(tmp_path, kind, KINDS[kind])
    if kind != "safetensors":
        path = path.rename(path.with_suffix(suffix))
    got = read_tensors(path, "model" if kind == "entry" else None)
    assert list(got) == list(STATE) or kind == "safetensors"
    for name, value in STATE.items():
        assert got[name].dtype == value.dtype
        assert torch.equal(got[name], value), name


@pytest.mark.parametrize("legacy", [False, True])
def test_modules_parameters_shared_storages_and_entries(tmp_path, legacy):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    path = tmp_path / "x.pt"
    shared = torch.arange(20.0)
    views = {"all": shared, "middle": shared[5:9], "steps": shared[::4]}
    for content, key, expected in (
        (module.state_dict(), None, module.state_dict()),
        (dict(module.named_parameters()), None, dict(module.named_parameters())),
        (views, None, views),
        ({"model": views, "epoch": 3, "args": {"lr": 0.1}}, "model", views),
        ({"model": views, "other": pytest.approx}, "model", views),
    ):
        torch.save(content, path, _use_new_zipfile_serialization=not legacy)
        got = read_tensors(path, key)
        assert set(got) == set(expected)
        assert all(torch.equal(got[name], value) for name, value in expected.items())


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("legacy", [False, True])
def test_protocols_and_what_stands_beside_the_tensors(tmp_path, protocol, legacy):
    """Sets, objects, bytes and values that contain themselves are passed over."""
    path = tmp_path / "x.pt"
    loop: tuple[list[object]] = ([],)
    loop[0].append(loop)
    beside = {
        "objects": [io.BytesIO(b"x"), Path("a"), Counter("ab"), OrderedDict(a=1), deque([1])],
        "sets": [{1, 2}, frozenset("ab")],
        "values": [
            b"x",
            bytearray(b"y"),
            2**80,
            -1,
            0.5,
            None,
            True,
            (),
            (1, 2, 3, 4),
            {(1, 2): 3},
        ],
        "loop": loop,
        "range": range(3),
    }
    torch.save(
        {**beside, "model": STATE},
        path,
        pickle_protocol=protocol,
        _use_new_zipfile_serialization=not legacy,
    )
    got = read_tensors(path, "model")
    assert all(torch.equal(got[name], value) for name, value in STATE.items())


@pytest.mark.parametrize(
    ("key", "says"),
    [(3, "its entry 3"), ((1, 2), "its entry of type tuple"), (0.5, "of type float")],
)
def test_names_of_tensors_are_text(tmp_path, key, says):
    path = tmp_path / "x.pt"
    torch.save({"a": torch.zeros(1), key: torch.zeros(1)}, path)
    refused(path, f"{says}.* is no tensor")


def test_ordered_dictionaries_of_python_2(tmp_path):
    """They are called with a list of pairs, and their texts are bytes."""
    path = tmp_path / "x.pth"
    tensor = tensor_pickle(1, (1,), (1,)).partition(b"X\x01\x00\x00\x00a")[2]
    tensor = tensor[2:].removesuffix(b"s.")
    start = b"\x80\x02ccollections\nOrderedDict\n]]("
    path.write_bytes(pickle_in_zip(start + b"U\x01b" + tensor + b"ea\x85R.", r0=bytes(4)))
    assert read_tensors(path)["b"].tolist() == [0.0]
    path.write_bytes(pickle_in_zip(start + b"U\x01bea\x85R."))
    refused(path, "a key without a value")


def test_packaged_files_are_read_as_torch_reads_them():
    seen = 0
    for model in models().values():
        path = packaged_file(model.import_name, model.file) if model.package else None
        if path is None:
            continue
        key = "extractor" if model.name == "disk" else None
        expected = torch.load(path, weights_only=True, map_location="cpu")
        expected = expected if key is None else expected[key]
        got = read_tensors(path, key)
        assert list(got) == list(expected)
        assert all(torch.equal(got[name], expected[name]) for name in got)
        seen += 1
    if not seen:
        pytest.skip("no package with weights is installed")


def refused(path, part="weights must be"):
    with pytest.raises(WeightsError, match=part) as error:
        read_tensors(path)
    one_sentence(error)


def outcome(path, key):
    """The sentence that refuses a file, or its tensors."""
    try:
        return "", read_tensors(path, key)
    except WeightsError as error:
        return str(error), {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mutants")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutants_are_read_or_refused(folder, kind, data):
    mutant = bytearray(KINDS[kind])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, max(len(mutant) - 1, 0)))
        action = data.draw(st.sampled_from(["byte", "cut", "insert", "repeat", "remove"]))
        if action == "byte" and mutant:
            mutant[place] = data.draw(st.integers(0, 255))
        elif action == "cut":
            del mutant[place:]
        elif action == "insert":
            mutant[place:place] = data.draw(st.binary(max_size=9))
        elif action == "repeat":
            mutant[place:place] = mutant[place : place + 40]
        else:
            del mutant[place : place + data.draw(st.integers(1, 40))]
    path = written(folder, kind, bytes(mutant))
    text, read = outcome(path, "model" if kind == "entry" else None)
    assert "\n" not in text
    assert len(text) < 900
    held = sum(value.untyped_storage().nbytes() for value in read.values())
    assert held <= len(read) * len(mutant)


def pickle_in_zip(content, **records):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x/data.pkl", content)
        for name, value in records.items():
            archive.writestr(f"x/data/{name.removeprefix('r')}", value)
    return buffer.getvalue()


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60), tail=st.binary(max_size=20))
def test_any_pickle_is_refused(folder, content, tail):
    path = folder / "any.pth"
    path.write_bytes(pickle_in_zip(b"\x80\x02}" + content + b"." + tail))
    refused(path)


def tensor_pickle(storage_count, size, stride, offset=0):
    """A state with one tensor, as torch writes it, with any numbers."""

    class Named:
        def __init__(self, name):
            self.name = name

    class Rebuilt:
        def __reduce__(self):
            storage = Named("storage")
            return (torch._utils._rebuild_tensor_v2, (storage, offset, size, stride, False, {}))

    class Pickler(pickle._Pickler):
        def persistent_id(self, value):
            if isinstance(value, Named):
                return ("storage", torch.FloatStorage, "0", "cpu", storage_count)
            return None

    buffer = io.BytesIO()
    Pickler(buffer, 2).dump({"a": Rebuilt()})
    return buffer.getvalue()


HUGE = 10**12


@pytest.mark.parametrize(
    ("count", "size", "stride", "offset"),
    [
        (HUGE, (HUGE,), (1,), 0),
        (1, (HUGE,), (0,), 0),
        (1, (HUGE,), (1,), 0),
        (1, (1,), (1,), HUGE),
        (1, (1, 1), (1,), 0),
        (1, (-1,), (1,), 0),
        (1, (2**70,), (1,), 0),
        (1, (1,) * 100, (1,) * 100, 0),
        (2, (2,), (1,), 0),
        (-1, (0,), (1,), 0),
        (1, (1.0,), (1,), 0),
    ],
)
def test_tensors_that_the_file_does_not_hold(tmp_path, count, size, stride, offset):
    path = tmp_path / "x.pth"
    content = tensor_pickle(count, size, stride, offset)
    path.write_bytes(pickle_in_zip(content, r0=b"1234"))
    refused(path)
    # The check is of these numbers: right ones are read.
    path.write_bytes(pickle_in_zip(tensor_pickle(1, (1,), (1,)), r0=b"\0\0\0\0"))
    assert read_tensors(path)["a"].tolist() == [0.0]


def test_compressed_and_overlapping_archives(tmp_path):
    path = tmp_path / "x.pth"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/data.pkl", tensor_pickle(1 << 24, (1 << 24,), (1,)))
        archive.writestr("x/data/0", bytes(1 << 26))
    refused(path, "compressed")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/notes.txt", "hello")
    refused(path, "not one of torch")


LIMITED = """
import resource, sys
import torch
from pathlib import Path
from manymatch.features.tensor_files import read_tensors, WeightsError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name in sys.argv[1:]:
    try:
        read_tensors(Path(name))
    except WeightsError as error:
        print(type(error).__name__)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_small_files_take_little_memory(tmp_path):
    """Files that announce gigabytes, of every kind, in a process that counts its memory."""
    names = ("a.pth", "b.pth", "c.safetensors", "d.safetensors", "e.pth", "f.pth", "g.pth")
    files = [tmp_path / name for name in names]
    huge = 1 << 31
    files[0].write_bytes(pickle_in_zip(tensor_pickle(huge, (huge,), (1,)), r0=b"1234"))
    legacy = bytearray(whole({"a": torch.zeros(1 << 10)}, ".pth", legacy=True))
    # The number of elements, wherever it stands as a two-byte integer or as eight bytes.
    small, large = b"M" + struct.pack("<H", 1 << 10), b"J" + struct.pack("<i", huge - 1)
    assert small in legacy
    forged = bytes(legacy).replace(small, large)
    files[1].write_bytes(forged.replace(struct.pack("<q", 1 << 10), struct.pack("<q", huge - 1)))
    header = json.dumps(
        {"a": {"dtype": "F32", "shape": [huge], "data_offsets": [0, 4 * huge]}}
    ).encode()
    files[2].write_bytes(struct.pack("<Q", len(header)) + header + b"1234")
    files[3].write_bytes(struct.pack("<Q", 1 << 60) + header)
    # Parts that are repeated by reference: long names, and dictionaries made of the same list.
    text = b"X" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20) + b"q\x00"
    files[4].write_bytes(pickle_in_zip(b"\x80\x04" + text + b"h\x00h\x00\x93" * 1000 + b"."))
    pairs = b"](" + b"".join(b"X\x04\x00\x00\x00%04dN\x86" % i for i in range(9999)) + b"e\x85q\x00"
    call = b"ccollections\nOrderedDict\nh\x00R"
    files[5].write_bytes(pickle_in_zip(b"\x80\x02" + pairs + call * 1000 + b"."))
    # Digits of a number that would take a gigabyte.
    files[6].write_bytes(pickle_in_zip(b"\x80\x02\x8b" + struct.pack("<i", 1 << 30) + b"1."))
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", LIMITED, *map(str, files)],
        capture_output=True,
        text=True,
        check=True,
    )
    *refusals, kilobytes = done.stdout.split()
    assert refusals == ["WeightsError"] * len(files)
    assert int(kilobytes) < 64 * 1024


def test_an_archive_that_claims_several_disks(tmp_path):
    """Even asking whether it is an archive raises an error of the library for archives."""
    data = bytearray(whole({"model": STATE}, ".pth"))
    locator = data.rindex(b"PK\x06\x07")
    data[locator + 16 : locator + 20] = struct.pack("<L", 2)
    path = tmp_path / "x.pth"
    path.write_bytes(data)
    with pytest.raises(zipfile.BadZipFile):
        zipfile.is_zipfile(path)
    with pytest.raises(WeightsError, match="it is damaged") as error:
        read_tensors(path, "model")
    one_sentence(error)


def test_deep_and_wide_pickles(tmp_path):
    path = tmp_path / "x.pth"
    for content in (
        b"\x80\x02" + b"(" * 10_000 + b".",
        b"\x80\x02" + b"]" * 1000 + b"a" * 999 + b".",
        # Nested tuples, each of the one before twice: as a key, hashing them would not end.
        b"\x80\x02}(" + b")" + b"q\x002" * 0 + b"".join([b"q\x00h\x00\x86"] * 200) + b"K\x01u.",
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b".",
    ):
        path.write_bytes(pickle_in_zip(content))
        refused(path)
