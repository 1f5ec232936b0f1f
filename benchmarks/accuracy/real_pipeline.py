"""Pose AUC of the practical pipeline on the graphs of real images, beside the reference.

    python benchmarks/accuracy/real_pipeline.py --out out/accuracy

For every representation (sift, superpoint, effnet, sam2) and set: the first 2048 edges, the GMS
filter, the first 1024 of what is left, then the two-stage estimator with 1,000 to 20,000
iterations, 1 px, five seeds. Writes ``pipeline_<representation>.json`` with every error, from which
an interrupted run goes on, and ``real_pipeline.md`` and ``real_pipeline.json`` with the tables.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy import protocol
from benchmarks.accuracy.protocol import Method, Pair, Store
from benchmarks.accuracy.real_graphs import OPTIONS, REFERENCE_SETS, load_set

ASSOCIATED, KEPT = 2048, 1024
METHOD = Method("hcm-mcm", "hcm-mcm")
REFERENCE = "G_HCM_MC"
HEADER = ["set", "pairs", "edges after GMS", "AUC@5/10/20", "reference"]


def filtered(folder: Path) -> list[Pair]:
    """All pairs of a set, their first edges filtered by GMS."""
    pairs = []
    for pair, path in zip(load_set(folder), sorted(folder.glob("*.npz")), strict=True):
        with np.load(path) as file:
            sizes = file["size0"], file["size1"]
        graph = pair.graph.head(ASSOCIATED)
        graph = graph.filter(manymatch.gms_filter(graph, *sizes).mask)
        pairs.append(dataclasses.replace(pair, graph=graph))
    return pairs


def run_representation(folder: Path, store: Store, seeds: int) -> dict[str, Any]:
    """Run what is missing for one representation; one record a set."""
    records = {}
    sets = sorted(path for path in folder.iterdir() if path.is_dir())
    with protocol.progress_bar() as progress:
        task = progress.add_task(folder.name, total=len(sets))
        for path in sets:
            progress.update(task, description=f"{folder.name}: {path.name}")
            pairs = filtered(path)
            errors = store.get(path.name)
            if errors is None:
                errors = protocol.errors_by_seed(METHOD, pairs, OPTIONS, KEPT, seeds)
                store.put(path.name, errors)
            records[path.name] = {
                "pairs": len(pairs),
                "edges_after_gms": float(np.mean([pair.graph.num_edges for pair in pairs])),
                "auc_by_seed": protocol.auc_by_seed(errors).tolist(),
            }
            progress.advance(task)
    return records


def with_reference(records: dict[str, Any], known: dict[str, list[float]]) -> dict[str, Any]:
    """Put the reference beside every set, and the macro average over the sets in front."""
    for name, record in records.items():
        record["reference"] = known[REFERENCE_SETS.get(name, name)][:3]
    values = list(records.values())
    macro = {
        "pairs": sum(record["pairs"] for record in values),
        "edges_after_gms": float(np.mean([record["edges_after_gms"] for record in values])),
        "auc_by_seed": np.mean([record["auc_by_seed"] for record in values], axis=0).tolist(),
        "reference": np.mean([record["reference"] for record in values], axis=0).tolist(),
    }
    return {"macro average": macro, **records}


def table(representation: str, records: dict[str, Any]) -> str:
    """Markdown: one line a set, the macro average first."""
    rows = [
        [
            name,
            str(record["pairs"]),
            f"{record['edges_after_gms']:.0f}",
            protocol.mean_and_sd(np.array(record["auc_by_seed"])),
            protocol.plain(record["reference"]),
        ]
        for name, record in records.items()
    ]
    return f"## {representation}\n\n" + protocol.markdown_table(HEADER, rows) + "\n"


def main() -> None:
    task = protocol.real_graphs(__doc__.splitlines()[0])
    if task is None:
        return
    settings = {
        "options": OPTIONS.to_dict(),
        "associated": ASSOCIATED,
        "kept": KEPT,
        "seeds": task.seeds,
        "version": manymatch.__version__,
    }
    results: dict[str, Any] = {}
    text = (
        f"# Real graphs, the practical pipeline\n\nFirst {ASSOCIATED} edges, GMS, first {KEPT}, "
        f"two-stage. Pose AUC in percent, mean ± standard deviation over {task.seeds} seeds; "
        "the reference is one seed.\n"
    )
    for representation in task.representations:
        store = Store(task.out / f"pipeline_{representation}.json", settings)
        records = run_representation(task.folder / representation, store, task.seeds)
        results[representation] = with_reference(
            records, task.reference[f"{representation}/dev/{REFERENCE}"]
        )
        text += "\n" + table(representation, results[representation])
        (task.out / "real_pipeline.md").write_text(text)
        content = {"settings": settings, "results": results}
        (task.out / "real_pipeline.json").write_text(json.dumps(content, indent=1))
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
