"""Matches and keypoints as text that COLMAP's feature_importer and matches_importer read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from manymatch import _files
from manymatch._validate import float_array
from manymatch.geometry.camera import COLMAP_PIXEL_CENTRE
from manymatch.io._correspondences import image_name, index_pairs

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from numpy.typing import ArrayLike

# COLMAP takes nothing but SIFT's length here; matches that are imported do not use descriptors.
_DESCRIPTOR_SIZE = 128
_SCALE, _ORIENTATION = 1.0, 0.0


def write_colmap_matches(
    path: str | os.PathLike[str],
    name0: str,
    name1: str,
    matches: ArrayLike,
    *,
    append: bool = False,
) -> None:
    """Write the matches of one pair for ``colmap matches_importer --match_type raw``.

    The text is ``name0 name1``, one line of two indices per match, and an empty line. It goes with
    the keypoints of `write_colmap_features`, in the same order.

    Parameters
    ----------
    path
        File to write, in an existing folder; it changes only when all is written.
    name0, name1
        Names of the images as in COLMAP's database: paths below the folder of images. COLMAP
        splits the line at spaces, so names have none.
    matches : (M, 2) array_like of integers
        Index into the keypoints of image 0, index into those of image 1, from 0.
    append
        Keep what the file holds and add the pair at its end.
    """
    pairs = index_pairs(matches)
    names = [_unspaced(name0, "name0"), _unspaced(name1, "name1")]
    lines = [" ".join(names), *(f"{i} {j}" for i, j in pairs.tolist()), "", ""]
    text = "\n".join(lines).encode("utf-8")
    target = _files.as_path(path)
    old = target.read_bytes() if append and target.exists() else b""
    # A file from elsewhere may lack the empty line that ends its last pair.
    gap = b"" if not old or old.endswith(b"\n\n") else b"\n" if old.endswith(b"\n") else b"\n\n"
    _files.write_whole(target, lambda file: file.write(old + gap + text))


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
    xy = float_array(points, "points", "an (N, 2) array of pixels", (None, 2))
    root = _files.as_path(folder, "folder")
    if not root.is_dir():
        raise ValueError(f"folder must be an existing folder, got {str(root)!r}")
    target = root / f"{image_name(name, 'name')}.txt"
    target.parent.mkdir(parents=True, exist_ok=True)
    rest = f" {_SCALE:g} {_ORIENTATION:g}" + " 0" * _DESCRIPTOR_SIZE
    lines = [f"{len(xy)} {_DESCRIPTOR_SIZE}"]
    lines += [f"{x!r} {y!r}{rest}" for x, y in (xy + COLMAP_PIXEL_CENTRE).tolist()]
    text = "\n".join(lines) + "\n"
    _files.write_whole(target, lambda file: file.write(text.encode("ascii")))
    return target


def _unspaced(name: str, argument: str) -> str:
    """Check a name that stands in a line with others."""
    if len(image_name(name, argument).split()) != 1 or name != name.strip():
        raise ValueError(f"{argument} must have no spaces, which COLMAP splits at, got {name!r}")
    return name
