"""OpenCV's robust estimators: ``from manymatch.compat import cv2``.

Arguments, shapes and types are those of OpenCV. What differs is listed in docs/guides/switch.md.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import FloatArray, float_array, int_array, refusal, require
from manymatch.compat.correspondences import (
    Correspondences,
    Solved,
    bound,
    correspondences,
    make_options,
    original,
    rotation_vector,
    rows_of,
    switch,
)
from manymatch.estimate.absolute_pose import estimate_absolute_pose
from manymatch.estimate.fundamental import estimate_fundamental
from manymatch.estimate.homography import estimate_homography
from manymatch.estimate.relative_pose import estimate_relative_pose
from manymatch.geometry.camera import Camera, as_camera
from manymatch.options import AUTO, Options

if TYPE_CHECKING:
    Mask = NDArray[np.uint8]

_POINTS = ("points1", "points2")
# Arguments of the forms of findEssentialMat after the points, by the first that tells them apart.
_FORMS = {
    "cameraMatrix": "cameraMatrix method prob threshold maxIters mask",
    "focal": "focal pp method prob threshold maxIters mask",
    "cameraMatrix1": (
        "cameraMatrix1 distCoeffs1 cameraMatrix2 distCoeffs2 method prob threshold mask"
    ),
    "params": "cameraMatrix1 cameraMatrix2 dist_coeff1 dist_coeff2 params mask",
}
_RECOVER = (
    "points1 points2 cameraMatrix1 distCoeffs1 cameraMatrix2 distCoeffs2 E R t method prob "
    "threshold mask"
)
_FUNDAMENTAL = "method ransacReprojThreshold confidence maxIters mask"
_AFFINE = "from_ to inliers method ransacReprojThreshold maxIters confidence refineIters"
_PNP = "rvec tvec useExtrinsicGuess iterationsCount reprojectionError confidence inliers flags"
# Flags of OpenCV that are not "auto" here: a threshold by the noise, and fits to all points.
_LMEDS = 4
_ALL_POINTS = 0
_FITS = (1, 2)
# F[2, 2] relative to the norm of F below which it counts as zero.
_ZERO = 1e-12
# Limit of the iterations where none is given. OpenCV's own are from 100 to 2,000.
_MOST_ITERATIONS = 10_000


def __getattr__(name: str) -> Any:
    return original("cv2", "images", name)


@switch("points1 points2 *args")
def findEssentialMat(given: Any) -> tuple[FloatArray | None, Mask | None]:  # noqa: N802
    """Estimate an essential matrix as all forms of ``cv2.findEssentialMat`` do.

    The forms are ``(points1, points2, cameraMatrix, method, prob, threshold, maxIters, mask)``,
    ``(points1, points2, focal, pp, method, prob, threshold, maxIters, mask)``, ``(points1, points2,
    cameraMatrix1, distCoeffs1, cameraMatrix2, distCoeffs2, method, prob, threshold, mask)`` and
    ``(points1, points2, cameraMatrix1, cameraMatrix2, dist_coeff1, dist_coeff2, params, mask)``.

    Points are matched pixels, (N, 2), (N, 1, 2) or (1, N, 2). cv2.RANSAC, cv2.USAC_MAGSAC and all
    other methods are "auto" of this package, cv2.LMEDS with a threshold that is chosen by the
    noise. The threshold is in pixels, 1 by default; at most 10,000 iterations run by default.

    Returns E (3, 3) with Frobenius norm one, or None, and a mask (N, 1), uint8, with one for every
    row that agrees; None for fewer than five rows.
    """
    rows = rows_of(given, _POINTS)
    form = _form(given.args, given.kwargs)
    settings = bound(_FORMS[form], given.args, given.kwargs)
    if form == "focal":
        pp = float_array(settings.get("pp", (0.0, 0.0)), "pp", "two numbers", (2,))
        same: Any = (settings.get("focal", 1.0), settings.get("focal", 1.0), *pp)
        cameras = (as_camera(same, "focal"),) * 2
    elif form == "cameraMatrix":
        cameras = (as_camera(settings["cameraMatrix"], "cameraMatrix"),) * 2
    else:
        cameras = _two_cameras(settings)
    solved = rows.solve(estimate_relative_pose, *cameras, options=_options(settings))
    pose, mask = solved.estimate.pose, _column(solved)
    if pose is None:
        return None, mask if len(mask) >= 5 else None
    return pose.essential() / np.sqrt(2.0), mask


@switch("*args")
def recoverPose(given: Any) -> tuple[Any, ...]:  # noqa: N802
    """Return a pose as all forms of ``cv2.recoverPose`` do.

    The form without an essential matrix, ``(points1, points2, cameraMatrix1, distCoeffs1,
    cameraMatrix2, distCoeffs2, E, R, t, method, prob, threshold, mask)``, estimates it like
    `findEssentialMat` and returns ``(number of inliers, E, R, t, mask)``. The others are OpenCV's,
    which decompose a given matrix; with `edges`, the points are keypoints for them too.
    """
    args, kwargs, edges, rank = given.args, given.kwargs, given.edges, given.rank
    if "cameraMatrix1" in kwargs or len(args) >= 6 or np.shape(args[0] if args else 0) != (3, 3):
        settings = bound(_RECOVER, args, kwargs, needed=6)
        rows = correspondences(settings["points1"], settings["points2"], edges, rank, _POINTS)
        cameras = _two_cameras(settings)
        solved = rows.solve(estimate_relative_pose, *cameras, options=_options(settings))
        mask, pose = _column(solved), solved.estimate.pose
        if pose is None:
            return 0, None, None, None, mask
        E = pose.essential() / np.sqrt(2.0)
        return int(mask.sum()), E, np.array(pose.R), np.array(pose.t)[:, None], mask
    if edges is not None and len(args) >= 3:
        rows = correspondences(args[1], args[2], edges, rank, _POINTS)
        ends = rows.graph.edges[rows.edge_of_row]
        chosen = rows.graph.points0[ends[:, 0]], rows.graph.points1[ends[:, 1]]
        args = (args[0], *chosen, *args[3:])
    package = require("cv2", "the decomposition of an essential matrix", "images")
    return tuple(package.recoverPose(*args, **kwargs))


@switch(
    "srcPoints dstPoints method=0 ransacReprojThreshold=3.0 mask=None maxIters=None "
    "confidence=0.995 * params=None"
)
def findHomography(given: Any) -> tuple[FloatArray | None, Mask]:  # noqa: N802
    """Estimate a homography as both forms of ``cv2.findHomography`` do.

    Arguments are those of `findEssentialMat` without cameras; `ransacReprojThreshold` in pixels is
    for the symmetric transfer error. Method 0, the default, is OpenCV's least squares of all
    points. The other form is ``(srcPoints, dstPoints, params, mask)`` with a cv2.UsacParams.
    Returns ``(H, mask)`` with ``H[2, 2] = 1``; H is None where there is none.
    """
    rows, method = rows_of(given, ("srcPoints", "dstPoints")), given.method
    if isinstance(method, int | np.integer) and method == _ALL_POINTS and given.params is None:
        _check_no_candidates(rows, given.edges, method)
        package = require("cv2", "a fit to all points", "images")
        return tuple(package.findHomography(given.srcPoints, given.dstPoints, _ALL_POINTS))
    solved = rows.solve(estimate_homography, options=_options(vars(given)))
    found = solved.estimate.homography
    return None if found is None else np.array(found), _column(solved)


@switch("*args")
def estimateAffine2D(given: Any) -> tuple[FloatArray | None, Mask]:  # noqa: N802
    """Estimate an affine map of the plane as both forms of ``cv2.estimateAffine2D`` do.

    The forms are ``(from, to, inliers, method, ransacReprojThreshold, maxIters, confidence,
    refineIters)`` and ``(pts1, pts2, params, inliers)``. Arguments are those of `findHomography`;
    the map is always refined. Returns ``(A, inliers)`` with A (2, 3), None where
    there is none.
    """
    usac = _has_params(given.args, given.kwargs)
    form = "pts1 pts2 params inliers" if usac else _AFFINE
    settings = bound(form, given.args, given.kwargs, needed=2)
    first, second = form.split()[:2]
    names = (first, second)
    rows = correspondences(settings[first], settings[second], given.edges, given.rank, names)
    options = _options({"ransacReprojThreshold": 3.0, "confidence": 0.99, **settings})
    function = functools.partial(estimate_homography, model="affine")
    solved = rows.solve(function, options=options)
    found = solved.estimate.homography
    return None if found is None else np.array(found[:2]), _column(solved)


@switch("points1 points2 *args")
def findFundamentalMat(given: Any) -> tuple[FloatArray | None, Mask | None]:  # noqa: N802
    """Estimate a fundamental matrix as all forms of ``cv2.findFundamentalMat`` do.

    The forms are ``(points1, points2, method, ransacReprojThreshold, confidence, maxIters, mask)``,
    the same without maxIters, and ``(points1, points2, params, mask)``. Arguments are those of
    `findEssentialMat` without cameras; the threshold is 3 px by default. cv2.FM_7POINT and
    cv2.FM_8POINT are OpenCV's fits to all points. Returns ``(F, mask)`` with ``F[2, 2] = 1``; F is
    None where there is none, and both are for fewer than seven rows.
    """
    points, args, kwargs = (given.points1, given.points2), given.args, given.kwargs
    rows = rows_of(given, _POINTS)
    fourth = args[3] if len(args) > 3 else None
    with_limit = "maxIters" in kwargs or isinstance(fourth, int | np.integer)
    names = _FUNDAMENTAL if with_limit else _FUNDAMENTAL.replace(" maxIters", "")
    settings = bound("params mask" if _has_params(args, kwargs) else names, args, kwargs)
    if settings.get("method") in _FITS:
        _check_no_candidates(rows, given.edges, settings["method"])
        package = require("cv2", "a fit to all points", "images")
        return tuple(package.findFundamentalMat(*points, *args, **kwargs))
    options = _options({"ransacReprojThreshold": 3.0, "confidence": 0.99, **settings})
    solved = rows.solve(estimate_fundamental, options=options)
    found, mask = solved.estimate.fundamental, _column(solved)
    if found is None:
        return None, mask if len(mask) >= 7 else None
    last = found[2, 2] if abs(found[2, 2]) > _ZERO else 1.0
    return np.array(found / last), mask


@switch("objectPoints imagePoints cameraMatrix distCoeffs *args")
def solvePnPRansac(given: Any) -> tuple[Any, ...]:  # noqa: N802
    """Estimate the pose of a camera as both forms of ``cv2.solvePnPRansac`` do.

    The forms are ``(objectPoints, imagePoints, cameraMatrix, distCoeffs, rvec, tvec,
    useExtrinsicGuess, iterationsCount, reprojectionError, confidence, inliers, flags)`` and
    ``(objectPoints, imagePoints, cameraMatrix, distCoeffs, rvec, tvec, inliers, params)``.

    Points of the world and pixels are given row by row; a pair of `edges` is (object point, image
    point). iterationsCount is the limit of the iterations (10,000 by default), reprojectionError
    the threshold in pixels (8 by default), confidence is 0.99 by default. A guess and the solver
    (`flags`) are not used.

    Returns whether there is a pose, in the form with `params` the camera matrix as given, rvec and
    tvec (3, 1) from the world to the camera, zero where there is none, and the numbers (M, 1),
    int32, of the rows that agree, or None.
    """
    usac = _has_params(given.args, given.kwargs)
    settings = bound("rvec tvec inliers params" if usac else _PNP, given.args, given.kwargs)
    options = _options({"reprojectionError": 8.0, "confidence": 0.99, **settings})
    flipped = None
    if given.edges is not None:
        want = "an (E, 2) array of indices or None"
        flipped = int_array(given.edges, "edges", want, (None, 2))[:, ::-1]
    points, names = (given.imagePoints, given.objectPoints), ("imagePoints", "objectPoints")
    rows = correspondences(*points, flipped, given.rank, names, (2, 3))
    camera = _camera(given.cameraMatrix, given.distCoeffs, "cameraMatrix")
    solved = rows.solve(estimate_absolute_pose, camera, options=options)
    pose = solved.estimate.pose
    turn = np.zeros(3) if pose is None else rotation_vector(pose.R)
    move = np.zeros(3) if pose is None else np.array(pose.t)
    inliers = None if pose is None else np.flatnonzero(solved.mask).astype(np.int32)[:, None]
    matrix = (np.array(given.cameraMatrix, dtype=np.float64),) if usac else ()
    return pose is not None, *matrix, turn[:, None], move[:, None], inliers


def _has_params(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a function is called in its form with a cv2.UsacParams."""
    return "params" in kwargs or any(hasattr(value, "randomGeneratorState") for value in args)


def _form(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Tell which form of findEssentialMat is called; `args` follow the points."""
    if _has_params(args, kwargs):
        return "params"
    matrices = [np.shape(value) == (3, 3) for value in args]
    if "cameraMatrix1" in kwargs or "cameraMatrix2" in kwargs or sum(matrices) > 1:
        return "cameraMatrix1"
    return "cameraMatrix" if "cameraMatrix" in kwargs or any(matrices[:1]) else "focal"


def _options(given: Mapping[str, Any]) -> Options:
    params = given.get("params")
    params = given.get("method") if params is None else params
    if params is not None and not isinstance(params, int | np.integer):
        if not hasattr(params, "randomGeneratorState"):
            raise refusal("method", "one of OpenCV's flags or a cv2.UsacParams", params)
        return make_options(
            {"threshold_px": "params.threshold", "max_iterations": "params.maxIterations"},
            threshold_px=params.threshold,
            confidence=params.confidence,
            max_iterations=params.maxIterations,
            seed=max(0, int(params.randomGeneratorState)),
        )
    names = {
        "threshold_px": ("threshold", "ransacReprojThreshold", "reprojectionError"),
        "confidence": ("prob", "confidence"),
        "max_iterations": ("maxIters", "iterationsCount"),
    }
    own = {field: next((n for n in some if n in given), some[0]) for field, some in names.items()}
    values = {field: given[name] for field, name in own.items() if given.get(name) is not None}
    values = {"threshold_px": 1.0, "max_iterations": _MOST_ITERATIONS, **values}
    if given.get("method") == _LMEDS:
        values["threshold_px"] = AUTO
    return make_options(own, **values)


def _two_cameras(given: Mapping[str, Any]) -> tuple[Camera, Camera]:
    """Cameras of two matrices and the distortions that may belong to them."""
    cameras = []
    for k in (1, 2):
        if (name := f"cameraMatrix{k}") not in given:
            raise ValueError(f"{name} must be given, got {', '.join(given)}")
        lens = given.get(f"distCoeffs{k}", given.get(f"dist_coeff{k}"))
        cameras.append(_camera(given[name], lens, name))
    return cameras[0], cameras[1]


def _camera(matrix: object, distortion: Any, name: str) -> Camera:
    """Camera of a matrix and OpenCV's coefficients, or None for no distortion."""
    camera = as_camera(matrix, name)
    if distortion is None or np.size(distortion) == 0:
        return camera
    want = "4, 5, 8, 12 or 14 numbers k1, k2, p1, p2, k3, ..."
    k = float_array(np.ravel(distortion), "distCoeffs", want, (None,))
    if len(k) not in (4, 5, 8, 12, 14) or k[8:].any():
        raise refusal("distCoeffs", f"{want}, where those after the eighth are zero", k.tolist())
    if not k.any():
        return camera
    params = (*camera.params, *np.pad(k[:8], (0, 8 - len(k[:8]))))
    return Camera("FULL_OPENCV", camera.width, camera.height, params, camera.skew)


def _check_no_candidates(rows: Correspondences, edges: object, method: object) -> None:
    """Refuse a fit to all points where points have several candidates."""
    if edges is not None or len(rows.graph.points0) < len(rows.edge_of_row):
        wanted = "a robust one such as cv2.RANSAC for points with several candidates"
        raise refusal("method", wanted, method)


def _column(solved: Solved) -> Mask:
    return solved.mask.astype(np.uint8)[:, None]
