"""The picture of one pair: candidates kept, candidates chosen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import bool_array, int_array, integer
from manymatch.viz._canvas import PairCanvas, new_figure

if TYPE_CHECKING:
    import os

    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

    from manymatch.estimate.relative_pose import Estimate
    from manymatch.graph import AssociationGraph

# Ranks run from dark blue to pale pink; green and red are left for right and wrong.
_RANKS = ("#1e3a8a", "#3b82f6", "#8b5cf6", "#d946ef", "#f9a8d4")
_RIGHT, _WRONG, _CHOSEN = "#15803d", "#dc2626", "#0f766e"


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
    rows: tuple[ArrayLike, ArrayLike] | None = None,
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
    rows : pair of (N0,) and (N1,) int arrays, optional
        Which row of a repeated structure a keypoint belongs to, -1 for none; rows are underlined.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is missing.
    """
    integer(max_keypoints, "max_keypoints", 1)
    truth = None
    if is_true is not None:
        truth = bool_array(is_true, "is_true", "one flag per edge", (graph.num_edges,))
    row_ids = None if rows is None else _row_ids(graph, rows)
    halves = 1 if estimate is None else 2
    figure, panels = new_figure(size0, size1, halves, title)
    for panel in panels:
        panel.draw_images(*images)
        if row_ids is not None:
            panel.draw_rows(graph.points0, graph.points1, *row_ids)
        panel.draw_points(graph.points0, graph.points1)
    _draw_kept(panels[0], graph, estimate, max_keypoints)
    if estimate is not None:
        _draw_chosen(panels[1], graph, estimate, truth)
    if path is not None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target)
    return figure


def _row_ids(
    graph: AssociationGraph, rows: tuple[ArrayLike, ArrayLike]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    want = "one row number per keypoint"
    return (
        int_array(rows[0], "rows[0]", want, (len(graph.points0),)),
        int_array(rows[1], "rows[1]", want, (len(graph.points1),)),
    )


def _draw_kept(
    panel: PairCanvas, graph: AssociationGraph, estimate: Estimate | None, max_keypoints: int
) -> None:
    """Candidates of a few keypoints, the best ones on top, a ring around the chosen ones."""
    shown = _spread(graph.points0, np.unique(graph.edges[:, 0]), max_keypoints)
    edges = np.flatnonzero(np.isin(graph.edges[:, 0], shown))
    exact = np.ones(len(edges)) if graph.rank is None else graph.rank[edges]
    rank = np.minimum(exact, len(_RANKS))
    legend: list[tuple[str, ...]] = []
    for value in range(len(_RANKS), 0, -1):
        chosen = graph.edges[edges[rank == value]]
        if len(chosen) == 0:
            continue
        colour = _RANKS[value - 1]
        panel.draw_lines(graph.points0, graph.points1, chosen, colour, width=0.8, alpha=0.7)
        panel.mark(graph.points0, graph.points1, chosen, colour, size=9.0)
        more = " and more" if np.any(exact[rank == value] > value) else ""
        legend.append(("candidate" if graph.rank is None else f"rank {value}{more}", colour))
    if estimate is not None and estimate.success:
        matches = estimate.matches[np.isin(estimate.matches[:, 0], shown)]
        panel.ring(graph.points0, graph.points1, matches, _CHOSEN)
        legend.insert(0, ("chosen", _CHOSEN, "○"))
    panel.caption(
        "Kept",
        f"{graph.num_edges} candidates; those of {len(shown)} keypoints are drawn",
        legend[::-1],
    )


def _draw_chosen(
    panel: PairCanvas,
    graph: AssociationGraph,
    estimate: Estimate,
    truth: NDArray[np.bool_] | None,
) -> None:
    """Every resolved match; the wrong ones on top, where that is known."""
    matches = np.asarray(estimate.matches, dtype=np.int64).reshape(-1, 2)
    if not estimate.success:
        panel.caption("Chosen", f"nothing: {estimate.failure}", [])
        return
    styles: list[tuple[str, str, NDArray[np.int64]]]
    if truth is None:
        styles = [("chosen", _CHOSEN, matches)]
    else:
        true_pairs = {(int(i), int(j)) for i, j in graph.edges[truth]}
        right = np.array([(int(i), int(j)) in true_pairs for i, j in matches], dtype=np.bool_)
        styles = [("right", _RIGHT, matches[right]), ("wrong", _WRONG, matches[~right])]
    for _, colour, pairs in styles:
        panel.draw_lines(graph.points0, graph.points1, pairs, colour, width=1.0, alpha=0.6)
        panel.mark(graph.points0, graph.points1, pairs, colour, size=16.0)
    panel.caption(
        "Chosen",
        f"{len(matches)} one-to-one matches out of {estimate.num_inliers} consistent candidates",
        [(f"{len(pairs)} {name}", colour) for name, colour, pairs in styles],
    )


def _spread(points: NDArray[np.float64], among: NDArray[Any], count: int) -> NDArray[Any]:
    """Up to ``count`` of the indices ``among``, far apart from one another."""
    if len(among) <= count:
        return among
    places = points[among]
    picked = [int(np.argmin(np.sum((places - places.mean(axis=0)) ** 2, axis=1)))]
    distance = np.full(len(among), np.inf)
    while len(picked) < count:
        distance = np.minimum(distance, np.sum((places - places[picked[-1]]) ** 2, axis=1))
        picked.append(int(np.argmax(distance)))
    return np.asarray(among[picked])
