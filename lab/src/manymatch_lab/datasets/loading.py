"""What loaders of data sets share, here and in other packages: checks of folders and images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch.io.files import as_folder, unreadable
from manymatch.io.image import open_image

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from manymatch._validate import FloatArray
    from manymatch_lab.datasets.dataset import Dataset

#: Images of a check: enough to meet every scene, few enough for a slow disk.
SPREAD = 200


def root_folder(root: object, name: str) -> Path:
    """Check the folder a data set is in."""
    if root is None:
        raise ValueError(
            f"root must be the folder of {name}, got None "
            f"(`manymatch datasets {name}` says what it has to contain)"
        )
    return as_folder(root, "root")


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


def first_fault(load: Callable[[], Dataset], *tests: Callable[[Dataset], str | None]) -> str | None:
    """Load a data set and return the error of the loader or the first fault that a test finds."""
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


def read_png(path: Path, want: str) -> NDArray[Any]:
    """Read the pixels of an image file of one channel, as they are stored."""
    with open_image(path, want=want) as image:
        pixels = np.asarray(image)
    if pixels.ndim == 3:
        pixels = pixels[:, :, 0]
    if pixels.ndim != 2 or pixels.dtype.kind not in "biu":
        raise unreadable(path, want, f"its pixels are {pixels.dtype} of shape {pixels.shape}")
    return pixels
