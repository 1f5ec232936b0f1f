"""Pairs of images and lists of them: SuperGlue's text, plain columns, CSV, all of a folder."""

from __future__ import annotations

import csv
import dataclasses
import functools
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from manymatch import _validate
from manymatch._validate import FloatArray, IndexArray, count, refusal
from manymatch.geometry.camera import Camera, as_camera
from manymatch.io import files
from manymatch.io.remote import RemotePath, is_remote

#: Endings, in lower case, of the files that count as images of a folder.
IMAGE_SUFFIXES = frozenset(
    {
        *(".bmp", ".heic", ".heif", ".jp2", ".jpeg", ".jpg"),
        *(".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"),
    }
)

_WANT = "a list of image pairs"
_COLUMNS = "two names, maybe two quarter turns, and maybe K0 (9), K1 (9) and T_0to1 (16)"
_LAST_ROW_TOLERANCE = 1e-6
# Lists round their matrices, some to four decimals; more than that is another mistake.
_ROTATION_TOLERANCE = 1e-3
# Numbers of a line after the turns: K0, K1 and T_0to1.
_NUMBERS = 34


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
                ("path", Path | RemotePath, "a Path"),
                ("camera", Camera | None, "a Camera or None"),
            ):
                value = getattr(self, name + side)
                if not isinstance(value, kind) or value == "":
                    raise refusal(name + side, want, value)
            _validate.integer(getattr(self, f"rot{side}"), f"rot{side}", 0, 3)
        if (self.R is None) != (self.t is None):
            missing, given = ("R", "t") if self.R is None else ("t", "R")
            raise ValueError(f"{missing} must be given together with {given}, got None")
        if self.R is not None:
            t = _validate.float_array(self.t, "t", "three numbers, not all zero", (3,))
            if not t.any():
                raise refusal("t", "three numbers, not all zero", t.tolist())
            object.__setattr__(self, "R", _validate.read_only(_nearest_rotation(self.R)))
            object.__setattr__(self, "t", _validate.read_only(t))

    @property
    def has_truth(self) -> bool:
        """Whether the true pose is known."""
        return self.R is not None

    def __repr__(self) -> str:
        cameras = self.camera0 is not None and self.camera1 is not None
        known = ", ".join(["cameras"] * cameras + ["pose"] * self.has_truth)
        return f"Pair({self.name0} - {self.name1}{': ' if known else ''}{known})"


class PairImage(NamedTuple):
    """An image of a list of pairs: its name, its file and its quarter turns."""

    name: str
    path: Path
    turns: int


class PairList(Sequence[Pair]):
    """Pairs of images in a folder, each created when it is asked for; slices are lists as well.

    The name of an image is held once: a million pairs take some 20 MB.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        indices: NDArray[np.integer[Any]],
        turns: NDArray[np.integer[Any]] | None = None,
        known: Mapping[int, FloatArray] | None = None,
    ) -> None:
        self._folder, self._names = folder, names
        # (N, 2) places of the names, and quarter turns.
        self._indices = indices
        self._turns = np.zeros(indices.shape, np.int8) if turns is None else turns
        # (34,) K0, K1 and T_0to1 of some pairs.
        self._known = known or {}

    def __len__(self) -> int:
        return len(self._indices)

    def __repr__(self) -> str:
        return f"PairList({count(len(self), 'pair')} of images in {str(self._folder)!r})"

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> PairList: ...
    def __getitem__(self, index: int | slice) -> Pair | PairList:
        """Make a pair, or take some of them."""
        indices, turns, chosen = self._indices[index], self._turns[index], range(len(self))[index]
        if isinstance(chosen, range):
            inside = {chosen.index(n): self._known[n] for n in self._known if n in chosen}
            return PairList(self._folder, self._names, indices, turns, inside)
        name0, name1 = (self._names[place] for place in indices)
        rot0, rot1 = map(int, turns)
        known = _matrices(self._known[chosen]) if chosen in self._known else {}
        paths = self._folder / name0, self._folder / name1
        return Pair(name0, name1, *paths, **known, rot0=rot0, rot1=rot1)

    def __iter__(self) -> Iterator[Pair]:
        return map(self.__getitem__, range(len(self)))

    @property
    def posed(self) -> list[int]:
        """Places of the pairs with cameras and true pose."""
        return sorted(self._known)

    @functools.cached_property
    def numbered(self) -> tuple[list[PairImage], IndexArray]:
        """The images that differ by file or turns, and the (N, 2) numbers of each pair."""
        codes = 4 * self._indices.astype(np.int64) + self._turns
        values, first, inverse = np.unique(codes.ravel(), return_index=True, return_inverse=True)
        order = np.argsort(first)  # images are numbered as they appear
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        names = [(self._names[code // 4], code % 4) for code in values[order].tolist()]
        images = [PairImage(name, self._folder / name, turned) for name, turned in names]
        return images, place[inverse.ravel()].reshape(codes.shape)


def numbered(pairs: Sequence[Pair]) -> tuple[list[PairImage], IndexArray]:
    """List the images of pairs that differ in name, file or turns, in the order of the pairs.

    Returned as well are the places in that list of the images of each pair, (N, 2) int64.
    """
    if isinstance(pairs, PairList):
        return pairs.numbered
    found: dict[PairImage, int] = {}
    numbers = [
        found.setdefault(PairImage(*image), len(found))
        for pair in pairs
        for image in ((pair.name0, pair.path0, pair.rot0), (pair.name1, pair.path1, pair.rot1))
    ]
    return list(found), np.array(numbers, dtype=np.int64).reshape(-1, 2)


def posed(pairs: Sequence[Pair]) -> Sequence[int]:
    """Return the places of the pairs that have cameras or a true pose."""
    if isinstance(pairs, PairList):
        return pairs.posed
    return [
        place
        for place, pair in enumerate(pairs)
        if pair.has_truth or pair.camera0 is not None or pair.camera1 is not None
    ]


def read_pairs(path: object, images: object) -> PairList:
    """Read a list of image pairs, one pair a line.

    A line has two names; or two names and two quarter turns; or SuperGlue's "pairs with ground
    truth", ``name0 name1 rot0 rot1 K0 K1 T_0to1`` with the matrices row by row. Columns are
    separated by spaces, or by commas in a file that ends in ``.csv``, which names with spaces need.
    Empty lines and lines that begin with ``#`` are skipped, and so is the header of a ``.csv``: a
    first line whose two names have no ending such as ``.jpg``.

    Cameras and poses are those of the images as they are, not of the turned ones, as in
    SuperGlue's own lists; see `Pair`. Pixels have the centre of the top-left one at (0, 0).

    Parameters
    ----------
    path : path
        The list, UTF-8 text.
    images : path
        Folder that contains the images; a name may also be an absolute path. If the folder is an
        address such as ``s3://bucket/photos``, all names must be below it. Whether the images
        exist is not checked.

    Examples
    --------
    >>> pairs = read_pairs("pairs.txt", "images")                    # doctest: +SKIP
    >>> pairs[0]                                                     # doctest: +SKIP
    Pair(a.jpg - b.jpg: cameras, pose)
    """
    folder, source = files.as_folder(images, "images"), files.as_path(path)
    comma, remote = source.suffix.lower() == ".csv", is_remote(folder)
    names: dict[str, int] = {}
    indices, turns, known = array("i"), array("b"), dict[int, FloatArray]()
    most, letters = files.limit("records"), files.limit("text_mb") * 1_000_000
    wrong, header = (OSError, ValueError, MemoryError), comma
    with files.reading(source, _WANT, *wrong), files.open_regular(source) as file:
        for number, line in files.read_lines(file):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            try:
                both, rest = _split(text, comma)
                skipped = header and not any(PurePath(name).suffix for name in both)
                header = False
                if skipped:
                    continue
                line_turns, matrices = _columns(both, rest)
                if remote:
                    _ = [folder / name for name in both]  # refuses names outside the folder
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error
            if len(indices) == 2 * most:
                raise files.too_large("it has more pairs", "records")
            if matrices:
                files.check_size((len(known) + 1) * _NUMBERS, "its matrices")
                known[len(indices) // 2] = np.array(matrices)
            for name in both:
                if name not in names:
                    letters -= len(name)
                indices.append(names.setdefault(name, len(names)))
            if letters < 0:
                raise files.too_large("its names have more megabytes", "text_mb")
            turns.extend(line_turns)
        if not indices:
            raise ValueError("it has no pair")
    both_indices, both_turns = (np.array(column).reshape(-1, 2) for column in (indices, turns))
    return PairList(folder, list(names), both_indices, both_turns, known)


def exhaustive_pairs(folder: object) -> PairList:
    """Pair every image of a folder with every later one, in the order of their names.

    Its images are the files that end in one of `IMAGE_SUFFIXES`; hidden files and subfolders are
    ignored.
    """
    place = files.as_folder(folder)
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
    if math.comb(len(images), 2) > files.limit("records"):
        raise files.too_large(
            f"folder must not have more pairs of its {len(images)} images", "records"
        )
    indices = np.column_stack(np.triu_indices(len(images), 1)).astype(np.int32)
    return PairList(place, [path.name for path in images], indices)


def _split(line: str, comma: bool) -> tuple[list[str], list[str]]:
    """Return the names of a line, two if it has them, and the words after them."""
    fields = line.split()
    if comma:
        try:
            (cells,) = csv.reader([line], skipinitialspace=True, strict=True)
        except csv.Error as error:
            raise ValueError(f"its columns cannot be told apart: {error}") from error
        fields = [cell.strip() for cell in cells]
    return [name for name in fields[:2] if name], " ".join(fields[2:]).split()


def _columns(names: list[str], rest: list[str]) -> tuple[list[int], list[float]]:
    """Return the turns and the numbers of a line; all are checked."""
    if len(names) < 2 or len(rest) not in (0, 2, 2 + _NUMBERS):
        given = count(len(names) + len(rest), "column")
        raise ValueError(f"it must have {_COLUMNS}, got {given}")
    if not rest:
        return [0, 0], []
    for word, name in zip(rest, ("rot0", "rot1"), strict=False):
        if word not in {"0", "1", "2", "3"}:
            raise ValueError(f"{name} must be 0, 1, 2 or 3 quarter turns, got {word[:80]!r}")
    numbers = []
    for word in rest[2:]:
        try:
            numbers.append(float(word))
        except ValueError:
            numbers.append(math.nan)
        if not math.isfinite(numbers[-1]):
            raise ValueError(f"matrices must hold finite numbers, got {word[:80]!r}")
    if numbers:
        Pair(names[0], names[1], Path(), Path(), **_matrices(np.array(numbers)))
    return [int(word) for word in rest[:2]], numbers


def _matrices(numbers: FloatArray) -> dict[str, Any]:
    """Return the cameras and the pose of K0, K1 and T_0to1, as `Pair` takes them."""
    T = numbers[18:].reshape(4, 4)
    if not np.allclose(T[3], (0.0, 0.0, 0.0, 1.0), rtol=0.0, atol=_LAST_ROW_TOLERANCE):
        raise ValueError(f"T_0to1 must have the last row 0 0 0 1, got {T[3].tolist()}")
    return {
        "camera0": as_camera(numbers[:9].reshape(3, 3), "K0"),
        "camera1": as_camera(numbers[9:18].reshape(3, 3), "K1"),
        "R": T[:3, :3],
        "t": T[:3, 3],
    }


def _nearest_rotation(value: object) -> FloatArray:
    """Check a rounded rotation and make it exact."""
    R = _validate.float_array(value, "R", "a 3x3 rotation matrix", (3, 3))
    deviation = float(np.max(np.abs(R.T @ R - np.eye(3))))
    if not deviation <= _ROTATION_TOLERANCE or np.linalg.det(R) < 0:
        raise ValueError(
            f"R must be a rotation matrix within {_ROTATION_TOLERANCE:g}, got {R.tolist()}"
        )
    u, _, vt = np.linalg.svd(R)
    return np.ascontiguousarray(u @ vt)


def demo_pair(preset: str = "embedded") -> Pair:
    """Return the demo's pair: a street with a long front of nearly equal windows, seen twice.

    The photographs are rendered (``tools/street`` makes them again), so the cameras and the pose
    are exact; the translation is in metres. SIFT, the preset "classic", has another street than all
    other presets.

    Examples
    --------
    >>> pair = demo_pair()
    >>> pair.name0, pair.path0.is_file(), pair.has_truth
    ('street0.jpg', True, True)
    """
    folder = Path(__file__).parents[1] / "demo_photos"
    pair = read_pairs(folder / "pairs.txt", folder)[1 if preset == "classic" else 0]
    return dataclasses.replace(pair, scene="demo")
