"""The picture of one pair: candidates kept, candidates chosen."""

from __future__ import annotations

import colorsys
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import FloatArray, IndexArray, count, integer, refusal
from manymatch.estimate import words
from manymatch.io.image import require_pillow
from manymatch.viz.figure import (
    GREY,
    INK,
    Dots,
    Lines,
    Page,
    Panel,
    Photo,
    Text,
    as_figure,
    drawable,
    picture_path,
    rgba,
    screen_image,
    text_width,
    wrapped,
    write_page,
)
from manymatch.viz.overlay import CHOSEN, edge_states, source_colours, verdict_kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from manymatch.estimate.confidence import Confidence
    from manymatch.estimate.result import Estimate
    from manymatch.graph import AssociationGraph

# The report has the same ranks. A candidate that is chosen is green, one of rank one that is not is
# orange, as in the paper's first figure.
_RANKS = ("#4fc3ff", "#8b98ff", "#c58bff", "#ff7ec4", "#ffa14f")
_CHOSEN, _FIRST, _OTHER = "#34e0ab", "#ff9f43", "#d5dbe6"
_PANEL, _OUTLINE = "#2a313d", "#0b0f16"
_VERDICTS = {"good": "#0d7a4f", "doubt": "#b26a00", "bad": "#b4232c"}
# More lines than that cannot be followed; dots are drawn for all.
_MOST_LINES = 160
# Parts of a photograph's own colour and brightness that are left, so that lines stand out.
_COLOUR, _BRIGHTNESS = 0.55, 0.8

# Pixels of the page.
_WIDEST, _NARROWEST, _TALLEST, _SHORTEST = 1400, 900, 640, 24
_MARGIN, _GAP = 24, 14


def plot_candidates(
    graph: AssociationGraph,
    size0: tuple[int, int],
    size1: tuple[int, int],
    path: str | os.PathLike[str] | None = None,
    images: tuple[Any, Any] = (None, None),
    estimate: Estimate | None = None,
    max_keypoints: int = 12,
    title: str | None = None,
    confidence: Confidence | None = None,
) -> Figure | Path:
    """Draw the candidates of a pair and, below, the matches that an estimate chose among them.

    The upper half shows all candidates of a few keypoints with their ranks and which one was
    chosen: first keypoints whose match is far from their best candidate. The lower half shows all
    matches, both ends in the same colour, and lines for as many of them as can be followed.
    Matches of several sources have the colours of these.

    Parameters
    ----------
    graph : AssociationGraph
        Keypoints and candidate edges.
    size0, size1 : (int, int)
        Width and height of the images in pixels. They are drawn at the same height.
    path : path, optional
        Where to write the picture; the ending decides the format (.png, .jpg, .webp, .tif, .pdf,
        .svg, .eps). Without it a matplotlib figure is returned, which notebooks show.
    images : pair of images or None
        The photographs as `manymatch.io.load_image` takes them; None gives a plain panel.
    estimate : Estimate, optional
        Adds the lower half.
    max_keypoints : int
        Candidates are drawn for that many keypoints of image 0, spread over the image.
    title : str, optional
        Heading of the picture.
    confidence : Confidence, optional
        Adds the verdict on the estimate below the heading.

    Raises
    ------
    ModuleNotFoundError
        If Pillow is missing, or matplotlib for a figure or vector graphics.
    """
    target = None if path is None else picture_path(path)
    integer(max_keypoints, "max_keypoints", 1)
    for name, size in (("size0", size0), ("size1", size1)):
        if min(size) <= 0:
            raise ValueError(f"{name} must be a positive width and height, got {size!r}")
    if estimate is not None and len(estimate.inliers) != graph.num_edges:
        want = f"an estimate on the graph with its {graph.num_edges} edges"
        raise refusal("estimate", want, estimate)
    pair = _Pair(graph, (size0, size1), images)
    if title:
        pair.write(title, size=25, bold=True)
    verdict = "" if confidence is None else words.verdict_sentence(confidence)
    if confidence is not None:
        pair.caption("●", verdict, [], _VERDICTS[verdict_kind(confidence.verdict)])
    states = None if estimate is None or not estimate.success else edge_states(graph, estimate)
    _draw_kept(pair, states, max_keypoints)
    if estimate is not None and states is None and estimate.failure not in verdict:
        pair.caption("Chosen", f"nothing: {estimate.failure}", [])
    elif estimate is not None and states is not None:
        _draw_chosen(pair, estimate, states, confidence)
    page = pair.finished()
    return as_figure(page) if target is None else write_page(page, target)


def _draw_kept(pair: _Pair, states: NDArray[np.int64] | None, most: int) -> None:
    """Draw the candidates of a few keypoints with their ranks, the chosen ones on top."""
    graph = pair.graph
    shown, said = _telling(graph, states, most)
    edges = np.flatnonzero(np.isin(graph.edges[:, 0], shown))[::-1]
    rank = np.ones(len(edges), dtype=np.int64) if graph.rank is None else graph.rank[edges]
    # Name, colour, which edges, how wide and opaque their lines are and whether dashed.
    styles: list[tuple[str, str, NDArray[np.bool_], float, float, bool]] = []
    sources = source_colours(graph)
    if states is None and sources and graph.source is not None:
        for value, (name, colour) in reversed(list(enumerate(sources))):
            styles.append((name, colour, graph.source[edges] == value, 2.0, 0.8, False))
    elif states is None:
        for value in range(min(len(_RANKS), int(rank.max(initial=1))), 0, -1):
            last = value == len(_RANKS)
            name = "candidate" if graph.rank is None else f"rank {value}"
            name += " and more" if last and (rank > value).any() else ""
            which = rank >= value if last else rank == value
            styles.append((name, _RANKS[value - 1], which, 2.0, 0.8, False))
    else:
        chosen = states[edges] == CHOSEN
        first = ~chosen & (rank == 1) & (graph.rank is not None)
        styles = [
            ("other candidate", _OTHER, ~chosen & ~first, 1.6, 0.5, False),
            ("rank one, not chosen", _FIRST, first, 2.4, 0.95, True),
            ("chosen", _CHOSEN, chosen, 3.2, 1.0, False),
        ]
    pair.caption(
        "Kept",
        f"{words.kept_text(graph)}. {said}",
        [(name, colour) for name, colour, which, *_ in reversed(styles) if which.any()],
    )
    panel = pair.panel()
    panel.marks.extend(Dots(points, 1.6, rgba("#ffffff", 0.5)) for points in pair.points)
    for _, colour, which, width, opacity, dashed in styles:
        ends = pair.ends(graph.edges[edges[which]])
        if opacity == 1.0:
            panel.marks.append(Lines(ends, rgba(_OUTLINE, 0.6), width + 2.4))
        panel.marks.append(Lines(ends, rgba(colour, opacity), width, dashed=dashed))
    panel.marks.append(Dots(pair.points[0][shown], 5.0, rgba("#ffffff"), _OUTLINE))
    for _, colour, which, *_ in styles:
        centres = pair.ends(graph.edges[edges[which]])[:, 1]
        labels = () if graph.rank is None else [str(value) for value in rank[which]]
        panel.marks.append(Dots(centres, 9.0 if labels else 6.0, rgba(colour), _OUTLINE, labels))


def _telling(
    graph: AssociationGraph, states: NDArray[np.int64] | None, most: int
) -> tuple[IndexArray, str]:
    """Return at most `most` keypoints of image 0 to draw, and the sentence that says which."""
    every = np.unique(graph.edges[:, 0])
    if len(every) == 0:
        return every, ""
    if states is None or graph.rank is None:
        shown = _spread(graph.points0, every, most)
        ranked = "" if graph.rank is None else " with their ranks"
        return shown, f"Drawn{ranked} for {count(len(shown), 'keypoint')}."
    later = np.flatnonzero((states == CHOSEN) & (graph.rank > 1))
    # How far the match is from the best candidate of its keypoint.
    by_rank = np.argsort(graph.rank, kind="stable")
    best = by_rank[np.unique(graph.edges[by_rank, 0], return_index=True)[1]]
    first = best[np.searchsorted(every, graph.edges[later, 0])]
    place = drawable(graph.points1)[graph.edges[:, 1]]
    order = np.argsort(-np.hypot(*(place[later] - place[first]).T), kind="stable")
    beyond = graph.edges[later[order], 0]
    shown = _spread(graph.points0, beyond[: max(4 * most, len(beyond) // 4)], most)
    said = f"{len(shown)} of the {len(beyond):,} whose match is beyond rank one"
    if len(shown) < most:
        more = _spread(graph.points0, np.setdiff1d(every, shown), most - len(shown))
        shown = np.concatenate([shown, more])
    number = count(len(shown), "keypoint")
    return shown, f"Drawn with their ranks for {number}{f', {said}' if len(beyond) else ''}."


def _draw_chosen(
    pair: _Pair,
    estimate: Estimate,
    states: NDArray[np.int64],
    confidence: Confidence | None,
) -> None:
    graph, matches = pair.graph, estimate.matches
    # From left to right in image 0, so that an end can be told from others.
    matches = matches[np.argsort(graph.points0[matches[:, 0], 0], kind="stable")]
    hues = (45.0 + 265.0 * np.arange(len(matches)) / max(len(matches), 1)) / 360.0
    rainbow = [(*colorsys.hls_to_rgb(hue, 0.67, 0.95), 1.0) for hue in hues]
    colours = np.rint(255.0 * np.array(rainbow).reshape(-1, 4)).astype(np.uint8)
    said, legend = words.chosen_text(estimate, graph, states == CHOSEN, confidence), []
    if (sources := source_colours(graph)) and (of_match := graph.source_of(matches)) is not None:
        colours = np.concatenate([rgba(colour) for _, colour in sources])[of_match]
        numbers = np.bincount(of_match, minlength=len(sources)).tolist()
        legend = [(f"{n:,} of {name}", c) for n, (name, c) in zip(numbers, sources, strict=True)]
    if confidence is not None and confidence.verdict == "ambiguous" and estimate.alternatives:
        others = count(len(estimate.alternatives), "other pose is", "other poses are")
        share = words.probability_text(confidence.pose_probability)
        said += f" They belong to the most probable pose ({share}); {others} not drawn."
    if len(matches) > _MOST_LINES:
        said += f" Lines for {_MOST_LINES} of them."
    pair.caption("Chosen", said, legend)
    panel = pair.panel()
    some = np.linspace(0, len(matches) - 1, min(len(matches), _MOST_LINES)).round().astype(int)
    faint = colours[some]
    faint[:, 3] = 150
    panel.marks.append(Lines(pair.ends(matches[some]), faint, 2.2))
    ends = pair.ends(matches).swapaxes(0, 1).reshape(-1, 2)
    panel.marks.append(Dots(ends, 3.6, np.tile(colours, (2, 1)), _OUTLINE))


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


class _Pair:
    """A page that is filled from top to bottom: lines of text, and panels that show both images.

    `points` are the keypoints of either image in pixels of a panel.
    """

    def __init__(
        self,
        graph: AssociationGraph,
        sizes: tuple[tuple[int, int], tuple[int, int]],
        images: tuple[Any, Any],
    ) -> None:
        self.graph = graph
        aspects = [width / height for width, height in sizes]
        room = _WIDEST - 2 * _MARGIN - _GAP
        height = int(np.clip(room / sum(aspects), _SHORTEST, _TALLEST))
        # Images of extreme shapes are stretched.
        widths = [round(min(height * a, room * a / sum(aspects))) for a in aspects]
        widths = [min(max(_SHORTEST, width), room - _SHORTEST) for width in widths]
        lefts = [0, widths[0] + _GAP]
        self._size = (sum(widths) + _GAP, height)
        self._page = Page(max(_NARROWEST, self._size[0] + 2 * _MARGIN), _MARGIN)
        self._photos = []
        self.points = []
        points = graph.points0, graph.points1
        for side, (left, width, size) in enumerate(zip(lefts, widths, sizes, strict=True)):
            scale = np.array([width / size[0], height / size[1]])
            # Pixel centres are at whole numbers, so an image starts half a pixel earlier.
            places = (drawable(points[side]) + 0.5) * scale + np.array([left, 0.0])
            # Far outside, nothing is seen, and drawing would walk along the lines or overflow.
            self.points.append(np.clip(places, -4.0 * _WIDEST, 5.0 * _WIDEST))
            if images[side] is None:
                pixels = np.empty((height, width, 3), dtype=np.uint8)
                pixels[:] = rgba(_PANEL)[0, :3]
            else:
                photo = screen_image(images[side], (width, height), f"images[{side}]")
                pixels = _toned(photo)
            self._photos.append(Photo(pixels, left))

    def ends(self, edges: IndexArray) -> FloatArray:
        """Return both ends of edges (E, 2) in pixels of a panel, (E, 2, 2)."""
        return np.stack([self.points[side][edges[:, side]] for side in (0, 1)], axis=1)

    def write(self, text: str, size: int = 20, *, bold: bool = False) -> None:
        """Add text on lines of its own."""
        for line in wrapped(text, size, self._page.width - 2 * _MARGIN, bold=bold):
            self._page.texts.append(Text(_MARGIN, self._baseline(size), line, size, bold))

    def caption(
        self, head: str, text: str, legend: list[tuple[str, str]], colour: str = INK
    ) -> None:
        """Add a bold word, text and, on the right or below, the legend of the colours."""
        page, size, small = self._page, 20, 18
        page.height += _MARGIN // 4
        start = Text(_MARGIN, self._baseline(size), head, size, bold=True, colour=colour)
        page.texts.append(start)
        x = indent = start.width + 10
        right = page.width - _MARGIN
        for k, line in enumerate(wrapped(text, size, right - _MARGIN, first=indent)):
            x = _MARGIN + (0 if k else indent)
            y = start.y if k == 0 else self._baseline(size)
            page.texts.append(Text(x, y, line, size, colour=GREY))
            x = x + page.texts[-1].width
        entries = [(name, shade, text_width(f"● {name}", small)) for name, shade in legend]
        total = sum(width for *_, width in entries) + 24 * len(entries)
        if x + total > right and entries:
            y, x = self._baseline(size), _MARGIN - 24.0
        else:
            x = right - total
        for name, shade, width in entries:
            x += 24
            if x + width > right:
                y, x = self._baseline(size), float(_MARGIN)
            page.texts.append(Text(x, y, "●", small, colour=shade))
            page.texts.append(Text(x + text_width("● ", small), y, name, small))
            x += width

    def _baseline(self, size: int) -> int:
        """Make room for a line of text and return the height of its baseline."""
        self._page.height += round(1.3 * size)
        return self._page.height - round(0.3 * size)

    def panel(self) -> Panel:
        """Add a panel with both images and return it."""
        page = self._page
        box = (_MARGIN, page.height + 8, *self._size)
        page.panels.append(Panel(box, self._photos))
        page.height += self._size[1] + 8 + _MARGIN // 2
        return page.panels[-1]

    def finished(self) -> Page:
        """Return the page with its lower margin."""
        self._page.height += _MARGIN // 2
        return self._page


def _toned(photo: NDArray[np.uint8]) -> NDArray[np.uint8]:
    own, of_each = _BRIGHTNESS * _COLOUR, _BRIGHTNESS * (1.0 - _COLOUR) / 3.0
    matrix = np.concatenate([own * np.eye(3) + of_each, np.zeros((3, 1))], axis=1)
    toned = require_pillow().fromarray(photo).convert("RGB", tuple(matrix.ravel().tolist()))
    return np.asarray(toned)
