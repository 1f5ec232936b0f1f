"""Results in words and in rows of tables.

This is the only module that words a verdict, a pose or the numbers of an estimate; ``print``, the
commands and the report show what it returns.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from manymatch.geometry.pose_words import describe_pose, describe_rotation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from manymatch.estimate.confidence import Confidence
    from manymatch.estimate.result import Estimate
    from manymatch.graph import AssociationGraph

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")

#: Headings of `comparison_rows`; the last one only where the true pose is known.
COMPARISON_HEADINGS = ("system", "candidates", "inliers", "matches", "rotation °", "pose error °")


def count(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun: "1 match", "2,048 matches"."""
    noun = singular if number == 1 else plural or f"{singular}s"
    return f"{number:,} {noun}"


def verdict_sentence(confidence: Confidence) -> str:
    """Return the verdict and its reason, such as "Solved: 62 matches agree on one pose, ..."."""
    return f"{confidence.verdict.capitalize()}: {confidence.reason}"


def model_sentence(estimate: Estimate) -> str:
    """Return the pose (or that it is a homography) in one sentence, or why there is none."""
    if not estimate.success:
        return f"No solution was found: {estimate.failure.rstrip('.')}."
    if estimate.pose is None:
        return "A homography maps image 0 to image 1."
    if estimate.low_parallax:
        turned = describe_rotation(estimate.pose)
        return f"Camera 1 is {turned}; in which direction it moved cannot be determined."
    return f"Camera 1 is {describe_pose(estimate.pose)}."


def matches_text(estimate: Estimate) -> str:
    """Return the number of matches and, where probabilities are known, how many are right."""
    text = count(len(estimate.matches), "one-to-one match", "one-to-one matches")
    probability = estimate.match_probability
    if probability is None or probability.size == 0:
        return text
    return f"{text} ({round(float(probability.sum())):,} expected to be right)"


def estimate_sentences(
    estimate: Estimate, graph: AssociationGraph, confidence: Confidence | None = None
) -> list[str]:
    """Return verdict (if given), model, and the numbers from keypoints to matches, as sentences."""
    said = [] if confidence is None else [verdict_sentence(confidence)]
    # The reason of the verdict "failed" already says that there is no pose.
    if confidence is None or estimate.success:
        said.append(model_sentence(estimate))
    return [
        *said,
        f"{len(graph.points0):,} and {count(len(graph.points1), 'keypoint')}, "
        f"{count(graph.num_edges, 'candidate')}, {count(estimate.num_inliers, 'inlier')}, "
        f"{matches_text(estimate)}.",
    ]


def confidence_rows(
    confidence: Confidence, estimate: Estimate | None = None
) -> list[tuple[str, str, str]]:
    """Return name, value and explanation of the numbers behind a verdict.

    Parameters
    ----------
    confidence : Confidence
        Of the estimate. A failed one has no rows.
    estimate : Estimate, optional
        Adds the mean probability of its matches, where it has them.
    """
    if confidence.verdict == "failed":
        return []
    explained = "that a matching as large arises at random"
    if math.isfinite(confidence.chance_matches):
        explained += f", where about {confidence.chance_matches:.0f} matches are usual"
    rows = [("Chance", _chance(confidence.chance), explained)]
    if estimate is not None and estimate.match_probability is not None:
        mean = float(estimate.match_probability.mean()) if len(estimate.matches) else math.nan
        rows.append(("A match", _percent(mean), "mean probability to be right"))
    low = ", which is low" if confidence.low_parallax else ""
    explained = f"median angle between the rays of a match{low}"
    rows.append(("Parallax", _number(confidence.parallax_deg, ".2f", "°"), explained))
    for name, deviation in (
        ("Rotation", confidence.rotation_sd_deg),
        ("Direction of motion", confidence.translation_sd_deg),
    ):
        known = math.isfinite(deviation)
        explained = "standard deviation" if known else "the matches do not determine it"
        rows.append((name, f"±{angle(deviation)}" if known else "unknown", explained))
    rows.append(("One plane", _percent(confidence.planar), "of the matches lie on it"))
    explained = "of the matches agree with a rotation alone"
    rows.append(("No motion", _percent(confidence.rotation_only), explained))
    rows.append(("Noise", _number(confidence.noise_px, ".2f", " px"), "of a keypoint, estimated"))
    return rows


def comparison_rows(
    systems: Iterable[tuple[str, Estimate]], errors_deg: Iterable[float | None] | None = None
) -> list[list[str]]:
    """Return a row of `COMPARISON_HEADINGS` for every system.

    Parameters
    ----------
    systems : iterable of (str, Estimate)
        Name and result.
    errors_deg : iterable of float or None, optional
        Pose error of each system; without it the rows have no such column.
    """
    rows = []
    for name, estimate in systems:
        turned = "-" if estimate.pose is None else f"{estimate.pose.angle_deg:.2f}"
        counts = estimate.inliers.size, estimate.num_inliers, len(estimate.matches)
        rows.append([name, *(f"{number:,}" for number in counts), turned])
    if errors_deg is not None:
        for row, error in zip(rows, errors_deg, strict=True):
            row.append("-" if error is None else f"{error:.2f}")
    return rows


def angle(degrees: float) -> str:
    """Return an angle with two significant digits and no exponent."""
    if not math.isfinite(degrees):
        return "unknown"
    digits = 2 if degrees <= 0.0 else min(6, max(0, 1 - math.floor(math.log10(degrees))))
    return f"{degrees:.{digits}f}°"


def _chance(probability: float) -> str:
    """Return a probability, however small."""
    if not math.isfinite(probability):
        return "unknown"
    if probability >= 0.001:
        return f"{100.0 * probability:.2g} %"
    if probability <= 0.0:
        return "practically none"
    power = str(-math.ceil(math.log10(probability))).translate(_SUPERSCRIPTS)
    return f"1 in 10{power}"


def _percent(share: float) -> str:
    return _number(100.0 * share, ".0f", " %")


def _number(value: float, form: str, unit: str) -> str:
    return f"{value:{form}}{unit}" if math.isfinite(value) else "unknown"
