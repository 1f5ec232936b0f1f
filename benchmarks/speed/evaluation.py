"""What an evaluation costs beside its estimator, from cached features.

    python benchmarks/speed/evaluation.py [SET ...] [--preset embedded] [--seeds 5] [--limit N]

A first run fills the cache of features and candidates. A second one, in a new folder, evaluates
from it with all cores, and its wall-clock time is compared with the time inside the estimator: what
is left is decoding images, reading features and candidates, filtering and bookkeeping. Without SET
the posed pairs of the data folder are used where they are there, else the pair of the demo.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from manymatch import Options
from manymatch.options import num_threads
from manymatch_lab.evaluate.inputs import open_graphs
from manymatch_lab.evaluate.run import RunConfig, run_set
from tests.support.data_folder import data_folder

SETS = ("strecha_fountain_herzjesu", "ngp_fox", "tum_fr3_office")


def default_sets() -> list[str]:
    data = data_folder()
    if data is None:
        return [str(Path(manymatch.__file__).parent / "demo_photos")]
    return [str(data / "posed_pairs" / name) for name in SETS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", metavar="SET")
    parser.add_argument("--preset", default="embedded")
    parser.add_argument("--method", default="hcm-mcm")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    arguments = parser.parse_args()
    sets = arguments.sets or default_sets()
    workers = num_threads(arguments.workers)
    cache = arguments.out / "evaluation-features"
    options = Options(max_iterations=arguments.iterations)
    config = RunConfig(arguments.method, options=options, seeds=arguments.seeds)
    quick = RunConfig("hcm-mcm", options=Options(min_iterations=1, max_iterations=1), seeds=1)
    rows = []
    for label, run in (("fill", quick), ("timed", config)):
        for source in open_graphs(sets, [arguments.preset], cache=cache):
            folder = arguments.out / "evaluation" / label / source.name
            shutil.rmtree(folder, ignore_errors=True)
            start = time.perf_counter()
            result = run_set(source, {"run": run}, folder, workers=workers, limit=arguments.limit)[
                "run"
            ]
            elapsed = time.perf_counter() - start
            if label == "timed":
                inside = float(np.nansum(result.column("seconds"))) / workers
                rows.append(
                    {
                        "set": source.title,
                        "pairs": len(result),
                        "seconds": elapsed,
                        "estimator_seconds": inside,
                        "overhead": elapsed / inside - 1.0,
                    }
                )
    total, inside = (sum(row[name] for row in rows) for name in ("seconds", "estimator_seconds"))
    rows.append(
        {
            "set": "all",
            "pairs": sum(row["pairs"] for row in rows),
            "seconds": total,
            "estimator_seconds": inside,
            "overhead": total / inside - 1.0,
        }
    )
    print(f"{arguments.preset}, {workers} workers, {arguments.seeds} seeds")
    print("| set | pairs | wall s | estimator s | overhead |\n| :--- | ---: | ---: | ---: | ---: |")
    for row in rows:
        print(
            f"| {row['set']} | {row['pairs']} | {row['seconds']:.1f} | "
            f"{row['estimator_seconds']:.1f} | {100 * row['overhead']:.1f} % |"
        )
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "evaluation.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
