"""Curves of recall for every pair of a set, resumable, and their means by viewpoint bin."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

import manymatch
from manymatch.runs.journal import Journal
from manymatch_paper.experiments._dense_pairs import angle_deg, bin_names, bin_of
from manymatch_paper.measures.recall import RecallCurve, macro_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from manymatch.datasets.dataset import Dataset
    from manymatch.io.pairs import Pair

#: What a curve is of: (layer, rank) or (operator,).
Key: TypeAlias = tuple[Any, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class PairCurves:
    """All curves of one pair.

    Attributes
    ----------
    scene : str
        Object or scene, for the means.
    angle_deg : float
        Between the views.
    curves : dict of Key to RecallCurve
        By layer and rank, or operator.
    """

    scene: str
    angle_deg: float
    curves: dict[Key, RecallCurve]


def pair_curves(
    dataset: Dataset,
    folder: Path,
    header: dict[str, Any],
    curves_of: Callable[[Pair], Iterable[tuple[Key, RecallCurve]]],
    *,
    notes: dict[str, None] | None = None,
    limit: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> list[PairCurves]:
    """Compute the curves of the pairs of a set that have none yet.

    Parameters
    ----------
    dataset : Dataset
        With depth and true poses.
    folder : Path
        Of the journal; a journal of another configuration is refused.
    header : dict
        The configuration, in JSON types.
    curves_of : callable
        From a pair to its curves.
    notes : dict, optional
        Sentences as keys, to which `curves_of` may add; those of earlier runs are added too.
    limit : int, optional
        Only the first pairs.
    progress : callable, optional
        Called with the number of finished pairs and that of all.
    """
    pairs = dataset.pairs[:limit]
    identity = {
        "manymatch": manymatch.__version__,
        "set": dataset.name,
        "pairs_hash": _hash(dataset),
        **header,
    }
    with Journal(folder, identity) as journal:
        done = {record["index"] for record in journal.records()}
        finished = sum(index in done for index in range(len(pairs)))
        for index, pair in enumerate(pairs):
            if index in done:
                continue
            if progress is not None:
                progress(finished, len(pairs))
            made: dict[str, Any] = {"index": index, "scene": pair.scene}
            made["angle_deg"] = angle_deg(pair)
            made["curves"] = [_written(key, curve) for key, curve in curves_of(pair)]
            made["notes"] = list(notes or ())
            journal.append([made])
            finished += 1
        if progress is not None:
            progress(finished, len(pairs))
        found = []
        for record in journal.records():
            if record["index"] < len(pairs):
                curves = dict(_read(entry) for entry in record["curves"])
                found.append(PairCurves(record["scene"], record["angle_deg"], curves))
                if notes is not None:
                    notes.update(dict.fromkeys(record["notes"]))
        return found


def by_bin(pairs: Sequence[PairCurves], bounds: Sequence[float]) -> dict[str, Any]:
    """Average curves over objects in every bin.

    Returns
    -------
    dict
        ``bins``: names, numbers of pairs and objects; ``left_out``: pairs in no bin; ``curves``:
        one entry a key and bin, with ``edges`` and ``recall`` at K = 1, 2, ... and
        ``recall_by_tau``. Recall is None where no pair of the bin has a true partner at one of
        the thresholds.
    """
    groups: list[list[PairCurves]] = [[] for _ in bounds[1:]]
    for pair in pairs:
        place = bin_of(pair.angle_deg, bounds)
        if place is not None:
            groups[place].append(pair)
    entries = []
    for place, group in enumerate(groups):
        keys = dict.fromkeys(key for pair in group for key in pair.curves)
        for key in keys:
            with_key = [pair for pair in group if key in pair.curves]
            mean = macro_mean(
                [pair.curves[key] for pair in with_key], [pair.scene for pair in with_key]
            )
            entries.append(
                {
                    "key": list(key),
                    "bin": place,
                    "edges": mean.edges.tolist(),
                    "recall": _plain(mean.mean),
                    "recall_by_tau": [_plain(row) for row in mean.recall],
                }
            )
    return {
        "bins": [
            {
                "name": name,
                "pairs": len(group),
                "objects": len({pair.scene for pair in group}),
                "without_partners": _without_partners(group),
            }
            for name, group in zip(bin_names(bounds), groups, strict=True)
        ],
        "left_out": len(pairs) - sum(map(len, groups)),
        "curves": entries,
    }


def folder_name(text: str) -> str:
    """Turn the name of a set or backbone into one of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "set"


def _without_partners(group: Sequence[PairCurves]) -> list[int]:
    """Count pairs that have nothing to recall, one number a threshold."""
    firsts = [next(iter(pair.curves.values())).recall for pair in group if pair.curves]
    if not firsts:
        return []
    return [int(count) for count in np.sum([np.isnan(recall[:, 0]) for recall in firsts], axis=0)]


def _hash(dataset: Dataset) -> str:
    digest = hashlib.sha256()
    for pair in dataset.pairs:
        pose = [None if value is None else value.tolist() for value in (pair.R, pair.t)]
        cameras = [c and c.to_dict() for c in (pair.camera0, pair.camera1)]
        line = [pair.name0, pair.name1, pair.rot0, pair.rot1, *pose, *cameras]
        digest.update(json.dumps(line).encode() + b"\n")
    return digest.hexdigest()


def _plain(values: Any) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def _written(key: Key, curve: RecallCurve) -> dict[str, Any]:
    recall = [_plain(row) for row in curve.recall]
    return {"key": list(key), "edges": curve.edges.tolist(), "recall": recall}


def _read(entry: dict[str, Any]) -> tuple[Key, RecallCurve]:
    # None becomes NaN.
    recall = np.array(entry["recall"], dtype=np.float64)
    return tuple(entry["key"]), RecallCurve(np.array(entry["edges"], dtype=np.float64), recall)
