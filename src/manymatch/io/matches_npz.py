"""Resolved matches of one pair as one .npz file without pickled objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch import _files
from manymatch._validate import refusal
from manymatch.geometry.pose import RelativePose
from manymatch.io._correspondences import correspondences
from manymatch.io.matches import graph_from_partners
from manymatch.io.pose_json import to_json

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from manymatch.graph import AssociationGraph

MATCHES_NPZ = "an .npz file of matches (keypoints0, keypoints1, matches, matches0)"
MATCHES_ARRAYS = ("keypoints0", "keypoints1", "matches", "matches0")
_CONFIDENCE = "match_confidence"


def write_matches_npz(
    path: str | os.PathLike[str],
    keypoints0: ArrayLike,
    keypoints1: ArrayLike,
    matches: ArrayLike,
    *,
    confidence: ArrayLike | None = None,
    pose: RelativePose | None = None,
    config: Mapping[str, Any] | None = None,
) -> None:
    """Write keypoints and resolved matches of one pair, and what they were made with.

    The file holds ``keypoints0`` (N0, 2) and ``keypoints1`` (N1, 2) float64; ``matches`` (M, 2)
    int64; ``matches0`` (N0,) int64, SuperGlue's form of the same: the index into keypoints1, or
    -1; with `confidence`, ``match_confidence`` (N0,) float32, 0 where there is no match; with
    `pose`, ``pose`` (4, 4) float64, which maps camera-0 to camera-1 coordinates; with `config`,
    ``config``, JSON as text. It appears under its name only when it is complete, and
    `read_matches_npz` and `load_graph` read it.

    Parameters
    ----------
    path
        File to write, in an existing folder.
    keypoints0, keypoints1 : (N0, 2) and (N1, 2) array_like
        Pixels; the centre of the top-left one is (0, 0).
    matches : (M, 2) array_like of integers
        Index into keypoints0, index into keypoints1; none of keypoints0 twice.
    confidence : (M,) array_like, optional
        One number per match, larger is better.
    pose : RelativePose, optional
        From camera 0 to camera 1.
    config : dict, optional
        What can be written as JSON.
    """
    pair = correspondences(keypoints0, keypoints1, matches, confidence, "confidence")
    if pose is not None and not isinstance(pose, RelativePose):
        raise refusal("pose", "a RelativePose or None", pose)
    content: dict[str, Any] = {
        "keypoints0": pair.points0,
        "keypoints1": pair.points1,
        "matches": pair.matches,
        "matches0": pair.partners(),
    }
    scores = pair.partner_scores()
    if scores is not None:
        content[_CONFIDENCE] = scores.astype(np.float32)
    if pose is not None:
        content["pose"] = pose.matrix()
    if config is not None:
        content["config"] = np.array(to_json(config, "config"))
    _files.write_whole(path, lambda f: np.savez_compressed(f, allow_pickle=False, **content))


def read_matches_npz(path: str | os.PathLike[str]) -> AssociationGraph:
    """Read the matches of a file of `write_matches_npz` as a graph.

    The confidence, if there is any, becomes ``similarity``.

    Raises
    ------
    ValueError
        If the file is missing, damaged or something else.
    """
    data = _files.read_bytes(path, MATCHES_NPZ)
    arrays = _files.read_npz(data, path, MATCHES_NPZ, MATCHES_ARRAYS)
    confidence = None
    if _CONFIDENCE in _files.npz_names(data, path, MATCHES_NPZ):
        confidence = _files.read_npz(data, path, MATCHES_NPZ, [_CONFIDENCE])[_CONFIDENCE]
    points = arrays["keypoints0"], arrays["keypoints1"]
    try:
        return graph_from_partners(*points, arrays["matches0"], confidence)
    except (ValueError, TypeError) as error:
        raise _files.unreadable(path, MATCHES_NPZ, str(error)) from error
