"""Association lists as CSV: ``left_idx,right_idx,x1,y1,x2,y2,similarity,k``."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Literal, overload

import numpy as np

from manymatch import _files
from manymatch._validate import IndexArray, refusal
from manymatch.graph import AssociationGraph

if TYPE_CHECKING:
    import os

    from manymatch._validate import FloatArray

HEADER = "left_idx,right_idx,x1,y1,x2,y2,similarity,k"
CSV = f"an association CSV with the header {HEADER}"

_Row = tuple[int, int, float, float, float, float, float, int]


@overload
def read_associations_csv(
    path: str | os.PathLike[str], *, with_ids: Literal[False] = ...
) -> AssociationGraph: ...
@overload
def read_associations_csv(
    path: str | os.PathLike[str], *, with_ids: Literal[True]
) -> tuple[AssociationGraph, IndexArray, IndexArray]: ...
def read_associations_csv(
    path: str | os.PathLike[str], *, with_ids: bool = False
) -> AssociationGraph | tuple[AssociationGraph, IndexArray, IndexArray]:
    """Read a graph from an association CSV.

    The file holds the keypoints that have candidates only, and their ids may have holes. The graph
    has one vertex an id, by increasing id. Edges are put in edge order: by k (the rank), decreasing
    similarity, left and right id.

    Parameters
    ----------
    path
        The file; (x1, y1) is the left keypoint and (x2, y2) the right one, in pixels.
    with_ids
        Return ``(graph, ids0, ids1)`` with the ids, (n0,) and (n1,) int64, of the vertices.

    Raises
    ------
    ValueError
        If the file is missing, damaged or something else, or gives one id two positions.
    """
    rows = _parse(_files.read_bytes(path, CSV), path)
    rows.sort(key=lambda row: (row[7], -row[6], row[0], row[1]))
    try:
        ids0, points0, left = _vertices([(row[0], row[2], row[3]) for row in rows])
        ids1, points1, right = _vertices([(row[1], row[4], row[5]) for row in rows])
        edges = np.stack([left, right], axis=1)
        similarity, rank = [row[6] for row in rows], [row[7] for row in rows]
        graph = AssociationGraph(points0, points1, edges, similarity, rank)
    except (ValueError, OverflowError) as error:
        raise _files.unreadable(path, CSV, str(error)) from error
    return (graph, ids0, ids1) if with_ids else graph


def write_associations_csv(graph: AssociationGraph, path: str | os.PathLike[str]) -> None:
    """Write the edges of a graph, in order, as an association CSV.

    Every number comes back exactly when the file is read. Keypoints without an edge are not in the
    file. The file appears under its name only when it is complete.

    Parameters
    ----------
    graph
        A graph with similarities and ranks.
    path
        File to write, in an existing folder.
    """
    if not isinstance(graph, AssociationGraph):
        raise refusal("graph", "an AssociationGraph", graph)
    if graph.similarity is None or graph.rank is None:
        lacking = "similarity" if graph.similarity is None else "rank"
        raise ValueError(f"graph must have similarities and ranks, got {lacking}=None")
    (left, right), rank = graph.edges.T, graph.rank
    # The shortest decimal of a float32 is shorter than that of the same number as float64.
    texts = [np.format_float_positional(s, unique=True, trim="-") for s in graph.similarity]
    columns = zip(
        left.tolist(),
        right.tolist(),
        *graph.points0[left].T.tolist(),
        *graph.points1[right].T.tolist(),
        texts,
        rank.tolist(),
        strict=True,
    )
    lines = [HEADER, *(",".join(map(str, row)) for row in columns)]

    def write(file: BinaryIO) -> None:
        file.write(("\n".join(lines) + "\n").encode("ascii"))

    _files.write_whole(path, write)


def _parse(data: bytes, path: object) -> list[_Row]:
    """Parse all lines; the error names the first line that cannot be read."""
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise _files.unreadable(path, CSV, "it is no text") from error
    if not lines or lines[0].replace(" ", "") != HEADER:
        raise _files.unreadable(path, CSV, "it has another header")
    if not data.endswith((b"\n", b"\r")) and len(lines) > 1:
        raise _files.unreadable(path, CSV, "its last line is cut off: it has no line end")
    rows: list[_Row] = []
    for number, line in enumerate(lines[1:], 2):
        try:
            i, j, x1, y1, x2, y2, similarity, k = line.split(",")
            point0, point1 = (float(x1), float(y1)), (float(x2), float(y2))
            row = (_id(i), _id(j), *point0, *point1, float(similarity), int(k))
        except ValueError as error:
            raise _files.unreadable(path, CSV, f"line {number}: {error}") from error
        rows.append(row)
    return rows


def _id(text: str) -> int:
    """Parse the id of a keypoint."""
    number = int(text)
    if number < 0:
        raise ValueError("an id is negative")
    return number


def _vertices(ends: list[tuple[int, float, float]]) -> tuple[IndexArray, FloatArray, IndexArray]:
    """Distinct ids, their points and the vertex of every edge's end."""
    points: dict[int, tuple[float, float]] = {}
    for number, x, y in ends:
        if points.setdefault(number, (x, y)) != (x, y):
            raise ValueError(f"keypoint {number} has two positions, {points[number]} and {(x, y)}")
    ids = sorted(points)
    place = {number: vertex for vertex, number in enumerate(ids)}
    return (
        np.array(ids, dtype=np.int64),
        np.array([points[number] for number in ids], dtype=np.float64).reshape(-1, 2),
        np.array([place[end[0]] for end in ends], dtype=np.int64),
    )
