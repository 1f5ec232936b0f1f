"""Resolve: pose of a camera in the world and 1-to-1 matches, from candidates in a map."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch import _core
from manymatch._validate import FloatArray, Method, checked_method, read_only
from manymatch.estimate import match_probability as probabilities
from manymatch.estimate.prepare import PreparedPair, checked_graph
from manymatch.estimate.result import (
    FOCAL_DETERMINED,
    GeometricProblem,
    PoseEstimate,
    common_fields,
    without_model,
)
from manymatch.geometry.camera import as_camera
from manymatch.geometry.pose import AbsolutePose
from manymatch.options import checked_options

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import ArrayLike

    from manymatch.estimate.relative_pose import CameraLike
    from manymatch.graph import AssociationGraph, GraphLike
    from manymatch.options import OptionKeywords, Options

# A threshold is so many standard deviations of the noise.
_DEVIATIONS = 3.0
# Matches that leave more open than this do not determine a pose: standard deviations of the
# rotation in radians, and of the centre of the camera over the depth of the points.
_OPEN_ROTATION, _OPEN_CENTRE = 0.5, 1.0
# Width over length of points that count as a line.
_LINE = 0.01


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AbsolutePoseEstimate(PoseEstimate):
    """Estimate of an absolute pose: that of `Estimate`, and the following.

    Attributes
    ----------
    pose : AbsolutePose or None
        Maps world to camera coordinates, ``x_cam = R @ X + t``.
    camera0 : Camera
        The camera, with the focal length found if it was unknown; as given without a pose.
    focal_sd_px : tuple of float
        Standard deviation in pixels of an unknown focal length. Empty if it is known, or without
        a pose.
    focal_determined : bool
        Whether the matches determine an unknown focal length; if not, it is mostly that of the
        prior. True if it is known.
    """

    model: AbsolutePose | None = None

    @property
    def pose(self) -> AbsolutePose | None:
        """The pose, ``x_cam = R @ X + t``, or None."""
        return self.model


def estimate_absolute_pose(
    graph: GraphLike,
    camera: CameraLike,
    method: Method = "auto",
    options: Options | None = None,
    proposals: ArrayLike | None = None,
    **settings: Unpack[OptionKeywords],
) -> AbsolutePoseEstimate:
    """Estimate the pose of a camera from candidates between its pixels and points of the world.

    Parameters
    ----------
    graph : AssociationGraph or Candidates
        Candidates, several per keypoint if there are: `points0` (N, 2) in pixels, `points1` (M, 3)
        in the world, in any unit.
    camera : Camera, 3x3 matrix, COLMAP-style dict or pycolmap.Camera
        Intrinsics, in the pixel convention of the graph's points. The focal length may be unknown
        (`Camera.unknown`): it is found together with the pose.
    method : {"auto", "hcm-mcm", "hcm", "mcm", "cm"}
        As in `estimate_relative_pose`; the motion filter of "auto" is one of two images and does
        not run.
    options : Options, optional
        Threshold, budget, seed and the rest. `threshold_px` bounds the reprojection error: the
        distance on the normalised plane times the focal length, which is that in pixels for a
        camera without distortion. 3 px is usual; the default of 1 px is that of a relative pose.
    proposals : (E,) bool array, optional
        Draw minimal samples from these edges only; everything else sees the whole graph.
    **settings
        Fields of `Options` by keyword, such as ``threshold_px=3`` or ``seed=7``, in place of those
        of `options`.

    Returns
    -------
    AbsolutePoseEstimate
        ``pose`` is an `AbsolutePose`, ``x_cam = R @ X + t`` in the unit of the world, with all
        matches in front of the camera. ``camera0`` is the camera, with the focal length found if it
        was unknown; then ``focal_sd_px`` has its standard deviation, and ``focal_determined`` says
        whether it follows from the matches: points on a plane parallel to the image do not
        determine it, nor the distance. The result is a function of the arguments alone: not of
        `options.threads`, not of earlier calls. A query that cannot be solved, also for points on a
        line, has ``success=False`` and says why in ``failure``.

    Raises
    ------
    ValueError
        If an argument is not what it should be.

    Examples
    --------
    >>> import numpy as np
    >>> from manymatch import AssociationGraph, Camera
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50, 3)) + [0, 0, 5]
    >>> camera = Camera("PINHOLE", 640, 480, [500, 500, 319.5, 239.5])
    >>> pixels = camera.project((X / X[:, 2:])[:, :2])
    >>> estimate = estimate_absolute_pose(AssociationGraph.from_matches(pixels, X), camera)
    >>> np.allclose(estimate.pose.matrix(), np.eye(4), atol=1e-6)
    True
    """
    checked = checked_options(options, settings)
    pair = prepare(graph, camera, checked, proposals)
    return ABSOLUTE_POSE.run([pair], checked_method(method), checked.threads)[0]


def prepare(
    graph: object,
    camera: CameraLike,
    options: Options,
    proposals: object = None,
    where: str = "",
) -> PreparedPair:
    """Check a query and bring it to the coordinates in which the pose is found.

    Keypoints go to the normalised plane, where a pixel is one over the focal length; with an
    unknown focal length to that of the median of its prior. The world is a `Frame`.
    """
    checked = checked_graph(graph, options, where, (2, 3))
    seen = as_camera(camera, f"{where}camera")
    frame = Frame(checked)
    parameters = None if seen.focal_sigma is None else np.array([seen.focal_sigma])
    x0, x1 = seen.unproject(checked.points0), frame.into(checked.points1)
    return PreparedPair(
        *(checked, x0, x1, 1.0 / seen.focal, options, proposals, where),
        cameras=(seen,),
        frame=frame,
        parameters=parameters,
    )


class Frame:
    """Coordinates of the world in which a pose is found: about its middle, in a unit of its size.

    Medians, so that a few points far away do not matter.
    """

    def __init__(self, graph: AssociationGraph) -> None:
        points = graph.points1[np.unique(graph.edges[:, 1])]
        self.centre = np.median(points, axis=0) if len(points) else np.zeros(3)
        distance = np.linalg.norm(points - self.centre, axis=1)
        unit = float(np.median(distance)) if len(points) else 0.0
        unit = unit if unit > 0.0 else float(distance.max(initial=0.0))
        self.unit = unit if 0.0 < unit < np.inf else 1.0

    def into(self, points: FloatArray) -> FloatArray:
        """Bring points (M, 3) of the world to this frame."""
        return np.ascontiguousarray((points - self.centre) / self.unit)

    def pose(self, R: FloatArray, t: FloatArray) -> AbsolutePose:
        """Bring a pose of this frame to the world."""
        return AbsolutePose(R, self.unit * t - R @ self.centre)


def _finish(
    pair: PreparedPair, result: _core.AbsolutePoseEstimate, method: str
) -> AbsolutePoseEstimate:
    """Turn the core's result into the public one."""
    pair.take_threshold(result.threshold)
    common = common_fields(
        *(ABSOLUTE_POSE, pair, result, lambda model: pair.frame.pose(*model[:2]), method)
    )
    reason = _why_open(pair, result) if result.success else ""
    if reason:
        common |= without_model(pair, reason)
    success = common["success"]
    probability = None
    if method == "auto":
        probability = read_only(_match_probability(pair, result) if success else np.zeros(0))
    if success and pair.parameters is not None:
        common |= _found_focal(pair, result)
    return AbsolutePoseEstimate(
        **common,
        model=pair.frame.pose(*result.model[:2]) if success else None,
        camera0=pair.cameras[0],
        match_probability=probability,
    )


def _covariance(pair: PreparedPair, result: _core.AbsolutePoseEstimate, noise: float) -> FloatArray:
    """Covariance (6, 6) of a pose, or (7, 7) with the focal length, given matches with this noise.

    The rotation is turned in the frame of the camera, in radians; the translation is in units of
    the depth of the points, the focal length by its logarithm.
    """
    x0, x1 = _matched(pair, result)
    R, t, f = result.model
    _, jacobian = _core.reprojection_jacobian(x0, x1, R, t, f)
    jacobian[..., 3:6] *= float(np.median(x1 @ R[2] + t[2]))
    count = 6 if pair.parameters is None else 7
    rows = jacobian[..., :count].reshape(-1, count)
    information = rows.T @ rows / noise**2
    if pair.parameters is not None:
        information[6, 6] += 1.0 / pair.parameters[0] ** 2
    values, vectors = np.linalg.eigh(information)
    values = np.maximum(values, np.finfo(np.float64).eps * values[-1])
    return np.asarray((vectors / values) @ vectors.T)


def _matched(
    pair: PreparedPair, result: _core.AbsolutePoseEstimate
) -> tuple[FloatArray, FloatArray]:
    """Points of the matches in the plane and in the frame."""
    i, j = pair.edges[result.matched].T
    return np.ascontiguousarray(pair.x0[i]), np.ascontiguousarray(pair.x1[j])


def _why_open(pair: PreparedPair, result: _core.AbsolutePoseEstimate) -> str:
    """Say why the matches do not determine the pose at the noise of the threshold, or nothing."""
    covariance = _covariance(pair, result, pair.eps / _DEVIATIONS)
    rotation, centre = (float(np.trace(covariance[k : k + 3, k : k + 3])) for k in (0, 3))
    if rotation < _OPEN_ROTATION**2 and centre < _OPEN_CENTRE**2:
        return ""
    x1 = _matched(pair, result)[1]
    spread = np.linalg.svd(x1 - x1.mean(axis=0), compute_uv=False)
    if spread[1] < _LINE * spread[0]:
        return "the matched points lie on a line in the world"
    return "the matches do not determine the pose"


def _found_focal(pair: PreparedPair, result: _core.AbsolutePoseEstimate) -> dict[str, Any]:
    """Fields of an estimate that say what the focal length is.

    The pair becomes that of the camera found, with keypoints on its normalised plane.
    """
    R, t, f = result.model
    residuals, _ = _core.reprojection_jacobian(*_matched(pair, result), R, t, f)
    freedom = max(residuals.size - 7, 1)
    # The noise is that of true candidates; matches have some that are only nearly true.
    noise = max(result.noise, float(np.sqrt(np.sum(residuals**2) / freedom)))
    deviation = float(np.sqrt(_covariance(pair, result, noise)[6, 6]))
    given = pair.cameras[0]
    camera = given.with_focal(given.focal * f)
    pair.x0, pair.cameras = np.ascontiguousarray(pair.x0 / f), (camera,)
    pair.eps, pair.parameters = pair.eps / f, None
    return {
        "focal_sd_px": (deviation * camera.focal,),
        "focal_determined": bool(deviation <= FOCAL_DETERMINED * (given.focal_sigma or 0.0)),
        "_model": (R, t, 1.0),
    }


def reprojection_errors(pair: PreparedPair, model: Any) -> FloatArray:
    """Reprojection errors (E,) of all candidates, in units of the threshold.

    `model` is (R, t, f) in the frame of the pair, as the core returns it. Infinite behind the
    camera.
    """
    *_, r2 = _core.score_absolute_pose(
        *(pair.x0, pair.x1, pair.edges, pair.eps, pair.options.q, pair.options.delta), *model
    )
    return np.where(np.isfinite(r2), np.sqrt(r2), np.inf) / pair.eps


def _match_probability(pair: PreparedPair, result: _core.AbsolutePoseEstimate) -> FloatArray:
    distances = reprojection_errors(pair, result.model)
    return probabilities.probability_of(pair, result, distances, probabilities.ABSOLUTE_POSE)


ABSOLUTE_POSE = GeometricProblem(
    "absolute", AbsolutePoseEstimate, "estimate_absolute_pose", prepare, _finish
)
