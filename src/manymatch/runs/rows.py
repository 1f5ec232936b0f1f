"""Rows of the table of a batch: one per pair, with the same columns for every pair."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from manymatch.geometry import pose_error
from manymatch.matcher.result import mean_probability
from manymatch.runs.runner import error_sentence

if TYPE_CHECKING:
    from manymatch.estimate.options import Options
    from manymatch.estimate.result import Estimate
    from manymatch.io.pairs import Pair
    from manymatch.matcher.cameras import ResolvedCamera
    from manymatch.matcher.result import MatchResult

#: Verdict on a pair that could not be tried; the others are those of `Confidence`.
ERROR = "error"
#: All verdicts, best first.
VERDICTS = ("solved", "weak", "degenerate", "failed", ERROR)

_ROTATION = tuple(f"R{row}{column}" for row in range(3) for column in range(3))
_TRANSLATION = ("t0", "t1", "t2")

#: Columns of every table in their order, with the type of their values; any may be empty.
COLUMNS: dict[str, type] = {
    "index": int,
    **dict.fromkeys(("name0", "name1"), str),
    "success": bool,
    **dict.fromkeys(("verdict", "reason", "failure", "error"), str),
    **dict.fromkeys((*_ROTATION, *_TRANSLATION), float),
    **dict.fromkeys(("keypoints0", "keypoints1", "candidates", "inliers", "matches"), int),
    **dict.fromkeys(("mean_probability", "hcm", "chance"), float),
    **dict.fromkeys(("parallax_deg", "rotation_sd_deg", "translation_sd_deg"), float),
    "iterations": int,
    **dict.fromkeys(("pose_error_deg", "rotation_error_deg", "translation_error_deg"), float),
    **dict.fromkeys(("camera0_source", "camera1_source"), str),
    **dict.fromkeys(("focal0_px", "focal1_px"), float),
    "seed": int,
    **dict.fromkeys(("seconds", "estimate_seconds"), float),
}
#: Columns that are added when rank-one matching runs beside it.
RANK_ONE_COLUMNS: dict[str, type] = {
    "rank_one_success": bool,
    **dict.fromkeys(("rank_one_candidates", "rank_one_inliers", "rank_one_matches"), int),
    "rank_one_pose_error_deg": float,
}


def columns(with_rank_one: bool) -> dict[str, type]:
    """Columns of a batch, with the type of their values."""
    return {**COLUMNS, **RANK_ONE_COLUMNS} if with_rank_one else dict(COLUMNS)


def result_row(
    index: int,
    pair: Pair,
    result: MatchResult,
    cameras: tuple[ResolvedCamera, ResolvedCamera],
    seconds: float,
) -> dict[str, Any]:
    """Row of a pair that was matched, solved or not."""
    estimate, confidence = result.estimate, result.confidence
    row: dict[str, Any] = {
        "index": index,
        "name0": pair.name0,
        "name1": pair.name1,
        "success": estimate.success,
        "verdict": confidence.verdict,
        "reason": confidence.reason,
        "failure": estimate.failure or None,
        "keypoints0": len(result.keypoints0),
        "keypoints1": len(result.keypoints1),
        "candidates": result.graph.num_edges,
        "inliers": int(estimate.num_inliers),
        "matches": len(estimate.matches),
        "mean_probability": mean_probability(estimate),
        "hcm": float(estimate.hcm),
        "chance": float(confidence.chance),
        "parallax_deg": float(confidence.parallax_deg),
        "rotation_sd_deg": float(confidence.rotation_sd_deg),
        "translation_sd_deg": float(confidence.translation_sd_deg),
        "iterations": int(estimate.iterations),
        "pose_error_deg": _error_deg(estimate, pair),
        "camera0_source": cameras[0].source,
        "camera1_source": cameras[1].source,
        "focal0_px": cameras[0].camera.focal,
        "focal1_px": cameras[1].camera.focal,
        "seed": estimate.options.seed,
        "seconds": seconds,
        "estimate_seconds": result.timing["estimate"],
    }
    pose = estimate.pose
    if pose is not None:
        row.update(zip(_ROTATION, pose.R.ravel().tolist(), strict=True))
        row.update(zip(_TRANSLATION, pose.t.tolist(), strict=True))
        if pair.R is not None and pair.t is not None:
            row["rotation_error_deg"] = pose_error.rotation_error_deg(pose.R, pair.R)
            row["translation_error_deg"] = pose_error.translation_error_deg(pose.t, pair.t)
    if result.rank_one is not None:
        plain = result.rank_one
        row["rank_one_success"] = plain.estimate.success
        row["rank_one_candidates"] = plain.graph.num_edges
        row["rank_one_inliers"] = int(plain.estimate.num_inliers)
        row["rank_one_matches"] = len(plain.estimate.matches)
        row["rank_one_pose_error_deg"] = _error_deg(plain.estimate, pair)
    return _plain(row)


def error_row(
    index: int,
    pair: Pair,
    error: Exception,
    options: Options,
    seconds: float,
    *,
    with_rank_one: bool,
) -> dict[str, Any]:
    """Row of a pair that could not be matched, such as one with a missing image."""
    # A pair with known pose counts as a failure in the area under the curve.
    missed = pose_error.FAILURE_DEG if pair.has_truth else None
    row = {
        "index": index,
        "name0": pair.name0,
        "name1": pair.name1,
        "success": False,
        "verdict": ERROR,
        "error": error_sentence(error),
        "pose_error_deg": missed,
        "rank_one_success": False if with_rank_one else None,
        "rank_one_pose_error_deg": missed if with_rank_one else None,
        "seed": options.seed,
        "seconds": seconds,
    }
    return _plain(row)


def _error_deg(estimate: Estimate, pair: Pair) -> float | None:
    if pair.R is None or pair.t is None:
        return None
    return pose_error.pose_error_deg(estimate.pose, pair.R, pair.t)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Leave out unknown values, and NaN and infinity, which JSON does not have."""
    return {
        # File names may hold bytes that are no valid text; these are escaped.
        name: value.encode("utf-8", "backslashreplace").decode()
        if isinstance(value, str)
        else value
        for name, value in row.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }
