"""Keypoints and matches in hloc's .h5 files: one file of features, one of matches."""

from __future__ import annotations

import contextlib
import io
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import FloatArray, refusal, require
from manymatch.graph import AssociationGraph, checked_points
from manymatch.io import files
from manymatch.io.files import PathLike
from manymatch.io.matches import (
    UNMATCHED,
    ImageRecord,
    PairMatches,
    PairWriter,
    graph_from_partners,
    scored_graph,
)

MATCHES = "an hloc .h5 file of matches"
FEATURES = "an hloc .h5 file of features"


def read_hloc(path: PathLike, features: PathLike, name0: str, name1: str) -> AssociationGraph:
    """Read the matches of one pair of images from hloc's files.

    Parameters
    ----------
    path
        File of matches. The pair may be stored in either order; hloc writes "-" for "/" in names
        and joins the two by "/".
    features
        File of features with the keypoints of both images.
    name0, name1
        Names of the images as in the list that hloc was run with.

    Returns
    -------
    AssociationGraph
        The matching scores, if there are any, are its ``similarity``. hloc's keypoints have the
        centre of the top-left pixel at (0, 0), like ours.
    """
    for argument, name in (("name0", name0), ("name1", name1)):
        if not str(name).strip("/"):
            raise ValueError(f"{argument} must be the name of an image, got {name!r}")
    points = _keypoints(features, name0), _keypoints(features, name1)
    with _open(path, MATCHES) as file:
        for swapped in (False, True):
            group = _pair_name(*((name1, name0) if swapped else (name0, name1)))
            partners = _read(file, f"{group}/matches0")
            if partners is not None:
                scores = _read(file, f"{group}/matching_scores0")
                first, second = points[::-1] if swapped else points
                graph = graph_from_partners(first, second, partners, scores)
                return _swap(graph) if swapped else graph
        raise ValueError(f"it has no pair {name0!r}, {name1!r}")


def _pair_name(name0: str, name1: str) -> str:
    """Return the group under which hloc keeps a pair."""
    return f"{name0.replace('/', '-')}/{name1.replace('/', '-')}"


def _swap(graph: AssociationGraph) -> AssociationGraph:
    edges = graph.edges[:, ::-1]
    order = np.lexsort((edges[:, 1], edges[:, 0]))  # without scores by i and j
    similarity = graph.reordered(order).similarity
    return scored_graph(graph.points1, graph.points0, edges[order], similarity)


def _h5py() -> Any:
    return require("h5py", "reading or writing hloc files", "io")


@contextlib.contextmanager
def _open(path: object, want: str) -> Iterator[Any]:
    """Open an .h5 file for reading; a `ValueError` of the block is about the file as well."""
    h5py, source = _h5py(), files.as_path(path)
    with (
        files.reading(source, want, OSError, ValueError),
        files.open_regular(source) as content,
        h5py.File(content, "r") as file,
    ):
        yield file


def _read(file: Any, name: str) -> NDArray[Any] | None:
    """Read a dataset of numbers, with "/" for groups in groups; None if it is missing."""
    try:
        item = _dataset(file, name)
        return None if item is None else np.asarray(item[()])
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, MemoryError) as error:
        raise ValueError(f"the dataset {name!r} cannot be read: {files.brief(error)}") from error


def _dataset(item: Any, name: str) -> Any:
    """Find a dataset that is in the file itself, not packed, and not larger than the file."""
    h5py = _h5py()
    for part in filter(None, name.split("/")):
        link = item.get(part, getlink=True) if isinstance(item, h5py.Group) else None
        if link is None:
            return None
        if type(link) is not h5py.HardLink:
            raise ValueError(f"{part!r} is a link, which is not followed")
        item = item[part]
    if not isinstance(item, h5py.Dataset):
        return None
    if item.is_virtual or item.external:
        raise ValueError("it is in another file, which is not read")
    if item.shape is None or item.dtype.kind not in "biuf":
        raise ValueError("it holds no numbers")
    # HDF5 unpacks a chunk to its end, however long that is.
    if item.id.get_create_plist().get_nfilters():
        raise ValueError("it is packed, which hloc does not do: h5repack -f NONE unpacks it")
    numbers = math.prod(item.shape)
    files.check_size(numbers + math.prod(item.chunks or (0,)), "its numbers")
    if numbers * item.dtype.itemsize > item.id.get_storage_size():
        raise ValueError("it declares more numbers than it has")
    return item


def _keypoints(path: object, name: str) -> NDArray[Any]:
    """Keypoints of one image; columns other than x and y are left out."""
    with _open(path, FEATURES) as file:
        points = _read(file, f"{name}/keypoints")
        if points is None:
            raise ValueError(f"it has no image {name!r} with keypoints")
        if points.ndim != 2 or points.shape[1] < 2:
            raise ValueError(f"the keypoints of {name!r} have shape {points.shape}")
        return checked_points(points[:, :2], "keypoints")


class HlocWriter(PairWriter):
    """Writes keypoints and matches of any number of pairs as hloc's two files.

    hloc reads images as they are stored and ignores EXIF, so keypoints and sizes are for the image
    as it is stored. Like ours, they have the centre of the top-left pixel at (0, 0); hloc adds half
    a pixel when it fills COLMAP's database. Scores are the confidence or, where there is none, 1.

    The arguments are two files, in existing folders. The features get their name before the
    matches.

    Examples
    --------
    >>> with HlocWriter("features.h5", "matches.h5") as writer:       # doctest: +SKIP
    ...     writer.add("a.jpg", "b.jpg", PairMatches(keypoints0, keypoints1, matches))
    """

    def __init__(self, features_path: PathLike, matches_path: PathLike) -> None:
        super().__init__()
        features = files.as_path(features_path, "features_path")
        matches = files.as_path(matches_path, "matches_path")
        self.files = {"h5 features": features, "h5 matches": matches}
        self._groups: dict[str, str] = {}
        if features.resolve() == matches.resolve():
            raise refusal("matches_path", "another file than features_path", str(matches_path))

    def _open(self, stack: contextlib.ExitStack) -> None:
        h5py = _h5py()
        # Closed from the last to the first: both files are complete before one gets its name, and
        # the matches get theirs after the keypoints.
        paths = list(reversed(self.files.values()))
        beside = [stack.enter_context(files.whole_file(path)) for path in paths]
        self._matches_file, self._features_file = (
            stack.enter_context(_PatientFile(file, path))
            for file, path in zip(beside, paths, strict=True)
        )
        self._matches = stack.enter_context(h5py.File(self._matches_file, "w"))
        self._features = stack.enter_context(h5py.File(self._features_file, "w"))

    def _add_image(self, image: ImageRecord, points: FloatArray) -> None:
        flat = image.name.replace("/", "-")
        if self._groups.setdefault(flat, image.name) != image.name:
            raise ValueError(
                f"pairs must have names that differ where hloc has - for /, got {image.name!r} and "
                f"{self._groups[flat]!r}"
            )
        group = self._features.require_group(image.name)
        group["keypoints"] = points.astype(np.float32)
        if image.size is not None:
            group["image_size"] = np.array(image.size, dtype=np.int64)
        self._features_file.check()

    def _add_pair(self, image0: ImageRecord, image1: ImageRecord, pair: PairMatches) -> None:
        group = self._matches.create_group(_pair_name(image0.name, image1.name))
        partner, confidence = pair.partners(), pair.per_keypoint(pair.confidence, 0.0)
        group["matches0"] = partner.astype(np.int32)
        scores = partner != UNMATCHED if confidence is None else confidence
        group["matching_scores0"] = scores.astype(np.float32)
        self._matches_file.check()


class _PatientFile(io.FileIO):
    """A file for h5py that keeps the first error of a write until `check` asks for it.

    HDF5 crashes the process, or forgets what it had to write, when a write fails. Here it never
    learns of that.
    """

    def __init__(self, beside: Path, path: Path) -> None:
        super().__init__(beside, "x+")
        self._path = path
        self._error: OSError | None = None

    def check(self) -> None:
        """Raise the first error."""
        if self._error is not None:
            raise OSError(self._error.errno, self._error.strerror, str(self._path))

    def close(self) -> None:
        """Close the file, then raise the first error."""
        if not self.closed:
            super().close()
            self.check()

    def write(self, data: Any) -> int:
        """Write all of the data, or what there is room for."""
        left = memoryview(data).cast("B")
        try:
            while left:
                left = left[os.write(self.fileno(), left) :]
        except OSError as error:
            self._error = self._error or error
            # HDF5 may read it again, and gets zeros.
            with contextlib.suppress(OSError):
                self.truncate(self.seek(len(left), io.SEEK_CUR))
        return len(data)
