"""Resolve: pose of a camera in the world and 1-to-1 matches, from candidates in a map."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

import numpy as np

from manymatch import _core
from manymatch._validate import FloatArray, IndexArray, Method, notice_swapped
from manymatch.estimate.problem import (
    Chart,
    GeometricProblem,
    PreparedPair,
    checked_graph,
    errors_by,
)
from manymatch.estimate.result import FOCAL_DETERMINED, PoseEstimate
from manymatch.estimate.uncertainty import rotation, rotation_vector
from manymatch.geometry.camera import as_camera
from manymatch.geometry.pose import AbsolutePose

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from manymatch.estimate.relative_pose import CameraLike
    from manymatch.graph import AssociationGraph, GraphLike
    from manymatch.options import OptionKeywords, Options

# R, t and the focal length relative to that of the plane, as the core has them.
CoreModel: TypeAlias = tuple[FloatArray, FloatArray, float]

# Threshold over the standard deviation of the noise.
_DEVIATIONS = 3.0
# Standard deviations of rotation in radians, and of the centre of the camera over the depth of the
# points, that leave a pose open; and errors in degrees and over the depth that count as right.
_OPEN_ROTATION, _OPEN_CENTRE = 0.5, 1.0
_RIGHT_DEG, _RIGHT_DEPTH = 5.0, 0.05
# Width over length of points that count as a line.
_LINE = 0.01


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AbsolutePoseEstimate(PoseEstimate):
    """Estimate of an absolute pose: `PoseEstimate` with one camera and the attribute `pose`."""

    model: AbsolutePose | None = None

    @property
    def pose(self) -> AbsolutePose | None:
        """Maps world to camera coordinates, ``x_cam = R @ X + t``; or None."""
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
    method, options, proposals, **settings
        As in `estimate_relative_pose`; the motion filter of "auto" is one of two images and does
        not run. `threshold_px` bounds the reprojection error: the distance on the normalised plane
        times the focal length, which is that in pixels for a camera without distortion. 3 px is
        usual; the default of 1 px is that of a relative pose.

    Returns
    -------
    AbsolutePoseEstimate
        ``pose`` is an `AbsolutePose`, ``x_cam = R @ X + t`` in the unit of the world, with all
        matches in front of the camera. Points on a plane parallel to the image determine neither an
        unknown focal length nor the distance. Points on a line have no pose.

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
    return ABSOLUTE_POSE.solve((graph, camera), method, options, proposals, settings)


def prepare(
    graph: object, camera: CameraLike, options: Options, proposals: object = None, where: str = ""
) -> PreparedPair:
    """Check a query and bring it to the normalised plane and `Frame`."""
    checked = checked_graph(graph, options, where, (2, 3))
    seen = as_camera(camera, f"{where}camera")
    notice_swapped(checked.points0, seen.width, seen.height, f"{where}camera")
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
    """Coordinates in which a pose is found: about the median of the world, scaled by its size."""

    def __init__(self, graph: AssociationGraph) -> None:
        points = graph.points1[np.unique(graph.edges[:, 1])]
        self.centre = np.median(points, axis=0) if len(points) else np.zeros(3)
        with np.errstate(over="ignore"):
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


def _covariance(pair: PreparedPair, result: _core.AbsolutePoseEstimate, noise: float) -> FloatArray:
    """Covariance (6, 6) of a pose, or (7, 7) with the focal length, given matches with this noise.

    Rotation in the frame of the camera, translation over the depth of the points, logarithm of f.
    """
    x0, x1 = pair.ends(result.matched)
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


def _open(pair: PreparedPair, result: _core.AbsolutePoseEstimate) -> str:
    """Say why the matches do not determine the pose at the noise of the threshold, or nothing."""
    covariance = _covariance(pair, result, pair.eps / _DEVIATIONS)
    rotation, centre = (float(np.trace(covariance[k : k + 3, k : k + 3])) for k in (0, 3))
    if rotation < _OPEN_ROTATION**2 and centre < _OPEN_CENTRE**2:
        return ""
    x1 = pair.ends(result.matched)[1]
    spread = np.linalg.svd(x1 - x1.mean(axis=0), compute_uv=False)
    if spread[1] < _LINE * spread[0]:
        return "the matched points lie on a line in the world"
    return "the matches do not determine the pose"


def _own(
    pair: PreparedPair, result: _core.AbsolutePoseEstimate, _fields: dict[str, Any]
) -> dict[str, Any]:
    """Return what was found of an unknown focal length, and the pair with the camera found."""
    if pair.parameters is None:
        return {}
    R, t, f = result.model
    residuals, _ = _core.reprojection_jacobian(*pair.ends(result.matched), R, t, f)
    freedom = max(residuals.size - 7, 1)
    # The noise is that of true candidates; some of the matches are only nearly true.
    noise = max(result.noise, float(np.sqrt(np.sum(residuals**2) / freedom)))
    deviation = float(np.sqrt(_covariance(pair, result, noise)[6, 6]))
    given = pair.cameras[0]
    camera = given.with_focal(given.focal * f)
    x0 = np.ascontiguousarray(pair.x0 / f)
    return {
        "camera0": camera,
        "focal_sd_px": (deviation * camera.focal,),
        "focal_determined": bool(deviation <= FOCAL_DETERMINED * (given.focal_sigma or 0.0)),
        "_pair": pair.changed(x0=x0, cameras=(camera,), eps=pair.eps / f, parameters=None),
        "_model": (R, t, 1.0),
    }


def _move(model: CoreModel, step: FloatArray) -> CoreModel:
    R, t, f = model
    turn = rotation(step[:3])
    return turn @ R, turn @ t + step[3:], f


def _residuals(pair: PreparedPair, model: CoreModel, edges: IndexArray | slice) -> FloatArray:
    R, t, f = model
    x0, x1 = pair.ends(edges)
    seen = x1 @ R.T + t
    return np.asarray(f * seen[:, :2] / seen[:, 2:] - x0)


def _turn_and_shift(model: CoreModel, base: CoreModel) -> tuple[FloatArray, FloatArray]:
    """Rotation vector from the base in the frame of the camera, and how the centre moves."""
    (R, t, _), (R0, t0, _) = model, base
    return rotation_vector(R @ R0.T), R0.T @ t0 - R.T @ t


def _numbers(pair: PreparedPair, model: CoreModel, base: CoreModel) -> FloatArray:
    turn, shift = _turn_and_shift(model, base)
    return np.concatenate([turn, pair.frame.unit * shift])


def _error(pair: PreparedPair, model: CoreModel, base: CoreModel) -> FloatArray:
    turn, shift = _turn_and_shift(model, base)
    R, t, _ = base
    depths = pair.ends()[1] @ R[2] + t[2]
    near = np.linalg.norm(_residuals(pair, base, slice(None)), axis=1) < pair.eps
    seen = depths[(depths > 0.0) & near]
    depth = float(np.median(seen)) if len(seen) else 1.0
    return np.concatenate([np.degrees(turn) / _RIGHT_DEG, shift / (_RIGHT_DEPTH * depth)])


#: The coefficients of matches are those of a homography; benchmarks/results/absolute_pose.md has
#: the measured reliability.
ABSOLUTE_POSE = GeometricProblem(
    name="absolute",
    noun="pose",
    limit="within 5° and 5 % of the depth",
    estimate=estimate_absolute_pose,
    result=AbsolutePoseEstimate,
    core="estimate_absolute_pose",
    prepare=prepare,
    public=lambda pair, model: pair.frame.pose(*model[:2]),
    errors=errors_by("score_absolute_pose"),
    sample_size=3,
    parameters=6,
    dimensions=2,
    match_coefficients=(0.173, -0.299, 0.955, 1.559, 0.446, 0.0),
    model_coefficients=(11.827, 1.580, 1.754, 1.898),
    chart=Chart(_move, _residuals, _numbers, _error, (np.radians(_RIGHT_DEG), _RIGHT_DEPTH)),
    open=_open,
    own=_own,
)
