"""Resolve: homography and 1-to-1 matches from a graph of candidates."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import numpy as np

from manymatch import _core
from manymatch._validate import FloatArray, Method, checked_method, choice, read_only
from manymatch.estimate import match_probability as probabilities
from manymatch.estimate.prepare import PreparedPair, checked_graph
from manymatch.estimate.result import (
    GeometricProblem,
    PixelEstimate,
    common_fields,
    without_model,
)
from manymatch.options import checked_options

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import ArrayLike

    from manymatch.graph import AssociationGraph, GraphLike
    from manymatch.options import OptionKeywords, Options

PlanarModel: TypeAlias = Literal["homography", "affine"]
#: Models of `estimate_homography`.
PLANAR_MODELS = ("homography", "affine")

# H[2, 2] relative to the norm of H below which it counts as zero.
_ZERO = 1e-12


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class HomographyEstimate(PixelEstimate):
    """Estimate of a homography: that of `Estimate`, and the following.

    Attributes
    ----------
    homography : (3, 3) float64 ndarray or None
        Maps pixels of image 0 to pixels of image 1, ``x1 ~ H x0`` with ``H[2, 2] = 1``.
    """

    model: FloatArray | None = None
    model_name: ClassVar[str] = "homography"

    @property
    def homography(self) -> FloatArray | None:
        """The homography (3, 3), ``x1 ~ H x0``, or None."""
        return self.model


def estimate_homography(
    graph: GraphLike,
    method: Method = "auto",
    options: Options | None = None,
    proposals: ArrayLike | None = None,
    model: PlanarModel = "homography",
    **settings: Unpack[OptionKeywords],
) -> HomographyEstimate:
    """Estimate the homography between two images from candidate correspondences.

    The images show a plane, or anything from one place, or anything far away.

    Parameters
    ----------
    graph : AssociationGraph or Candidates
        Candidates, several per keypoint if there are, in pixels.
    method : {"auto", "hcm-mcm", "hcm", "mcm", "cm"}
        As in `estimate_relative_pose`.
    options : Options, optional
        Threshold, budget, seed and the rest. `threshold_px` bounds the symmetric transfer error,
        the root of the mean of the squared errors in the two images; 3 px is usual, the default of
        1 px is that of a relative pose.
    proposals : (E,) bool array, optional
        Draw minimal samples from these edges only; everything else sees the whole graph.
    model : {"homography", "affine"}
        "affine": the homography's third row is (0, 0, 1), which three candidates determine. Right
        for planes seen straight on or from far away, and for images that a scanner or a map made.
    **settings
        Fields of `Options` by keyword, such as ``threshold_px=3`` or ``seed=7``, in place of those
        of `options`.

    Returns
    -------
    HomographyEstimate
        ``homography`` (3, 3) maps pixels of image 0 to pixels of image 1, ``x1 ~ H x0``, with
        ``H[2, 2] = 1`` (or norm one where pixel (0, 0) is mapped to infinity). It never mirrors,
        and all its matches lie on one side of the line that it maps to infinity. The result is a
        function of the arguments alone: not of `options.threads`, not of earlier calls. A pair that
        cannot be solved, also for matches on a line, has ``success=False`` and says why in
        ``failure``.

    Raises
    ------
    ValueError
        If an argument is not what it should be.

    Examples
    --------
    >>> import numpy as np
    >>> from manymatch import AssociationGraph
    >>> points = np.random.default_rng(0).uniform(0, 500, (50, 2))
    >>> estimate = estimate_homography(AssociationGraph.from_matches(points, 2 * points + 10))
    >>> np.allclose(estimate.homography, [[2, 0, 10], [0, 2, 10], [0, 0, 1]])
    True
    """
    checked = checked_options(options, settings)
    pair = prepare(graph, checked, proposals, model=model)
    return HOMOGRAPHY.run([pair], checked_method(method), checked.threads)[0]


def prepare(
    graph: object,
    options: Options,
    proposals: object = None,
    where: str = "",
    model: object = "homography",
) -> PreparedPair:
    """Check a pair and bring its points to the frame in which the homography is found."""
    affine = choice(model, f"{where}model", PLANAR_MODELS) == "affine"
    checked = checked_graph(graph, options, where)
    frame = Frame(checked)
    return PreparedPair(
        checked,
        frame.into(checked.points0, 0),
        frame.into(checked.points1, 1),
        1.0 / frame.unit,
        options,
        proposals,
        where,
        frame=frame,
        parameters=np.ones(1) if affine else None,  # whose presence the core asks for
    )


def _finish(
    pair: PreparedPair, result: _core.HomographyEstimate, method: str
) -> HomographyEstimate:
    """Turn the core's result into the public one."""
    pair.take_threshold(result.threshold)

    def public(model: FloatArray) -> FloatArray:
        return read_only(pair.frame.to_pixels(model))

    common = common_fields(HOMOGRAPHY, pair, result, public, method)
    # A transfer has the noise of both keypoints, which are taken to be alike.
    common |= {name: common[name] / math.sqrt(2.0) for name in ("noise_px", "noise_sd_px")}
    if result.success and _on_a_line(pair.graph, common["matches"], pair.threshold_px):
        common |= without_model(pair, "the matches lie on a line in one of the images")
    success = common["success"]
    probability = _match_probability(pair, result) if success else read_only(np.zeros(0))
    return HomographyEstimate(
        **common,
        model=public(result.model) if success else None,
        match_probability=probability if method == "auto" else None,
    )


class Frame:
    """Coordinates in which a homography or a fundamental matrix is found.

    Each image about the centre of its keypoints, and both in one unit, since errors of both images
    are added: that in which all keypoints with an edge lie within [-1, 1].
    """

    def __init__(self, graph: AssociationGraph) -> None:
        used = [
            points[np.unique(ends)]
            for points, ends in zip((graph.points0, graph.points1), graph.edges.T, strict=True)
        ]
        low = [points.min(axis=0) if len(points) else np.zeros(2) for points in used]
        high = [points.max(axis=0) if len(points) else np.zeros(2) for points in used]
        self.centre = [0.5 * a + 0.5 * b for a, b in zip(low, high, strict=True)]
        span = max(float((0.5 * b - 0.5 * a).max()) for a, b in zip(low, high, strict=True))
        self.unit = span if span > 0.0 else 1.0

    def into(self, points: FloatArray, image: int) -> FloatArray:
        """Bring keypoints (N, 2) of image 0 or 1 to this frame."""
        return np.ascontiguousarray((points - self.centre[image]) / self.unit)

    def matrix(self, image: int) -> FloatArray:
        """Return the matrix (3, 3) that brings pixels of image 0 or 1 to this frame."""
        into = np.eye(3)
        into[:2, :2] /= self.unit
        into[:2, 2] = -self.centre[image] / self.unit
        return into

    def to_pixels(self, H: FloatArray) -> FloatArray:
        """Bring a homography (3, 3) of this frame to pixels."""
        out = np.eye(3)
        out[:2, :2] *= self.unit
        out[:2, 2] = self.centre[1]
        H = out @ H @ self.matrix(0)
        norm = np.linalg.norm(H)
        return np.asarray(H / (H[2, 2] if abs(H[2, 2]) > _ZERO * norm else norm))


def _on_a_line(graph: AssociationGraph, matches: np.ndarray, threshold_px: float) -> bool:
    """Whether noise alone could explain how far the matches are from a line."""
    for points, column in zip((graph.points0, graph.points1), matches.T, strict=True):
        chosen = points[column]
        across = np.linalg.svd(chosen - chosen.mean(axis=0), compute_uv=False)[1]
        if across / np.sqrt(len(chosen)) < threshold_px / 3.0:
            return True
    return False


def transfer_errors(pair: PreparedPair, H: FloatArray) -> FloatArray:
    """Symmetric transfer errors (E,) of all candidates, in units of the threshold.

    `H` is in the frame of the pair, as the core returns it. Infinite beyond the line at infinity.
    """
    *_, r2 = _core.score_homography(
        pair.x0, pair.x1, pair.edges, pair.eps, pair.options.q, pair.options.delta, H
    )
    return np.where(np.isfinite(r2), np.sqrt(r2), np.inf) / pair.eps


def _match_probability(pair: PreparedPair, result: _core.HomographyEstimate) -> FloatArray:
    distances = transfer_errors(pair, result.model)
    return read_only(
        probabilities.probability_of(pair, result, distances, probabilities.HOMOGRAPHY)
    )


HOMOGRAPHY = GeometricProblem(
    "homography", HomographyEstimate, "estimate_homography", prepare, _finish
)
