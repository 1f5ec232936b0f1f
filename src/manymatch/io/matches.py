"""Matches of other tools as graphs: plain arrays and SuperGlue's .npz files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from manymatch import _files
from manymatch._validate import IndexArray, float_array, int_array
from manymatch.graph import AssociationGraph

if TYPE_CHECKING:
    import os

    from numpy.typing import ArrayLike

SUPERGLUE = "a SuperGlue .npz file (keypoints0, keypoints1, matches, match_confidence)"
SUPERGLUE_ARRAYS = ("keypoints0", "keypoints1", "matches", "match_confidence")


def graph_from_matches(
    points0: ArrayLike, points1: ArrayLike, matches: ArrayLike
) -> AssociationGraph:
    """Make a graph of a plain list of matches, one-to-one or not.

    Parameters
    ----------
    points0, points1 : (N0, 2) and (N1, 2) array_like
        Keypoints in pixels; the centre of the top-left pixel is (0, 0).
    matches : (E, 2) or (E, 3) array_like
        Index into points0, index into points1 and, with three columns, a score: larger is better.

    Returns
    -------
    AssociationGraph
        With scores: as ``similarity``, edges by decreasing score, i and j. Without: edges in the
        given order, which then counts as best first. It has no ranks, as none are known.
    """
    want = "an (E, 2) or (E, 3) array of two indices and, optionally, a score"
    columns = 3 if np.ndim(matches) == 2 and np.shape(matches)[1] == 3 else 2
    array = float_array(matches, "matches", want, (None, columns))
    edges = int_array(array[:, :2], "matches", want, (None, 2))
    if columns == 2:
        return AssociationGraph(points0, points1, edges)
    order = _by_score(edges, array[:, 2].astype(np.float32))
    return AssociationGraph(points0, points1, edges[order], array[order, 2])


def graph_from_partners(
    points0: ArrayLike, points1: ArrayLike, partner: ArrayLike, score: ArrayLike | None
) -> AssociationGraph:
    """Make a graph of the partner in image 1, or -1, of every keypoint of image 0.

    Edges are by decreasing score, i and j, or by i if there are no scores.
    """
    count = len(float_array(points0, "points0", "an (N, 2) array of pixels", (None, 2)))
    index = int_array(partner, "matches", f"an array of {count} indices or -1", (count,))
    if index.size and index.min() < -1:
        row = int(np.argmin(index))
        raise ValueError(f"matches must hold indices or -1, got {index[row]} in row {row}")
    left = np.flatnonzero(index >= 0)
    edges = np.stack([left, index[left]], axis=1)
    if score is None:
        return AssociationGraph(points0, points1, edges)
    want = f"an array of {count} numbers"
    value = float_array(score, "match_confidence", want, (count,), finite=False)[left]
    order = _by_score(edges, value.astype(np.float32))
    return AssociationGraph(points0, points1, edges[order], value[order])


def read_superglue(path: str | os.PathLike[str]) -> AssociationGraph:
    """Read the matches of one pair as SuperGlue's demo writes them.

    The confidence becomes ``similarity``. SuperGlue's keypoints have the centre of the top-left
    pixel at (0, 0), like ours, in pixels of the resized image it worked on.

    Raises
    ------
    ValueError
        If the file is missing, damaged or something else.
    """
    data = _files.read_bytes(path, SUPERGLUE)
    arrays = _files.read_npz(data, path, SUPERGLUE, SUPERGLUE_ARRAYS)
    try:
        return graph_from_partners(*(arrays[name] for name in SUPERGLUE_ARRAYS))
    except (ValueError, TypeError) as error:
        raise _files.unreadable(path, SUPERGLUE, str(error)) from error


def _by_score(edges: IndexArray, score: np.ndarray[tuple[int], np.dtype[np.float32]]) -> IndexArray:
    """Order of edges by decreasing score, i and j."""
    return np.lexsort((edges[:, 1], edges[:, 0], -score)).astype(np.int64)
