"""Resolve: homography and 1-to-1 matches from a graph of candidates."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, Unpack

import numpy as np

from manymatch._validate import FloatArray, IndexArray, Method, choice, read_only
from manymatch.estimate.problem import (
    Chart,
    GeometricProblem,
    PreparedPair,
    checked_graph,
    errors_by,
    open_on_a_line,
)
from manymatch.estimate.result import PixelEstimate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from manymatch.graph import AssociationGraph, GraphLike
    from manymatch.options import OptionKeywords, Options

PlanarModel: TypeAlias = Literal["homography", "affine"]
#: Models of `estimate_homography`.
PLANAR_MODELS = ("homography", "affine")

# H[2, 2] relative to the norm of H below which it counts as zero.
_ZERO = 1e-12
#: A homography is right if it puts the corners of the keypoints where they belong up to this many
#: thresholds, root mean square; a fundamental matrix, if points all over the right epipolar lines
#: are no farther from its own; a transform in space, if it does so with the points.
RIGHT_THRESHOLDS = 3.0


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class HomographyEstimate(PixelEstimate):
    """Estimate of a homography: `Estimate` with the attribute `homography`."""

    model: FloatArray | None = None
    model_name: ClassVar[str] = "homography"

    @property
    def homography(self) -> FloatArray | None:
        """Maps pixels of image 0 to image 1, (3, 3): ``x1 ~ H x0``, ``H[2, 2] = 1``; or None."""
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
    method, options, proposals, **settings
        As in `estimate_relative_pose`. `threshold_px` bounds the symmetric transfer error, the root
        of the mean of the squared errors in the two images; 3 px is usual, the default of 1 px is
        that of a relative pose.
    model : {"homography", "affine"}
        "affine": the homography's third row is (0, 0, 1), which three candidates determine. Right
        for planes seen straight on or from far away, and for images that a scanner or a map made.

    Returns
    -------
    HomographyEstimate
        ``homography`` (3, 3) maps pixels of image 0 to pixels of image 1, ``x1 ~ H x0``, with
        ``H[2, 2] = 1`` (or norm one where pixel (0, 0) is mapped to infinity). It never mirrors,
        and all its matches lie on one side of the line that it maps to infinity. Matches on a line
        have no homography.

    Examples
    --------
    >>> import numpy as np
    >>> from manymatch import AssociationGraph
    >>> points = np.random.default_rng(0).uniform(0, 500, (50, 2))
    >>> estimate = estimate_homography(AssociationGraph.from_matches(points, 2 * points + 10))
    >>> np.allclose(estimate.homography, [[2, 0, 10], [0, 2, 10], [0, 0, 1]])
    True
    """
    return HOMOGRAPHY.solve((graph,), method, options, proposals, settings, model=model)


def prepare(
    graph: object,
    options: Options,
    proposals: object = None,
    where: str = "",
    model: object = "homography",
) -> PreparedPair:
    """Check a pair and bring its points to the frame in which the matrix is found."""
    affine = choice(model, f"{where}model", PLANAR_MODELS) == "affine"
    checked = checked_graph(graph, options, where)
    frame = Frame(checked)
    x0, x1 = frame.into(checked.points0, 0), frame.into(checked.points1, 1)
    return PreparedPair(
        *(checked, x0, x1, 1.0 / frame.unit, options, proposals, where),
        frame=frame,
        parameters=np.ones(1) if affine else None,  # the core asks whether there are any
    )


class Frame:
    """Coordinates in which a homography or a fundamental matrix is found.

    Each image about the centre of its keypoints, and both in the unit in which all keypoints with
    an edge lie within [-1, 1]: errors of both images are added.
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
        affine = not H[2, :2].any()
        return np.asarray(H / (H[2, 2] if affine or abs(H[2, 2]) > _ZERO * norm else norm))


def homogeneous(points: FloatArray) -> FloatArray:
    """Append a coordinate of one to points (N, 2)."""
    return np.column_stack([points, np.ones(len(points))])


def box(points: FloatArray) -> FloatArray:
    """Corners (4, 2) of the smallest box around points (N, 2)."""
    low, high = points.min(axis=0), points.max(axis=0)
    sides = np.meshgrid(*zip(low, high, strict=True), indexing="ij")
    return np.stack([side.ravel() for side in sides], axis=1)


def _transfer(H: FloatArray, points: FloatArray) -> FloatArray:
    moved = homogeneous(points) @ H.T
    return np.asarray(moved[:, :2] / moved[:, 2:])


def _move(H: FloatArray, step: FloatArray) -> FloatArray:
    """Move a homography by eight numbers, an affine map by six."""
    return np.asarray(H @ (np.eye(3) + np.append(step, np.zeros(9 - len(step))).reshape(3, 3)))


def _residuals(pair: PreparedPair, H: FloatArray, edges: IndexArray) -> FloatArray:
    x0, x1 = pair.ends(edges)
    back = np.asarray(np.linalg.inv(H), dtype=np.float64)
    return np.asarray(math.sqrt(0.5) * np.hstack([_transfer(H, x0) - x1, _transfer(back, x1) - x0]))


def _numbers(pair: PreparedPair, H: FloatArray, _base: FloatArray) -> FloatArray:
    return np.asarray(pair.frame.to_pixels(H).ravel()[:8])


def _error(pair: PreparedPair, H: FloatArray, base: FloatArray) -> FloatArray:
    corners = box(pair.ends()[0])
    gap = _transfer(H, corners) - _transfer(base, corners)
    return np.asarray(gap.ravel() / (math.sqrt(len(corners)) * RIGHT_THRESHOLDS * pair.eps))


#: The coefficients of matches are those of an earlier fit to relative poses;
#: benchmarks/results/homography.md has the measured reliability. All other coefficients of models
#: than those of a relative pose are fitted by benchmarks/accuracy/fit_constants.py;
#: benchmarks/results/confidence.md has their reliability.
HOMOGRAPHY = GeometricProblem(
    name="homography",
    noun="homography",
    clause="a homography maps image 0 to image 1",
    estimate=estimate_homography,
    result=HomographyEstimate,
    core="estimate_homography",
    prepare=prepare,
    public=lambda pair, H: read_only(pair.frame.to_pixels(H)),
    errors=errors_by("score_homography"),
    sample_size=4,
    parameters=8,
    dimensions=2,
    match_coefficients=(0.173, -0.299, 0.955, 1.559, 0.446, 0.0),
    model_coefficients=(4.048, 0.853, 0.715, 1.611),
    chart=Chart(_move, _residuals, _numbers, _error),
    open=open_on_a_line("images"),
    noise_scale=math.sqrt(2.0),  # a transfer has the noise of both keypoints, taken to be alike
    variant={"noun": "affine map", "sample_size": 3, "parameters": 6},
)
