"""Checks of what the writers of matches share."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from manymatch._validate import FloatArray, IndexArray, float_array, int_array, refusal

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: The partner of a keypoint that has none, as in SuperGlue and hloc.
UNMATCHED = -1


@dataclasses.dataclass(frozen=True, eq=False)
class Correspondences:
    """Checked keypoints of two images and the matches between them.

    Attributes
    ----------
    points0, points1 : (N0, 2) and (N1, 2) float64 ndarray
        Pixels.
    matches : (M, 2) int64 ndarray
        Index into points0, index into points1; no index of points0 appears twice.
    scores : (M,) float64 ndarray or None
        One number a match.
    """

    points0: FloatArray
    points1: FloatArray
    matches: IndexArray
    scores: FloatArray | None

    def partners(self) -> IndexArray:
        """Partner in image 1 of every keypoint of image 0, (N0,), -1 without one."""
        partner = np.full(len(self.points0), UNMATCHED, dtype=np.int64)
        partner[self.matches[:, 0]] = self.matches[:, 1]
        return partner

    def partner_scores(self) -> FloatArray | None:
        """Score of the match of every keypoint of image 0, (N0,), 0 without one."""
        if self.scores is None:
            return None
        scores = np.zeros(len(self.points0))
        scores[self.matches[:, 0]] = self.scores
        return scores


def correspondences(
    keypoints0: ArrayLike,
    keypoints1: ArrayLike,
    matches: ArrayLike,
    scores: ArrayLike | None,
    scores_name: str,
) -> Correspondences:
    """Check keypoints, matches and their scores, which the caller has under `scores_name`."""
    p0 = float_array(keypoints0, "keypoints0", "an (N, 2) array of pixels", (None, 2))
    p1 = float_array(keypoints1, "keypoints1", "an (N, 2) array of pixels", (None, 2))
    pairs = index_pairs(matches)
    for side, points in enumerate((p0, p1)):
        if len(pairs) and pairs[:, side].max() >= len(points):
            row = int(np.argmax(pairs[:, side]))
            raise ValueError(
                f"matches must hold indices into the {len(points)} rows of keypoints{side} in "
                f"column {side}, got {pairs[row, side]} in row {row}"
            )
    values, count = np.unique(pairs[:, 0], return_counts=True)
    if len(values) != len(pairs):
        raise ValueError(
            "matches must hold every keypoint of image 0 once at most, "
            f"got {values[np.argmax(count)]} in column 0 {count.max()} times"
        )
    value = None
    if scores is not None:
        want = f"an array of {len(pairs)} numbers, one per match"
        value = float_array(scores, scores_name, want, (len(pairs),))
    return Correspondences(p0, p1, pairs, value)


def index_pairs(matches: ArrayLike) -> IndexArray:
    """Check an (M, 2) array of indices."""
    pairs = int_array(matches, "matches", "an (M, 2) array of indices", (None, 2))
    if len(pairs) and pairs.min() < 0:
        row = int(np.argmin(pairs.min(axis=1)))
        raise ValueError(
            f"matches must hold indices from 0, got {pairs[row].tolist()} in row {row}"
        )
    return pairs


def image_name(name: object, argument: str) -> str:
    """Check the name of an image: a relative path with "/", which stays below its folder."""
    if not isinstance(name, str) or not name or "\0" in name or "\n" in name:
        raise refusal(argument, "the name of an image", name)
    if any(part in {"", ".", ".."} for part in name.split("/")):
        want = 'the path of an image below its folder, without leading "/", "." and ".."'
        raise refusal(argument, want, name)
    return name
