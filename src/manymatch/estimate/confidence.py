"""Confidence in an estimate: the probability that it is right, covariance, and a verdict."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from manymatch._validate import FloatArray, count, read_only, refusal
from manymatch.estimate.evidence import ERROR_LIMIT_DEG, PARTS, Evidence, PartConfidence, evidence
from manymatch.estimate.homography import HomographyEstimate, estimate_homography
from manymatch.estimate.many import PROBLEMS
from manymatch.estimate.relative_pose import RelativePoseEstimate
from manymatch.estimate.result import Alternative, Estimate, PoseEstimate, plain
from manymatch.estimate.words import (
    NOTHING,
    RELIABLE,
    angle,
    confidence_rows,
    probability_digits,
    probability_text,
    verdict_sentence,
)
from manymatch.options import THRESHOLDS_PX

if TYPE_CHECKING:
    from manymatch.estimate.uncertainty import Covariance

Verdict: TypeAlias = Literal[
    "solved", "likely", "uncertain", "ambiguous", "degenerate", "planar", "no match", "failed"
]

# Least probabilities of the verdicts "likely" and "solved".
LIKELY, SOLVED = 0.7, 0.9
# If the geometry is right with a smaller probability than this, the verdict is "no match".
NO_MATCH = 0.2
# Least probability of all other poses, beside the chosen one, for the verdict "ambiguous".
AMBIGUOUS = 0.35
# The same of another motion: which of two motions is the camera's cannot be seen.
AMBIGUOUS_MOTION = 0.2
# With this probability the geometry counts as right, and its error as below the limit.
DETERMINED = 0.5
# Share of the matches that a rotation has to explain for the pose to count as degenerate.
DEGENERATE_SHARE = 0.9
# A homography is tried if a plane explains this share of the matches and their rays meet at this
# angle or more (with less parallax everything looks flat), with this threshold in thresholds of
# the pose.
PLANAR_SHARE, PLANAR_PARALLAX_DEG, PLANAR_THRESHOLD = 0.65, 2.0, 2.0
# An angle between rays below this is named as the reason why a direction is open.
LITTLE_PARALLAX_DEG = 5.0


@dataclasses.dataclass(frozen=True, eq=False)
class Confidence:
    """How far an estimate can be trusted.

    Fields that only a relative pose has are NaN for other problems.

    Attributes
    ----------
    verdict : str
        "solved" and "likely": right with a probability of at least 0.9 and 0.7; at most "likely"
        where the images do not determine an unknown focal length. "ambiguous": a
        second pose explains the matches nearly as well. "degenerate": the geometry is right, but
        the matches leave the rotation, the direction of translation or both open; `rotation` and
        `translation` say what is known. "planar": the
        images match and show something flat, which leaves the pose open; `homography` maps one to
        the other. "no match": no more matches agree than chance would give. "failed": there is no
        pose. "uncertain": none of these.
    reason : str
        The verdict's reason, one sentence.
    num_matches : int
        Resolved matches.
    pose_probability : float
        Probability that rotation and direction of translation are off by less than 5 degrees; 0
        for matches at five places or fewer, and without a pose.
    log_odds : float
        ``log(p / (1 - p))`` of that probability, which orders pairs whose probability rounds to 1;
        minus infinity for 0.
    rotation, translation : PartConfidence or None
        Probability and standard deviation of the rotation alone, and of the direction of
        translation (of the centre of an absolute pose) alone; None for problems without a pose.
    alternative_probabilities : tuple of float
        The same for each of `Estimate.alternatives`.
    other_motion : Alternative or None
        A second motion, of other keypoints than those matched, as of an object that turns in front
        of a background; its probability is that it is the camera's motion. For relative poses.
    homography : (3, 3) float64 ndarray or None
        If the verdict is "planar": the map between pixels, ``x1 ~ H x0`` with ``H[2, 2] = 1``.
    parallax_deg, low_parallax : float and bool
        Median angle between the rays of a match in degrees, NaN without matches, and whether that
        is too little for a direction of translation.
    rotation_only, planar, planar_twin : float
        Shares, from 0 to 1, of the matches that are explained by the rotation alone, by one plane
        seen with the found pose, and by that plane's second pose; NaN with fewer than 3 matches.
    covariance : (5, 5) float64 ndarray, or (Q, Q) for other problems
        Covariance of a relative pose in radians². The first three numbers are the vector w of a
        rotation applied on the right, ``R exp([w]x)``, that is in the frame of camera 0; the last
        two move t along the rows of `translation_basis`. NaN if the matches do not determine the
        pose. benchmarks/results/confidence.md has the numbers of other problems.
    translation_basis : (2, 3) float64 ndarray
        Orthonormal directions across t, in the frame of camera 1. NaN without a pose.
    noise_px : float
        Estimated noise of a keypoint in pixels, at most twice the threshold; NaN if unknown. For
        problems in space, that of a point in its unit.
    problem : str
        As in `Estimate`.
    error_sd : float
        For other problems than a relative pose: root mean square error that the covariance claims,
        over the largest error that counts as right; infinite if the matches do not determine it.
    """

    verdict: Verdict
    reason: str
    num_matches: int
    pose_probability: float
    log_odds: float
    parallax_deg: float
    low_parallax: bool
    rotation_only: float
    planar: float
    planar_twin: float
    covariance: FloatArray
    translation_basis: FloatArray
    noise_px: float
    problem: str = "relative"
    error_sd: float = math.nan
    rotation: PartConfidence | None = None
    translation: PartConfidence | None = None
    alternative_probabilities: tuple[float, ...] = ()
    other_motion: Alternative | None = None
    homography: FloatArray | None = None

    def __str__(self) -> str:
        rows = [f"  {name:<20}{value:<10} {text}" for name, value, text in confidence_rows(self)]
        return "\n".join([verdict_sentence(self), *rows])

    def __repr__(self) -> str:
        text = f"{self.verdict}: {count(self.num_matches, 'match', 'matches')}, right with "
        text += f"probability {probability_digits(self.pose_probability)}"
        if self.problem == "relative":
            text += f", parallax {self.parallax_deg:.2f} deg"
        if self.rotation is not None and self.translation is not None:
            text += f", sd {self.rotation.sd_deg:.2g} / {self.translation.sd_deg:.2g} deg"
        return f"Confidence({text})"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as values for JSON; numbers that are not finite are None.

        Those of `rotation` and `translation` are there as ``rotation_probability`` and so on too,
        as the columns of tables are called.
        """
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if self.other_motion is not None:
            fields["other_motion"] = {
                "pose": self.other_motion.model,
                "probability": self.other_motion.probability,
                "matches": self.other_motion.cardinality,
            }
        for name in PARTS:
            part = fields[name]
            if part is not None:
                fields[name] = vars(part)
                fields |= {f"{name}_{key}": value for key, value in vars(part).items()}
        return {name: plain(value) for name, value in fields.items()}


@np.errstate(over="ignore", invalid="ignore")
def assess(estimate: Estimate) -> Confidence:
    """Assess how far an estimate can be trusted.

    Parameters
    ----------
    estimate : Estimate
        Result of `estimate_relative_pose` or of another problem; anything else is a `ValueError`.

    Returns
    -------
    Confidence
        A function of the estimate alone; randomness comes from `estimate.options.seed`.

    Examples
    --------
    >>> from manymatch import estimate_relative_pose
    >>> from manymatch_lab.datasets.synthetic import EASY, make_scene
    >>> scene = make_scene(EASY, seed=1)
    >>> assess(estimate_relative_pose(scene.graph, scene.camera0, scene.camera1)).verdict
    'solved'
    """
    if not isinstance(estimate, Estimate):
        raise refusal("estimate", "an Estimate", estimate)
    known = evidence(estimate)
    verdict, reason = _judge(estimate, known)
    if known.motion is not None and verdict not in NOTHING:
        matches = count(known.motion.cardinality, "match", "matches")
        reason = f"{reason[:-1]}; another motion with {matches} may be the camera's."
    homography = None
    if verdict not in (*RELIABLE, "failed") and (plane := _homography(estimate, known)) is not None:
        homography, matches = plane.homography, count(len(plane.matches), "match", "matches")
        verdict = "planar"
        flat = "but what they show is flat, which leaves the pose open; a homography fits"
        reason = f"The images match ({matches}), {flat}."
    shape, spread, noise = known.shape, known.spread, estimate.length("noise")
    return Confidence(
        verdict=verdict,
        reason=reason,
        num_matches=len(estimate.matches),
        pose_probability=known.right,
        log_odds=known.log_odds,
        parallax_deg=getattr(estimate, "parallax_deg", math.nan),
        low_parallax=getattr(estimate, "low_parallax", False),
        rotation_only=shape.rotation,
        planar=shape.plane,
        planar_twin=shape.twin,
        covariance=read_only(spread.matrix),
        translation_basis=read_only(spread.basis),
        noise_px=noise if math.isfinite(noise) else spread.noise,
        problem=estimate.problem,
        error_sd=spread.error_sd,
        **{name: known.part(name) for name in PARTS},
        alternative_probabilities=tuple(
            known.geometry * known.accurate * other.probability for other in estimate.alternatives
        ),
        other_motion=known.motion,
        homography=homography,
    )


def _judge(estimate: Estimate, known: Evidence) -> tuple[Verdict, str]:
    """Return the verdict and its reason, which names the number that decided."""
    problem = PROBLEMS[estimate.problem].of(estimate._pair)  # noqa: SLF001
    noun, size, other = problem.noun, problem.sample_size, known.rival
    pose = estimate if isinstance(estimate, RelativePoseEstimate) else None
    if not estimate.success:
        return "failed", f"No {noun} was found: {estimate.failure.rstrip('.')}."
    if known.places <= size:
        few = f"The number of distinct matches is {known.places}"
        most = 2 * len(estimate.matches) >= estimate.inliers.size
        verdict: Verdict = "uncertain" if most else "no match"
        return verdict, f"{few}, and a {noun} can be fitted to any {size}."
    agree = f"{count(len(estimate.matches), 'match', 'matches')} agree on one {noun}"
    if known.geometry < NO_MATCH:
        return "no match", f"{agree}, no more than chance would give."
    sure = f"right ({problem.limit}) with probability {probability_text(known.right)}"
    if known.geometry >= DETERMINED:
        if known.motion is not None and known.motion.probability >= AMBIGUOUS_MOTION:
            return "ambiguous", f"{agree}, which is only {sure}."
        if pose and (pose.low_parallax or known.shape.rotation >= DEGENERATE_SHARE):
            return "degenerate", _determined(known.spread, pose.parallax_deg)
        if known.accurate < DETERMINED:
            hardly = f"The matches hardly determine the {noun}."
            return "degenerate", _determined(known.spread, pose.parallax_deg) if pose else hardly
        if other.any >= AMBIGUOUS:
            which = f", {angle(other.apart_deg)} away," if pose else ""
            theirs = probability_text(known.geometry * known.accurate * other.probability)
            return "ambiguous", (
                f"The matches fit more than one {noun}: this one is {sure}, another{which} with "
                f"{theirs}."
            )
    if known.right < LIKELY:
        return "uncertain", f"{agree}, which is only {sure}."
    if isinstance(estimate, PoseEstimate) and estimate.focal_vague:
        lengths = "focal lengths" if sum(map(bool, estimate.focal_sd_px)) > 1 else "focal length"
        return "likely", f"{agree}, which is {sure}, though the images leave the {lengths} open."
    return ("solved" if known.right >= SOLVED else "likely"), f"{agree}, which is {sure}."


def _homography(estimate: Estimate, known: Evidence) -> HomographyEstimate | None:
    """Return the homography between images of a plane; None if it cannot be relied on either."""
    if (
        not isinstance(estimate, RelativePoseEstimate)
        or estimate.parallax_deg < PLANAR_PARALLAX_DEG
    ):
        return None
    if not known.shape.plane >= PLANAR_SHARE or known.shape.rotation >= DEGENERATE_SHARE:
        return None
    threshold = min(PLANAR_THRESHOLD * estimate.threshold_px, THRESHOLDS_PX[1])
    options = estimate.options.replace(threshold_px=threshold)
    method: Any = estimate.method
    found = estimate_homography(estimate._pair.graph, method, options)  # noqa: SLF001
    return found if assess(found).verdict in RELIABLE else None


def _determined(spread: Covariance, parallax_deg: float) -> str:
    """Say what the matches determine, and how well; a direction is open for want of parallax."""
    turn, move = math.degrees(spread.rotation_sd), math.degrees(spread.translation_sd)
    known = [
        f"{name} is known to ±{angle(deviation)}"
        for name, deviation in (("rotation", turn), ("direction of translation", move))
        if deviation <= ERROR_LIMIT_DEG
    ]
    if turn <= ERROR_LIMIT_DEG:
        within = f" (±{angle(move)})" if math.isfinite(move) else ""
        few = f": the rays of the matches meet at only {angle(parallax_deg)}"
        few = few if parallax_deg < LITTLE_PARALLAX_DEG else ""
        return f"The {known[0]}, the direction of translation is open{within}{few}."
    within = f" (±{angle(turn)})" if math.isfinite(turn) else ""
    if known:
        return f"The {known[0]}, the rotation is open{within}."
    return f"The rotation{within} and the direction of translation are open."
