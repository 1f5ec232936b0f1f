"""Checks and conversions between the public arguments of an estimator and the compiled core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch import _core
from manymatch._validate import BoolArray, FloatArray, bool_array, count
from manymatch.associate.gms import LARGEST_COORDINATE, at_working_size
from manymatch.graph import AssociationGraph, as_graph

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from manymatch.geometry.camera import Camera
    from manymatch.options import Options

    # Of either image, (x, y).
    WorkingScale = tuple[ArrayLike, ArrayLike]

# Keypoints that span less than the first number are not in pixels. The motion filter, which counts
# in whole pixels, gets them enlarged to a span of the second number.
_SMALLEST_IMAGE, _ENLARGED_SPAN = 32.0, 1000.0

_WORKING_EDGE = 1024.0


def checked_graph(
    graph: object, options: Options, where: str = "", dimensions: tuple[int, int] = (2, 2)
) -> AssociationGraph:
    """Check that a graph has what the options and the problem need.

    `where` begins the error sentence, `dimensions` are the coordinates of the points of either
    side.
    """
    checked = as_graph(graph, f"{where}graph", dimensions)
    if options.guidance > 0 and checked.rank is None:
        raise ValueError(
            f"{where}graph must have ranks when options.guidance is above 0, got a graph "
            f"without ranks and guidance={options.guidance:g}"
        )
    return checked


def nothing_to_match(graph: AssociationGraph) -> str:
    """Say why a graph has no candidates; empty if it has any."""
    if graph.num_edges:
        return ""
    both = (graph.points0, graph.points1)
    images = all(points.shape[1] == 2 for points in both)
    noun, where, place = ("keypoint", "in", "image") if images else ("point", "on", "side")
    without = [f"{place} {side}" for side in (0, 1) if not len(both[side])]
    if without:
        return f"no {noun}s {where} {' and '.join(without)}"
    first, second = (count(len(points), noun) for points in both)
    return f"no candidates between {first} {where} {place} 0 and {second} {where} {place} 1"


class PreparedPair:
    """One pair as the core takes it.

    `x0` (N0, 2 or 3) and `x1` (N1, 2 or 3) are the points of a checked graph in the coordinates in
    which the problem is solved, `unit` is a pixel (or the unit of points in space) in these
    coordinates, `eps` the inlier threshold in them, `threshold_px` the same in pixels (or in the
    unit of the points: `threshold`, which takes the place of that of the options), and `proposals`
    are the edges (E,) from which minimal samples are drawn, None for all. Until `take_threshold`,
    an automatic threshold is one pixel of the working size. `working_scale` is that of
    `estimate_relative_pose`; `frame` is what a problem needs to bring models back; `parameters` is
    what its core takes besides points. An error begins with `where`.
    """

    def __init__(
        self,
        graph: AssociationGraph,
        x0: FloatArray,
        x1: FloatArray,
        unit: float,
        options: Options,
        proposals: object = None,
        where: str = "",
        *,
        cameras: tuple[Camera, ...] = (),
        working_scale: WorkingScale | None = None,
        threshold: float | None = None,
        frame: Any = None,
        parameters: FloatArray | None = None,
    ) -> None:
        self.cameras, self.working_scale = cameras, working_scale
        self.graph, self.options = graph, options
        self.x0, self.x1 = x0, x1
        self.frame, self.parameters = frame, parameters
        chosen = options.threshold_px if threshold is None else threshold
        automatic = isinstance(chosen, str)
        self.threshold_px = _working_pixel(graph, working_scale) if automatic else float(chosen)
        self.eps = unit * self.threshold_px
        self.edges: NDArray[np.int32] = np.ascontiguousarray(graph.edges, dtype=np.int32)
        self.proposals: BoolArray | None = None
        if proposals is not None:
            want = f"a boolean array of shape ({graph.num_edges},), one entry per edge"
            self.proposals = bool_array(proposals, f"{where}proposals", want, (graph.num_edges,))

    def take_threshold(self, factor: float) -> None:
        """Take the threshold that the core used, as a factor on the one it was given."""
        self.threshold_px *= factor
        self.eps *= factor

    def for_core(self, x1: FloatArray | None = None, kept: BoolArray | None = None) -> _core.Pair:
        """Return the pair for the core, with other points of side 1 if they are given.

        What is known of the edges stays: their rank, and what the motion filter says of the pixels.
        That is `kept`, (E,), where it is known; else the filter runs if the method wants it, in
        pixels at working size.
        """
        seen = self.graph
        points0: FloatArray | None
        points1: FloatArray | None
        if seen.points0.shape[1] == seen.points1.shape[1] == 2:
            if self.working_scale is not None:
                seen = at_working_size(seen, *self.working_scale)
            points0, points1 = _filter_points(seen.points0, seen.points1)
        else:  # The motion filter is one of two images.
            points0 = points1 = None
        x1 = self.x1 if x1 is None else x1
        rank, mask = self.graph.rank, self.proposals
        return _core.Pair(
            *(self.x0, x1, self.edges, rank, mask, self.eps, points0, points1, kept),
            *(self.parameters, self.graph.source, self.graph.prior),
        )


def _working_pixel(graph: AssociationGraph, working_scale: WorkingScale | None) -> float:
    """Size of a pixel of the images in which the keypoints were found, in pixels of the graph.

    Where that is not known, such images are taken to have at most so many pixels an edge as most
    features are computed with.
    """
    if working_scale is not None:
        return float(1.0 / np.mean(np.asarray(working_scale, dtype=np.float64)))
    both = (graph.points0, graph.points1)
    span = max((float(np.ptp(points, axis=0).max()) for points in both if len(points)), default=0.0)
    return max(span / _WORKING_EDGE, 1.0)


def _filter_points(
    points0: FloatArray, points1: FloatArray
) -> tuple[FloatArray, FloatArray] | tuple[None, None]:
    """Points as the motion filter can take them, or None twice if it cannot."""
    both = (points0, points1)
    if any(np.abs(points).max(initial=0.0) > LARGEST_COORDINATE for points in both):
        return None, None  # no image has such a point, and cells could not be told apart
    span = max((float(np.ptp(points, axis=0).max()) for points in both if len(points)), default=0.0)
    if not 0.0 < span < _SMALLEST_IMAGE:
        return both
    return points0 * (_ENLARGED_SPAN / span), points1 * (_ENLARGED_SPAN / span)
