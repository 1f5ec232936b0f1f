"""Which matches of a pair are true: by what is known, or by the epipolar lines of its pose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from manymatch import _core
from manymatch._validate import BoolArray, FloatArray, int_array, within

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from manymatch._validate import IndexArray
    from manymatch.evaluate.posed_graph import PosedGraph


def known_truth(posed: PosedGraph, matches: ArrayLike) -> BoolArray | None:
    """Look up which matches are true edges of the pair.

    Parameters
    ----------
    posed : PosedGraph
        The pair.
    matches : (M, 2) array of int
        Keypoints of image 0 and of image 1. What is no edge of the pair is not true.

    Returns
    -------
    (M,) bool, or None where the pair does not know its true edges
    """
    pairs = _matches(posed, matches)
    if posed.true_edges is None:
        return None
    graph = posed.graph
    # One number a pair of keypoints; there is no edge without a keypoint in image 1.
    step = len(graph.points1)
    true = graph.edges[posed.true_edges]
    return np.isin(pairs[:, 0] * step + pairs[:, 1], true[:, 0] * step + true[:, 1])


def epipolar_distance(posed: PosedGraph, matches: ArrayLike) -> FloatArray:
    """Sampson distance of matches under the true pose.

    Parameters
    ----------
    posed : PosedGraph
        The pair.
    matches : (M, 2) array of int
        Keypoints of image 0 and of image 1.

    Returns
    -------
    (M,) float64
        In pixels at working size, carried from the normalised plane as the estimator carries its
        threshold; infinite where a depth is not positive or there is no distance.
    """
    pairs = _matches(posed, matches)
    if not len(pairs):
        return np.zeros(0)
    x0 = posed.camera0.unproject(posed.graph.points0[pairs[:, 0]])
    x1 = posed.camera1.unproject(posed.graph.points1[pairs[:, 1]])
    pose = posed.pose
    squared, in_front = _core.sampson(x0, x1, pose.R, pose.t)
    pixel = 0.5 * (1.0 / posed.camera0.focal + 1.0 / posed.camera1.focal) * posed.pixels
    # The distance of a point at an epipole is not defined.
    return np.where(in_front & np.isfinite(squared), np.sqrt(squared) / pixel, np.inf)


def _matches(posed: PosedGraph, matches: ArrayLike) -> IndexArray:
    pairs = int_array(matches, "matches", "whole numbers of shape (M, 2)", (None, 2))
    for side, points in enumerate((posed.graph.points0, posed.graph.points1)):
        within(pairs[:, side], 0, len(points) - 1, "matches", f"keypoints of image {side}")
    return pairs
