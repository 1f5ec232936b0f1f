"""Pose AUC on the graphs of real images, beside the reference results.

    python benchmarks/accuracy/real_graphs.py --out out/accuracy

For every representation (sift, superpoint, effnet, sam2) and set: the first 1024 edges, 1,000 to
20,000 iterations, 1 px, five seeds. Writes ``real_<representation>.json`` with every error, from
which an interrupted run goes on, and ``real_graphs.md`` with the tables.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy import protocol
from benchmarks.accuracy.protocol import Method, Pair, Store

OPTIONS = manymatch.Options(threshold_px=1.0, min_iterations=1_000, max_iterations=20_000)
MAX_EDGES = 1024
METHODS = (
    Method("PoseLib CM, rank-one edges", "poselib", rank_one_only=True),
    Method("cm", "cm"),
    Method("hcm", "hcm"),
    Method("mcm", "mcm"),
    Method("hcm-mcm", "hcm-mcm"),
    Method("hcm-mcm, guidance 0.5", "hcm-mcm", guidance=0.5),
    Method("hcm-mcm, guidance 1", "hcm-mcm", guidance=1.0),
)
# Lines of the reference results, and what ours they are to be compared with.
REFERENCE = {
    "MNN_CM": "reference: PoseLib CM, rank-one edges",
    "HCM_MC": "reference: two-stage",
}
REFERENCE_SETS = {"metu_vistir_pseudo": "metu_dev"}


def load_set(folder: Path) -> list[Pair]:
    """All pairs of a set, in the order of their numbers."""
    pairs = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            graph = manymatch.AssociationGraph(
                file["points0"], file["points1"], file["edges"], file["similarity"], file["rank"]
            )
            pairs.append(
                Pair(graph, file["K0"], file["K1"], protocol.nearest_rotation(file["R"]), file["t"])
            )
    return pairs


def run_representation(folder: Path, store: Store, seeds: int) -> list[str]:
    """Run what is missing for one representation; returns the names of its sets."""
    sets = sorted(path.name for path in folder.iterdir() if path.is_dir())
    with protocol.progress_bar() as progress:
        task = progress.add_task(folder.name, total=len(sets) * len(METHODS))
        for name in sets:
            pairs: list[Pair] | None = None
            for method in METHODS:
                progress.update(task, description=f"{folder.name}: {name}, {method.name}")
                key = f"{method.name}/{name}"
                if store.get(key) is None:
                    pairs = load_set(folder / name) if pairs is None else pairs
                    errors = protocol.errors_by_seed(method, pairs, OPTIONS, MAX_EDGES, seeds)
                    store.put(key, errors)
                progress.advance(task)
    return sets


def tables(representation: str, sets: list[str], store: Store, reference: dict[str, Any]) -> str:
    """Markdown: one line a method, the macro average first, then every set."""
    rows = []
    for method in METHODS:
        by_set = [protocol.auc_by_seed(store.get(f"{method.name}/{name}") or []) for name in sets]
        values = [np.mean(by_set, axis=0), *by_set]
        rows.append([method.name, *map(protocol.mean_and_sd, values)])
    for key, label in REFERENCE.items():
        known = reference.get(f"{representation}/dev/{key}")
        if known:
            by_set = [known[REFERENCE_SETS.get(name, name)][:3] for name in sets]
            rows.append([label, *map(protocol.plain, [np.mean(by_set, axis=0), *by_set])])
    count = len(store.get(f"{METHODS[0].name}/{sets[0]}") or [])
    return (
        f"## {representation}\n\nPose AUC@5/10/20 in percent, mean ± standard deviation over "
        f"{count} seeds; the reference is one seed.\n\n"
        + protocol.markdown_table(["method", "macro average", *sets], rows)
        + "\n"
    )


def main() -> None:
    task = protocol.real_graphs(__doc__.splitlines()[0])
    if task is None:
        return
    settings = {
        "options": OPTIONS.to_dict(),
        "max_edges": MAX_EDGES,
        "seeds": task.seeds,
        "version": manymatch.__version__,
    }
    sections = []
    for representation in task.representations:
        store = Store(task.out / f"real_{representation}.json", settings)
        sets = run_representation(task.folder / representation, store, task.seeds)
        sections.append(tables(representation, sets, store, task.reference))
        text = "# Real graphs\n\n" + "\n".join(sections)
        (task.out / "real_graphs.md").write_text(text)
    sys.stdout.write("\n".join(sections))


if __name__ == "__main__":
    main()
