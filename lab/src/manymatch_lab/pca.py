"""Feature maps of two images as colours: one PCA for both, as in the paper's qualitative figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from manymatch.features.maps import unit_rows
from manymatch.io.image import load_image
from manymatch.viz.figure import (
    GREY,
    INK,
    Page,
    Panel,
    Photo,
    Text,
    as_figure,
    picture_path,
    screen_image,
    wrapped,
    write_page,
)
from manymatch_lab.checks import real, refusal

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

    from manymatch.features.maps import FeatureMap
    from manymatch_lab.checks import FloatArray

# Of all cells, so that a few extreme ones do not take the colours from the rest.
_PERCENTILES = (1.0, 99.0)
# Pixels of the page: width of a column, gap, least and largest height of a row.
_COLUMN, _GAP, _SHORTEST, _TALLEST = 460, 12, 24, 1200
_NOTE = (
    "Colours are the first three principal components of both maps together: comparable within a "
    "column, not across columns."
)


def pca_colours(
    map0: ArrayLike, map1: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Turn two maps (D, rows, columns) into colours (rows, columns, 3) by one PCA fitted to both.

    Descriptors are scaled to length one, their first three principal components become red, green
    and blue, and each is stretched to [0, 1] from its 1st to its 99th percentile over both images.
    A component's sign is such that its largest weight is positive; one that does not vary is 0.5.
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
    # `eigh` sorts ascending; eigenvalues within rounding of zero have no direction.
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
    image0: Any,
    image1: Any,
    maps0: Sequence[FeatureMap],
    maps1: Sequence[FeatureMap],
    path: str | os.PathLike[str] | None = None,
    titles: Sequence[str] | None = None,
    *,
    opacity: float = 0.75,
) -> Figure | Path:
    """Draw two images, and beside them their maps as colours laid over them.

    Parameters
    ----------
    image0, image1 : arrays, paths or PIL images
        As `manymatch.io.load_image` takes them; the upper and the lower row.
    maps0, maps1 : sequences of FeatureMap
        One for each column, such as layers or ranks of debiasing, in pixels of the images.
    path : path, optional
        Where to write the picture; the ending decides the format, as in `plot_candidates`. Without
        it a matplotlib figure is returned, which notebooks show.
    titles : sequence of str, optional
        Headings of the columns.
    opacity : float
        Of the colours, in [0, 1].
    """
    target = None if path is None else picture_path(path)
    count = len(maps0)
    if count == 0 or len(maps1) != count:
        raise ValueError(
            f"maps0 and maps1 must hold one map per column each, got {count} and {len(maps1)}"
        )
    names = [""] * count if titles is None else list(titles)
    if len(names) != count:
        raise refusal("titles", f"one text per column ({count})", titles)
    real(opacity, "opacity", 0.0, 1.0, closed=True)
    colours = [pca_colours(*(m.values for m in maps)) for maps in zip(maps0, maps1, strict=True)]
    page = Page((count + 1) * (_COLUMN + _GAP) + _GAP, _GAP)
    lefts = [_GAP + k * (_COLUMN + _GAP) for k in range(count + 1)]
    heads = [wrapped(name, 20, _COLUMN) for name in ("image", *names)]
    for left, lines, ink in zip(lefts, heads, (GREY, *[INK] * count), strict=True):
        for k, line in enumerate(lines):
            page.texts.append(Text(left, page.height + 26 * k + 20, line, 20, colour=ink))
    page.height += 26 * max(map(len, heads)) + 4
    for row, (image, maps) in enumerate(((image0, maps0), (image1, maps1))):
        source = image if isinstance(image, np.ndarray) else load_image(image, f"image{row}")
        size = source.shape[1], source.shape[0]
        height = int(np.clip(_COLUMN * size[1] / size[0], _SHORTEST, _TALLEST))
        photo = screen_image(source, (_COLUMN, height), f"image{row}")
        grey = photo.mean(axis=2, keepdims=True)
        pictures = [photo]
        for dense, pair in zip(maps, colours, strict=True):
            colour, covered = _on_screen(dense, pair[row], size, (_COLUMN, height))
            share = opacity * covered[:, :, None]
            mixed = (1.0 - share) * grey + share * 255.0 * colour
            pictures.append(np.rint(mixed).astype(np.uint8))
        for left, pixels in zip(lefts, pictures, strict=True):
            box = (left, page.height, _COLUMN, height)
            page.panels.append(Panel(box, [Photo(pixels)]))
        page.height += height + _GAP
    for line in wrapped(_NOTE, 16, page.width - 2 * _GAP):
        page.height += 21
        page.texts.append(Text(_GAP, page.height - 5, line, 16, colour=GREY))
    page.height += _GAP
    return as_figure(page) if target is None else write_page(page, target)


def _on_screen(
    dense: FeatureMap,
    colour: NDArray[np.float64],
    size: tuple[int, int],
    screen: tuple[int, int],
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return a map's colours as its image is drawn, and where the map is, each cell by its centre.

    `size` is width and height of the image, `screen` those of the drawing.
    """
    inside, values = [], colour
    for axis, (k, cells) in enumerate(((1, dense.grid[0]), (0, dense.grid[1]))):
        pixel = (np.arange(screen[k]) + 0.5) * size[k] / screen[k] - 0.5
        place = (pixel - dense.origin[k]) / dense.stride[k]
        inside.append((place >= -0.5) & (place <= cells - 0.5))
        place = np.clip(place, 0.0, cells - 1)
        low = np.minimum(place.astype(np.int64), max(cells - 2, 0))
        high = np.minimum(low + 1, cells - 1)
        share = (place - low).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        values = (1.0 - share) * values.take(low, axis) + share * values.take(high, axis)
    return values, inside[0][:, None] & inside[1][None, :]
