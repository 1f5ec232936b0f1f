"""Time of rigid transforms and similarities at a forced number of iterations, beside pycolmap.

    python benchmarks/speed/registration.py

Every eighth pair of each set of the reference data, once with its rank-one candidates and once with
all of them, the same for everybody; 100,000 iterations, 1.5 voxels, one thread. Times are processor
times (other work on the machine does not count), the least of three repetitions. Prints for every
set the sum over its pairs and the ratio to pycolmap's.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import numpy as np
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy.registration import VOXELS, load_sets, solve
from benchmarks.speed.homography import METHODS, least_seconds, row
from tests.support.data_folder import data_folder


def seconds(
    graph: manymatch.AssociationGraph,
    threshold: float,
    iterations: int,
    repeats: int,
    similarity: bool,
) -> np.ndarray:
    """Measure pycolmap and our methods on one graph."""
    options = manymatch.Options(min_iterations=iterations, max_iterations=iterations, threads=1)
    return np.array(
        [
            least_seconds(partial(solve, name, graph, threshold, 0, options, similarity), repeats)
            for name in ("pycolmap", *METHODS)
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--iterations", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--every", type=int, default=8, help="take every so-manieth pair")
    arguments = parser.parse_args()
    data = data_folder()
    if data is None or not (data / "registration").is_dir():
        sys.stdout.write("registration: not here, set MANYMATCH_DATA to the folder that has it\n")
        return
    lines = ["| problem | candidates | set | pairs | edges | pycolmap, s | "]
    lines[0] += " | ".join(METHODS) + " |"
    lines.append("|---" * (6 + len(METHODS)) + "|")
    for similarity in (False, True):
        problem = "similarity" if similarity else "rigid"
        sets = load_sets(data / "registration", None, similarity)
        everything = []
        for name, rank_one in track([(s, r) for r in (True, False) for s in sets], transient=True):
            pairs = sets[name][:: arguments.every]
            graphs = [pair.graph.up_to_rank(1) if rank_one else pair.graph for pair in pairs]
            times = np.array(
                [
                    seconds(
                        *(graph, VOXELS * pair.voxel),
                        *(arguments.iterations, arguments.repeats, similarity),
                    )
                    for pair, graph in zip(pairs, graphs, strict=True)
                ]
            )
            everything.append(times)
            edges = np.mean([graph.num_edges for graph in graphs])
            lines.append(
                f"| {problem} | {'rank one' if rank_one else 'all'} | {name} | {len(pairs)} | "
                f"{edges:.0f} | " + row(times)
            )
        times = np.concatenate(everything)
        lines.append(f"| {problem} | | together | {len(times)} | | " + row(times))
        worst = " | ".join(f"{value:.2f}" for value in (times[:, 1:] / times[:, :1]).max(axis=0))
        lines.append(f"| {problem} | | slowest pair | | | | {worst} |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
