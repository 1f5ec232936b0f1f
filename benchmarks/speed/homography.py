"""Time of homographies or fundamental matrices at a forced number of iterations, beside PoseLib.

    python benchmarks/speed/homography.py
    python benchmarks/speed/homography.py --problem fundamental --every 25 --iterations 20000

Every fourth pair of each set of the reference data, once with its rank-one candidates and once with
all of them, the same for everybody; 100,000 iterations, 3 px (fundamental matrices: 1 px, on the
graphs of SIFT and EfficientNet), one thread. Times are processor times
(other work on the machine does not count), the least of three repetitions. Prints for every set the
sum over its pairs and the ratio to PoseLib's.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy.homography import load_sets
from manymatch_lab.evaluate.posed_graph import read_posed_graph
from tests.support.data_folder import data_folder

if TYPE_CHECKING:
    from collections.abc import Callable

METHODS = ("auto", "hcm-mcm", "cm")


def least_seconds(call: Callable[[], object], repeats: int) -> float:
    """Least processor time of a call."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def seconds(
    problem: str, graph: manymatch.AssociationGraph, iterations: int, repeats: int
) -> np.ndarray:
    """Measure PoseLib and our methods on one graph."""
    import poselib

    threshold = 3.0 if problem == "homography" else 1.0
    options = manymatch.Options(
        threshold_px=threshold, min_iterations=iterations, max_iterations=iterations, threads=1
    )
    settings = {
        "max_reproj_error" if problem == "homography" else "max_epipolar_error": threshold,
        "min_iterations": iterations,
        "max_iterations": iterations,
        "success_prob": options.confidence,
    }
    ends = graph.edges.T
    points0, points1 = graph.points0[ends[0]], graph.points1[ends[1]]
    theirs, ours = (getattr(module, f"estimate_{problem}") for module in (poselib, manymatch))
    calls: list[Callable[[], object]] = [
        lambda: theirs(points0, points1, settings, {}),
        *(partial(ours, graph, m, options) for m in METHODS),
    ]
    return np.array([least_seconds(call, repeats) for call in calls])


def load_graphs(
    problem: str, data: Path, every: int
) -> dict[str, list[manymatch.AssociationGraph]]:
    """Candidates of every so-manieth pair by set."""
    if problem == "homography":
        sets = load_sets(data / "homography", None)
        return {name: [pair.graph for pair in pairs[::every]] for name, pairs in sets.items()}
    folders = [p for r in ("sift", "effnet") for p in sorted((data / "graphs" / r).iterdir())]
    return {
        f"{folder.parent.name}, {folder.name}": [
            read_posed_graph(path).graph for path in sorted(folder.glob("*.npz"))[::every]
        ]
        for folder in folders
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--problem", choices=("homography", "fundamental"), default="homography")
    parser.add_argument("--iterations", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--every", type=int, default=4, help="take every so-manieth pair")
    arguments = parser.parse_args()
    data = data_folder()
    part = "homography" if arguments.problem == "homography" else "graphs"
    if data is None or not (data / part).is_dir():
        sys.stdout.write(f"{part}: not here, set MANYMATCH_DATA to the folder that has it\n")
        return
    lines = ["| candidates | set | pairs | edges | PoseLib, s | " + " | ".join(METHODS) + " |"]
    lines.append("|---" * (5 + len(METHODS)) + "|")
    sets = load_graphs(arguments.problem, data, arguments.every)
    everything = []
    for name, rank_one in track([(s, r) for r in (True, False) for s in sets], transient=True):
        graphs = [graph.up_to_rank(1) if rank_one else graph for graph in sets[name]]
        effort = arguments.iterations, arguments.repeats
        times = np.array([seconds(arguments.problem, g, *effort) for g in graphs])
        everything.append(times)
        edges = np.mean([graph.num_edges for graph in graphs])
        lines.append(
            f"| {'rank one' if rank_one else 'all'} | {name} | {len(graphs)} | {edges:.0f} | "
            + row(times)
        )
    times = np.concatenate(everything)
    lines.append(f"| | together | {len(times)} | | " + row(times))
    worst = " | ".join(f"{value:.2f}" for value in (times[:, 1:] / times[:, :1]).max(axis=0))
    lines.append(f"| | slowest pair | | | | {worst} |")
    sys.stdout.write("\n".join(lines) + "\n")


def row(times: np.ndarray) -> str:
    """Sum of PoseLib's times, then the ratios of the sums."""
    total = times.sum(axis=0)
    return f"{total[0]:.2f} | " + " | ".join(f"{r:.2f}" for r in total[1:] / total[0]) + " |"


if __name__ == "__main__":
    main()
