"""What the experiments on pose accuracy share: running every set, and where the paper stands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch import __version__
from manymatch.evaluate.run import run_set
from manymatch.evaluate.statistics import THRESHOLDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from manymatch.estimate.options import Options
    from manymatch.evaluate.run import RunConfig, RunResult
    from manymatch.evaluate.sources import GraphSource

    Results = dict[str, RunResult]
    Found = list[tuple[str, list[tuple[GraphSource, Results]]]]

#: The paper's six sets by the names that the datasets have here.
PAPER_SETS = ("scannet1500", "megadepth1500", "navi-multi", "navi-wild", "metu-cc", "metu-cs")


def run_sources(
    sources: Sequence[GraphSource],
    configs: Mapping[str, RunConfig],
    folder: Path,
    *,
    workers: int = 0,
    limit: int | None = None,
    progress: Any = None,
) -> Found:
    """Run all configurations on all sources; what was run before is read.

    Returns
    -------
    list of (representation, list of (source, results by configuration))
        In the order of the sources, those of one representation together.
    """
    found: dict[str, list[tuple[GraphSource, Results]]] = {}
    for source in sources:
        results = run_set(
            source,
            configs,
            run_folder(folder, source),
            workers=workers,
            limit=limit,
            progress=progress,
        )
        found.setdefault(source.representation, []).append((source, results))
    return list(found.items())


def run_folder(folder: Path, source: GraphSource) -> Path:
    """Where the runs of a source are kept."""
    return folder / "runs" / _safe(source.representation) / _safe(source.name)


def settings_of(options: Options, seeds: int, limit: int | None) -> dict[str, Any]:
    """Record what was run, as JSON types."""
    return {
        "thresholds": list(THRESHOLDS),
        "seeds": seeds,
        "limit": limit,
        "options": options.to_dict(),
        "version": __version__,
    }


def front_text(front: Mapping[str, Any]) -> str:
    """Say what the estimator sees of the candidates, from the settings of an `Association`."""
    parts = [f"mutual {front['k']} nearest neighbours"]
    if front["max_edges"] is not None:
        parts.append(f"the first {front['max_edges']} edges")
    parts.append("many-to-many GMS" if front["gms"] else "no GMS")
    if front["keep"] is not None:
        parts.append(f"the first {front['keep']}")
    return ", ".join(parts)


def described(sources: Sequence[tuple[GraphSource, Results]]) -> list[dict[str, Any]]:
    """Name, title and number of pairs of every set of a representation."""
    return [
        {
            "name": source.name,
            "title": source.title,
            "pairs": len(next(iter(results.values()))),
        }
        for source, results in sources
    ]


def about_paper(data: Mapping[str, Any]) -> list[str]:
    """Say what the paper's numbers are and whether ours can be compared with them."""
    names = {entry["name"] for run in data["runs"] for entry in run["sets"]}
    known = [name for name in PAPER_SETS if name in names]
    shown = [run["representation"] for run in data["runs"]]
    sentences = [
        "Numbers of the paper, set apart, are for corrected DINOv3 ViT-L/16 features at SuperPoint "
        "keypoints unless said otherwise; ours are for what the title of each table names."
    ]
    if not known:
        sentences.append(
            "None of the sets here is one of the paper's, so its averages over six datasets stand "
            "there for orientation: orderings can be compared, values cannot."
        )
    elif shown != ["dinov3"]:
        sentences.append("Values can be compared only where set and representation are the same.")
    if data["settings"].get("limit"):
        sentences.append(f"Only the first {data['settings']['limit']} pairs of each set were run.")
    sentences += [f"{entry['set']} was not run: {entry['why']}." for entry in data["missing"]]
    return sentences


def mean_column(result: RunResult, name: str) -> float | None:
    """Mean of a number over all trials that have it."""
    values = result.column(name)
    known = np.isfinite(values)
    return float(values[known].mean()) if known.any() else None


def missing_list(missing: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Copy the sets that are not here as plain dicts."""
    return [{"set": entry["set"], "why": entry["why"]} for entry in missing]


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "set"
