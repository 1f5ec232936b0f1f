"""How figures look: sizes of a paper's columns, colours that everyone can tell apart."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from manymatch.viz import require_matplotlib

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure

#: Width of a column and of a page of two columns, in centimetres.
COLUMN_CM, PAGE_CM = 8.6, 17.6

INK, GREY, LIGHT = "#1f2937", "#6b7280", "#d1d5db"
#: Colours that remain apart without red or green vision, in order of use (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", ":", "-.")
#: Colour of each AUC threshold, in every figure the same.
THRESHOLD_COLOURS = {5: "#0072b2", 10: "#d55e00", 20: "#009e73"}

_SETTINGS: dict[Any, Any] = {
    # Text stays text in vector files, so that it can be searched and edited.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e7eb",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
}


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Draw in the common style within the block."""
    require_matplotlib()
    import matplotlib as mpl

    with mpl.rc_context(_SETTINGS):
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
    """Make a figure with a grid of `count` axes; what is left over of the grid is empty."""
    columns = min(columns, max(count, 1))
    rows = -(-max(count, 1) // columns)
    figure = new_figure(width_cm, rows * row_cm)
    axes = figure.subplots(rows, columns, squeeze=False, **settings).ravel().tolist()
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]
