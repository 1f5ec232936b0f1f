"""Consensus maximisation by PoseLib: LO-RANSAC on the edges as independent correspondences."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch.estimate.options import Options
from manymatch.evaluate.baselines import MINIMAL_SET, BaselineResult, require
from manymatch.geometry.camera import Camera, as_camera
from manymatch.geometry.pose import RelativePose

if TYPE_CHECKING:
    from manymatch.graph import AssociationGraph


def estimate(
    graph: AssociationGraph, camera0: object, camera1: object, options: Options | None = None
) -> BaselineResult:
    """Estimate the pose with ``poselib.estimate_relative_pose``.

    Parameters
    ----------
    graph : AssociationGraph
        Candidates; every edge counts as a correspondence of its own.
    camera0, camera1 : Camera, (3, 3) matrix, dict or pycolmap.Camera
        Cameras, with the distortion models PoseLib knows.
    options : Options, optional
        Threshold, iterations, confidence, safety and seed are used; the rest has no counterpart.

    Returns
    -------
    BaselineResult
    """
    poselib = require("poselib", "poselib")
    settings = Options() if options is None else options
    if graph.num_edges < MINIMAL_SET:
        return BaselineResult(None, 0.0, 0)
    points0 = np.ascontiguousarray(graph.points0[graph.edges[:, 0]])
    points1 = np.ascontiguousarray(graph.points1[graph.edges[:, 1]])
    cameras = [_as_dict(as_camera(c, f"camera{k}")) for k, c in enumerate((camera0, camera1))]
    ransac = {
        "max_epipolar_error": settings.threshold_px,
        "min_iterations": settings.min_iterations,
        "max_iterations": settings.max_iterations,
        "success_prob": settings.confidence,
        "dyn_num_trials_mult": settings.safety,
        "seed": settings.seed,
    }
    start = time.perf_counter()
    pose, info = poselib.estimate_relative_pose(points0, points1, *cameras, ransac, {})
    seconds = time.perf_counter() - start
    return BaselineResult(_as_pose(pose, info), seconds, int(info["iterations"]))


def _as_dict(camera: Camera) -> dict[str, Any]:
    """Write a camera as PoseLib reads it; PoseLib does not use the size."""
    if camera.skew:
        raise ValueError(f"camera must have no skew for PoseLib, got skew={camera.skew:g}")
    values = camera.to_dict()
    return {**values, "width": values["width"] or 0, "height": values["height"] or 0}


def _as_pose(pose: Any, info: dict[str, Any]) -> RelativePose | None:
    """Convert PoseLib's pose; without any model it returns the identity and no inlier."""
    found = int(info["num_inliers"]) > 0 and bool(np.isfinite(pose.Rt).all()) and np.any(pose.t)
    return RelativePose(pose.R, pose.t) if found else None
