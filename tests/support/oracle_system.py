"""A matcher that knows the truth, and small pairs of images to use it on."""

from __future__ import annotations

import numpy as np
from PIL import Image

from manymatch_lab import datasets
from manymatch_lab.datasets.dataset import Dataset
from manymatch_lab.systems import System
from tests.support.synthetic_views import image_pair

SIZE = (240, 180)


class TrueMatches(System):
    """Returns true matches of the pairs, one after the other, at working size."""

    name, title, paper, specialist = "true-matches", "True matches", "xoftr", True

    def __init__(self, dataset, noise=0.0):
        super().__init__("cpu", offline=True)
        self.pairs = iter(dataset.pairs)
        self.noise, self.calls, self.shapes = noise, 0, []

    def settings(self):
        return {"noise": self.noise}

    def _match(self, image0, image1):
        self.calls += 1
        self.shapes.append((image0.shape, image1.shape))
        pair = next(self.pairs)
        rng = np.random.default_rng(0)
        size = np.array(SIZE)
        points0 = rng.uniform(0.1 * size, 0.9 * size, (400, 2))
        ray = np.column_stack([pair.camera0.unproject(points0), np.ones(400)])
        local = ray * rng.uniform(3.0, 8.0, (400, 1)) @ pair.R.T + pair.t
        points1 = pair.camera1.project(local[:, :2] / local[:, 2:])
        points1 += self.noise * rng.normal(size=points1.shape)
        # From the pixels of the files to those of the images that were given.
        moved = [
            (points + 0.5) * image.shape[1] / SIZE[0] - 0.5
            for points, image in ((points0, image0), (points1, image1))
        ]
        return moved[0], moved[1], np.ones(400)


def write_views(place, count):
    """Write a folder with a list of pairs, as SuperGlue writes it, and return it."""
    place.mkdir(parents=True)
    lines = []
    for seed in range(count):
        pair = image_pair(seed, SIZE)
        for side, image in enumerate((pair.image0, pair.image1)):
            Image.fromarray(image).save(place / f"{seed}_{side}.png")
        K = pair.camera.K.ravel()
        numbers = [*K, *K, *pair.pose.matrix().ravel()]
        lines.append(f"{seed}_0.png {seed}_1.png 0 0 {' '.join(map(repr, map(float, numbers)))}")
    (place / "pairs.txt").write_text("\n".join(lines) + "\n")
    return place


def views_of(place):
    """Open such a folder as a data set whose images keep their size."""
    pairs = datasets.load("folder", place).pairs
    return Dataset("synthetic-views", "Synthetic views", pairs, longest0=0, longest1=0)
