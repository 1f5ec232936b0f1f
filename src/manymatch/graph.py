"""The many-to-many association graph: points of two sides and the candidates between them."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manymatch._validate import (
    INT32_MAX,
    BoolArray,
    FloatArray,
    IndexArray,
    bool_array,
    count,
    float_array,
    int_array,
    integer,
    read_only,
    refusal,
    within,
)

_POINTS = "an (N, 2) array of pixels or an (N, 3) array of points in space"
# A source is a feature or matcher; each has a name.
MOST_SOURCES = 64
_FLOAT32_MAX = float(np.finfo(np.float32).max)
# Optional attributes of an edge: type, least and largest value, and these in words.
PER_EDGE: dict[str, tuple[Any, float, float, str]] = {
    "similarity": (np.float32, -_FLOAT32_MAX, _FLOAT32_MAX, "numbers in the range of float32"),
    "rank": (np.int32, 1, INT32_MAX, f"ranks from 1 to {INT32_MAX}"),
    "source": (np.int32, 0, MOST_SOURCES - 1, f"numbers from 0 to {MOST_SOURCES - 1}"),
    "prior": (np.float64, sys.float_info.min, 1.0, "numbers above 0 and at most 1"),
}


@dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False, slots=True)
class AssociationGraph:
    """Keypoints of two images and the candidate correspondences (edges) between them.

    A keypoint may have any number of candidates. Either side may be points in space instead of
    keypoints: a map for `estimate_absolute_pose`, two clouds for `estimate_rigid_transform`. The
    graph is immutable: its arrays are read-only copies, and every operation returns a new graph.

    Parameters
    ----------
    points0 : (N0, 2) or (N0, 3) array_like
        Keypoints (x, y) of image 0 in pixels; the centre of the top-left pixel is (0, 0). Or
        points (x, y, z) in any unit. Finite.
    points1 : (N1, 2) or (N1, 3) array_like
        Keypoints of image 1 or points, likewise.
    edges : (E, 2) array_like of integers
        ``edges[e]`` is (index into points0, index into points1). Order is meaning: best first,
        that is by rank, then by decreasing similarity. Of equal edges the first one is kept.
    similarity : (E,) array_like, optional
        Cosine similarity of every edge. Finite. Together with the edges it tells the place of an
        edge in the lists of both keypoints, which "auto" uses.
    rank : (E,) array_like of integers, optional
        First K at which the edge is mutual, or its place in the list of one side, from 1.
    source : (E,) array_like of integers, optional
        Which feature or matcher an edge comes from, from 0; `merge_graphs` makes graphs with
        several. How far each can be trusted is then found for each pair.
    source_names : sequence of str, optional
        Names of the sources, all different; by default "0", "1" and so on.
    prior : (E,) array_like, optional
        Score that a matcher gives its own edge: above 0, at most 1. "auto" compares it with other
        edges of the same source only, so any score that grows with the probability of an edge will
        do. "hcm-mcm" and "hcm" take it as the probability p_ij itself, unless the graph has several
        sources, whose scores have different scales.

    Attributes
    ----------
    points0, points1, edges, similarity, rank, source, prior : ndarray
        As given: points and prior float64, edges int64, similarity float32, rank and source int32.
    source_names : tuple of str
        Empty without sources.
    num_duplicates : int
        Repeated edges that were removed when the graph was made; not part of equality.

    Raises
    ------
    ValueError
        If an argument is not what it should be. No edges and no keypoints are legal.
    """

    points0: FloatArray
    points1: FloatArray
    edges: IndexArray
    similarity: NDArray[np.float32] | None
    rank: NDArray[np.int32] | None
    source: NDArray[np.int32] | None
    source_names: tuple[str, ...]
    prior: FloatArray | None
    num_duplicates: int

    def __init__(
        self,
        points0: ArrayLike,
        points1: ArrayLike,
        edges: ArrayLike,
        similarity: ArrayLike | None = None,
        rank: ArrayLike | None = None,
        *,
        source: ArrayLike | None = None,
        source_names: Sequence[str] | None = None,
        prior: ArrayLike | None = None,
    ) -> None:
        p0, p1 = checked_points(points0, "points0"), checked_points(points1, "points1")
        e = index_pairs(edges, "edges", p0, p1)
        given = (similarity, rank, source, prior)
        s, r, o, p = (
            None if value is None else per_edge(value, name, len(e))
            for name, value in zip(PER_EDGE, given, strict=True)
        )
        names = checked_names(source_names, o)
        # The first of equal edges, in order.
        kept = np.sort(np.unique(e[:, 0] * len(p1) + e[:, 1], return_index=True)[1])
        s, r, o, p = (_take(array, kept) for array in (s, r, o, p))
        _fill(self, p0, p1, e[kept], s, r, o, names, p, len(e) - len(kept))

    @classmethod
    def from_matches(cls, points0: ArrayLike, points1: ArrayLike) -> AssociationGraph:
        """Make the graph of plain 1-to-1 matches: N edges ``(i, i)``, all of rank 1.

        The points, (N, 2) pixels or (N, 3) each, are matched ``points0[i]`` with ``points1[i]``,
        best first.
        """
        p0, p1 = checked_points(points0, "points0"), checked_points(points1, "points1")
        if len(p1) != len(p0):
            raise ValueError(
                f"points1 must hold {count(len(p0), 'point')}, one for each of points0, got "
                f"{len(p1)}"
            )
        edges = np.repeat(np.arange(len(p0), dtype=np.int64)[:, None], 2, axis=1)
        rank = np.ones(len(p0), dtype=np.int32)
        return _make(p0, p1, edges, None, rank, None, (), None, 0)

    def _with_edges(self, kept: slice | BoolArray | IndexArray) -> AssociationGraph:
        """Return the graph of some of the edges, sharing the (read-only) keypoints."""
        similarity, rank, source, prior = (_take(getattr(self, name), kept) for name in PER_EDGE)
        edges, names = np.array(self.edges[kept]), self.source_names
        points = self.points0, self.points1
        return _make(*points, edges, similarity, rank, source, names, prior, 0)

    def of_edges(self) -> dict[str, Any]:
        """Return all attributes of the edges but their ends, as keywords of `AssociationGraph`."""
        names = self.source_names or None
        return {**{name: getattr(self, name) for name in PER_EDGE}, "source_names": names}

    @property
    def num_edges(self) -> int:
        """Number of edges E."""
        return len(self.edges)

    def __len__(self) -> int:
        return len(self.edges)

    def degrees(self) -> tuple[IndexArray, IndexArray]:
        """Return the number of candidates of every keypoint, (N0,) and (N1,) int64."""
        return (
            np.bincount(self.edges[:, 0], minlength=len(self.points0)).astype(np.int64),
            np.bincount(self.edges[:, 1], minlength=len(self.points1)).astype(np.int64),
        )

    def source_of(self, pairs: ArrayLike) -> NDArray[np.int32] | None:
        """Return the source (M,) of edges given by their ends (M, 2), such as the matches.

        It is -1 for a pair of keypoints without an edge, None for a graph without sources.
        """
        if self.source is None:
            return None
        ends = int_array(pairs, "pairs", "an (M, 2) array of indices", (None, 2))
        width = len(self.points1)
        inside = ((ends >= 0) & (ends < [len(self.points0), width])).all(axis=1)
        # Every edge as one number; the last entry stands for pairs without an edge.
        key = np.append(self.edges[:, 0] * width + self.edges[:, 1], -1)
        order = np.argsort(key)
        wanted = np.where(inside, ends[:, 0] * width + ends[:, 1], -1)
        found = order[np.searchsorted(key, wanted, sorter=order).clip(max=len(key) - 1)]
        source = np.append(self.source, np.int32(-1))
        return np.where(key[found] == wanted, source[found], np.int32(-1))

    def count_by_source(self, pairs: ArrayLike) -> dict[str, int]:
        """Count edges (M, 2), such as the matches, by the name of their source; {} without any."""
        source = self.source_of(pairs)
        if source is None:
            return {}
        numbers = np.bincount(source[source >= 0], minlength=len(self.source_names)).tolist()
        return dict(zip(self.source_names, numbers, strict=True))

    def head(self, n: int) -> AssociationGraph:
        """Return the graph of the first n edges, of all edges if there are fewer."""
        return self._with_edges(slice(0, integer(n, "n", 0)))

    def up_to_rank(self, k: int) -> AssociationGraph:
        """Return the nested graph E_k: the edges of rank at most k (1 or more), in order."""
        limit = integer(k, "k", 1)
        if self.rank is None:
            raise ValueError(
                f"k must come with a graph that has ranks, got k={limit} and rank=None"
            )
        return self._with_edges(self.rank <= limit)

    def filter(self, mask: ArrayLike) -> AssociationGraph:
        """Return the graph of the edges where mask, (E,) bool, is True, in order."""
        want = f"a boolean array of shape ({len(self)},)"
        return self._with_edges(bool_array(mask, "mask", want, (len(self),)))

    def reordered(self, order: ArrayLike) -> AssociationGraph:
        """Return the graph of the edges ``order``, indices, each once at most, in this order."""
        want = f"different indices from 0 to {len(self) - 1}"
        index = int_array(order, "order", want, (None,))
        if len(np.unique(index)) < len(index) or not np.isin(index, np.arange(len(self))).all():
            raise refusal("order", want, index)
        return self._with_edges(index)

    def best_first(self) -> AssociationGraph:
        """Return the graph with its edges by rank, then by prior, then as listed.

        Without priors, the similarity takes their place.
        """
        values = self.similarity if self.prior is None else self.prior
        keys = [key for key in (None if values is None else -values, self.rank) if key is not None]
        return self._with_edges(np.lexsort(keys)) if keys else self

    def compact(self) -> tuple[AssociationGraph, IndexArray, IndexArray]:
        """Drop the keypoints without any edge.

        Returns
        -------
        graph : AssociationGraph
            The same edges, in order, between the keypoints that are left.
        index0, index1 : (n0,) and (n1,) int64 ndarray
            Where the keypoints were: ``graph.points0 == self.points0[index0]``, and an edge (i, j)
            of the new graph is (index0[i], index1[j]) of this one.
        """
        degree0, degree1 = self.degrees()
        index0, index1 = np.flatnonzero(degree0), np.flatnonzero(degree1)
        edges = np.stack(
            [np.searchsorted(index0, self.edges[:, 0]), np.searchsorted(index1, self.edges[:, 1])],
            axis=1,
        ).astype(np.int64)
        points0, points1 = self.points0[index0], self.points1[index1]
        further = self.similarity, self.rank, self.source, self.source_names, self.prior
        graph = _make(points0, points1, edges, *further, 0)
        return graph, index0.astype(np.int64), index1.astype(np.int64)

    if TYPE_CHECKING:  # manymatch/__init__.py attaches these two, which io implements

        def save(self, path: str | os.PathLike[str]) -> None:
            """Write the graph to one .npz file."""

        @staticmethod
        def load(path: str | os.PathLike[str]) -> AssociationGraph:
            """Read a graph that `save` wrote."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AssociationGraph):
            return NotImplemented
        if self.source_names != other.source_names:
            return False
        names = ("points0", "points1", "edges", *PER_EDGE)
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    # Equality compares every entry; a hash over all of them would be slow.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        active = int(np.count_nonzero(self.degrees()[0]))
        parts = [
            f"{len(self.points0):,} x {count(len(self.points1), 'keypoint')}",
            count(len(self), "edge"),
            f"{len(self) / max(active, 1):.2f} candidates per active keypoint",
        ]
        if self.rank is None:
            parts.append("no ranks")
        elif len(self):
            parts.append(f"ranks {self.rank.min()} to {self.rank.max()}")
        if self.source_names:
            parts.append(f"from {', '.join(self.source_names)}")
        if self.num_duplicates:
            parts.append(f"{self.num_duplicates} duplicates removed")
        return f"AssociationGraph({', '.join(parts)})"

    def __reduce__(self) -> tuple[Callable[..., AssociationGraph], tuple[Any, ...]]:
        # Arrays come back from a pickle writeable; rebuilding makes them read-only again.
        fields = (getattr(self, field.name) for field in dataclasses.fields(self))
        return _make, tuple(np.array(f) if isinstance(f, np.ndarray) else f for f in fields)


@runtime_checkable
class HasGraph(Protocol):
    """An object with a graph, such as the `Candidates` of `manymatch.candidates`."""

    @property
    def graph(self) -> AssociationGraph:
        """Keypoints and candidates."""


#: Types that functions take as a graph, see `as_graph`.
GraphLike: TypeAlias = AssociationGraph | HasGraph


def as_graph(
    value: object, name: str = "graph", dimensions: tuple[int, int] = (2, 2)
) -> AssociationGraph:
    """Return a graph, or the graph of `Candidates`, a `MatchResult` or a data set's pair.

    `dimensions` are the coordinates that points of either side must have.
    """
    graph = value.graph if isinstance(value, HasGraph) else value
    if not isinstance(graph, AssociationGraph):
        want = "an AssociationGraph or what candidates() returns"
        if isinstance(value, np.ndarray):
            want += " (AssociationGraph.from_matches makes one of matched points)"
        raise refusal(name, want, value)
    for side, (points, wanted) in enumerate(
        zip((graph.points0, graph.points1), dimensions, strict=True)
    ):
        if points.shape[1] != wanted:
            kind = "pixels (N, 2)" if wanted == 2 else "points in space (N, 3)"
            raise ValueError(
                f"{name} must have {kind} as points{side} here, got points{side} of shape "
                f"{points.shape}"
            )
    return graph


def checked_points(value: ArrayLike, name: str) -> FloatArray:
    """Check points, (N, 2) or (N, 3); an empty list becomes (0, 2)."""
    try:
        shape = np.shape(value)
    except ValueError:  # rows of different lengths
        shape = ()
    return float_array(value, name, _POINTS, (None, 3 if shape[1:] == (3,) else 2))


def index_pairs(
    value: object, name: str, points0: FloatArray, points1: FloatArray, of: str = "points"
) -> IndexArray:
    """Check an (M, 2) array of indices into two lists of points, called `of` 0 and 1."""
    pairs = int_array(value, name, "an (M, 2) array of whole numbers", (None, 2))
    for side, points in enumerate((points0, points1)):
        bad = (pairs[:, side] < 0) | (pairs[:, side] >= len(points))
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(
                f"{name} must hold indices into {of}{side} ({count(len(points), 'row')}) in column "
                f"{side}, got {pairs[row, side]} in row {row}"
            )
    return pairs


def _fill(graph: AssociationGraph, *values: Any) -> None:
    """Set all fields of a new graph, arrays that are already checked and owned, in their order."""
    for field, value in zip(dataclasses.fields(graph), values, strict=True):
        own = read_only(value) if isinstance(value, np.ndarray) else value
        object.__setattr__(graph, field.name, own)


def _make(*fields: Any) -> AssociationGraph:
    """Make a graph of fields that are already checked and owned."""
    graph = object.__new__(AssociationGraph)
    _fill(graph, *fields)
    return graph


def per_edge(value: ArrayLike, kind: str, count: int, name: str | None = None) -> NDArray[Any]:
    """Check an attribute of edges, (count,), of a kind of `PER_EDGE`."""
    dtype, low, high, wanted = PER_EDGE[kind]
    whole = dtype is np.int32
    want = f"an array of shape ({count},), one {'whole ' if whole else ''}number per edge"
    check: Callable[..., NDArray[Any]] = int_array if whole else float_array
    array = check(value, name or kind, want, (count,))
    within(array, low, high, name or kind, wanted)
    return array.astype(dtype)


def checked_names(value: object, source: NDArray[np.int32] | None) -> tuple[str, ...]:
    """Check the names of the sources of edges, which have default ones."""
    least = 0 if source is None else int(source.max(initial=0)) + 1
    if value is None:
        return tuple(map(str, range(least)))
    if source is None:
        raise ValueError(f"source must be given with source_names, got None and {value!r:.60}")
    want = f"from {least} to {MOST_SOURCES} different names, one per source"
    if isinstance(value, np.ndarray):
        value = value.tolist()
    names = tuple(value) if isinstance(value, list | tuple) else ()
    text = all(isinstance(name, str) and name.isprintable() and name for name in names)
    if not text or not least <= len(set(names)) == len(names) <= MOST_SOURCES:
        raise ValueError(f"source_names must be {want}, got {value!r:.200}")
    return names


def _take(array: NDArray[Any] | None, kept: slice | NDArray[Any]) -> NDArray[Any] | None:
    """Copy the kept entries of an optional array."""
    return None if array is None else np.array(array[kept])
