"""Diagnose a representation: recall against number of candidates, by layer and debias rank.

Patches of two views are associated by mutual K-nearest neighbours without a cap; depth and poses
only judge the edges. How much of the truth is kept, and what does it cost?
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import integer
from manymatch_paper.experiments._pair_curves import by_bin, folder_name, pair_curves
from manymatch_paper.experiments.diagnose_figure import FIGURES
from manymatch_paper.experiments.diagnose_tables import notes, tables
from manymatch_paper.measures.frontier import frontier_regret, interpolated_gap
from manymatch_paper.measures.recall import TAUS_CM, descriptor_recall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from manymatch.datasets.dataset import Dataset
    from manymatch.io.pairs import Pair
    from manymatch_paper.experiments._dense_pairs import PatchSource
    from manymatch_paper.measures.recall import RecallCurve

__all__ = ["FIGURES", "notes", "run", "tables"]

#: Rank at which the paper compares layers.
_PAPER_RANK = 200
# A curve: numbers of edges and recalls at K = 1, 2, ...
_Curve = tuple[list[float], list[float]]


def run(
    sets: Sequence[Dataset],
    sources: Sequence[PatchSource],
    folder: Path,
    *,
    k: int = 8,
    bins: Sequence[float] = (0.0, 40.0, 80.0, 120.0),
    taus_cm: Sequence[float] = TAUS_CM,
    rank: int | None = None,
    limit: int | None = None,
    progress: Callable[[str, int, int], object] | None = None,
) -> dict[str, Any]:
    """Measure every set with every backbone, or go on with a run that was stopped.

    Parameters
    ----------
    sets : sequence of Dataset
        With depth and true poses.
    sources : sequence of PatchSource
        Backbones with their layers and ranks.
    folder : Path
        Where the journals are kept, one a set and backbone.
    k : int
        Largest K.
    bins : sequence of float
        Bounds of the viewpoint bins in degrees, ascending; a bin holds its lower bound.
    taus_cm : sequence of float
        Distances in centimetres below which two patches are partners; recall is averaged.
    rank : int, optional
        Debias rank at which layers are compared; by default 200 where it was tested, else the
        one that gains most over the lowest rank at the same number of edges.
    limit : int, optional
        Only the first pairs of each set.
    progress : callable, optional
        Called with what is being done, the finished pairs and all pairs.

    Returns
    -------
    dict
        What `tables` and the figures need, as JSON types.
    """
    integer(k, "k", 1)
    runs = []
    for dataset, source in itertools.product(sets, sources):
        what = f"{dataset.title}, {source.backbone.name}"
        found = pair_curves(
            dataset,
            folder / "runs" / folder_name(dataset.title) / folder_name(source.backbone.name),
            {"experiment": "diagnose", **source.header(), "k": k, "taus_cm": list(taus_cm)},
            lambda pair, d=dataset, s=source: _curves(d, s, pair, k, taus_cm),  # type: ignore[misc]
            notes=source.notes,
            limit=limit,
            progress=None if progress is None else lambda n, m, w=what: progress(w, n, m),  # type: ignore[misc]
        )
        means = by_bin(found, bins)
        for entry in means["curves"]:
            entry["layer"], entry["rank"] = entry.pop("key")
        runs.append(
            {
                "set": dataset.name,
                "title": dataset.title,
                "backbone": source.backbone.name,
                "layers": list(source.layers),
                "num_layers": source.backbone.num_layers,
                "strides": [source.backbone.stride_of(layer) for layer in source.layers],
                "ranks": list(source.ranks),
                "longest": source.longest,
                "pairs": len(found),
                **means,
                "notes": [*dataset.notes, *source.notes],
                "summary": _summary(means["curves"], source.ranks, rank),
            }
        )
    return {"k": k, "taus_cm": list(taus_cm), "bounds_deg": list(bins), "runs": runs}


def _curves(
    dataset: Dataset, source: PatchSource, pair: Pair, k: int, taus_cm: Sequence[float]
) -> Iterable[tuple[tuple[int, int], RecallCurve]]:
    for layer, rank, truth, desc0, desc1 in source.patches(dataset, pair, taus_cm):
        yield (layer, rank), descriptor_recall(truth, desc0, desc1, k)


def _summary(
    entries: Sequence[dict[str, Any]], ranks: Sequence[int], rank: int | None
) -> dict[str, Any]:
    """Regret of every layer at every rank, gaps between ranks, and what was selected."""
    curves: dict[tuple[int, int, int], _Curve] = {
        (entry["layer"], entry["rank"], entry["bin"]): (entry["edges"], entry["recall"])
        for entry in entries
        if None not in entry["recall"]
    }
    regrets: list[dict[str, Any]] = [
        {"rank": s, "layer": layer, "regret": float(np.mean(values)), "by_bin": values}
        for s in ranks
        for layer, values in _regret(curves, s).items()
    ]
    gaps = [_gap(curves, a, b) for a, b in itertools.pairwise(ranks)]
    shown = _shown_rank(curves, ranks, rank)
    at_rank = [entry for entry in regrets if entry["rank"] == shown]
    best = min(at_rank, key=lambda entry: entry["regret"], default=None)
    return {
        "rank": shown,
        "layer": None if best is None else best["layer"],
        "regrets": regrets,
        "gaps": [gap for gap in gaps if gap is not None],
    }


def _regret(curves: dict[tuple[int, int, int], _Curve], rank: int) -> dict[int, list[float]]:
    """Mean regret over K of every layer in every bin, against the frontier at one rank."""
    result: dict[int, list[float]] = {}
    for place in sorted({place for _, s, place in curves if s == rank}):
        layers = {
            layer: curve for (layer, s, at), curve in curves.items() if (s, at) == (rank, place)
        }
        for layer, regret in frontier_regret(layers).items():
            result.setdefault(layer, []).append(float(regret.mean()))
    return result


def _gap(
    curves: dict[tuple[int, int, int], _Curve], first: int, second: int
) -> dict[str, Any] | None:
    """Compare two ranks at equal numbers of edges, averaged over layers and bins."""
    found = [
        interpolated_gap(curve, curves[layer, second, place])
        for (layer, s, place), curve in curves.items()
        if s == first and (layer, second, place) in curves
    ]
    shared = [gap for gap in found if not np.isnan(gap[0])]
    if not shared:
        return None
    absolute, signed = np.mean(shared, axis=0).tolist()
    return {
        "ranks": [first, second],
        "absolute": absolute,
        "signed": signed,
        "curves": len(shared),
        "without_range": len(found) - len(shared),
    }


def _shown_rank(
    curves: dict[tuple[int, int, int], _Curve], ranks: Sequence[int], wanted: int | None
) -> int:
    """Choose the rank at which layers are compared."""
    if wanted is not None:
        if wanted not in ranks:
            tested = ", ".join(map(str, ranks))
            raise ValueError(f"rank must be one that is tested ({tested}), got {wanted}")
        return wanted
    if _PAPER_RANK in ranks:
        return _PAPER_RANK
    gains = {s: _gap(curves, ranks[0], s) for s in ranks[1:]}
    known = {s: gap["signed"] for s, gap in gains.items() if gap is not None}
    best = max(known, key=lambda s: known[s], default=ranks[0])
    return best if known.get(best, 0.0) > 0.0 else ranks[0]
