"""One door for every kind of file that holds a graph."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch import _files
from manymatch.graph import AssociationGraph
from manymatch.io.associations_csv import HEADER, read_associations_csv
from manymatch.io.h5 import read_hloc
from manymatch.io.matches import SUPERGLUE_ARRAYS, graph_from_matches, read_superglue
from manymatch.io.matches_npz import MATCHES_ARRAYS, read_matches_npz

if TYPE_CHECKING:
    import os

    from numpy.typing import ArrayLike, NDArray

_WANT = (
    "a graph file (.npz), an association CSV, an .npz of matches (ours or SuperGlue's), an hloc "
    ".h5 or an .npy of matches"
)
_ARRAY = "an .npy file of (E, 2) or (E, 3) matches"
# The arguments that one kind of file needs besides its path.
_NEEDS = {".npy": ("points0", "points1"), "hloc .h5": ("features", "name0", "name1")}


def load_graph(
    path: str | os.PathLike[str],
    *,
    points0: ArrayLike | None = None,
    points1: ArrayLike | None = None,
    features: str | os.PathLike[str] | None = None,
    name0: str | None = None,
    name1: str | None = None,
) -> AssociationGraph:
    """Read a graph from a file of any kind that is known; its content tells the kind.

    Parameters
    ----------
    path
        A file of `AssociationGraph.save` or of `write_matches_npz`, an association CSV, a SuperGlue
        .npz, an hloc .h5 file of matches or an .npy file of (E, 2) or (E, 3) matches.
    points0, points1 : (N0, 2) and (N1, 2) array_like
        Keypoints in pixels; for .npy files only, which need them.
    features, name0, name1
        File of features and names of the images; for hloc files only, which need them.

    Raises
    ------
    ValueError
        If the file is missing, empty, damaged or of another kind, or if the further arguments do
        not fit its kind.
    """
    given = {
        "points0": points0,
        "points1": points1,
        "features": features,
        "name0": name0,
        "name1": name1,
    }
    data = _files.read_bytes(path, _WANT)
    kind = _kind(data, path)
    needed = _NEEDS.get(kind, ())
    for argument, value in given.items():
        if (value is None) == (argument in needed):
            rule = "given" if value is None else "left out"
            raise ValueError(f"{argument} must be {rule} for {kind} files, got {value!r:.60}")
    if kind == "CSV":
        return read_associations_csv(path)
    if kind == "SuperGlue .npz":
        return read_superglue(path)
    if kind == "matches .npz":
        return read_matches_npz(path)
    if kind == "graph":
        return AssociationGraph.load(path)
    if kind == "hloc .h5":
        return read_hloc(path, *(given[argument] for argument in needed))  # type: ignore[arg-type]
    return _read_npy(data, path, points0, points1)


def _kind(data: bytes, path: object) -> str:
    """Tell what a file is by its first bytes and, in an archive, by its members."""
    if data.startswith(b"\x89HDF\r\n\x1a\n"):
        return "hloc .h5"
    if data.startswith(b"\x93NUMPY"):
        return ".npy"
    if data.removeprefix(b"\xef\xbb\xbf").startswith(HEADER.split(",", 1)[0].encode()):
        return "CSV"
    if data.startswith(b"PK"):
        names = _files.npz_names(data, path, _WANT)
        if "format" in names:
            return "graph"
        if set(MATCHES_ARRAYS) <= names:
            return "matches .npz"
        if set(SUPERGLUE_ARRAYS) <= names:
            return "SuperGlue .npz"
        raise _files.unreadable(path, _WANT, "it is an .npz file of something else")
    raise _files.unreadable(path, _WANT, "it is something else")


def _read_npy(data: bytes, path: object, points0: Any, points1: Any) -> AssociationGraph:
    """Make a graph of the matches in an .npy file and of given keypoints."""
    try:
        matches: NDArray[Any] = np.load(BytesIO(data), allow_pickle=False)
    except _files.DAMAGE as error:
        raise _files.unreadable(path, _ARRAY, str(error) or type(error).__name__) from error
    try:
        return graph_from_matches(points0, points1, matches)
    except ValueError as error:
        if not str(error).startswith(("matches", "edges")):
            raise
        raise _files.unreadable(path, _ARRAY, str(error)) from error
