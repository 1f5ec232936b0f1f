"""What the loaders share: finding files below a root, a spread of images, relative poses."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._files import as_path, unreadable
from manymatch._validate import FloatArray, float_array
from manymatch.io.image import open_image

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from manymatch.datasets.dataset import Dataset

#: Images of a check: enough to meet every scene, few enough for a slow disk.
SPREAD = 200


def root_folder(root: object, name: str) -> Path:
    """Check the folder a data set is in."""
    if root is None:
        raise ValueError(
            f"root must be the folder of {name}, got None "
            f"(`manymatch datasets {name}` says what it has to contain)"
        )
    folder = as_path(root, "root")
    if not folder.is_dir():
        raise ValueError(f"root must be an existing folder, got {str(folder)!r}")
    return folder


def find_file(root: Path, candidates: Iterable[str], what: str) -> Path:
    """Return the first candidate that exists, or say that none does."""
    candidates = list(candidates)
    for candidate in candidates:
        if (root / candidate).is_file():
            return root / candidate
    others = f" (or {', '.join(candidates[1:])})" if candidates[1:] else ""
    raise ValueError(f"root must have {what} {candidates[0]}{others}, got {str(root)!r} without it")


def place(root: Path, bases: Sequence[str], names: Sequence[str]) -> Path:
    """Return the folder below which the images are: the first base that has one of a few."""
    for base in bases:
        if any((root / base / name).is_file() for name in spread(list(names), 20)):
            return root / base
    return root / bases[0]


def spread(items: Sequence[Any], count: int = SPREAD) -> list[Any]:
    """Take up to `count` items, evenly, the first and the last among them."""
    if len(items) <= count:
        return list(items)
    return [items[i] for i in np.unique(np.linspace(0, len(items) - 1, count).round().astype(int))]


def missing_image(dataset: Dataset) -> str | None:
    """Name the first image of a spread over the pairs that is not there."""
    for pair in spread(dataset.pairs):
        for path in (pair.path0, pair.path1):
            if not path.is_file():
                return f"the image {path} is missing"
    return None


def missing_depth(dataset: Dataset, count: int = 6) -> str | None:
    """Say what is wrong with the first depth of a few pairs that cannot be read."""
    if dataset.depth is None:
        return None
    for pair in spread(dataset.pairs, count):
        for side in (0, 1):
            try:
                dataset.depth(pair, side)
            except ValueError as error:
                return str(error)
    return None


def wrong_count(dataset: Dataset, expected: Sequence[int]) -> str | None:
    """Say that the lists have another number of pairs than they should."""
    if len(dataset) in expected:
        return None
    wanted = " or ".join(f"{n:,}" for n in expected)
    return f"the lists of {dataset.title} have {len(dataset):,} pairs instead of {wanted}"


def first_fault(load: Callable[[], Dataset], *tests: Callable[[Dataset], str | None]) -> str | None:
    """Load, then run tests until one complains; a loader's own error is the first complaint."""
    try:
        dataset = load()
    except ValueError as error:
        return str(error)
    return next((fault for test in tests if (fault := test(dataset)) is not None), None)


def rigid_inverse(T: FloatArray) -> FloatArray:
    """Invert a rigid (4, 4) transform."""
    inverse = np.eye(4)
    inverse[:3, :3] = T[:3, :3].T
    inverse[:3, 3] = -T[:3, :3].T @ T[:3, 3]
    return inverse


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
        if not np.max(np.abs(R.T @ R - np.eye(3))) <= 1e-3 or np.linalg.det(R) < 0:
            raise ValueError(f"{name} must hold a rotation within 0.001, got {R.tolist()}")
        pose.append(matrix)
    T01 = pose[1] @ rigid_inverse(pose[0])
    return T01[:3, :3], T01[:3, 3]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, as hexadecimal text."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_png(path: Path, want: str) -> NDArray[Any]:
    """Read the pixels of an image file of one channel, as they are stored."""
    with open_image(path, want=want) as image:
        pixels = np.asarray(image)
    if pixels.ndim == 3:
        pixels = pixels[:, :, 0]
    if pixels.ndim != 2 or pixels.dtype.kind not in "biu":
        raise unreadable(path, want, f"its pixels are {pixels.dtype} of shape {pixels.shape}")
    return pixels
