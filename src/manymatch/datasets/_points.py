"""Points of made scenes: where they are, where they are seen and what they look like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from manymatch.datasets._config import SceneConfig
    from manymatch.datasets._geometry import Rig

FloatArray = NDArray[np.float64]

# Draws per wanted point or row before a configuration counts as impossible.
_MAX_TRIES = 2_000


def unit_rows(vectors: FloatArray) -> FloatArray:
    """Rows of ``vectors`` (N, D) scaled to length one."""
    norm = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / norm, dtype=np.float64)


@dataclass(frozen=True)
class Tracks:
    """Everything that can be a keypoint; a track seen by both images is a true match.

    ``points3d`` (P, 3) is NaN and ``pixels`` are unused where a track has no 3D point (outliers)
    or is not ``seen``. ``row`` (P,) is -1 for tracks that belong to no row.
    """

    points3d: FloatArray
    pixels: tuple[FloatArray, FloatArray]
    seen: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    descriptors: tuple[FloatArray, FloatArray]
    row: NDArray[np.int64]


def make_tracks(
    config: SceneConfig,
    rig: Rig,
    place: np.random.Generator,
    noise: np.random.Generator,
    look: np.random.Generator,
) -> Tracks:
    """All tracks of a scene: near points, rows, hub rows, outliers of image 0, of image 1."""
    low, high = config.num_hub_rows
    num_hubs = int(place.integers(low, high, endpoint=True))
    num_rows = config.num_rows + num_hubs
    near = _near_points(config, rig, place)
    rows = [_row(config, rig, place) for _ in range(num_rows)]
    points3d = np.concatenate([near, *rows, np.full((2 * config.num_outliers, 3), np.nan)])
    row = np.full(len(points3d), -1, dtype=np.int64)
    members = slice(len(near), len(near) + num_rows * config.row_length)
    row[members] = np.repeat(np.arange(num_rows), config.row_length)

    real = np.isfinite(points3d[:, 0])
    seen = real.copy(), real.copy()
    for hub in range(num_hubs):
        # Image 1 keeps the last members and image 0 the first ones: every wrong candidate of every
        # hub row then moves the same way along the rows, so one wrong pose can have them all.
        of_row = np.flatnonzero(row == config.num_rows + hub)
        if hub % 2 == 0:
            seen[1][of_row[: -config.hub_partners]] = False
        else:
            seen[0][of_row[config.hub_partners :]] = False
    stray = np.flatnonzero(~real)
    seen[0][stray[: config.num_outliers]] = True
    seen[1][stray[config.num_outliers :]] = True

    pixels = np.zeros((len(row), 2)), np.zeros((len(row), 2))
    x0, x1, _ = rig.project(points3d[real])
    for image, exact in enumerate((x0, x1)):
        pixels[image][real] = exact + config.noise_px * noise.standard_normal(exact.shape)
        pixels[image][~real] = place.uniform((0, 0), np.array(rig.size) - 1, (len(stray), 2))
    return Tracks(points3d, pixels, seen, _descriptors(config, row, len(near), look), row)


def _near_points(config: SceneConfig, rig: Rig, rng: np.random.Generator) -> FloatArray:
    """Points (num_points, 3) that both cameras see."""
    # A slanted plane z = depth / (1 - slant . ray), as inverse depth is linear in the image.
    slant = rng.uniform(-0.3, 0.3, 2)
    found = np.zeros((0, 3))
    for _ in range(_MAX_TRIES):
        if len(found) >= config.num_points:
            return found[: config.num_points]
        count = config.num_points
        pixels = rng.uniform((0, 0), np.array(rig.size) - 1, (count, 2))
        depth = rng.uniform(*config.depth, count)
        if config.planar:
            ray = (pixels - rig.K0[:2, 2]) / rig.K0[0, 0]
            depth = np.mean(config.depth) / (1.0 - ray @ slant)
        points = rig.lift(pixels, depth)
        found = np.concatenate((found, points[rig.project(points)[2]]))
    raise ValueError(_no_overlap("num_points"))


def _row(config: SceneConfig, rig: Rig, rng: np.random.Generator) -> FloatArray:
    """Equally spaced points (row_length, 3) on a line in 3D that both cameras see."""
    steps = np.arange(config.row_length) - (config.row_length - 1) / 2
    for _ in range(_MAX_TRIES):
        depth = rng.uniform(*config.row_depth)
        middle = rig.lift(rng.uniform((0, 0), np.array(rig.size) - 1, (1, 2)), np.array([depth]))
        spacing = config.row_spacing_px * depth / config.focal0
        points = middle + steps[:, None] * spacing * rig.rows
        if rig.project(points)[2].all():
            return np.asarray(points, dtype=np.float64)
    raise ValueError(_no_overlap("num_rows"))


def _descriptors(
    config: SceneConfig, row: NDArray[np.int64], num_near: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw unit descriptors (P, D) of every track in image 0 and in image 1."""
    count, dim = len(row), config.descriptor_dim
    looks = unit_rows(rng.standard_normal((count, dim)))
    in_row = row >= 0
    if config.family_size > 1:
        common = unit_rows(rng.standard_normal((num_near, dim)))
        family = np.arange(num_near) // config.family_size
        looks[:num_near] = common[family] + config.family_spread * looks[:num_near]
    noise = np.full(count, config.descriptor_noise)
    if config.rows_share_descriptor:
        first = np.searchsorted(row[in_row], row[in_row])
        looks[in_row] = looks[in_row][first]
        noise[in_row] = config.row_noise
    scale = noise[:, None] / np.sqrt(dim)
    images = [unit_rows(looks + scale * rng.standard_normal((count, dim))) for _ in range(2)]
    return images[0], images[1]


def _no_overlap(name: str) -> str:
    return (
        f"{name} must be points that both cameras see, got too few of them in {_MAX_TRIES} draws; "
        "choose a smaller rotation_deg, baseline, row_length or row_spacing_px"
    )
