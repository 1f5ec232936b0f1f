"""Results in words and in rows of tables, for ``print``, the commands and the report.

A relative pose is described as camera 0 sees it: x right, y down, z forward.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import count
from manymatch.estimate.many import PROBLEMS
from manymatch.estimate.result import Alternative, Estimate, PoseEstimate
from manymatch.geometry.pose import AbsolutePose, RelativePose

if TYPE_CHECKING:
    from collections.abc import Iterable

    from manymatch._validate import BoolArray, FloatArray
    from manymatch.estimate.confidence import Confidence
    from manymatch.estimate.problem import GeometricProblem
    from manymatch.graph import AssociationGraph

#: Verdicts on a pose that can be relied on. For other verdicts, statements that only hold if the
#: pose is right are left out, such as how many of the matches are.
RELIABLE = ("solved", "likely")
#: Verdicts without a result: no pose is described, and no match is drawn.
NOTHING = ("no match", "failed")
#: How the sentence on a pose that cannot be relied on begins.
GUESS = "Best guess:"
# First sentence of a page about a pose with another verdict.
_SHORTCOMINGS = {
    "ambiguous": "More than one pose explains the matches.",
    "degenerate": "The pose is not fully determined.",
    "planar": "The images match, but what they show is flat.",
}
#: Methods of an estimator by name, as a command shows them.
METHOD_TITLES = {
    "auto": "auto, two stages with rank and motion as evidence for every candidate",
    "hcm-mcm": "hcm-mcm, the paper's two-stage estimator",
    "hcm": "hcm, harmonic consensus maximization",
    "mcm": "mcm, matching cardinality maximization",
    "cm": "cm, consensus of independent correspondences",
}
#: Headings of `comparison_rows`; the last one only where the true pose is known.
COMPARISON_HEADINGS = ("system", "candidates", "inliers", "matches", "rotation °", "pose error °")

# A direction within 15 degrees of an axis is "close to" it; parts smaller than a quarter of the
# whole (15 degrees out of the plane of the others) are not mentioned.
_CLOSE = float(np.cos(np.radians(15.0)))
_SMALLEST_PART = 0.25
_NO_TURN_DEG = 0.05
# From here on, a turn to the left is nearly one to the right.
_HALF_TURN_DEG = 179.5
# What a positive and a negative turn about x (right), y (down) and z (forward) do to the view.
_TURNS = (("up", "down"), ("to the right", "to the left"), ("clockwise", "counter-clockwise"))
_MOVES = (("to the right", "to the left"), ("down", "up"), ("forward", "backward"))


def verdict_sentence(confidence: Confidence) -> str:
    """Return the verdict and its reason, such as "Likely: the pose is right with ..."."""
    return f"{confidence.verdict.capitalize()}: {confidence.reason}"


def model_sentence(estimate: Estimate, confidence: Confidence | None = None) -> str:
    """Return what was found in one sentence, or why nothing was.

    The direction of a relative pose with low parallax is left out unless it can be relied on.
    """
    if not estimate.success:
        return f"No solution was found: {estimate.failure.rstrip('.')}."
    model: Any = estimate.model
    if isinstance(model, RelativePose):
        reliable = confidence is not None and confidence.verdict in RELIABLE
        if getattr(estimate, "low_parallax", False) and not reliable:
            turned = describe_rotation(model)
            return f"Camera 1 is {turned}; in which direction it moved cannot be determined."
        return f"Camera 1 is {describe_pose(model)}."
    said = PROBLEMS[estimate.problem].clause or _described(model)
    return f"{said[0].upper()}{said[1:]}."


def focal_texts(estimate: Estimate) -> dict[int, str]:
    """Return the focal lengths that were unknown by the number of their image: "912 ± 25 px".

    A focal length that both images share is listed for image 0.
    """
    if not isinstance(estimate, PoseEstimate) or not estimate.focal_sd_px:
        return {}
    both = enumerate(zip(estimate.cameras, estimate.focal_sd_px, strict=True))
    found = {
        side: f"{camera.focal:.0f} ± {deviation:.{0 if deviation >= 1.0 else 1}f} px"
        for side, (camera, deviation) in both
        if deviation > 0.0
    }
    if found.get(0) == found.get(1):
        found.pop(1, None)
    return found


def focal_sentences(estimate: Estimate, confidence: Confidence | None = None) -> list[str]:
    """Say which focal lengths were found with the pose, or assumed; nothing if all are known.

    They are called found only if the pose can be relied on.
    """
    found = focal_texts(estimate)
    if not found or not isinstance(estimate, PoseEstimate):
        return []
    name, it = ("Focal lengths", "them") if len(found) > 1 else ("Focal length", "it")
    if 0.0 in estimate.focal_sd_px:
        name = f"Focal length of image {next(iter(found))}"
    values = " and ".join(found.values())
    images = "image does" if estimate.problem == "absolute" else "two images do"
    if estimate.focal_determined and not _relied_on(confidence):
        return [f"{name} with this pose: {values}."]
    if estimate.focal_determined:
        return [f"{name} found: {values} (from the {images.rsplit(' ', 1)[0]})."]
    if not estimate.focal_vague:
        return [f"{name} as given: {values}. The {images} not determine {it} better."]
    only = "and the pose is only as good as that"
    return [f"{name} assumed: {values}. The {images} not determine {it}, {only}."]


def _alternative_sentence(
    other: Alternative, probability: float, problem: GeometricProblem[Any]
) -> str:
    """Return another model of an estimate in one sentence, with its probability and matches."""
    matches = count(len(other.matches), "match", "matches")
    said = f"another {problem.noun}" if problem.clause else _described(other.model)
    return f"Or {said} ({probability_text(probability)}, {matches})."


def _described(model: Any) -> str:
    """Describe a pose, or a transform (4, 4) of points 0 to points 1, as a clause."""
    if isinstance(model, RelativePose):
        return f"camera 1 is {describe_pose(model)}"
    if isinstance(model, AbsolutePose):
        return f"the camera is at {_triple(model.center)} and looks along {_triple(model.R[2])}"
    scale = float(np.cbrt(np.linalg.det(model[:3, :3])))
    turn = RelativePose(model[:3, :3] / scale, (0.0, 0.0, 1.0))
    scaled = "" if abs(scale - 1.0) < 1e-9 else f"scaled by {scale:.4g}, "
    turned = f"turned {turn.angle_deg:.2f}° about {_triple(turn.axis)}"
    if turn.angle_deg < _NO_TURN_DEG:
        turned = "not turned"
    return f"points 0 are {scaled}{turned} and moved by {_triple(model[:3, 3])} onto points 1"


def headline(estimate: Estimate, confidence: Confidence) -> tuple[str, list[str]]:
    """Return what a page about a pose says first, and the sentences below it.

    A pose that cannot be relied on comes after its shortcoming.
    """
    if confidence.verdict == "no match":
        return "The images do not match.", [confidence.reason]
    said = model_sentence(estimate, confidence)
    if not isinstance(estimate.model, RelativePose):
        return said, []
    focal = focal_sentences(estimate, confidence)
    if confidence.verdict in RELIABLE:
        return said, [confidence.reason, *focal]
    first = _SHORTCOMINGS.get(confidence.verdict, "The pose is uncertain.")
    if confidence.verdict == "planar":
        return first, [confidence.reason]
    return first, [confidence.reason, f"{GUESS} {said[0].lower()}{said[1:]}", *focal]


def camera_centre(pose: RelativePose) -> FloatArray:
    """Return where camera 1 stands in the frame of camera 0, (3,), unit length."""
    centre: FloatArray = -pose.R.T @ pose.t
    return centre


def describe_rotation(pose: RelativePose) -> str:
    """Describe how camera 1 is turned: "turned 23.4° to the left, axis (0.02, -0.99, 0.12)".

    The axis is in the frame of camera 0; the turn is right-handed about it. Clockwise is as seen by
    somebody who stands behind the camera.
    """
    angle_deg = pose.angle_deg
    if angle_deg < _NO_TURN_DEG:
        return "not turned"
    # The camera turns by the transpose of R, which turns about the same axis the other way.
    axis = -pose.axis
    side = "half around" if angle_deg >= _HALF_TURN_DEG else _direction(axis, _TURNS)
    return f"turned {angle_deg:.1f}° {side}, axis {_unit_vector(axis)}"


def describe_translation(pose: RelativePose) -> str:
    """Describe where camera 1 stands, such as "moved to the right, direction (0.99, -0.10, 0.05)".

    The direction is in the frame of camera 0.
    """
    centre = camera_centre(pose)
    return f"moved {_direction(centre, _MOVES)}, direction {_unit_vector(centre)}"


def describe_pose(pose: RelativePose) -> str:
    """Describe rotation and translation in one phrase whose subject is camera 1."""
    return f"{describe_rotation(pose)}, and {describe_translation(pose)}"


def _unit_vector(vector: FloatArray) -> str:
    return f"({', '.join(f'{value:z.2f}' for value in vector)})"


def _triple(vector: FloatArray) -> str:
    """Return a vector with four digits each; round-off beside the largest entry is 0."""
    rounded = np.where(np.abs(vector) > 1e-6 * np.abs(vector).max(), vector, 0.0)
    return f"({', '.join(f'{value:.4g}' for value in rounded)})"


def _direction(vector: FloatArray, words: tuple[tuple[str, str], ...]) -> str:
    """Return the words of all components that matter, the largest first; one close to an axis."""
    order = np.argsort(-np.abs(vector), kind="stable")
    close = abs(vector[order[0]]) >= _CLOSE
    least = _CLOSE if close else _SMALLEST_PART
    said = [words[k][int(vector[k] < 0)] for k in order if abs(vector[k]) >= least]
    # "Mostly" needs one part that is much larger than the others.
    first, second = np.abs(vector[order[:2]])
    mostly = "mostly " if not close and first > 1.5 * second else ""
    return mostly + " and ".join(filter(None, (", ".join(said[:-1]), said[-1])))


def matches_text(estimate: Estimate, confidence: Confidence | None = None) -> str:
    """Return the number of matches and, of a pose that can be relied on, how many are right."""
    text = count(len(estimate.matches), "one-to-one match", "one-to-one matches")
    probability = estimate.match_probability
    if probability is None or probability.size == 0 or not _relied_on(confidence):
        return text
    right = round(float(probability.sum()))
    return text if right == len(probability) else f"{text} ({right:,} expected to be right)"


def _relied_on(confidence: Confidence | None) -> bool:
    """Whether what holds for the pose can be said; without a verdict nothing speaks against it."""
    return confidence is None or confidence.verdict in RELIABLE


def kept_text(graph: AssociationGraph) -> str:
    """Return how many candidates a graph has: "2,048 candidates of 913 keypoints"."""
    active = int(np.count_nonzero(graph.degrees()[0]))
    return f"{count(graph.num_edges, 'candidate')} of {count(active, 'keypoint')}"


def chosen_text(
    estimate: Estimate,
    graph: AssociationGraph,
    chosen: BoolArray,
    confidence: Confidence | None = None,
) -> str:
    """Return how many matches were `chosen` (E,), out of what, and how many are beyond rank one."""
    matches = matches_text(estimate, confidence)
    text = f"{matches} out of {count(estimate.num_inliers, 'consistent candidate')}"
    if graph.rank is None or not chosen.any():
        return f"{text}."
    later = int(np.count_nonzero(graph.rank[chosen] > 1))
    if later == 0:
        return f"{text}, none beyond rank one."
    return f"{text}; {later:,} of them ({_percent(later / int(chosen.sum()))}) beyond rank one."


def estimate_sentences(
    estimate: Estimate, graph: AssociationGraph, confidence: Confidence | None = None
) -> list[str]:
    """Return verdict (if given), model, and the numbers from keypoints to matches, as sentences.

    If the verdict is "ambiguous", every alternative has a sentence.
    """
    said = [] if confidence is None else [verdict_sentence(confidence)]
    numbers = [keypoints_text(graph), count(graph.num_edges, "candidate")]
    # The reasons of these verdicts already say that there is no pose.
    nothing = confidence is not None and confidence.verdict in NOTHING
    if confidence is None or confidence.verdict not in (*NOTHING, "planar"):
        focal = focal_sentences(estimate, confidence)
        said += [model_sentence(estimate, confidence), *focal]
    if confidence is not None and confidence.verdict == "ambiguous":
        problem = PROBLEMS[estimate.problem]
        both = zip(estimate.alternatives, confidence.alternative_probabilities, strict=True)
        said += [_alternative_sentence(*other, problem) for other in both]
        if (motion := confidence.other_motion) is not None:
            said.append(_alternative_sentence(motion, motion.probability, problem))
    if not nothing:
        inliers = count(estimate.num_inliers, "inlier")
        numbers += [inliers, matches_text(estimate, confidence)]
    measured = "" if nothing else threshold_text(estimate)
    text = f"{', '.join(numbers)}{measured and f'; {measured}'}"
    return [*said, f"Method {estimate.method}: {text}."]


def noise_text(estimate: Estimate) -> str:
    """Return the noise of a keypoint with its uncertainty, "0.31 ± 0.05 px"; empty if unknown."""
    noise, deviation = estimate.length("noise"), estimate.length("noise_sd")
    unit = _unit(estimate.problem)
    if not math.isfinite(noise):
        return ""
    if not (math.isfinite(deviation) and deviation > 0.0):
        return f"{_two_digits(noise)}{unit}"
    # The uncertainty has one digit that counts, and the noise no more behind the point.
    digits = min(6, max(0, -math.floor(math.log10(max(deviation, 1e-6)))))
    return f"{noise:z.{digits}f} ± {deviation:.{digits}f}{unit}"


def _unit(problem: str) -> str:
    """Return the unit of lengths, with the space before it; that of points in space is theirs."""
    return " px" if PROBLEMS[problem].result.length_suffix else ""


def threshold_text(estimate: Estimate) -> str:
    """Return the noise and, where it was chosen automatically, the threshold; may be empty."""
    noise = noise_text(estimate)
    parts = [f"noise {noise}"] if noise else []
    if estimate.success and isinstance(estimate.options.threshold_px, str):
        parts.append(
            f"threshold {_two_digits(estimate.length('threshold'))}{_unit(estimate.problem)}"
        )
    return ", ".join(parts)


def keypoints_text(graph: AssociationGraph) -> str:
    """Return the numbers of keypoints of either image, or of points in space."""
    first, second = len(graph.points0), len(graph.points1)
    if graph.points0.shape[1] == 3:
        return f"{count(first, 'point')} in cloud 0 and {second:,} in cloud 1"
    if graph.points1.shape[1] == 3:
        return f"{count(first, 'keypoint')} in the image and {count(second, 'point')} in the map"
    return f"{count(first, 'keypoint')} in image 0 and {second:,} in image 1"


def confidence_rows(
    confidence: Confidence, estimate: Estimate | None = None
) -> list[tuple[str, str, str]]:
    """Return name, value and explanation of the numbers behind a verdict; none without a result."""
    if confidence.verdict in NOTHING:
        return []
    name = "Pose" if confidence.problem in ("relative", "absolute") else "Model"
    right = f"probability to be right ({PROBLEMS[confidence.problem].limit})"
    rows = [(name, probability_text(confidence.pose_probability), right)]
    if estimate is not None and estimate.match_probability is not None and _relied_on(confidence):
        mean = float(estimate.match_probability.mean()) if len(estimate.matches) else math.nan
        rows.append(("A match", probability_text(mean), "mean probability to be right"))
    moved = "Direction of motion" if confidence.problem == "relative" else "Place"
    for label, part in (("Rotation", confidence.rotation), (moved, confidence.translation)):
        if part is not None:
            known = math.isfinite(part.sd_deg)
            share = probability_text(part.probability)
            explained = f"standard deviation; right with probability {share}"
            if not known:
                explained = "the matches do not determine it"
            rows.append((label, f"±{angle(part.sd_deg)}" if known else "unknown", explained))
    if confidence.problem == "relative":
        rows += _pose_rows(confidence)
    if isinstance(estimate, PoseEstimate) and (focal := focal_texts(estimate)):
        explained = "assumed, not known" if estimate.focal_vague else "as given"
        if estimate.focal_determined:
            explained = "found from the images" if _relied_on(confidence) else "with this pose"
        rows.append(("Focal length", " and ".join(focal.values()), explained))
    noise = "" if estimate is None else noise_text(estimate)
    noise = noise or _number(confidence.noise_px, ".2f", _unit(confidence.problem))
    point = "keypoint" if _unit(confidence.problem) else "point"
    rows.append(("Noise", noise, f"of a {point}, estimated"))
    if estimate is not None and isinstance(estimate.options.threshold_px, str):
        used = f"{_two_digits(estimate.length('threshold'))} px"
        rows.append(("Threshold", used, "chosen automatically"))
    return rows


def _pose_rows(confidence: Confidence) -> list[tuple[str, str, str]]:
    """Return the rows that only a relative pose has."""
    low = ", which is low" if confidence.low_parallax else ""
    explained = f"median angle between the rays of a match{low}"
    rows = [("Parallax", _number(confidence.parallax_deg, ".2f", "°"), explained)]
    rows.append(("One plane", _percent(confidence.planar), "of the matches lie on it"))
    explained = "of the matches agree with a rotation alone"
    rows.append(("No motion", _percent(confidence.rotation_only), explained))
    return rows


def comparison_rows(
    systems: Iterable[tuple[str, Estimate]], errors_deg: Iterable[float | None] | None = None
) -> list[list[str]]:
    """Return a row of `COMPARISON_HEADINGS` for every named system, with pose errors if given."""
    rows = []
    for name, estimate in systems:
        pose = estimate.model
        turned = f"{pose.angle_deg:.2f}" if isinstance(pose, RelativePose) else "-"
        counts = estimate.inliers.size, estimate.num_inliers, len(estimate.matches)
        rows.append([name, *(f"{number:,}" for number in counts), turned])
    if errors_deg is not None:
        for row, error in zip(rows, errors_deg, strict=True):
            row.append("-" if error is None else f"{error:.2f}")
    return rows


def angle(degrees: float) -> str:
    """Return an angle with two significant digits and no exponent."""
    return f"{_two_digits(degrees)}°" if math.isfinite(degrees) else "unknown"


def _two_digits(value: float) -> str:
    """Round to two significant digits, at most six of them behind the point."""
    if value < 1e-6:
        return "0"
    return f"{value:.{min(6, max(0, 1 - math.floor(math.log10(value))))}f}"


def probability_text(probability: float) -> str:
    """Return a probability in percent, with more digits towards certainty: "99.993 %".

    Nothing is called certain or impossible.
    """
    if not math.isfinite(probability):
        return "unknown"
    if probability < 0.01:
        return "less than 1 %"
    if probability > 1.0 - 1e-6:
        return "more than 99.9999 %"
    percent = 100.0 * probability
    if probability <= 0.99:
        return f"{percent:.0f} %"
    return f"{_below(percent, -math.floor(math.log10(100.0 - percent)))} %"


def probability_digits(probability: float) -> str:
    """Return a probability with two digits, and more towards 1: 0.85, 0.9993."""
    if 0.99 < probability < 1.0:
        return _below(probability, -math.floor(math.log10(1.0 - probability)))
    return f"{probability:.2f}"


def _below(value: float, digits: int) -> str:
    """Cut a number off after some digits, so that it is not rounded up to certainty."""
    return f"{math.floor(value * 10.0**digits) / 10.0**digits:.{digits}f}"


def _percent(share: float) -> str:
    return _number(100.0 * share, ".0f", " %")


def _number(value: float, form: str, unit: str) -> str:
    return f"{value:z{form}}{unit}" if math.isfinite(value) else "unknown"
