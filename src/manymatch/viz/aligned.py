"""Two aligned images: one warped onto the other, and a page that compares the two."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

import manymatch
from manymatch.io.files import as_path, write_whole
from manymatch.io.image import require_pillow
from manymatch.viz.report import embedded_jpeg, page_template, script_policy, template_file

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from manymatch._validate import FloatArray

# Pixels that are sampled at once; coordinates of whole images would take ten times their memory.
_BAND_PIXELS = 1 << 18
# The page's images: pixels of the longer edge, and bytes.
_LONGEST_PX, _IMAGE_BYTES = 1600, 600_000
# Brightness of image 0 where the other image does not reach.
_OUTSIDE = 0.35


def warp(image: NDArray[np.uint8], H: FloatArray, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Warp an image onto another one of the given width and height.

    Parameters
    ----------
    image : (h, w, 3) uint8
        The image to be warped.
    H : (3, 3)
        Maps pixels of the result to pixels of `image`, ``x ~ H x0``; the third coordinate is
        positive on the side that is seen.
    size : (int, int)
        Width and height of the result.

    Returns
    -------
    (height, width, 4) uint8
        RGBA, bilinear; transparent where the image does not reach. Where it is shrunk to less than
        half it is averaged first, so that fine structure does not turn into noise.
    """
    width, height = size
    shrink = _shrink(H, size)
    if shrink > 1:
        image = np.asarray(require_pillow().fromarray(image).reduce(shrink))
        # The centre of the first pixel is at (0, 0) before and after.
        smaller = np.diag([1.0 / shrink, 1.0 / shrink, 1.0])
        smaller[:2, 2] = 0.5 / shrink - 0.5
        H = smaller @ H
    rows, columns = image.shape[:2]
    result = np.zeros((height, width, 4), dtype=np.uint8)
    x = np.arange(width, dtype=np.float64)
    step = max(1, _BAND_PIXELS // max(width, 1))
    for first in range(0, height, step):
        y = np.arange(first, min(first + step, height), dtype=np.float64)[:, None]
        w = H[2, 0] * x + H[2, 1] * y + H[2, 2]
        with np.errstate(all="ignore"):
            u = (H[0, 0] * x + H[0, 1] * y + H[0, 2]) / w
            v = (H[1, 0] * x + H[1, 1] * y + H[1, 2]) / w
            seen = (w > 0.0) & (u >= -0.5) & (u <= columns - 0.5) & (v >= -0.5) & (v <= rows - 0.5)
        u, v = np.clip(u[seen], 0, columns - 1), np.clip(v[seen], 0, rows - 1)
        left = np.minimum(u.astype(np.int64), max(columns - 2, 0))
        top = np.minimum(v.astype(np.int64), max(rows - 2, 0))
        right, below = np.minimum(left + 1, columns - 1), np.minimum(top + 1, rows - 1)
        a, b = (u - left)[:, None], (v - top)[:, None]
        upper = image[top, left] * (1.0 - a) + image[top, right] * a
        lower = image[below, left] * (1.0 - a) + image[below, right] * a
        band = result[first : first + len(y)]
        band[seen, :3] = np.rint(upper * (1.0 - b) + lower * b)
        band[seen, 3] = 255
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
    path: str | os.PathLike[str],
    *,
    images: tuple[NDArray[np.uint8], NDArray[np.uint8]],
    H: FloatArray,
    names: tuple[str, str],
    headline: str,
    kind: str,
    sentences: Sequence[str] = (),
    facts: Sequence[tuple[str, str]] = (),
    matrix: str = "",
    command: str | None = None,
) -> Path:
    """Write a page that compares image 0 with image 1 warped onto it, in one HTML file.

    Parameters
    ----------
    path : path
        File to write. It appears only when it is complete.
    images : pair of (h, w, 3) uint8 arrays
        They are embedded small, whatever their size.
    H : (3, 3)
        As `warp` takes it, for whole images.
    names : pair of str
        Names of the images.
    headline, kind : str
        What is said first, and whether that is "good", "doubt" or "bad".
    sentences, facts : sequences
        What is said below it, and rows of a table.
    matrix : str
        The matrix as text to copy.
    command : str, optional
        The command line that gives the same page again.
    """
    target = as_path(path)
    Image = require_pillow()
    height, width = images[0].shape[:2]
    shrink = min(1.0, _LONGEST_PX / max(width, height, 1))
    size = max(1, round(width * shrink)), max(1, round(height * shrink))
    larger = np.diag([width / size[0], height / size[1], 1.0])
    larger[:2, 2] = 0.5 * np.diag(larger)[:2] - 0.5
    base = Image.fromarray(images[0]).resize(size, Image.Resampling.LANCZOS)
    warped = warp(images[1], H @ larger, size)
    dimmed = np.asarray(base) * _OUTSIDE
    shown = np.where(warped[..., 3:] > 0, warped[..., :3], dimmed.astype(np.uint8))
    script = template_file("aligned.js")
    page = page_template("aligned.html").render(
        title=f"{names[1]} on {names[0]}",
        policy=script_policy(script),
        style=template_file("report.css"),
        own_style=template_file("aligned.css"),
        script=script,
        names=names,
        pictures=[
            embedded_jpeg(picture, _IMAGE_BYTES) for picture in (base, Image.fromarray(shown))
        ],
        width=width,
        height=height,
        shown=None if size == (width, height) else size,
        headline=headline,
        kind=kind,
        sentences=list(sentences),
        facts=list(facts),
        matrix=matrix,
        command=command,
        version=manymatch.__version__,
    )
    write_whole(target, lambda file: file.write(page.encode("utf-8", "replace")))
    return target


def picture_png(rgba: NDArray[np.uint8]) -> Any:
    """Return a function that writes an RGBA picture into a file as PNG."""
    picture = require_pillow().fromarray(rgba)
    return lambda file: picture.save(file, "PNG")
