"""Resolve: relative pose and 1-to-1 matches from a graph of candidates."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from manymatch import _core
from manymatch._validate import (
    BoolArray,
    FloatArray,
    IndexArray,
    bool_array,
    integer,
    read_only,
    refusal,
    suggest,
)
from manymatch.camera import Camera, as_camera
from manymatch.graph import AssociationGraph
from manymatch.options import Options
from manymatch.pose import RelativePose

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# Camera, 3x3 matrix, COLMAP-style mapping or pycolmap.Camera; `as_camera` decides.
CameraLike: TypeAlias = object

Method: TypeAlias = Literal["hcm-mcm", "hcm", "mcm", "cm"]
METHODS: tuple[str, ...] = get_args(Method)

# More threads than this only cost memory; the result is the same.
_MOST_THREADS = 256


@dataclasses.dataclass(frozen=True, eq=False)
class Estimate:
    """What `estimate_relative_pose` found.

    Attributes
    ----------
    success : bool
        Whether there is a pose.
    failure : str
        Why there is none; empty on success.
    pose : RelativePose or None
        Maps camera-0 to camera-1 coordinates, ``x1 = R @ x0 + t`` with ``|t| = 1``.
    inliers : (E,) bool ndarray
        Edges consistent with the pose: Sampson error below the threshold, both depths positive.
    matches : (M, 2) int64 ndarray
        Resolved 1-to-1 correspondences ``(index into points0, index into points1)``: a maximum
        matching of the inlier edges, of all maximum ones that with the least sum of squared
        residuals. In the order of the graph's edges.
    hcm : float
        HCM score of the pose (equation HCM of the paper).
    cardinality : int
        Size of the maximum matching, the MCM score.
    num_inliers : int
        Number of inlier edges.
    parallax_deg : float
        Median angle between the two rays of a resolved match, in degrees; NaN without matches.
    low_parallax : bool
        Whether that angle is so small against the threshold (below four times its angle) that the
        direction of `pose.t` means little. The rotation can still be good.
    iterations : int
        Minimal samples drawn.
    refinements : int
        Local refinements run, both stages together.
    method : str
        Method that was used.
    options : Options
        Options that were used.
    timing : dict of str to float
        Seconds by stage: setup, search, local_refine, select, polish, resolve, total.
    """

    success: bool
    failure: str
    pose: RelativePose | None
    inliers: BoolArray
    matches: IndexArray
    hcm: float
    cardinality: int
    num_inliers: int
    parallax_deg: float
    low_parallax: bool
    iterations: int
    refinements: int
    method: str
    options: Options
    timing: dict[str, float]

    def __repr__(self) -> str:
        effort = f"{self.iterations} iterations, {1e3 * self.timing['total']:.1f} ms"
        if self.pose is None:
            return f"Estimate({self.method}: failed, {self.failure}; {effort})"
        weak = f"; low parallax ({self.parallax_deg:.2f} deg)" if self.low_parallax else ""
        return (
            f"Estimate({self.method}: {self.pose!r}; {self.inliers.size} candidates -> "
            f"{self.num_inliers} inliers -> {self.cardinality} matches{weak}; {effort})"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Score:
    """Exact scores of one pose, in float64.

    Attributes
    ----------
    hcm : float
        HCM score; larger is better, 0 without an inlier.
    cardinality : int
        Size of a maximum matching of the inlier edges (MCM).
    num_inliers : int
        Number of inlier edges.
    inliers : (E,) bool ndarray
        Edges with squared Sampson error below the threshold and both depths positive.
    """

    hcm: float
    cardinality: int
    num_inliers: int
    inliers: BoolArray

    def __repr__(self) -> str:
        return (
            f"Score(hcm={self.hcm:.6g}, cardinality={self.cardinality}, "
            f"num_inliers={self.num_inliers} of {self.inliers.size})"
        )


def estimate_relative_pose(
    graph: AssociationGraph,
    camera0: CameraLike,
    camera1: CameraLike,
    method: Method = "hcm-mcm",
    options: Options | None = None,
    proposals: ArrayLike | None = None,
) -> Estimate:
    """Estimate the relative pose of two cameras from candidate correspondences.

    Parameters
    ----------
    graph : AssociationGraph
        Candidates, several per keypoint if there are, in pixels.
    camera0, camera1 : Camera, 3x3 matrix, COLMAP-style dict or pycolmap.Camera
        Intrinsics, in the pixel convention of the graph's points.
    method : {"hcm-mcm", "hcm", "mcm", "cm"}
        "hcm-mcm": two stages, explore with HCM and select with MCM (Algorithm 1 of the paper).
        "hcm", "mcm": a single mechanism (Algorithm 3). "cm": edges as independent correspondences,
        uniform samples and truncated squared residuals, for comparison.
    options : Options, optional
        Threshold, budget, seed and the rest; the defaults are the paper's.
    proposals : (E,) bool array, optional
        Draw minimal samples from these edges only; everything else sees the whole graph.

    Returns
    -------
    Estimate
        A function of the arguments alone: not of `options.threads`, not of earlier calls. A pair
        that cannot be solved has ``success=False`` and says why in ``failure``.

    Raises
    ------
    ValueError
        If an argument is not what it should be.

    Examples
    --------
    >>> from manymatch.datasets.synthetic import EASY, make_scene
    >>> scene = make_scene(EASY, seed=1)
    >>> estimate = estimate_relative_pose(scene.graph, scene.camera0, scene.camera1)
    >>> estimate.success
    True
    """
    checked = _checked_options(options)
    problem = _Problem(graph, camera0, camera1, proposals, checked, "")
    method = _checked_method(method)
    result = _core.estimate([problem.pair], method, [_core_options(checked)], _threads(checked.threads))
    return problem.finish(result[0], method)


def estimate_relative_poses(
    problems: Iterable[Sequence[Any]],
    method: Method = "hcm-mcm",
    options: Options | Sequence[Options] | None = None,
    threads: int = 0,
) -> list[Estimate]:
    """Estimate many relative poses at once, one pair per thread.

    Parameters
    ----------
    problems : iterable of tuples
        ``(graph, camera0, camera1)`` or ``(graph, camera0, camera1, proposals)`` for each pair.
    method : {"hcm-mcm", "hcm", "mcm", "cm"}
        As in `estimate_relative_pose`.
    options : Options or sequence of Options, optional
        One for all pairs, or one for each.
    threads : int
        Pairs worked on at the same time, 0 for all cores (`options.threads` is not used).

    Returns
    -------
    list of Estimate
        In the order of the problems; each is what `estimate_relative_pose` returns for that pair.
    """
    listed = _checked_problems(problems)
    method = _checked_method(method)
    checked = _options_for_each(options, len(listed))
    count = integer(threads, "threads", 0)
    prepared = [
        _Problem(*problem, settings, f"problems[{i}]: ")
        for i, (problem, settings) in enumerate(zip(listed, checked, strict=True))
    ]
    results = _core.estimate(
        [problem.pair for problem in prepared],
        method,
        [_core_options(settings) for settings in checked],
        _threads(count),
    )
    return [p.finish(result, method) for p, result in zip(prepared, results, strict=True)]


def score_pose(
    graph: AssociationGraph,
    camera0: CameraLike,
    camera1: CameraLike,
    pose: RelativePose,
    options: Options | None = None,
) -> Score:
    """Score a given pose on a graph, exactly and in float64.

    Parameters
    ----------
    graph : AssociationGraph
        Candidates, in pixels.
    camera0, camera1 : Camera, 3x3 matrix, COLMAP-style dict or pycolmap.Camera
        Intrinsics.
    pose : RelativePose
        Maps camera-0 to camera-1 coordinates.
    options : Options, optional
        `threshold_px`, `q` and `delta` are used.

    Returns
    -------
    Score
        HCM, matching cardinality and inlier edges.
    """
    checked = _checked_options(options)
    problem = _Problem(graph, camera0, camera1, None, checked, "")
    if not isinstance(pose, RelativePose):
        raise refusal("pose", "a RelativePose", pose)
    hcm, cardinality, inliers, _ = _core.score(
        problem.x0, problem.x1, problem.edges, problem.eps, checked.q, checked.delta, pose.R, pose.t
    )
    return Score(hcm, cardinality, int(inliers.sum()), read_only(inliers))


class _Problem:
    """One pair as the core takes it: checked, unprojected, with its threshold."""

    def __init__(
        self,
        graph: object,
        camera0: object,
        camera1: object,
        proposals: object,
        options: Options,
        where: str,
    ) -> None:
        if not isinstance(graph, AssociationGraph):
            raise refusal(f"{where}graph", "an AssociationGraph", graph)
        first: Camera = as_camera(camera0, f"{where}camera0")
        second: Camera = as_camera(camera1, f"{where}camera1")
        if options.guidance > 0 and graph.rank is None:
            raise ValueError(
                f"{where}graph must have ranks when options.guidance is above 0, got a graph "
                f"without ranks and guidance={options.guidance:g}"
            )
        self.graph = graph
        self.options = options
        self.x0 = first.unproject(graph.points0)
        self.x1 = second.unproject(graph.points1)
        self.edges: NDArray[np.int32] = np.ascontiguousarray(graph.edges, dtype=np.int32)
        # One threshold for both images, on the normalised plane.
        self.eps = 0.5 * (1.0 / first.focal + 1.0 / second.focal) * options.threshold_px
        mask = None
        if proposals is not None:
            want = f"a boolean array of shape ({graph.num_edges},), one entry per edge"
            mask = bool_array(proposals, f"{where}proposals", want, (graph.num_edges,))
        self.pair = _core.Pair(self.x0, self.x1, self.edges, graph.rank, mask, self.eps)

    def finish(self, result: _core.Estimate, method: str) -> Estimate:
        """Turn the core's result into the public one."""
        pose = RelativePose(result.R, result.t) if result.success else None
        matches = self.graph.edges[result.matched]
        parallax = _median_parallax_deg(self.x0[matches[:, 0]], self.x1[matches[:, 1]], pose)
        return Estimate(
            success=result.success,
            failure=result.failure,
            pose=pose,
            inliers=read_only(result.inliers),
            matches=read_only(matches),
            hcm=result.hcm,
            cardinality=result.cardinality,
            num_inliers=result.num_inliers,
            parallax_deg=parallax,
            low_parallax=bool(parallax < 4.0 * np.degrees(self.eps)),
            iterations=result.iterations,
            refinements=result.refinements,
            method=method,
            options=self.options,
            timing=dict(result.timing),
        )


def _median_parallax_deg(x0: FloatArray, x1: FloatArray, pose: RelativePose | None) -> float:
    """Median angle between the rays of matches, after rotating the first into camera 1."""
    if pose is None or len(x0) == 0:
        return float("nan")
    rays0 = np.column_stack([x0, np.ones(len(x0))]) @ pose.R.T
    rays1 = np.column_stack([x1, np.ones(len(x1))])
    sine = np.linalg.norm(np.cross(rays0, rays1), axis=1)
    return float(np.median(np.degrees(np.arctan2(sine, np.sum(rays0 * rays1, axis=1)))))


def _checked_options(options: object, name: str = "options") -> Options:
    if options is None:
        return Options()
    if not isinstance(options, Options):
        raise refusal(name, "an Options or None", options)
    return options


def _checked_method(method: object) -> Method:
    if method not in METHODS:
        known = ", ".join(repr(m) for m in METHODS)
        raise ValueError(f"method must be one of {known}, got {method!r}{suggest(method, METHODS)}")
    return method  # type: ignore[return-value]


def _checked_problems(problems: object) -> list[tuple[Any, Any, Any, Any]]:
    want = "an iterable of (graph, camera0, camera1) or (graph, camera0, camera1, proposals)"
    if not isinstance(problems, Iterable):
        raise refusal("problems", want, problems)
    listed = []
    for i, problem in enumerate(problems):
        if not isinstance(problem, tuple | list) or len(problem) not in (3, 4):
            raise refusal(f"problems[{i}]", want.removeprefix("an iterable of "), problem)
        listed.append((problem[0], problem[1], problem[2], problem[3] if len(problem) > 3 else None))
    return listed


def _options_for_each(options: object, count: int) -> list[Options]:
    if options is None or isinstance(options, Options):
        return [_checked_options(options)] * count
    if not isinstance(options, Sequence) or isinstance(options, str) or len(options) != count:
        raise refusal("options", f"an Options, None or a sequence of {count} Options", options)
    return [_checked_options(entry, f"options[{i}]") for i, entry in enumerate(options)]


def _core_options(options: Options) -> _core.Options:
    core = _core.Options()
    for name, value in options.to_dict().items():
        if name not in ("threshold_px", "threads"):
            setattr(core, name, value)
    return core


def _threads(wanted: int) -> int:
    if wanted == 0:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(wanted, _MOST_THREADS)
