"""A folder of photographs in, a model out: pairs, their truth, COLMAP's mappers, files."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import choice, count, flag, integer, require
from manymatch.batch.batch import run_batch
from manymatch.batch.parts import RunProgress, num_workers
from manymatch.io.files import local_path, make_folder, output_folder, write_text
from manymatch.io.pairs import PairList
from manymatch.io.remote import masked
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.match_result import provenance_of
from manymatch.matcher.matcher import Matcher
from manymatch.reconstruct.guided import add_guided, neighbours
from manymatch.reconstruct.mapping import (
    FEWEST_IMAGES,
    MAPPERS,
    MOST_SEEDS,
    Model,
    agreement,
    exact_keypoints,
    map_pairs,
    read_reconstruction,
    run_jobs,
    score_models,
    write_exact,
)
from manymatch.reconstruct.pair_graph import PairGraph
from manymatch.reconstruct.pair_truth import judge_pairs
from manymatch.reconstruct.photos import PAIR_CHOICES, choose_pairs, find_photos, suggested_pairs
from manymatch.reconstruct.reconstruction import ReconstructedPair, Reconstruction, foreign_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from manymatch._validate import BoolArray, IndexArray
    from manymatch.batch import CameraPer
    from manymatch.features.extractor import Features
    from manymatch.geometry.camera import Camera
    from manymatch.reconstruct.pair_truth import PairTruth
    from manymatch.reconstruct.photos import Photos

# Photographs that each one is paired with because they look alike, or because a model says that
# they show the same.
_SIMILAR, _SUGGESTED = 20, 10
# Suggested pairs are matched if they are more than this share of the pairs before, and pairs of
# photographs in no model are tried if these are more than this share of all: all is mapped again.
_WORTH = 0.01
# All pairs are matched again with the focal length of the model if its logarithm differs by more
# than this from that of the pairs; then it has this standard deviation.
_OTHER_FOCAL, _FOCAL_SIGMA = 0.15, 0.05
_MAPPERS = ("both", *MAPPERS)
# A guided matching is for at most this number of photographs; it has up to this number of keypoints
# an image, and is worth it if there are this many times more than before.
_GUIDED, _GUIDED_KEYPOINTS, _MORE_KEYPOINTS = 200, 8192, 1.5
# Parts of a scene look alike if at least this number and this share of the pairs that matching
# alone trusts are refused.
_ALIKE, _ALIKE_SHARE = 10, 0.25


def reconstruct(
    photos: object,
    out: object = "out/model",
    cameras: object = None,
    preset: MatcherConfig | str | None = None,
    *,
    pairs: str = "auto",
    similar: int = _SIMILAR,
    camera_per: CameraPer = "folder",
    mapper: str = "both",
    guided: bool = True,
    text: bool = False,
    most_frames: int = 150,
    seed: int = 0,
    workers: int = 0,
    device: str = "auto",
    offline: bool = False,
    cache: object = None,
    engine: str = "local",
    address: str | None = None,
    progress: Callable[[RunProgress], object] | None = None,
) -> Reconstruction:
    """Reconstruct a scene from photographs: camera poses and points, in COLMAP's format.

    Pairs of photographs are matched, pairs that cannot be true in one scene are refused, COLMAP's
    mappers make models of the others, and the better model is adjusted once more with all pairs
    that agree with it. A run that was interrupted continues with the same call and ends with the
    same model.

    Parameters
    ----------
    photos : path
        A folder of images, with those in folders below, or a video, of which sharp frames are
        taken.
    out : path
        Folder for the model, on this machine: ``sparse/0`` and so on, ``database.db``,
        ``transforms.json`` for radiance fields, ``points.ply``, ``pairs.json``, ``summary.json``
        and the page ``index.html``; further models have ``database-1.db`` and so on. A further call
        continues with what is in ``matching/`` and ``mapping/``.
    cameras : optional
        Cameras that are exactly known and stay fixed: a COLMAP model, or one camera for all, as
        `Matcher.match` takes them. By default focal lengths are found, with those of EXIF as
        priors, and refined together with a radial distortion.
    preset : MatcherConfig, preset or .toml file, optional
        As `Matcher` takes it.
    pairs : {"auto", "all", "sequence", "look-alikes"}
        Which pairs are matched: all; those that follow each other, and look-alikes; look-alikes
        only. "auto" takes all up to 60 photographs, then sequences where names are numbered.
        Unless all pairs are matched, a second round matches those that the model suggests.
    similar : int
        Number of look-alikes of each photograph.
    camera_per : {"image", "folder", "all"}
        Which photographs share an unknown camera, if they have one size.
    mapper : {"both", "incremental", "global"}
        COLMAP's mapper; with "both" the better model is taken.
    guided : bool
        Whether the photographs, if they are at most 200, are matched a second time, with 8,192 SIFT
        keypoints along the epipolar lines of the model, for more points and more exact poses.
    text : bool
        Also write the model as COLMAP's text files.
    most_frames : int
        Most frames of a video.
    seed : int
        Of everything random.
    workers, device, offline, cache, engine, address
        As `run_batch` takes them, for the matching. Where look-alikes are searched, the default
        cache is the folder ``features`` in `out`.
    progress : callable, optional
        Called with a `RunProgress` after every step of a stage.

    Returns
    -------
    Reconstruction
        Models, pairs with their truth, and the files. Without any model it is false.

    Raises
    ------
    ValueError
        If an argument is wrong, or the folder holds a run of other photographs or settings.
    MappingError
        If COLMAP fails.

    Examples
    --------
    >>> scene = reconstruct("photos", "out/model")                    # doctest: +SKIP
    >>> print(scene)                                                  # doctest: +SKIP
    Model: 11 of 11 photographs, 4,092 points seen in 3.7 photographs each, reprojection error ...
    52 of 55 pairs accepted.
    """
    require("pycolmap", "a reconstruction", "sfm")
    choice(pairs, "pairs", PAIR_CHOICES)
    choice(mapper, "mapper", _MAPPERS)
    choice(camera_per, "camera_per", ("image", "folder", "all"))
    integer(similar, "similar", 1)
    integer(most_frames, "most_frames", 2)
    config = MatcherConfig.of(preset, seed=integer(seed, "seed", 0))
    for source in config.sources:
        if source.takes_images:
            raise ValueError(
                "preset must have keypoints of images, which all pairs of an image share, got the "
                f"source {source.name!r}, which matches images without"
            )
    folder = output_folder(local_path(out, "out"), "out")
    if not (folder / "matching").exists() and (found := foreign_file(folder)):
        raise ValueError(
            f"out must be a new folder or one of the same run, got {str(folder)!r}, which has "
            f"{found!r} of something else; choose another --out"
        )
    settings = {
        "pairs": pairs,
        "similar": similar,
        "cameras": None if cameras is None else masked(str(cameras)),
        "camera_per": camera_per,
        "mapper": mapper,
        "guided": flag(guided, "guided"),
        "most_frames": most_frames,
        "seed": seed,
        "engine": engine,
    }
    batch = {
        "workers": workers,
        "device": device,
        "offline": offline,
        "cache": cache,
        "cameras": cameras,
        "camera_per": camera_per,
        "engine": engine,
        "address": address,
    }
    run = _Run(folder, config, settings, batch, progress)
    with _only_run(folder):
        with run.stage("photographs"):
            say = run.say("frames", "frame")
            given = find_photos(photos, folder / "frames", most_frames, say)
            _check_same(given, folder / "matching" / "photographs.json")
        run.match(given)
        run.map()
        run.match_again()
        run.match_suggested()
        return run.finish(text=text)


@contextlib.contextmanager
def _only_run(folder: Path) -> Iterator[None]:
    """Refuse a second run in a folder while a first one is at work there."""
    make_folder(folder)
    with (folder / ".lock").open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"out must be a folder in which no other run is at work, got {str(folder)!r}; wait "
                "for it or choose another --out"
            ) from None
        except OSError:
            # Some network file systems have no locks.
            pass
        yield


def _check_same(photos: Photos, record: Path) -> None:
    """Refuse photographs that were replaced since an earlier run, by the sizes of their files."""
    sizes = {name: (photos.folder / name).stat().st_size for name in photos.names}
    try:
        earlier = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        earlier = {}
    for name in photos.names if isinstance(earlier, dict) else ():
        if earlier.get(name, sizes[name]) != sizes[name]:
            raise ValueError(
                f"photos must be those of the earlier run in the same folder, got another file "
                f"for {name!r}; choose another --out"
            )
    make_folder(record.parent)
    write_text(record, f"{json.dumps(sizes)}\n")


def look_alike_notes(graph: PairGraph, truth: Sequence[PairTruth]) -> list[str]:
    """Warn in a sentence if many pairs that matching alone trusts are refused."""
    refused = [not one.true for pair, one in zip(graph.pairs, truth, strict=True) if pair.trusted]
    if sum(refused) < max(_ALIKE, _ALIKE_SHARE * len(refused)):
        return []
    return [
        f"Parts of the scene look alike: {sum(refused):,} of {len(refused):,} pairs that look "
        "right by themselves do not fit the others. Photographs of different sides may still be on "
        "top of each other, or in different models: look at the page."
    ]


def _placed(models: Sequence[Model]) -> int:
    """Count the photographs of the largest model."""
    return max((len(model.poses) for model in models), default=0)


@dataclasses.dataclass
class _Run:
    """One call of `reconstruct`, with everything checked; `batch` are arguments of `run_batch`."""

    folder: Path
    config: MatcherConfig
    settings: dict[str, Any]
    batch: dict[str, Any]
    report: Callable[[RunProgress], object] | None
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    #: Camera with the focal length of a model, if the pairs were matched again, and their folder.
    camera: Camera | None = None
    matched: str = "matching"
    graph: PairGraph = dataclasses.field(init=False)
    truth: list[PairTruth] = dataclasses.field(init=False)
    models: list[Model] = dataclasses.field(init=False)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Take the time of a stage."""
        start = time.monotonic()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start

    def say(self, label: str, noun: str = "photograph") -> Callable[[int, int], object]:
        """Return a function that reports how far a stage is."""

        def tell(finished: int, total: int) -> None:
            if self.report is not None:
                self.report(RunProgress(finished, total, {}, None, label, noun))

        return tell

    def match(self, photos: Photos) -> None:
        """Choose pairs, match them, and judge them."""
        self.photos, wanted = photos, self.settings
        with self.stage("pairs"):
            self.tried: IndexArray = choose_pairs(
                photos, wanted["pairs"], self._features, wanted["similar"], wanted["seed"]
            )
        self._match(self.tried, "matching")

    def match_again(self) -> None:
        """Match again if photographs are missing and the model has another focal length than pairs.

        Pairs may agree on a wrong focal length, and then have wrong poses; a model has more to go
        by. The new models are taken if they place more photographs.
        """
        cameras = {photo.camera.params: photo.camera for photo in self.graph.photos}
        complete = not 0 < _placed(self.models) < len(self.photos.names)
        if complete or self.batch["cameras"] is not None or len(cameras) != 1:
            return
        (camera,) = cameras.values()
        found = read_reconstruction(self.models[0].folder).cameras.values()
        focal = float(np.median([one.mean_focal_length() for one in found]))
        if abs(np.log(focal / camera.focal)) > _OTHER_FOCAL:
            before = self.graph, self.truth, self.models
            self.camera, self.matched = camera.with_focal(focal, _FOCAL_SIGMA), "matching-again"
            self._match(self.tried, self.matched)
            self.map()
            if _placed(self.models) <= _placed(before[2]):
                self.camera, self.matched = None, "matching"
                self.graph, self.truth, self.models = before

    def match_suggested(self) -> None:
        """Match what the models suggest, and map again, if it is more than a few pairs."""
        names = [photo.name for photo in self.graph.photos]
        pairs = zip(self.graph.pairs, self.truth, strict=True)
        accepted = [(names[own.first], names[own.second]) for own, truth in pairs if truth.true]
        more = suggested_pairs(self.photos.names, self.tried, self.models, _SUGGESTED, accepted)
        if len(more) > _WORTH * len(self.tried):
            self._match(more, self.matched, "matching-suggested")
            self.map()

    def _match(self, pairs: IndexArray, *names: str) -> None:
        """Match pairs in the last of some folders, and judge the pairs of all of them."""
        listed = PairList(self.photos.folder, self.photos.names, pairs.astype(np.int32))
        folders = [self.folder / name for name in names]
        with self.stage("matching"):
            how = {"formats": ("parquet",), "progress": self.report, **self.batch}
            how["cameras"] = self.camera or how["cameras"]
            summary = run_batch(listed, None, folders[-1], self.config, **how)
            self.notes += summary.notes
            if summary.unreadable:
                unreadable = count(summary.unreadable, "photograph")
                self.notes.append(f"{unreadable} could not be read: {summary.reasons[0].sentence}")
        with self.stage("truth of pairs"):
            self.graph = PairGraph.from_batch(*folders)
            self.truth = judge_pairs(self.graph)

    def _features(self) -> Iterator[Sequence[Features]]:
        """Compute the features of all photographs, one at a time, and cache them.

        A photograph that cannot be read has none; why is said when it is matched.
        """
        self.batch["cache"] = self.batch["cache"] or self.folder / "features"
        matcher, say = self._matcher(self.config), self.say("looking for look-alikes")
        for place, name in enumerate(self.photos.names):
            say(place, len(self.photos.names))
            try:
                yield matcher.extract([self.photos.folder / name])[0]
            except (ValueError, OSError):
                yield ()

    def _matcher(self, preset: MatcherConfig | str, **settings: Any) -> Matcher:
        where = {name: self.batch[name] for name in ("device", "offline", "cache")}
        return Matcher(preset, **where, **settings)

    def map(self) -> None:
        """Make models of the pairs that are true.

        Photographs in no model get a second chance by the pairs that matching alone would trust.
        The models with them are taken if they have more photographs and as many true pairs agree,
        or if there is no model of three photographs without them.
        """
        # Given cameras are exactly known unless they say otherwise.
        known = all(photo.record.focal_known for photo in self.graph.photos)
        self.job = {
            "refine_cameras": self.batch["cameras"] is None or not known,
            "seed": self.settings["seed"] % MOST_SEEDS,
        }
        keep = [one.true for one in self.truth]
        with self.stage("mapping"):
            self.models = self._mapped(keep)
            placed = {name for model in self.models for name in model.poses}
            lost = [photo.name not in placed for photo in self.graph.photos]
            more = [
                kept or (pair.trusted and (lost[pair.first] or lost[pair.second]))
                for kept, pair in zip(keep, self.graph.pairs, strict=True)
            ]
            if sum(more) > sum(keep) and sum(lost) > _WORTH * len(lost):
                both = self.models, self._mapped(more)
                scores = [score_models(self.graph, keep, models)[0] for models in both]
                sizes = [_placed(models) for models in both]
                as_good = sizes[0] < FEWEST_IMAGES or scores[1] >= scores[0]
                if sizes[1] > sizes[0] and as_good:
                    self.models = both[1]

    def _mapped(self, keep: Sequence[bool]) -> list[Model]:
        if not any(keep):
            return []
        total, say = len(self.graph.photos), self.say("placing photographs")
        mapper = self.settings["mapper"]
        return map_pairs(
            self.graph,
            keep,
            self.folder / "mapping" / self._digest(keep),
            **self.job,
            mappers=MAPPERS if mapper == "both" else (mapper,),
            progress=lambda placed: say(min(placed, total), total),
            notes=self.notes,
        )

    def _digest(self, keep: Sequence[bool]) -> str:
        """Name everything that decides the models, so that a further run finds them."""
        colmap = require("pycolmap", "a reconstruction", "sfm")
        settings = [self.job["refine_cameras"], self.settings["seed"], colmap.__version__]
        digest = hashlib.sha256(json.dumps(settings).encode())
        for photo in self.graph.photos:
            digest.update(repr((photo.record, len(photo.points))).encode())
        for pair, kept in zip(self.graph.pairs, keep, strict=True):
            if kept and pair.pose is not None:
                digest.update(f"{pair.first} {pair.second}".encode())
                digest.update(pair.matches.tobytes() + pair.pose.matrix().tobytes())
        return digest.hexdigest()[:16]

    def finish(self, *, text: bool) -> Reconstruction:
        """Adjust each model with all pairs that agree with it, and write the files."""
        agreeing = [agreement(self.graph, model) for model in self.models]
        true = np.array([one.true for one in self.truth], dtype=bool)
        with self.stage("last adjustment"):
            models = []
            for model, (inside, agrees) in zip(self.models, agreeing, strict=True):
                own = agrees[inside & true]
                share = float(own.mean()) if len(own) else 1.0
                models.append(dataclasses.replace(self._adjusted(model, agrees), agreeing=share))
        self.notes += look_alike_notes(self.graph, self.truth)
        spaced = [name for name in self.photos.names if len(name.split()) > 1]
        if text and spaced:
            self.notes.append(
                f"COLMAP cuts names at spaces when it reads its text files: take the binary ones "
                f"({spaced[0]!r})"
            )
        found = Reconstruction(
            self.folder,
            self.photos.names,
            tuple(models),
            tuple(self._pairs(agreeing)),
            self.seconds,
            {},
            tuple(dict.fromkeys(self.notes)),
        )
        with self.stage("writing"):
            found = found.written(self.photos.folder, self.graph, text=text)
        seconds = {name: round(value, 3) for name, value in self.seconds.items()}
        found = dataclasses.replace(found, seconds=seconds)
        record = {
            "photos_folder": str(self.photos.folder.absolute()),
            **found.to_dict(),
            "settings": {**self.settings, **provenance_of(self.config)},
        }
        write_text(self.folder / "summary.json", f"{json.dumps(record, indent=2)}\n")
        return found

    def _adjusted(self, model: Model, agrees: BoolArray) -> Model:
        """Settle the poses of a model by its exact keypoints, and match again guided by it.

        Where all sources of keypoints are alike, and where there are not many more keypoints, the
        model stays as the mapper made it.
        """
        folder, place = model.folder.parents[1], f"{model.mapper}-{model.folder.name}"
        guided = self.settings["guided"]
        job: dict[str, Any] = {
            **self.job,
            "job": "settle",
            "model": os.fspath(model.folder),
            "images": os.fspath(self.photos.folder),
            # Named so that a run with a guided matching does not take the model of one without.
            "out": folder / f"{'sparse' if guided else 'plain'}-{place}",
        }
        found = read_reconstruction(model.folder)
        exact = exact_keypoints(self.graph, found)
        if exact:
            write_exact(found, exact, folder / f"exact-{place}")
            job["model"] = os.fspath(folder / f"exact-{place}")
            job["database"] = os.fspath(folder / "database.db")
        run_jobs([job])
        settled = Model.read(job["out"] / "0", model.mapper)
        if not guided or len(self.photos.names) > _GUIDED:
            return settled
        database = folder / f"guided-{place}.db"
        if not database.exists() and not self._write_guided(database, settled, agrees, exact):
            return settled
        job |= {"job": "triangulate", "model": os.fspath(settled.folder)}
        job |= {"out": folder / f"guided-{place}", "database": os.fspath(database)}
        run_jobs([job])
        return Model.read(job["out"] / "0", model.mapper)

    def _write_guided(
        self, database: Path, model: Model, agrees: BoolArray, exact: Mapping[str, BoolArray]
    ) -> bool:
        """Write the database of a guided matching; return False where it is not worth it."""
        seed = self.settings["seed"]
        matcher = self._matcher("classic", max_keypoints=_GUIDED_KEYPOINTS, seed=seed)
        say, features = self.say("more keypoints"), {}
        for place, name in enumerate(model.poses):
            say(place, len(model.poses))
            features[name] = matcher.extract([self.photos.folder / name])[0][0]
        found = add_guided(
            self.graph.between(exact),
            agrees.tolist(),
            model,
            neighbours(read_reconstruction(model.folder)),
            features,
            growth=_MORE_KEYPOINTS,
            workers=num_workers(self.batch["workers"]),
            progress=self.say("guided matching", "pair"),
        )
        if found is not None:
            found.write_database(database, [True] * len(found.pairs))
        return found is not None

    def _pairs(
        self, agreeing: Sequence[tuple[BoolArray, BoolArray]]
    ) -> Iterator[ReconstructedPair]:
        for place, (pair, truth) in enumerate(zip(self.graph.pairs, self.truth, strict=True)):
            fits = [bool(agrees[place]) for inside, agrees in agreeing if inside[place]]
            yield ReconstructedPair(
                self.graph.photos[pair.first].name,
                self.graph.photos[pair.second].name,
                pair.verdict,
                len(pair.matches),
                truth.probability,
                truth.true and pair.pose is not None,
                truth.reason,
                any(fits) if fits else None,
            )
