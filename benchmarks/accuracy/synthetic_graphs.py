"""Pose errors on the synthetic graphs, beside the reference results.

    python benchmarks/accuracy/synthetic_graphs.py --out out/accuracy

80 graphs of 1024 edges at four edge-inlier ratios, 1,000 to 100,000 iterations, 1 px, five seeds.
Writes ``synthetic.json`` with every error, from which an interrupted run goes on, and
``synthetic_graphs.md`` with the tables.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy import protocol
from benchmarks.accuracy.protocol import Method, Pair, Store
from tests.support.data_folder import data_folder

OPTIONS = manymatch.Options(threshold_px=1.0, min_iterations=1_000, max_iterations=100_000)
MAX_EDGES = 1024
METHODS = (
    Method("PoseLib CM", "poselib"),
    Method("cm", "cm"),
    Method("hcm", "hcm"),
    Method("mcm", "mcm"),
    Method("hcm-mcm", "hcm-mcm"),
    Method("auto", "auto"),
)
REFERENCE = {
    "CM_pypi": "reference: PoseLib CM",
    "HCM": "reference: hcm",
    "MCM": "reference: mcm",
    "HCM_MC": "reference: two-stage",
}


def load_ratio(folder: Path, ratio: str) -> list[Pair]:
    """All graphs of one edge-inlier ratio."""
    pairs = []
    for path in sorted(folder.glob(f"g_{ratio}_*.npz")):
        with np.load(path) as file:
            edges = np.column_stack([file["idx1"], file["idx2"]])
            graph = manymatch.AssociationGraph(
                file["kp1"], file["kp2"], edges, file["similarity"], file["first_k"]
            )
            pairs.append(
                Pair(graph, file["K1"], file["K2"], protocol.nearest_rotation(file["R"]), file["t"])
            )
    return pairs


def run(
    folder: Path, ratios: list[str], store: Store, seeds: int, options: manymatch.Options
) -> None:
    """Run what is missing."""
    with protocol.progress_bar() as progress:
        task = progress.add_task("synthetic", total=len(ratios) * len(METHODS))
        for ratio in ratios:
            pairs = load_ratio(folder, ratio)
            for method in METHODS:
                progress.update(task, description=f"synthetic: ratio {ratio}, {method.name}")
                key = f"{method.name}/{ratio}"
                if store.get(key) is None:
                    errors = protocol.errors_by_seed(method, pairs, options, MAX_EDGES, seeds)
                    store.put(key, errors)
                progress.advance(task)


def cell(errors: list[list[float]]) -> str:
    """AUC over the seeds and the median error of all runs."""
    median = np.median(errors)
    return f"{protocol.mean_and_sd(protocol.auc_by_seed(errors))} (median {median:.2f}°)"


def tables(ratios: list[str], store: Store, reference: dict[str, Any]) -> str:
    """Markdown: one line a method, one column a ratio."""
    rows = [
        [method.name, *(cell(store.get(f"{method.name}/{ratio}") or []) for ratio in ratios)]
        for method in METHODS
    ]
    for key, label in REFERENCE.items():
        row = [label]
        for ratio in ratios:
            prefix = f"{key}/{ratio}/"
            errors = [v["error_deg"] for k, v in sorted(reference.items()) if k.startswith(prefix)]
            auc = protocol.plain(protocol.auc_by_seed([errors])[0])
            row.append(f"{auc} (median {np.median(errors):.2f}°)")
        rows.append(row)
    return (
        "# Synthetic graphs\n\nPose AUC@5/10/20 in percent by edge-inlier ratio, mean ± standard "
        "deviation over seeds; the reference is one seed.\n\n"
        + protocol.markdown_table(["method", *ratios], rows)
        + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/accuracy"), help="folder of results")
    parser.add_argument("--seeds", type=int, default=protocol.SEEDS, help="repetitions")
    parser.add_argument(
        "--iterations", type=int, default=OPTIONS.max_iterations, help="most iterations of a search"
    )
    arguments = parser.parse_args()
    data = data_folder()
    if data is None or not (data / "graphs" / "made").is_dir():
        sys.stdout.write(
            "synthetic graphs: not here, set MANYMATCH_DATA to the folder that has them\n"
        )
        return
    folder = data / "graphs" / "made"
    reference = json.loads((data / "graphs" / "made_reference.json").read_text())
    ratios = sorted({path.stem.split("_")[1] for path in folder.glob("g_*.npz")})
    options = OPTIONS.replace(max_iterations=arguments.iterations)
    settings = {
        "options": options.to_dict(),
        "max_edges": MAX_EDGES,
        "seeds": arguments.seeds,
        "version": manymatch.__version__,
    }
    store = Store(arguments.out / "synthetic.json", settings)
    run(folder, ratios, store, arguments.seeds, options)
    text = tables(ratios, store, reference)
    (arguments.out / "synthetic_graphs.md").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
