"""Time the mutual 5-nearest-neighbour association against others that find the same neighbours.

    python benchmarks/speed/associate.py [--size 2048] [--dimension 1024] [--out out/bench]

The bare float32 product, our operator, torch, faiss and OpenCV's BFMatcher run interleaved in one
process per number of threads, and the minimum counts, of the clock and of the processor time alike.
Only ours also normalises, ranks and sorts. What is not installed gets a row that says so.
Writes ``associate.json`` and ``associate.md``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

if TYPE_CHECKING:
    from collections.abc import Callable

K = 5
BARE, OURS = "bare product, NumPy", "manymatch.associate"
VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def descriptors(size: int, dimension: int) -> tuple[Any, Any]:
    """Two images that show mostly the same keypoints, float32 of unit length."""
    rng = np.random.default_rng(0)
    x0 = rng.standard_normal((size, dimension))
    x1 = x0[rng.permutation(size)] + 1.5 * rng.standard_normal((size, dimension))
    return tuple(
        (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32) for x in (x0, x1)
    )


def make_torch(x0: Any, x1: Any, threads: int) -> Callable[[], object]:
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)
    t0, t1 = torch.from_numpy(x0), torch.from_numpy(x1)

    def run() -> object:
        product = t0 @ t1.T
        return product.topk(K, dim=1), product.T.contiguous().topk(K, dim=1)

    return run


def make_faiss(x0: Any, x1: Any, threads: int) -> Callable[[], object]:
    faiss = importlib.import_module("faiss")
    faiss.omp_set_num_threads(threads)
    indices = []
    for x in (x0, x1):
        index = faiss.IndexFlatIP(x.shape[1])
        index.add(x)
        indices.append(index)
    return lambda: (indices[1].search(x0, K), indices[0].search(x1, K))


def make_opencv(x0: Any, x1: Any, threads: int) -> Callable[[], object]:
    cv2 = importlib.import_module("cv2")
    cv2.setNumThreads(threads)
    matcher = cv2.BFMatcher(cv2.NORM_L2)
    return lambda: (matcher.knnMatch(x0, x1, k=K), matcher.knnMatch(x1, x0, k=K))


def contestants(x0: Any, x1: Any, threads: int) -> dict[str, Callable[[], object] | str]:
    """Return what is timed by name; a text where a package is missing."""
    from manymatch import associate

    entries: dict[str, Callable[[], object] | str] = {
        BARE: lambda: x0 @ x1.T,
        OURS: lambda: associate(x0, x1, K),
    }
    for name, package, make in (
        ("torch, product and topk both ways", "torch", make_torch),
        ("faiss IndexFlatIP, both ways", "faiss", make_faiss),
        ("OpenCV BFMatcher, both ways", "cv2", make_opencv),
    ):
        try:
            entries[name] = make(x0, x1, threads)
        except ImportError:
            entries[name] = f"{package} is not installed"
    return entries


def measure(size: int, dimension: int, threads: int, repeats: int) -> list[dict[str, Any]]:
    """Milliseconds of every contestant, by the clock and by the processor."""
    entries = contestants(*descriptors(size, dimension), threads)
    wall: dict[str, list[float]] = {name: [] for name in entries}
    processor: dict[str, list[float]] = {name: [] for name in entries}
    for turn in range(repeats + 1):
        for name, run in entries.items():
            slow = turn > 1 and min(wall[name], default=0.0) > 1.0
            if isinstance(run, str) or slow:
                continue
            start = time.perf_counter(), time.process_time()
            run()
            if turn > 0:  # the first one warms up
                wall[name].append(time.perf_counter() - start[0])
                processor[name].append(time.process_time() - start[1])
    return [
        {"name": name, "threads": threads, "missing": run}
        if isinstance(run, str)
        else {
            "name": name,
            "threads": threads,
            "milliseconds": 1e3 * min(wall[name]),
            "processor_milliseconds": 1e3 * min(processor[name]),
        }
        for name, run in entries.items()
    ]


def in_own_process(arguments: argparse.Namespace, threads: int) -> list[dict[str, Any]]:
    """Measure in a process in which every library is told the number of threads."""
    # Threads that wait by spinning would count as work of whoever runs next.
    environment = (
        os.environ | dict.fromkeys(VARIABLES, str(threads)) | {"OMP_WAIT_POLICY": "passive"}
    )
    sizes = [str(v) for v in (arguments.size, arguments.dimension, threads, arguments.repeats)]
    command = [sys.executable, __file__, "--worker", *sizes]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)  # noqa: S603
    return json.loads(done.stdout)


def table(records: list[dict[str, Any]]) -> str:
    """Markdown, with ratios to the bare product on the same threads."""
    bare = {r["threads"]: r for r in records if r["name"] == BARE}
    lines = [
        "| | threads | ms | ratio | processor ms | ratio |",
        "|:---|---:|---:|---:|---:|---:|",
    ]
    for r in records:
        cells = [r["name"], str(r["threads"])]
        if "missing" in r:
            cells += [r["missing"], "", "", ""]
        else:
            for key in ("milliseconds", "processor_milliseconds"):
                cells += [f"{r[key]:.1f}", f"{r[key] / bare[r['threads']][key]:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        json.dump(measure(*map(int, sys.argv[2:])), sys.stdout)
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=2048, help="keypoints of each image")
    parser.add_argument("--dimension", type=int, default=1024, help="length of a descriptor")
    parser.add_argument("--repeats", type=int, default=15, help="interleaved repetitions")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder of results")
    arguments = parser.parse_args()
    records = [r for threads in arguments.threads for r in in_own_process(arguments, threads)]
    title = f"{arguments.size} x {arguments.size} x {arguments.dimension}, K = {K}"
    text = f"{title}\n\n{table(records)}\n"
    sys.stdout.write(text)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "associate.json").write_text(json.dumps(records, indent=1))
    (arguments.out / "associate.md").write_text(text)


if __name__ == "__main__":
    main()
