"""Two images side by side, with lines between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_INK, _GREY, _DOT = "#111827", "#6b7280", "#b6bdc9"
_PANEL, _FRAME, _ROW = "#f8fafc", "#d9dee6", "#e2e6ec"
_GAP = 0.06  # between the two images, of the left one's width
_WIDTH_IN, _CAPTION_IN, _TITLE_IN, _SIDE_IN = 11.0, 0.56, 0.42, 0.25


def require_matplotlib() -> tuple[type[Figure], type[FigureCanvasAgg]]:
    """Import what draws, or say how to get it."""
    try:
        # Not pyplot: a library must not choose a display or keep figures alive.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Drawing needs matplotlib, which is not installed; pip install manymatch[viz] adds it",
            name="matplotlib",
        ) from error
    return Figure, FigureCanvasAgg


def new_figure(
    size0: tuple[int, int], size1: tuple[int, int], count: int, title: str | None
) -> tuple[Figure, list[PairCanvas]]:
    """Figure with ``count`` canvases below one another, each for the same pair of images."""
    figure_class, canvas_class = require_matplotlib()
    for name, size in (("size0", size0), ("size1", size1)):
        if min(size) <= 0:
            raise ValueError(f"{name} must be a positive width and height, got {size!r}")
    offset = size0[0] * (1.0 + _GAP)
    extent = offset + size1[0], max(size0[1], size1[1])
    inner_width = _WIDTH_IN - 2 * _SIDE_IN
    panel_height = inner_width * extent[1] / extent[0]
    top = _TITLE_IN if title else 0.0
    height = top + count * (panel_height + _CAPTION_IN) + _SIDE_IN
    figure = figure_class(figsize=(_WIDTH_IN, height), dpi=160, facecolor="white")
    canvas_class(figure)
    if title:
        figure.text(
            _SIDE_IN / _WIDTH_IN,
            1.0 - 0.36 / height,
            title,
            fontsize=15,
            fontweight="bold",
            color=_INK,
            va="baseline",
        )
    canvases = []
    for k in range(count):
        bottom = height - top - (k + 1) * (panel_height + _CAPTION_IN)
        box = (
            _SIDE_IN / _WIDTH_IN,
            bottom / height,
            inner_width / _WIDTH_IN,
            panel_height / height,
        )
        axes = figure.add_axes(box)
        canvases.append(PairCanvas(axes, size0, size1, offset))
    return figure, canvases


class PairCanvas:
    """Axes that show image 0 on the left and image 1, moved by ``offset`` pixels, on the right."""

    def __init__(
        self, axes: Axes, size0: tuple[int, int], size1: tuple[int, int], offset: float
    ) -> None:
        self._axes = axes
        self._sizes = (size0, size1)
        self._offsets = (0.0, offset)
        height = max(size0[1], size1[1])
        # Pixel centres are at whole numbers, so an image starts half a pixel earlier.
        axes.set_xlim(-0.5, offset + size1[0] - 0.5)
        axes.set_ylim(height - 0.5, -0.5)
        axes.axis("off")

    def draw_images(self, image0: ArrayLike | None, image1: ArrayLike | None) -> None:
        """Draw the photographs, faded so that lines stand out, or plain panels without them."""
        from matplotlib.patches import Rectangle

        for image, size, x in zip((image0, image1), self._sizes, self._offsets, strict=True):
            corner = (x - 0.5, -0.5)
            self._axes.add_patch(Rectangle(corner, *size, facecolor=_PANEL, zorder=0))
            if image is not None:
                self._axes.imshow(
                    np.asarray(image),
                    cmap="gray",
                    extent=(x - 0.5, x + size[0] - 0.5, size[1] - 0.5, -0.5),
                    alpha=0.75,
                    aspect="auto",
                    zorder=1,
                )
            self._axes.add_patch(
                Rectangle(corner, *size, fill=False, edgecolor=_FRAME, lw=1.2, zorder=2)
            )

    def draw_points(self, points0: FloatArray, points1: FloatArray) -> None:
        """All keypoints as small grey dots."""
        for points, x in zip((points0, points1), self._offsets, strict=True):
            self._axes.scatter(points[:, 0] + x, points[:, 1], s=5, c=_DOT, lw=0, zorder=3)

    def draw_rows(
        self, points0: FloatArray, points1: FloatArray, row0: IntArray, row1: IntArray
    ) -> None:
        """Draw a pale band under the keypoints of each row."""
        for points, row, x in zip((points0, points1), (row0, row1), self._offsets, strict=True):
            for number in np.unique(row[row >= 0]):
                members = points[row == number]
                # Far ends of the row: the extremes along its longer axis.
                along = int(np.argmax(np.ptp(members, axis=0)))
                ends = members[[members[:, along].argmin(), members[:, along].argmax()]]
                self._axes.plot(
                    ends[:, 0] + x, ends[:, 1], c=_ROW, lw=7, solid_capstyle="round", zorder=2.5
                )

    def draw_lines(
        self,
        points0: FloatArray,
        points1: FloatArray,
        edges: IntArray,
        colour: str,
        width: float,
        alpha: float,
    ) -> None:
        """One straight line an edge (E, 2)."""
        from matplotlib.collections import LineCollection

        ends = self._ends(points0, points1, edges)
        self._axes.add_collection(
            LineCollection(
                list(np.stack(ends, axis=1)), colors=colour, linewidths=width, alpha=alpha, zorder=4
            ),
            autolim=False,
        )

    def mark(
        self, points0: FloatArray, points1: FloatArray, edges: IntArray, colour: str, size: float
    ) -> None:
        """Dots in the colour of the edges at both of their ends."""
        for ends in self._ends(points0, points1, edges):
            self._axes.scatter(
                ends[:, 0], ends[:, 1], s=size, c=colour, lw=0.5, edgecolors="white", zorder=5
            )

    def ring(self, points0: FloatArray, points1: FloatArray, edges: IntArray, colour: str) -> None:
        """Rings around both ends of the edges."""
        for ends in self._ends(points0, points1, edges):
            self._axes.scatter(
                ends[:, 0], ends[:, 1], s=70, facecolors="none", edgecolors=colour, lw=1.8, zorder=6
            )

    def caption(self, head: str, text: str, legend: list[tuple[str, ...]]) -> None:
        """Line above the images: what is shown, and on the right what the colours mean.

        An entry of the legend is a name, a colour and, unless it is a dot, a symbol.
        """
        figure: Any = self._axes.figure
        box = self._axes.get_position()
        y = box.y1 + 0.14 / figure.get_figheight()
        bold = figure.text(box.x0, y, head, fontsize=12, fontweight="bold", color=_INK)
        right_of = bold.get_window_extent().x1 / figure.bbox.width
        figure.text(right_of + 0.008, y, text, fontsize=11, color=_GREY)
        x = box.x1
        for name, colour, *symbol in reversed(legend):
            label = figure.text(x, y, name, fontsize=10, color=_INK, ha="right")
            x = label.get_window_extent().x0 / figure.bbox.width - 0.008
            figure.text(x, y, *(symbol or "●"), fontsize=10, color=colour, ha="right")
            x -= 0.025

    def _ends(
        self, points0: FloatArray, points1: FloatArray, edges: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        return points0[edges[:, 0]], points1[edges[:, 1]] + (self._offsets[1], 0.0)
