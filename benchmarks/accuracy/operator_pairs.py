"""Image pairs with descriptors and the truth about which keypoints show the same point."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_KEYPOINTS = 2048
# The poses are off by 2 to 4 degrees, that is by several centimetres at the depths of a room.
DEPTH_TOLERANCES_M = (0.05, 0.10)
STEREO_TOLERANCES_PX = (1.0, 2.0, 3.0)


@dataclass(frozen=True)
class LabelledPair:
    """Keypoints, descriptors and, per tolerance, who corresponds to whom.

    ``truths`` holds (by image 0, by image 1) pairs of (N0, N1) matrices: the first one counts for
    the recall of image 0, the second one for that of image 1.
    """

    points0: np.ndarray
    points1: np.ndarray
    desc0: np.ndarray
    desc1: np.ndarray
    truths: list[tuple[np.ndarray, np.ndarray]]

    def swapped(self) -> LabelledPair:
        """Exchange the images."""
        truths = [(second.T, first.T) for first, second in self.truths]
        return LabelledPair(self.points1, self.points0, self.desc1, self.desc0, truths)


def root_sift(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keypoints (N, 2) in pixels and RootSIFT descriptors (N, 128), one an orientation."""
    import cv2

    keypoints, descriptors = cv2.SIFT_create(MAX_KEYPOINTS).detectAndCompute(image, None)
    descriptors = descriptors[:MAX_KEYPOINTS]
    total = np.maximum(descriptors.sum(axis=1, keepdims=True), 1e-12)
    points = np.array([k.pt for k in keypoints[:MAX_KEYPOINTS]], dtype=np.float64)
    return points, np.sqrt(descriptors / total)


def read_image(path: Path, flags: str) -> np.ndarray:
    """Read an image with one of OpenCV's IMREAD flags."""
    import cv2

    image = cv2.imread(str(path), getattr(cv2, flags))
    if image is None:
        raise SystemExit(f"{path} cannot be read")
    return image


def depth_pairs(folder: Path) -> Iterator[LabelledPair]:
    """Pairs of which both images have a depth map; truth by distance in space."""
    cameras = json.loads((folder / "cameras.json").read_text())
    names = [line.split()[:2] for line in (folder / "pairs.txt").read_text().splitlines()]
    for pair in names:
        depths = [(folder / "depth" / name).with_suffix(".png") for name in pair]
        if not all(path.is_file() for path in depths):
            continue
        views = [_view(folder, name, cameras) for name in pair]
        (points0, desc0, world0), (points1, desc1, world1) = views
        distance = _distances(world0, world1)
        truths = [(distance < tau, distance < tau) for tau in DEPTH_TOLERANCES_M]
        yield LabelledPair(points0, points1, desc0, desc1, truths)


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Distances (N, M) between points; infinite where one is unknown."""
    distance = np.sqrt(sum((a[:, None, c] - b[None, :, c]) ** 2 for c in range(a.shape[1])))
    return np.where(np.isnan(distance), np.inf, distance)


def _view(folder: Path, name: str, cameras: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """Keypoints, descriptors and places in the world (NaN without depth) of one image."""
    points, descriptors = root_sift(read_image(folder / name, "IMREAD_GRAYSCALE"))
    depth_file = (folder / "depth" / name).with_suffix(".png")
    raw = read_image(depth_file, "IMREAD_UNCHANGED").astype(np.float64)
    raw[raw >= 65535] = 0  # the sensor's mark for no measurement
    K, to_image = np.array(cameras["K_rgb"]), np.array(cameras["T_depth_to_rgb"])
    depth = _depth_in_image(
        raw * cameras["depth_unit_m"], np.array(cameras["K_depth"]), K, to_image
    )
    column, row = np.rint(points).astype(int).T
    z = depth[row.clip(0, depth.shape[0] - 1), column.clip(0, depth.shape[1] - 1)]
    rays = np.column_stack([points, np.ones(len(points))]) @ np.linalg.inv(K).T
    to_world = np.array(cameras["frames"][name]) @ np.linalg.inv(to_image)
    return points, descriptors, (rays * z[:, None]) @ to_world[:3, :3].T + to_world[:3, 3]


def _depth_in_image(
    depth: np.ndarray, K_depth: np.ndarray, K: np.ndarray, to_image: np.ndarray
) -> np.ndarray:
    """Depth map as the colour camera sees it; NaN where nothing was measured."""
    row, column = np.nonzero(depth > 0)
    pixels = np.stack([column, row, np.ones(len(row))])
    places = np.linalg.inv(K_depth) @ pixels * depth[row, column]
    places = to_image[:3, :3] @ places + to_image[:3, 3:]
    u, v, _ = np.rint(K @ (places / places[2])).astype(int)
    inside = (u >= 0) & (v >= 0) & (u < depth.shape[1]) & (v < depth.shape[0])
    nearest = np.full(depth.shape, np.inf)
    np.minimum.at(nearest, (v[inside], u[inside]), places[2, inside])
    return np.where(np.isinf(nearest), np.nan, nearest)


def stereo_pairs(folder: Path) -> Iterator[LabelledPair]:
    """Rectified pairs with the disparity of both images; truth by distance in pixels."""
    for scene in ("cones", "teddy"):
        sides = []
        for number, sign in ((2, -1.0), (6, 1.0)):
            image = read_image(folder / f"{scene}_im{number}.png", "IMREAD_GRAYSCALE")
            points, descriptors = root_sift(image)
            disparity = read_image(folder / f"{scene}_disp{number}.png", "IMREAD_GRAYSCALE") / 4.0
            column, row = np.rint(points).astype(int).T
            value = disparity[row, column]
            partner = points + np.column_stack([sign * value, np.zeros(len(value))])
            partner[value == 0] = np.nan
            sides.append((points, descriptors, partner))
        (points0, desc0, partner0), (points1, desc1, partner1) = sides
        by_left, by_right = _distances(partner0, points1), _distances(points0, partner1)
        truths = [(by_left < tau, by_right < tau) for tau in STEREO_TOLERANCES_PX]
        yield LabelledPair(points0, points1, desc0, desc1, truths)
