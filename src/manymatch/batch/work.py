"""The work on the pairs of a block: images in, rows out."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import numpy as np

from manymatch.batch.focals import (
    FOCAL_COLUMNS,
    FirstPass,
    SharedFocal,
    camera_group,
    focal_row,
    is_shared,
)
from manymatch.batch.parts import Run, error_sentence, machine_fault, stop_point
from manymatch.estimate.confidence import Verdict
from manymatch.features.extractor import Extractor, Features, extract_all
from manymatch.io.files import name_end
from manymatch.io.image import load_image, stored_orientation
from manymatch.io.matches import alternative_arrays, to_json
from manymatch.matcher.cameras import ResolvedCamera, resolve_camera
from manymatch.matcher.match_result import MatchResult, trusted
from manymatch.matcher.matcher import Matcher

if TYPE_CHECKING:
    from manymatch.batch import CameraPer
    from manymatch.geometry.camera import Camera
    from manymatch.io.pairs import Pair
    from manymatch.matcher.config import MatcherConfig

#: A file, its quarter turns, and another working size.
ImageKey: TypeAlias = tuple[Path, int, int | None]
#: Verdict on a pair that could not be tried; the others are those of `Confidence`.
ERROR = "error"
#: All verdicts, best first.
VERDICTS = (*get_args(Verdict), ERROR)

ROTATION = tuple(f"R{row}{column}" for row in range(3) for column in range(3))
TRANSLATION = ("t0", "t1", "t2")
#: Columns of every table in their order, with the type of their values; any may be empty.
COLUMNS: dict[str, str] = {
    "index": "int64",
    **dict.fromkeys(("name0", "name1"), "string"),
    "success": "bool",
    **dict.fromkeys(("verdict", "reason", "failure", "error"), "string"),
    **dict.fromkeys((*ROTATION, *TRANSLATION), "float64"),
    **dict.fromkeys(("keypoints0", "keypoints1", "candidates", "inliers", "matches"), "int64"),
    **dict.fromkeys(("mean_probability", "hcm", "pose_probability", "log_odds"), "float64"),
    **dict.fromkeys(("rotation_probability", "translation_probability"), "float64"),
    "matches_by_source": "string",
    "trusted": "bool",
    "alternatives": "int64",
    **dict.fromkeys(("second_probability", "noise_px", "threshold_px"), "float64"),
    **dict.fromkeys(("parallax_deg", "rotation_sd_deg", "translation_sd_deg"), "float64"),
    "iterations": "int64",
    **dict.fromkeys(("camera0_source", "camera1_source"), "string"),
    **dict.fromkeys(("focal0_px", "focal1_px"), "float64"),
    **FOCAL_COLUMNS,
    "seed": "uint64",
}
#: Arrays of a pair whose matches are kept, each a column of numbers one row of the array after the
#: other: kind and shape. The alternatives are those of `write_matches_npz`.
ARRAYS: dict[str, tuple[str, tuple[int, ...]]] = {
    **dict.fromkeys(("points0", "points1"), ("float64", (-1, 2))),
    "match_indices": ("int32", (-1, 2)),
    "match_probability": ("float32", (-1,)),
    "match_source": ("int32", (-1,)),
    "alternative_poses": ("float64", (-1, 4, 4)),
    "alternative_probability": ("float64", (-1,)),
    "alternative_matches": ("int32", (-1, 3)),
}
# Entries of a configuration that belong to the pair; the others are the same for all pairs.
_OWN_SETTINGS = ("cameras", "camera_priors", "shared_focal", "orientations")


# --------------------------------------------------------------------------------- images


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """Features of one image by every source, in its own pixels, and its camera.

    `camera` is the sentence of an error where the one that all images share does not fit this
    image; pairs with a camera of their own do not need it. `orientation` is the EXIF orientation
    that was undone.
    """

    features: tuple[Features, ...]
    camera: ResolvedCamera | str
    orientation: int = 1

    def camera_in(self, pair: Pair, side: int) -> ResolvedCamera:
        """Camera of this image as image 0 or 1 of a pair: the pair's own, else that of the image.

        It is an error if there is none, or if it does not fit the image.
        """
        own, path = ((pair.camera0, pair.path0), (pair.camera1, pair.path1))[side]
        if own is not None:
            return resolve_camera(own, path, self.features[0].size, f"camera{side}")
        if isinstance(self.camera, str):
            raise ValueError(self.camera)  # noqa: TRY004 - its text
        return self.camera

    @property
    def nbytes(self) -> int:
        """Memory of the arrays in bytes."""
        return sum(features.nbytes for features in self.features)


class Views:
    """Cache of views by file, which keeps the most recently used ones.

    `budget` is the number of bytes of features to keep; those that are in use are held beside.
    `cameras` is the camera of every image whose pair has none, as `resolve_camera` takes it. Views
    that are `lent` were computed elsewhere.
    """

    def __init__(self, matcher: Matcher, budget: int, cameras: object = None) -> None:
        self._shared = [source.extractor for source in matcher.sources]
        self._local, self._lock = threading.local(), threading.Lock()
        self._cameras, self._budget, self._bytes = cameras, budget, 0
        self._kept: OrderedDict[ImageKey, Future[View]] = OrderedDict()
        self.lent: dict[ImageKey, View] = {}

    def get(self, path: Path, turns: int, longest: int | None = None) -> View:
        """Return the view of a file, features computed after some quarter turns.

        Threads that want the same view wait for the first of them. With `longest` the image has
        another working size, as in `Matcher.match`.
        """
        key = (path, turns, longest)
        if key in self.lent:
            return self.lent[key]
        with self._lock:
            first = key not in self._kept
            future = self._kept.setdefault(key, Future())
            self._kept.move_to_end(key)
        if not first:
            return future.result()
        try:
            view = self.compute(*key)
        except BaseException as error:
            # The next request computes the view again.
            with self._lock:
                del self._kept[key]
            future.set_exception(error)
            raise
        future.set_result(view)
        with self._lock:
            self._bytes += view.nbytes
            while self._bytes > self._budget:
                # The oldest one that is complete; at least this one is.
                oldest = next(key for key, kept in self._kept.items() if kept.done())
                self._bytes -= self._kept.pop(oldest).result().nbytes
        return view

    def compute(self, path: Path, turns: int, longest: int | None = None) -> View:
        """Return the view of a file as `get` does, without keeping it."""
        image = load_image(path)
        height, width = image.shape[:2]
        (kinds,) = extract_all(self._extractors, [np.rot90(image, turns)], longest=[longest])
        turned = tuple(features.turned(turns) for features in kinds)
        camera: ResolvedCamera | str
        try:
            camera = resolve_camera(self._cameras, path, (width, height), "camera")
        except ValueError as error:
            camera = str(error)
        return View(turned, camera, stored_orientation(path))

    @property
    def _extractors(self) -> list[Extractor]:
        """Extractors of this thread; those that run a network are shared and take turns."""
        if not hasattr(self._local, "extractors"):
            self._local.extractors = [
                shared
                if shared.config.needs_torch
                else Extractor(shared.config, offline=shared.offline, cache=shared.cache)
                for shared in self._shared
            ]
        return self._local.extractors  # type: ignore[no-any-return]


# --------------------------------------------------------------------------------- pairs


class _UnreadableError(ValueError):
    """Says which images of a pair cannot be read; the cause says why."""


@dataclasses.dataclass(frozen=True, eq=False)
class PairWork:
    """Matches pairs, and writes nothing. It can be sent to other processes.

    Networks are loaded, and features kept, in the process that uses it. Threads may share it after
    `load`. The arguments are those of `run_batch`; `keep_matches` says whether rows come with their
    matches, and `threads` replaces the estimator's, which do not change results.
    """

    config: MatcherConfig
    device: str = "auto"
    offline: bool = False
    cache: object = None
    cameras: object = None
    camera_per: CameraPer = "pair"
    keep_matches: bool = False
    memory_mb: int = 512
    threads: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @functools.cached_property
    def _matcher(self) -> Matcher:
        return Matcher(self.config, device=self.device, offline=self.offline, cache=self.cache)

    @functools.cached_property
    def views(self) -> Views:
        """Features of images, as this process keeps them."""
        return Views(self._matcher, self.memory_mb * 1_000_000, self.cameras)

    def load(self) -> None:
        """Load what all pairs need; missing packages and weights are errors here."""
        self._matcher.load()
        _ = self.views

    def __call__(self, index: int, pair: Pair, first: FirstPass | None = None) -> dict[str, Any]:
        """Match one pair of image files; with a first pass this is the second.

        A pair that cannot be matched is a row that says why. Errors that concern other pairs as
        well are raised: a missing package, faults of the machine.
        """
        try:
            row = self._matched(index, pair, first)
        except Exception as error:
            if isinstance(error, ImportError) or machine_fault(error):
                raise
            row = self._failed(index, pair, error)
        return row if first is None else first.updated(index, row)

    def _matched(self, index: int, pair: Pair, first: FirstPass | None) -> dict[str, Any]:
        view0, view1 = self._both_views(pair)
        cameras = [view0.camera_in(pair, 0), view1.camera_in(pair, 1)]
        priors = [known.camera for known in cameras]
        if first is not None:
            for side, name in enumerate((pair.name0, pair.name1)):
                group = camera_group(self.camera_per, name, priors[side])
                camera = first.camera(group, priors[side])
                cameras[side] = dataclasses.replace(cameras[side], camera=camera)
        options = self.config.options
        result = self._matcher.match_features(
            view0.features,
            view1.features,
            *cameras,
            shared_focal=is_shared(
                self.camera_per, (pair.name0, pair.name1), [known.camera for known in cameras]
            ),
            options=options if self.threads is None else options.replace(threads=self.threads),
        )
        result.orientations = (view0.orientation, view1.orientation)
        row = result_row(index, pair, result, cameras, self.camera_per, priors)
        return row | match_columns(result) if self.keep_matches else row

    def _both_views(self, pair: Pair) -> list[View]:
        views, errors = [], {}
        for side, key in enumerate(((pair.path0, pair.rot0), (pair.path1, pair.rot1))):
            try:
                views.append(self.views.get(*key))
            except ValueError as error:
                if machine_fault(error):
                    raise
                errors[side] = error
        if errors:
            which = " and ".join(f"image {side}" for side in errors)
            raise _UnreadableError(f"{which} could not be read") from next(iter(errors.values()))
        return views

    def _failed(self, index: int, pair: Pair, error: BaseException) -> dict[str, Any]:
        which = str(error) if isinstance(error, _UnreadableError) else None
        why = (which and error.__cause__) or error
        return {
            "index": index,
            "name0": plain_text(pair.name0),
            "name1": plain_text(pair.name1),
            "success": False,
            "verdict": ERROR,
            "reason": which,
            "error": plain_text(error_sentence(why)),
            "seed": self.config.options.seed,
        }


def result_row(
    index: int,
    pair: Pair,
    result: MatchResult,
    cameras: Sequence[ResolvedCamera],
    camera_per: CameraPer = "pair",
    priors: Sequence[Camera] | None = None,
) -> dict[str, Any]:
    """Row of a pair that was matched, solved or not; unknown values are left out.

    `priors` are the cameras as they were before focal lengths of other pairs were taken over.
    """
    estimate, confidence = result.estimate, result.confidence
    usable = trusted(estimate, confidence)
    names = (pair.name0, pair.name1)
    priors = [one.camera for one in cameras] if priors is None else priors
    known = {**confidence.to_dict(), **result.answer.to_row()}
    row: dict[str, Any] = {
        "index": index,
        "name0": pair.name0,
        "name1": pair.name1,
        **{name: value for name, value in known.items() if name in COLUMNS},
        "keypoints0": len(result.keypoints0),
        "keypoints1": len(result.keypoints1),
        "trusted": usable,
        "camera0_source": cameras[0].origin,
        "camera1_source": cameras[1].origin,
        "focal0_px": result.camera0.focal,
        "focal1_px": result.camera1.focal,
        **focal_row(camera_per, names, priors, estimate, trusted=usable),
    }
    return {
        name: plain_text(value) if isinstance(value, str) else value
        for name, value in row.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


def plain_text(value: str) -> str:
    """Escape bytes that are not UTF-8; names of files may hold any bytes."""
    return value.encode("utf-8", "backslashreplace").decode()


def pair_file(folder: Path, index: int, pair: Pair, ending: str) -> Path:
    """Name a file of a pair; systems limit names in bytes, not letters."""
    names = (re.sub(r"[^\w.-]+", "-", plain_text(name)) for name in (pair.name0, pair.name1))
    return folder / f"{index:06d}_{'_'.join(name_end(name, 80) for name in names)}.{ending}"


def match_columns(result: MatchResult) -> dict[str, Any]:
    """Keypoints and matches of a pair as columns of its part; `read_matches` reads them."""
    pair = result.pair_matches()
    arrays = {
        "points0": pair.keypoints0,
        "points1": pair.keypoints1,
        "match_indices": pair.matches,
        "match_probability": pair.confidence,
        "match_source": pair.source,
        **alternative_arrays(pair.alternatives),
    }
    config = pair.config or {}
    return {
        **{
            name: np.ravel(a).astype(ARRAYS[name][0]) for name, a in arrays.items() if a is not None
        },
        "source_names": list(pair.source_names) or None,
        "settings": to_json({n: config[n] for n in _OWN_SETTINGS if n in config}, "config"),
    }


# --------------------------------------------------------------------------------- blocks


@dataclasses.dataclass(frozen=True, eq=False)
class BlockWork:
    """Computes a block of pairs and writes its part; counts the verdicts.

    With `first`, the run of the first pass, this is the second: pairs whose images have a focal
    length in `focals` are matched again with it, and the rows of all others are kept. Pairs that
    the first pass left out are matched.
    """

    run: Run
    work: PairWork
    pairs: Sequence[Pair]
    first: Run | None = None
    focals: Mapping[str, SharedFocal] | None = None

    def images(self, block: int) -> list[ImageKey]:
        """List the images of a block as `Views.get` takes them."""
        pairs = [self.pairs[index] for index in (self.run.blocks or ())[block].tolist()]
        keys = (((p.path0, p.rot0, None), (p.path1, p.rot1, None)) for p in pairs)
        return list(dict.fromkeys(itertools.chain.from_iterable(keys)))

    def __call__(self, block: int) -> Counter[str]:
        """Compute a block."""
        passed, rows = None, []
        if self.first is not None:
            there = self.first.path(block).exists()
            table = self.first.read(block).to_pylist() if there else []
            known = {row["index"]: {n: v for n, v in row.items() if v is not None} for row in table}
            passed = FirstPass(known, self.focals or {})
        for index in (self.run.blocks or ())[block].tolist():
            stop_point()
            row = None if passed is None else passed.rows.get(index)
            if passed is None or row is None or (row["verdict"] != ERROR and passed.is_stale(row)):
                row = self.work(index, self.pairs[index], passed)
            rows.append(row)
        self.run.write(block, rows)
        return Counter(row["verdict"] for row in rows)
