"""The result of one pair: numbers, sentences, a picture, a report, files."""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from manymatch._validate import FloatArray, IndexArray, count, refusal, require, suggest
from manymatch.estimate.words import NOTHING, RELIABLE, estimate_sentences
from manymatch.geometry.pose import RelativePose
from manymatch.io import (
    AlternativePose,
    ColmapDatabaseWriter,
    ColmapWriter,
    HlocWriter,
    ImageRecord,
    PairMatches,
)
from manymatch.io.colmap_matches import require_pycolmap
from manymatch.io.files import output_folder, read_json, whole_files, write_text
from manymatch.io.matches import PairWriter, image_name, to_json

if TYPE_CHECKING:
    import numpy as np

    from manymatch.estimate.confidence import Confidence
    from manymatch.estimate.relative_pose import RelativePoseEstimate
    from manymatch.estimate.result import Estimate
    from manymatch.geometry.camera import Camera
    from manymatch.graph import AssociationGraph
    from manymatch.matcher.cameras import Origin
    from manymatch.matcher.config import MatcherConfig

#: Writers of files that hold any number of pairs, by format; they are given a folder.
WRITERS: dict[str, Callable[[Path], PairWriter]] = {
    "h5": lambda folder: HlocWriter(folder / "features.h5", folder / "matches.h5"),
    "colmap": ColmapWriter,
    "colmap-db": lambda folder: ColmapDatabaseWriter(folder / "database.db"),
}
#: Formats in which matches can be written.
FORMATS = ("npz", *WRITERS)
_RESULT = "result.json"
CONVENTION = "x1 = R @ x0 + t maps camera-0 to camera-1 coordinates; t has length 1"
# Names of the files of a result, beside one text of keypoints for each image.
_FILES = frozenset(
    {_RESULT, "config.toml", "matches.npz", "features.h5", "matches.h5", "matches.txt"}
    | {"database.db", "matches.png", "report.html"}
)
# Alternatives below this probability are ignored; others agree with the estimate if they share this
# part of its matches.
_POSSIBLE, _SAME_MATCHES = 0.05, 0.8
#: Name of the rank-one result in tables.
RANK_ONE = "rank-one, plain consensus"


@dataclasses.dataclass(frozen=True, eq=False)
class RankOneResult:
    """The pair matched with mutual nearest neighbours and plain consensus, for comparison."""

    graph: AssociationGraph
    estimate: RelativePoseEstimate


@dataclasses.dataclass(eq=False, kw_only=True, repr=False)
class PairResult:
    """What results of two images have in common.

    Attributes
    ----------
    graph : AssociationGraph
        Keypoints, in pixels of the images as given, and the candidates that were kept.
    estimate : Estimate
        Model, inliers, 1-to-1 matches. ``estimate.threshold_px`` is in pixels of the images as
        given, so that ``score_pose`` with it and ``graph`` reproduces the scores.
    confidence : Confidence
        How far the estimate can be trusted: verdict, probability, covariance.
    config : MatcherConfig
        The configuration of the matcher.
    notes : list of str
        Which preset was used and why, and where the cameras come from.
    timing : dict of str to float
        Seconds by stage.
    images : pair of (H, W, 3) uint8 arrays or None
        The images, upright.
    names : (str, str)
        Their names: paths below the folder of images.
    """

    graph: AssociationGraph
    estimate: Any
    confidence: Confidence
    config: MatcherConfig
    notes: list[str]
    timing: dict[str, float]
    images: tuple[NDArray[np.uint8], NDArray[np.uint8]] | None = None
    names: tuple[str, str] = ("image0", "image1")

    @property
    def success(self) -> bool:
        """Whether the images match: there is a model, and the verdict is not "no match"."""
        return self.confidence.verdict not in NOTHING

    @property
    def answer(self) -> Any:
        """The estimate; without success, one that has neither model nor matches."""
        rejected = self.estimate.success and not self.success
        return self.estimate.refused(self.confidence.reason) if rejected else self.estimate

    @property
    def matches(self) -> IndexArray:
        """The 1-to-1 matches (M, 2): rows of keypoints0 and of keypoints1; none without success."""
        found: IndexArray = self.answer.matches
        return found

    @property
    def matched_points(self) -> tuple[FloatArray, FloatArray]:
        """Pixels of the 1-to-1 matches in either image, (M, 2) each."""
        return self.graph.points0[self.matches[:, 0]], self.graph.points1[self.matches[:, 1]]

    def __bool__(self) -> bool:
        """Tell whether the result can be relied on: the verdict is "solved" or "likely"."""
        return self.confidence.verdict in RELIABLE

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.names[0]} - {self.names[1]}: {self.confidence.verdict}, "
            f"{count(self.graph.num_edges, 'candidate')} -> "
            f"{count(self.answer.num_inliers, 'inlier')} -> "
            f"{count(len(self.matches), 'match', 'matches')})"
        )

    def __str__(self) -> str:
        """Return the result in sentences: verdict, model, numbers and notes."""
        sentences = estimate_sentences(self.estimate, self.graph, self.confidence)
        return "\n".join([*sentences, *self._own_lines(), *self.notes])

    def _own_lines(self) -> list[str]:
        return []


@dataclasses.dataclass(eq=False, kw_only=True, repr=False)
class MatchResult(PairResult):
    """Candidates, pose and matches of one pair: a `PairResult` with a `RelativePoseEstimate`.

    Attributes
    ----------
    counts : dict of str to int
        What each step of the association kept.
    camera0, camera1 : Camera
        For the images as given, with the focal lengths found where they were unknown; without a
        pose those of the prior.
    size0, size1 : (int, int)
        Width and height of the images as given.
    rank_one : RankOneResult or None
        The result of rank-one matches, where it was asked for.
    camera_origins : (str, str)
        Where the cameras come from: "given", "colmap", "exif", or "found" where the focal length
        was unknown; `RelativePoseEstimate.focal_determined` says whether the images determine it.
    orientations : (int, int)
        EXIF orientations of the files, 1 to 8, by which the images were turned.
    camera_priors : (Camera, Camera) or None
        The cameras before their focal lengths were found, where one was unknown.
    source_counts : dict of str to dict
        `counts` of every source, by its name, where there are several.
    shared_focal : bool or None
        The argument of `Matcher.match`.
    """

    estimate: RelativePoseEstimate
    counts: dict[str, int]
    camera0: Camera
    camera1: Camera
    size0: tuple[int, int]
    size1: tuple[int, int]
    rank_one: RankOneResult | None = None
    camera_origins: tuple[Origin, Origin] = ("given", "given")
    orientations: tuple[int, int] = (1, 1)
    camera_priors: tuple[Camera, Camera] | None = None
    source_counts: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    shared_focal: bool | None = None

    @property
    def keypoints0(self) -> FloatArray:
        """Keypoints of image 0, (N0, 2) pixels (x, y)."""
        return self.graph.points0

    @property
    def keypoints1(self) -> FloatArray:
        """Keypoints of image 1, (N1, 2) pixels (x, y)."""
        return self.graph.points1

    @property
    def pose(self) -> RelativePose | None:
        """The pose, ``x1 = R @ x0 + t``; None without success."""
        found: RelativePose | None = self.answer.pose
        return found

    @property
    def homography(self) -> FloatArray | None:
        """The homography between images of a plane, if the verdict is "planar", else None."""
        return self.confidence.homography

    def _repr_html_(self) -> str | None:
        """Show verdict and images of the report in a notebook, as text where Pillow is missing."""
        from manymatch.viz.report import notebook_view

        try:
            return notebook_view(self)
        except ModuleNotFoundError:
            return None

    def _own_lines(self) -> list[str]:
        own = ", ".join(
            f"{name} {counts['kept']:,} and {counts['matches']:,}"
            for name, counts in self._by_source().items()
        )
        return [f"Candidates and matches by source: {own}."] if own else []

    def systems(self) -> list[tuple[str, RelativePoseEstimate]]:
        """Return name and estimate of this result and, where there is one, of rank-one matches."""
        own = (f"k = {self.config.sources[0].association.k}, {self.config.method}", self.answer)
        return [own] if self.rank_one is None else [own, (RANK_ONE, self.rank_one.estimate)]

    def plot(self, path: str | os.PathLike[str] | None = None, **settings: Any) -> Any:
        """Draw the candidates that were kept and those that were chosen.

        The ending of `path` decides the format; without a path the matplotlib figure is returned,
        which notebooks show. Further arguments are those of `manymatch.viz.plot_candidates`.
        """
        from manymatch.viz import plot_candidates

        settings.setdefault("title", f"{self.names[0]} - {self.names[1]}")
        settings.setdefault("images", self.images or (None, None))
        own = self.answer
        if settings.setdefault("estimate", own) is own:
            settings.setdefault("confidence", self.confidence)
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
        """Write one self-contained HTML file about the pair; return its path.

        The heading is `title`, or the names of the images. `command` is shown in it. Where the true
        pose is known, errors are shown.
        """
        from manymatch.viz.report import write_report

        return write_report(self, path, title=title, command=command, true_pose=true_pose)

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
        """Write everything that ``manymatch match`` writes into a folder; return the files.

        Parameters
        ----------
        folder : path
            Made if needed. Files of an earlier result in it, of any pair and format, are removed;
            other files stay. If something cannot be written, the folder stays as it was.
        formats : iterable of {"npz", "h5", "colmap", "colmap-db"}
            ``matches.npz``; hloc's ``features.h5`` and ``matches.h5``; COLMAP's ``matches.txt``
            with one text of keypoints per image; ``database.db`` for COLMAP's mappers. The first
            two have the probabilities of the matches, where the method gives them. Files for
            hloc and COLMAP are in pixels of the images as they are stored, not turned by EXIF.
        picture, report : bool
            Write ``matches.png`` and ``report.html``, beside ``result.json`` and ``config.toml``.
        command, true_pose
            As in `report`.

        If the folder or a format cannot be written, an error says so before anything is written.
        """
        chosen = check_formats(formats, self.names, "names of images")
        root = output_folder(folder, "folder")
        record = {"pose": None, "convention": CONVENTION, **self.to_dict()}
        with whole_files(root, earlier_result(root)[1]) as place:
            written = {"json": place / _RESULT, "config": place / "config.toml"}
            self.config.save(written["config"])
            for form in chosen:
                written.update(self._save_matches(place, form))
            # Most of the picture is compressed while the report is made.
            with ThreadPoolExecutor(1, "manymatch-picture") as pool:
                drawn = None
                if picture:
                    written["picture"] = place / "matches.png"
                    drawn = pool.submit(self.plot, written["picture"])
                if report:
                    written["report"] = place / "report.html"
                    self.report(written["report"], command=command, true_pose=true_pose)
                if drawn is not None:
                    drawn.result()
            names = {name: path.relative_to(place) for name, path in written.items()}
            record["files"] = [path.as_posix() for path in names.values()]
            write_text(written["json"], to_json(record, "result", indent=2) + "\n")
        return {name: root / path for name, path in names.items()}

    def _save_matches(self, root: Path, form: str) -> dict[str, Path]:
        pair = self.pair_matches()
        if form == "npz":
            pair.write_npz(root / "matches.npz")
            return {"npz": root / "matches.npz"}
        if not trusted(self.estimate, self.confidence):
            pair = dataclasses.replace(pair, pose=None)
        sizes, cameras = (self.size0, self.size1), (self.camera0, self.camera1)
        known = [origin != "found" for origin in self.camera_origins]
        sides = zip(self.names, sizes, cameras, known, self.orientations, strict=True)
        first, second = (ImageRecord(*side) for side in sides)
        with WRITERS[form](root) as writer:
            writer.add(first, second, pair)
        if form != "colmap":
            return writer.files
        return {**writer.files, **{f"colmap {name}": root / f"{name}.txt" for name in self.names}}

    def pair_matches(self) -> PairMatches:
        """Return keypoints, matches, their probabilities, the poses and the configuration."""
        return PairMatches.known(
            keypoints0=self.keypoints0,
            keypoints1=self.keypoints1,
            matches=self.answer.matches,
            confidence=self.answer.match_probability,
            pose=self.answer.pose,
            config=self.provenance(),
            alternatives=tuple(other_poses(self.answer)),
            source=self.graph.source_of(self.matches),
            source_names=self.graph.source_names,
        )

    def provenance(self) -> dict[str, Any]:
        """Return the configuration with versions and cameras, as every output records it."""
        priors: dict[str, Any] = {}
        if self.camera_priors is not None:
            priors["camera_priors"] = [camera.to_dict() for camera in self.camera_priors]
            priors["shared_focal"] = self.shared_focal
        return {
            **provenance_of(self.config),
            "cameras": [self.camera0.to_dict(), self.camera1.to_dict()],
            **priors,
            "orientations": list(self.orientations),
        }

    def _by_source(self) -> dict[str, dict[str, Any]]:
        """Return the counts of every source up to its matches; empty if there is one source."""
        own = self.answer.by_source() if self.source_counts else {}
        return {name: {**self.source_counts[name], **own[name]} for name in own}

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the arrays, ready for JSON."""
        rank_one, sources = self.rank_one, self._by_source()
        return {
            "images": list(self.names),
            "sizes": [list(self.size0), list(self.size1)],
            **self.answer.to_dict(),
            "counts": dict(self.counts),
            **({"sources": sources} if sources else {}),
            "confidence": self.confidence.to_dict(),
            "notes": list(self.notes),
            "rank_one": None if rank_one is None else rank_one.estimate.to_dict(),
            "timing_s": dict(self.timing),
            "config": self.provenance(),
        }


def check_formats(
    formats: Iterable[str],
    names: Iterable[str] = (),
    argument: str = "names",
    known: Sequence[str] = FORMATS,
) -> tuple[str, ...]:
    """Check, before anything is computed, that formats can hold matches of images of these names.

    Returns the formats, each once. An error about a name begins with `argument`.
    """
    chosen = tuple(dict.fromkeys([formats] if isinstance(formats, str) else formats))
    for form in chosen:
        if form not in known:
            wrong = refusal("formats", f"among {', '.join(known)}", form)
            raise ValueError(f"{wrong}{suggest(form, known)}")
    if "h5" in chosen:
        require("h5py", "writing hloc files", "io")
    if "colmap-db" in chosen:
        require_pycolmap()
    if WRITERS.keys() & set(chosen):
        check = ColmapWriter.check_name if "colmap" in chosen else image_name
        for name in names:
            check(name, argument)
    return chosen


def earlier_result(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return images and files of an earlier result of `match` or `solve` in a folder.

    Its ``result.json`` names them; files with other names than those of a result are ignored.
    """
    try:
        record = read_json(folder / _RESULT, "a result")
        images = tuple(image_name(name, "images") for name in record.get("images", ()))
        files = tuple(record["files"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return (), ()
    ours = {*_FILES, *(f"{name}.txt" for name in images)}
    return images, tuple(name for name in files if name in ours)


def trusted(estimate: Estimate, confidence: Confidence) -> bool:
    """Tell whether a model of many images may use the matches and the pose.

    It may if the pose can be relied on. It also may if the pose is not fully determined, or if the
    other poses have the same matches, as the second pose of a plane: mappers see more images.
    """
    if confidence.verdict != "ambiguous":
        return confidence.verdict in (*RELIABLE, "degenerate", "planar")
    if confidence.other_motion is not None:
        return False
    own = set(map(tuple, estimate.matches.tolist()))
    return all(
        len(own.intersection(map(tuple, other.matches.tolist()))) >= _SAME_MATCHES * len(own)
        for other in estimate.alternatives
        if other.probability >= _POSSIBLE
    )


def provenance_of(config: MatcherConfig) -> dict[str, Any]:
    """Return a configuration with the versions of the libraries that compute the results."""
    from manymatch import __version__
    from manymatch.features.device import library_versions

    own = {"manymatch": __version__, "python": platform.python_version()}
    return {**config.to_dict(), "versions": own | library_versions()}


def other_poses(estimate: Estimate) -> list[AlternativePose]:
    """Return the alternatives of an estimate as a file of matches holds them, poses only."""
    return [
        AlternativePose(other.model, other.probability, other.matches)
        for other in estimate.alternatives
        if isinstance(other.model, RelativePose)
    ]
