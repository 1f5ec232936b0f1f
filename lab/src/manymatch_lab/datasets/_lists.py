"""What the loaders share: lists and images in one of several places, relative poses."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from manymatch._validate import FloatArray, float_array
from manymatch.io.files import read_bytes
from manymatch_lab.datasets.loading import rigid_inverse, spread

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from manymatch_lab.datasets.dataset import Dataset


def place(root: Path, bases: Sequence[str], names: Sequence[str]) -> Path:
    """Return the folder below which the images are: the first base that has one of a few."""
    for base in bases:
        if any((root / base / name).is_file() for name in spread(list(names), 20)):
            return root / base
    return root / bases[0]


def wrong_count(dataset: Dataset, expected: Sequence[int]) -> str | None:
    """Say that the lists have another number of pairs than they should."""
    if len(dataset) in expected:
        return None
    wanted = " or ".join(f"{n:,}" for n in expected)
    return f"the lists of {dataset.title} have {len(dataset):,} pairs instead of {wanted}"


def relative_pose(T0: object, T1: object, name: str) -> tuple[FloatArray, FloatArray]:
    """Return R, t of ``T1 inv(T0)`` for two (4, 4) world-to-camera transforms.

    What is wrong with a matrix (not finite, no rotation) is said about `name`.
    """
    pose = []
    for T in (T0, T1):
        matrix = float_array(T, name, "a 4x4 pose of finite numbers", (4, 4))
        if np.max(np.abs(matrix[3] - (0.0, 0.0, 0.0, 1.0))) > 1e-6:
            raise ValueError(f"{name} must have the last row 0 0 0 1, got {matrix[3].tolist()}")
        R = matrix[:3, :3]
        # A rotation has no element above one; the product of larger ones may overflow.
        if (
            np.max(np.abs(R)) > 2
            or np.max(np.abs(R.T @ R - np.eye(3))) > 1e-3
            or np.linalg.det(R) < 0
        ):
            raise ValueError(f"{name} must hold a rotation within 0.001, got {R.tolist()}")
        pose.append(matrix)
    T01 = pose[1] @ rigid_inverse(pose[0])
    return T01[:3, :3], T01[:3, 3]


def source(count: int, path: Path, paper: str) -> str:
    """Say where pairs come from and whether that is the list of the paper, by its SHA-256."""
    digest = sha256(path)
    which = "the paper's list" if digest == paper else "another list than the paper's"
    return f"{count:,} pairs from {path.name} (SHA-256 {digest[:12]}, {which})"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, as hexadecimal text."""
    return hashlib.sha256(read_bytes(path, "a list of pairs")).hexdigest()
