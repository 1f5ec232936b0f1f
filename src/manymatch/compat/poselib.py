"""PoseLib's robust estimators: ``from manymatch.compat import poselib``.

Arguments and results are those of PoseLib 2.0.5, ``(model, info)``; the single nested ``opt`` of
PoseLib 3.0 is taken as well. What differs is listed in docs/guides/switch.md.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import FloatArray, float_array
from manymatch.compat.correspondences import (
    Info,
    Solved,
    checked_mapping,
    given_camera,
    installed,
    make_options,
    original,
    rotation_vector,
    rows_of,
    switch,
    unknown_focal,
)
from manymatch.estimate.absolute_pose import estimate_absolute_pose as _estimate_absolute_pose
from manymatch.estimate.fundamental import estimate_fundamental as _estimate_fundamental
from manymatch.estimate.homography import estimate_homography as _estimate_homography
from manymatch.estimate.relative_pose import estimate_relative_pose as _estimate_relative_pose
from manymatch.geometry.camera import Camera as _Camera

if TYPE_CHECKING:
    from manymatch.options import Options

# Keys of `ransac_opt` that are fields of `Options`; PoseLib ignores keys that it does not know, and
# so do we, also those of its own sampler and refinement.
_FIELDS = {
    "max_iterations": "max_iterations",
    "min_iterations": "min_iterations",
    "dyn_num_trials_mult": "safety",
    "success_prob": "confidence",
    "seed": "seed",
}
_POINTS = ("points2D_1", "points2D_2")
# The key of the threshold of 2.0.5, its default and that of 3.0.
_EPIPOLAR = ("max_epipolar_error", 1.0, 1.0)
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


@switch(
    "points2D_1 points2D_2 camera1=None camera2=None ransac_opt=None bundle_opt=None "
    "initial_pose=None * camera1_dict=None camera2_dict=None opt=None"
)
def estimate_relative_pose(given: Any) -> tuple[Any, Info]:
    """Estimate the relative pose of two cameras as ``poselib.estimate_relative_pose`` does.

    `points2D_1` and `points2D_2`, (N, 2), are matched pixels; a camera is a dict or a
    poselib.Camera (``camera1_dict`` and ``camera2_dict`` are other names). Of `ransac_opt`,
    max_epipolar_error in pixels, max_iterations, min_iterations, success_prob, dyn_num_trials_mult
    and seed are used; bundle_opt and initial_pose are not. It may be the nested options of PoseLib
    3.0, also as `opt`: ``{"max_error": ..., "ransac": {...}}``.

    Returns a poselib.CameraPose, which maps coordinates of camera 1 to those of camera 2 and is the
    identity where no pose was found, and a dict with refinements, iterations, num_inliers,
    inlier_ratio, model_score and inliers, a list with one bool for each row. Its attribute
    ``estimate`` is the `Estimate`.
    """
    rows, options = rows_of(given, _POINTS), _options(given, _EPIPOLAR)[0]
    first = given.camera1 if given.camera1_dict is None else given.camera1_dict
    second = given.camera2 if given.camera2_dict is None else given.camera2_dict
    cameras = given_camera(first, "camera1"), given_camera(second, "camera2")
    solved = rows.solve(_estimate_relative_pose, *cameras, options=options)
    return _camera_pose(solved.estimate.pose), _info(solved)


@switch(
    "points2D_1 points2D_2 pp=(0.0,0.0) ransac_opt=None bundle_opt=None initial_image_pair=None "
    "* opt=None"
)
def estimate_shared_focal_relative_pose(given: Any) -> tuple[Any, Info]:
    """Estimate a relative pose and the focal length that two images share.

    As ``poselib.estimate_shared_focal_relative_pose``. Arguments are those of
    `estimate_relative_pose` with the principal point `pp` in place of the cameras. Returns a
    poselib.ImagePair with pose, camera1 and camera2; where nothing was found, the cameras have the
    focal length that is usual for the size of the images.
    """
    want = "the two coordinates of the principal point"
    centre = float_array(np.ravel(given.pp), "pp", want, (2,))
    rows, options = rows_of(given, _POINTS), _options(given, _EPIPOLAR)[0]
    plain = _Camera("SIMPLE_PINHOLE", None, None, (1.0, *centre))
    camera = unknown_focal(plain, np.concatenate([rows.graph.points0, rows.graph.points1]))
    solved = rows.solve(_estimate_relative_pose, camera, camera, options=options)
    estimate = solved.estimate
    found = [_camera(seen or camera) for seen in (estimate.camera0, estimate.camera1)]
    pose = _camera_pose(estimate.pose)
    return _image("ImagePair", pose=pose, camera1=found[0], camera2=found[1]), _info(solved)


@switch("points2D_1 points2D_2 ransac_opt=None bundle_opt=None initial_H=None * opt=None")
def estimate_homography(given: Any) -> tuple[FloatArray, Info]:
    """Estimate a homography as ``poselib.estimate_homography`` does.

    Arguments are those of `estimate_relative_pose` without cameras. The threshold is
    max_reproj_error, 12 px by default (max_error, 1 px by default, in the options of PoseLib 3.0).
    The homography (3, 3) has norm one, and is zero where none was found.
    """
    options, _ = _options(given, ("max_reproj_error", 12.0, 1.0))
    solved = rows_of(given, _POINTS).solve(_estimate_homography, options=options)
    return _unit(solved.estimate.homography), _info(solved)


@switch("points2D_1 points2D_2 ransac_opt=None bundle_opt=None initial_F=None * opt=None")
def estimate_fundamental(given: Any) -> tuple[FloatArray, Info]:
    """Estimate a fundamental matrix as ``poselib.estimate_fundamental`` does.

    Arguments are those of `estimate_relative_pose` without cameras. The matrix (3, 3) has norm one,
    and is zero where none was found.
    """
    options, _ = _options(given, _EPIPOLAR)
    solved = rows_of(given, _POINTS).solve(_estimate_fundamental, options=options)
    return _unit(solved.estimate.fundamental), _info(solved)


@switch(
    "points2D points3D camera=None ransac_opt=None bundle_opt=None initial_pose=None "
    "* camera_dict=None opt=None"
)
def estimate_absolute_pose(given: Any) -> tuple[Any, Info]:
    """Estimate the pose of a camera in the world as ``poselib.estimate_absolute_pose`` does.

    Arguments are those of `estimate_relative_pose` with pixels (N, 2), points of the world (N, 3)
    and one camera. The threshold is max_reproj_error, 12 px by default. The pose maps coordinates
    of the world to those of the camera. With the nested options of PoseLib 3.0 it is that of a
    poselib.Image, which also has the camera, with the focal length found if the options have
    estimate_focal_length.
    """
    rows = rows_of(given, ("points2D", "points3D"), (2, 3))
    camera = given.camera if given.camera_dict is None else given.camera_dict
    seen = given_camera(camera, "camera")
    options, nested = _options(given, ("max_reproj_error", 12.0, 12.0))
    if nested is not None and nested.get("estimate_focal_length"):
        seen = unknown_focal(seen, rows.graph.points0)
    solved = rows.solve(_estimate_absolute_pose, seen, options=options)
    pose, info = _camera_pose(solved.estimate.pose), _info(solved)
    if nested is None:
        return pose, info
    return _image("Image", pose=pose, camera=_camera(solved.estimate.camera0 or seen)), info


def _options(
    arguments: Any, threshold: tuple[str, float, float]
) -> tuple[Options, Mapping[str, Any] | None]:
    """Return the options, and the nested dict of PoseLib 3.0 if they were given as one.

    `threshold` is as `_EPIPOLAR`. Without any options the version that is installed decides.
    """
    ransac_opt, bundle_opt, opt = arguments.ransac_opt, arguments.bundle_opt, arguments.opt
    if opt is not None and ransac_opt is not None:
        raise ValueError("opt must be given alone, got ransac_opt as well")
    name = "ransac_opt" if opt is None else "opt"
    given = checked_mapping(ransac_opt if opt is None else opt, name)
    if isinstance(bundle_opt, str | int | float):
        checked_mapping(bundle_opt, "bundle_opt")
    nested = opt is not None or any(key in given for key in _NESTED)
    if not given and opt is None:
        nested = not getattr(installed("poselib"), "__version__", "2").startswith("2")
    ransac, where, (key, default, nested_default) = given, name, threshold
    if nested:
        where, key, default = f"{name}['ransac']", "max_error", nested_default
        ransac = checked_mapping(given.get("ransac"), where)
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


def _camera_pose(found: Any) -> Any:
    R, t = (np.eye(3), np.zeros(3)) if found is None else (np.array(found.R), np.array(found.t))
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
    """Return an Image or ImagePair of PoseLib, or an object with the same attributes."""
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
