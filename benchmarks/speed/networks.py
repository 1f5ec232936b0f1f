"""Time of the small networks on an image or a pair, against another version of this package.

    python benchmarks/speed/networks.py [--against FOLDER] [--size 1024 768] [--threads 1 2]

FOLDER is a checkout with its compiled module in ``src/manymatch``. Versions take turns: every
round runs each network of each version in a process of its own, which reports its fastest of
several repeats, after one that is not counted. Prints a table in Markdown: milliseconds of wall
time and of CPU time, the smallest and the median of all rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NETWORKS = ("efficientnet-lite0", "xfeat", "aliked-t16", "aliked-n16", "lightglue")
REPEATS = 3


def work(name: str, width: int, height: int) -> Callable[[], object]:
    """Return what is timed: features of a photograph, or the matches of two."""
    import cv2

    from manymatch.features.extractor import Extractor
    from manymatch.features.feature_config import FeatureConfig
    from manymatch.features.maps import dense_maps
    from manymatch.features.registry import load_backbone, load_detector, load_matcher
    from manymatch.features.resize import Resize

    photos = ROOT / "examples" / "photos"
    images = [
        cv2.resize(cv2.imread(str(photos / f"street{k}.jpg"))[:, :, ::-1], (width, height))
        for k in (2, 3)
    ]
    if name == "lightglue":
        extractor = Extractor(FeatureConfig("aliked"), offline=True)
        first, second = extractor.extract_many(images, longest=[0, 0])
        matcher = load_matcher(name, "aliked", offline=True)
        return lambda: matcher.match(first, second)
    if name == "efficientnet-lite0":
        backbone = load_backbone(name, offline=True)
        return lambda: dense_maps(images[:1], backbone, [10], resize=Resize.none())
    detector = load_detector(name, offline=True)
    return lambda: detector.detect(images[0])


def measure(name: str, width: int, height: int, threads: int) -> dict[str, float]:
    """Time one network in this process."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
    run = work(name, width, height)
    run()
    wall, cpu = float("inf"), float("inf")
    for _ in range(REPEATS):
        start, used = time.perf_counter(), time.process_time()
        run()
        wall = min(wall, time.perf_counter() - start)
        cpu = min(cpu, time.process_time() - used)
    return {"wall": 1e3 * wall, "cpu": 1e3 * cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--size", type=int, nargs=2, default=(1024, 768))
    parser.add_argument("--threads", type=int, nargs="+", default=(1, 2))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        (name,), (threads,) = chosen.networks, chosen.threads
        print(json.dumps(measure(name, *chosen.size, threads)))
        return
    versions = {"this": ROOT} | ({"other": chosen.against} if chosen.against else {})
    print("| network | threads | version | wall ms | median | CPU ms | median |")
    print("|---|--:|---|--:|--:|--:|--:|")
    for name in chosen.networks:
        for threads in chosen.threads:
            found: dict[str, list[dict[str, float]]] = {version: [] for version in versions}
            for _ in range(chosen.rounds):
                for version, folder in versions.items():
                    variables = dict.fromkeys(
                        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads)
                    )
                    path = {"PYTHONPATH": str(folder.absolute() / "src")}
                    command = [sys.executable, __file__, name, "--child", "--threads", str(threads)]
                    command += ["--size", *map(str, chosen.size)]
                    done = subprocess.run(  # noqa: S603
                        command, env={**os.environ, **variables, **path}, text=True, check=True,
                        stdout=subprocess.PIPE,
                    )  # fmt: skip
                    found[version].append(json.loads(done.stdout.splitlines()[-1]))
            for version, rows in found.items():
                numbers = [
                    f"{choose([row[what] for row in rows]):.0f}"
                    for what in ("wall", "cpu")
                    for choose in (min, statistics.median)
                ]
                print(f"| {name} | {threads} | {version} | {' | '.join(numbers)} |", flush=True)


if __name__ == "__main__":
    main()
