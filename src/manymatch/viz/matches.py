"""The picture of one pair: candidates kept, candidates chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import bool_array, integer
from manymatch.estimate.words import count
from manymatch.viz.figure import GREY, INK, drawable, new_figure, save_figure

if TYPE_CHECKING:
    import os

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

    from manymatch._validate import FloatArray, IndexArray
    from manymatch.estimate.result import Estimate
    from manymatch.graph import AssociationGraph

# Ranks run from dark blue to pale pink; green and red are left for right and wrong.
_RANKS = ("#1e3a8a", "#3b82f6", "#8b5cf6", "#d946ef", "#f9a8d4")
_RIGHT, _WRONG, _CHOSEN = "#15803d", "#dc2626", "#0f766e"
_POINT, _PANEL, _FRAME = "#b6bdc9", "#f8fafc", "#d9dee6"
_GAP = 0.06  # between the two images, of the left one's width
_WIDTH_IN, _CAPTION_IN, _TITLE_IN, _SIDE_IN = 11.0, 0.56, 0.42, 0.25


def plot_candidates(
    graph: AssociationGraph,
    size0: tuple[int, int],
    size1: tuple[int, int],
    path: str | os.PathLike[str] | None = None,
    images: tuple[ArrayLike | None, ArrayLike | None] = (None, None),
    estimate: Estimate | None = None,
    is_true: ArrayLike | None = None,
    max_keypoints: int = 24,
    title: str | None = None,
) -> Figure:
    """Draw the candidates of a pair and, below, the matches an estimate chose among them.

    Parameters
    ----------
    graph : AssociationGraph
        Keypoints and candidate edges.
    size0, size1 : (int, int)
        Width and height of the images in pixels.
    path : path, optional
        Where to write the picture; the ending decides the format (.png, .pdf, .svg).
    images : pair of (H, W), (H, W, 3) or (H, W, 4) arrays or None
        The photographs; without them the keypoints are drawn on a plain panel.
    estimate : Estimate, optional
        Adds the second half: every resolved match as a line.
    is_true : (E,) bool, optional
        Which edges are right, where that is known; colours the chosen matches.
    max_keypoints : int
        Candidates are drawn for that many keypoints of image 0, spread over the image.
    title : str, optional
        Heading of the picture.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is missing.
    """
    integer(max_keypoints, "max_keypoints", 1)
    truth = None
    if is_true is not None:
        truth = bool_array(is_true, "is_true", "one flag per edge", (graph.num_edges,))
    for name, size in (("size0", size0), ("size1", size1)):
        if min(size) <= 0:
            raise ValueError(f"{name} must be a positive width and height, got {size!r}")
    figure, panels = _pair_figure(graph, size0, size1, 1 if estimate is None else 2, title)
    for panel in panels:
        panel.draw_images(*images)
    _draw_kept(panels[0], graph, estimate, max_keypoints)
    if estimate is not None:
        _draw_chosen(panels[1], graph, estimate, truth)
    if path is not None:
        save_figure(figure, path)
    return figure


def _draw_kept(
    panel: _PairPanel, graph: AssociationGraph, estimate: Estimate | None, max_keypoints: int
) -> None:
    """Candidates of a few keypoints, the best ones on top, a ring around the chosen ones."""
    shown = _spread(graph.points0, np.unique(graph.edges[:, 0]), max_keypoints)
    edges = np.flatnonzero(np.isin(graph.edges[:, 0], shown))
    exact = np.ones(len(edges)) if graph.rank is None else graph.rank[edges]
    rank = np.minimum(exact, len(_RANKS))
    legend: list[tuple[str, str, str]] = []
    for value in range(len(_RANKS), 0, -1):
        ranked = graph.edges[edges[rank == value]]
        if len(ranked) == 0:
            continue
        name = "candidate" if graph.rank is None else f"rank {value}"
        if exact[rank == value].max() > value:
            name += " and more"
        panel.draw_lines(ranked, _RANKS[value - 1], width=0.8, alpha=0.7)
        panel.draw_ends(ranked, s=9, c=_RANKS[value - 1], lw=0.5, edgecolors="white", zorder=5)
        legend.append((name, _RANKS[value - 1], "●"))
    if estimate is not None and estimate.success:
        matches = estimate.matches[np.isin(estimate.matches[:, 0], shown)]
        panel.draw_ends(matches, s=70, facecolors="none", edgecolors=_CHOSEN, lw=1.8, zorder=6)
        legend.insert(0, ("chosen", _CHOSEN, "○"))
    said = (
        f"{count(graph.num_edges, 'candidate')}; those of {count(len(shown), 'keypoint')} are drawn"
    )
    panel.caption("Kept", said, legend[::-1])


def _draw_chosen(
    panel: _PairPanel, graph: AssociationGraph, estimate: Estimate, truth: NDArray[np.bool_] | None
) -> None:
    """Every resolved match; the wrong ones on top, where that is known."""
    if not estimate.success:
        panel.caption("Chosen", f"nothing: {estimate.failure}", [])
        return
    styles = [("chosen", _CHOSEN, estimate.matches)]
    if truth is not None:
        true_pairs = {tuple(pair) for pair in graph.edges[truth].tolist()}
        right = np.array([tuple(pair) in true_pairs for pair in estimate.matches.tolist()], bool)
        styles = [
            ("right", _RIGHT, estimate.matches[right]),
            ("wrong", _WRONG, estimate.matches[~right]),
        ]
    for _, colour, pairs in styles:
        panel.draw_lines(pairs, colour, width=1.0, alpha=0.6)
        panel.draw_ends(pairs, s=16, c=colour, lw=0.5, edgecolors="white", zorder=5)
    said = f"{count(len(estimate.matches), 'one-to-one match', 'one-to-one matches')} out of "
    said += count(estimate.num_inliers, "consistent candidate")
    legend = [(f"{len(pairs)} {name}", colour, "●") for name, colour, pairs in styles]
    panel.caption("Chosen", said, legend)


def _spread(points: FloatArray, among: IndexArray, number: int) -> IndexArray:
    """Up to ``number`` of the indices ``among``, far apart from one another."""
    if len(among) <= number:
        return among
    places = drawable(points[among])
    picked = [int(np.argmin(np.sum((places - places.mean(axis=0)) ** 2, axis=1)))]
    distance = np.full(len(among), np.inf)
    while len(picked) < number:
        distance = np.minimum(distance, np.sum((places - places[picked[-1]]) ** 2, axis=1))
        picked.append(int(np.argmax(distance)))
    return among[picked]


def _pair_figure(
    graph: AssociationGraph,
    size0: tuple[int, int],
    size1: tuple[int, int],
    number: int,
    title: str | None,
) -> tuple[Figure, list[_PairPanel]]:
    """Return a figure with panels below one another, each for the same pair of images."""
    offset = size0[0] * (1.0 + _GAP)
    inner_width = _WIDTH_IN - 2 * _SIDE_IN
    panel_height = inner_width * max(size0[1], size1[1]) / (offset + size1[0])
    top = _TITLE_IN if title else 0.0
    height = top + number * (panel_height + _CAPTION_IN) + _SIDE_IN
    figure = new_figure(_WIDTH_IN, height)
    left, wide = _SIDE_IN / _WIDTH_IN, inner_width / _WIDTH_IN
    if title:
        font = {"fontsize": 15, "fontweight": "bold", "color": INK, "va": "baseline"}
        figure.text(left, 1.0 - 0.36 / height, title, fontdict=font)
    panels = []
    for k in range(number):
        bottom = height - top - (k + 1) * (panel_height + _CAPTION_IN)
        axes = figure.add_axes((left, bottom / height, wide, panel_height / height))
        panels.append(_PairPanel(axes, graph, (size0, size1), offset))
    return figure, panels


class _PairPanel:
    """Axes that show image 0 on the left and image 1, moved by ``offset`` pixels, on the right."""

    def __init__(
        self,
        axes: Axes,
        graph: AssociationGraph,
        sizes: tuple[tuple[int, int], tuple[int, int]],
        offset: float,
    ) -> None:
        self._axes = axes
        self._sizes, self._offsets = sizes, (0.0, offset)
        self._points = drawable(graph.points0), drawable(graph.points1) + np.array([offset, 0.0])
        # Pixel centres are at whole numbers, so an image starts half a pixel earlier.
        axes.set_xlim(-0.5, offset + sizes[1][0] - 0.5)
        axes.set_ylim(max(sizes[0][1], sizes[1][1]) - 0.5, -0.5)
        axes.axis("off")

    def draw_images(self, image0: ArrayLike | None, image1: ArrayLike | None) -> None:
        """Draw photographs, faded so that lines stand out, or plain panels; and all keypoints."""
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
            frame = Rectangle(corner, *size, fill=False, edgecolor=_FRAME, lw=1.2, zorder=2)
            self._axes.add_patch(frame)
        for points in self._points:
            self._axes.scatter(points[:, 0], points[:, 1], s=5, c=_POINT, lw=0, zorder=3)

    def draw_lines(self, edges: IndexArray, colour: str, width: float, alpha: float) -> None:
        """Draw one straight line for each edge (E, 2)."""
        from matplotlib.collections import LineCollection

        ends = np.stack([self._points[side][edges[:, side]] for side in (0, 1)], axis=1)
        lines = LineCollection(list(ends), colors=colour, linewidths=width, alpha=alpha, zorder=4)
        self._axes.add_collection(lines, autolim=False)

    def draw_ends(self, edges: IndexArray, **style: Any) -> None:
        """Draw marks at both ends of the edges, in a style of `Axes.scatter`."""
        for side in (0, 1):
            ends = self._points[side][edges[:, side]]
            self._axes.scatter(ends[:, 0], ends[:, 1], **style)

    def caption(self, head: str, text: str, legend: list[tuple[str, str, str]]) -> None:
        """Write above the images what is shown, and on the right what the colours mean.

        An entry of the legend is a name, a colour and a symbol.
        """
        figure: Any = self._axes.figure
        box = self._axes.get_position()
        y = box.y1 + 0.14 / figure.get_figheight()
        bold = figure.text(box.x0, y, head, fontsize=12, fontweight="bold", color=INK)
        right_of = bold.get_window_extent().x1 / figure.bbox.width
        figure.text(right_of + 0.008, y, text, fontsize=11, color=GREY)
        x = box.x1
        for name, colour, symbol in reversed(legend):
            label = figure.text(x, y, name, fontsize=10, color=INK, ha="right")
            x = label.get_window_extent().x0 / figure.bbox.width - 0.008
            figure.text(x, y, symbol, fontsize=10, color=colour, ha="right")
            x -= 0.025
