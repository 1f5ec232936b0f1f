"""Pairs of images and lists of them: SuperGlue's text, two plain columns, all of a folder."""

from __future__ import annotations

import dataclasses
import io
import itertools
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._files import as_folder, limit, read_text, too_large, unreadable
from manymatch._validate import FloatArray, count, float_array, integer, read_only, refusal
from manymatch.geometry.camera import Camera, as_camera

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Endings, in lower case, of the files that count as images of a folder.
IMAGE_SUFFIXES = frozenset(
    {".bmp", ".jp2", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)

_WANT = "a list of image pairs"
_COLUMNS = (
    "two names, two names with two quarter turns, or these with K0 (9), K1 (9) and T_0to1 (16)"
)
# A name in quotes, which may have spaces, or a word.
_FIELD = re.compile(r'"([^"]*)"(?=\s|$)|(\S+)')
_LAST_ROW_TOLERANCE = 1e-6
# Lists round their matrices, some to four decimals; more than that is another mistake.
_ROTATION_TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """Two images to match, with cameras and true pose where they are known.

    Everything is for the images as `manymatch.io.image.load_image` returns them, that is with
    EXIF orientation undone: the cameras, the pose and the quarter turns.

    Parameters
    ----------
    name0, name1 : str
        As the list calls the images.
    path0, path1 : Path
        Their files, which need not exist.
    camera0, camera1 : Camera, optional
        Intrinsics in pixels of the images.
    R, t : (3, 3) and (3,) array_like, optional
        True pose, ``x1 = R @ x0 + t``, both or neither. R may be rounded, the nearest rotation is
        kept; t has any length but zero.
    rot0, rot1 : int
        Quarter turns, 0 to 3, counter-clockwise, that put the images upright for a network. Only
        features are computed on turned images; cameras, pose and keypoints are those of the
        images as they are.
    scene : str
        Pairs of one scene are not independent; for intervals.
    extra : mapping
        What else a data set knows, by name.

    Raises
    ------
    ValueError
        If a turn is out of its range, R is no rotation, t is zero, or one of R and t is missing.
    """

    name0: str
    name1: str
    path0: Path
    path1: Path
    camera0: Camera | None = None
    camera1: Camera | None = None
    R: FloatArray | None = None
    t: FloatArray | None = None
    rot0: int = 0
    rot1: int = 0
    scene: str = ""
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for side in "01":
            for name, kind, want in (
                ("name", str, "the name of an image"),
                ("path", Path, "a Path"),
                ("camera", Camera | None, "a Camera or None"),
            ):
                value = getattr(self, name + side)
                if not isinstance(value, kind) or value == "":
                    raise refusal(name + side, want, value)
            integer(getattr(self, f"rot{side}"), f"rot{side}", 0, 3)
        if (self.R is None) != (self.t is None):
            missing, given = ("R", "t") if self.R is None else ("t", "R")
            raise ValueError(f"{missing} must be given together with {given}, got None")
        if self.R is not None:
            object.__setattr__(self, "R", read_only(_nearest_rotation(self.R)))
            object.__setattr__(self, "t", read_only(_direction(self.t)))

    @property
    def has_truth(self) -> bool:
        """Whether the true pose is known."""
        return self.R is not None

    def __repr__(self) -> str:
        known = [
            *(["cameras"] if self.camera0 is not None and self.camera1 is not None else []),
            *(["pose"] if self.has_truth else []),
        ]
        return f"Pair({self.name0} - {self.name1}{': ' if known else ''}{', '.join(known)})"


def read_pairs(path: object, images: object) -> list[Pair]:
    """Read a list of image pairs, one pair a line.

    A line has two names; or two names and two quarter turns; or SuperGlue's "pairs with ground
    truth", ``name0 name1 rot0 rot1 K0 K1 T_0to1`` with the matrices row by row. Columns are
    separated by spaces, or by tabs where a line has any; a name with spaces needs either tabs or
    double quotes around it. Empty lines and lines that begin with ``#`` are skipped.

    Cameras and poses are those of the images as they are, not of the turned ones, as in
    SuperGlue's own lists; see `Pair`. Pixels have the centre of the top-left one at (0, 0).

    Parameters
    ----------
    path : path
        The list, UTF-8 text.
    images : path
        Folder in which the names are; a name may also be an absolute path.

    Returns
    -------
    list of Pair
        In the order of the list; images that do not exist are found out when they are read.

    Raises
    ------
    ValueError
        If the list cannot be read, has no pair or a malformed line (the first one is named by its
        number), or the folder does not exist.

    Examples
    --------
    >>> pairs = read_pairs("pairs.txt", "images")                    # doctest: +SKIP
    >>> pairs[0]                                                     # doctest: +SKIP
    Pair(a.jpg - b.jpg: cameras, pose)
    """
    folder = as_folder(images, "images")
    text = read_text(path, _WANT)
    pairs: list[Pair] = []
    most = limit("records")
    # Only at ends of lines: file names may contain other separators.
    for number, line in enumerate(io.StringIO(text, newline="\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            if len(pairs) == most:
                raise too_large("it has more pairs", "records")
            pairs.append(_pair(line.removesuffix("\n").removesuffix("\r"), folder))
        except ValueError as error:
            raise unreadable(path, _WANT, f"line {number}: {error}") from error
    if not pairs:
        raise unreadable(path, _WANT, "it has no pair")
    return pairs


def exhaustive_pairs(folder: object) -> list[Pair]:
    """Pair every image of a folder with every later one, in the order of their names.

    Parameters
    ----------
    folder : path
        Its files count that end as images do (`IMAGE_SUFFIXES`); hidden ones and subfolders do
        not.

    Raises
    ------
    ValueError
        If the folder does not exist or has fewer than two images, or more than a list may have
        pairs.
    """
    place = as_folder(folder)
    images = sorted(
        path
        for path in place.iterdir()
        if path.suffix.lower() in IMAGE_SUFFIXES
        and not path.name.startswith(".")
        and path.is_file()
    )
    if len(images) < 2:
        raise ValueError(
            f"folder must have at least two images, got {len(images)} in {str(place)!r}"
        )
    if math.comb(len(images), 2) > limit("records"):
        raise too_large(f"folder must not have more pairs of its {len(images)} images", "records")
    return [Pair(a.name, b.name, a, b) for a, b in itertools.combinations(images, 2)]


def _pair(line: str, folder: Path) -> Pair:
    names, rest = _split(line)
    if len(names) < 2 or len(rest) not in (0, 2, 36):
        given = count(len(names) + len(rest), "column")
        raise ValueError(f"it must have {_COLUMNS}, separated by spaces or tabs, got {given}")
    name0, name1 = names
    paths = folder / name0, folder / name1
    if not rest:
        return Pair(name0, name1, *paths)
    turns = [_turn(word, name) for word, name in zip(rest, ("rot0", "rot1"), strict=False)]
    if len(rest) == 2:
        return Pair(name0, name1, *paths, rot0=turns[0], rot1=turns[1])
    numbers = np.array([_number(word) for word in rest[2:]])
    T = numbers[18:].reshape(4, 4)
    if not np.allclose(T[3], (0.0, 0.0, 0.0, 1.0), rtol=0.0, atol=_LAST_ROW_TOLERANCE):
        raise ValueError(f"T_0to1 must have the last row 0 0 0 1, got {T[3].tolist()}")
    return Pair(
        name0,
        name1,
        *paths,
        camera0=as_camera(numbers[:9].reshape(3, 3), "K0"),
        camera1=as_camera(numbers[9:18].reshape(3, 3), "K1"),
        R=T[:3, :3],
        t=T[:3, 3],
        rot0=turns[0],
        rot1=turns[1],
    )


def _split(line: str) -> tuple[list[str], list[str]]:
    """Return the names, two if there are, and the words after them."""
    if "\t" in line.strip():
        columns = [column.strip() for column in line.strip().split("\t")]
        names = [column.removeprefix('"').removesuffix('"') for column in columns[:2]]
        return [name for name in names if name], " ".join(columns[2:]).split()
    found = list(_FIELD.finditer(line))
    for match in found[:2]:
        if match[2] is not None and match[2].startswith('"'):
            raise ValueError(f"a quoted name must end with a quote, got {match[2]!r}")
    fields = [match[1] if match[2] is None else match[2] for match in found]
    return [name for name in fields[:2] if name], fields[2:]


def _turn(word: str, name: str) -> int:
    if word not in {"0", "1", "2", "3"}:
        raise ValueError(f"{name} must be 0, 1, 2 or 3 quarter turns, got {word!r}")
    return int(word)


def _number(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = np.nan
    if not np.isfinite(number):
        raise ValueError(f"matrices must hold finite numbers, got {word!r}")
    return number


def _nearest_rotation(value: object) -> FloatArray:
    """Check a rounded rotation and make it exact."""
    R = float_array(value, "R", "a 3x3 rotation matrix", (3, 3))
    deviation = float(np.max(np.abs(R.T @ R - np.eye(3))))
    if not deviation <= _ROTATION_TOLERANCE or np.linalg.det(R) < 0:
        raise ValueError(
            f"R must be a rotation matrix within {_ROTATION_TOLERANCE:g}, got {R.tolist()}"
        )
    u, _, vt = np.linalg.svd(R)
    return np.ascontiguousarray(u @ vt)


def _direction(value: object) -> FloatArray:
    t = float_array(value, "t", "three numbers, not all zero", (3,))
    if not t.any():
        raise refusal("t", "three numbers, not all zero", t.tolist())
    return t
