"""What is true of the matches of a pair: by its true edges, or by its true epipolar geometry."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from manymatch_lab.checks import BoolArray, FloatArray, IndexArray, int_array
from manymatch_lab.evaluate.posed_graph import PosedGraph

# As in the estimator: least depth in baselines, and least squared slope of an epipolar line.
_MIN_DEPTH, _MIN_SLOPE = 0.01, 2.2e-16


def known_truth(posed: PosedGraph, matches: ArrayLike) -> BoolArray | None:
    """Look up which of (M, 2) matches are true edges of the pair, (M,) bool.

    A match that is not an edge of the pair is not true. None if the true edges are unknown.
    """
    pairs = _matches(posed, matches)
    if posed.true_edges is None:
        return None
    # One number a pair of keypoints; there is no edge without a keypoint in image 1.
    step = len(posed.graph.points1)
    true = posed.graph.edges[posed.true_edges]
    return np.isin(pairs[:, 0] * step + pairs[:, 1], true[:, 0] * step + true[:, 1])


def epipolar_distance(posed: PosedGraph, matches: ArrayLike) -> FloatArray:
    """Sampson distance (M,) of (M, 2) matches under the true pose, in pixels at working size.

    It is scaled from the normalised plane as the estimator scales its threshold; infinite where a
    depth is not positive or the distance is not defined.
    """
    pairs = _matches(posed, matches)
    if not len(pairs):
        return np.zeros(0)
    x0, x1 = (
        np.column_stack([camera.unproject(points[ends]), np.ones(len(ends))])
        for camera, points, ends in (
            (posed.camera0, posed.graph.points0, pairs[:, 0]),
            (posed.camera1, posed.graph.points1, pairs[:, 1]),
        )
    )
    pose = posed.pose
    with np.errstate(all="ignore"):
        lines1, lines0 = x0 @ pose.essential().T, x1 @ pose.essential()
        slope = np.square(lines0[:, :2]).sum(axis=1) + np.square(lines1[:, :2]).sum(axis=1)
        squared = np.square((x1 * lines1).sum(axis=1)) / slope
        # Depths along unit rays, in baselines, times the squared sine of the angle between them.
        b0, b1 = ((x / np.linalg.norm(x, axis=1, keepdims=True)) for x in (x0 @ pose.R.T, x1))
        cosine, p, s = -(b0 * b1).sum(axis=1), -b0 @ pose.t, b1 @ pose.t
        floor = _MIN_DEPTH * (1.0 - cosine**2)
        in_front = (p - cosine * s > floor) & (s - cosine * p > floor)
        pixel = 0.5 * (1.0 / posed.camera0.focal + 1.0 / posed.camera1.focal) * posed.pixels
        # The distance of a point at an epipole is not defined.
        defined = in_front & (slope > _MIN_SLOPE) & np.isfinite(squared)
        return np.where(defined, np.sqrt(squared) / pixel, np.inf)


def _matches(posed: PosedGraph, matches: ArrayLike) -> IndexArray:
    pairs = int_array(matches, "matches", "whole numbers of shape (M, 2)", (None, 2))
    sizes = (len(posed.graph.points0), len(posed.graph.points1))
    if np.any((pairs < 0) | (pairs >= sizes)):
        raise ValueError(f"matches must hold keypoints of {sizes[0]} and {sizes[1]}, got others")
    return pairs
