"""Engines of a batch on two cores, and what a million pairs cost.

    python benchmarks/speed/engines.py [--images 16] [--repeats 3]
    python benchmarks/speed/engines.py --plan [--presets classic embedded fused]

The first command runs one batch, all pairs of some images, in turn by two threads of one process,
by two processes with a shard each, and by a Ray cluster of two nodes with one CPU each that is
running already. Pairs per second, and per second of CPU time of all processes, which other work on
the machine disturbs less, count from the first pair that is finished to the last, the best of
several runs; the seconds until the first one are told apart. Needs Linux.

The second measures, in a process of one thread for each preset, the CPU seconds for the features of
an image and for a pair whose features are there: of parts of the two photographs, and of a part and
another one mirrored, which have nothing in common; means of several. Further the memory of such a
process, and the disk that matches and rows take. From these it computes the hours that some numbers
of cores need for a million pairs of 20,000 images, half of them with nothing in common.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch.batch.batch import run_batch
from manymatch.batch.work import PairWork, Views
from manymatch.io.pairs import Pair
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.matcher import Matcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from manymatch.batch.parts import RunProgress

PHOTOGRAPHS = Path(__file__).resolve().parents[2] / "src/manymatch/demo_photos"
PAIRS, IMAGES = 1_000_000, 20_000
CORES = (8, 32, 128, 512)
# What the runner adds, and cores that wait at the end of shards.
EFFICIENCY = 0.85


def make_images(folder: Path, count: int, *, mirrored: bool = False) -> None:
    """Write parts of the two photographs of the demo, three quarters as wide and high as they.

    Those of the second one also mirrored, if asked for.
    """
    from PIL import Image

    rng = np.random.default_rng(0)
    for number in range(count):
        image = Image.open(PHOTOGRAPHS / f"street{number % 2}.jpg")
        size = np.array(image.size) * 3 // 4
        left, top = rng.integers(0, np.array(image.size) - size + 1)
        box = (left, top, *(np.array([left, top]) + size))
        part = image.crop([int(value) for value in box])
        part.save(folder / f"part{number:03d}.png")
        if mirrored and number % 2:
            part.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(folder / f"part{number:03d}m.png")


def cpu_seconds(root: int) -> float:
    """Return the CPU time of a process and of all below it, by what Linux counts."""
    found: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            found[int(path.name)] = int(fields[1]), int(fields[11]) + int(fields[12])

    def below(pid: int) -> bool:
        while pid in found and pid != root:
            pid = found[pid][0]
        return pid == root

    ticks = sum(spent for pid, (_, spent) in found.items() if below(pid))
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(images: str, out: str, settings: dict[str, Any]) -> dict[str, float]:
    """Run a batch; what happens between its first and its last pair."""
    # A cluster was started by the process that started this one.
    root = os.getppid() if "engine" in settings else os.getpid()
    times: list[tuple[float, int, float]] = []

    def report(now: RunProgress) -> None:
        if now.finished and (not times or now.seconds_left == 0):
            times.append((time.time(), now.finished, cpu_seconds(root)))

    run_batch(images, None, out, "classic", formats=["npz"], progress=report, **settings)
    first, last = times
    return {
        "begin": first[0],
        "end": last[0],
        "pairs": last[1] - first[1],
        "cpu": last[2] - first[2],
    }


def in_processes(function: str, calls: list[Any], **environment: str) -> list[dict[str, float]]:
    """Call a function of this file in processes of their own, at the same time."""
    processes = [
        subprocess.Popen(  # noqa: S603 - this file
            [sys.executable, __file__, "--call", function, json.dumps(arguments)],
            stdout=subprocess.PIPE,
            env=os.environ | environment,
        )
        for arguments in calls
    ]
    answers = [process.communicate()[0] for process in processes]
    return [json.loads(answer.splitlines()[-1]) for answer in answers]


def together(images: Path, runs: list[dict[str, Any]]) -> tuple[float, float, float]:
    """Run processes at the same time.

    Returns the pairs a second of all, pairs a CPU second, and seconds until the first pair.
    """
    start = time.time()
    # Processes do not know of each other, and threads of matrix products would wait in loops.
    alone = {"OMP_NUM_THREADS": "1"} if len(runs) > 1 else {}
    with tempfile.TemporaryDirectory() as out:
        calls = [(str(images), out, settings) for settings in runs]
        found = in_processes("measure", calls, **alone)
    begin, end = (pick(one[name] for one in found) for pick, name in ((min, "begin"), (max, "end")))
    pairs, cpu = (sum(one[name] for one in found) for name in ("pairs", "cpu"))
    return pairs / (end - begin), pairs / cpu, begin - start


@contextlib.contextmanager
def two_nodes() -> Iterator[str]:
    """Start a Ray cluster and give its address."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 500_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        cluster.add_node(**node)
        yield cluster.address
    finally:
        cluster.shutdown()


def compare(count: int, repeats: int) -> None:
    """Print the table of engines."""
    with tempfile.TemporaryDirectory() as folder, two_nodes() as address:
        make_images(Path(folder), count)
        engines = {
            "two threads": [{"workers": 2}],
            "two shards, a process each": [{"workers": 1, "shard": f"{i}/2"} for i in (1, 2)],
            "Ray, two nodes with one CPU each": [{"engine": "ray", "address": address}],
        }
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in engines}
        for _, (name, runs) in itertools.product(range(repeats), engines.items()):
            found[name].append(together(Path(folder), runs))
    print(f"{count * (count - 1) // 2} pairs of {count} images, load {os.getloadavg()[0]:.1f}\n")
    print(
        "| engine | pairs per second | ratio | pairs per CPU second | ratio | seconds until the "
        "first pair |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    best = {name: np.max(values, axis=0) for name, values in found.items()}
    for name, values in found.items():
        speed, per_cpu, _ = best[name]
        ratio, cpu_ratio, _ = best[name] / best["two threads"]
        start = min(value[2] for value in values)
        both = f"{speed:.2f} | {ratio:.2f} | {per_cpu:.2f} | {cpu_ratio:.2f}"
        print(f"| {name} | {both} | {start:.1f} |")


def cost(images: str, preset: str) -> dict[str, float]:
    """Measure one preset: CPU seconds and MB of an image and of a pair, MB of the process."""
    even, odd, mirrored = (
        sorted(path for path in Path(images).iterdir() if re.search(end, path.name))
        for end in (r"[02468]\.png", r"[13579]\.png", r"m\.png")
    )
    pairs = {
        name: [Pair(a.name, b.name, a, b) for a, b in itertools.product(even, others)]
        for name, others in (("pair", odd), ("unrelated", mirrored))
    }
    work = PairWork(MatcherConfig.of(preset), device="cpu", threads=1, keep_matches=True)
    work.load()
    found: dict[str, list[float]] = {"image": [], "pair": [], "unrelated": []}
    kept = Views(Matcher(work.config, device="cpu"), 10**12)
    views = {}
    # The first one warms up.
    for path in [even[0], *even, *odd, *mirrored]:
        start = time.process_time()
        views[path] = kept.compute(path, 0)
        found["image"].append(time.process_time() - start)
    # Features come from here, also those of the batch below.
    Views.compute = lambda _, path, *__: views[path]  # type: ignore[method-assign, assignment]
    for name, chosen in pairs.items():
        for index, pair in enumerate(chosen):
            start = time.process_time()
            work(index, pair)
            found[name].append(time.process_time() - start)
    del found["image"][0]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    both = pairs["pair"] + pairs["unrelated"]
    with tempfile.TemporaryDirectory() as out:
        run_batch(both, None, out, preset, formats=["parquet"], device="cpu", workers=1)
        size = sum(path.stat().st_size for path in (Path(out) / "parts").iterdir())
    return {
        **{name: float(np.mean(values)) for name, values in found.items()},
        "image_mb": float(np.mean([view.nbytes for view in views.values()])) / 1e6,
        "peak_mb": peak,
        "kept_kb": size / 1000 / len(both),
    }


def plan(presets: list[str], count: int) -> None:
    """Print the costs of presets, and the hours that a million pairs take."""
    costs = {}
    alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        make_images(Path(folder), count, mirrored=True)
        for preset in presets:
            (costs[preset],) = in_processes("cost", [(folder, preset)], **alone)
    print(f"load {os.getloadavg()[0]:.1f}\n")
    print(
        "| preset | s an image | s a pair | s without anything in common | MB of features an image "
        "| MB of a process | KB kept a pair |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    for preset, one in costs.items():
        print(
            f"| `{preset}` | {one['image']:.2f} | {one['pair']:.2f} | {one['unrelated']:.2f} | "
            f"{one['image_mb']:.1f} | {one['peak_mb']:.0f} | {one['kept_kb']:.0f} |"
        )
    print(
        f"\n| preset | core hours | {' | '.join(f'{cores} cores' for cores in CORES)} | GB kept |"
    )
    print(f"|---|---:|{'---:|' * len(CORES)}---:|")
    for preset, one in costs.items():
        pair = (one["pair"] + one["unrelated"]) / 2
        total = (IMAGES * one["image"] + PAIRS * pair) / EFFICIENCY / 3600
        hours = " | ".join(f"{total / cores:.1f} h" for cores in CORES)
        print(f"| `{preset}` | {total:.0f} | {hours} | {PAIRS * one['kept_kb'] / 1e6:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=16, help="images of which all pairs are run")
    parser.add_argument("--repeats", type=int, default=3, help="runs of every engine, in turn")
    parser.add_argument("--plan", action="store_true", help="measure the costs, and plan")
    parser.add_argument("--presets", nargs="+", default=["classic", "embedded", "fused"])
    parser.add_argument("--call", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.call:
        function, arguments = given.call
        print(json.dumps(globals()[function](*json.loads(arguments))))
    elif given.plan:
        plan(given.presets, given.images // 2)
    else:
        compare(given.images, given.repeats)


if __name__ == "__main__":
    main()
