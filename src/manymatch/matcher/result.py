"""What a matcher found for one pair: numbers, words, a picture, a report, files."""

from __future__ import annotations

import dataclasses
import platform
from typing import TYPE_CHECKING, Any

from manymatch.geometry.pose_words import describe_pose

if TYPE_CHECKING:
    import os

    import numpy as np
    from numpy.typing import NDArray

    from manymatch._validate import FloatArray
    from manymatch.estimate.confidence import Confidence
    from manymatch.estimate.relative_pose import Estimate
    from manymatch.geometry.camera import Camera
    from manymatch.graph import AssociationGraph
    from manymatch.matcher.config import MatcherConfig


@dataclasses.dataclass(frozen=True, eq=False)
class Rival:
    """Another way of matching the same pair, for comparison; its error where the truth is known."""

    name: str
    graph: AssociationGraph
    estimate: Estimate
    error_deg: float | None = None


@dataclasses.dataclass(eq=False)
class MatchResult:
    """Candidates, pose and matches of one pair.

    Attributes
    ----------
    graph : AssociationGraph
        Keypoints, in pixels of the images as given, and the candidates that were kept.
    estimate : Estimate
        Pose, inliers, 1-to-1 matches. ``estimate.options.threshold_px`` is in pixels of the images
        as given, so that ``score_pose`` with it and ``graph`` reproduces the scores.
    confidence : Confidence
        How sure: verdict, chance, parallax, covariance.
    counts : dict of str to int
        What each step of the association kept.
    camera0, camera1 : Camera
        For the images as given.
    size0, size1 : (int, int)
        Width and height of the images as given.
    config : MatcherConfig
        What it was made with.
    notes : list of str
        What one should know: which preset and why, where the cameras come from.
    rivals : list of Rival
        Other ways to match the pair, where asked for.
    timing : dict of str to float
        Seconds by stage.
    images : pair of (H, W, 3) uint8 arrays or None
        The images, for the picture and the report.
    names : (str, str)
        Their names.
    """

    graph: AssociationGraph
    estimate: Estimate
    confidence: Confidence
    counts: dict[str, int]
    camera0: Camera
    camera1: Camera
    size0: tuple[int, int]
    size1: tuple[int, int]
    config: MatcherConfig
    notes: list[str]
    rivals: list[Rival]
    timing: dict[str, float]
    images: tuple[NDArray[np.uint8], NDArray[np.uint8]] | None = None
    names: tuple[str, str] = ("image0", "image1")

    @property
    def keypoints0(self) -> FloatArray:
        """Keypoints of image 0, (N0, 2) pixels (x, y)."""
        return self.graph.points0

    @property
    def keypoints1(self) -> FloatArray:
        """Keypoints of image 1, (N1, 2) pixels (x, y)."""
        return self.graph.points1

    @property
    def matched_points(self) -> tuple[FloatArray, FloatArray]:
        """Pixels of the 1-to-1 matches in either image, (M, 2) each."""
        matches = self.estimate.matches
        return self.graph.points0[matches[:, 0]], self.graph.points1[matches[:, 1]]

    def __repr__(self) -> str:
        return (
            f"MatchResult({self.names[0]} - {self.names[1]}: {self.confidence.verdict}, "
            f"{self.graph.num_edges} candidates -> {self.estimate.num_inliers} inliers -> "
            f"{len(self.estimate.matches)} matches)"
        )

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Say the result in sentences."""
        estimate = self.estimate
        lines = [f"{self.confidence.verdict.capitalize()}: {self.confidence.reason}"]
        if estimate.pose is not None:
            lines.append(f"Camera 1 is {describe_pose(estimate.pose)}.")
        lines.append(
            f"{self.counts['keypoints0']} x {self.counts['keypoints1']} keypoints, "
            f"{self.graph.num_edges} candidates -> {estimate.num_inliers} inliers -> "
            f"{matches_text(estimate)}."
        )
        return [*lines, *self.notes]

    def plot(self, path: str | os.PathLike[str], **settings: Any) -> Any:
        """Draw the candidates that were kept and those that were chosen; see `plot_candidates`."""
        from manymatch.viz import plot_candidates

        images = (None, None) if self.images is None else self.images
        settings.setdefault("title", f"{self.names[0]} - {self.names[1]}")
        return plot_candidates(
            self.graph,
            self.size0,
            self.size1,
            path,
            images=images,
            estimate=self.estimate,
            **settings,
        )

    def report(
        self, path: str | os.PathLike[str], *, command: str | None = None, **settings: Any
    ) -> Any:
        """Write one self-contained HTML file; see `manymatch.viz.report.write_report`.

        Parameters
        ----------
        path : path
            File to write.
        command : str, optional
            How to get the same result again.
        **settings
            `title`, and `truth_error_deg` where the true pose is known.
        """
        from manymatch.viz.report import write_report

        return write_report(
            path,
            images=(None, None) if self.images is None else self.images,
            graph=self.graph,
            estimate=self.estimate,
            camera0=self.camera0,
            camera1=self.camera1,
            config=self.provenance()
            if command is None
            else {"command": command, **self.provenance()},
            confidence=self.confidence.to_dict(),
            timing=self.timing,
            names=self.names,
            notes=self.notes,
            compare=[
                {
                    "name": rival.name,
                    "graph": rival.graph,
                    "estimate": rival.estimate,
                    "error_deg": rival.error_deg,
                }
                for rival in self.rivals
            ],
            **settings,
        )

    def provenance(self) -> dict[str, Any]:
        """Return the configuration with versions, as every output records it."""
        from manymatch import __version__
        from manymatch.features.versions import library_versions

        return {
            **self.config.to_dict(),
            "cameras": [self.camera0.to_dict(), self.camera1.to_dict()],
            "versions": {
                "manymatch": __version__,
                "python": platform.python_version(),
                **library_versions(),
            },
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the arrays, ready for JSON."""
        return {
            "images": list(self.names),
            "sizes": [list(self.size0), list(self.size1)],
            **estimate_record(self.estimate, self.graph),
            "counts": dict(self.counts),
            "confidence": self.confidence.to_dict(),
            "notes": list(self.notes),
            "rivals": [
                {"name": rival.name, **estimate_record(rival.estimate, rival.graph)}
                for rival in self.rivals
            ],
            "timing_s": {stage: float(value) for stage, value in self.timing.items()},
            "config": self.provenance(),
        }


def mean_probability(estimate: Estimate) -> float | None:
    """Mean probability that a match is right; None where it is unknown or there is no match."""
    probability = estimate.match_probability
    return None if probability is None or probability.size == 0 else float(probability.mean())


def matches_text(estimate: Estimate) -> str:
    """Say how many matches there are and, where probabilities are known, their sum."""
    text = f"{len(estimate.matches)} one-to-one matches"
    probability = estimate.match_probability
    if probability is None or probability.size == 0:
        return text
    return f"{text} ({round(float(probability.sum()))} expected to be right)"


def estimate_record(estimate: Estimate, graph: AssociationGraph) -> dict[str, Any]:
    """Everything about an estimate that fits into JSON."""
    pose = estimate.pose
    return {
        "success": estimate.success,
        "failure": estimate.failure or None,
        "pose": None if pose is None else {"R": pose.R.tolist(), "t": pose.t.tolist()},
        "candidates": graph.num_edges,
        "inliers": int(estimate.num_inliers),
        "matches": len(estimate.matches),
        "mean_probability": mean_probability(estimate),
        "parallax_deg": None if pose is None else estimate.parallax_deg,
        "low_parallax": estimate.low_parallax,
        "hcm": float(estimate.hcm),
        "cardinality": int(estimate.cardinality),
        "iterations": int(estimate.iterations),
        "refinements": int(estimate.refinements),
        "timing_s": {stage: float(value) for stage, value in estimate.timing.items()},
    }
