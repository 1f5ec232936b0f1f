"""How far an estimate can be trusted: chance, parallax, planarity, covariance and a verdict."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from manymatch._validate import FloatArray, read_only, refusal
from manymatch.estimate._chance import SAMPLE, chance_of_matching
from manymatch.estimate._planarity import Planarity, planarity
from manymatch.estimate._pose_covariance import PoseCovariance, pose_covariance
from manymatch.estimate.problem import CameraLike, Problem
from manymatch.estimate.relative_pose import Estimate
from manymatch.estimate.words import angle, confidence_rows, verdict_sentence

if TYPE_CHECKING:
    from manymatch.graph import AssociationGraph

Verdict: TypeAlias = Literal["solved", "weak", "degenerate", "failed"]

# A matching that arises at random more often than this is not trusted. Far below the usual levels:
# repeated structure is more than random, and one clutter scene in 200 full of it gets to 2e-5.
CHANCE_LIMIT = 1e-4

# Twice the claimed standard deviation has to stay below this for a pose to count as determined.
ERROR_LIMIT_DEG = 5.0

# Share of the matches that a simpler model has to explain for the pose to count as degenerate.
DEGENERATE_SHARE = 0.9


@dataclasses.dataclass(frozen=True, eq=False)
class Confidence:
    """How far an estimate can be trusted.

    Attributes
    ----------
    verdict : {"solved", "weak", "degenerate", "failed"}
        "weak": too few matches, a matching that could arise by chance, or a pose that the matches
        hardly determine. "degenerate": enough matches, but low parallax, or a plane that a second
        pose explains as well. "failed": there is no pose.
    reason : str
        The verdict's reason, one sentence.
    num_matches : int
        Resolved matches, the size of the matching.
    chance : float
        Probability that the same search finds as large a matching at random: on the same graph
        after the parts of image 1 have traded places. 1 for matches at five places or fewer.
    chance_matches : float
        Size of the matching that such a search typically finds; NaN if nothing was searched.
    parallax_deg : float
        Median angle between the rays of a match, in degrees; NaN without matches.
    low_parallax : bool
        Whether that is too little for a direction of translation.
    rotation_only, planar, planar_twin : float
        Shares, from 0 to 1, of the matches that are explained by the rotation alone, by one plane
        seen with the found pose, and by that plane's second pose; NaN with fewer than 3 matches.
    covariance : (5, 5) float64 ndarray
        Covariance of the pose in radians². The first three are the vector w of a rotation applied
        on the right, ``R exp([w]x)``, that is in the frame of camera 0; the last two move t along
        the rows of `translation_basis`. NaN if the matches do not determine the pose.
    translation_basis : (2, 3) float64 ndarray
        Orthonormal directions across t, in the frame of camera 1. NaN without a pose.
    rotation_sd_deg, translation_sd_deg : float
        Root mean square error of the rotation angle and of the direction of translation that the
        covariance claims, in degrees; infinite if the matches do not determine them.
    noise_px : float
        Estimated noise of a keypoint in pixels, at most twice the threshold; NaN if unknown.
    """

    verdict: Verdict
    reason: str
    num_matches: int
    chance: float
    chance_matches: float
    parallax_deg: float
    low_parallax: bool
    rotation_only: float
    planar: float
    planar_twin: float
    covariance: FloatArray
    translation_basis: FloatArray
    rotation_sd_deg: float
    translation_sd_deg: float
    noise_px: float

    def __str__(self) -> str:
        rows = [f"  {name:<20}{value:<10} {text}" for name, value, text in confidence_rows(self)]
        return "\n".join([verdict_sentence(self), *rows])

    def __repr__(self) -> str:
        return (
            f"Confidence({self.verdict}: {self.num_matches} matches, chance {self.chance:.1e}, "
            f"parallax {self.parallax_deg:.2f} deg, sd {self.rotation_sd_deg:.2g} / "
            f"{self.translation_sd_deg:.2g} deg)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain values for JSON; what is not finite is None."""
        record: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            record[field.name] = _plain(value.tolist() if isinstance(value, np.ndarray) else value)
        return record


def assess(
    graph: AssociationGraph, camera0: CameraLike, camera1: CameraLike, estimate: Estimate
) -> Confidence:
    """Assess how far an estimate can be trusted.

    Parameters
    ----------
    graph : AssociationGraph
        The candidates that the estimate was made from.
    camera0, camera1 : Camera, 3x3 matrix, COLMAP-style dict or pycolmap.Camera
        The cameras that it was made with.
    estimate : Estimate
        Result of `estimate_relative_pose`.

    Returns
    -------
    Confidence
        A function of the arguments alone; randomness comes from `estimate.options.seed`.

    Raises
    ------
    ValueError
        If an argument is not what it should be, or the estimate is one of another graph.

    Examples
    --------
    >>> from manymatch import estimate_relative_pose
    >>> from manymatch.datasets.synthetic import EASY, make_scene
    >>> scene = make_scene(EASY, seed=1)
    >>> estimate = estimate_relative_pose(scene.graph, scene.camera0, scene.camera1)
    >>> assess(scene.graph, scene.camera0, scene.camera1, estimate).verdict
    'solved'
    """
    if not isinstance(estimate, Estimate):
        raise refusal("estimate", "an Estimate", estimate)
    problem = Problem(graph, camera0, camera1, None, estimate.options, "")
    if len(estimate.inliers) != graph.num_edges:
        raise ValueError(
            f"estimate must be one of this graph of {graph.num_edges} edges, got one of "
            f"{len(estimate.inliers)} edges"
        )
    pose, matches = estimate.pose, estimate.matches
    shape, places = Planarity(math.nan, math.nan, math.nan), 0
    spread = PoseCovariance(
        np.full((5, 5), math.nan), np.full((2, 3), math.nan), math.nan, math.inf, math.inf
    )
    if pose is not None:
        x0, x1 = _distinct(problem.x0[matches[:, 0]], problem.x1[matches[:, 1]])
        places = len(x0)
        distances = problem.distances(pose.R, pose.t)
        in_front = distances[np.isfinite(distances)]
        spread = pose_covariance(x0, x1, pose, problem.eps, in_front)
        shape = planarity(x0, x1, pose, problem.eps, estimate.options.seed)
    chance, typical = chance_of_matching(problem, estimate, places)
    verdict, reason = _judge(estimate, places, chance, typical, shape, spread)
    return Confidence(
        verdict=verdict,
        reason=reason,
        num_matches=len(matches),
        chance=chance,
        chance_matches=typical,
        parallax_deg=estimate.parallax_deg,
        low_parallax=estimate.low_parallax,
        rotation_only=shape.rotation,
        planar=shape.plane,
        planar_twin=shape.twin,
        covariance=read_only(spread.matrix),
        translation_basis=read_only(spread.basis),
        rotation_sd_deg=math.degrees(spread.rotation_sd),
        translation_sd_deg=math.degrees(spread.translation_sd),
        noise_px=spread.noise / problem.eps * estimate.options.threshold_px,
    )


def _distinct(x0: FloatArray, x1: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Leave one of several matches between the same two places, in order."""
    first = np.sort(np.unique(np.column_stack([x0, x1]), axis=0, return_index=True)[1])
    return np.ascontiguousarray(x0[first]), np.ascontiguousarray(x1[first])


def _judge(
    estimate: Estimate,
    places: int,
    chance: float,
    typical: float,
    shape: Planarity,
    spread: PoseCovariance,
) -> tuple[Verdict, str]:
    """Verdict and its reason; what says most against the estimate comes first."""
    count = len(estimate.matches)
    if estimate.pose is None:
        return "failed", f"No pose was found: {estimate.failure}."
    if places <= SAMPLE:
        return "weak", (
            f"The number of distinct matches is {places}, and a pose can be fitted to any {SAMPLE}."
        )
    if chance > CHANCE_LIMIT:
        return "weak", (
            f"{count} matches could arise by chance: about {typical:.0f} do at random, {count} "
            f"with probability {chance:.1e}."
        )
    if estimate.low_parallax or shape.rotation >= DEGENERATE_SHARE:
        return "degenerate", (
            f"The camera hardly moved, the rays of the matches meet at only "
            f"{estimate.parallax_deg:.2f}°: trust the rotation, not the direction of translation."
        )
    if shape.plane >= DEGENERATE_SHARE and shape.twin >= DEGENERATE_SHARE:
        return "degenerate", (
            f"{100.0 * shape.plane:.0f} % of the matches lie on one plane, and a second pose "
            f"explains {100.0 * shape.twin:.0f} % of them as well."
        )
    if not 2.0 * math.degrees(max(spread.rotation_sd, spread.translation_sd)) <= ERROR_LIMIT_DEG:
        return "weak", (
            f"The matches hardly determine the pose: its standard deviation is "
            f"{angle(math.degrees(spread.rotation_sd))} in rotation and "
            f"{angle(math.degrees(spread.translation_sd))} in the direction of translation."
        )
    return "solved", f"{count} matches agree on one pose, where about {typical:.0f} do at random."


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
