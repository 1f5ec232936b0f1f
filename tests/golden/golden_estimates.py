"""Estimates of fixed graphs with fixed seeds, and the file that keeps them.

    python -m tests.golden.golden_estimates     # writes tests/golden/estimates.json again

Run it only after a change that is *meant* to change results, on a machine with AVX2 or AVX-512, and
say in the commit why they changed. Poses and scores are stored to the last bit.
"""

import hashlib
import json
import math
from pathlib import Path

import numpy as np

import manymatch
from manymatch import Options, _core
from tests.golden.exact_graphs import CAMERA, make_graph

FILE = Path(__file__).with_name("estimates.json")
METHODS = ("hcm-mcm", "hcm", "mcm", "cm")
ADAPTIVE = Options(min_iterations=500, max_iterations=5000)
# Name: arguments of the graph, options, whether only rank-one edges are proposed.
CASES = {
    "few true edges": ((1, 1024, 0.05), ADAPTIVE.replace(seed=3), False),
    "a tenth true": ((2, 1024, 0.1), ADAPTIVE.replace(seed=1), False),
    "a fifth true": ((3, 1000, 0.2), ADAPTIVE, False),
    "many true edges": ((4, 700, 0.4), ADAPTIVE.replace(seed=2**40 + 1), False),
    "mostly true": ((5, 512, 0.6), ADAPTIVE.replace(pool_size=17), False),
    "small": ((6, 60, 0.5), ADAPTIVE.replace(threshold_px=2.0, seed=9), False),
    "hubs": ((7, 600, 0.25, 12), ADAPTIVE.replace(q=0.5, delta=0.02), False),
    "guided": ((8, 900, 0.15), ADAPTIVE.replace(guidance=0.5, seed=4), False),
    "proposals": ((9, 900, 0.2), ADAPTIVE.replace(seed=5), True),
}


def digest(*parts):
    """Twelve hexadecimal digits that stand for bytes."""
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]


def library_digest():
    """Digest of the C library's functions that the core calls: they differ between libraries."""
    values = [f(k / 64.0) for f in (math.log1p, math.sin, math.cos) for k in range(1, 2000)]
    return digest(np.array(values).tobytes())


def graph_digest(synthetic):
    graph = synthetic.graph
    return digest(graph.points0.tobytes(), graph.points1.tobytes(), graph.edges.tobytes())


def run(name, method):
    """Estimate one case; everything found, in types that JSON has."""
    arguments, options, rank_one = CASES[name]
    graph = make_graph(*arguments).graph
    proposals = graph.rank == 1 if rank_one else None
    found = manymatch.estimate_relative_pose(
        graph, CAMERA, CAMERA, method, options, proposals=proposals
    )
    return {
        "R": found.pose.R.ravel().tolist(),
        "t": found.pose.t.tolist(),
        "hcm": found.hcm,
        "cardinality": found.cardinality,
        "num_inliers": found.num_inliers,
        "iterations": found.iterations,
        "refinements": found.refinements,
        "pooled": found.pooled,
        "worst_pooled": found.worst_pooled,
        "inliers": digest(np.packbits(found.inliers).tobytes()),
        "matches": digest(found.matches.astype(np.int64).tobytes()),
    }


def load():
    return json.loads(FILE.read_text(encoding="utf-8"))


def main():
    if _core.instruction_set() == "baseline":
        raise SystemExit("the file holds the bits of AVX2 and AVX-512; this machine has neither")
    content = {
        "library": library_digest(),
        "graphs": {name: graph_digest(make_graph(*case[0])) for name, case in CASES.items()},
        "estimates": {name: {m: run(name, m) for m in METHODS} for name in CASES},
    }
    FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
