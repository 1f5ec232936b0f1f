"""What the accuracy benchmarks share: the methods, the runs, their store and the AUC tables."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import manymatch
from manymatch.evaluate import pose_auc, pose_error_deg
from manymatch.evaluate.estimators import estimate_with_poselib
from tests.support.data_folder import data_folder

SEEDS = 5
REPRESENTATIONS = ("sift", "superpoint", "effnet", "sam2")
THRESHOLDS = (5, 10, 20)


@dataclasses.dataclass(frozen=True)
class RealGraphs:
    """What a benchmark on real graphs was asked to do, and where its data is."""

    out: Path
    representations: tuple[str, ...]
    seeds: int
    folder: Path
    reference: dict[str, Any]


def real_graphs(description: str) -> RealGraphs | None:
    """Read the command line of a benchmark on real graphs; None, said aloud, without the data."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=Path("out/accuracy"), help="folder of results")
    parser.add_argument("--only", choices=REPRESENTATIONS, nargs="+", default=REPRESENTATIONS)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="repetitions")
    arguments = parser.parse_args()
    data = data_folder()
    if data is None or not (data / "graphs").is_dir():
        sys.stdout.write("real graphs: not here, set MANYMATCH_DATA to the folder that has them\n")
        return None
    folder = data / "graphs"
    reference = json.loads((folder / "real_reference.json").read_text())
    return RealGraphs(arguments.out, tuple(arguments.only), arguments.seeds, folder, reference)


@dataclasses.dataclass(frozen=True)
class Pair:
    """A graph with its cameras and true pose."""

    graph: manymatch.AssociationGraph
    camera0: Any
    camera1: Any
    R: np.ndarray
    t: np.ndarray


def nearest_rotation(R: np.ndarray) -> np.ndarray:
    """Make a true rotation that was written with few digits orthonormal again."""
    u, _, vt = np.linalg.svd(R)
    return u @ vt


@dataclasses.dataclass(frozen=True)
class Method:
    """One line of a table: an estimator, what it sees of the graph, and how it samples."""

    name: str
    estimator: str
    rank_one_only: bool = False
    guidance: float = 0.0

    def graph(self, pair: Pair, max_edges: int) -> manymatch.AssociationGraph:
        """Take what the method sees of a graph: its first edges, or its first of rank one."""
        graph = pair.graph.up_to_rank(1) if self.rank_one_only else pair.graph
        return graph.head(max_edges)

    def poses(
        self, jobs: list[tuple[Pair, manymatch.Options]], max_edges: int
    ) -> list[manymatch.RelativePose | None]:
        """Run all jobs, side by side on all cores."""
        problems = [(self.graph(pair, max_edges), pair.camera0, pair.camera1) for pair, _ in jobs]
        if self.estimator == "poselib":
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                found = pool.map(
                    lambda job: estimate_with_poselib(*job[0], job[1][1]).pose,
                    zip(problems, jobs, strict=True),
                )
                return list(found)
        settings = [options.replace(guidance=self.guidance) for _, options in jobs]
        estimates = manymatch.estimate_relative_poses(problems, self.estimator, settings)
        return [estimate.pose for estimate in estimates]


class Store:
    """Errors of finished runs in one JSON file that never mixes settings."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path = path
        self.content: dict[str, Any] = {"settings": settings, "errors_deg": {}}
        if path.is_file():
            self.content = json.loads(path.read_text())
            if self.content["settings"] != settings:
                raise SystemExit(
                    f"{path} holds results of other settings; remove it or choose another folder"
                )

    def get(self, key: str) -> list[list[float]] | None:
        """Errors by seed and pair, if this run is finished."""
        return self.content["errors_deg"].get(key)

    def put(self, key: str, errors: list[list[float]]) -> None:
        """Keep a finished run; the file is replaced as a whole and never half written."""
        self.content["errors_deg"][key] = errors
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".part")
        draft.write_text(json.dumps(self.content, indent=1))
        draft.replace(self.path)


def errors_by_seed(
    method: Method, pairs: list[Pair], options: manymatch.Options, max_edges: int, seeds: int
) -> list[list[float]]:
    """Errors (seeds, pairs); pair i, from 1, has the seed i + b in repetition b, from 0."""
    jobs = [
        (pair, options.replace(seed=i + b)) for b in range(seeds) for i, pair in enumerate(pairs, 1)
    ]
    poses = method.poses(jobs, max_edges)
    errors = [
        round(pose_error_deg(pose, pair.R, pair.t), 4)
        for pose, (pair, _) in zip(poses, jobs, strict=True)
    ]
    return [errors[b * len(pairs) : (b + 1) * len(pairs)] for b in range(seeds)]


def auc_by_seed(errors: list[list[float]]) -> np.ndarray:
    """AUC in percent, (seeds, thresholds)."""
    return np.array([pose_auc(row, THRESHOLDS) for row in errors])


def mean_and_sd(values: np.ndarray) -> str:
    """Mean over seeds (seeds, thresholds), and the standard deviation between them."""
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    return " / ".join(
        f"{m:.1f} ± {s:.1f}" for m, s in zip(values.mean(axis=0), spread, strict=True)
    )


def plain(values: Any) -> str:
    """AUC of a single run."""
    return " / ".join(f"{v:.1f}" for v in values)


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """Write a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def progress_bar() -> Progress:
    """Make a progress display for a known number of runs."""
    return Progress(
        TextColumn("{task.description:<48}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
