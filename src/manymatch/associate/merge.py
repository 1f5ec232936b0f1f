"""Coincident keypoints: several detections at one place become one vertex of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import FloatArray, IndexArray, real
from manymatch.graph import AssociationGraph, GraphLike, as_graph

if TYPE_CHECKING:
    from numpy.typing import NDArray


def merge_coincident(
    graph: GraphLike, tolerance_px: float = 0.0
) -> tuple[AssociationGraph, IndexArray, IndexArray]:
    """Make one vertex of keypoints at the same place, with the union of their candidates.

    Detectors such as SIFT report one corner several times, with different orientations. As vertices
    of their own they would make one true correspondence look like several.

    Parameters
    ----------
    graph : AssociationGraph or Candidates
    tolerance_px : float
        Keypoints of an image are grouped if a chain of keypoints connects them whose steps are at
        most this many pixels long; 0 groups equal positions. The groups are the connected
        components, so they do not depend on the order of the keypoints.

    Returns
    -------
    merged : AssociationGraph
        One vertex a group, numbered by the first keypoint of the group, at the mean position of
        its distinct positions. Of edges that became one, the smallest rank and the largest
        similarity are kept. Edges are by (rank, decreasing similarity, i, j); where the graph has
        no ranks or no similarities, by what there is and then by their place in the graph. If
        nothing coincides, this is the graph as it was given.
    index0, index1 : (N0,) and (N1,) int64 ndarray
        The vertex of ``merged`` that every keypoint of ``graph`` became.

    Raises
    ------
    ValueError
        If ``graph`` is no AssociationGraph or the tolerance is negative or not finite.
    """
    graph = as_graph(graph)
    tolerance = real(tolerance_px, "tolerance_px", 0.0, closed=True)
    points0, index0 = _merge_points(graph.points0, tolerance)
    points1, index1 = _merge_points(graph.points1, tolerance)
    if len(points0) == len(graph.points0) and len(points1) == len(graph.points1):
        return graph, index0, index1
    edges = np.stack([index0[graph.edges[:, 0]], index1[graph.edges[:, 1]]], axis=1)
    merged = _merge_edges(edges, graph.similarity, graph.rank, len(points1))
    return AssociationGraph(points0, points1, *merged), index0, index1


def _merge_points(points: FloatArray, tolerance: float) -> tuple[FloatArray, IndexArray]:
    """Positions of the groups and the group of every point."""
    if len(points) == 0:
        return points, np.zeros(0, dtype=np.int64)
    # Distinct positions come out sorted, so that the means do not depend on the order of points.
    # Adding zero makes -0 and 0 one position.
    places, of_place = np.unique(points + 0.0, axis=0, return_inverse=True)
    label = _components(places, tolerance)[of_place.reshape(-1)]
    _, first, group = np.unique(label, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    index = number[group.reshape(-1)]
    group_of_place = np.empty(len(places), dtype=np.int64)
    group_of_place[of_place.reshape(-1)] = index
    count = np.bincount(group_of_place, minlength=len(first))
    merged = np.stack(
        [np.bincount(group_of_place, places[:, c], len(first)) / count for c in range(2)], axis=1
    )
    return merged, index


def _components(places: FloatArray, tolerance: float) -> IndexArray:
    """Label of the connected component of every place; places are distinct and sorted by x."""
    parent = np.arange(len(places), dtype=np.int64)
    if tolerance == 0.0:
        return parent
    # Neighbours in x at distance 1, 2, ... in the list, as long as any are near enough in x.
    for step in range(1, len(places)):
        delta = places[step:] - places[:-step]
        if not (delta[:, 0] <= tolerance).any():
            break
        close = np.flatnonzero(np.hypot(delta[:, 0], delta[:, 1]) <= tolerance)
        apart = parent[close] != parent[close + step]
        for a in close[apart].tolist():
            parent[_root(parent, a)] = _root(parent, a + step)
        while not np.array_equal(parent, parent[parent]):
            parent = parent[parent]
    return parent


def _root(parent: IndexArray, node: int) -> int:
    """Return the representative of a node's component so far."""
    while parent[node] != node:
        node = int(parent[node])
    return node


def _merge_edges(
    edges: IndexArray,
    similarity: NDArray[np.float32] | None,
    rank: NDArray[np.int32] | None,
    num1: int,
) -> tuple[IndexArray, NDArray[np.float32] | None, NDArray[np.int32] | None]:
    """Make equal edges one, with the best of their values, and restore the order."""
    code = edges[:, 0] * num1 + edges[:, 1]
    distinct, first, group = np.unique(code, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    best_similarity, best_rank = None, None
    keys: list[NDArray[Any]] = [first]
    if similarity is not None and rank is not None:
        keys = [distinct]
    if similarity is not None:
        best_similarity = np.full(len(distinct), -np.inf, dtype=np.float32)
        np.maximum.at(best_similarity, group, similarity)
        keys.append(-best_similarity)
    if rank is not None:
        best_rank = np.full(len(distinct), np.iinfo(np.int32).max, dtype=np.int32)
        np.minimum.at(best_rank, group, rank)
        keys.append(best_rank)
    order = np.lexsort(keys)
    return (
        edges[first[order]],
        None if best_similarity is None else best_similarity[order],
        None if best_rank is None else best_rank[order],
    )
