"""How long one evaluation of a hypothesis takes with each score, for comparisons of their cost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from manymatch import _core
from manymatch.estimate.relative_pose import prepare

if TYPE_CHECKING:
    from manymatch.graph import AssociationGraph
    from manymatch.options import Options

# Minimal samples, each of which gives up to ten hypotheses, and rounds over all of them.
_SAMPLES, _REPEATS = 400, 5


def scorer_times(
    graph: AssociationGraph, camera0: object, camera1: object, options: Options
) -> dict[str, float] | None:
    """Seconds of an HCM ("hcm") and of an MCM ("mcm") evaluation of a sampled pose, on one thread.

    The poses come from minimal samples of the graph, and are scored as in the search: with early
    rejection, and without the preparation that a search does once. None if the graph gives no pose.
    """
    pair = prepare(graph.compact()[0], camera0, camera1, options)
    rows = _core.sample(pair.edges, None, 0, _SAMPLES, uniform_edges=False)
    ends = pair.edges[rows[(rows >= 0).all(axis=1)]]
    if not len(ends):
        return None
    one = np.ones((len(ends), 5, 1))
    rays0 = np.concatenate([pair.x0[ends[..., 0]], one], axis=2)
    rays1 = np.concatenate([pair.x1[ends[..., 1]], one], axis=2)
    _, R, t = _core.five_point(rays0, rays1)
    if not len(R):
        return None
    fixed = (pair.x0, pair.x1, pair.edges, pair.eps, pair.options.q, pair.options.delta)

    def seconds(count: int, mechanism: str) -> float:
        start = time.perf_counter()
        _core.screened_scores(*fixed, R[:count], t[:count], mechanism)
        return time.perf_counter() - start

    times = {}
    for mechanism in ("hcm", "mcm"):
        best, prepared = (min(seconds(n, mechanism) for _ in range(_REPEATS)) for n in (len(R), 0))
        times[mechanism] = max(best - prepared, 0.0) / len(R)
    return times
