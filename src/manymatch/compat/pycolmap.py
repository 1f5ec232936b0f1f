"""pycolmap's robust estimators: ``from manymatch.compat import pycolmap``.

Arguments and results are those of pycolmap 4: a dict with the model, ``num_inliers`` and
``inlier_mask``, or None where nothing was found. Points and cameras follow COLMAP's pixel
convention, as for the original. What differs is listed in docs/guides/switch.md.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import FloatArray, float_array, refusal, require, within
from manymatch.compat.correspondences import (
    Correspondences,
    Info,
    Solved,
    bound,
    correspondences,
    given_camera,
    make_options,
    original,
    rows_of,
    switch,
    unknown_focal,
)
from manymatch.estimate.absolute_pose import estimate_absolute_pose as _estimate_absolute_pose
from manymatch.estimate.confidence import assess
from manymatch.estimate.fundamental import estimate_fundamental
from manymatch.estimate.homography import estimate_homography
from manymatch.estimate.relative_pose import estimate_relative_pose as _estimate_relative_pose
from manymatch.estimate.rigid import estimate_rigid_transform, estimate_similarity
from manymatch.geometry.camera import Camera as _Camera

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
    solved = _relative_pose(rows_of(given, _POINTS), given, "estimation_options")
    pose = solved.estimate.pose
    return pose and _result(solved, E=pose.essential(), cam2_from_cam1=_rigid3d(pose))


@switch("*args")
def estimate_relative_pose(given: Any) -> Info | None:
    """Estimate a relative pose as both forms of ``pycolmap.estimate_relative_pose`` do.

    They are ``(camera1, points2D1, camera2, points2D2, options)`` and ``(cam_rays1, cam_rays2,
    options)`` with rays (N, 3), whose max_error is on the normalised plane. The result is that of
    `estimate_essential_matrix` without E.
    """
    args, kwargs = given.args, given.kwargs
    if "cam_rays1" in kwargs or (len(args) > 0 and np.ndim(args[0]) == 2):
        names = ("cam_rays1", "cam_rays2")
        values = bound("cam_rays1 cam_rays2 options", args, kwargs, needed=2)
        plane = _Camera("SIMPLE_PINHOLE", None, None, (1.0, 0.0, 0.0))
        values |= {"camera1": plane, "camera2": plane}
        points = [_on_the_plane(values[name], name) for name in names]
    else:
        names = _POINTS
        values = bound("camera1 points2D1 camera2 points2D2 options", args, kwargs, needed=4)
        points = [values[name] for name in names]
    rows = correspondences(points[0], points[1], given.edges, given.rank, names)
    solved = _relative_pose(rows, types.SimpleNamespace(**{"options": None, **values}), "options")
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


@switch("src tgt estimation_options=None")
def estimate_affine2d_robust(given: Any) -> Info | None:
    """Estimate an affine map of the plane as ``pycolmap.estimate_affine2d_robust`` does.

    Arguments are those of `estimate_homography_matrix`. The dict has tgt_from_src (2, 3),
    num_inliers and inlier_mask.
    """
    function = functools.partial(estimate_homography, model="affine")
    solved = rows_of(given, ("src", "tgt")).solve(function, options=_options(given))
    found = solved.estimate.homography
    return None if found is None else _result(solved, tgt_from_src=found[:2])


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
    return _absolute_pose(given)


@switch(
    "points2D points3D camera estimation_options=None refinement_options=None "
    "return_covariance=False"
)
def estimate_and_refine_absolute_pose(given: Any) -> Info | None:
    """Estimate a pose as ``pycolmap.estimate_and_refine_absolute_pose`` does.

    It is that of `estimate_absolute_pose`, which is refined already. With `return_covariance` the
    dict has covariance (6, 6), for pixels with a noise of one as the original's: of half the
    rotation vector applied on the left and of the translation.
    """
    result = _absolute_pose(given)
    if result is None or not given.return_covariance:
        return result
    estimate = result.estimate
    x, y, z = estimate.pose.t
    # From (rotation, centre of the camera) to (half the rotation, translation).
    change = np.zeros((6, 6))
    change[:3, :3] = 0.5 * np.eye(3)
    change[3:, :3] = [[0.0, z, -y], [-z, 0.0, x], [y, -x, 0.0]]
    change[3:, 3:] = -estimate.pose.R
    covariance = assess(estimate).covariance / estimate.noise_px**2
    result["covariance"] = change @ covariance @ change.T
    return result


def _absolute_pose(given: Any) -> Info | None:
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


@switch("src tgt estimation_options=None")
def estimate_rigid3d_robust(given: Any) -> Info | None:
    """Estimate a rigid transform as ``pycolmap.estimate_rigid3d_robust`` does.

    Arguments are those of `estimate_essential_matrix` with points (N, 3) and without cameras;
    max_error is in their unit. The dict has tgt_from_src (pycolmap.Rigid3d), num_inliers and
    inlier_mask.
    """
    return _clouds(given, estimate_rigid_transform, "Rigid3d")


@switch("src tgt estimation_options=None")
def estimate_sim3d_robust(given: Any) -> Info | None:
    """Estimate a similarity as ``pycolmap.estimate_sim3d_robust`` does.

    As `estimate_rigid3d_robust`, with a pycolmap.Sim3d.
    """
    return _clouds(given, estimate_similarity, "Sim3d")


def _clouds(given: Any, function: Any, kind: str) -> Info | None:
    rows, options = rows_of(given, ("src", "tgt"), (3, 3)), _options(given)
    solved = rows.solve(function, options.threshold_px, options=options)
    transform = solved.estimate.transform
    if transform is None:
        return None
    package = require("pycolmap", "a transform in pycolmap's form", "colmap")
    return _result(solved, tgt_from_src=getattr(package, kind)(transform[:3]))


@switch("camera1 points1 camera2 points2 matches=None options=None", "rank=None")
def estimate_calibrated_two_view_geometry(given: Any) -> Any:
    """Estimate what ``pycolmap.estimate_calibrated_two_view_geometry`` does.

    `points1` (N1, 2) and `points2` (N2, 2) are keypoints in pixels, `matches` (E, 2) candidates as
    indices into them, best first, several for a keypoint if there are, and `rank` (E,) their ranks.
    Of the options, a pycolmap.TwoViewGeometryOptions or a dict, ransac, min_num_inliers,
    max_H_inlier_ratio and compute_relative_pose are used.

    The pycolmap.TwoViewGeometry has config, E, H, and F for cameras without distortion;
    inlier_matches are the one-to-one matches, as mappers need them. Its config is DEGENERATE
    without a pose or enough matches, and PLANAR_OR_PANORAMIC (with compute_relative_pose one of
    the two) where a homography has nearly as many matches as the pose.
    """
    package = require("pycolmap", "a two-view geometry", "colmap")
    names = ("points1", "points2")
    rows = correspondences(given.points1, given.points2, given.matches, given.rank, names)
    cameras = given_camera(given.camera1, "camera1"), given_camera(given.camera2, "camera2")
    defaults = package.TwoViewGeometryOptions().todict()
    values = _values(given.options, "options", tuple(defaults), {**defaults, "ransac": None})
    ransac = {"max_error": 4.0, "confidence": 0.999, "max_num_trials": 10_000}
    chosen = _ransac_options(values.get("ransac"), "options.ransac", ransac)
    estimate = rows.solve(_estimate_relative_pose, *cameras, options=chosen).estimate
    pose, kinds = estimate.pose, package.TwoViewGeometryConfiguration
    geometry = package.TwoViewGeometry()
    geometry.config = kinds.DEGENERATE
    if pose is None or len(estimate.matches) < values["min_num_inliers"]:
        return geometry
    geometry.config, geometry.E = kinds.CALIBRATED, pose.essential()
    geometry.inlier_matches = estimate.matches.astype(np.uint32)
    if not (cameras[0].distortion or cameras[1].distortion):
        first, second = (np.linalg.inv(camera.K) for camera in cameras)
        geometry.F = second.T @ pose.essential() @ first
    plane = rows.solve(estimate_homography, options=chosen).estimate
    if plane.homography is not None:
        geometry.H = plane.homography
        if plane.cardinality > values["max_H_inlier_ratio"] * estimate.cardinality:
            geometry.config = kinds.PLANAR_OR_PANORAMIC
    if values["compute_relative_pose"]:
        geometry.cam2_from_cam1 = _rigid3d(pose)
        geometry.tri_angle = np.radians(estimate.parallax_deg)
        if geometry.config == int(kinds.PLANAR_OR_PANORAMIC):
            geometry.config = kinds.PANORAMIC if estimate.low_parallax else kinds.PLANAR
    return geometry


def _relative_pose(rows: Correspondences, given: Any, name: str) -> Solved:
    cameras = given_camera(given.camera1, "camera1"), given_camera(given.camera2, "camera2")
    return rows.solve(_estimate_relative_pose, *cameras, options=_options(given, name))


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


def _on_the_plane(rays: object, name: str) -> FloatArray:
    """Points (N, 2) of rays on the normalised plane."""
    checked = float_array(rays, name, "an (N, 3) array of finite numbers", (None, 3))
    within(checked[:, 2], np.finfo(float).tiny, np.inf, name, "rays in front of the camera (z)")
    return np.asarray(checked[:, :2] / checked[:, 2:])


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
