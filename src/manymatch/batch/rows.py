"""Rows of the table of a batch: one per pair, with the same columns for every pair."""

from __future__ import annotations

import errno
import math
from typing import TYPE_CHECKING, Any, get_args

from manymatch._validate import integer, real
from manymatch.batch.focals import FOCAL_COLUMNS, focal_row
from manymatch.batch.runner import error_sentence
from manymatch.batch.views import ViewError
from manymatch.estimate.confidence import Verdict
from manymatch.geometry import pose as pose_error
from manymatch.io.files import out_of_memory
from manymatch.matcher.result import trusted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from manymatch.batch import CameraPer
    from manymatch.estimate.relative_pose import RelativePoseEstimate
    from manymatch.io.pairs import Pair
    from manymatch.matcher.cameras import ResolvedCamera
    from manymatch.matcher.result import MatchResult
    from manymatch.options import Options

#: Verdict on a pair that could not be tried; the others are those of `Confidence`.
ERROR = "error"
#: All verdicts, best first.
VERDICTS = (*get_args(Verdict), ERROR)

_MACHINE_FAULTS = frozenset(
    {errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EROFS}
)
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
    **dict.fromkeys(("mean_probability", "hcm", "pose_probability"), float),
    "matches_by_source": str,
    "trusted": bool,
    "alternatives": int,
    **dict.fromkeys(("second_probability", "noise_px", "threshold_px"), float),
    **dict.fromkeys(("parallax_deg", "rotation_sd_deg", "translation_sd_deg"), float),
    "iterations": int,
    **dict.fromkeys(("pose_error_deg", "rotation_error_deg", "translation_error_deg"), float),
    **dict.fromkeys(("camera0_source", "camera1_source"), str),
    **dict.fromkeys(("focal0_px", "focal1_px"), float),
    **FOCAL_COLUMNS,
    "seed": int,
    **dict.fromkeys(("seconds", "estimate_seconds"), float),
}
#: Columns that are added when rank-one matching runs beside it.
RANK_ONE_COLUMNS: dict[str, type] = {
    "rank_one_success": bool,
    **dict.fromkeys(("rank_one_candidates", "rank_one_inliers", "rank_one_matches"), int),
    "rank_one_pose_error_deg": float,
}


# Columns that every row has, and those that a pair has that was tried.
_ALWAYS = ("index", "name0", "name1", "success", "verdict", "seed", "seconds")
_TRIED = ("keypoints0", "keypoints1", "candidates", "inliers", "matches", "iterations", "trusted")
#: Entry of a row in the journal, in no table: the pair is tried again when the batch is continued.
AGAIN = "again"
#: Entry of a row that comes with its matches, as `PackedMatches`; the journal does not have it.
PACKED = "packed"
#: Entry of a row in the journal, in no table: offset and length of its matches in the log.
STORED = "stored"
# Entries of a row in the journal, with their types.
_ENTRIES: dict[str, type] = {**COLUMNS, **RANK_ONE_COLUMNS, AGAIN: bool, STORED: list}


def check_row(row: dict[str, Any], pairs: Sequence[Pair] | None, total: int) -> None:
    """Raise `ValueError` for what is no row of a batch of `total` pairs, of these if given."""
    for name, value in row.items():
        if name not in _ENTRIES:
            raise ValueError(f"{name!r} is no column")
        check_value(name, value, _ENTRIES[name])
    tried = row.get("verdict") != ERROR
    needed = (*_ALWAYS, *(_TRIED if tried else ("error",)))
    if tried and row.get("success"):
        needed += (*_ROTATION, *_TRANSLATION)
    for name in needed:
        if name not in row:
            raise ValueError(f"{name} is missing")
    if row["verdict"] not in VERDICTS or (row["success"] and not tried):
        raise ValueError(f"{row['verdict']!r} is no verdict on it")
    if row["index"] >= total:
        raise ValueError(f"there is no pair {row['index']}")
    if pairs is None:
        return
    pair = pairs[row["index"]]
    if (row["name0"], row["name1"]) != (plain_text(pair.name0), plain_text(pair.name1)):
        raise ValueError(f"pair {row['index']} has other names")


def check_value(name: str, value: object, kind: type) -> None:
    """Check one value of a row; all whole numbers of a row are counts, of 64 bits at most."""
    # Nearly all values, at little cost: a long batch that goes on has many.
    if type(value) is kind and (
        (kind is float and math.isfinite(value))  # type: ignore[arg-type]
        or (kind is int and 0 <= value < 2**63)  # type: ignore[operator]
        or (kind is str and value.isascii())  # type: ignore[attr-defined]
    ):
        return
    if kind is float:
        real(value, name)
    elif kind is int:
        integer(value, name, 0, 2**64 - 1 if name == "seed" else 2**63 - 1)
    elif not isinstance(value, kind):
        raise ValueError(f"{name} is no {kind.__name__}")
    elif isinstance(value, list):
        if len(value) != 2:
            raise ValueError(f"{name} is no offset and length")
        for number in value:
            integer(number, name, 0, 2**62)
    elif isinstance(value, str):
        # JSON can hold halves of characters, which no file of text can.
        value.encode()


def columns(with_rank_one: bool) -> dict[str, type]:
    """Columns of a batch, with the type of their values."""
    return {**COLUMNS, **RANK_ONE_COLUMNS} if with_rank_one else dict(COLUMNS)


def result_row(
    index: int,
    pair: Pair,
    result: MatchResult,
    cameras: tuple[ResolvedCamera, ResolvedCamera],
    seconds: float,
    camera_per: CameraPer = "pair",
) -> dict[str, Any]:
    """Row of a pair that was matched, solved or not."""
    estimate, confidence = result.estimate, result.confidence
    priors = (cameras[0].camera, cameras[1].camera)
    usable = trusted(estimate, confidence)
    row: dict[str, Any] = {
        "index": index,
        "name0": pair.name0,
        "name1": pair.name1,
        **{name: value for name, value in estimate.to_row().items() if name in COLUMNS},
        "verdict": confidence.verdict,
        "reason": confidence.reason,
        "keypoints0": len(result.keypoints0),
        "keypoints1": len(result.keypoints1),
        "pose_probability": float(confidence.pose_probability),
        "trusted": usable,
        "rotation_sd_deg": float(confidence.rotation_sd_deg),
        "translation_sd_deg": float(confidence.translation_sd_deg),
        "pose_error_deg": _error_deg(estimate, pair),
        "camera0_source": cameras[0].origin,
        "camera1_source": cameras[1].origin,
        "focal0_px": result.camera0.focal,
        "focal1_px": result.camera1.focal,
        **focal_row(camera_per, (pair.name0, pair.name1), priors, estimate, trusted=usable),
        "seconds": seconds,
        "estimate_seconds": result.timing["estimate"],
    }
    pose = estimate.pose
    if pose is not None and pair.R is not None and pair.t is not None:
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
    """Row of a pair that could not be matched, such as one with a missing image.

    A fault of the machine, as opposed to one of the pair's files, is tried again by the next run.
    """
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
        AGAIN: True if machine_fault(error) else None,
    }
    return _plain(row)


def machine_fault(error: BaseException | None) -> bool:
    """Tell whether an error, or what caused it, is a lack of memory or a failure of the system."""
    while error is not None:
        if out_of_memory(error) or (isinstance(error, ViewError) and error.again):
            return True
        if isinstance(error, OSError) and error.errno in _MACHINE_FAULTS:
            return True
        error = error.__cause__
    return False


def _error_deg(estimate: RelativePoseEstimate, pair: Pair) -> float | None:
    if pair.R is None or pair.t is None:
        return None
    return pose_error.pose_error_deg(estimate.pose, pair.R, pair.t)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Leave out unknown values, and NaN and infinity, which JSON does not have."""
    return {
        name: plain_text(value) if isinstance(value, str) else value
        for name, value in row.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


def plain_text(value: str) -> str:
    """Escape what is no text; file names may hold any bytes."""
    return value.encode("utf-8", "backslashreplace").decode()
