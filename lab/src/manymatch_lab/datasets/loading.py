"""Functions that loaders of data sets share, here and in other packages."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manymatch.io.files import read_bytes, read_npz, reading, unreadable
from manymatch.io.image import open_image
from manymatch.io.pairs import Pair
from manymatch_lab.checks import FloatArray, float_array, integer
from manymatch_lab.datasets.dataset import spread
from manymatch_lab.datasets.unpickle import unpickle
from manymatch_lab.numbers import paper_numbers


def place(root: Path, bases: Sequence[str], names: Sequence[str]) -> Path:
    """Return the folder below which the images are: the first base that has one of a few."""
    for base in bases:
        if any((root / base / name).is_file() for name in spread(list(names), 20)):
            return root / base
    return root / bases[0]


def relative_pose(T0: object, T1: object, name: str) -> tuple[FloatArray, FloatArray]:
    """Return R, t of ``T1 inv(T0)`` for two (4, 4) world-to-camera transforms.

    An error about a matrix (not finite, no rotation) calls it `name`.
    """
    pose = []
    for T in (T0, T1):
        matrix = float_array(T, name, "a 4x4 pose of finite numbers", (4, 4))
        if np.max(np.abs(matrix[3] - (0.0, 0.0, 0.0, 1.0))) > 1e-6:
            raise ValueError(f"{name} must have the last row 0 0 0 1, got {matrix[3].tolist()}")
        R = matrix[:3, :3]
        # A rotation has no element above one; the product of larger ones may overflow.
        large = np.max(np.abs(R)) > 2
        if large or np.max(np.abs(R.T @ R - np.eye(3))) > 1e-3 or np.linalg.det(R) < 0:
            raise ValueError(f"{name} must hold a rotation within 0.001, got {R.tolist()}")
        pose.append(matrix)
    T01 = pose[1] @ rigid_inverse(pose[0])
    return T01[:3, :3], T01[:3, 3]


def rigid_inverse(T: FloatArray) -> FloatArray:
    """Invert a rigid (4, 4) transform."""
    inverse = np.eye(4)
    inverse[:3, :3] = T[:3, :3].T
    inverse[:3, 3] = -T[:3, :3].T @ T[:3, 3]
    return inverse


def paper_list(name: str, paths: Sequence[Path]) -> bool:
    """Whether files are the lists of pairs that the paper used for a set, by their SHA-256."""
    return sorted(map(sha256, paths)) == sorted(paper_numbers("lists")[name])


def list_note(count: int, path: Path, paper: bool) -> str:
    """Say where pairs come from and whether that is the list of the paper."""
    which = "the paper's list" if paper else "another list than the paper's"
    return f"{count:,} pairs from {path.name} (SHA-256 {sha256(path)[:12]}, {which})"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, as hexadecimal text."""
    return hashlib.sha256(read_bytes(path, "a list of pairs")).hexdigest()


def read_png(path: Path, want: str) -> NDArray[Any]:
    """Read the pixels of an image file of one channel, as they are stored."""
    with open_image(path, want=want) as image:
        pixels = np.asarray(image)
    if pixels.ndim == 3:
        pixels = pixels[:, :, 0]
    if pixels.ndim != 2 or pixels.dtype.kind not in "biu":
        raise unreadable(path, want, f"its pixels are {pixels.dtype} of shape {pixels.shape}")
    return pixels


def read_index(path: object, want: str, names: Sequence[str]) -> dict[str, Any]:
    """Read named entries of a pickled dictionary, or of an .npz archive with arrays of objects.

    Nothing in the file is run. A file that is damaged, lacks an entry, or holds anything but
    arrays, containers, texts and numbers is a `ValueError`.
    """
    data = read_bytes(path, want)
    if data[:2] == b"PK":
        return read_npz(data, path, want, names, objects=_objects)
    with reading(path, want, ValueError):
        if data[:1] != b"\x80":
            raise ValueError("it is neither an archive of arrays nor a pickle of protocol 2 to 5")
        found = unpickle(data)
        if not isinstance(found, dict):
            kind = type(found).__name__
            raise ValueError(f"it holds a {kind} instead of a dictionary")  # noqa: TRY004
        lacks = next((name for name in names if name not in found), None)
        if lacks is not None:
            raise ValueError(f"it lacks the entry {lacks!r}")
        return {name: found[name] for name in names}


def indexed_pairs(
    path: Path,
    want: str,
    names: Sequence[str],
    pair_of: Callable[[dict[str, Any], Any, int], Pair],
) -> list[Pair]:
    """Read the pairs of an index: ``pair_infos`` and, by image, the entries `names`.

    `pair_of` makes the pair of the index, an entry of ``pair_infos`` and its number from 1; an
    error of it, as of looking into values of unexpected types, names the file and the pair.
    """
    info = read_index(path, want, ("image_paths", "poses", "pair_infos", *names))
    with reading(path, want, TypeError):
        rows = list(info["pair_infos"])
    pairs = []
    for number, row in enumerate(rows, 1):
        try:
            pairs.append(pair_of(info, row, number))
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            raise unreadable(path, want, f"pair {number}: {error}") from error
    return pairs


def indexed_ends(info: dict[str, Any], ends: Any) -> tuple[int, int, FloatArray, FloatArray]:
    """Check the two images of a pair of an index, and return them with its R and t."""
    first, second = (integer(k, "an index", 0, len(info["image_paths"]) - 1) for k in ends)
    return first, second, *relative_pose(info["poses"][first], info["poses"][second], "a pose")


def read_csv(path: Path, want: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Read the header of a CSV file, and its rows with their lines; all have one length."""
    with reading(path, want, UnicodeDecodeError, csv.Error):
        text = read_bytes(path, want).decode("utf-8-sig")
        lines = enumerate(csv.reader(io.StringIO(text, newline=""), strict=True), 1)
        rows = [(line, [field.strip() for field in row]) for line, row in lines if row]
    if not rows:
        raise unreadable(path, want, "it is empty")
    header = rows[0][1]
    for line, row in rows:
        if len(row) != len(header):
            reason = f"line {line}: it must have {len(header)} columns, got {len(row)}"
            raise unreadable(path, want, reason)
    return header, rows[1:]


def _objects(content: bytes) -> NDArray[Any]:
    """Read an array of objects of an archive, which is one pickle."""
    array = unpickle(content)
    if not isinstance(array, np.ndarray):
        kind = type(array).__name__
        raise ValueError(f"it holds a {kind} instead of an array of objects")  # noqa: TRY004
    return array
