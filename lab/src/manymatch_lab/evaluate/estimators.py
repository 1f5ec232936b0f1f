"""Estimators by name, ours and those of other packages, each as one trial on one pair.

The estimators of other packages take every edge as a correspondence of its own; each needs its
package, which is imported when it is used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

import numpy as np

from manymatch.batch import CameraPer
from manymatch.batch.focals import focal_row, is_shared
from manymatch.estimate.relative_pose import estimate_relative_pose, score_pose
from manymatch.geometry.camera import COLMAP_PIXEL_CENTRE, Camera, as_camera, normalised_pixel
from manymatch.geometry.pose import (
    FAILURE_DEG,
    RelativePose,
    rotation_error_deg,
    translation_error_deg,
)
from manymatch.graph import AssociationGraph
from manymatch.io.files import require
from manymatch.options import Options, checked_options
from manymatch_lab.checks import FloatArray, refusal, suggest
from manymatch_lab.evaluate.posed_graph import PosedGraph
from manymatch_lab.measures.match_truth import epipolar_distance, known_truth

# Edges that any of the estimators needs at least.
_MINIMAL_SET = 5
# Digits of the matches that are kept: far below anything that is looked at.
_PROBABILITY_DIGITS, _PIXEL_DIGITS = 6, 4
# The name OpenCV is installed under.
_OPENCV = (
    "opencv-contrib-python-headless",
    "opencv-python-headless",
    "opencv-contrib-python",
    "opencv-python",
)


@dataclasses.dataclass(frozen=True)
class BaselineResult:
    """What the estimator of another package found."""

    pose: RelativePose | None  # camera 0 to camera 1
    seconds: float  # of the estimator alone, without the conversion of the input
    iterations: int | None  # None where they are not reported
    focal_px: float | None = None  # of both cameras, where it was found


def _threshold_px(settings: Options) -> float:
    """Return the threshold, which estimators of other packages take as a number."""
    if isinstance(settings.threshold_px, str):
        raise refusal("options.threshold_px", "a number for this estimator", settings.threshold_px)
    return settings.threshold_px


def estimate_with_poselib(
    graph: AssociationGraph,
    camera0: object,
    camera1: object,
    options: Options | None = None,
    cauchy_scale: float = 1.0,
) -> BaselineResult:
    """Estimate a pose with ``poselib.estimate_relative_pose``, an LO-RANSAC.

    Every edge of the graph counts as a correspondence of its own. Cameras may have the distortion
    models that PoseLib knows; the unknown focal length of two equal cameras is found by
    ``poselib.estimate_shared_focal_relative_pose``, and there is no pose if they are not equal. Of
    the options, threshold, iterations, confidence, safety and seed are used. The refinement has a
    Cauchy loss, by default of the scale of the threshold, as the paper's code has it; PoseLib's
    own default is half of that (`cauchy_scale` 0.5).
    """
    poselib = require("poselib", "this estimator", "baselines")
    settings = checked_options(options)
    if graph.num_edges < _MINIMAL_SET:
        return BaselineResult(None, 0.0, 0)
    given = [as_camera(camera0, "camera0"), as_camera(camera1, "camera1")]
    unknown = not (given[0].known_focal and given[1].known_focal)
    if unknown and given[0] != given[1]:
        return BaselineResult(None, 0.0, 0)
    for camera in given:
        if camera.skew:
            raise ValueError(f"camera must have no skew for PoseLib, got skew={camera.skew:g}")
    cameras = [_sized(camera.to_dict()) for camera in given]
    ransac = {
        "max_epipolar_error": _threshold_px(settings),
        "min_iterations": settings.min_iterations,
        "max_iterations": settings.max_iterations,
        "success_prob": settings.confidence,
        "dyn_num_trials_mult": settings.safety,
        "seed": settings.seed,
    }
    bundle = {"loss_type": "CAUCHY", "loss_scale": cauchy_scale * _threshold_px(settings)}
    points = _edge_points(graph)
    focal = None
    start = time.perf_counter()
    if unknown:
        centre = np.array([given[0].cx, given[0].cy])
        pair, info = poselib.estimate_shared_focal_relative_pose(*points, centre, ransac, bundle)
        pose, focal = pair.pose, float(pair.camera1.focal())
    else:
        pose, info = poselib.estimate_relative_pose(*points, *cameras, ransac, bundle)
    seconds = time.perf_counter() - start
    # Without any model PoseLib returns the identity and no inlier.
    found = int(info["num_inliers"]) > 0 and bool(np.isfinite(pose.Rt).all()) and np.any(pose.t)
    return BaselineResult(
        RelativePose(pose.R, pose.t) if found else None, seconds, int(info["iterations"]), focal
    )


def estimate_with_opencv(
    graph: AssociationGraph,
    camera0: object,
    camera1: object,
    options: Options | None = None,
    variant: str = "magsac",
) -> BaselineResult:
    """Estimate a pose with ``cv2.findEssentialMat`` (USAC) and ``cv2.recoverPose``.

    The variant is "magsac" (MAGSAC++ scoring and optimisation) or "accurate" (MSAC with graph-cut
    optimisation). Points are undistorted before. OpenCV has no lower limit of iterations and does
    not report their number. With ``min_iterations == max_iterations`` the confidence is set to 1,
    so that only the upper limit ends the search.
    """
    if variant not in {"magsac", "accurate"}:
        raise ValueError(f"variant must be one of magsac, accurate, got {variant!r}")
    cv2 = require("cv2", "this estimator", "baselines")
    settings = checked_options(options)
    cameras = as_camera(camera0, "camera0"), as_camera(camera1, "camera1")
    x0 = cameras[0].unproject(graph.points0)[graph.edges[:, 0]]
    x1 = cameras[1].unproject(graph.points1)[graph.edges[:, 1]]
    usable = np.isfinite(x0).all(axis=1) & np.isfinite(x1).all(axis=1)
    x0, x1 = x0[usable], x1[usable]
    if len(x0) < _MINIMAL_SET:
        return BaselineResult(None, 0.0, None)
    params = _usac_parameters(cv2, settings, variant)
    params.threshold = normalised_pixel(*cameras) * _threshold_px(settings)
    identity = np.eye(3)
    start = time.perf_counter()
    try:
        E, mask = cv2.findEssentialMat(x0, x1, identity, identity, None, None, params)
        pose = None
        if E is not None and E.shape == (3, 3) and np.isfinite(E).all() and mask.any():
            # The pose that puts most inliers in front of both cameras.
            kept = mask.ravel().astype(bool)
            count, R, t, _ = cv2.recoverPose(E, x0[kept], x1[kept], identity)
            pose = RelativePose(R, t.ravel()) if count > 0 else None
    except cv2.error:
        # Degenerate input makes OpenCV throw where others report that nothing was found.
        pose = None
    return BaselineResult(pose, time.perf_counter() - start, None)


def _usac_parameters(cv2: Any, settings: Options, variant: str) -> Any:
    """Spell out the presets, as a preset by name has no seed and no limit of iterations."""
    params = cv2.UsacParams()
    params.maxIterations = settings.max_iterations
    forced = settings.min_iterations == settings.max_iterations
    params.confidence = 1.0 if forced else settings.confidence
    params.randomGeneratorState = settings.seed % 2**31
    params.sampler = cv2.SAMPLING_UNIFORM
    params.isParallel = False
    if variant == "magsac":
        params.score = cv2.SCORE_METHOD_MAGSAC
        params.loMethod = cv2.LOCAL_OPTIM_SIGMA
        params.final_polisher = cv2.MAGSAC
    else:
        params.score = cv2.SCORE_METHOD_MSAC
        params.loMethod = cv2.LOCAL_OPTIM_GC
        params.final_polisher = cv2.LSQ_POLISHER
    params.loSampleSize = 14
    params.loIterations = 10
    params.final_polisher_iterations = 3
    return params


def estimate_with_pycolmap(
    graph: AssociationGraph, camera0: object, camera1: object, options: Options | None = None
) -> BaselineResult:
    """Estimate a pose with ``pycolmap.estimate_essential_matrix``, an LO-RANSAC.

    Parameters are those of `estimate_with_poselib`. The number of iterations is None, as pycolmap
    does not report it.
    """
    pycolmap = require("pycolmap", "this estimator", "baselines")
    settings = checked_options(options)
    if graph.num_edges < _MINIMAL_SET:
        return BaselineResult(None, 0.0, None)
    given = as_camera(camera0, "camera0"), as_camera(camera1, "camera1")
    cameras = [pycolmap.Camera(**_sized(camera.to_colmap())) for camera in given]
    points = [points + COLMAP_PIXEL_CENTRE for points in _edge_points(graph)]
    ransac = pycolmap.RANSACOptions()
    ransac.max_error = _threshold_px(settings)
    ransac.min_num_trials = settings.min_iterations
    ransac.max_num_trials = settings.max_iterations
    ransac.confidence = settings.confidence
    ransac.dyn_num_trials_multiplier = settings.safety
    ransac.random_seed = settings.seed % 2**31
    start = time.perf_counter()
    answer = pycolmap.estimate_essential_matrix(*points, *cameras, ransac)
    seconds = time.perf_counter() - start
    if answer is None:
        return BaselineResult(None, seconds, None)
    matrix = answer["cam2_from_cam1"].matrix()
    found = RelativePose(matrix[:, :3], matrix[:, 3]) if matrix[:, 3].any() else None
    return BaselineResult(found, seconds, None)


def _sized(values: dict[str, Any]) -> dict[str, Any]:
    """Write an unknown size as 0."""
    return values | {side: values[side] or 0 for side in ("width", "height")}


def _edge_points(graph: AssociationGraph) -> tuple[FloatArray, FloatArray]:
    """Pixels of both ends of every edge, (E, 2) each."""
    return (
        np.ascontiguousarray(graph.points0[graph.edges[:, 0]]),
        np.ascontiguousarray(graph.points1[graph.edges[:, 1]]),
    )


#: Other packages' estimators, which take every edge as a correspondence of its own.
BASELINES: dict[str, Callable[..., BaselineResult]] = {
    "poselib": estimate_with_poselib,
    "opencv": estimate_with_opencv,
    "pycolmap": estimate_with_pycolmap,
}
#: Methods of the library.
METHODS = ("auto", "hcm-mcm", "hcm", "mcm", "cm")
#: What a trial can run.
ESTIMATORS: tuple[str, ...] = (*METHODS, *BASELINES)


def checked_estimator(name: object) -> str:
    """Check the name of an estimator."""
    if name not in ESTIMATORS:
        known = ", ".join(ESTIMATORS)
        raise ValueError(f"estimator must be one of {known}, got {name!r}{suggest(name, METHODS)}")
    return str(name)


def baseline_version(name: str) -> str:
    """Version of the package of one of the `BASELINES`, or an error that says how to get it."""
    for distribution in _OPENCV if name == "opencv" else (name,):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(distribution)
    raise ModuleNotFoundError(
        f'the estimator {name} needs its package: pip install "manymatch[baselines]"', name=name
    )


def trial(
    estimator: str,
    posed: PosedGraph,
    graph: AssociationGraph,
    options: Options,
    proposals_rank: int | None = None,
    probe: bool = False,
    *,
    cameras: tuple[Camera, Camera] | None = None,
    camera_per: CameraPer = "pair",
    matches: bool = False,
) -> dict[str, Any]:
    """Estimate one pose from what the estimator sees of a pair, and compute its error.

    `proposals_rank`, `probe`, `camera_per` and `matches` are those of `RunConfig`; the threshold is
    in pixels of the graph. `cameras` are seen in place of those of the pair, to which errors of the
    focal lengths are relative. Returns plain values by column; a failure has the error 180 degrees.
    """
    true = (posed.camera0, posed.camera1)
    if cameras is not None:
        posed = dataclasses.replace(posed, camera0=cameras[0], camera1=cameras[1])
    seen, names = (posed.camera0, posed.camera1), (posed.name0, posed.name1)
    if estimator in BASELINES:
        # Others do not choose a threshold: they get the default, a pixel at working size.
        automatic = isinstance(options.threshold_px, str)
        settings = options.replace(threshold_px=posed.pixels) if automatic else options
        found = BASELINES[estimator](graph, posed.camera0, posed.camera1, settings)
        row: dict[str, Any] = {"iterations": found.iterations, "seconds": found.seconds}
        if found.focal_px is not None and found.focal_px > 0.0:
            row |= _focal_errors([camera.with_focal(found.focal_px) for camera in seen], true)
        return {**_errors(found.pose, posed), **row}
    mask = None
    if proposals_rank is not None:
        rank = np.ones(graph.num_edges, np.int32) if graph.rank is None else graph.rank
        mask = rank <= proposals_rank
    estimate = estimate_relative_pose(
        graph,
        posed.camera0,
        posed.camera1,
        estimator,  # type: ignore[arg-type]
        options,
        proposals=mask,
        shared_focal=is_shared(camera_per, names, seen),
        working_scale=posed.working_scale,
    )
    found_row = estimate.to_row()
    row = {
        **_errors(estimate.pose, posed),
        **{name: found_row[name] for name in ("failure", "iterations", "cardinality", "hcm")},
        "seconds": estimate.timing["total"],
        "num_inliers": int(estimate.num_inliers),
        **focal_row(camera_per, names, seen, estimate),
    }
    if cameras is not None and all(camera.known_focal for camera in estimate.cameras):
        row |= _focal_errors(estimate.cameras, true)
    if probe:
        truth = score_pose(graph, posed.camera0, posed.camera1, posed.pose, options).hcm
        full = estimate.pooled >= options.pool_size
        row |= {"probe_hcm": truth, "pool_full": full, "pool_worst": estimate.worst_pooled}
        # A trial that failed, say for want of edges, has an empty pool that nothing enters.
        row["enters"] = estimate.success and (not full or truth > estimate.worst_pooled)
    if matches and estimate.match_probability is not None:
        distance = epipolar_distance(posed, estimate.matches).round(_PIXEL_DIGITS).tolist()
        known = known_truth(posed, estimate.matches)
        row["probability"] = estimate.match_probability.round(_PROBABILITY_DIGITS).tolist()
        # JSON has no infinity.
        row["distance_px"] = [value if np.isfinite(value) else None for value in distance]
        row["known"] = None if known is None else known.astype(int).tolist()
    return row


def _focal_errors(found: Sequence[Camera], true: Sequence[Camera]) -> dict[str, Any]:
    """Focal lengths that were found, and the larger of their relative errors."""
    focals = [camera.focal for camera in found]
    errors = [abs(f / camera.focal - 1.0) for f, camera in zip(focals, true, strict=True)]
    return {"focal0_px": focals[0], "focal1_px": focals[1], "focal_error": max(errors)}


def _errors(pose: RelativePose | None, posed: PosedGraph) -> dict[str, Any]:
    if pose is None:
        return {"success": False, "error_deg": FAILURE_DEG}
    rotation = rotation_error_deg(pose.R, posed.R)
    translation = translation_error_deg(pose.t, posed.t)
    return {
        "success": True,
        "error_deg": max(rotation, translation),
        "rotation_deg": rotation,
        "translation_deg": translation,
    }
