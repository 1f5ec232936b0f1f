"""Graphs from any kind of file that holds one, and association lists as CSV.

The columns of the CSV are ``left_idx,right_idx,x1,y1,x2,y2,similarity,k``.
"""

from __future__ import annotations

import dataclasses
import io
from array import array
from collections.abc import Callable

import numpy as np

from manymatch._validate import FloatArray, IndexArray, integer
from manymatch.graph import PER_EDGE, AssociationGraph, GraphLike, as_graph
from manymatch.io import files
from manymatch.io.files import PathLike
from manymatch.io.matches import (
    MATCHES_ARRAYS,
    SUPERGLUE_ARRAYS,
    read_matches_npz,
    read_superglue,
)
from manymatch.io.pairs import IMAGE_SUFFIXES

HEADER = "left_idx,right_idx,x1,y1,x2,y2,similarity,k"
CSV = f"an association CSV with the header {HEADER}"

_PLAIN = "an .npz file with points0, points1 (or points2D, points3D) and edges"
# Names of the points of a file of arrays: of two images or clouds, or of an image and a map.
_PLAIN_POINTS = (("points0", "points1"), ("points2D", "points3D"))
# The .npz file of a graph. With sources or priors its version is 2, otherwise 1.
_FORMAT, _VERSION = "manymatch.AssociationGraph", 2
_FILE = "a graph file written by AssociationGraph.save"
_OTHER_FILE = "it is an .npz file of something else"
_WANT = (
    "a graph file (.npz), an .npz with points0, points1 and edges, an association CSV, an .npz of "
    "matches (ours or SuperGlue's)"
)
_AN_IMAGE = "an image: manymatch match IMAGE0 IMAGE1 matches two of them"
_CSV_START, _HDF_START = HEADER.split(",", 1)[0].encode(), b"\x89HDF\r\n"
# More than the first bytes of any kind.
_MAGIC_BYTES = 64


def save_graph(graph: AssociationGraph, path: PathLike) -> None:
    """Write a graph to one .npz file, see `AssociationGraph.save`."""
    new = graph.source is not None or graph.prior is not None
    fields = {field.name: getattr(graph, field.name) for field in dataclasses.fields(graph)}
    fields["source_names"] = graph.source_names or None
    content = {"format": _FORMAT, "version": 1 + new, **fields}
    arrays = {name: np.asarray(value) for name, value in content.items() if value is not None}
    files.write_npz(path, arrays)


def load_saved_graph(path: PathLike) -> AssociationGraph:
    """Read a graph that `save_graph` wrote, see `AssociationGraph.load`."""
    data = files.read_bytes(path, _FILE)
    if "format" not in files.npz_names(data, path, _FILE):
        raise files.unreadable(path, _FILE, _OTHER_FILE)
    required = ("format", "version", "points0", "points1", "edges", "num_duplicates")
    arrays = files.read_npz(data, path, _FILE, required, (*PER_EDGE, "source_names"))
    with files.reading(path, _FILE, ValueError):
        if arrays.pop("format").tolist() != _FORMAT:
            raise ValueError(_OTHER_FILE)
        version = integer(arrays.pop("version").tolist(), "version", 1)
        if version > _VERSION:
            raise ValueError(f"it has version {version}, and up to {_VERSION} can be read")
        removed = integer(arrays.pop("num_duplicates").tolist(), "num_duplicates", 0)
        graph = AssociationGraph(**arrays)
        object.__setattr__(graph, "num_duplicates", removed + graph.num_duplicates)
        return graph


def load_graph(path: PathLike) -> AssociationGraph:
    """Read a graph from a file of any kind that is known; its content tells the kind.

    It is a file of `AssociationGraph.save` or of `write_matches_npz`, an .npz with the arrays
    points0 and points1 (or points2D and points3D) and edges, and maybe similarity, rank, source,
    source_names and prior, as `AssociationGraph` takes them, an association CSV or a SuperGlue
    .npz. `read_hloc` reads an hloc .h5 file of matches, which needs one of features as well.
    """
    return _READERS[_kind(path)](path)


def _kind(path: object) -> str:
    """Tell the kind of a file by its first bytes and, in an archive, by its members."""
    source = files.as_path(path)
    with files.reading(source, _WANT, OSError, ValueError), files.open_regular(source) as file:
        data = file.read(_MAGIC_BYTES)
        if not data:
            raise ValueError("it is empty")
        if data.removeprefix(b"\xef\xbb\xbf").startswith(_CSV_START):
            return "CSV"
        if not data.startswith(b"PK"):
            image, hdf = source.suffix.lower() in IMAGE_SUFFIXES, data.startswith(_HDF_START)
            other = _AN_IMAGE if image else "something else"
            raise ValueError(f"it is {'an .h5 file, see read_hloc' if hdf else other}")
    names = files.npz_names(files.read_bytes(path, _WANT), path, _WANT)
    for kind, wanted in _MEMBERS:
        if set(wanted) <= names:
            return kind
    raise files.unreadable(path, _WANT, _OTHER_FILE)


def _read_plain(path: object) -> AssociationGraph:
    """Make a graph of the arrays of an .npz file, in edge order or, without ranks, its own."""
    data = files.read_bytes(path, _PLAIN)
    names = files.npz_names(data, path, _PLAIN)
    points = next(points for points in _PLAIN_POINTS if set(points) <= names)
    optional = (*PER_EDGE, "source_names")
    arrays = files.read_npz(data, path, _PLAIN, (*points, "edges"), optional)
    with files.reading(path, _PLAIN, ValueError):
        first, second = (arrays.pop(name) for name in points)
        graph = AssociationGraph(first, second, **arrays)
        if graph.rank is None or np.all(np.diff(graph.rank) >= 0):
            return graph
        return graph.best_first()


def read_associations_csv(path: PathLike) -> AssociationGraph:
    """Read a graph from an association CSV.

    The file holds the keypoints that have candidates only, and their ids may have holes. The graph
    has one vertex an id, by increasing id. Edges are put in edge order: by k (the rank), decreasing
    similarity, left and right id. (x1, y1) is the left keypoint and (x2, y2) the right one, in
    pixels.
    """
    data = files.read_bytes(path, CSV, "text_mb")
    with files.reading(path, CSV, ValueError):
        whole, real = _parse(data)
        order = np.lexsort((whole[:, 1], whole[:, 0], -real[:, 4], whole[:, 2]))
        (left, right, rank), real = whole[order].T, real[order]
        points0, left = _vertices(left, real[:, :2])
        points1, right = _vertices(right, real[:, 2:4])
        return AssociationGraph(points0, points1, np.stack([left, right], axis=1), real[:, 4], rank)


def write_associations_csv(graph: GraphLike, path: PathLike) -> None:
    """Write the edges of a graph with similarities and ranks, in order, as an association CSV.

    Every number comes back exactly when the file is read. Keypoints without an edge, sources and
    priors are not in the file.
    """
    graph = as_graph(graph)
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
    files.write_text(path, "\n".join([HEADER, *(",".join(map(str, row)) for row in columns), ""]))


def _parse(data: bytes) -> tuple[IndexArray, FloatArray]:
    """Return columns (E, 3) i, j and k, and (E, 5) x1, y1, x2, y2 and similarity."""
    lines = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig")
    if next(lines, "").replace(" ", "").strip() != HEADER:
        raise ValueError("it has another header")
    # Numbers take eight bytes each here, and several times that as objects.
    whole, real = array("q"), array("d")
    for number, line in enumerate(lines, 2):
        if not line.endswith("\n"):
            raise ValueError("its last line is cut off: it has no line end")
        try:
            i, j, x1, y1, x2, y2, similarity, k = line.split(",")
            whole.extend((int(i), int(j), int(k)))
            real.extend(map(float, (x1, y1, x2, y2, similarity)))
        except (ValueError, OverflowError) as error:
            raise ValueError(f"line {number}: {error}") from error
    ids = np.array(whole).reshape(-1, 3)
    if (bad := ids[:, :2] < 0).any():
        raise ValueError(f"line {2 + int(np.argmax(bad.any(axis=1)))}: an id is negative")
    return ids, np.array(real).reshape(-1, 5)


def _vertices(ids: IndexArray, points: FloatArray) -> tuple[FloatArray, IndexArray]:
    """Return the points of distinct ids, and the vertex of every edge's end."""
    _, first, vertex = np.unique(ids, return_index=True, return_inverse=True)
    one = points[first]
    if (moved := (points != one[vertex]).any(axis=1)).any():
        k = int(np.argmax(moved))
        both = f"{one[vertex[k]].tolist()} and {points[k].tolist()}"
        raise ValueError(f"keypoint {ids[k]} has two positions, {both}")
    return one, vertex


_MEMBERS = (
    ("graph", ("format",)),
    ("matches .npz", MATCHES_ARRAYS),
    ("SuperGlue .npz", SUPERGLUE_ARRAYS),
    *(("plain .npz", (*points, "edges")) for points in _PLAIN_POINTS),
)
_READERS: dict[str, Callable[..., AssociationGraph]] = {
    "CSV": read_associations_csv,
    "SuperGlue .npz": read_superglue,
    "matches .npz": lambda path: read_matches_npz(path).graph(),
    "graph": load_saved_graph,
    "plain .npz": _read_plain,
}
