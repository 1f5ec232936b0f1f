"""How figures look: sizes, colours, grids of panels, and photographs that are kept in JSON."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from manymatch.features.maps import FeatureMap
from manymatch.io.image import load_image, require_pillow
from manymatch.viz import require_matplotlib
from manymatch_lab.pca import pca_colours

if TYPE_CHECKING:
    from matplotlib import axes, figure

    Axes: TypeAlias = axes.Axes
    Figure: TypeAlias = figure.Figure

#: Width of a column and of a page of two columns, in centimetres.
COLUMN_CM, PAGE_CM = 8.6, 17.6

INK, GREY, LIGHT = "#1f2937", "#6b7280", "#d1d5db"
#: Colours that remain apart without red or green vision, in order of use (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", ":", "-.")
#: Colour of each AUC threshold, in every figure the same.
THRESHOLD_COLOURS = {5: "#0072b2", 10: "#d55e00", 20: "#009e73"}


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Draw in the common style within the block."""
    require_matplotlib()
    import matplotlib as mpl

    with mpl.rc_context(fname=Path(__file__).with_name("figures.mplstyle")):
        yield


def new_figure(width_cm: float = PAGE_CM, height_cm: float = 6.0) -> Figure:
    """Make an empty figure; call it, and draw, inside `styled`."""
    figure_class, canvas_class = require_matplotlib()
    figure = figure_class(figsize=(width_cm / 2.54, height_cm / 2.54))
    canvas_class(figure)
    return figure


def panels(
    count: int, columns: int, width_cm: float = PAGE_CM, row_cm: float = 4.6, **settings: Any
) -> tuple[Figure, list[Any]]:
    """Make a figure with a grid of `count` axes; the rest of the grid stays empty."""
    columns = min(columns, max(count, 1))
    rows = -(-max(count, 1) // columns)
    figure = new_figure(width_cm, rows * row_cm)
    axes = figure.subplots(rows, columns, squeeze=False, **settings).ravel().tolist()
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


_COLUMNS = 4
_ROW_CM, _EDGE_CM = 4.1, 1.6
# Width of an entry of a legend.
_ENTRY_CM = 2.1


def panel_rows(
    runs: Sequence[dict[str, Any]], row_cm: float = _ROW_CM
) -> tuple[Figure, list[tuple[Any, dict[str, Any]]]]:
    """Make a figure with an axis for every set of every run, and return (axis, set) of each.

    A run starts a new row; with several runs the representation stands above its first panel.
    """
    widest = max(len(run["sets"]) for run in runs)
    # Seven panels are better as four and three, six as three and three.
    columns = -(-widest // -(-widest // max(1, min(_COLUMNS, widest))))
    rows = [-(-len(run["sets"]) // columns) for run in runs]
    width = min(PAGE_CM, _EDGE_CM + 5.2 * columns)
    figure = new_figure(width, _EDGE_CM + row_cm * sum(rows))
    grid = figure.add_gridspec(sum(rows), columns)
    axes = []
    for first, run in zip(itertools.accumulate(rows, initial=0), runs, strict=False):
        for i, entry in enumerate(run["sets"]):
            axis = figure.add_subplot(grid[first + i // columns, i % columns])
            axes.append((axis, entry))
            if i == 0 and len(runs) > 1:
                place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
                look: dict[str, Any] = {"fontsize": 8.5, "fontweight": "bold", "color": INK}
                axis.annotate(run["representation"], (0.0, 1.0), (-16, 19), **place, **look)
    return figure, axes


def legend_above(figure: Figure, handles: Sequence[Any]) -> None:
    """Put a legend above all panels, broken into rows that fit the width."""
    fit = max(1, int(2.54 * figure.get_figwidth() / _ENTRY_CM))
    rows = -(-len(handles) // fit)
    columns = -(-len(handles) // rows)
    figure.legend(handles=handles, loc="outside upper center", ncols=columns, columnspacing=1.4)


def gain_panels(
    runs: Sequence[dict[str, Any]],
    labels: Sequence[str],
    points_of: Callable[[dict[str, Any]], list[tuple[int, dict[str, Any], list[list[float]]]]],
    title_of: Callable[[dict[str, Any]], str],
    *,
    text: str,
    shaded: tuple[float, float],
    columns: int,
    panel_cm: float,
    head_cm: float,
) -> Figure:
    """Draw differences of the AUC as points with ranges, one panel a run and one row a label.

    `points_of` gives the points of a run as (row, spread, [low, high] of every threshold); rows in
    the range `shaded` have a grey background. Rows are named beside the first panel, so that long
    names stay horizontal.
    """
    width = min(PAGE_CM, 4.6 + panel_cm * min(columns, len(runs)))
    height = head_cm + 0.62 * len(labels)
    figure, axes = panels(len(runs), columns, width, height, sharex=True, sharey=True)
    handles: list[Any] = []
    for axis, run in zip(axes, runs, strict=True):
        points = points_of(run)
        axis.axvline(0.0, color=GREY, linewidth=0.8, zorder=1)
        axis.axhspan(*shaded, color="#f3f4f6", zorder=0)
        handles = []
        for i, (threshold, colour) in enumerate(THRESHOLD_COLOURS.items()):
            places = [row + 0.24 * (i - 1) for row, _, _ in points]
            ends = [[ranges[i][side] for _, _, ranges in points] for side in (0, 1)]
            axis.hlines(places, *ends, color=colour, linewidth=0.9)
            means = [spread["mean"][i] for _, spread, _ in points]
            look = {"color": colour, "marker": MARKERS[i], "label": f"AUC@{threshold}°"}
            handles += axis.plot(means, places, linestyle="none", **look)
        axis.set_title(title_of(run))
        axis.grid(visible=False, axis="y")
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(labels)), list(labels))
    axes[0].set_ylim(len(labels) - 0.4, -0.6)
    figure.supxlabel(text, fontsize=7.5, color=INK)
    legend_above(figure, handles)
    return figure


def legend_line(label: str, **style: Any) -> Any:
    """Make an entry of a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **style)


def threshold_lines(*, markers: bool = False) -> list[Any]:
    """Make the entries of a legend for the AUC thresholds."""
    return [
        legend_line(f"AUC@{threshold}°", color=colour, marker=MARKERS[i] if markers else "")
        for i, (threshold, colour) in enumerate(THRESHOLD_COLOURS.items())
    ]


def shades(keys: Sequence[int], first: float, last: float) -> dict[int, str]:
    """Give every key a colour, evenly spread over a part of a scale from 0 to 1."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    steps = max(len(keys) - 1, 1)
    scale = colormaps["viridis"]
    return {n: to_hex(scale(first + (last - first) * i / steps)) for i, n in enumerate(keys)}


def panel_title(axis: Any, text: str) -> None:
    """Write a title above a panel, a long one smaller so that it stays above its own."""
    axis.set_title(text, loc="left", fontsize=8.0 * min(1.0, 23 / max(len(text), 1)))


# Longer edge of a photograph as it is kept, in pixels: more than a column of a page shows.
_LONGEST = 640


def photograph(image: NDArray[np.uint8], longest: int = _LONGEST) -> dict[str, Any]:
    """Keep an (H, W, 3) image as JPEG text, with its own width and height."""
    picture = require_pillow().fromarray(image)
    size = picture.size
    picture.thumbnail((longest, longest))
    return {"size": list(size), "jpeg": _text(picture, "JPEG", quality=88)}


def overlays(map0: FeatureMap, map1: FeatureMap) -> list[dict[str, Any]]:
    """Colour two maps by one PCA, and keep the colours with the pixels that they cover."""
    result = []
    colours = pca_colours(map0.values, map1.values)
    for dense, colour in zip((map0, map1), colours, strict=True):
        rows, columns = dense.grid
        (x, y), (dx, dy) = dense.origin, dense.stride
        picture = require_pillow().fromarray(np.rint(255 * colour).astype(np.uint8))
        # Left, right, bottom, top in pixels of the image.
        extent = [x - dx / 2, x + (columns - 0.5) * dx, y + (rows - 0.5) * dy, y - dy / 2]
        result.append({"png": _text(picture, "PNG"), "extent": extent})
    return result


def show(
    axis: Axes,
    picture: dict[str, Any],
    overlay: dict[str, Any] | None = None,
    *,
    opacity: float = 0.75,
    left: float = 0.0,
) -> None:
    """Draw a photograph, in grey under an overlay, from `left` on along x."""
    width, height = picture["size"]
    image = _array(picture["jpeg"])
    frame = (left - 0.5, left + width - 0.5, height - 0.5, -0.5)
    if overlay is None:
        axis.imshow(image, extent=frame)
        return
    axis.imshow(image.mean(axis=2), cmap="gray", vmin=0, vmax=255, extent=frame)
    x0, x1, y0, y1 = overlay["extent"]
    shown = axis.imshow(
        _array(overlay["png"]),
        extent=(x0 + left, x1 + left, y0, y1),
        alpha=opacity,
        interpolation="bilinear",
    )
    # Cells may reach beyond the image.
    from matplotlib.patches import Rectangle

    shown.set_clip_path(Rectangle((frame[0], -0.5), width, height, transform=axis.transData))


def _text(picture: Any, form: str, **settings: Any) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, form, **settings)
    return base64.b64encode(buffer.getvalue()).decode()


def _array(text: str) -> NDArray[np.uint8]:
    return load_image(require_pillow().open(io.BytesIO(base64.b64decode(text))))
