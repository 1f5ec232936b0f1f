"""How often a false association is an inlier under the true pose: the paper's δ, measured."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from manymatch.estimate.relative_pose import score_pose
from manymatch.graph import AssociationGraph

if TYPE_CHECKING:
    from manymatch._validate import BoolArray
    from manymatch.estimate.options import Options
    from manymatch.evaluate.posed_graph import PosedGraph

#: A candidate further than this from a keypoint's best one, in pixels at working size, is another
#: place.
APART_PX = 10.0


@dataclasses.dataclass(frozen=True)
class FalseInliers:
    """Counts of one pair.

    Attributes
    ----------
    drawn, drawn_inliers : int
        Pairs of keypoints at random that are no candidates, and those of them that are inliers.
    rivals, rival_inliers : int
        Candidates of keypoints whose first one is an inlier, at another place than that one, and
        those of them that are inliers.
    """

    drawn: int
    drawn_inliers: int
    rivals: int
    rival_inliers: int


def count_false_inliers(posed: PosedGraph, options: Options, draws: int) -> FalseInliers:
    """Count inliers of the true pose among associations that are taken to be false.

    Nobody says which associations of a pair are real, so two kinds are looked at that almost never
    are. Random pairs of keypoints are false as a keypoint has one match at most, and those that
    the graph has as candidates are left out. Rivals are the candidates of a keypoint beside its
    best one, if that is an inlier and so most probably its match.

    Parameters
    ----------
    posed : PosedGraph
        The pair, with ranks.
    options : Options
        Its `threshold_px` is at working size.
    draws : int
        Random pairs.
    """
    graph = posed.graph
    settings = options.replace(threshold_px=options.threshold_px * posed.pixels)
    random = _random_pairs(posed, draws)
    drawn = _inliers(posed, random, settings)
    rivals = rival_edges(graph, _inliers(posed, graph, settings), APART_PX * posed.pixels)
    chosen = _inliers(posed, graph.filter(rivals), settings)
    return FalseInliers(len(drawn), int(drawn.sum()), len(chosen), int(chosen.sum()))


def rival_edges(graph: AssociationGraph, inlier: BoolArray, apart: float) -> BoolArray:
    """Edges (E,) of keypoints of image 0 whose rank-one edge is an inlier, elsewhere than that.

    Parameters
    ----------
    graph : AssociationGraph
        With ranks.
    inlier : (E,) bool
        Inliers of the true pose.
    apart : float
        Pixels between two places.
    """
    if graph.rank is None:
        raise ValueError("graph must have ranks, got none")
    best = np.full(len(graph.points0), -1, dtype=np.int64)
    first = (graph.rank == 1) & inlier
    best[graph.edges[first, 0]] = graph.edges[first, 1]
    mine = best[graph.edges[:, 0]]
    known = mine >= 0
    far = np.zeros(len(graph), dtype=np.bool_)
    step = graph.points1[graph.edges[known, 1]] - graph.points1[mine[known]]
    far[known] = np.linalg.norm(step, axis=1) > apart
    return far


def _random_pairs(posed: PosedGraph, draws: int) -> AssociationGraph:
    """Pairs of keypoints at random, each once, without the candidates."""
    graph = posed.graph
    n0, n1 = len(graph.points0), len(graph.points1)
    if not n0 or not n1:
        return graph.head(0)
    rng = np.random.default_rng(posed.seed_index)
    picked = np.unique(rng.integers(0, n0 * n1, size=draws))
    picked = np.setdiff1d(picked, graph.edges[:, 0] * n1 + graph.edges[:, 1])
    edges = np.column_stack([picked // n1, picked % n1])
    return AssociationGraph(graph.points0, graph.points1, edges)


def _inliers(posed: PosedGraph, graph: AssociationGraph, options: Options) -> BoolArray:
    if not len(graph):
        return np.zeros(0, dtype=np.bool_)
    return score_pose(graph, posed.camera0, posed.camera1, posed.pose, options).inliers
