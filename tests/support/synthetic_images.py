"""Small synthetic photographs on disk, for tests that need files."""

from pathlib import Path

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 120, 90


def texture(seed: int, width: int, height: int) -> np.ndarray:
    """Blobs of several sizes, (height, width, 3) uint8: SIFT finds some hundred keypoints."""
    rng = np.random.default_rng(seed)
    total = np.zeros((height, width, 3))
    for cells, weight in ((8, 1.0), (16, 0.8), (32, 0.6)):
        coarse = Image.fromarray(rng.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        total += weight * np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))
    return np.clip(total / total.max() * 255, 0, 255).astype(np.uint8)


def make_images(folder: Path, count: int) -> list[str]:
    """Write views that slide over one texture, and return their names in order."""
    folder.mkdir(parents=True, exist_ok=True)
    wide = texture(0, WIDTH + 4 * count, HEIGHT + 2 * count)
    names = [f"view{i:03d}.png" for i in range(count)]
    for i, name in enumerate(names):
        view = wide[2 * i : 2 * i + HEIGHT, 4 * i : 4 * i + WIDTH]
        Image.fromarray(view).save(folder / name)
    return names
