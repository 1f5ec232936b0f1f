"""Keypoints and matches as text for COLMAP's feature_importer and matches_importer."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from manymatch import _files
from manymatch._validate import FloatArray, float_array
from manymatch.geometry.camera import COLMAP_PIXEL_CENTRE
from manymatch.io.matches import PairMatches, PairWriter, image_name

if TYPE_CHECKING:
    import contextlib
    from pathlib import Path

    from numpy.typing import ArrayLike

# COLMAP takes nothing but SIFT's length here; matches that are imported do not use descriptors.
_DESCRIPTOR_SIZE = 128
_SCALE, _ORIENTATION = 1.0, 0.0
_MATCHES = "matches.txt"
_BLOCK_BYTES = 1_000_000


class ColmapWriter(PairWriter):
    """Writes keypoints and matches of any number of pairs as text that COLMAP imports.

    ``matches.txt`` is for ``colmap matches_importer --match_type raw``: per pair a line
    ``name0 name1``, one line of two indices per match, and an empty line. ``<name>.txt`` is for
    ``colmap feature_importer``, see `write_colmap_features`; it is written once per image.

    Use it in a ``with`` statement. ``matches.txt`` gets its name when the block ends without an
    error; until then, an older one stays as it was.

    Parameters
    ----------
    folder
        An existing folder.
    append
        Keep the pairs that ``matches.txt`` has. Then the keypoints of an image whose text is there
        already must be the same.

    Examples
    --------
    >>> with ColmapWriter("out") as writer:                           # doctest: +SKIP
    ...     writer.add("a.jpg", "b.jpg", PairMatches(keypoints0, keypoints1, matches))
    """

    def __init__(self, folder: str | os.PathLike[str], *, append: bool = False) -> None:
        self._folder = _files.as_folder(folder)
        self._append = append
        # Of the keypoints that were written, by image; they themselves may not fit into memory.
        self._features: dict[str, bytes] = {}

    @property
    def path(self) -> Path:
        """The file of matches."""
        return self._folder / _MATCHES

    def _open(self, stack: contextlib.ExitStack) -> None:
        temporary = stack.enter_context(_files.whole_file(self.path))
        self._file = stack.enter_context(temporary.open("xb"))
        if self._append and self.path.exists():
            end = b""
            with (
                _files.reading(self.path, "a file of matches", ValueError),
                _files.open_regular(self.path) as old,
            ):
                while block := old.read(_BLOCK_BYTES):
                    self._file.write(block)
                    end = (end + block)[-2:]
            # A file from elsewhere may lack the empty line that ends its last pair.
            there = len(end) - len(end.rstrip(b"\n"))
            self._file.write(b"\n" * (2 - there) if end else b"")

    def add(self, name0: str, name1: str, pair: PairMatches) -> None:
        """Add one pair.

        Parameters
        ----------
        name0, name1
            Names of the images as in COLMAP's database: paths below the folder of images. COLMAP
            splits lines at spaces, so names have none.
        pair
            Keypoints and matches; nothing else of it is written.

        Raises
        ------
        ValueError
            If a name has spaces, or other keypoints of an image were written before.
        """
        names = colmap_name(name0, "name0"), colmap_name(name1, "name1")
        for name, points in zip(names, (pair.keypoints0, pair.keypoints1), strict=True):
            self._add_features(name, points)
        lines = [" ".join(names), *(f"{i} {j}" for i, j in pair.matches.tolist()), "", ""]
        self._file.write("\n".join(lines).encode("utf-8"))

    def _add_features(self, name: str, points: FloatArray) -> None:
        """Write the keypoints of an image, or check that they are those written before."""
        path = self._folder / f"{name}.txt"
        digest = hashlib.sha256(points.tobytes()).digest()
        if name in self._features:
            same = self._features[name] == digest
        else:
            same = not (self._append and path.exists()) or _has(path, _text(points))
        if not same:
            raise ValueError(
                f"pair must have the keypoints of {name!r} that were written before, to which "
                "other matches refer, got others"
            )
        if name not in self._features:
            write_colmap_features(self._folder, name, points)
            self._features[name] = digest


def write_colmap_features(folder: str | os.PathLike[str], name: str, points: ArrayLike) -> Path:
    """Write the keypoints of one image for ``colmap feature_importer``.

    The file is ``<folder>/<name>.txt``, where COLMAP looks for it: a line ``N 128``, then one line
    ``x y scale orientation`` and 128 descriptor entries per keypoint. The scale is 1, the
    orientation and the descriptor 0. COLMAP has the centre of the top-left pixel at (0.5, 0.5), so
    half a pixel is added to x and y here.

    Parameters
    ----------
    folder
        An existing folder; folders in the name are made.
    name
        Name of the image as in COLMAP's database: its path below the folder of images.
    points : (N, 2) array_like
        Keypoints in pixels; the centre of the top-left one is (0, 0).

    Returns
    -------
    Path
        The file, which appears under its name only when it is complete.
    """
    text = _text(float_array(points, "points", "an (N, 2) array of pixels", (None, 2)))
    target = _files.as_folder(folder) / f"{image_name(name, 'name')}.txt"
    target.parent.mkdir(parents=True, exist_ok=True)
    _files.write_whole(target, lambda file: file.write(text))
    return target


def _has(path: Path, text: bytes) -> bool:
    """Tell whether a file holds exactly this text."""
    with _files.reading(path, "a text of keypoints", ValueError), _files.open_regular(path) as file:
        return file.read(len(text) + 1) == text


def _text(points: FloatArray) -> bytes:
    rest = f" {_SCALE:g} {_ORIENTATION:g}" + " 0" * _DESCRIPTOR_SIZE
    lines = [f"{len(points)} {_DESCRIPTOR_SIZE}"]
    lines += [f"{x!r} {y!r}{rest}" for x, y in (points + COLMAP_PIXEL_CENTRE).tolist()]
    return ("\n".join(lines) + "\n").encode("ascii")


def colmap_name(name: str, argument: str) -> str:
    """Check the name of an image: COLMAP splits lines at spaces, and matches.txt is taken."""
    if len(image_name(name, argument).split()) != 1 or name != name.strip():
        raise ValueError(f"{argument} must have no spaces, which COLMAP splits at, got {name!r}")
    if any(len(os.fsencode(part)) > _files.LONGEST_NAME for part in f"{name}.txt".split("/")):
        raise ValueError(
            f"{argument} must leave room for .txt in a file name of {_files.LONGEST_NAME} bytes, "
            f"got {name!r}"
        )
    if f"{name}.txt" == _MATCHES:
        raise ValueError(f"{argument} must leave the file {_MATCHES} to the matches, got {name!r}")
    return name
