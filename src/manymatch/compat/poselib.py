"""PoseLib's robust estimators: ``from manymatch.compat import poselib``.

Arguments and results are those of PoseLib 2.0.5, ``(model, info)``; the single nested ``opt`` of
PoseLib 3.0 is taken as well. What differs is listed in docs/compat.md.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import types
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import float_array
from manymatch.compat.rows import (
    Info,
    Solved,
    as_rows,
    checked_mapping,
    given_camera,
    installed,
    make_options,
    original,
    rotation_vector,
    unknown_focal,
)
from manymatch.estimate.absolute_pose import estimate_absolute_pose as _estimate_absolute_pose
from manymatch.estimate.fundamental import estimate_fundamental as _estimate_fundamental
from manymatch.estimate.homography import estimate_homography as _estimate_homography
from manymatch.estimate.relative_pose import estimate_relative_pose as _estimate_relative_pose
from manymatch.geometry.camera import Camera as _Camera

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from manymatch._validate import FloatArray
    from manymatch.options import Options

_TWO_VIEWS = ("points2D_1", "points2D_2")
# Keys of `ransac_opt` that are fields of `Options`; PoseLib ignores keys that it does not know, and
# so do we, also those of its own sampler and refinement.
_FIELDS = {
    "max_iterations": "max_iterations",
    "min_iterations": "min_iterations",
    "dyn_num_trials_mult": "safety",
    "success_prob": "confidence",
    "seed": "seed",
}
# Keys that only the nested options of PoseLib 3.0 have.
_NESTED = ("ransac", "bundle", "max_error", "max_errors", "estimate_focal_length")


def __getattr__(name: str) -> Any:
    return original("poselib", "baselines", name)


@dataclasses.dataclass
class _CameraPose:
    """A pose with the attributes of poselib.CameraPose, where PoseLib is not installed."""

    R: FloatArray
    t: FloatArray

    @property
    def q(self) -> FloatArray:
        """Unit quaternion (w, x, y, z)."""
        half = 0.5 * rotation_vector(self.R)
        angle = float(np.linalg.norm(half))
        return np.array([math.cos(angle), *(np.sinc(angle / math.pi) * half)])

    @property
    def Rt(self) -> FloatArray:  # noqa: N802
        """Rotation and translation (3, 4)."""
        return np.column_stack([self.R, self.t])

    def center(self) -> FloatArray:
        """Return the camera centre (3,)."""
        return np.asarray(-self.R.T @ self.t)


def estimate_relative_pose(
    points2D_1: ArrayLike,
    points2D_2: ArrayLike,
    camera1: object = None,
    camera2: object = None,
    ransac_opt: Mapping[str, Any] | None = None,
    bundle_opt: Mapping[str, Any] | None = None,
    initial_pose: object = None,  # noqa: ARG001 - the original's
    *,
    camera1_dict: object = None,
    camera2_dict: object = None,
    opt: Mapping[str, Any] | None = None,
    edges: ArrayLike | None = None,
    rank: ArrayLike | None = None,
) -> tuple[Any, Info]:
    """Estimate the relative pose of two cameras as ``poselib.estimate_relative_pose`` does.

    Parameters
    ----------
    points2D_1, points2D_2 : (N, 2) array_like
        Matched pixels; a point that occurs several times is one keypoint with several candidates.
        With `edges`, the keypoints.
    camera1, camera2 : dict or poselib.Camera
        The cameras; ``camera1_dict`` and ``camera2_dict`` are other names of them.
    ransac_opt : dict
        Of it max_epipolar_error in pixels, max_iterations, min_iterations, success_prob,
        dyn_num_trials_mult and seed are used. Or the nested options of PoseLib 3.0, also as `opt`:
        ``{"max_error": ..., "ransac": {...}}``.
    bundle_opt, initial_pose
        Are not used: the refinement is that of this package.
    edges : (E, 2) array_like, optional
        Candidates as indices into the keypoints, best first.
    rank : (E,) array_like, optional
        Ranks of the rows.

    Returns
    -------
    pose : poselib.CameraPose
        Maps coordinates of camera 1 to those of camera 2; the identity where no pose was found.
    info : dict
        refinements, iterations, num_inliers, inlier_ratio, model_score, inliers: a list with one
        bool for each row. ``info.estimate`` is the `Estimate`.
    """
    rows = as_rows(points2D_1, points2D_2, edges, rank, _TWO_VIEWS)
    first = given_camera(camera1 if camera1_dict is None else camera1_dict, "camera1")
    second = given_camera(camera2 if camera2_dict is None else camera2_dict, "camera2")
    options, _ = _options(ransac_opt, bundle_opt, opt, "max_epipolar_error", 1.0)
    solved = rows.solve(_estimate_relative_pose, first, second, options=options)
    return _camera_pose(solved.estimate), _info(solved)


def estimate_shared_focal_relative_pose(
    points2D_1: ArrayLike,
    points2D_2: ArrayLike,
    pp: ArrayLike = (0.0, 0.0),
    ransac_opt: Mapping[str, Any] | None = None,
    bundle_opt: Mapping[str, Any] | None = None,
    initial_image_pair: object = None,  # noqa: ARG001 - the original's
    *,
    opt: Mapping[str, Any] | None = None,
    edges: ArrayLike | None = None,
    rank: ArrayLike | None = None,
) -> tuple[Any, Info]:
    """Estimate a relative pose and the focal length that two images share.

    As ``poselib.estimate_shared_focal_relative_pose``. Arguments are those of
    `estimate_relative_pose` with the principal point `pp` in place of the cameras. Returns a
    poselib.ImagePair with pose, camera1 and camera2; where nothing was found, the cameras have the
    focal length that is usual for the size of the images.
    """
    rows = as_rows(points2D_1, points2D_2, edges, rank, _TWO_VIEWS)
    centre = float_array(np.ravel(pp), "pp", "the two coordinates of the principal point", (2,))
    options, _ = _options(ransac_opt, bundle_opt, opt, "max_epipolar_error", 1.0)
    plain = _Camera("SIMPLE_PINHOLE", None, None, (1.0, *centre))
    points = np.concatenate([rows.graph.points0, rows.graph.points1])
    camera = unknown_focal(plain, points)
    solved = rows.solve(_estimate_relative_pose, camera, camera, options=options)
    found = [_camera(seen or camera) for seen in (solved.estimate.camera0, solved.estimate.camera1)]
    pose = _camera_pose(solved.estimate)
    return _image("ImagePair", pose=pose, camera1=found[0], camera2=found[1]), _info(solved)


def estimate_homography(
    points2D_1: ArrayLike,
    points2D_2: ArrayLike,
    ransac_opt: Mapping[str, Any] | None = None,
    bundle_opt: Mapping[str, Any] | None = None,
    initial_H: object = None,  # noqa: ARG001 - the original's
    *,
    opt: Mapping[str, Any] | None = None,
    edges: ArrayLike | None = None,
    rank: ArrayLike | None = None,
) -> tuple[FloatArray, Info]:
    """Estimate a homography as ``poselib.estimate_homography`` does.

    Arguments are those of `estimate_relative_pose` without cameras. The threshold is
    max_reproj_error, 12 px by default (max_error, 1 px by default, in the options of PoseLib 3.0).
    The homography (3, 3) has norm one, and is zero where none was found.
    """
    rows = as_rows(points2D_1, points2D_2, edges, rank, _TWO_VIEWS)
    options, _ = _options(ransac_opt, bundle_opt, opt, "max_reproj_error", 12.0, 1.0)
    solved = rows.solve(_estimate_homography, options=options)
    return _unit(solved.estimate.homography), _info(solved)


def estimate_fundamental(
    points2D_1: ArrayLike,
    points2D_2: ArrayLike,
    ransac_opt: Mapping[str, Any] | None = None,
    bundle_opt: Mapping[str, Any] | None = None,
    initial_F: object = None,  # noqa: ARG001 - the original's
    *,
    opt: Mapping[str, Any] | None = None,
    edges: ArrayLike | None = None,
    rank: ArrayLike | None = None,
) -> tuple[FloatArray, Info]:
    """Estimate a fundamental matrix as ``poselib.estimate_fundamental`` does.

    Arguments are those of `estimate_relative_pose` without cameras. The matrix (3, 3) has norm one,
    and is zero where none was found.
    """
    rows = as_rows(points2D_1, points2D_2, edges, rank, _TWO_VIEWS)
    options, _ = _options(ransac_opt, bundle_opt, opt, "max_epipolar_error", 1.0)
    solved = rows.solve(_estimate_fundamental, options=options)
    return _unit(solved.estimate.fundamental), _info(solved)


def estimate_absolute_pose(
    points2D: ArrayLike,
    points3D: ArrayLike,
    camera: object = None,
    ransac_opt: Mapping[str, Any] | None = None,
    bundle_opt: Mapping[str, Any] | None = None,
    initial_pose: object = None,  # noqa: ARG001 - the original's
    *,
    camera_dict: object = None,
    opt: Mapping[str, Any] | None = None,
    edges: ArrayLike | None = None,
    rank: ArrayLike | None = None,
) -> tuple[Any, Info]:
    """Estimate the pose of a camera in the world as ``poselib.estimate_absolute_pose`` does.

    Arguments are those of `estimate_relative_pose` with pixels (N, 2), points of the world (N, 3)
    and one camera. The threshold is max_reproj_error, 12 px by default. The pose maps coordinates
    of the world to those of the camera. With the nested options of PoseLib 3.0 it is that of a
    poselib.Image, which also has the camera, with the focal length found if the options have
    estimate_focal_length.
    """
    rows = as_rows(points2D, points3D, edges, rank, ("points2D", "points3D"), (2, 3))
    seen = given_camera(camera if camera_dict is None else camera_dict, "camera")
    options, nested = _options(ransac_opt, bundle_opt, opt, "max_reproj_error", 12.0)
    if nested is not None and nested.get("estimate_focal_length"):
        seen = unknown_focal(seen, rows.graph.points0)
    solved = rows.solve(_estimate_absolute_pose, seen, options=options)
    pose, info = _camera_pose(solved.estimate), _info(solved)
    if nested is None:
        return pose, info
    return _image("Image", pose=pose, camera=_camera(solved.estimate.camera0 or seen)), info


def _options(
    ransac_opt: object,
    bundle_opt: object,
    opt: object,
    threshold: str,
    default: float,
    nested_default: float | None = None,
) -> tuple[Options, Mapping[str, Any] | None]:
    """Return the options, and the nested dict of PoseLib 3.0 if they were given as one.

    `threshold` is the key of the threshold of 2.0.5, with its default and that of 3.0. Without any
    options the version that is installed decides.
    """
    if opt is not None and ransac_opt is not None:
        raise ValueError("opt must be given alone, got ransac_opt as well")
    name = "ransac_opt" if opt is None else "opt"
    given = checked_mapping(ransac_opt if opt is None else opt, name)
    if isinstance(bundle_opt, str | int | float):
        checked_mapping(bundle_opt, "bundle_opt")
    nested = opt is not None or any(key in given for key in _NESTED)
    if not given and opt is None:
        nested = not getattr(installed("poselib"), "__version__", "2").startswith("2")
    if not nested:
        ransac, where, key = given, name, threshold
    else:
        ransac, where = (
            checked_mapping(given.get("ransac"), f"{name}['ransac']"),
            f"{name}['ransac']",
        )
        key, default = "max_error", default if nested_default is None else nested_default
    names = {field: f"{where}[{key!r}]" for key, field in _FIELDS.items()}
    options = make_options(
        {**names, "threshold_px": f"{name}[{key!r}]"},
        threshold_px=given.get(key, default),
        **{field: ransac[key] for key, field in _FIELDS.items() if key in ransac},
    )
    return options, given if nested else None


def _info(solved: Solved) -> Info:
    estimate, inliers = solved
    count = int(inliers.sum())
    info = Info(
        refinements=estimate.refinements,
        iterations=estimate.iterations,
        num_inliers=count,
        inlier_ratio=count / max(1, len(inliers)),
        # As for the original, less is better.
        model_score=-float(estimate.hcm) if estimate.success else sys.float_info.max,
        inliers=inliers.tolist(),
    )
    info.estimate = estimate
    return info


def _camera_pose(estimate: Any) -> Any:
    """Return the pose of an estimate as PoseLib has it, the identity if there is none."""
    R, t = np.eye(3), np.zeros(3)
    if estimate.success:
        R, t = np.array(estimate.pose.R), np.array(estimate.pose.t)
    package = installed("poselib")
    if package is None:
        return _CameraPose(R, t)
    pose = package.CameraPose()
    pose.R, pose.t = R, t
    return pose


def _camera(camera: _Camera) -> Any:
    """Return a camera as PoseLib has it, ours if it is not installed."""
    package = installed("poselib")
    if package is None:
        return camera
    size = (camera.width or -1, camera.height or -1)
    return package.Camera(camera.model, list(camera.params), *size)


def _image(kind: str, **fields: Any) -> Any:
    """Return an Image or ImagePair of PoseLib, or what has the same attributes."""
    package = installed("poselib")
    image = types.SimpleNamespace() if package is None else getattr(package, kind)()
    for name, value in fields.items():
        setattr(image, name, value)
    return image


def _unit(matrix: FloatArray | None) -> FloatArray:
    """Return a matrix with norm one, zero if there is none."""
    if matrix is None:
        return np.zeros((3, 3))
    return np.asarray(matrix / np.linalg.norm(matrix))
