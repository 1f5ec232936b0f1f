"""pycolmap's robust estimators: ``from manymatch.compat import pycolmap``.

Arguments and results are those of pycolmap 4: a dict with the model, ``num_inliers`` and
``inlier_mask``, or None where nothing was found. Points and cameras follow COLMAP's pixel
convention, as for the original. What differs is listed in docs/guides/switch.md.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import refusal, require
from manymatch.compat.correspondences import (
    Info,
    Solved,
    given_camera,
    make_options,
    original,
    rows_of,
    switch,
    unknown_focal,
)
from manymatch.estimate.absolute_pose import estimate_absolute_pose as _estimate_absolute_pose
from manymatch.estimate.fundamental import estimate_fundamental
from manymatch.estimate.homography import estimate_homography
from manymatch.estimate.relative_pose import estimate_relative_pose as _estimate_relative_pose

if TYPE_CHECKING:
    from manymatch.options import Options

_POINTS = ("points2D1", "points2D2")
# Fields of RANSACOptions that are fields of `Options`.
_FIELDS = {
    "max_error": "threshold_px",
    "confidence": "confidence",
    "dyn_num_trials_multiplier": "safety",
    "min_num_trials": "min_iterations",
    "max_num_trials": "max_iterations",
    "random_seed": "seed",
    "num_threads": "threads",
}
_ABSOLUTE_DEFAULTS = {"max_error": 12.0, "confidence": 0.99999, "max_num_trials": 10_000}


def __getattr__(name: str) -> Any:
    return original("pycolmap", "colmap", name)


@switch("points2D1 points2D2 camera1 camera2 estimation_options=None")
def estimate_essential_matrix(given: Any) -> Info | None:
    """Estimate the essential matrix of two cameras as ``pycolmap.estimate_essential_matrix`` does.

    `points2D1` and `points2D2`, (N, 2), are matched pixels; a camera is a pycolmap.Camera or a
    dict. Of the options, a pycolmap.RANSACOptions or a dict, max_error in pixels, min_num_trials,
    max_num_trials, confidence, dyn_num_trials_multiplier, random_seed (-1 is 0) and num_threads are
    used. The dict has E (3, 3), cam2_from_cam1 (pycolmap.Rigid3d with a translation of length one),
    num_inliers and inlier_mask (N,), of the rows; None is returned where nothing was found.
    ``.estimate`` is the `Estimate`.
    """
    solved = _relative_pose(given, "estimation_options")
    pose = solved.estimate.pose
    return pose and _result(solved, E=pose.essential(), cam2_from_cam1=_rigid3d(pose))


@switch("camera1 points2D1 camera2 points2D2 options=None")
def estimate_relative_pose(given: Any) -> Info | None:
    """Estimate a relative pose as ``pycolmap.estimate_relative_pose`` does with cameras.

    The result is that of `estimate_essential_matrix` without E.
    """
    solved = _relative_pose(given, "options")
    pose = solved.estimate.pose
    return pose and _result(solved, cam2_from_cam1=_rigid3d(pose))


@switch("points2D1 points2D2 estimation_options=None")
def estimate_homography_matrix(given: Any) -> Info | None:
    """Estimate a homography as ``pycolmap.estimate_homography_matrix`` does.

    Arguments are those of `estimate_essential_matrix` without cameras. The dict has H (3, 3),
    num_inliers and inlier_mask.
    """
    solved = rows_of(given, _POINTS).solve(estimate_homography, options=_options(given))
    return _result(solved, H=solved.estimate.homography)


@switch("points2D1 points2D2 estimation_options=None use_sampson_refinement=True")
def estimate_fundamental_matrix(given: Any) -> Info | None:
    """Estimate a fundamental matrix as ``pycolmap.estimate_fundamental_matrix`` does.

    Arguments are those of `estimate_essential_matrix` without cameras. The dict has F (3, 3) with
    norm one, num_inliers and inlier_mask.
    """
    solved = rows_of(given, _POINTS).solve(estimate_fundamental, options=_options(given))
    return _result(solved, F=solved.estimate.fundamental)


@switch("points2D points3D camera estimation_options=None")
def estimate_absolute_pose(given: Any) -> Info | None:
    """Estimate the pose of a camera in the world as ``pycolmap.estimate_absolute_pose`` does.

    `points2D` (N, 2) are pixels, `points3D` (N, 3) points of the world. If the options have
    estimate_focal_length, the focal length is found and, as by the original, set in a
    pycolmap.Camera. `estimation_options` are a pycolmap.AbsolutePoseEstimationOptions or a dict;
    ransac is as in `estimate_essential_matrix`, and the threshold is 12 px by default. The dict
    has cam_from_world (pycolmap.Rigid3d), num_inliers and inlier_mask (N,), of the rows.
    """
    rows, name = rows_of(given, ("points2D", "points3D"), (2, 3)), "estimation_options"
    values = _values(given.estimation_options, name, ("ransac", "estimate_focal_length"), {})
    options = _ransac_options(values.get("ransac"), f"{name}.ransac", _ABSOLUTE_DEFAULTS)
    seen = given_camera(given.camera, "camera")
    unknown = bool(values.get("estimate_focal_length"))
    if unknown:
        seen = unknown_focal(seen, rows.graph.points0)
    solved = rows.solve(_estimate_absolute_pose, seen, options=options)
    estimate = solved.estimate
    if estimate.pose is None:
        return None
    if unknown and estimate.camera0 is not None and hasattr(given.camera, "params"):
        given.camera.params = list(estimate.camera0.params)
    return _result(solved, cam_from_world=_rigid3d(estimate.pose))


@switch("points2D points3D camera estimation_options=None refinement_options=None")
def estimate_and_refine_absolute_pose(given: Any) -> Info | None:
    """Estimate a pose as ``pycolmap.estimate_and_refine_absolute_pose`` does.

    It is that of `estimate_absolute_pose`, which is refined already. Its covariance is
    ``assess(info.estimate).covariance``.
    """
    own = {"edges": given.edges, "rank": given.rank}
    return estimate_absolute_pose(
        given.points2D, given.points3D, given.camera, given.estimation_options, **own
    )


def _relative_pose(given: Any, name: str) -> Solved:
    cameras = given_camera(given.camera1, "camera1"), given_camera(given.camera2, "camera2")
    options = _options(given, name)
    return rows_of(given, _POINTS).solve(_estimate_relative_pose, *cameras, options=options)


def _options(given: Any, name: str = "estimation_options") -> Options:
    return _ransac_options(getattr(given, name), name, {"max_error": 4.0})


def _ransac_options(given: object, name: str, defaults: Mapping[str, Any]) -> Options:
    """Make options of a RANSACOptions or of a dict of some of its fields."""
    values = _values(given, name, (*_FIELDS, "min_inlier_ratio"), defaults)
    # A negative number is pycolmap's for "any seed" and "all threads".
    for key in ("random_seed", "num_threads"):
        if isinstance(values.get(key), int | np.integer) and values[key] < 0:
            values[key] = 0
    names = {field: f"{name}.{key}" for key, field in _FIELDS.items()}
    return make_options(names, **{f: values[key] for key, f in _FIELDS.items() if key in values})


def _values(
    given: object, name: str, known: tuple[str, ...], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Read an object of options, or a dict, which may have known keys only, like the original's."""
    if given is None:
        return dict(defaults)
    if isinstance(given, Mapping):
        for key in given:
            if key not in known:
                raise ValueError(f"{name} must have the keys {', '.join(known)}, got {key!r}")
        return {**defaults, **given}
    present = {key: getattr(given, key) for key in known if hasattr(given, key)}
    if not present:
        raise refusal(name, "an object of pycolmap's options, a dict or None", given)
    return present


def _result(solved: Solved, **models: Any) -> Info | None:
    """Return the dict of a result, None where there is no model."""
    estimate, mask = solved
    if not estimate.success:
        return None
    info = Info(copy.deepcopy(models), num_inliers=int(mask.sum()), inlier_mask=mask)
    info.estimate = estimate
    return info


def _rigid3d(pose: Any) -> Any:
    return require("pycolmap", "a pose in pycolmap's form", "colmap").Rigid3d(pose.matrix()[:3])
