"""Checks and conversions between the public arguments and the compiled core."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from manymatch import _core
from manymatch._validate import BoolArray, FloatArray, bool_array, refusal
from manymatch.associate.gms import LARGEST_COORDINATE
from manymatch.estimate.options import INGREDIENTS, Options
from manymatch.geometry.camera import Camera, as_camera
from manymatch.graph import AssociationGraph

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Camera, 3x3 matrix, COLMAP-style mapping or pycolmap.Camera; `as_camera` decides.
CameraLike: TypeAlias = object

# Keypoints that span less than this many pixels are not in pixels; to what they are blown up then.
_SMALLEST_IMAGE, _BLOWN_UP = 32.0, 1000.0
# More threads than this only cost memory; the result is the same.
_MOST_THREADS = 256


class Problem:
    """One pair as the core takes it: checked, unprojected, with its threshold."""

    def __init__(
        self,
        graph: object,
        camera0: object,
        camera1: object,
        proposals: object,
        options: Options,
        where: str,
    ) -> None:
        if not isinstance(graph, AssociationGraph):
            raise refusal(f"{where}graph", "an AssociationGraph", graph)
        first: Camera = as_camera(camera0, f"{where}camera0")
        second: Camera = as_camera(camera1, f"{where}camera1")
        if options.guidance > 0 and graph.rank is None:
            raise ValueError(
                f"{where}graph must have ranks when options.guidance is above 0, got a graph "
                f"without ranks and guidance={options.guidance:g}"
            )
        self.graph = graph
        self.options = options
        self.x0 = first.unproject(graph.points0)
        self.x1 = second.unproject(graph.points1)
        self.edges: NDArray[np.int32] = np.ascontiguousarray(graph.edges, dtype=np.int32)
        # One threshold for both images, on the normalised plane.
        self.eps = 0.5 * (1.0 / first.focal + 1.0 / second.focal) * options.threshold_px
        mask = None
        if proposals is not None:
            want = f"a boolean array of shape ({graph.num_edges},), one entry per edge"
            mask = bool_array(proposals, f"{where}proposals", want, (graph.num_edges,))
        self.mask = mask
        self.pair = self.with_points1(self.x1)

    def with_points1(self, x1: FloatArray, kept: BoolArray | None = None) -> _core.Pair:
        """Return the pair for the core, with these points (N1, 2) on the plane of image 1.

        What is known of its edges stays: rank, and what the motion filter says of the pixels. That
        is `kept`, (E,), where it is known; else the filter runs if the method wants it.
        """
        points0, points1 = _filter_points(self.graph.points0, self.graph.points1)
        rank, mask = self.graph.rank, self.mask
        return _core.Pair(self.x0, x1, self.edges, rank, mask, self.eps, points0, points1, kept)

    def distances(self, R: FloatArray, t: FloatArray) -> FloatArray:
        """Sampson distances (E,) of all candidates from a pose, on the normalised plane.

        Infinite where a depth is not positive or there is no distance.
        """
        x0 = np.ascontiguousarray(self.x0[self.edges[:, 0]])
        x1 = np.ascontiguousarray(self.x1[self.edges[:, 1]])
        r2, in_front = _core.sampson(x0, x1, R, t)
        return np.where(in_front & np.isfinite(r2), np.sqrt(r2), np.inf)


def _filter_points(
    points0: FloatArray, points1: FloatArray
) -> tuple[FloatArray, FloatArray] | tuple[None, None]:
    """Points as the motion filter can take them, or None twice if it cannot.

    The filter counts in whole pixels, so that points of a normalised plane are blown up.
    """
    both = (points0, points1)
    if any(np.abs(points).max(initial=0.0) > LARGEST_COORDINATE for points in both):
        return None, None  # no image has such a point, and cells could not be told apart
    span = max((float(np.ptp(points, axis=0).max()) for points in both if len(points)), default=0.0)
    if not 0.0 < span < _SMALLEST_IMAGE:
        return both
    return points0 * (_BLOWN_UP / span), points1 * (_BLOWN_UP / span)


def checked_options(options: object, name: str = "options") -> Options:
    """Return the given options, or the defaults for None."""
    if options is None:
        return Options()
    if not isinstance(options, Options):
        raise refusal(name, "an Options or None", options)
    return options


def checked_problems(problems: object) -> list[tuple[Any, Any, Any, Any]]:
    """List the pairs as (graph, camera0, camera1, proposals or None)."""
    want = "an iterable of (graph, camera0, camera1) or (graph, camera0, camera1, proposals)"
    if not isinstance(problems, Iterable):
        raise refusal("problems", want, problems)
    listed = []
    for i, problem in enumerate(problems):
        if not isinstance(problem, tuple | list) or len(problem) not in (3, 4):
            raise refusal(f"problems[{i}]", want.removeprefix("an iterable of "), problem)
        listed.append((*problem, None) if len(problem) == 3 else tuple(problem))
    return listed


def options_for_each(options: object, count: int) -> list[Options]:
    """Spread one Options over all pairs, or check that there is one for each."""
    if options is None or isinstance(options, Options):
        return [checked_options(options)] * count
    if not isinstance(options, Sequence) or isinstance(options, str) or len(options) != count:
        raise refusal("options", f"an Options, None or a sequence of {count} Options", options)
    return [checked_options(entry, f"options[{i}]") for i, entry in enumerate(options)]


def core_options(options: Options) -> _core.Options:
    """Convert for the core; threshold and threads are passed beside them."""
    core = _core.Options()
    for name, value in options.to_dict().items():
        if name == "without":
            core.without = sum(1 << list(INGREDIENTS).index(part) for part in options.without)
        elif name not in ("threshold_px", "threads"):
            setattr(core, name, value)
    return core


def num_threads(wanted: int) -> int:
    """Threads to start; 0 means every core this process may use."""
    if wanted > 0:
        return min(wanted, _MOST_THREADS)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
