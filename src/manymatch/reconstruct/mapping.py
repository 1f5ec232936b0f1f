"""From pairs to models: COLMAP's mappers, the choice between their models, the last adjustment.

COLMAP runs in child processes. It ends its process where it finds a mistake of its own, it does
not hear Ctrl-C, and both mappers can run at the same time. Every child has one thread and a seed,
so that the models are a function of the pairs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import IndexArray, require
from manymatch.geometry.pose import AbsolutePose
from manymatch.io.files import make_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from manymatch._validate import BoolArray, FloatArray
    from manymatch.reconstruct.pair_graph import PairGraph, Photo

#: The mappers, in the order in which they win ties.
MAPPERS = ("incremental", "global")
# Width of the loss of the last adjustment, Cauchy's, in pixels. Mappers adjust by squares, which
# wrong matches pull: on scenes with exact truth 0.5 is better, on a scene with a rolling shutter 2.
_LOSS_PX = 0.7
# A pair agrees with a model if rotation and direction of its translation differ by at most this.
_AGREES_DEG = 5.0, 15.0
# Shares of agreeing pairs that differ by less are a tie, decided by the reprojection error.
_TIE = 0.02
# Of more images than this, the global mapper runs first, which is several times faster. Its models
# are taken if at least this share of the kept pairs agrees with them.
_MANY, _ENOUGH = 150, 0.9
# Points of more images than this are triangulated once and not merged: with 1,000 images, COLMAP
# merges long tracks for longer than all of the mapping takes.
_MERGED, _NEVER_PX = 200, 0.01
# An image needs this number of points to be placed.
_FEWEST_POINTS = 15
#: Images of the smallest model.
FEWEST_IMAGES = 3
# Largest error of a point in the last adjustment, px, and smallest angle between its rays, degrees.
_LARGEST_ERROR, _SMALLEST_ANGLE = 4.0, 1.5
# Keypoints of a source are inexact if their errors are this many times those of the most exact one.
# An image with fewer observations of exact keypoints keeps all.
_INEXACT, _FEWEST_EXACT = 1.4, 100
_LOG_LINES = 3
#: COLMAP's seeds are smaller than this.
MOST_SEEDS = 2**31


class MappingError(ChildProcessError):
    """COLMAP ended without a result; the message has its last words and the log."""


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """A model in COLMAP's format: its folder and what is in it.

    `poses` are those of the registered images by name, world to camera, of the images as stored.
    `agreeing` is the share of the pairs of its images that agree with it.
    """

    folder: Path
    poses: Mapping[str, AbsolutePose]
    points: int
    reprojection_px: float
    track_length: float
    mapper: str = ""
    agreeing: float = 1.0

    @classmethod
    def read(cls, folder: Path, mapper: str = "") -> Model:
        """Read what is in a folder."""
        found = read_reconstruction(folder)
        poses = {}
        for image in found.images.values():
            if image.has_pose:
                rigid = image.cam_from_world()
                poses[image.name] = AbsolutePose(rigid.rotation.matrix(), rigid.translation)
        return cls(
            folder,
            dict(sorted(poses.items())),
            found.num_points3D(),
            float(found.compute_mean_reprojection_error()),
            float(found.compute_mean_track_length()),
            mapper,
        )

    def relative(self, name0: str, name1: str) -> tuple[FloatArray, FloatArray]:
        """Rotation and translation from the first to the second of two registered images."""
        first, second = self.poses[name0], self.poses[name1]
        R = second.R @ first.R.T
        return R, second.t - R @ first.t

    def shown(self, one: Photo, two: Photo) -> tuple[FloatArray, FloatArray]:
        """Rotation and translation between two photographs as they are shown."""
        R, t = self.relative(one.name, two.name)
        axes = one.record.axes, two.record.axes
        return axes[1].T @ R @ axes[0], axes[1].T @ t


def read_reconstruction(folder: Path) -> Any:
    """Read a model in COLMAP's format with pycolmap."""
    colmap = require("pycolmap", "a reconstruction", "sfm")
    return colmap.Reconstruction(os.fspath(folder))


def agreement(graph: PairGraph, model: Model) -> tuple[BoolArray, BoolArray]:
    """Say for each pair whether its two images are in a model, and whether its pose agrees."""
    inside = np.zeros(len(graph.pairs), dtype=bool)
    agrees = np.zeros(len(graph.pairs), dtype=bool)
    for place, pair in enumerate(graph.pairs):
        photos = graph.photos[pair.first], graph.photos[pair.second]
        inside[place] = all(photo.name in model.poses for photo in photos)
        if inside[place] and pair.pose is not None:
            R, t = model.shown(*photos)
            cosines = 0.5 * (np.sum(pair.pose.R * R) - 1.0), pair.pose.t @ t
            least = np.cos(np.radians(_AGREES_DEG)) * (1.0, np.linalg.norm(t))
            agrees[place] = np.all(cosines >= least)
    return inside, agrees


def exact_keypoints(graph: PairGraph, found: Any) -> dict[str, BoolArray]:
    """Find the keypoints that should decide the poses of a model of pycolmap, by photograph.

    Some detectors put keypoints between pixels, others at whole pixels. If the reprojection errors
    of the keypoints of one source are much larger than those of another, the poses are more exact
    without them. A photograph with too few exact keypoints is left out, and keeps all of its
    keypoints. So are all photographs if the sources are alike.
    """
    images = {image.name: image for image in found.images.values() if image.has_pose}
    own = {photo.name: photo.source for photo in graph.photos if photo.source is not None}
    own = {name: source for name, source in own.items() if name in images}
    places, sources, errors = dict[str, IndexArray](), [], []
    for name, source in own.items():
        image = images[name]
        places[name] = np.array(image.get_observation_point2D_idxs(), dtype=np.int64)
        observed = [image.points2D[place] for place in places[name]]
        if observed:
            world = np.array([found.points3D[one.point3D_id].xyz for one in observed])
            rigid = image.cam_from_world()
            local = world @ rigid.rotation.matrix().T + rigid.translation
            pixels = found.cameras[image.camera_id].img_from_cam(local)
            errors.append(np.linalg.norm(pixels - [one.xy for one in observed], axis=1))
            sources.append(source[places[name]])
    if not sources:
        return {}
    each, error = np.concatenate(sources), np.concatenate(errors)
    typical = {number: np.median(error[each == number]) for number in np.unique(each)}
    limit = _INEXACT * min(typical.values())
    exact = [number for number, value in typical.items() if value <= limit]
    if len(exact) == len(typical):
        return {}
    masks = {name: np.isin(source, exact) for name, source in own.items()}
    enough = (name for name in own if masks[name][places[name]].sum() >= _FEWEST_EXACT)
    return {name: masks[name] for name in enough}


def write_exact(found: Any, exact: Mapping[str, BoolArray], folder: Path) -> None:
    """Write a model of pycolmap without the observations of keypoints that are not exact."""
    manager = require("pycolmap", "a reconstruction", "sfm").ObservationManager(found)
    for number, image in found.images.items():
        for place in image.get_observation_point2D_idxs() if image.name in exact else ():
            if not exact[image.name][place] and image.points2D[place].has_point3D():
                manager.delete_observation(number, place)
    make_folder(folder)
    found.write(os.fspath(folder))


def map_pairs(
    graph: PairGraph,
    keep: Sequence[bool],
    folder: Path,
    *,
    refine_cameras: bool,
    seed: int = 0,
    mappers: Sequence[str] = MAPPERS,
    progress: Callable[[int], object] | None = None,
    notes: list[str] | None = None,
) -> list[Model]:
    """Make models of the kept pairs with COLMAP's mappers; return the better one's, largest first.

    The global mapper is more exact where all pairs are true, the incremental one survives more
    wrong pairs. The models with which more pairs agree are taken; of a tie, those with the smaller
    reprojection error. If one mapper fails, the other one counts, and `notes` gets a sentence. Of
    more than 150 images the global mapper runs first, and the other one only if less than 90 % of
    the pairs agree with its models.

    `folder` holds the database and the models of each mapper; what is there already is kept.
    `progress` is called with the number of images that the incremental mapper has placed.
    """
    database = folder / "database.db"
    make_folder(folder)
    if not database.exists():
        graph.write_database(database, keep)
    job = {
        "database": os.fspath(database),
        "refine_cameras": refine_cameras,
        "seed": seed % MOST_SEEDS,
        "many": len(graph.photos) > _MERGED,
    }
    together = [list(mappers)]
    if len(mappers) > 1 and len(graph.photos) > _MANY:
        together = [["global"], ["incremental"]]
    failed, found = list[MappingError](), dict[str, list[Model]]()
    scores = dict[str, tuple[int, float]]()
    for names in together:
        jobs = [{**job, "job": name, "out": os.fspath(folder / name)} for name in names]
        try:
            failed += run_jobs(jobs, progress)
        except MappingError as error:
            failed.append(error)
        for name in names:
            if (folder / name).exists():
                found[name] = _read_models(folder / name, name)
                scores[name] = score_models(graph, keep, found[name])
        if any(score >= _ENOUGH * sum(keep) for score, _ in scores.values()):
            break
    if not found:
        raise failed[0]
    if notes is not None:
        notes += [f"Only one mapper counts: {error}" for error in failed]
    best = max(score for score, _ in scores.values())
    tied = [mapper for mapper in mappers if mapper in found]
    tied = [mapper for mapper in tied if scores[mapper][0] >= (1.0 - _TIE) * best]
    return found[min(tied, key=lambda mapper: scores[mapper][1])]


def score_models(
    graph: PairGraph, keep: Sequence[bool], models: Sequence[Model]
) -> tuple[int, float]:
    """Count the kept pairs that agree with models, and average their reprojection error (px)."""
    agrees = np.zeros(len(graph.pairs), dtype=bool)
    for model in models:
        agrees |= agreement(graph, model)[1]
    points = sum(model.points for model in models)
    total = sum(model.points * model.reprojection_px for model in models)
    return int(np.sum(agrees & np.asarray(keep))), total / points if points else np.inf


def _read_models(folder: Path, mapper: str) -> list[Model]:
    """Read the models of a mapper, largest first."""
    found = [Model.read(one, mapper) for one in sorted(folder.iterdir()) if one.is_dir()]
    kept = [model for model in found if len(model.poses) >= FEWEST_IMAGES]
    return sorted(kept or found, key=lambda model: (-len(model.poses), -model.points))


# ------------------------------------------------------------------------- child processes


def run_jobs(
    jobs: Sequence[Mapping[str, Any]], progress: Callable[[int], object] | None = None
) -> list[MappingError]:
    """Run jobs that are not finished at the same time, each in a process of its own.

    A job writes its folder ``out`` under another name; it is renamed when it is complete. A job
    that fails is an error only if all do, as of two mappers one is enough; else the errors are
    returned. If this process is stopped or killed, all jobs end.
    """
    require("pycolmap", "a reconstruction", "sfm")
    failed = list[MappingError]()
    with contextlib.ExitStack() as stack:
        waiting = [job for job in jobs if not Path(job["out"]).exists()]
        started = [stack.enter_context(_started(job)) for job in waiting]
        for job, process in zip(waiting, started, strict=True):
            out = Path(job["out"])
            for line in process.stdout or ():
                if progress is not None and line.strip().isdigit():
                    progress(int(line))
            if code := process.wait():
                log = _log(out)
                lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                said = " ".join(lines[-_LOG_LINES:])[-400:]
                where = f"{job['job']!r}: {said} (see {log})"
                failed.append(MappingError(f"COLMAP ended with code {code} in {where}"))
            else:
                _temporary(out).rename(out)
    if failed and len(failed) == len(jobs):
        raise failed[0]
    return failed


@contextlib.contextmanager
def _started(job: Mapping[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """Start the process of a job, and end it with the block."""
    out = Path(job["out"])
    shutil.rmtree(_temporary(out), ignore_errors=True)
    make_folder(_temporary(out))
    own = json.dumps({**job, "out": os.fspath(_temporary(out))})
    # Our own module with arguments of our own. It ends when its standard input does: with us.
    command = [sys.executable, "-m", __name__, own]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        _log(out).open("w", encoding="utf-8") as words,
        subprocess.Popen(command, stderr=words, **pipes) as process,  # noqa: S603
    ):
        try:
            yield process
        finally:
            process.kill()


def _temporary(out: Path) -> Path:
    return out.with_name(f".{out.name}.tmp")


def _log(out: Path) -> Path:
    return out.with_suffix(".log")


def _options(colmap: Any, job: Mapping[str, Any]) -> Any:
    """Set the options of the incremental mapper, which also triangulates."""
    options = colmap.IncrementalPipelineOptions()
    options.num_threads, options.random_seed = 1, job["seed"]
    options.min_model_size, options.extract_colors = FEWEST_IMAGES, False
    options.mapper.abs_pose_min_num_inliers = _FEWEST_POINTS
    # Few images see a point in a sparse set.
    options.triangulation.ignore_two_view_tracks = False
    refine = job["refine_cameras"]
    options.ba_refine_focal_length = options.ba_refine_extra_params = refine
    options.mapper.abs_pose_refine_focal_length = refine
    options.mapper.abs_pose_refine_extra_params = refine
    return options


def _incremental(colmap: Any, job: Mapping[str, Any]) -> dict[int, Any]:
    placed = [0]

    def say(number: int) -> None:
        placed[0] += number
        print(placed[0], flush=True)

    return dict(
        colmap.incremental_mapping(
            job["database"],
            ".",
            job["out"],
            _options(colmap, job),
            initial_image_pair_callback=functools.partial(say, 2),
            next_image_callback=functools.partial(say, 1),
        )
    )


def _global(colmap: Any, job: Mapping[str, Any]) -> dict[int, Any]:
    options = colmap.GlobalPipelineOptions()
    mapper = options.mapper
    for part in (options, mapper):
        part.num_threads, part.random_seed = 1, job["seed"]
    mapper.rotation_averaging.random_seed = mapper.global_positioning.random_seed = job["seed"]
    mapper.retriangulation.random_seed = job["seed"]
    mapper.global_positioning.use_gpu = mapper.bundle_adjustment.ceres.use_gpu = False
    mapper.bundle_adjustment.ceres.solver_options.num_threads = 1
    mapper.bundle_adjustment.refine_focal_length = job["refine_cameras"]
    mapper.bundle_adjustment.refine_extra_params = job["refine_cameras"]
    mapper.retriangulation.ignore_two_view_tracks = False
    mapper.skip_retriangulation = job["many"]
    found = dict(colmap.global_mapping(job["database"], ".", job["out"], options))
    if job["many"]:
        return {place: _triangulated(colmap, job, model) for place, model in found.items()}
    return found


def _triangulate(colmap: Any, job: Mapping[str, Any]) -> dict[int, Any]:
    """Triangulate the matches of a database by the poses of a model, and adjust both, twice."""
    found = colmap.Reconstruction(job["model"])
    for _ in range(2):
        found = _triangulated(colmap, job, found)
        _adjust(colmap, found, refine_cameras=job["refine_cameras"])
    found.extract_colors_for_all_images(job["images"])
    return {0: found}


def _settle(colmap: Any, job: Mapping[str, Any]) -> dict[int, Any]:
    """Give the points of a model the colours of its images.

    With a database, the model is of exact keypoints: it is adjusted, and all of the database is
    triangulated by its poses.
    """
    found = colmap.Reconstruction(job["model"])
    if "database" in job:
        _adjust(colmap, found, refine_cameras=job["refine_cameras"])
        found = _triangulated(colmap, job, found)
        _filter(colmap, found)
    found.extract_colors_for_all_images(job["images"])
    return {0: found}


def _triangulated(colmap: Any, job: Mapping[str, Any], model: Any) -> Any:
    """Triangulate the matches of a database by the poses of a model."""
    options = _options(colmap, job)
    if model.num_reg_images() > _MERGED:
        options.triangulation.merge_max_reproj_error = _NEVER_PX
        options.triangulation.complete_max_transitivity = 1
        options.triangulation.ignore_two_view_tracks = True
    return colmap.triangulate_points(
        _with_poses(colmap, job["database"], model),
        job["database"],
        ".",
        job["out"],
        clear_points=True,
        options=options,
    )


def _with_poses(colmap: Any, database: str, model: Any) -> Any:
    """Make a model without points of a database's images that another model has placed."""
    opened = colmap.Database.open(database)
    cameras = {camera.camera_id: camera for camera in opened.read_all_cameras()}
    images = opened.read_all_images()
    opened.close()
    placed = {image.name: image for image in model.images.values() if image.has_pose}
    found = colmap.Reconstruction()
    for image in images:
        known = placed.get(image.name)
        if known is None:
            continue
        camera = cameras[image.camera_id]
        if not found.exists_camera(camera.camera_id):
            camera.params = model.cameras[known.camera_id].params
            found.add_camera_with_trivial_rig(camera)
        own = colmap.Image(name=image.name, camera_id=camera.camera_id, image_id=image.image_id)
        found.add_image_with_trivial_frame(own, known.cam_from_world())
    return found


def _adjust(colmap: Any, model: Any, *, refine_cameras: bool) -> None:
    """Adjust a model with a loss that wrong matches do not pull, and drop what does not fit."""
    options = colmap.BundleAdjustmentOptions()
    options.print_summary = False
    options.refine_focal_length = options.refine_extra_params = refine_cameras
    options.ceres.loss_function_type = colmap.LossFunctionType.CAUCHY
    options.ceres.loss_function_scale = _LOSS_PX
    options.ceres.solver_options.num_threads = 1
    options.ceres.solver_options.function_tolerance = 1e-8
    colmap.bundle_adjustment(model, options)
    _filter(colmap, model)


def _filter(colmap: Any, model: Any) -> None:
    """Drop points and observations that do not fit."""
    manager = colmap.ObservationManager(model)
    manager.filter_all_points3D(_LARGEST_ERROR, _SMALLEST_ANGLE)


_JOBS = {
    "incremental": _incremental,
    "global": _global,
    "triangulate": _triangulate,
    "settle": _settle,
}


def main(text: str) -> None:
    """Do one job: write its models into its folder, each into one of its own."""
    import pycolmap

    # Into the log of this job; by default it fills the folder of temporary files.
    pycolmap.logging.logtostderr = True
    job = json.loads(text)
    out = Path(job["out"])
    if "database" in job:
        # COLMAP locks a database for a moment even to read it, and two jobs may share one.
        job["database"] = os.fspath(shutil.copyfile(job["database"], out / "database.db"))
    models = _JOBS[job["job"]](pycolmap, job)
    for place, model in models.items():
        if job["job"] in MAPPERS:
            _adjust(pycolmap, model, refine_cameras=job["refine_cameras"])
        folder = out / str(place)
        folder.mkdir(exist_ok=True)
        model.write(os.fspath(folder))
        # On a full disk COLMAP writes half a file and says nothing.
        if pycolmap.Reconstruction(os.fspath(folder)).num_points3D() != model.num_points3D():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(folder))
    for path in out.iterdir():
        if path.is_file():
            path.unlink()


def end_with_parent() -> None:
    """Wait for the end of standard input, which is that of the process that wants the models.

    A job that goes on without it would write into the folder of its successor.
    """
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    main(sys.argv[1])
