"""What a matcher found for one pair: numbers, sentences, a picture, a report, files."""

from __future__ import annotations

import dataclasses
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manymatch._validate import count, refusal
from manymatch.estimate.words import estimate_sentences
from manymatch.geometry.pose_error import pose_error_deg
from manymatch.io import ColmapWriter, HlocWriter, PairMatches, write_matches_npz, write_pose_json

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from manymatch._validate import FloatArray
    from manymatch.estimate.confidence import Confidence
    from manymatch.estimate.result import Estimate
    from manymatch.geometry.camera import Camera
    from manymatch.geometry.pose import RelativePose
    from manymatch.graph import AssociationGraph
    from manymatch.matcher.config import MatcherConfig

#: Formats in which matches can be written.
FORMATS = ("npz", "h5", "colmap")
#: Name of the rank-one result in tables.
RANK_ONE = "rank-one, plain consensus"


@dataclasses.dataclass(frozen=True, eq=False)
class RankOneResult:
    """The same pair matched with mutual nearest neighbours and plain consensus, to compare with."""

    graph: AssociationGraph
    estimate: Estimate


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
        How far the estimate can be trusted: verdict, chance, parallax, covariance.
    counts : dict of str to int
        What each step of the association kept.
    camera0, camera1 : Camera
        For the images as given.
    size0, size1 : (int, int)
        Width and height of the images as given.
    config : MatcherConfig
        The configuration of the matcher.
    notes : list of str
        Which preset was used and why, and where the cameras come from.
    timing : dict of str to float
        Seconds by stage.
    rank_one : RankOneResult or None
        The result of rank-one matches, where it was asked for.
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
    timing: dict[str, float]
    rank_one: RankOneResult | None = None
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
            f"{count(self.graph.num_edges, 'candidate')} -> "
            f"{count(self.estimate.num_inliers, 'inlier')} -> "
            f"{count(len(self.estimate.matches), 'match', 'matches')})"
        )

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return the result in sentences: verdict, pose, numbers and notes."""
        return [*estimate_sentences(self.estimate, self.graph, self.confidence), *self.notes]

    def systems(self) -> list[tuple[str, Estimate]]:
        """Return name and estimate of this result and, where there is one, of rank-one matches."""
        own = (f"k = {self.config.association.k}, {self.config.method}", self.estimate)
        return [own] if self.rank_one is None else [own, (RANK_ONE, self.rank_one.estimate)]

    def plot(self, path: str | os.PathLike[str] | None = None, **settings: Any) -> Any:
        """Draw the candidates that were kept and those that were chosen.

        Parameters
        ----------
        path : path, optional
            File to write; its ending decides the format.
        **settings
            Further arguments of `manymatch.viz.plot_candidates`.
        """
        from manymatch.viz import plot_candidates

        settings = {
            "title": f"{self.names[0]} - {self.names[1]}",
            "images": self.images or (None, None),
            "estimate": self.estimate,
            **settings,
        }
        graph = settings.pop("graph", self.graph)
        return plot_candidates(graph, self.size0, self.size1, path, **settings)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        command: str | None = None,
        true_pose: RelativePose | None = None,
    ) -> Path:
        """Write one self-contained HTML file; see `manymatch.viz.report.write_report`.

        The heading is `title`, or the names of the images. `command` says how to get the same
        result again. Where the true pose is known, errors are shown.
        """
        from manymatch.viz.report import write_report

        return write_report(
            path,
            images=self.images or (None, None),
            graph=self.graph,
            estimate=self.estimate,
            camera0=self.camera0,
            camera1=self.camera1,
            config=self.provenance(),
            command=command,
            confidence=self.confidence,
            timing=self.timing,
            title=title,
            names=self.names,
            notes=self.notes,
            others=[(name, e, _error_deg(e, true_pose)) for name, e in self.systems()[1:]],
            error_deg=_error_deg(self.estimate, true_pose),
        )

    def save(
        self,
        folder: str | os.PathLike[str],
        formats: Iterable[str] = ("npz",),
        *,
        picture: bool = True,
        report: bool = True,
        command: str | None = None,
        true_pose: RelativePose | None = None,
    ) -> dict[str, Path]:
        """Write everything that ``manymatch match`` writes into a folder.

        Parameters
        ----------
        folder : path
            Made if needed. Files of earlier results in it are replaced.
        formats : iterable of {"npz", "h5", "colmap"}
            ``matches.npz``; hloc's ``features.h5`` and ``matches.h5``; COLMAP's ``matches.txt``
            with one text of keypoints per image. The first two have the probabilities of the
            matches, where the method gives them.
        picture, report : bool
            Write ``matches.png`` and ``report.html``.
        command, true_pose
            For the report.

        Returns
        -------
        dict of str to Path
            What was written. ``result.json`` and ``config.toml`` always are.
        """
        chosen = list(dict.fromkeys(formats))
        for form in chosen:
            if form not in FORMATS:
                raise refusal("formats", f"among {', '.join(FORMATS)}", form)
        if "colmap" in chosen and any(" " in name for name in self.names):
            raise ValueError(
                f"names of images must have no spaces for COLMAP, which splits at them, got "
                f"{self.names[0]!r} and {self.names[1]!r}"
            )
        root = Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        record = self.to_dict()
        del record["pose"]
        written = {"json": root / "result.json", "config": root / "config.toml"}
        write_pose_json(written["json"], self.estimate.pose, record)
        self.config.save(written["config"])
        for form in chosen:
            written.update(self._save_matches(root, form))
        if picture:
            written["picture"] = root / "matches.png"
            self.plot(written["picture"])
        if report:
            written["report"] = root / "report.html"
            self.report(written["report"], command=command, true_pose=true_pose)
        return written

    def _save_matches(self, root: Path, form: str) -> dict[str, Path]:
        probability = self.estimate.match_probability
        pair = PairMatches(self.keypoints0, self.keypoints1, self.estimate.matches, probability)
        if form == "npz":
            self.write_npz(root / "matches.npz")
            return {"npz": root / "matches.npz"}
        if form == "h5":
            paths = root / "features.h5", root / "matches.h5"
            with HlocWriter(*paths) as hloc:
                hloc.add(*self.names, pair, size0=self.size0, size1=self.size1)
            return {"h5 features": paths[0], "h5 matches": paths[1]}
        with ColmapWriter(root) as colmap:
            colmap.add(*self.names, pair)
        keypoints = {f"colmap {name}": root / f"{name}.txt" for name in self.names}
        return {"colmap": colmap.path, **keypoints}

    def write_npz(self, path: Path) -> None:
        """Write keypoints, matches, their probabilities and the pose to one .npz file."""
        write_matches_npz(
            path,
            self.keypoints0,
            self.keypoints1,
            self.estimate.matches,
            confidence=self.estimate.match_probability,
            pose=self.estimate.pose,
            config=self.provenance(),
        )

    def provenance(self) -> dict[str, Any]:
        """Return the configuration with versions, as every output records it."""
        from manymatch import __version__
        from manymatch.features.device import library_versions

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
        rank_one = self.rank_one
        return {
            "images": list(self.names),
            "sizes": [list(self.size0), list(self.size1)],
            **estimate_record(self.estimate, self.graph),
            "counts": dict(self.counts),
            "confidence": self.confidence.to_dict(),
            "notes": list(self.notes),
            "rank_one": rank_one and estimate_record(rank_one.estimate, rank_one.graph),
            "timing_s": {stage: float(value) for stage, value in self.timing.items()},
            "config": self.provenance(),
        }


def mean_probability(estimate: Estimate) -> float | None:
    """Mean probability that a match is right; None where it is unknown or there is no match."""
    probability = estimate.match_probability
    return None if probability is None or probability.size == 0 else float(probability.mean())


def estimate_record(estimate: Estimate, graph: AssociationGraph) -> dict[str, Any]:
    """Everything about an estimate that fits into JSON."""
    pose, homography = estimate.pose, estimate.homography
    return {
        "success": estimate.success,
        "failure": estimate.failure or None,
        "pose": None if pose is None else {"R": pose.R.tolist(), "t": pose.t.tolist()},
        **({} if homography is None else {"homography": homography.tolist()}),
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


def _error_deg(estimate: Estimate, true: RelativePose | None) -> float | None:
    return None if true is None else pose_error_deg(estimate.pose, true.R, true.t)
