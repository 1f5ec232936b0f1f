"""Two aligned images: one warped onto the other, and a page that compares the two."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import FloatArray
from manymatch.estimate.words import verdict_sentence
from manymatch.io.image import require_pillow
from manymatch.viz.report import embedded_jpeg, rendered, shrunk, write_page

if TYPE_CHECKING:
    from manymatch.matcher.align import Alignment

# The page's images: pixels of the longer edge, and bytes.
_LONGEST_PX, _IMAGE_BYTES = 1600, 600_000
# Brightness of image 0 where the other image does not reach.
_OUTSIDE = 0.35


def warp(image: NDArray[np.uint8], H: FloatArray, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Warp an image (h, w, 3) onto one of the given width and height: RGBA (height, width, 4).

    `H` (3, 3) maps pixels of the result to pixels of `image`, ``x ~ H x0``, with a positive third
    coordinate on the side that is seen. Bilinear; transparent where the image does not reach. Where
    it is shrunk to less than half it is averaged first, so that fine structure becomes no noise.
    """
    width, height = size
    shrink = _shrink(H, size)
    if shrink > 1:
        image = np.asarray(require_pillow().fromarray(image).reduce(shrink))
        # The centre of the first pixel is at (0, 0) before and after.
        smaller = np.diag([1.0 / shrink, 1.0 / shrink, 1.0])
        smaller[:2, 2] = 0.5 / shrink - 0.5
        H = smaller @ H
    Image = require_pillow()
    # Pillow's pixels start at whole numbers, ours have their centres there.
    centred = np.array([[1.0, 0.0, -0.5], [0.0, 1.0, -0.5], [0.0, 0.0, 1.0]])
    M = np.linalg.inv(centred) @ H @ centred
    M = M / M[2, 2] if M[2, 2] else M
    picture = Image.fromarray(image).convert("RGBA")
    method, kind = Image.Resampling.BILINEAR, Image.Transform.PERSPECTIVE
    result = np.array(picture.transform(size, kind, M.ravel()[:8].tolist(), method))
    # Beyond the horizon, the image would appear a second time.
    x, y = np.arange(width), np.arange(height)[:, None]
    result[H[2, 0] * x + H[2, 1] * y + H[2, 2] <= 0.0] = 0
    return result


def _shrink(H: FloatArray, size: tuple[int, int]) -> int:
    """How many pixels of the image, along an edge, one pixel in the middle of the result covers."""
    x = np.array([0.5 * (size[0] - 1), 0.5 * (size[1] - 1), 1.0])
    mapped = H @ x
    if not mapped[2] > 0.0:
        return 1
    jacobian = (H[:2, :2] - np.outer(mapped[:2] / mapped[2], H[2, :2])) / mapped[2]
    scale = math.sqrt(abs(float(np.linalg.det(jacobian))))
    return max(1, int(min(scale, 64.0))) if math.isfinite(scale) else 1


def write_overlay(
    alignment: Alignment, path: str | os.PathLike[str], command: str | None = None
) -> Path:
    """Write the page of `Alignment.report`; the file appears only when it is complete."""
    return write_page(path, overlay_page(alignment, command))


def overlay_page(alignment: Alignment, command: str | None = None) -> str:
    """Return the page of `Alignment.report` as text."""
    Image = require_pillow()
    images, names, H = alignment.images, alignment.names, alignment.signed_homography()
    height, width = images[0].shape[:2]
    size = shrunk((width, height), _LONGEST_PX)
    larger = np.diag([width / size[0], height / size[1], 1.0])
    larger[:2, 2] = 0.5 * np.diag(larger)[:2] - 0.5
    base = Image.fromarray(images[0]).resize(size, Image.Resampling.LANCZOS)
    warped = warp(images[1], H @ larger, size)
    dimmed = np.asarray(base) * _OUTSIDE
    shown = np.where(warped[..., 3:] > 0, warped[..., :3], dimmed.astype(np.uint8))
    estimate = alignment.estimate
    return rendered(
        "aligned",
        title=f"{names[1]} on {names[0]}",
        names=names,
        pictures=[
            embedded_jpeg(picture, _IMAGE_BYTES) for picture in (base, Image.fromarray(shown))
        ],
        width=width,
        height=height,
        shown=None if size == (width, height) else size,
        headline=verdict_sentence(alignment.confidence),
        kind="good" if alignment else "doubt",
        sentences=alignment.notes,
        facts={
            "Model": alignment.model,
            "Matches": f"{len(estimate.matches):,}",
            "Candidates": f"{alignment.graph.num_edges:,}",
            "Threshold": f"{estimate.threshold_px:.3g} px",
            "Noise of a keypoint": f"{estimate.noise_px:.2g} px",
            "Image 0 covered": f"{100.0 * alignment.covered():.0f} %",
            "Features": alignment.config.title,
        },
        matrix="\n".join(" ".join(f"{v: .9e}" for v in row) for row in H),
        command=command,
    )
