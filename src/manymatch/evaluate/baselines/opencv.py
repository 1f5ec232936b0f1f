"""OpenCV's USAC estimators of the essential matrix, on the edges as independent correspondences."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch.estimate.options import Options
from manymatch.evaluate.baselines import MINIMAL_SET, BaselineResult, require
from manymatch.geometry.camera import as_camera
from manymatch.geometry.pose import RelativePose

if TYPE_CHECKING:
    from manymatch.graph import AssociationGraph

#: Presets of OpenCV that can be asked for.
VARIANTS = ("magsac", "accurate")


def estimate(
    graph: AssociationGraph,
    camera0: object,
    camera1: object,
    options: Options | None = None,
    variant: str = "magsac",
) -> BaselineResult:
    """Estimate the pose with ``cv2.findEssentialMat`` (USAC) and ``cv2.recoverPose``.

    OpenCV has no lower limit of iterations. With ``min_iterations == max_iterations`` the
    confidence is set to 1, so that only the upper limit ends the search.

    Parameters
    ----------
    graph : AssociationGraph
        Candidates; every edge counts as a correspondence of its own.
    camera0, camera1 : Camera, (3, 3) matrix, dict or pycolmap.Camera
        Cameras; points are undistorted before OpenCV sees them.
    options : Options, optional
        Threshold, max_iterations, confidence and seed are used.
    variant : {"magsac", "accurate"}
        MAGSAC++ scoring and optimisation, or MSAC with graph-cut optimisation.

    Returns
    -------
    BaselineResult
        ``iterations`` is None, as OpenCV does not tell.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, got {variant!r}")
    cv2 = require("cv2", "opencv-python-headless")
    settings = Options() if options is None else options
    cameras = [as_camera(c, f"camera{k}") for k, c in enumerate((camera0, camera1))]
    x0 = cameras[0].unproject(graph.points0)[graph.edges[:, 0]]
    x1 = cameras[1].unproject(graph.points1)[graph.edges[:, 1]]
    usable = np.isfinite(x0).all(axis=1) & np.isfinite(x1).all(axis=1)
    x0, x1 = x0[usable], x1[usable]
    if len(x0) < MINIMAL_SET:
        return BaselineResult(None, 0.0, None)
    eps = 0.5 * (1.0 / cameras[0].focal + 1.0 / cameras[1].focal) * settings.threshold_px
    params = _parameters(cv2, settings, eps, variant)
    identity = np.eye(3)
    start = time.perf_counter()
    try:
        E, mask = cv2.findEssentialMat(x0, x1, identity, identity, None, None, params)
        pose = _decompose(cv2, E, mask, x0, x1)
    except cv2.error:
        # Degenerate input makes OpenCV throw where others report that nothing was found.
        pose = None
    return BaselineResult(pose, time.perf_counter() - start, None)


def _parameters(cv2: Any, settings: Options, eps: float, variant: str) -> Any:
    """Spell out the presets, as a preset by name has no seed and no limit of iterations."""
    params = cv2.UsacParams()
    params.threshold = eps
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


def _decompose(cv2: Any, E: Any, mask: Any, x0: Any, x1: Any) -> RelativePose | None:
    """Choose the pose of an essential matrix that puts most inliers in front of both cameras."""
    if E is None or E.shape != (3, 3) or not np.isfinite(E).all():
        return None
    kept = mask.ravel().astype(bool)
    if not kept.any():
        return None
    count, R, t, _ = cv2.recoverPose(E, x0[kept], x1[kept], np.eye(3))
    return RelativePose(R, t.ravel()) if count > 0 else None
