"""Keypoints and matches as text for COLMAP's feature_importer and matches_importer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from manymatch._validate import FloatArray, float_array
from manymatch.geometry.camera import COLMAP_PIXEL_CENTRE
from manymatch.io import files
from manymatch.io.matches import ImageRecord, PairMatches, PairWriter, image_name

if TYPE_CHECKING:
    import contextlib
    from pathlib import Path

    from numpy.typing import ArrayLike

# COLMAP takes nothing but SIFT's length here; matches that are imported do not use descriptors.
_DESCRIPTOR_SIZE = 128
_SCALE, _ORIENTATION = 1.0, 0.0
_MATCHES = "matches.txt"


class ColmapWriter(PairWriter):
    """Writes keypoints and matches of any number of pairs as text that COLMAP imports.

    ``matches.txt`` is for ``colmap matches_importer --match_type raw``: per pair a line
    ``name0 name1``, one line of two indices per match, and an empty line. ``<name>.txt`` is for
    ``colmap feature_importer``, see `write_colmap_features`; it is written once per image, in
    pixels of the image as it is stored, which is how COLMAP reads it whatever EXIF says. COLMAP
    splits lines at spaces, so names have none.

    Use it in a ``with`` statement, once for all pairs. ``matches.txt`` gets its name when the
    block ends without an error; until then, an older one stays as it was.

    Parameters
    ----------
    folder
        An existing folder.

    Examples
    --------
    >>> with ColmapWriter("out") as writer:                           # doctest: +SKIP
    ...     writer.add("a.jpg", "b.jpg", PairMatches(keypoints0, keypoints1, matches))
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__()
        self._folder = files.as_folder(folder, output=True)

    @property
    def path(self) -> Path:
        """The file of matches."""
        return self._folder / _MATCHES

    @property
    def files(self) -> dict[str, Path]:
        """The files by what they are."""
        return {"colmap": self.path}

    def _open(self, stack: contextlib.ExitStack) -> None:
        temporary = stack.enter_context(files.whole_file(self.path))
        self._file = stack.enter_context(temporary.open("xb"))

    def _add_image(self, image: ImageRecord, points: FloatArray) -> None:
        write_colmap_features(self._folder, image.name, points)

    def _add_pair(self, image0: ImageRecord, image1: ImageRecord, pair: PairMatches) -> None:
        lines = [f"{image0.name} {image1.name}"]
        lines += [f"{i} {j}" for i, j in pair.matches.tolist()]
        self._file.write("\n".join([*lines, "", ""]).encode("utf-8"))

    @staticmethod
    def check_name(name: str, argument: str) -> str:
        """Check the name of an image: COLMAP splits lines at spaces, and matches.txt is taken."""
        if len(image_name(name, argument).split()) != 1 or name != name.strip():
            raise ValueError(
                f"{argument} must have no spaces, which COLMAP splits at, got {name!r}"
            )
        if any(len(os.fsencode(part)) > files.LONGEST_NAME for part in f"{name}.txt".split("/")):
            raise ValueError(
                f"{argument} must leave room for .txt in a file name of {files.LONGEST_NAME} "
                f"bytes, got {name!r}"
            )
        if f"{name}.txt" == _MATCHES:
            raise ValueError(
                f"{argument} must leave the file {_MATCHES} to the matches, got {name!r}"
            )
        return name


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
    target = files.as_folder(folder, output=True) / f"{image_name(name, 'name')}.txt"
    target.parent.mkdir(parents=True, exist_ok=True)
    files.write_whole(target, lambda file: file.write(text))
    return target


def _text(points: FloatArray) -> bytes:
    rest = f" {_SCALE:g} {_ORIENTATION:g}" + " 0" * _DESCRIPTOR_SIZE
    lines = [f"{len(points)} {_DESCRIPTOR_SIZE}"]
    lines += [f"{x!r} {y!r}{rest}" for x, y in (points + COLMAP_PIXEL_CENTRE).tolist()]
    return ("\n".join(lines) + "\n").encode("ascii")
