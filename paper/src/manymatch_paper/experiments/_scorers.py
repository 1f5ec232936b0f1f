"""How long one evaluation of a hypothesis takes, on the graphs of a set."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch import _core
from manymatch._files import write_whole
from manymatch.estimate.relative_pose import prepare

if TYPE_CHECKING:
    from pathlib import Path

    from manymatch._validate import FloatArray
    from manymatch.associate.candidates import Association
    from manymatch.estimate.options import Options
    from manymatch.estimate.prepare import PreparedPair
    from manymatch.evaluate.posed_graph import PosedGraph
    from manymatch.evaluate.sources import GraphSource

# Minimal samples a graph, of which each gives up to ten hypotheses, and rounds over all of them.
_SAMPLES, _REPEATS = 400, 5


def scorer_times(
    source: GraphSource,
    association: Association,
    options: Options,
    pairs: int,
    timed: int,
    folder: Path,
) -> dict[str, float] | None:
    """Mean microseconds of an HCM and of an MCM evaluation on sampled hypotheses, one thread.

    Parameters
    ----------
    source : GraphSource
        The set.
    association : Association
        What the estimator sees of a graph.
    options : Options
        Threshold, q and delta.
    pairs : int
        Pairs of the set that are used at all, from the first.
    timed : int
        How many of them are timed, evenly spread; 0 for none.
    folder : Path
        Where the times are kept, so that a run that is drawn again shows the same.

    Returns
    -------
    {"hcm", "mcm", "pairs"} or None
        None if nothing was timed, or no pair has enough candidates.
    """
    if timed == 0:
        return None
    chosen = sorted(set(np.linspace(0, pairs - 1, min(timed, pairs)).round().astype(int).tolist()))
    key = {
        "source": source.identity,
        "front": association.to_dict(),
        "options": {name: getattr(options, name) for name in ("threshold_px", "q", "delta")},
        "pairs": chosen,
    }
    path = folder / "scorers.json"
    kept = _kept(path)
    # A round trip through JSON, as keys of mappings and tuples change on it.
    if kept is not None and kept["key"] == json.loads(json.dumps(key)):
        return kept["times"] or None
    measured = [pair for i in chosen if (pair := _time_pair(source[i], association, options))]
    times = (
        {
            "hcm": float(np.mean([hcm for hcm, _ in measured])),
            "mcm": float(np.mean([mcm for _, mcm in measured])),
            "pairs": len(measured),
        }
        if measured
        else None
    )
    text = json.dumps({"key": key, "times": times}, indent=1)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda file: file.write(text.encode()))
    return times


def _time_pair(
    posed: PosedGraph, association: Association, options: Options
) -> tuple[float, float] | None:
    """Microseconds of both scorers on one pair; None without a hypothesis."""
    graph = association.apply(posed.graph, posed.size0, posed.size1).compact()[0]
    scaled = options.replace(threshold_px=options.threshold_px * posed.pixels)
    pair = prepare(graph, posed.camera0, posed.camera1, scaled)
    rows = _core.sample(pair.edges, None, 0, _SAMPLES, uniform_edges=False)
    ends = pair.edges[rows[(rows >= 0).all(axis=1)]]
    if len(ends) == 0:
        return None
    one = np.ones((len(ends), 5, 1))
    rays0 = np.concatenate([pair.x0[ends[..., 0]], one], axis=2)
    rays1 = np.concatenate([pair.x1[ends[..., 1]], one], axis=2)
    _, R, t = _core.five_point(rays0, rays1)
    if len(R) == 0:
        return None
    return _microseconds(pair, R, t, "hcm"), _microseconds(pair, R, t, "mcm")


def _microseconds(pair: PreparedPair, R: FloatArray, t: FloatArray, mechanism: str) -> float:
    """Microseconds of one evaluation as in the search, the least of some repetitions."""
    points = (pair.x0, pair.x1, pair.edges, pair.eps)
    prior = (pair.options.q, pair.options.delta)

    def seconds(count: int) -> float:
        start = time.perf_counter()
        _core.screened_scores(*points, *prior, R[:count], t[:count], mechanism)
        return time.perf_counter() - start

    # The preparation, which a call without poses consists of, is done once in a search.
    best, preparation = (min(seconds(n) for _ in range(_REPEATS)) for n in (len(R), 0))
    return 1e6 * max(best - preparation, 0.0) / len(R)


def _kept(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    known = isinstance(content, dict) and {"key", "times"} <= content.keys()
    return content if known else None
