"""Feature maps of two images as colours: one PCA for both, as in the paper's qualitative figure."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from manymatch._validate import real, refusal
from manymatch.features.maps import unit_rows
from manymatch.viz.figure import GREY, INK, new_figure, save_figure

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

    from manymatch.features.maps import FeatureMap

# Of all cells, so that a few extreme ones do not take the colours from the rest.
_PERCENTILES = (1.0, 99.0)
_COLUMN_IN, _GAP_IN, _HEAD_IN, _LINE_IN = 3.2, 0.08, 0.42, 0.16
# Of the note's font.
_LETTERS_PER_IN = 16
_NOTE = (
    "Colours are the first three principal components of both maps together: comparable within a "
    "column, not across columns."
)


def pca_colours(
    map0: ArrayLike, map1: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Turn two maps into colours by one PCA fitted to both.

    Descriptors are scaled to length one, their first three principal components become red, green
    and blue, and each is stretched from its 1st to its 99th percentile over both images. A
    component's sign is such that its largest weight is positive.

    Parameters
    ----------
    map0, map1 : (D, rows, columns) array_like
        Sizes may differ, D may not.

    Returns
    -------
    two (rows, columns, 3) float64 ndarrays
        In [0, 1]; a component that does not vary is 0.5.
    """
    arrays = [np.asarray(values, dtype=np.float64) for values in (map0, map1)]
    for name, array in zip(("map0", "map1"), arrays, strict=True):
        if array.ndim != 3 or 0 in array.shape or not np.isfinite(array).all():
            raise refusal(name, "a (D, rows, columns) array of finite numbers", array)
    if len(arrays[0]) != len(arrays[1]):
        raise refusal("map1", f"of descriptor length {len(arrays[0])} as map0 is", arrays[1])
    tokens = [unit_rows(np.ascontiguousarray(a.reshape(len(a), -1).T)) for a in arrays]
    both = np.concatenate(tokens)
    mean = both.mean(axis=0)
    centred = both - mean
    spread, directions = np.linalg.eigh(centred.T @ centred / len(both))
    # Ascending in `eigh`; what is within rounding of zero has no direction.
    kept = [k for k in (-1, -2, -3) if -k <= len(spread) and spread[k] > 1e-12]
    colours = np.full((len(both), 3), 0.5)
    for channel, k in enumerate(kept):
        direction = directions[:, k]
        direction = direction * np.sign(direction[np.argmax(np.abs(direction))])
        score = centred @ direction
        low, high = np.percentile(score, _PERCENTILES)
        if high > low:
            colours[:, channel] = np.clip((score - low) / (high - low), 0.0, 1.0)
    first, second = np.split(colours, [len(tokens[0])])
    return first.reshape(*arrays[0].shape[1:], 3), second.reshape(*arrays[1].shape[1:], 3)


def plot_pca(
    image0: NDArray[np.uint8],
    image1: NDArray[np.uint8],
    maps0: Sequence[FeatureMap],
    maps1: Sequence[FeatureMap],
    path: str | os.PathLike[str] | None = None,
    titles: Sequence[str] | None = None,
    *,
    opacity: float = 0.75,
) -> Figure:
    """Draw two images, and beside them their maps as colours laid over them.

    Parameters
    ----------
    image0, image1 : (H, W, 3) uint8 ndarray
        RGB; the upper and the lower row.
    maps0, maps1 : sequences of FeatureMap
        One for each column, such as layers or ranks of debiasing, in pixels of the images.
    path : path, optional
        Where to write the picture; the ending decides the format (.png, .pdf, .svg).
    titles : sequence of str, optional
        Headings of the columns.
    opacity : float
        Of the colours, in [0, 1].

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is missing.
    """
    count = len(maps0)
    if count == 0 or len(maps1) != count:
        raise ValueError(
            f"maps0 and maps1 must hold one map per column each, got {count} and {len(maps1)}"
        )
    names = [""] * count if titles is None else list(titles)
    if len(names) != count:
        raise refusal("titles", f"one text per column ({count})", titles)
    real(opacity, "opacity", 0.0, 1.0, closed=True)
    images = [np.asarray(image0), np.asarray(image1)]
    figure, axes = _grid(images, count + 1)
    for row, image in zip(axes, images, strict=True):
        _show(row[0], image)
    axes[0][0].set_title("image", fontsize=11, color=GREY)
    for k, (map0, map1, name) in enumerate(zip(maps0, maps1, names, strict=True), start=1):
        colours = pca_colours(map0.values, map1.values)
        for row, image, dense, colour in zip(axes, images, (map0, map1), colours, strict=True):
            _show(row[k], image, grey=True)
            _overlay(row[k], image, dense, colour, opacity)
        axes[0][k].set_title(name, fontsize=11, color=INK)
    if path is not None:
        save_figure(figure, path)
    return figure


def _grid(images: Sequence[NDArray[np.uint8]], columns: int) -> tuple[Figure, list[list[Axes]]]:
    """Make a figure with two rows of axes, each as high as its image is at a column's width."""
    heights = [_COLUMN_IN * image.shape[0] / image.shape[1] for image in images]
    width = columns * _COLUMN_IN + (columns + 1) * _GAP_IN
    note = textwrap.wrap(_NOTE, int(_LETTERS_PER_IN * width))
    height = _HEAD_IN + sum(heights) + 3 * _GAP_IN + len(note) * _LINE_IN
    figure = new_figure(width, height)
    axes: list[list[Axes]] = []
    top = height - _HEAD_IN
    for row_height in heights:
        bottom = top - row_height
        lefts = [_GAP_IN + k * (_COLUMN_IN + _GAP_IN) for k in range(columns)]
        boxes = [
            (left / width, bottom / height, _COLUMN_IN / width, row_height / height)
            for left in lefts
        ]
        axes.append([figure.add_axes(box) for box in boxes])
        top = bottom - _GAP_IN
    for k, line in enumerate(reversed(note)):
        y = (_GAP_IN + k * _LINE_IN) / height
        figure.text(_GAP_IN / width, y, line, fontsize=8, color=GREY, va="bottom")
    return figure, axes


def _show(axes: Axes, image: NDArray[np.uint8], *, grey: bool = False) -> None:
    shown = image.mean(axis=2) if grey and image.ndim == 3 else image
    axes.imshow(shown, cmap="gray", vmin=0, vmax=255, aspect="auto")
    axes.set_axis_off()


def _overlay(
    axes: Axes,
    image: NDArray[np.uint8],
    dense: FeatureMap,
    colour: NDArray[np.float64],
    opacity: float,
) -> None:
    """Lay a map over its image, each cell around its centre."""
    rows, columns = dense.grid
    (x, y), (dx, dy) = dense.origin, dense.stride
    edges = (x - dx / 2, x + (columns - 0.5) * dx, y + (rows - 0.5) * dy, y - dy / 2)
    axes.imshow(colour, extent=edges, alpha=opacity, interpolation="bilinear", aspect="auto")
    height, width = image.shape[:2]
    axes.set_xlim(-0.5, width - 0.5)
    axes.set_ylim(height - 0.5, -0.5)
