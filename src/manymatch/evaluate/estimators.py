"""Estimators by name, ours and others, each as one trial on one pair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import METHODS, checked_method, suggest
from manymatch.estimate.relative_pose import estimate_relative_pose, score_pose
from manymatch.evaluate.baselines import BaselineResult, opencv, poselib, pycolmap
from manymatch.geometry.pose_error import FAILURE_DEG, rotation_error_deg, translation_error_deg

if TYPE_CHECKING:
    from collections.abc import Callable

    from manymatch.estimate.options import Options
    from manymatch.evaluate.posed_graph import PosedGraph
    from manymatch.geometry.pose import RelativePose
    from manymatch.graph import AssociationGraph

#: Other packages' estimators, which take every edge as a correspondence of its own.
BASELINES: dict[str, Callable[..., BaselineResult]] = {
    "poselib": poselib.estimate,
    "opencv": opencv.estimate,
    "pycolmap": pycolmap.estimate,
}
#: What a trial can run.
ESTIMATORS: tuple[str, ...] = (*METHODS, *BASELINES)


def checked_estimator(name: object) -> str:
    """Check the name of an estimator."""
    if name not in ESTIMATORS:
        known = ", ".join(ESTIMATORS)
        raise ValueError(f"estimator must be one of {known}, got {name!r}{suggest(name, METHODS)}")
    return str(name)


def trial(
    estimator: str,
    posed: PosedGraph,
    graph: AssociationGraph,
    options: Options,
    proposals_rank: int | None = None,
    probe: bool = False,
) -> dict[str, Any]:
    """Estimate one pose and say how good it is.

    Parameters
    ----------
    estimator : str
        One of `ESTIMATORS`.
    posed : PosedGraph
        The pair.
    graph : AssociationGraph
        What the estimator sees of it.
    options : Options
        Its `threshold_px` is in pixels of the graph.
    proposals_rank : int, optional
        Draw minimal samples from edges up to this rank only (ours only).
    probe : bool
        Also score the true pose, and say whether it would have entered the pool of raw seeds.

    Returns
    -------
    dict
        Plain values; a failure has the error 180 degrees.
    """
    if estimator in BASELINES:
        found = BASELINES[estimator](graph, posed.camera0, posed.camera1, options)
        row: dict[str, Any] = {"iterations": found.iterations, "seconds": found.seconds}
        return {**_errors(found.pose, posed), **row}
    mask = None
    if proposals_rank is not None:
        rank = np.ones(graph.num_edges, np.int32) if graph.rank is None else graph.rank
        mask = rank <= proposals_rank
    estimate = estimate_relative_pose(
        graph, posed.camera0, posed.camera1, checked_method(estimator), options, proposals=mask
    )
    row = {
        **_errors(estimate.pose, posed),
        "failure": estimate.failure or None,
        "iterations": int(estimate.iterations),
        "seconds": estimate.timing["total"],
        "num_inliers": int(estimate.num_inliers),
        "cardinality": int(estimate.cardinality),
        "hcm": float(estimate.hcm),
    }
    if probe:
        truth = score_pose(graph, posed.camera0, posed.camera1, posed.pose, options).hcm
        full = estimate.pooled >= options.pool_size
        row["probe_hcm"] = truth
        row["pool_full"] = full
        row["pool_worst"] = estimate.worst_pooled
        row["enters"] = bool(not full or truth > estimate.worst_pooled)
    return row


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
