"""Relative poses as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from manymatch import _files
from manymatch._validate import refusal
from manymatch.geometry.pose import RelativePose

POSE_JSON = 'a JSON file with a "pose" of "R" and "t"'
_CONVENTION = "x1 = R @ x0 + t maps camera-0 to camera-1 coordinates; t has length 1"


def write_pose_json(
    path: str | os.PathLike[str],
    pose: RelativePose | None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write a pose and whatever belongs to it as one JSON object.

    Parameters
    ----------
    path
        File to write, in an existing folder; it appears under its name only when it is complete.
    pose : RelativePose or None
        Written as ``"pose": {"R": [[...], [...], [...]], "t": [...]}``, which comes back bit for
        bit, or as ``null`` where there is none; ``"convention"`` says what it maps.
    extra : dict, optional
        Further entries: numbers, texts, lists, dicts, arrays and dataclasses.

    Raises
    ------
    ValueError
        If something cannot be written as JSON, such as NaN.
    """
    if pose is not None and not isinstance(pose, RelativePose):
        raise refusal("pose", "a RelativePose or None", pose)
    if extra is not None and not isinstance(extra, Mapping):
        raise refusal("extra", "a dict", extra)
    for key in ("pose", "convention"):
        if extra is not None and key in extra:
            raise ValueError(f"extra must leave the key {key!r} to this function, got one")
    record = {"pose": pose, "convention": _CONVENTION, **(extra or {})}
    text = to_json(record, "extra", indent=2) + "\n"
    _files.write_whole(path, lambda file: file.write(text.encode("utf-8")))


def read_pose_json(path: str | os.PathLike[str]) -> RelativePose | None:
    """Read the pose of a file of `write_pose_json`; None where there was none.

    Raises
    ------
    ValueError
        If the file is missing, damaged or something else.
    """
    data = _files.read_bytes(path, POSE_JSON)
    try:
        record = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _files.unreadable(path, POSE_JSON, str(error)) from error
    if not isinstance(record, dict) or "pose" not in record:
        raise _files.unreadable(path, POSE_JSON, "it has no pose")
    pose = record["pose"]
    if pose is None:
        return None
    try:
        return RelativePose(pose["R"], pose["t"])
    except (ValueError, TypeError, KeyError) as error:
        raise _files.unreadable(path, POSE_JSON, str(error)) from error


def to_json(value: object, name: str, indent: int | None = None) -> str:
    """Write a value as JSON; what has no exact place there is refused under `name`."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False, default=_plain)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{name} must be writable as JSON, got a value that is not: {error}"
        ) from (error)


def _plain(value: object) -> object:
    """Turn what JSON does not know into what it knows."""
    if isinstance(value, RelativePose):
        return {"R": value.R.tolist(), "t": value.t.tolist()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"a {type(value).__name__}")
