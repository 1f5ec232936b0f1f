"""How well depth, poses and colour images of the indoor pairs fit each other.

    MANYMATCH_DATA=<reference data> python benchmarks/accuracy/registered_depth.py

Two differences in centimetres a pair: of the depth of a point as one view has it and as the other
one sees it, which tells about poses and depth; and in space of SIFT matches that fit one epipolar
geometry, which also tells about the registration of depth to colour. Recall at a threshold below
the second one is a matter of luck.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from manymatch.geometry.pose import rotation_error_deg
from manymatch.io.image import load_image
from manymatch_lab import datasets
from tests.support.data_folder import data_folder

if TYPE_CHECKING:
    from manymatch_lab.datasets import Pair
    from manymatch_lab.datasets.dataset import DepthView

# A point whose depth differs by more is hidden in the other view.
OCCLUSION_M = 0.30
# Fewer matches say nothing about a pair.
FEWEST_MATCHES = 15
MAX_KEYPOINTS, RATIO, THRESHOLD_PX = 2000, 0.75, 1.0


def depth_difference_cm(view0: DepthView, view1: DepthView) -> np.ndarray:
    """Differences in depth where view 1 sees the points of view 0."""
    rows, columns = np.nonzero(np.isfinite(view0.depth))
    points = view0.points(np.column_stack([columns, rows]))
    to_view = np.linalg.inv(view1.to_common)
    local = points @ to_view[:3, :3].T + to_view[:3, 3]
    local = local[local[:, 2] > 0.1]
    column, row = np.rint(view1.camera.project(local[:, :2] / local[:, 2:])).astype(int).T
    width, height = view1.size
    inside = (column >= 0) & (row >= 0) & (column < width) & (row < height)
    difference = np.abs(view1.depth[row[inside], column[inside]] - local[inside, 2])
    return 100 * difference[difference < OCCLUSION_M]


def match_difference_cm(pair: Pair, view0: DepthView, view1: DepthView) -> np.ndarray:
    """Distances in space of SIFT matches that fit one fundamental matrix, not the true pose."""
    import cv2

    found = []
    for path in (pair.path0, pair.path1):
        grey = cv2.cvtColor(load_image(path), cv2.COLOR_RGB2GRAY)
        keypoints, descriptors = cv2.SIFT_create(MAX_KEYPOINTS).detectAndCompute(grey, None)
        found.append((np.array([k.pt for k in keypoints]), descriptors))
    nearest = cv2.BFMatcher().knnMatch(found[0][1], found[1][1], k=2)
    kept = [first for first, second in nearest if first.distance < RATIO * second.distance]
    points0 = found[0][0][[match.queryIdx for match in kept]]
    points1 = found[1][0][[match.trainIdx for match in kept]]
    if len(kept) < FEWEST_MATCHES:
        return np.empty(0)
    settings = (cv2.USAC_MAGSAC, THRESHOLD_PX, 0.999, 10_000)
    _, fits = cv2.findFundamentalMat(points0, points1, *settings)
    if fits is None:
        return np.empty(0)
    fits = fits.ravel().astype(bool)
    apart = np.linalg.norm(view0.points(points0[fits]) - view1.points(points1[fits]), axis=1)
    return 100 * apart[np.isfinite(apart)]


def main() -> None:
    data = data_folder()
    if data is None:
        raise SystemExit("the reference data is not here (set MANYMATCH_DATA)")
    dataset = datasets.load("folder", data / "posed_pairs" / "7scenes_tsdf")
    depths, matches = [], []
    for pair in dataset:
        if not pair.extra["depth"]:
            continue
        view0, view1 = (dataset.depth(pair, side) for side in (0, 1))
        both = [depth_difference_cm(view0, view1), depth_difference_cm(view1, view0)]
        depths.append(float(np.median(np.concatenate(both))))
        apart = match_difference_cm(pair, view0, view1)
        enough = len(apart) >= FEWEST_MATCHES
        matches += [float(np.median(apart))] if enough else []
        sys.stdout.write(
            f"{pair.name0} - {pair.name1}: {rotation_error_deg(pair.R, np.eye(3)):.0f} degrees, "
            f"depth {depths[-1]:.1f} cm, {len(apart)} matches"
            f"{f' {matches[-1]:.1f} cm' if enough else ''}\n"
        )
    sys.stdout.write(
        f"Median over pairs: depth {np.median(depths):.1f} cm ({len(depths)} pairs), matches "
        f"{np.median(matches):.1f} cm ({len(matches)} pairs with {FEWEST_MATCHES} or more)\n"
    )


if __name__ == "__main__":
    main()
