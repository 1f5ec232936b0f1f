"""Resolve: relative pose and 1-to-1 matches from a graph of candidates."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch import _core
from manymatch._validate import (
    BoolArray,
    FloatArray,
    IndexArray,
    Method,
    checked_method,
    integer,
    read_only,
    refusal,
)
from manymatch.estimate.match_probability import match_probability
from manymatch.estimate.problem import (
    CameraLike,
    Problem,
    checked_options,
    checked_problems,
    core_options,
    num_threads,
    options_for_each,
)
from manymatch.geometry.pose import RelativePose

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike

    from manymatch.estimate.options import Options
    from manymatch.graph import AssociationGraph


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
        residuals; with method "auto" what is known of an edge counts beside its residual. In the
        order of the graph's edges.
    match_probability : (M,) float64 ndarray or None
        Probability that each of the matches is right, aligned with `matches`; None for methods
        other than "auto".
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
    pooled : int
        Raw seeds that stage 1 handed to stage 2; 0 for a single mechanism.
    worst_pooled : float
        Least HCM score among them. A pose would have entered the pool if it was not full
        (``pooled < options.pool_size``) or if its score is strictly larger.
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
    match_probability: FloatArray | None
    hcm: float
    cardinality: int
    num_inliers: int
    parallax_deg: float
    low_parallax: bool
    iterations: int
    refinements: int
    pooled: int
    worst_pooled: float
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
    method: Method = "auto",
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
    method : {"auto", "hcm-mcm", "hcm", "mcm", "cm"}
        "auto": the two stages with evidence for every edge, its rank and whether the motion filter
        GMS keeps it; see docs/auto.md. It wants the graph unfiltered, takes its first 2048 edges
        to find the pose, and does not use `options.guidance`.
        "hcm-mcm": two stages, explore with HCM and select with MCM (Algorithm 1 of the paper),
        which takes filtered graphs as `candidates` makes them.
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
    checked = checked_options(options)
    problem = Problem(graph, camera0, camera1, proposals, checked, "")
    method = checked_method(method)
    threads = num_threads(checked.threads)
    result = _core.estimate([problem.pair], method, [core_options(checked)], threads)
    return _finish(problem, result[0], method)


def estimate_relative_poses(
    problems: Iterable[Sequence[Any]],
    method: Method = "auto",
    options: Options | Sequence[Options] | None = None,
    threads: int = 0,
) -> list[Estimate]:
    """Estimate many relative poses at once, one pair per thread.

    Parameters
    ----------
    problems : iterable of tuples
        ``(graph, camera0, camera1)`` or ``(graph, camera0, camera1, proposals)`` for each pair.
    method : {"auto", "hcm-mcm", "hcm", "mcm", "cm"}
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
    listed = checked_problems(problems)
    method = checked_method(method)
    checked = options_for_each(options, len(listed))
    count = integer(threads, "threads", 0)
    prepared = [
        Problem(*problem, settings, f"problems[{i}]: ")
        for i, (problem, settings) in enumerate(zip(listed, checked, strict=True))
    ]
    results = _core.estimate(
        [problem.pair for problem in prepared],
        method,
        [core_options(settings) for settings in checked],
        num_threads(count),
    )
    return [_finish(p, result, method) for p, result in zip(prepared, results, strict=True)]


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
    checked = checked_options(options)
    problem = Problem(graph, camera0, camera1, None, checked, "")
    if not isinstance(pose, RelativePose):
        raise refusal("pose", "a RelativePose", pose)
    hcm, cardinality, inliers, _ = _core.score(
        problem.x0, problem.x1, problem.edges, problem.eps, checked.q, checked.delta, pose.R, pose.t
    )
    return Score(hcm, cardinality, int(inliers.sum()), read_only(inliers))


def _finish(problem: Problem, result: _core.Estimate, method: str) -> Estimate:
    """Turn the core's result into the public one."""
    pose = RelativePose(result.R, result.t) if result.success else None
    matches = problem.graph.edges[result.matched]
    parallax = _median_parallax_deg(problem.x0[matches[:, 0]], problem.x1[matches[:, 1]], pose)
    return Estimate(
        success=result.success,
        failure=result.failure,
        pose=pose,
        inliers=read_only(result.inliers),
        matches=read_only(matches),
        match_probability=_match_probability(problem, result, method),
        hcm=result.hcm,
        cardinality=result.cardinality,
        num_inliers=result.num_inliers,
        parallax_deg=parallax,
        low_parallax=bool(parallax < 4.0 * np.degrees(problem.eps)),
        iterations=result.iterations,
        refinements=result.refinements,
        pooled=result.pooled,
        worst_pooled=result.worst_pooled,
        method=method,
        options=problem.options,
        timing=dict(result.timing),
    )


def _match_probability(problem: Problem, result: _core.Estimate, method: str) -> FloatArray | None:
    if method != "auto":
        return None
    if not result.success:
        return read_only(np.zeros(0))
    return read_only(
        match_probability(
            problem.edges,
            problem.graph.rank,
            result.kept,
            problem.distances(result.R, result.t) / problem.eps,
            result.inliers,
            result.matched,
        )
    )


def _median_parallax_deg(x0: FloatArray, x1: FloatArray, pose: RelativePose | None) -> float:
    """Median angle between the rays of matches, after rotating the first into camera 1."""
    if pose is None or len(x0) == 0:
        return float("nan")
    rays0 = np.column_stack([x0, np.ones(len(x0))]) @ pose.R.T
    rays1 = np.column_stack([x1, np.ones(len(x1))])
    sine = np.linalg.norm(np.cross(rays0, rays1), axis=1)
    return float(np.median(np.degrees(np.arctan2(sine, np.sum(rays0 * rays1, axis=1)))))
