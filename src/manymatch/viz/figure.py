"""Figures that no display is needed for, and files of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._environment import require
from manymatch._files import as_path, write_whole
from manymatch.io.image import load_image, require_pillow

if TYPE_CHECKING:
    import os

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from manymatch._validate import FloatArray

# Pixels so far outside that nothing of them is seen, and that can still be calculated with.
_FAR = 1e9
# Samples of a photograph along either axis of a pixel that is drawn, at least.
_SAMPLES = 3

#: Colours of text, and of text that matters less.
INK, GREY = "#111827", "#6b7280"


def require_matplotlib() -> tuple[type[Figure], type[FigureCanvasAgg]]:
    """Import what draws, or say how to get it.

    Not pyplot, which would choose a display and keep figures alive.
    """
    figure = require("matplotlib.figure", "Drawing", "viz")
    canvas = require("matplotlib.backends.backend_agg", "Drawing", "viz")
    return figure.Figure, canvas.FigureCanvasAgg


def drawable(points: FloatArray) -> FloatArray:
    """Return points (N, 2), which may have any finite coordinates, as they can be drawn."""
    return np.clip(points, -_FAR, _FAR)


def screen_image(image: Any, size: tuple[int, int], name: str) -> NDArray[np.uint8]:
    """Return a photograph, as `manymatch.io.load_image` takes it, in the size at which it is drawn.

    Of an array that is much larger only every so many-th row and column is looked at, so that the
    rest is neither copied nor converted.
    """
    array = image if isinstance(image, np.ndarray) else load_image(image, name)
    steps = [max(1, n // (_SAMPLES * m)) for n, m in zip(array.shape, size[::-1], strict=False)]
    small = load_image(array[tuple(slice(step // 2, None, step) for step in steps)], name)
    Image = require_pillow()
    shrinks = small.shape[1] > size[0]
    method = Image.Resampling.BOX if shrinks else Image.Resampling.BICUBIC
    return np.asarray(Image.fromarray(small).resize(size, method))


def new_figure(width_in: float, height_in: float) -> Figure:
    """Return an empty white figure of a size in inches."""
    figure_class, canvas_class = require_matplotlib()
    figure = figure_class(figsize=(width_in, height_in), dpi=160, facecolor="white")
    canvas_class(figure)
    return figure


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure; the ending decides the format, and folders are made."""
    target = as_path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    form = target.suffix[1:] or "png"
    write_whole(target, lambda file: figure.savefig(file, format=form))
