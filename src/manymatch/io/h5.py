"""Matches in hloc's .h5 files: one file of keypoints, one of matches between named images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch import _files
from manymatch._optional import require
from manymatch.io.matches import graph_from_partners

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from manymatch.graph import AssociationGraph

MATCHES = "an hloc .h5 file of matches"
FEATURES = "an hloc .h5 file of features"


def read_hloc(
    path: str | os.PathLike[str],
    features: str | os.PathLike[str],
    name0: str,
    name1: str,
    features1: str | os.PathLike[str] | None = None,
) -> AssociationGraph:
    """Read the matches of one pair of images from hloc's files.

    Parameters
    ----------
    path
        File of matches. The pair may be stored in either order; hloc writes "-" for "/" in names
        and joins the two by "/" (older versions by "_").
    features
        File of features with the keypoints of both images, or of image 0 if ``features1`` is given.
    name0, name1
        Names of the images as in the list that hloc was run with.
    features1
        File of features of image 1, if it is another one.

    Returns
    -------
    AssociationGraph
        The matching scores, if there are any, are its ``similarity``. hloc's keypoints have the
        centre of the top-left pixel at (0, 0), like ours.

    Raises
    ------
    ValueError
        If a file is missing, damaged or something else, or does not hold the images or the pair.
    ImportError
        If h5py is not installed.
    """
    for argument, name in (("name0", name0), ("name1", name1)):
        if not str(name).strip("/"):
            raise ValueError(f"{argument} must be the name of an image, got {name!r}")
    second = features if features1 is None else features1
    points = [_keypoints(f, n) for f, n in ((features, name0), (second, name1))]
    partner, score, swapped = _matches(path, name0, name1)
    try:
        if not swapped:
            return graph_from_partners(points[0], points[1], partner, score)
        graph = graph_from_partners(points[1], points[0], partner, score)
    except (ValueError, TypeError) as error:
        raise _files.unreadable(path, MATCHES, str(error)) from error
    return _swap(graph)


def pair_names(name0: str, name1: str) -> tuple[str, str]:
    """Return the groups under which hloc keeps a pair: its present and its former spelling."""
    flat0, flat1 = name0.replace("/", "-"), name1.replace("/", "-")
    return f"{flat0}/{flat1}", f"{flat0}_{flat1}"


def _swap(graph: AssociationGraph) -> AssociationGraph:
    """Exchange the images of a graph of matches."""
    edges, similarity = graph.edges[:, ::-1], graph.similarity
    keys: list[NDArray[Any]] = [edges[:, 1], edges[:, 0]]
    if similarity is not None:
        keys.append(-similarity)
    order = np.lexsort(keys)
    value = None if similarity is None else similarity[order]
    return type(graph)(graph.points1, graph.points0, edges[order], value)


def require_h5py() -> Any:
    """Import h5py, or say how to get it."""
    return require("h5py", "reading or writing hloc files", "io")


def _open(path: object, want: str) -> Any:
    """Open an .h5 file for reading."""
    h5py = require_h5py()
    source = _files.as_path(path)
    try:
        return h5py.File(source, "r")
    except FileNotFoundError as error:
        raise _files.unreadable(source, want, "there is no such file") from error
    except _files.DAMAGE as error:
        raise _files.unreadable(source, want, str(error) or type(error).__name__) from error


def _array(group: Any, name: str) -> NDArray[Any]:
    """Read one dataset of a group."""
    if name not in group or not hasattr(group[name], "shape"):
        raise ValueError(f"the group {group.name!r} lacks the dataset {name!r}")
    return np.asarray(group[name][()])


def _keypoints(path: object, name: str) -> NDArray[Any]:
    """Keypoints of one image; further columns than x and y are left out."""
    with _open(path, FEATURES) as file:
        try:
            if name not in file or not hasattr(file[name], "keys"):
                raise ValueError(f"it has no image {name!r}")
            points = _array(file[name], "keypoints")
            if points.ndim != 2 or points.shape[1] < 2:
                raise ValueError(f"the keypoints of {name!r} have shape {points.shape}")
        except _files.DAMAGE as error:
            raise _files.unreadable(path, FEATURES, str(error)) from error
    return points[:, :2]


def _matches(
    path: object, name0: str, name1: str
) -> tuple[NDArray[Any], NDArray[Any] | None, bool]:
    """Partners and scores of a pair, and whether it is stored the other way round."""
    with _open(path, MATCHES) as file:
        try:
            present, former = zip(pair_names(name0, name1), pair_names(name1, name0), strict=True)
            for name, swapped in zip((*present, *former), (False, True) * 2, strict=True):
                if name in file and hasattr(file[name], "keys") and "matches0" in file[name]:
                    group = file[name]
                    scored = "matching_scores0" in group
                    score = _array(group, "matching_scores0") if scored else None
                    return _array(group, "matches0"), score, swapped
            raise ValueError(f"it has no pair {name0!r}, {name1!r}")
        except _files.DAMAGE as error:
            raise _files.unreadable(path, MATCHES, str(error)) from error
