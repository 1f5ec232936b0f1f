"""Merging: several graphs into one, and keypoints at the same place into one vertex."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import FloatArray, IndexArray, real, refusal
from manymatch.graph import MOST_SOURCES, AssociationGraph, GraphLike, HasGraph, as_graph


def merge_graphs(
    graphs: Iterable[GraphLike],
    names: Sequence[str] | None = None,
    *,
    tolerance_px: float | None = None,
) -> AssociationGraph:
    """Put the candidates of several features or matchers for one pair into one graph.

    Keypoints are stacked: those of the first graph, then those of the second and so on. An edge
    knows which graph it comes from, so that "auto" can find out for each pair which source to trust
    (benchmarks/results/fusion.md).

    Parameters
    ----------
    graphs : iterable of AssociationGraph or Candidates
        At least one, all in the same pixels (or units). A graph that has sources keeps them.
    names : sequence of str, optional
        One per graph, all different; by default those that graphs with sources have, else the
        place in the list, "0", "1" and so on. The sources of a graph that has several are called
        "name source".
    tolerance_px : float, optional
        Join keypoints of an image at most this many pixels apart, also of different graphs, as
        `merge_coincident` does; 0 joins equal positions. By default none are joined, which is as
        accurate.

    Returns
    -------
    AssociationGraph
        With `source` and `source_names`. Edges of a source are put best first, as by `best_first`.
        Sources are interleaved: by rank, then by place among the edges of that rank of their
        source, then by source. If only some graphs have ranks, the edges of the others are ranked
        by their place among the edges of their two keypoints. If only some have priors, the edges
        of the others get the prior 1. Similarities are kept if all graphs have them.
    """
    given = [graph.best_first() for graph in _checked_graphs(graphs)]
    parts = [_sources_of(graph, i) for i, graph in enumerate(given)]
    labels = _labels([own for _, own in parts], names)
    # Numbers of the first keypoints of either side and of the first source of every graph.
    lengths = [
        (len(graph.points0), len(graph.points1), len(own))
        for graph, (_, own) in zip(given, parts, strict=True)
    ]
    first = np.cumsum([(0, 0, 0), *lengths], axis=0)[:-1]
    edges = np.concatenate([g.edges + start[:2] for g, start in zip(given, first, strict=True)])
    source = np.concatenate([s + start[2] for (s, _), start in zip(parts, first, strict=True)])
    rank, prior, similarity = None, None, None
    if any(graph.rank is not None for graph in given):
        rank = np.concatenate([_ranks(graph) for graph in given])
    if any(graph.prior is not None for graph in given):
        ones = (np.ones(g.num_edges) if g.prior is None else g.prior for g in given)
        prior = np.concatenate(list(ones))
    if all(graph.similarity is not None for graph in given):
        similarity = np.concatenate([np.asarray(graph.similarity) for graph in given])
    merged = AssociationGraph(
        np.concatenate([graph.points0 for graph in given]),
        np.concatenate([graph.points1 for graph in given]),
        *(edges, similarity, rank),
        source=source,
        source_names=labels,
        prior=prior,
    )
    merged = merged.reordered(_interleaved(source, rank))
    return merged if tolerance_px is None else merge_coincident(merged, tolerance_px)[0]


def _checked_graphs(graphs: object) -> list[AssociationGraph]:
    """Check that graphs are at least one, between points of equal kinds."""
    values: list[Any] = []
    if isinstance(graphs, Iterable) and not isinstance(graphs, AssociationGraph | HasGraph):
        values = list(graphs)
    if not values:
        raise refusal("graphs", "a list of AssociationGraph, at least one", graphs)
    given: list[AssociationGraph] = []
    for i, value in enumerate(values):
        like = given[0] if given else getattr(value, "graph", value)
        dimensions = (2, 2)
        if isinstance(like, AssociationGraph):
            dimensions = like.points0.shape[1], like.points1.shape[1]
        given.append(as_graph(value, f"graphs[{i}]", dimensions))
    return given


def _sources_of(graph: AssociationGraph, place: int) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Return the source of every edge of a graph and the names of its sources."""
    if graph.source is not None:
        return graph.source, graph.source_names
    return np.zeros(graph.num_edges, dtype=np.int32), (str(place),)


def _labels(own: list[tuple[str, ...]], names: object) -> list[str]:
    """Names of all sources of the merged graph, of the names that each graph has."""
    total = sum(map(len, own))
    if total > MOST_SOURCES:
        raise ValueError(f"graphs must have {MOST_SOURCES} sources at most, got {total}")
    if names is None:
        labels = [name for several in own for name in several]
        if len(set(labels)) < total:
            raise ValueError(f"names must be given for sources of equal names, got None, {labels}")
        return labels
    chosen = list(names) if isinstance(names, list | tuple) else []
    text = all(isinstance(name, str) and name and name.isprintable() for name in chosen)
    if not text or len(set(chosen)) != len(own):
        want = f"{len(own)} different names, one per graph"
        raise ValueError(f"names must be {want}, got {names!r:.200}")
    return [
        name if len(several) == 1 else f"{name} {single}"
        for name, several in zip(chosen, own, strict=True)
        for single in several
    ]


def _ranks(graph: AssociationGraph) -> NDArray[np.int32]:
    """Ranks of the edges; without them, the larger of their places at their two keypoints."""
    if graph.rank is not None:
        return graph.rank
    places = [place_in_group(graph.edges[:, side]) for side in (0, 1)]
    return (1 + np.maximum(*places)).astype(np.int32)


def place_in_group(group: NDArray[Any]) -> IndexArray:
    """Return how many entries before each one have the same value, (E,)."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    start = np.searchsorted(ordered, ordered, side="left")
    place = np.empty(len(group), dtype=np.int64)
    place[order] = np.arange(len(group)) - start
    return place


def _interleaved(source: NDArray[Any], rank: NDArray[np.int32] | None) -> IndexArray:
    """Order of stacked edges: by rank, then by place among those of their source, then source."""
    rank = np.ones(len(source), dtype=np.int32) if rank is None else rank
    place = place_in_group(source.astype(np.int64) * (int(rank.max(initial=1)) + 1) + rank)
    return np.lexsort((source, place, rank)).astype(np.int64)


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
        similarity are kept, and the source and prior of the first. Edges are by (rank, decreasing
        similarity, i, j); without ranks or similarities, by what there is and then by their place
        in the graph; with sources, whose similarities cannot be compared, by rank and place. If
        nothing coincides, this is the graph as it was given.
    index0, index1 : (N0,) and (N1,) int64 ndarray
        The vertex of ``merged`` that every keypoint of ``graph`` became.
    """
    graph = as_graph(graph)
    tolerance = real(tolerance_px, "tolerance_px", 0.0, closed=True)
    points0, index0 = _merge_points(graph.points0, tolerance)
    points1, index1 = _merge_points(graph.points1, tolerance)
    if len(points0) == len(graph.points0) and len(points1) == len(graph.points1):
        return graph, index0, index1
    edges = np.stack([index0[graph.edges[:, 0]], index1[graph.edges[:, 1]]], axis=1)
    order, similarity, rank = _merge_edges(edges, graph, len(points1))
    merged = AssociationGraph(
        *(points0, points1, edges[order], similarity, rank),
        source=None if graph.source is None else graph.source[order],
        source_names=graph.source_names or None,
        prior=None if graph.prior is None else graph.prior[order],
    )
    return merged, index0, index1


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
    label = np.arange(len(places), dtype=np.int64)
    # Neighbours in x at distance 1, 2, ... in the list, as long as any are near enough in x.
    pairs = [np.zeros((2, 0), dtype=np.int64)]
    for step in range(1, len(places) if tolerance else 0):
        delta = places[step:] - places[:-step]
        if not (delta[:, 0] <= tolerance).any():
            break
        close = np.flatnonzero(np.hypot(delta[:, 0], delta[:, 1]) <= tolerance)
        pairs.append(np.stack([close, close + step]))
    first, second = np.concatenate(pairs, axis=1)
    while not np.array_equal(label[first], label[second]):
        least = np.minimum(label[first], label[second])
        np.minimum.at(label, np.concatenate([first, second]), np.concatenate([least, least]))
        label = label[label]
    return label


def _merge_edges(
    edges: IndexArray, graph: AssociationGraph, num1: int
) -> tuple[IndexArray, NDArray[np.float32] | None, NDArray[np.int32] | None]:
    """First of equal edges, in the order of the result, with the best of their values."""
    similarity, rank, comparable = graph.similarity, graph.rank, graph.source is None
    code = edges[:, 0] * num1 + edges[:, 1]
    distinct, first, group = np.unique(code, return_index=True, return_inverse=True)
    complete = comparable and similarity is not None and rank is not None
    keys: list[NDArray[Any]] = [distinct if complete else first]
    if similarity is not None:
        best = np.full(len(distinct), -np.inf, dtype=np.float32)
        np.maximum.at(best, group.reshape(-1), similarity)
        similarity = best
        keys += [-similarity] if comparable else []
    if rank is not None:
        least = np.full(len(distinct), np.iinfo(np.int32).max, dtype=np.int32)
        np.minimum.at(least, group.reshape(-1), rank)
        rank = least
        keys.append(rank)
    order = np.lexsort(keys)
    return (
        first[order],
        None if similarity is None else similarity[order],
        None if rank is None else rank[order],
    )
