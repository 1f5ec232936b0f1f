"""COLMAP's LO-RANSAC for the essential matrix, on the edges as independent correspondences."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from manymatch.estimate.options import Options
from manymatch.evaluate.baselines import MINIMAL_SET, BaselineResult, require
from manymatch.geometry.camera import COLMAP_PIXEL_CENTRE, Camera, as_camera
from manymatch.geometry.pose import RelativePose

if TYPE_CHECKING:
    from manymatch.graph import AssociationGraph


def estimate(
    graph: AssociationGraph, camera0: object, camera1: object, options: Options | None = None
) -> BaselineResult:
    """Estimate the pose with ``pycolmap.estimate_essential_matrix``.

    Parameters
    ----------
    graph : AssociationGraph
        Candidates; every edge counts as a correspondence of its own.
    camera0, camera1 : Camera, (3, 3) matrix, dict or pycolmap.Camera
        Cameras.
    options : Options, optional
        Threshold, iterations, confidence, safety and seed are used.

    Returns
    -------
    BaselineResult
        ``iterations`` is None, as pycolmap does not tell.
    """
    pycolmap = require("pycolmap", "pycolmap")
    settings = Options() if options is None else options
    if graph.num_edges < MINIMAL_SET:
        return BaselineResult(None, 0.0, None)
    cameras = [
        _as_colmap(pycolmap, as_camera(c, f"camera{k}")) for k, c in enumerate((camera0, camera1))
    ]
    points0 = graph.points0[graph.edges[:, 0]] + COLMAP_PIXEL_CENTRE
    points1 = graph.points1[graph.edges[:, 1]] + COLMAP_PIXEL_CENTRE
    ransac = pycolmap.RANSACOptions()
    ransac.max_error = settings.threshold_px
    ransac.min_num_trials = settings.min_iterations
    ransac.max_num_trials = settings.max_iterations
    ransac.confidence = settings.confidence
    ransac.dyn_num_trials_multiplier = settings.safety
    ransac.random_seed = settings.seed % 2**31
    start = time.perf_counter()
    answer = pycolmap.estimate_essential_matrix(points0, points1, *cameras, ransac)
    seconds = time.perf_counter() - start
    return BaselineResult(_as_pose(answer), seconds, None)


def _as_colmap(pycolmap: Any, camera: Camera) -> Any:
    """Make a pycolmap camera; an unknown size is 0 there."""
    values = camera.to_colmap()
    return pycolmap.Camera(
        model=values["model"],
        width=values["width"] or 0,
        height=values["height"] or 0,
        params=values["params"],
    )


def _as_pose(answer: dict[str, Any] | None) -> RelativePose | None:
    """Take the rigid transformation out of pycolmap's answer."""
    if answer is None:
        return None
    matrix = answer["cam2_from_cam1"].matrix()
    return RelativePose(matrix[:, :3], matrix[:, 3]) if matrix[:, 3].any() else None
