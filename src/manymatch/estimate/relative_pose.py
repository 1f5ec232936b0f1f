"""Resolve: relative pose and 1-to-1 matches from a graph of candidates."""

from __future__ import annotations

import dataclasses
import functools
import math
import timeit
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

import numpy as np

from manymatch import _core
from manymatch._validate import BoolArray, FloatArray, Method, notice_swapped, read_only, refusal
from manymatch.estimate.problem import GeometricProblem, PreparedPair, WorkingScale, checked_graph
from manymatch.estimate.result import FOCAL_DETERMINED, PoseEstimate, Score
from manymatch.estimate.uncertainty import NATS_PER_ODDS, FocalPosterior
from manymatch.geometry.camera import Camera, as_camera, normalised_pixel
from manymatch.geometry.pose import RelativePose
from manymatch.options import AUTO, checked_options

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from manymatch.graph import AssociationGraph, GraphLike
    from manymatch.options import OptionKeywords, Options

# Camera, 3x3 matrix, COLMAP-style mapping or pycolmap.Camera; `as_camera` decides.
CameraLike: TypeAlias = object

# A parallax below this many times the angle of the threshold says little about the direction of
# the translation.
_LOW_PARALLAX = 4.0
# Errors of a focal length that both cameras share are this share of the deviation that the matches
# leave, of whose nats 16 count as one (benchmarks/results/unknown_focal.md).
_SHARED_ERRORS = 0.6
# Of `scorer_times`: minimal samples, each with up to ten poses, and rounds over all of them.
_SAMPLES, _REPEATS = 400, 5


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RelativePoseEstimate(PoseEstimate):
    """Estimate of a relative pose: `PoseEstimate` with two cameras, `pose` and the following.

    Attributes
    ----------
    parallax_deg : float
        Median angle between the two rays of a resolved match, in degrees; NaN without a pose.
    low_parallax : bool
        Whether that angle is so small against the threshold (below four times its angle) that the
        direction of `pose.t` means little. The rotation can still be good.
    """

    model: RelativePose | None = None
    camera1: Camera
    parallax_deg: float = math.nan
    low_parallax: bool = False

    @property
    def pose(self) -> RelativePose | None:
        """Maps camera-0 to camera-1 coordinates, ``x1 = R @ x0 + t`` with ``|t| = 1``; or None."""
        return self.model

    @property
    def cameras(self) -> tuple[Camera, ...]:
        """Both cameras."""
        return self.camera0, self.camera1

    @property
    def working_scale(self) -> WorkingScale | None:
        """As given to `estimate_relative_pose`."""
        return self._pair.working_scale

    def __repr__(self) -> str:
        low = f"; low parallax ({self.parallax_deg:.2f} deg)" if self.low_parallax else ""
        return f"{super().__repr__()[:-1]}{low})"

    def _own(self) -> dict[str, Any]:
        parallax = {"parallax_deg": self.parallax_deg, "low_parallax": self.low_parallax}
        return {**super()._own(), **parallax}


def estimate_relative_pose(
    graph: GraphLike,
    camera0: CameraLike,
    camera1: CameraLike,
    method: Method = "auto",
    options: Options | None = None,
    proposals: ArrayLike | None = None,
    *,
    working_scale: WorkingScale | None = None,
    shared_focal: bool | None = None,
    **settings: Unpack[OptionKeywords],
) -> RelativePoseEstimate:
    """Estimate the relative pose of two cameras from candidate correspondences.

    Parameters
    ----------
    graph : AssociationGraph or Candidates
        Candidates, several per keypoint if there are, in pixels.
    camera0, camera1 : Camera, 3x3 matrix, COLMAP-style dict or pycolmap.Camera
        Intrinsics, in the pixel convention of the graph's points. A focal length may be unknown
        (`Camera.unknown`): it is found together with the pose, see docs/guides/unknown_cameras.md.
    method : {"auto", "hcm-mcm", "hcm", "mcm", "cm"}
        "auto": the two stages with evidence for every edge, its rank and whether the filter by
        grid-based motion statistics (GMS) keeps it (docs/understand/rules.md). It takes the
        unfiltered graph, as `candidates` makes it by default, and finds the pose with its first
        2048 edges (of each source of a merged graph). "hcm-mcm": explore with harmonic consensus
        maximization (HCM), select with matching cardinality maximization (MCM; Algorithm 1 of the
        paper), for filtered graphs, as ``candidates(..., method="hcm-mcm")`` makes them. "hcm",
        "mcm": a single mechanism (Algorithm 3). "cm": edges as independent correspondences, for
        comparison.
        "hcm" and "hcm-mcm" take the prior of a graph, if it has one, as the probabilities p_ij of
        the paper, and assign them by degrees otherwise.
    options : Options, optional
        Threshold, budget, seed and the rest; the defaults are the paper's.
    proposals : (E,) bool array, optional
        Draw minimal samples from these edges only; everything else sees the whole graph.
    working_scale : pair of (2,) array_like, optional
        For either image, its width and height at working size, at which the keypoints were found,
        over those in pixels of the graph. The motion filter and an automatic threshold count in
        pixels at working size.
    shared_focal : bool, optional
        Whether two unknown focal lengths are one; by default if the images have the same prior and
        the same size, also if one of them is upright.
    **settings
        Fields of `Options` by keyword, such as ``seed=3``, in place of those of `options`.

    Returns
    -------
    RelativePoseEstimate
        A function of the arguments alone: not of `options.threads`, not of earlier calls. A pair
        that cannot be solved has ``success=False`` and says why in ``failure``.

    Examples
    --------
    >>> from manymatch_lab.datasets.synthetic import EASY, make_scene
    >>> scene = make_scene(EASY, seed=1)
    >>> estimate_relative_pose(scene.graph, scene.camera0, scene.camera1, seed=3).success
    True
    """
    return RELATIVE_POSE.solve(
        *((graph, camera0, camera1), method, options, proposals, settings),
        working_scale=working_scale,
        shared_focal=shared_focal,
    )


def score_pose(
    graph: GraphLike,
    camera0: CameraLike,
    camera1: CameraLike,
    pose: RelativePose,
    options: Options | None = None,
    **settings: Unpack[OptionKeywords],
) -> Score:
    """Score a given pose on a graph, exactly and in float64.

    Parameters
    ----------
    graph, camera0, camera1, options, **settings
        As in `estimate_relative_pose`; `threshold_px`, `q` and `delta` of the options are used.
    pose : RelativePose
        Maps camera-0 to camera-1 coordinates.
    """
    checked = checked_options(options, settings)
    if checked.threshold_px == AUTO:
        raise ValueError(
            'options.threshold_px must be a number to score a pose, got "auto": '
            "Estimate.threshold_px is the one that was used"
        )
    pair = prepare(graph, camera0, camera1, checked)
    if not isinstance(pose, RelativePose):
        raise refusal("pose", "a RelativePose", pose)
    hcm, cardinality, inliers, _ = _core.score(
        *(pair.x0, pair.x1, pair.edges, pair.eps, checked.q, checked.delta, pose.R, pose.t),
        belief=pair.graph.prior if pair.graph.source is None else None,
    )
    return Score(hcm, cardinality, int(inliers.sum()), read_only(inliers))


def scorer_times(
    graph: AssociationGraph, camera0: CameraLike, camera1: CameraLike, options: Options
) -> dict[str, float] | None:
    """Seconds of an HCM ("hcm") and of an MCM ("mcm") evaluation of a sampled pose, on one thread.

    These are of a search, which screens poses in single precision. "complete hcm" and "complete
    mcm" are of all residuals and depths in double precision and the exact score. None if the graph
    gives no pose.
    """
    pair = prepare(graph.compact()[0], camera0, camera1, options)
    rows = _core.sample(pair.edges, None, 0, _SAMPLES, uniform_edges=False)
    ends = pair.edges[rows[(rows >= 0).all(axis=1)]]
    if not len(ends):
        return None
    one = np.ones((len(ends), 5, 1))
    sides = (pair.x0[ends[..., 0]], pair.x1[ends[..., 1]])
    _, R, t = _core.five_point(*(np.concatenate([side, one], axis=2) for side in sides))
    if not len(R):
        return None
    fixed = (pair.x0, pair.x1, pair.edges, pair.eps, pair.options.q, pair.options.delta)

    def seconds(count: int, name: str) -> float:
        """Least time of a few rounds, with the preparation."""
        complete, _, mechanism = name.rpartition(" ")
        some = R[:count], t[:count], mechanism, bool(complete)
        call = functools.partial(_core.screened_scores, *fixed, *some)
        return min(timeit.repeat(call, number=1, repeat=_REPEATS))

    return {
        name: max(seconds(len(R), name) - seconds(0, name), 0.0) / len(R)
        for name in ("hcm", "mcm", "complete hcm", "complete mcm")
    }


def prepare(
    graph: object,
    camera0: CameraLike,
    camera1: CameraLike,
    options: Options,
    proposals: object = None,
    where: str = "",
    working_scale: WorkingScale | None = None,
    shared_focal: bool | None = None,
) -> PreparedPair:
    """Check a pair and bring its points to the normalised planes of the cameras.

    Unknown focal lengths are found on the planes of the images, in one unit, the pair's `frame`.
    """
    checked = checked_graph(graph, options, where)
    first, second = as_camera(camera0, f"{where}camera0"), as_camera(camera1, f"{where}camera1")
    cameras = (first, second)
    notice_swapped(checked.points0, first.width, first.height, f"{where}camera0")
    notice_swapped(checked.points1, second.width, second.height, f"{where}camera1")
    x0, x1 = first.unproject(checked.points0), second.unproject(checked.points1)
    pixel, unit, parameters = normalised_pixel(first, second), None, None
    shared = _shares_focal(first, second, shared_focal, where)
    if not (first.known_focal and second.known_focal):
        unit = max(camera.focal for camera in cameras if not camera.known_focal)
        pixel = 1.0 / unit
        x0, x1 = x0 * (first.focal / unit), x1 * (second.focal / unit)
        priors = [(camera.focal / unit, camera.focal_sigma or 0.0) for camera in cameras]
        parameters = np.array([*priors[0], *priors[1], float(shared)])
    return PreparedPair(
        *(checked, x0, x1, pixel, options, proposals, where),
        cameras=cameras,
        working_scale=working_scale,
        frame=unit,
        parameters=parameters,
    )


def _shares_focal(first: Camera, second: Camera, shared: bool | None, where: str) -> bool:
    """Whether two cameras have one unknown focal length."""
    alike = (first.focal, first.focal_sigma) == (second.focal, second.focal_sigma)
    possible = alike and not first.known_focal
    if shared is None:
        sizes = [sorted((camera.width or 0, camera.height or 0)) for camera in (first, second)]
        return possible and sizes[0] == sizes[1]
    if not isinstance(shared, bool | np.bool_):
        raise refusal(f"{where}shared_focal", "True, False or None", shared)
    if shared and not possible:
        raise ValueError(
            f"{where}shared_focal must not be True unless both focal lengths are unknown and have "
            f"the same prior, got {first!r} and {second!r}"
        )
    return bool(shared)


def sampson_distances(pair: PreparedPair, R: FloatArray, t: FloatArray) -> FloatArray:
    """Sampson distances (E,) of all candidates, on the normalised plane; infinite if undefined."""
    r2, in_front = squared_distances(pair, R, t)
    return np.where(in_front & np.isfinite(r2), np.sqrt(r2), np.inf)


def squared_distances(
    pair: PreparedPair, R: FloatArray, t: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Squared Sampson distances (E,) of all candidates, and which are in front of both cameras.

    The pair remembers the last ones: `assess` needs those of the pose again.
    """
    given = (pair.x0, pair.edges, R.tobytes() + t.tobytes())
    last: Any = pair.distances
    if last is None or last[0] is not given[0] or last[1] is not given[1] or last[2] != given[2]:
        last = pair.distances = (*given, *_core.sampson(*pair.ends(), R, t))
    return last[3], last[4]


def _with_focals(pair: PreparedPair, model: Any) -> PreparedPair:
    """Return the pair of the cameras found, with points on their normalised planes."""
    if pair.parameters is None:
        return pair
    focals = model[2]
    found = tuple(
        camera if camera.known_focal else camera.with_focal(float(focal * pair.frame))
        for camera, focal in zip(pair.cameras, focals, strict=True)
    )
    eps = normalised_pixel(*found) * pair.threshold_px
    x0, x1 = pair.x0 / focals[0], pair.x1 / focals[1]
    return pair.changed(x0=x0, x1=x1, cameras=found, parameters=None, eps=eps)


def _errors(pair: PreparedPair, model: Any) -> FloatArray:
    known = _with_focals(pair, model)
    return sampson_distances(known, *model[:2]) / known.eps


def _own(pair: PreparedPair, result: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the parallax, and what was found of unknown focal lengths."""
    known = _with_focals(pair, result.model)
    parallax = _median_parallax_deg(*known.ends(result.matched), fields["model"])
    low_parallax = bool(parallax < _LOW_PARALLAX * np.degrees(known.eps))
    own = {"parallax_deg": parallax, "low_parallax": low_parallax}
    if pair.parameters is None:
        return own
    focals = _focal_posterior(pair, result)
    scale = _SHARED_ERRORS if pair.parameters[4] else 1.0
    beyond = np.maximum(focals.deviations**-2.0 - focals.sigma**-2.0, 0.0)  # the prior
    sd = (beyond / scale**2 + focals.sigma**-2.0) ** -0.5 @ focals.into
    sd *= [camera.focal for camera in known.cameras]
    return {
        **own,
        **{f"camera{i}": camera for i, camera in enumerate(known.cameras)},
        "focal_sd_px": tuple(sd.tolist()),
        "focal_determined": bool(np.all(focals.deviations <= FOCAL_DETERMINED * focals.sigma)),
        "alternatives": tuple(
            dataclasses.replace(other, focals_px=tuple((model[2] * pair.frame).tolist()))
            for other, (model, *_) in zip(fields["alternatives"], result.alternatives, strict=True)
        ),
        "_pair": known.changed(focals=focals),
    }


def _focal_posterior(pair: PreparedPair, result: _core.UnknownFocalEstimate) -> FocalPosterior:
    """Return what prior and matches say about the unknown focal lengths around those found."""
    p = np.asarray(pair.parameters)
    sigma = p[[1, 3]]
    residuals, jacobian = _core.focal_jacobian(*pair.ends(result.matched), *result.model[:3])
    defined = np.isfinite(residuals) & np.isfinite(jacobian).all(axis=1)
    # Focal lengths by the free numbers.
    into = np.ones((1, 2)) if p[4] else np.eye(2)[sigma > 0.0]
    rows = np.hstack([jacobian[defined, :5], jacobian[defined, 5:] @ into.T])
    # The noise is that of true candidates; some of the matches are only nearly true.
    freedom = max(len(rows) - 5 - len(into), 1)
    noise = max(result.noise, math.sqrt(float(np.sum(residuals[defined] ** 2)) / freedom))
    noise = noise if noise > 0.0 else 0.5 * pair.eps
    information = rows.T @ rows / (NATS_PER_ODDS * noise**2)
    free = len(into)
    own = sigma[sigma > 0.0][:free]
    information[range(5, 5 + free), range(5, 5 + free)] += 1.0 / own**2
    values, vectors = np.linalg.eigh(information)
    values = np.maximum(values, np.finfo(np.float64).eps * values[-1])
    variance = np.sum(vectors**2 / values, axis=1)[5:]
    # Derivatives know one optimum: other likely ones can be farther away than that.
    spread = np.maximum(np.sqrt(variance), result.model[3][sigma > 0.0][:free])
    deviations = np.minimum(spread, own)
    scale = deviations / np.sqrt(variance)
    covariance = ((vectors / values) @ vectors.T)[5:, 5:] * np.outer(scale, scale)
    offset = np.log(p[[0, 2]] / result.model[2])[sigma > 0.0][:free]
    return FocalPosterior(into, offset, own, deviations, covariance)


def _median_parallax_deg(x0: FloatArray, x1: FloatArray, pose: RelativePose) -> float:
    """Median angle between the rays of matches, after rotating the first into camera 1."""
    if len(x0) == 0:
        return math.nan
    rays0 = np.column_stack([x0, np.ones(len(x0))]) @ pose.R.T
    rays1 = np.column_stack([x1, np.ones(len(x1))])
    (a, b, c), (d, e, f) = rays0.T, rays1.T
    sine = np.sqrt((b * f - c * e) ** 2 + (c * d - a * f) ** 2 + (a * e - b * d) ** 2)
    return math.degrees(np.median(np.arctan2(sine, a * d + b * e + c * f)))


#: All coefficients are fitted by benchmarks/accuracy/fit_constants.py; benchmarks/results/auto.md
#: and benchmarks/results/confidence.md have the measured reliability.
RELATIVE_POSE = GeometricProblem(
    name="relative",
    noun="pose",
    limit="within 5°",
    estimate=estimate_relative_pose,
    result=RelativePoseEstimate,
    core="estimate_relative_pose",
    prepare=prepare,
    public=lambda _pair, model: RelativePose(*model[:2]),
    errors=_errors,
    sample_size=5,
    parameters=5,
    dimensions=1,
    match_coefficients=(1.651, -0.820, 1.074, 1.994, 0.724, 0.786),
    model_coefficients=(3.0, 1.242, 1.139, 0.678, 1.191),
    own=_own,
    variant={"core": "estimate_unknown_focal"},
)
