"""Time of absolute poses at a forced number of iterations, beside PoseLib.

    python benchmarks/speed/absolute_pose.py

Every seventh query of each set of the reference data, with rank-one candidates and with five, the
same for everybody; 100,000 iterations, 3 px, one thread. Times are processor times (other work on
the machine does not count), the least of three repetitions. Prints for every set the sum over its
queries and the ratio to PoseLib's.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy.absolute_pose import Query, load_sets
from benchmarks.speed.homography import METHODS, least_seconds, row
from tests.support.data_folder import data_folder

if TYPE_CHECKING:
    from collections.abc import Callable


def seconds(
    query: Query, graph: manymatch.AssociationGraph, iterations: int, repeats: int
) -> np.ndarray:
    """Measure PoseLib and our methods on one graph."""
    import poselib

    options = manymatch.Options(
        threshold_px=3.0, min_iterations=iterations, max_iterations=iterations, threads=1
    )
    settings = {
        "max_reproj_error": options.threshold_px,
        "min_iterations": iterations,
        "max_iterations": iterations,
        "success_prob": options.confidence,
    }
    i, j = graph.edges.T
    points0, points1, K = graph.points0[i], graph.points1[j], query.K
    camera = {"model": "PINHOLE", "width": int(query.size[0]), "height": int(query.size[1])}
    camera["params"] = [K[0, 0], K[1, 1], K[0, 2], K[1, 2]]
    calls: list[Callable[[], object]] = [
        lambda: poselib.estimate_absolute_pose(points0, points1, camera, settings, {}),
        *(partial(manymatch.estimate_absolute_pose, graph, K, m, options) for m in METHODS),
    ]
    return np.array([least_seconds(call, repeats) for call in calls])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--iterations", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--every", type=int, default=7, help="take every so-manieth query")
    arguments = parser.parse_args()
    data = data_folder()
    if data is None or not (data / "absolute_pose").is_dir():
        sys.stdout.write("absolute_pose: not here, set MANYMATCH_DATA to the folder that has it\n")
        return
    lines = ["| candidates | set | queries | edges | PoseLib, s | " + " | ".join(METHODS) + " |"]
    lines.append("|---" * (5 + len(METHODS)) + "|")
    sets = load_sets(data / "absolute_pose")
    everything = []
    for k, name in track([(k, s) for k in (1, 5) for s in sets], transient=True):
        queries = sets[name][:: arguments.every]
        graphs = [query.graph("mutual", k) for query in queries]
        times = np.array(
            [
                seconds(query, graph, arguments.iterations, arguments.repeats)
                for query, graph in zip(queries, graphs, strict=True)
            ]
        )
        everything.append(times)
        edges = np.mean([graph.num_edges for graph in graphs])
        lines.append(f"| mutual {k} | {name} | {len(queries)} | {edges:.0f} | " + row(times))
    times = np.concatenate(everything)
    lines.append(f"| | together | {len(times)} | | " + row(times))
    worst = " | ".join(f"{value:.2f}" for value in (times[:, 1:] / times[:, :1]).max(axis=0))
    lines.append(f"| | slowest query | | | | {worst} |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
