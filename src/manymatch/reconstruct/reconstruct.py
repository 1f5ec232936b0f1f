"""A folder of photographs in, a model out: pairs, their truth, COLMAP's mappers, files."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import choice, count, flag, integer, require
from manymatch.batch.batch import run_batch
from manymatch.batch.parts import RunProgress, num_workers
from manymatch.io.files import local_path, output_folder, write_text
from manymatch.io.remote import masked
from manymatch.matcher.cameras import UNKNOWN
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.match_result import provenance_of
from manymatch.matcher.matcher import Matcher
from manymatch.reconstruct.guided import add_guided, neighbours, united
from manymatch.reconstruct.mapping import (
    MAPPERS,
    MOST_SEEDS,
    Model,
    agreement,
    map_pairs,
    read_reconstruction,
    run_jobs,
    score_models,
)
from manymatch.reconstruct.model_files import ReconstructedPair, write_files
from manymatch.reconstruct.pair_graph import PairGraph
from manymatch.reconstruct.pair_truth import judge_pairs
from manymatch.reconstruct.photos import (
    PAIR_CHOICES,
    Photos,
    choose_pairs,
    find_photos,
    suggested_pairs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from manymatch._validate import BoolArray, IndexArray
    from manymatch.batch import CameraPer
    from manymatch.features.extractor import Features
    from manymatch.reconstruct.pair_truth import PairTruth

# Photographs that each one is paired with because they look alike, or because a model says that
# they show the same.
_SIMILAR, _SUGGESTED = 20, 10
_MAPPERS = ("both", *MAPPERS)
# A guided matching is for at most this number of photographs; it has up to this number of keypoints
# an image, and is worth it if there are this many times more than before.
_GUIDED, _GUIDED_KEYPOINTS, _MORE_KEYPOINTS = 200, 8192, 1.5


@dataclasses.dataclass(frozen=True, eq=False)
class Reconstruction:
    """What `reconstruct` made of a folder of photographs.

    Attributes
    ----------
    folder : Path
        Of all files; ``sparse/0`` has the largest model.
    photos : tuple of str
        Names of all photographs.
    models : tuple of Model
        Largest first; several if the photographs fall apart into scenes that share no true pair.
    pairs : tuple of ReconstructedPair
        Every pair that was matched.
    seconds : dict of str to float
        Of each stage of this run, in seconds.
    files : dict of str to Path
        The files by what they are.
    notes : tuple of str
        Sentences about what is unusual.
    """

    folder: Path
    photos: tuple[str, ...]
    models: tuple[Model, ...]
    pairs: tuple[ReconstructedPair, ...]
    seconds: dict[str, float]
    files: dict[str, Path]
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.models)

    @property
    def missing(self) -> tuple[str, ...]:
        """Photographs that are in no model."""
        placed = {name for model in self.models for name in model.poses}
        return tuple(name for name in self.photos if name not in placed)

    def __str__(self) -> str:
        accepted = sum(pair.accepted for pair in self.pairs)
        tried = f"{accepted:,} of {count(len(self.pairs), 'pair')} accepted"
        if not self.models:
            return f"No model of {count(len(self.photos), 'photograph')}: {tried}."
        lines = []
        for place, model in enumerate(self.models):
            name = "Model" if len(self.models) == 1 else f"Model {place}"
            images = f"{len(model.poses):,} of {count(len(self.photos), 'photograph')}"
            lines.append(
                f"{name}: {images}, {count(model.points, 'point')} seen in "
                f"{model.track_length:.1f} photographs each, reprojection error "
                f"{model.reprojection_px:.2f} px."
            )
        if len(self.models) > 1:
            lines.append("The models share no true pair, so their scales and places are unrelated.")
        return "\n".join([*lines, f"{tried}."])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        models = [
            {
                "folder": str(model.folder),
                "images": len(model.poses),
                "points": model.points,
                "reprojection_px": model.reprojection_px,
                "track_length": model.track_length,
                "mapper": model.mapper,
                "agreeing_pairs": model.agreeing,
            }
            for model in self.models
        ]
        return {
            "folder": str(self.folder),
            "photographs": len(self.photos),
            "registered": len(self.photos) - len(self.missing),
            "missing": list(self.missing),
            "models": models,
            "pairs": len(self.pairs),
            "accepted_pairs": sum(pair.accepted for pair in self.pairs),
            "seconds": self.seconds,
            "files": {name: str(path) for name, path in self.files.items()},
            "notes": list(self.notes),
        }


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
        and the page ``index.html``; and for what a further call continues with, ``matching/`` and
        ``mapping/``.
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
    run = _Scene(
        folder=folder,
        config=config,
        refine_cameras=cameras is None or cameras == UNKNOWN,
        mappers=MAPPERS if mapper == "both" else (mapper,),
        guided=guided,
        seed=seed,
        settings=settings,
        report=progress,
        batch={
            "workers": workers,
            "device": device,
            "offline": offline,
            "cache": cache,
            "cameras": cameras,
            "camera_per": camera_per,
            "engine": engine,
            "address": address,
        },
    )
    with run.stage("photographs"):
        found = find_photos(
            photos, folder / "frames", most_frames=most_frames, progress=run.say("frames", "frame")
        )
    run.match(found, pairs, similar)
    run.map()
    if len(run.tried) < math.comb(len(found.names), 2):
        run.match_suggested(found)
    return run.finish(found, text=text)


@dataclasses.dataclass
class _Scene:
    """One call of `reconstruct`, with everything checked."""

    folder: Path
    config: MatcherConfig
    refine_cameras: bool
    mappers: tuple[str, ...]
    guided: bool
    seed: int
    settings: dict[str, Any]
    batch: dict[str, Any]
    report: Callable[[RunProgress], object] | None
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)

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

    def match(self, photos: Photos, pairs: str, similar: int) -> None:
        """Choose pairs, match them, and judge them."""
        with self.stage("pairs"):
            features = lambda: self._features(photos)  # noqa: E731
            self.tried: IndexArray = choose_pairs(photos, pairs, features, similar, self.seed)
        self._match(photos, self.tried, "matching")

    def match_suggested(self, photos: Photos) -> None:
        """Match what the models suggest, and map again if there is anything."""
        more = suggested_pairs(photos.names, self.tried, self.models, _SUGGESTED)
        if len(more):
            self.tried = np.concatenate([self.tried, more])
            self._match(photos, more, "matching-suggested")
            self.map()

    def _match(self, photos: Photos, pairs: IndexArray, name: str) -> None:
        with self.stage("matching"):
            summary = run_batch(
                photos.pairs(pairs),
                None,
                self.folder / name,
                self.config,
                formats=("parquet",),
                progress=self.report,
                **self.batch,
            )
            self.notes += summary.notes
            if summary.unreadable:
                unreadable = count(summary.unreadable, "photograph")
                self.notes.append(f"{unreadable} could not be read: {summary.reasons[0].sentence}")
        with self.stage("truth of pairs"):
            folders = [self.folder / "matching", self.folder / "matching-suggested"]
            known = [one for one in folders if one.name == name or one == folders[0]]
            self.graph = PairGraph.from_batch(*known)
            self.truth: list[PairTruth] = judge_pairs(self.graph)

    def _features(self, photos: Photos) -> Iterator[tuple[Features, ...]]:
        """Compute the features of all photographs, one at a time, and cache them."""
        self.batch["cache"] = self.batch["cache"] or self.folder / "features"
        names = ("device", "offline", "cache")
        matcher = Matcher(self.config, **{name: self.batch[name] for name in names})
        say = self.say("looking for look-alikes")
        for place, name in enumerate(photos.names):
            say(place, len(photos.names))
            yield matcher.extract([photos.folder / name])[0]

    def map(self) -> None:
        """Make models of the pairs that are true.

        Photographs in no model get a second chance by the pairs that matching alone would trust.
        The models with them are taken if they have more photographs and as many true pairs agree.
        """
        keep = [one.true for one in self.truth]
        with self.stage("mapping"):
            self.models = self._mapped(keep)
            placed = {name for model in self.models for name in model.poses}
            lost = [photo.name not in placed for photo in self.graph.photos]
            more = [
                kept or (pair.trusted and (lost[pair.first] or lost[pair.second]))
                for kept, pair in zip(keep, self.graph.pairs, strict=True)
            ]
            if sum(more) > sum(keep):
                found = self._mapped(more)
                scores = [score_models(self.graph, keep, one)[0] for one in (self.models, found)]
                sizes = [
                    max((len(m.poses) for m in one), default=0) for one in (self.models, found)
                ]
                if sizes[1] > sizes[0] and scores[1] >= scores[0]:
                    self.models = found

    def _mapped(self, keep: Sequence[bool]) -> list[Model]:
        if not any(keep):
            return []
        total, say = len(self.graph.photos), self.say("placing photographs")
        return map_pairs(
            self.graph,
            keep,
            self.folder / "mapping" / self._digest(keep),
            refine_cameras=self.refine_cameras,
            seed=self.seed,
            mappers=self.mappers,
            progress=lambda placed: say(min(placed, total), total),
        )

    def _digest(self, keep: Sequence[bool]) -> str:
        """Name everything that decides the models, so that a further run finds them."""
        colmap = require("pycolmap", "a reconstruction", "sfm")
        settings = [self.refine_cameras, self.seed, colmap.__version__]
        digest = hashlib.sha256(json.dumps(settings).encode())
        for photo in self.graph.photos:
            digest.update(repr((photo.record, len(photo.points))).encode())
        for pair, kept in zip(self.graph.pairs, keep, strict=True):
            if kept and pair.pose is not None:
                digest.update(f"{pair.first} {pair.second}".encode())
                digest.update(pair.matches.tobytes() + pair.pose.matrix().tobytes())
        return digest.hexdigest()[:16]

    def finish(self, photos: Photos, *, text: bool) -> Reconstruction:
        """Adjust each model with all pairs that agree with it, and write the files."""
        agreeing = [agreement(self.graph, model) for model in self.models]
        with self.stage("last adjustment"):
            self.models = [
                self._adjusted(model, agrees, photos)
                for model, (_, agrees) in zip(self.models, agreeing, strict=True)
            ]
        pairs = tuple(self._pairs(agreeing))
        with self.stage("writing"):
            files, models = write_files(
                self.folder, photos, self.models, self.graph, pairs, self.seconds, self.notes, text
            )
        found = Reconstruction(
            self.folder,
            photos.names,
            tuple(models),
            pairs,
            {name: round(value, 3) for name, value in self.seconds.items()},
            files,
            tuple(self.notes),
        )
        record = {
            "photos_folder": str(photos.folder.absolute()),
            **found.to_dict(),
            "settings": {**self.settings, **provenance_of(self.config)},
        }
        write_text(self.folder / "summary.json", f"{json.dumps(record, indent=2)}\n")
        return found

    def _adjusted(self, model: Model, agrees: BoolArray, photos: Photos) -> Model:
        """Match again guided by a model, triangulate all that agrees with it, and adjust it.

        Where there are not many more keypoints, the model stays as the mapper made it.
        """
        place = f"{model.mapper}-{model.folder.name}"
        folder = model.folder.parents[1]
        job = {
            "model": os.fspath(model.folder),
            "images": os.fspath(photos.folder),
            "refine_cameras": self.refine_cameras,
            "seed": self.seed % MOST_SEEDS,
        }
        # Named so that a run with a guided matching does not take the model of one without.
        out = folder / f"{'sparse' if self.guided else 'plain'}-{place}"
        if self.guided and len(photos.names) <= _GUIDED and not out.exists():
            dense, database = folder / f"guided-{place}", folder / f"guided-{place}.db"
            if dense.exists() or self._write_guided(database, model, agrees, photos):
                own = {"job": "triangulate", "database": os.fspath(database), **job}
                run_jobs([{**own, "out": os.fspath(dense)}])
                out = dense
        run_jobs([{"job": "colour", "out": os.fspath(out), **job}])
        new = Model.read(out / "0", model.mapper)
        return dataclasses.replace(new, agreeing=model.agreeing)

    def _write_guided(
        self, database: Path, model: Model, agrees: BoolArray, photos: Photos
    ) -> bool:
        """Write the database of a guided matching; return False where it is not worth it."""
        if database.exists():
            return True
        settings = {name: self.batch[name] for name in ("device", "offline", "cache")}
        matcher = Matcher("classic", max_keypoints=_GUIDED_KEYPOINTS, seed=self.seed, **settings)
        say, features = self.say("more keypoints"), {}
        for place, name in enumerate(model.poses):
            say(place, len(model.poses))
            features[name] = matcher.extract([photos.folder / name])[0][0]
        own = [photo for photo in self.graph.photos if photo.name in features]
        after = sum(len(united(photo.points, features[photo.name].points)[0]) for photo in own)
        if after < _MORE_KEYPOINTS * sum(len(photo.points) for photo in own):
            return False
        found = add_guided(
            self.graph,
            agrees.tolist(),
            model,
            neighbours(read_reconstruction(model.folder)),
            features,
            workers=num_workers(self.batch["workers"]),
            progress=self.say("guided matching", "pair"),
        )
        found.write_database(database, [True] * len(found.pairs))
        return True

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
