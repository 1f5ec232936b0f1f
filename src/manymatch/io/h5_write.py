"""Keypoints and matches as hloc's .h5 files."""

from __future__ import annotations

import dataclasses
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch import _files
from manymatch._validate import FloatArray, float_array, integer, refusal
from manymatch.io._correspondences import correspondences, image_name
from manymatch.io.h5 import FEATURES, MATCHES, pair_names, require_h5py

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import ArrayLike

    from manymatch.io._correspondences import Correspondences


@dataclasses.dataclass(frozen=True, eq=False)
class _Image:
    """What one image's group holds."""

    name: str
    points: FloatArray
    scores: FloatArray | None
    size: tuple[int, int] | None


def write_hloc(
    features_path: str | os.PathLike[str],
    matches_path: str | os.PathLike[str],
    name0: str,
    name1: str,
    keypoints0: ArrayLike,
    keypoints1: ArrayLike,
    matches: ArrayLike,
    *,
    match_scores: ArrayLike | None = None,
    scores0: ArrayLike | None = None,
    scores1: ArrayLike | None = None,
    size0: tuple[int, int] | None = None,
    size1: tuple[int, int] | None = None,
) -> None:
    """Add one pair to hloc's files of features and of matches, which are made if needed.

    The file of features has one group per image, ``<name>``, with ``keypoints`` (N, 2) float32
    and, where given, ``scores`` (N,) float32 and ``image_size`` (2,) int64, width and height.
    hloc's keypoints have the centre of the top-left pixel at (0, 0), like ours; it adds half a
    pixel itself when it fills COLMAP's database. The file of matches has one group per pair,
    ``<name0>/<name1>`` with "-" for "/" in the names, with ``matches0`` (N0,) int32, the index
    into the keypoints of image 1 or -1, and, where given, ``matching_scores0`` (N0,) float32.
    `read_hloc` reads both.

    An existing file is copied, changed and renamed, so that it is never seen half-written; a pair
    that it holds is replaced. The features are in place before the matches are.

    Parameters
    ----------
    features_path, matches_path
        Two files, in existing folders.
    name0, name1
        Names of the images: paths below the folder of images, with "/".
    keypoints0, keypoints1 : (N0, 2) and (N1, 2) array_like
        Pixels.
    matches : (M, 2) array_like of integers
        Index into keypoints0, index into keypoints1; none of keypoints0 twice.
    match_scores : (M,) array_like, optional
        One number per match, larger is better.
    scores0, scores1 : (N0,) and (N1,) array_like, optional
        Scores of the detector.
    size0, size1 : (int, int), optional
        Width and height in pixels.

    Raises
    ------
    ValueError
        If an argument does not fit, an existing file is no .h5 file, or it holds other keypoints
        of one of the images, to which its other matches refer.
    ImportError
        If h5py is not installed.
    """
    pair = correspondences(keypoints0, keypoints1, matches, match_scores, "match_scores")
    images = [
        _image("0", name0, pair.points0, scores0, size0),
        _image("1", name1, pair.points1, scores1, size1),
    ]
    features = _files.as_path(features_path, "features_path")
    target = _files.as_path(matches_path, "matches_path")
    if features.resolve() == target.resolve():
        raise refusal("matches_path", "another file than features_path", str(target))
    # From the last to the first: the matches get their name after the keypoints they refer to.
    with _files.whole_file(target) as new_matches, _files.whole_file(features) as new_features:
        _edit(features, new_features, FEATURES, lambda file: _add_images(file, images))
        _edit(target, new_matches, MATCHES, lambda file: _add_pair(file, name0, name1, pair))


def _image(
    side: str,
    name: str,
    points: FloatArray,
    scores: ArrayLike | None,
    size: tuple[int, int] | None,
) -> _Image:
    """Check what belongs to one image."""
    label = image_name(name, f"name{side}")
    value = None
    if scores is not None:
        want = f"an array of {len(points)} numbers, one per keypoint"
        value = float_array(scores, f"scores{side}", want, (len(points),))
    if size is not None:
        if np.shape(size) != (2,):
            raise refusal(f"size{side}", "a pair (width, height) of whole numbers", size)
        size = (integer(size[0], f"size{side}", 1), integer(size[1], f"size{side}", 1))
    return _Image(label, points, value, size)


def _add_images(file: Any, images: list[_Image]) -> None:
    """Add the groups of images, or check that the file holds the same keypoints of them."""
    for image in images:
        points = image.points.astype(np.float32)
        group = file.require_group(image.name)
        if "keypoints" in group:
            if not np.array_equal(np.asarray(group["keypoints"][()])[..., :2], points):
                raise ValueError(
                    f"it holds other keypoints of {image.name!r}, to which matches may refer, "
                    "so a new file is needed"
                )
            continue
        group["keypoints"] = points
        if image.scores is not None:
            group["scores"] = image.scores.astype(np.float32)
        if image.size is not None:
            group["image_size"] = np.array(image.size, dtype=np.int64)


def _add_pair(file: Any, name0: str, name1: str, pair: Correspondences) -> None:
    """Put the matches of a pair in the place of those that the file holds, in either order."""
    for name in (*pair_names(name0, name1), *pair_names(name1, name0)):
        if name in file:
            del file[name]
    group = file.create_group(pair_names(name0, name1)[0])
    group["matches0"] = pair.partners().astype(np.int32)
    scores = pair.partner_scores()
    if scores is not None:
        group["matching_scores0"] = scores.astype(np.float32)


def _check_kind(h5py: Any, path: Path) -> None:
    """Refuse a file that h5py cannot open; afterwards its `OSError` is one of the disk."""
    try:
        h5py.File(path, "r+").close()
    except OSError as error:
        raise ValueError(str(error)) from error


def _edit(path: Path, temporary: Path, want: str, change: Callable[[Any], None]) -> None:
    """Write `temporary`: what `path` holds, if it is there, with a change."""
    h5py = require_h5py()
    try:
        if path.exists():
            shutil.copyfile(path, temporary)
            _check_kind(h5py, temporary)
        with h5py.File(temporary, "a") as file:
            change(file)
    except OSError as error:
        # h5py's own text has several lines and an address in memory.
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(error.errno, reason, str(path)) from error
    except RuntimeError as error:
        # How h5py says that the disk is full when it closes a file.
        raise OSError(f"{str(path)!r} cannot be written: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _files.unreadable(path, want, str(error) or type(error).__name__) from error
