"""Matches and the pose of one pair, their own file and SuperGlue's, and the base of all writers."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manymatch._validate import (
    FloatArray,
    IndexArray,
    count,
    float_array,
    int_array,
    integer,
    real,
    refusal,
)
from manymatch.geometry.camera import Camera
from manymatch.geometry.pose import RelativePose
from manymatch.graph import (
    AssociationGraph,
    checked_names,
    checked_points,
    index_pairs,
    per_edge,
)
from manymatch.io import files
from manymatch.io.files import PathLike
from manymatch.io.image import orientation_axes

#: The partner of a keypoint that has none, as in SuperGlue and hloc.
UNMATCHED = -1
SUPERGLUE = "a SuperGlue .npz file (keypoints0, keypoints1, matches, match_confidence)"
SUPERGLUE_ARRAYS = ("keypoints0", "keypoints1", "matches", "match_confidence")
MATCHES_NPZ = "an .npz file of matches (keypoints0, keypoints1, matches, matches0)"
MATCHES_ARRAYS = ("keypoints0", "keypoints1", "matches", "matches0")
ALTERNATIVE_ARRAYS = ("alternative_poses", "alternative_probability", "alternative_matches")
_OPTIONAL_ARRAYS = (
    *("match_confidence", "inliers", "pose", "config", *ALTERNATIVE_ARRAYS),
    *("match_source", "inlier_source", "source_names"),
)


class AlternativePose(NamedTuple):
    """Another pose of a pair: from camera 0 to camera 1, its probability, its matches (M, 2)."""

    pose: RelativePose
    probability: float
    matches: IndexArray


@dataclasses.dataclass(frozen=True, eq=False)
class PairMatches:
    """Keypoints of two images, the matches between them, and the pose.

    Parameters
    ----------
    keypoints0, keypoints1 : (N0, 2) and (N1, 2) array_like
        Pixels; the centre of the top-left one is (0, 0). Or points in space, (N0, 3) and (N1, 3).
    matches : (M, 2) array_like of integers
        Index into keypoints0, index into keypoints1; none of keypoints0 twice.
    confidence : (M,) array_like, optional
        One number per match, larger is better.
    pose : RelativePose, optional
        From camera 0 to camera 1.
    inliers : (I, 2) array_like of integers, optional
        Candidate edges consistent with the pose, many-to-many, as indices like `matches`.
    config : dict, optional
        The settings of the matcher; anything that can be written as JSON.
    alternatives : iterable of AlternativePose
        Other poses that explain the candidates, each with matches of its own, best first.
    cameras : pair of Camera, optional
        The cameras of this pose, if they differ from those of the images: a focal length that is
        estimated from one pair may differ from that of another pair.
    source, inlier_source : (M,) and (I,) array_like of integers, optional
        Which feature or matcher each match and each inlier comes from, from 0.
    source_names : sequence of str, optional
        Names of the sources; by default "0", "1" and so on.
    """

    keypoints0: FloatArray
    keypoints1: FloatArray
    matches: IndexArray
    confidence: FloatArray | None = None
    pose: RelativePose | None = None
    inliers: IndexArray | None = None
    config: Mapping[str, Any] | None = None
    alternatives: tuple[AlternativePose, ...] = ()
    cameras: tuple[Camera, Camera] | None = None
    source: NDArray[np.int32] | None = None
    inlier_source: NDArray[np.int32] | None = None
    source_names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        sizes = f"{len(self.keypoints0):,} x {count(len(self.keypoints1), 'keypoint')}"
        matches = count(len(self.matches), "match", "matches")
        return f"PairMatches({sizes}, {matches}, {self.pose or 'no pose'})"

    @classmethod
    def known(cls, **fields: Any) -> PairMatches:
        """Make one of fields that are known to fit, such as those of an estimate, unchecked."""
        pair = object.__new__(cls)
        for field in dataclasses.fields(cls):
            object.__setattr__(pair, field.name, fields.get(field.name, field.default))
        return pair

    def __post_init__(self) -> None:
        put = functools.partial(object.__setattr__, self)
        for name in ("keypoints0", "keypoints1"):
            put(name, checked_points(getattr(self, name), name))
        put("matches", self._index_pairs(self.matches, "matches"))
        values, times = np.unique(self.matches[:, 0], return_counts=True)
        if len(values) != len(self.matches):
            raise ValueError(
                "matches must hold every keypoint of image 0 once at most, "
                f"got {values[np.argmax(times)]} in column 0 {times.max()} times"
            )
        if self.confidence is not None:
            number = len(self.matches)
            want = f"an array of {number} numbers, one per match"
            put("confidence", float_array(self.confidence, "confidence", want, (number,)))
        if self.inliers is not None:
            put("inliers", self._index_pairs(self.inliers, "inliers"))
        if not isinstance(self.pose, RelativePose | None):
            raise refusal("pose", "a RelativePose or None", self.pose)
        if not isinstance(self.alternatives, Iterable):
            raise refusal("alternatives", "an iterable of AlternativePose", self.alternatives)
        others = enumerate(self.alternatives)
        put("alternatives", tuple(self._alternative(f"alternatives[{k}]", a) for k, a in others))
        known = []
        for name, pairs in (("source", self.matches), ("inlier_source", self.inliers)):
            if (value := getattr(self, name)) is not None:
                known.append(per_edge(value, "source", 0 if pairs is None else len(pairs), name))
                put(name, known[-1])
        every = np.concatenate(known) if known else None
        put("source_names", checked_names(self.source_names or None, every))

    def _alternative(self, name: str, value: object) -> AlternativePose:
        if not isinstance(value, tuple) or len(value) != 3:
            raise refusal(name, "an AlternativePose", value)
        if not isinstance(value[0], RelativePose):
            raise refusal(f"{name}.pose", "a RelativePose", value[0])
        probability = real(value[1], f"{name}.probability", 0.0, 1.0, closed=True)
        return AlternativePose(
            value[0], probability, self._index_pairs(value[2], f"{name}.matches")
        )

    def _index_pairs(self, value: object, name: str) -> IndexArray:
        """Check an (M, 2) array of indices into both sets of keypoints."""
        return index_pairs(value, name, self.keypoints0, self.keypoints1, "keypoints")

    def per_keypoint(self, per_match: NDArray[Any] | None, missing: float) -> NDArray[Any] | None:
        """Spread values of matches to the keypoints of image 0, (N0,); `missing` without match."""
        if per_match is None:
            return None
        values = np.full(len(self.keypoints0), missing, dtype=per_match.dtype)
        values[self.matches[:, 0]] = per_match
        return values

    def partners(self) -> IndexArray:
        """Partner in image 1 of every keypoint of image 0, (N0,), -1 without one."""
        return self.per_keypoint(self.matches[:, 1], UNMATCHED)  # type: ignore[return-value]

    def write_npz(self, path: PathLike) -> None:
        """Write everything but `cameras` as `write_matches_npz` does."""
        confidence = None if self.confidence is None else self.confidence.astype(np.float32)
        content = {
            "keypoints0": self.keypoints0,
            "keypoints1": self.keypoints1,
            "matches": self.matches,
            "matches0": self.partners(),
            "match_confidence": self.per_keypoint(confidence, 0.0),
            "pose": None if self.pose is None else self.pose.matrix(),
            "inliers": self.inliers,
            "config": None if self.config is None else np.array(to_json(self.config, "config")),
            **alternative_arrays(self.alternatives),
            "match_source": self.source,
            "inlier_source": self.inlier_source,
            "source_names": np.array(self.source_names) if self.source_names else None,
        }
        files.write_npz(path, {name: a for name, a in content.items() if a is not None})

    def graph(self) -> AssociationGraph:
        """Make a graph of the matches; the confidence, if there is any, is its similarity."""
        names = self.source_names or None
        order = np.argsort(self.matches[:, 0])
        source = None if self.source is None else self.source[order]
        score = None if self.confidence is None else self.confidence[order]
        points, edges = (self.keypoints0, self.keypoints1), self.matches[order]
        return scored_graph(*points, edges, score, source=source, source_names=names)


# ------------------------------------------------------ images and writers of other tools


@dataclasses.dataclass(frozen=True)
class ImageRecord:
    """An image as files of other tools know it.

    COLMAP and hloc read images as they are stored. Everything here is for the image as it is shown,
    turned as EXIF says, and writers convert it by `orientation`.

    Parameters
    ----------
    name : str
        Path below the folder of images, with "/".
    size : (int, int), optional
        Width and height in pixels; by default those of the camera. An image that EXIF turns needs
        one of them.
    camera : Camera, optional
        Its intrinsics.
    focal_known : bool
        Whether the focal length is known, not found from the images.
    orientation : int
        EXIF orientation of the file, 1 to 8; see `manymatch.io.image.stored_orientation`.
    camera_name : str, optional
        Images with the same name of the camera and equal cameras have one, also if their focal
        length is not known; by default such an image has its own.
    """

    name: str
    size: tuple[int, int] | None = None
    camera: Camera | None = None
    focal_known: bool = True
    orientation: int = 1
    camera_name: str | None = None

    def __post_init__(self) -> None:
        image_name(self.name, "name")
        integer(self.orientation, "orientation", 1, 8)
        if not isinstance(self.camera, Camera | None):
            raise refusal("camera", "a Camera or None", self.camera)
        size = self.size
        if size is None and self.camera is not None and self.camera.width is not None:
            size = (self.camera.width, self.camera.height)  # type: ignore[assignment]
        if size is not None:
            if np.shape(size) != (2,):
                raise refusal("size", "a pair (width, height) of whole numbers", size)
            size = (integer(size[0], "size", 1), integer(size[1], "size", 1))
        elif self.orientation != 1:
            raise ValueError("size must be given for an image that EXIF turns, got None")
        object.__setattr__(self, "size", size)

    @property
    def axes(self) -> FloatArray:
        """Matrix (3, 3) from camera coordinates of the image as shown to those of its file."""
        axes = np.eye(3)
        axes[:2, :2] = orientation_axes(self.orientation)
        return axes

    @property
    def mirrored(self) -> bool:
        """Whether the file holds the mirror image of what is shown."""
        return self.orientation in (2, 4, 5, 7)

    def stored(self, points: FloatArray) -> tuple[ImageRecord, FloatArray]:
        """Convert the image and its keypoints (N, 2) to the pixels of the file."""
        if self.orientation == 1 or self.size is None:
            return self, points
        axes = self.axes[:2, :2]
        last = np.array(self.size) - 1.0
        turned = np.where(axes.sum(axis=0) < 0, last - points, points) @ np.abs(axes).T
        camera = None if self.camera is None else self.camera.turned(axes)
        size = self.size[::-1] if self.orientation >= 5 else self.size
        return dataclasses.replace(self, size=size, camera=camera, orientation=1), turned


class PairWriter(abc.ABC):
    """Writes any number of pairs in the format of another tool.

    Use it in a ``with`` statement, once for all pairs. Files get their names when the block ends
    without an error; until then, older ones stay as they were.
    """

    #: Files by what they are.
    files: dict[str, Path]

    def __init__(self) -> None:
        # Digests of the pairs that were written, and of the keypoints by image: a million names,
        # or all keypoints, may not fit into memory.
        self._pairs: set[bytes] = set()
        self._digests: dict[str, bytes] = {}

    @abc.abstractmethod
    def _open(self, stack: contextlib.ExitStack) -> None:
        """Open files, to be closed by `stack`."""

    @abc.abstractmethod
    def _add_image(self, image: ImageRecord, points: FloatArray) -> None:
        """Write a new image, in the pixels of its file."""

    @abc.abstractmethod
    def _add_pair(self, image0: ImageRecord, image1: ImageRecord, pair: PairMatches) -> None:
        """Write a new pair; its keypoints and its pose are still those of the images as shown."""

    def add(self, image0: ImageRecord | str, image1: ImageRecord | str, pair: PairMatches) -> bool:
        """Add one pair; return False if the two images were added before, in either order.

        The images may be given by their names: paths below the folder of images, with "/". Of the
        pair, whose keypoints are in pixels of the images as shown, everything is written that the
        format has a place for. An image has the same keypoints in all pairs.
        """
        images = []
        for argument, image in (("image0", image0), ("image1", image1)):
            if not isinstance(image, str | ImageRecord):
                raise refusal(argument, "the name of an image or an ImageRecord", image)
            name = self.check_name(image if isinstance(image, str) else image.name, argument)
            images.append(ImageRecord(name) if isinstance(image, str) else image)
        if images[0].name == images[1].name:
            raise ValueError(f"image1 must be another image than image0, got {images[1].name!r}")
        names = "\0".join(sorted(image.name for image in images)).encode()
        both = hashlib.blake2b(names, digest_size=16).digest()
        if both in self._pairs:
            return False
        for image, points in zip(images, (pair.keypoints0, pair.keypoints1), strict=True):
            digest = hashlib.sha256(points.tobytes()).digest()
            if image.name not in self._digests:
                self._add_image(*image.stored(points))
                self._digests[image.name] = digest
            elif self._digests[image.name] != digest:
                raise ValueError(
                    f"pair must have the same keypoints of {image.name!r} as the pairs before, "
                    "whose matches refer to them, got others"
                )
        self._add_pair(images[0], images[1], pair)
        self._pairs.add(both)
        return True

    @staticmethod
    def check_name(name: str, argument: str) -> str:
        """Check the name of an image; an error begins with `argument`."""
        return image_name(name, argument)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._open(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]


def image_name(name: object, argument: str) -> str:
    """Check the name of an image: a relative path with "/", which stays below its folder."""
    if not isinstance(name, str) or not name or "\0" in name or "\n" in name:
        raise refusal(argument, "the name of an image, without line breaks", name)
    if not name.isprintable() and name.encode("utf-8", "replace").decode() != name:
        raise ValueError(f"{argument} must be a name that is text, got {name!r}")
    if any(part in {"", ".", ".."} for part in name.split("/")):
        want = 'the path of an image below its folder, without leading "/", "." and ".."'
        raise refusal(argument, want, name)
    return name


# ----------------------------------------------------------------------------- matches.npz


def write_matches_npz(
    path: PathLike,
    keypoints0: ArrayLike,
    keypoints1: ArrayLike,
    matches: ArrayLike,
    **fields: Any,
) -> None:
    """Write keypoints and resolved matches of one pair, and what they were made with.

    The arguments are those of `PairMatches`, without cameras; docs/reference/files.md lists the
    arrays. `read_matches_npz` reads all of them, `load_graph` the matches as a graph.
    """
    PairMatches(keypoints0, keypoints1, matches, **fields).write_npz(path)  # type: ignore[arg-type]


def read_matches_npz(path: PathLike) -> PairMatches:
    """Read a file of `write_matches_npz`."""
    data = files.read_bytes(path, MATCHES_NPZ)
    arrays = files.read_npz(data, path, MATCHES_NPZ, MATCHES_ARRAYS, _OPTIONAL_ARRAYS)
    with files.reading(path, MATCHES_NPZ, ValueError, TypeError, RecursionError):
        pair = PairMatches(*(arrays[name] for name in ("keypoints0", "keypoints1", "matches")))
        if not np.array_equal(pair.partners(), arrays["matches0"]):
            raise ValueError("its matches and matches0 differ")
        confidence = arrays.get("match_confidence")
        if confidence is not None:
            number = len(pair.keypoints0)
            want = f"an array of {number} numbers"
            confidence = float_array(confidence, "match_confidence", want, (number,))
            confidence = confidence[pair.matches[:, 0]]
        names = arrays.get("source_names")
        return dataclasses.replace(
            pair,
            confidence=confidence,
            pose=_pose_of(arrays["pose"]) if "pose" in arrays else None,
            inliers=arrays.get("inliers"),
            config=json.loads(arrays["config"].item()) if "config" in arrays else None,
            alternatives=alternatives_of(arrays),
            source=arrays.get("match_source"),
            inlier_source=arrays.get("inlier_source"),
            source_names=() if names is None else names.tolist(),
        )


def _pose_of(array: object) -> RelativePose:
    matrix = float_array(array, "pose", "a 4x4 matrix", (4, 4))
    return RelativePose(matrix[:3, :3], matrix[:3, 3])


def alternative_arrays(alternatives: tuple[AlternativePose, ...]) -> dict[str, Any]:
    """Return alternatives as arrays of a file of matches."""
    if not alternatives:
        return {}
    poses, probability, matches = zip(*alternatives, strict=True)
    arrays = (
        np.stack([pose.matrix() for pose in poses]),
        np.array(probability),
        np.concatenate([np.insert(pairs, 0, k, axis=1) for k, pairs in enumerate(matches)]),
    )
    return dict(zip(ALTERNATIVE_ARRAYS, arrays, strict=True))


def alternatives_of(named: Mapping[str, Any]) -> tuple[AlternativePose, ...]:
    """Read what `alternative_arrays` made; `PairMatches` checks the matches."""
    if not set(ALTERNATIVE_ARRAYS).intersection(named):
        return ()
    if lacking := set(ALTERNATIVE_ARRAYS).difference(named):
        raise ValueError(f"it lacks the array {min(lacking)!r}")
    poses, probability, matches = (np.asarray(named[name]) for name in ALTERNATIVE_ARRAYS)
    rows = int_array(matches, ALTERNATIVE_ARRAYS[2], "an (S, 3) array of indices", (None, 3))
    if probability.shape != poses.shape[:1] or not np.isin(rows[:, 0], range(len(poses))).all():
        raise ValueError("its alternatives have arrays that do not fit together")
    return tuple(
        AlternativePose(_pose_of(matrix), float(p), rows[rows[:, 0] == k, 1:])
        for k, (matrix, p) in enumerate(zip(poses, probability, strict=True))
    )


# ----------------------------------------------------------------- matches of other tools


def graph_from_matches(
    points0: ArrayLike, points1: ArrayLike, matches: ArrayLike
) -> AssociationGraph:
    """Make a graph of a plain list of matches, one-to-one or not.

    Parameters
    ----------
    points0, points1 : (N0, 2) and (N1, 2) array_like, or lists of cv2.KeyPoint
        Keypoints in pixels; the centre of the top-left pixel is (0, 0).
    matches : (E, 2) or (E, 3) array_like, or a list of cv2.DMatch
        Index into points0, index into points1 and, with three columns, a score: larger is better.
        Of OpenCV's matches the score is the distance, negative; ``knnMatch`` gives lists of them,
        the candidates of one keypoint by rank.

    Returns
    -------
    AssociationGraph
        With scores: as ``similarity``, edges by decreasing score, i and j. Without: edges in the
        given order, which then counts as best first. It has ranks, by which the edges are ordered
        first, only for ``knnMatch``.
    """
    rank = None
    if isinstance(matches, list | tuple):
        groups = [one if isinstance(one, list | tuple) else (one,) for one in matches]
        flat: list[Any] = [match for group in groups for match in group]
        if flat and all(hasattr(match, "queryIdx") for match in flat):
            if any(isinstance(one, list | tuple) for one in matches):
                rank = [k for group in groups for k in range(1, len(group) + 1)]
            matches = [(m.queryIdx, m.trainIdx, -m.distance) for m in flat]
    want = "an (E, 2) or (E, 3) array of two indices and, optionally, a score"
    columns = 3 if np.ndim(matches) == 2 and np.shape(matches)[1] == 3 else 2
    array = float_array(matches, "matches", want, (None, columns))
    edges = int_array(array[:, :2], "matches", want, (None, 2))
    if rank is not None:
        return AssociationGraph(points0, points1, edges, array[:, 2], rank).best_first()
    return scored_graph(points0, points1, edges, array[:, 2] if columns == 3 else None)


def graph_from_partners(
    points0: ArrayLike,
    points1: ArrayLike,
    partner: ArrayLike,
    score: ArrayLike | None,
) -> AssociationGraph:
    """Make a graph of the partner in image 1, or -1, of every keypoint of image 0.

    Edges are by decreasing score, i and j, or by i if there are no scores. `score` is that of the
    match of every keypoint of image 0.
    """
    number = len(checked_points(points0, "points0"))
    index = int_array(partner, "matches", f"an array of {number} indices or -1", (number,))
    if index.size and index.min() < UNMATCHED:
        row = int(np.argmin(index))
        raise ValueError(f"matches must hold indices or -1, got {index[row]} in row {row}")
    left = np.flatnonzero(index >= 0)
    if score is not None:
        want = f"an array of {number} numbers"
        score = float_array(score, "match_confidence", want, (number,), finite=False)[left]
    edges = np.stack([left, index[left]], axis=1)
    return scored_graph(points0, points1, edges, score)


def scored_graph(
    points0: ArrayLike,
    points1: ArrayLike,
    edges: IndexArray,
    score: NDArray[Any] | None,
    source: NDArray[Any] | None = None,
    source_names: Sequence[str] | None = None,
) -> AssociationGraph:
    """Make a graph with edges by decreasing score, i and j; without scores as they are given."""
    if score is not None:
        order = np.lexsort((edges[:, 1], edges[:, 0], -score.astype(np.float32)))
        edges, score = edges[order], score[order]
        source = None if source is None else source[order]
    return AssociationGraph(
        points0, points1, edges, score, source=source, source_names=source_names
    )


def read_superglue(path: PathLike) -> AssociationGraph:
    """Read the matches of one pair as SuperGlue's demo writes them.

    The confidence becomes ``similarity``. SuperGlue's keypoints have the centre of the top-left
    pixel at (0, 0), like ours, in pixels of the resized image it worked on.
    """
    data = files.read_bytes(path, SUPERGLUE)
    arrays = files.read_npz(data, path, SUPERGLUE, SUPERGLUE_ARRAYS)
    with files.reading(path, SUPERGLUE, ValueError):
        first, second = (
            float_array(arrays[f"keypoints{k}"], f"points{k}", "an (N, 2) array", (None, 2))
            for k in (0, 1)
        )
        return graph_from_partners(first, second, arrays["matches"], arrays["match_confidence"])


def to_json(value: object, name: str, indent: int | None = None, **how: Any) -> str:
    """Write a value by `json.dumps`; values without an exact place in JSON are refused."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False, **{"default": _plain, **how})
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{name} must be writable as JSON, got a value that is not: {error}"
        ) from error


def _plain(value: object) -> object:
    if isinstance(value, RelativePose):
        return {"R": value.R.tolist(), "t": value.t.tolist()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"a {type(value).__name__}")
