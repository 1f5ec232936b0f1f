"""Files of every kind that are cut off or altered: read, or refused in one short sentence."""

import struct
import zipfile

import numpy as np
import pytest

from manymatch import AssociationGraph, RelativePose
from manymatch.io import (
    HlocWriter,
    PairMatches,
    load_graph,
    read_associations_csv,
    read_cameras,
    read_hloc,
    read_images,
    read_matches_npz,
    read_superglue,
    write_associations_csv,
    write_matches_npz,
)
from manymatch.io.matches import MATCHES_ARRAYS

P0, P1 = np.arange(8.0).reshape(4, 2), 10 + np.arange(6.0).reshape(3, 2)
MATCHES, SCORES = [[2, 0], [3, 1], [0, 2]], [0.75, 0.5, 0.25]
GRAPH = AssociationGraph(P0, P1, MATCHES, SCORES, [1, 1, 2])
POSE = RelativePose(np.eye(3), [1, 0, 0])
PAIR = PairMatches(P0, P1, MATCHES, SCORES)


def superglue(path):
    with path.open("wb") as file:
        score = np.array([0.25, 0, 0.75, 0.5], np.float32)
        arrays = {"matches": np.array([2, -1, 0, 1]), "match_confidence": score}
        np.savez(file, keypoints0=P0, keypoints1=P1, **arrays)


def hloc(path):
    pytest.importorskip("h5py")
    with HlocWriter(path.with_suffix(".features.h5"), path) as writer:
        writer.add("a", "b", PAIR)
    path.rename(path.with_suffix(".whole.h5"))
    path.with_suffix(".whole.h5").replace(path)


CAMERA = struct.pack("<IiQQ4d", 1, 1, 640, 480, 500, 510, 320, 240)
IMAGE = (
    struct.pack("<I7dI", 5, 1, 0, 0, 0, 0, 0, 1, 1) + b"a.jpg\0" + struct.pack("<Q2dQ", 1, 1, 2, 3)
)
ONE = struct.pack("<Q", 1)

# By the name of the file: who writes it, who reads it, and whether a part of it is never read.
FILES = {
    "graph.npz": (GRAPH.save, AssociationGraph.load, True),
    "any.npz": (GRAPH.save, load_graph, True),
    "superglue.npz": (superglue, read_superglue, True),
    "matches.npz": (
        lambda path: write_matches_npz(path, P0, P1, MATCHES, confidence=SCORES, pose=POSE),
        read_matches_npz, True),
    "graph.csv": (lambda path: write_associations_csv(GRAPH, path), read_associations_csv, False),
    "cameras.bin": (lambda path: path.write_bytes(ONE + CAMERA), read_cameras, True),
    "cameras.txt": (lambda path: path.write_text("1 PINHOLE 4 4 5 6 2 2\n"), read_cameras, False),
    "images.txt": (
        lambda path: path.write_text("1 1 0 0 0 0 0 0 1 a.jpg\n1 2 -1\n"), read_images, False),
    "images.bin": (lambda path: path.write_bytes(ONE + IMAGE), read_images, True),
    "hloc.h5": (
        hloc, lambda path: read_hloc(path, path.with_suffix(".features.h5"), "a", "b"), False),
}  # fmt: skip


def outcome(read, path):
    """What reading says: a sentence that begins with the argument, or nothing."""
    try:
        read(path)
    except ValueError as error:
        return str(error)
    return ""


def check(said, path):
    assert said.startswith("path must be ")
    assert str(path) in said
    assert "\n" not in said
    assert len(said) < 400 + len(str(path))


@pytest.mark.parametrize("name", FILES)
def test_file_cut_off_anywhere_is_refused(tmp_path, name):
    make, read, always = FILES[name]
    path = tmp_path / name
    make(path)
    whole = path.read_bytes()
    assert outcome(read, path) == ""
    refused = 0
    for length in range(0, len(whole), max(1, len(whole) // 300)):
        path.write_bytes(whole[:length])
        if said := outcome(read, path):
            check(said, path)
            refused += 1
        assert said or not always
    assert refused > 10


@pytest.mark.parametrize("name", FILES)
def test_altered_file_is_read_or_refused(tmp_path, name):
    make, read, _ = FILES[name]
    path, rng = tmp_path / name, np.random.default_rng(0)
    make(path)
    whole = path.read_bytes()
    refused = 0
    for place in range(0, len(whole), max(1, len(whole) // 300)):
        altered = bytearray(whole)
        altered[place] ^= int(rng.integers(1, 256))
        path.write_bytes(altered)
        if said := outcome(read, path):
            check(said, path)
            refused += 1
    assert refused > 5


def test_damaged_bzip2_stream_is_a_sentence(tmp_path):
    path = tmp_path / "m.npz"
    arrays = {name: np.zeros((90, 2)) for name in MATCHES_ARRAYS}
    np.savez(tmp_path / "sound.npz", **arrays)
    with (
        zipfile.ZipFile(tmp_path / "sound.npz") as sound,
        zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as packed,
    ):
        for name in sound.namelist():
            packed.writestr(name, sound.read(name))
    data = bytearray(path.read_bytes())
    place = data.find(b"BZh") + 4
    data[place : place + 12] = b"\xff" * 12
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"path must be an \.npz file of matches .*m\.npz"):
        read_matches_npz(path)
