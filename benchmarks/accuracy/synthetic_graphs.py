"""Pose errors on the synthetic graphs of the reference data, beside the reference results.

    python benchmarks/accuracy/synthetic_graphs.py --out out/accuracy

80 graphs of 1024 edges at four edge-inlier ratios, 1,000 to 100,000 iterations, 1 px, five seeds.
A run that was interrupted resumes. Writes ``synthetic_graphs.md``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy import protocol
from manymatch.associate.candidates import Association
from manymatch_lab.evaluate.posed_graph import PosedGraph
from manymatch_lab.evaluate.run import RunConfig
from manymatch_lab.evaluate.statistics import auc_by_seed
from manymatch_lab.evaluate.tables import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

METHODS = ("poselib", "cm", "hcm", "mcm", "hcm-mcm", "auto")
REFERENCE = {"CM_pypi": "poselib", "HCM": "hcm", "MCM": "mcm", "HCM_MC": "hcm-mcm"}


@dataclasses.dataclass(frozen=True)
class RatioSource:
    """The graphs of one edge-inlier ratio."""

    folder: Path
    name: str
    representation: str = "synthetic"
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"ratio {self.name}"

    @cached_property
    def paths(self) -> list[Path]:
        return sorted(self.folder.glob(f"g_{self.name}_*.npz"))

    @cached_property
    def identity(self) -> dict[str, Any]:
        contents = b"".join(path.read_bytes() for path in self.paths)
        return {"ratio": self.name, "sha256": hashlib.sha256(contents).hexdigest()}

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> PosedGraph:
        with np.load(self.paths[index]) as file:
            edges = np.column_stack([file["idx1"], file["idx2"]])
            points = [file[name].astype(float) for name in ("kp1", "kp2")]
            graph = manymatch.AssociationGraph(*points, edges, file["similarity"], file["first_k"])
            u, _, vt = np.linalg.svd(file["R"])  # the file has few digits
            cameras = [manymatch.Camera.from_matrix(file[name]) for name in ("K1", "K2")]
            sizes = [tuple(int(v) + 1 for v in np.ceil(p.max(axis=0))) for p in points]
            stem = self.paths[index].stem
            return PosedGraph(
                f"{stem}-0", f"{stem}-1", graph, *cameras, *sizes, u @ vt, file["t"], index + 1
            )

    def order(self, indices: Sequence[int]) -> Sequence[int]:
        return indices


def cell(errors: np.ndarray) -> str:
    """AUC over the seeds and the median of the errors (seeds, graphs)."""
    return f"{protocol.auc_text(auc_by_seed(errors))} (median {np.median(errors):.2f}°)"


def main() -> None:
    parser = protocol.arguments(__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=100_000, help="most of a search")
    given = parser.parse_args()
    graphs = protocol.reference_data("graphs")
    if graphs is None:
        return
    reference = json.loads((graphs / "made_reference.json").read_text())
    folder = graphs / "made"
    ratios = sorted({path.stem.split("_")[1] for path in folder.glob("g_*.npz")})
    options = protocol.OPTIONS.replace(max_iterations=given.iterations)
    configs = {name: RunConfig(name, Association.uncapped(5), options) for name in METHODS}
    sources = [RatioSource(folder, ratio) for ratio in ratios]
    runs = protocol.run(sources, configs, given.out / "synthetic_graphs", given.seeds)
    rows = [[name, *(cell(run.errors) for run in of_ratio)] for name, of_ratio in runs.items()]
    for key, name in REFERENCE.items():
        row = [f"reference: {name}"]
        for ratio in ratios:
            prefix = f"{key}/{ratio}/"
            found = [v["error_deg"] for k, v in sorted(reference.items()) if k.startswith(prefix)]
            row.append(cell(np.array([found])))
        rows.append(row)
    title = "Pose AUC@5/10/20 by edge-inlier ratio; the reference is one seed"
    protocol.write(given.out, "synthetic_graphs", [Table(title, ["method", *ratios], rows)])


if __name__ == "__main__":
    main()
