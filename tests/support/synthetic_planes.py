"""A textured wall seen twice, as a data set with depth: the cheapest images with known partners."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from manymatch.geometry.camera import Camera
from manymatch.io.pairs import Pair
from manymatch_lab.datasets.dataset import Dataset, DepthView

if TYPE_CHECKING:
    from pathlib import Path

SIZE = (160, 128)
DEPTH_M, FOCAL, SHIFT_PX = 2.0, 100.0, 16


def synthetic_planes(folder: Path, count: int = 1) -> Dataset:
    """Make pairs of which the second view is SHIFT_PX pixels to the right of the first."""
    from PIL import Image

    width, height = SIZE
    camera = Camera("PINHOLE", width, height, [FOCAL, FOCAL, (width - 1) / 2, (height - 1) / 2])
    baseline = SHIFT_PX * DEPTH_M / FOCAL
    pairs = []
    for number in range(count):
        rng = np.random.default_rng(number)
        coarse = rng.integers(0, 256, (height // 4, (width + SHIFT_PX) // 4, 3), dtype=np.uint8)
        wall = coarse.repeat(4, axis=0).repeat(4, axis=1)
        paths = [folder / f"{number}_{side}.png" for side in (0, 1)]
        for side, path in enumerate(paths):
            left = side * SHIFT_PX
            Image.fromarray(np.ascontiguousarray(wall[:, left : left + width])).save(path)
        pairs.append(
            Pair(
                paths[0].name,
                paths[1].name,
                *paths,
                camera,
                camera,
                np.eye(3),
                [-baseline, 0, 0],
                scene=f"wall-{number}",
                extra={"angle_deg": 10.0 + 50.0 * number},
            )
        )

    def depth(_: Pair, side: int) -> DepthView:
        to_common = np.eye(4)
        to_common[0, 3] = side * baseline
        return DepthView(np.full((height, width), DEPTH_M), None, camera, to_common)

    return Dataset(
        "synthetic-planes", "Synthetic planes", tuple(pairs), depth=depth, notes=("Walls.",)
    )
