"""Where photographs were taken, in a COLMAP model of other photographs of the same place."""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from manymatch._validate import integer
from manymatch.batch.parts import RunProgress
from manymatch.batch.work import Views
from manymatch.estimate.absolute_pose import estimate_absolute_pose
from manymatch.estimate.confidence import assess
from manymatch.estimate.result import plain
from manymatch.geometry.camera import Camera
from manymatch.graph import PER_EDGE, AssociationGraph
from manymatch.io import files
from manymatch.io.matches import ImageRecord, image_name, to_json
from manymatch.io.pairs import IMAGE_SUFFIXES
from manymatch.matcher.cameras import check_camera, resolve_camera
from manymatch.matcher.config import PRESETS
from manymatch.matcher.match_result import PairResult, provenance_of
from manymatch.matcher.matcher import Matcher, Stopwatch
from manymatch.reconstruct.photos import names_below
from manymatch.reconstruct.retrieval import TRAINING_IMAGES, Vocabulary, look_alikes
from manymatch.reconstruct.scene_map import SceneMap, plot_map

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from manymatch._validate import FloatArray, IndexArray
    from manymatch.batch.work import View
    from manymatch.estimate.absolute_pose import AbsolutePoseEstimate
    from manymatch.features.extractor import Features
    from manymatch.geometry.pose import AbsolutePose

#: Threshold of the reprojection error unless another is given, in pixels of the resized image.
THRESHOLD_PX = 3.0
#: Photographs of the map that a query is matched with.
SIMILAR = 10
# A keypoint of the map is an observed point if it is at most this far from where the model has the
# point, in pixels of the resized photograph.
_NEAR_PX = 2.0
# The model of a camera, such as SIMPLE_RADIAL, behind a name.
_MODEL = re.compile(r"[A-Z_]+")
# Features of the map's photographs that are kept in memory.
_MEMORY = 512_000_000
_ROWS = 512


@dataclasses.dataclass(eq=False, kw_only=True, repr=False)
class LocalizedImage(PairResult):
    """A photograph and where it was taken; a `PairResult` whose second image is the map.

    Attributes
    ----------
    graph : AssociationGraph
        Keypoints of the photograph in pixels, and the points of the model (M, 3) that are
        candidates for them.
    estimate : AbsolutePoseEstimate
        Pose, matches and, where it was unknown, the focal length.
    confidence : Confidence
        Verdict, probability, and the covariance (6, 6) of rotation (radians, frame of the camera)
        and centre (unit of the model).
    map_images : tuple of str
        Photographs of the map that this one was matched with, the most similar first.
    matched_images : tuple of str
        Those that observe a matched point, the one with most of them first.
    scene : SceneMap
        The map.
    unreadable : bool
        Whether the photograph, or its camera, could not be read; `confidence.reason` says why.
    """

    estimate: AbsolutePoseEstimate
    scene: SceneMap
    unreadable: bool = False
    map_images: tuple[str, ...] = ()
    matched_images: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the photograph."""
        return self.names[0]

    @property
    def camera(self) -> Camera:
        """Camera of the photograph, with the focal length found if it was unknown."""
        return self.estimate.camera0

    @property
    def pose(self) -> AbsolutePose | None:
        """The pose, ``x_cam = R @ X + t`` in the frame and unit of the model, or None.

        It is that of the image as shown, turned as EXIF says. None if the verdict is "no match" or
        "failed".
        """
        found: AbsolutePose | None = self.answer.pose
        return found

    def _own_lines(self) -> list[str]:
        seen = ", ".join(self.matched_images[:3])
        return [f"Its points are in {seen}."] if seen else []

    def pose_line(self) -> str:
        """Return ``name qw qx qy qz tx ty tz`` as hloc writes it; empty without a pose."""
        if self.pose is None:
            return ""
        numbers = [*self.pose.quaternion(), *self.pose.t]
        return " ".join([self.name, *(repr(float(number)) for number in numbers)])

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the arrays, ready for JSON."""
        pose = self.pose
        return {
            "name": self.name,
            **self.answer.to_dict(),
            "quaternion": None if pose is None else plain(pose.quaternion()),
            "center": None if pose is None else plain(pose.center),
            "camera": self.camera.to_dict(),
            "confidence": self.confidence.to_dict(),
            "map_images": list(self.map_images),
            "matched_images": list(self.matched_images),
            "notes": list(self.notes),
            "timing_s": dict(self.timing),
        }

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the map from above with its cameras and this one.

        The ending of `path` decides the format; without a path the Pillow image is returned.
        """
        return plot_map(self.scene, [self], path)


class Localizer:
    """Finds photographs in one map: `localize` with the map read and described once."""

    def __init__(
        self,
        scene: SceneMap,
        matcher: Matcher,
        similar: int = SIMILAR,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        self.scene, self.matcher = scene, matcher
        self.number = integer(similar, "similar", 1)
        self._views = Views(matcher, _MEMORY)
        self._lifted: dict[int, IndexArray] = {}
        images = scene.images
        if len(images) <= self.number:  # every query is matched with all
            return
        every = -(-len(images) // TRAINING_IMAGES)
        sample = (self._views.get(image.path, 0).features for image in images[::every])
        self._vocabulary = Vocabulary.trained(sample, matcher.config.options.seed)
        vectors = []
        for image in images:
            vectors.append(self._vocabulary.vector(self._views.get(image.path, 0).features))
            if progress is not None:
                progress(len(vectors), len(images))
        self._vectors = np.stack(vectors)

    def locate(self, path: Path, camera: object = None, name: str | None = None) -> LocalizedImage:
        """Find one photograph; one that cannot be read or is not in the map has no pose."""
        clock = Stopwatch()
        label = path.name if name is None else name
        settings = self.matcher.config.options
        try:
            view = self._views.compute(path, 0)
            resolved = resolve_camera(camera, path, view.features[0].size, "camera")
            clock.lap("features")
        except (ValueError, OSError) as error:
            nothing = AssociationGraph(np.zeros((0, 2)), np.zeros((0, 3)), np.zeros((0, 2), int))
            estimate = estimate_absolute_pose(nothing, Camera.unknown(1, 1), "auto", settings)
            estimate = dataclasses.replace(estimate, failure=files.brief(error))
            return self._result(label, nothing, estimate, clock, unreadable=True)
        places = self._similar(view.features)
        graph, points = self._candidates(view, places)
        clock.lap("associate")
        scale = float(np.mean(1.0 / view.features[0].working_scale))
        method: Any = self.matcher.config.method
        options = settings.with_pixels(scale)
        estimate = estimate_absolute_pose(graph, resolved.camera, method, options)
        clock.lap("estimate")
        result = self._result(label, graph, estimate, clock)
        result.notes.append(resolved.sentence)
        images = [self.scene.images[place] for place in places]
        result.map_images = tuple(image.name for image in images)
        matched = points[result.matches[:, 1]]
        seen = Counter({image.name: int(np.isin(image.seen, matched).sum()) for image in images})
        result.matched_images = tuple(name for name, number in seen.most_common() if number)
        return result

    def _result(
        self,
        name: str,
        graph: AssociationGraph,
        estimate: AbsolutePoseEstimate,
        clock: Stopwatch,
        *,
        unreadable: bool = False,
    ) -> LocalizedImage:
        confidence = assess(estimate)
        clock.lap("confidence")
        return LocalizedImage(
            graph=graph,
            estimate=estimate,
            confidence=confidence,
            config=self.matcher.config,
            notes=list(self.matcher.notes),
            timing={**clock.seconds, "total": clock.total()},
            names=(name, self.scene.name),
            scene=self.scene,
            unreadable=unreadable,
        )

    def _similar(self, features: Sequence[Features]) -> list[int]:
        """Return the places of the most similar photographs of the map, the best first."""
        if len(self.scene.images) <= self.number:
            return list(range(len(self.scene.images)))
        vector = self._vocabulary.vector(features)[None]
        found: list[int] = look_alikes(vector, self.number, self._vectors)[0].tolist()
        return found

    def _candidates(self, view: View, places: Sequence[int]) -> tuple[AssociationGraph, IndexArray]:
        """Merge the candidates in some photographs of the map to those between pixels and points.

        A point that is a candidate in several photographs is one candidate, with the best of its
        ranks and similarities. Also returns the places (M,) of the points in the model.
        """
        graphs, points = [], []
        for place in places:
            other = self._views.get(self.scene.images[place].path, 0)
            graph = self.matcher.candidates(view.features, other.features)[0].graph
            point = self._lift(place, other, graph.points1)[graph.edges[:, 1]]
            graphs.append(graph.filter(point >= 0))
            points.append(point[point >= 0])
        used, end1 = np.unique(np.concatenate(points), return_inverse=True)
        end0 = np.concatenate([graph.edges[:, 0] for graph in graphs])
        known = {
            name: np.concatenate([getattr(graph, name) for graph in graphs])
            for name in PER_EDGE
            if all(getattr(graph, name) is not None for graph in graphs)
        }
        flat = np.zeros(len(end0))
        order = np.lexsort((-known.get("similarity", flat), known.get("rank", flat)))
        merged = AssociationGraph(
            graphs[0].points0,
            self.scene.points[used],
            np.column_stack([end0, end1.reshape(-1)])[order],
            source_names=graphs[0].source_names or None,
            **{name: values[order] for name, values in known.items()},
        )
        return merged, used

    def _lift(self, place: int, view: View, points: FloatArray) -> IndexArray:
        """Return the point (N,) of the model that keypoints (N, 2) of a photograph show, or -1."""
        if place in self._lifted and len(self._lifted[place]) == len(points):
            return self._lifted[place]
        image, kind = self.scene.images[place], view.features[0]
        record = ImageRecord(image.name, kind.size, orientation=view.orientation)
        stored, pixels = record.stored(points)
        if stored.size is not None and np.any(image.pixels.max(axis=0) > stored.size):
            size = "{} x {}".format(*stored.size)
            raise ValueError(
                f"images must be the photographs of the model in their size, got {image.name!r} of "
                f"{size} pixels, beyond which the model has points"
            )
        most = _NEAR_PX * float(np.mean(1.0 / kind.working_scale))
        found = np.full(len(points), -1, np.int64)
        for start in range(0, len(points), _ROWS):
            own = pixels[start : start + _ROWS]
            squared = np.sum((own[:, None] - image.pixels[None]) ** 2, axis=2)
            nearest = np.argmin(squared, axis=1)
            near = squared[np.arange(len(own)), nearest] <= most**2
            found[start : start + _ROWS][near] = image.seen[nearest[near]]
        if not any(source.config.takes_images for source in self.matcher.sources):
            self._lifted[place] = found
        return found


class Query(NamedTuple):
    """A photograph to be found: its name in results, its file, and its camera if a list has it."""

    name: str
    path: Path
    camera: Camera | None = None


def localize(
    queries: object,
    model: object,
    images: object = None,
    *,
    preset: object = None,
    cameras: object = None,
    similar: int = SIMILAR,
    query_images: object = None,
    device: str = "auto",
    offline: bool = False,
    cache: object = None,
    progress: Callable[[RunProgress], object] | None = None,
    **settings: Any,
) -> list[LocalizedImage]:
    """Find out where photographs were taken, in a model of other photographs of the same place.

    The photographs of the map that look most similar are matched with a query. Candidates whose
    keypoint in the map is an observed point become candidates between a pixel and that point, those
    of all photographs and sources in one graph, and `estimate_absolute_pose` resolves them.

    Parameters
    ----------
    queries : path or iterable of paths
        A folder (with the folders below it), image files, or a list: a text file with one name a
        line, or hloc's ``name MODEL width height params...`` in COLMAP's pixels.
    model : path or SceneMap
        A COLMAP model, binary or text, or the folder that ``manymatch reconstruct`` wrote.
    images : path, optional
        Folder of the model's photographs; by default what ``manymatch reconstruct`` recorded.
    preset, device, offline, cache, **settings
        As in `Matcher`; the preset is by default the one that made the model, if that is recorded.
        The threshold is 3 px of the resized image unless it is given. With a cache the features of
        the map are computed once.
    cameras : optional
        Camera of every query without one: a COLMAP model that has the queries, or one camera for
        all, as in `Matcher.match`. By default, and with "unknown", focal lengths are found; by
        default those of EXIF are priors.
    similar : int
        Photographs of the map that a query is matched with.
    query_images : path, optional
        Folder to which the names of a list are relative; by default that of the list.
    progress : callable, optional
        Called with a `RunProgress` after every photograph.

    Returns
    -------
    list of LocalizedImage
        In the order of the list, or of the names. One that is not in the map, or that cannot be
        read, raises no error: its ``success`` is False, and ``confidence.reason`` says why.

    Examples
    --------
    >>> found = localize("new", "out/model")                          # doctest: +SKIP
    >>> found[0].pose.center, found[0].confidence.verdict             # doctest: +SKIP
    (array([ 1.25, -0.03,  4.18]), 'solved')
    """
    listed = find_queries(queries, query_images)
    check_camera(cameras, "cameras")
    scene = model if isinstance(model, SceneMap) else SceneMap.read(model, images)
    if preset is None and settings.keys().isdisjoint(("sources", "detector", "descriptor")):
        preset = scene.preset
    named = preset is None or (isinstance(preset, str) and preset in PRESETS)
    if named and settings.get("options") is None:  # a file has a threshold of its own
        settings.setdefault("threshold_px", THRESHOLD_PX)
    matcher = Matcher(preset, device=device, offline=offline, cache=cache, **settings)
    counts, start = Counter[str](), time.monotonic()

    def tell(finished: int, total: int, label: str = "looking at the map") -> None:
        if progress is not None:
            spent = time.monotonic() - start
            left = spent / finished * (total - finished)
            progress(RunProgress(finished, total, dict(counts), left, label, "photograph"))

    localizer = Localizer(scene, matcher, similar, tell)
    found, start = [], time.monotonic()
    for query in listed:
        found.append(localizer.locate(query.path, query.camera or cameras, query.name))
        counts[found[-1].confidence.verdict] += 1
        tell(len(found), len(listed), "")
    return found


def find_queries(queries: object, images: object = None) -> list[Query]:
    """List the photographs that `localize` is asked for; see there."""
    if isinstance(queries, Iterable) and not isinstance(queries, str | os.PathLike):
        return [query for one in queries for query in find_queries(one, images)]
    place = files.as_path(queries, "queries")
    if place.is_dir():
        found = [Query(name, place / name) for name in names_below(place, "queries")]
        if not found:
            raise ValueError(f"queries must have at least one image, got none in {str(place)!r}")
        return found
    if not place.is_file():
        want = "a folder of images, an image or a list of names"
        raise files.MissingFileError(
            f"queries must be {want}, got {str(place)!r} (there is no such file)"
        )
    if place.suffix.lower() in IMAGE_SUFFIXES:
        return [Query(place.name, place)]
    folder = place.parent if images is None else files.as_folder(images, "query_images")
    found, want = [], "a list of images, one name a line"
    with files.reading(place, want, OSError, ValueError), files.open_regular(place) as file:
        for number, line in files.read_lines(file):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            try:
                found.append(_query(line, folder))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error
            if len(found) > files.limit("records"):
                raise files.too_large("it has more names", "records")
        if not found:
            raise ValueError("it has no name")
    return found


def _query(line: str, folder: Path) -> Query:
    """Read a name, maybe with spaces, or ``name MODEL width height params...``."""
    words = line.split()
    if len(words) == 1 or not _MODEL.fullmatch(words[1]):
        name = image_name(line.strip(), "a name")
        return Query(name, folder / name)
    if len(words) < 5:
        raise ValueError("it must have a name, the model of its camera, width, height and params")
    name, model, width, height, *params = words
    size = {"width": int(width), "height": int(height)}
    camera = Camera.from_colmap({"model": model, **size, "params": [float(one) for one in params]})
    return Query(image_name(name, "a name"), folder / name, camera)


def write_localized(
    found: Sequence[LocalizedImage], folder: Path, *, picture: bool = True
) -> dict[str, Path]:
    """Write ``localized.json``, ``poses.txt`` as hloc has it and ``map.png``; return the files."""
    names = {"json": "localized.json", "poses": "poses.txt", "map": "map.png"}
    with files.whole_files(folder, names.values()) as place:
        record = {
            "config": provenance_of(found[0].config),
            "queries": [one.to_dict() for one in found],
        }
        files.write_text(place / names["json"], f"{to_json(record, 'result', indent=2)}\n")
        lines = filter(None, (one.pose_line() for one in found))
        files.write_text(place / names["poses"], "".join(f"{line}\n" for line in lines))
        if picture:
            plot_map(found[0].scene, found, place / names["map"])
    written = {kind: folder / name for kind, name in names.items()}
    return {kind: path for kind, path in written.items() if path.exists()}
