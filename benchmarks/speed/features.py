"""Time and memory per image of every preset and every backbone.

    python benchmarks/speed/features.py [NAME ...] [--size 1024 768] [--threads 2] [--out out/bench]

One process per row, so that the peak memory is that model's; weights are random where none are
here, which costs the same. The first image includes what is computed once (the positional basis of
a preset that removes one), the best of the others counts as the time per image. A model that does
not fit into the free memory gets a row that says so. Writes ``features.json`` and ``features.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
# Weights, activations and libraries together, as a multiple of the weights and a constant.
FACTOR, CONSTANT_MB = 1.2, 1500.0


def picture(width: int, height: int) -> Any:
    """Smooth noise of several scales, so that detectors find keypoints; (H, W, 3) uint8."""
    import cv2

    rng = np.random.default_rng(0)
    total = np.zeros((height, width, 3), dtype=np.float32)
    for cell in (4, 16, 64):
        coarse = rng.random((height // cell + 2, width // cell + 2, 3), dtype=np.float32)
        total += cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    low, high = total.min(), total.max()
    return ((total - low) / (high - low) * 255.0).astype(np.uint8)


def peak_mb() -> float:
    """Largest memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def measure(name: str, width: int, height: int, threads: int, repeats: int) -> dict[str, Any]:
    """Seconds and peak memory of one preset or backbone."""
    from manymatch.features.extractor import Extractor
    from manymatch.features.feature_config import FEATURE_PRESETS, NATIVE
    from manymatch.features.maps import dense_maps
    from manymatch.features.registry import find_model, load_backbone
    from manymatch.features.weights import locate

    if name not in FEATURE_PRESETS or FEATURE_PRESETS[name].needs_torch:
        import torch

        torch.set_num_threads(threads)
    image = picture(width, height)

    def weights_of(model_name: str) -> str | None:
        model = find_model(model_name)
        return "random" if model.needs_weights and locate(model) is None else None

    start = time.perf_counter()
    if name in FEATURE_PRESETS:
        config = FEATURE_PRESETS[name]
        changes = {"detector_weights": weights_of(config.detector)}
        if config.descriptor != NATIVE:
            changes["weights"] = weights_of(config.descriptor)
        extractor = Extractor(config.replace(**changes), device="cpu", offline=True)
        _ = extractor.detector, extractor.backbone
        random = [key for key, value in changes.items() if value is not None]

        def run() -> dict[str, Any]:
            features = extractor.extract(image)
            return {"keypoints": len(features), "dim": features.descriptors.shape[1]}
    else:
        weights = weights_of(name)
        backbone = load_backbone(name, weights=weights, offline=True)
        random = [] if weights is None else ["weights"]

        def run() -> dict[str, Any]:
            ((dense,),) = (maps.values() for maps in dense_maps([image], backbone))
            return {"grid": list(dense.grid), "dim": dense.dim}

    loaded = time.perf_counter()
    facts = run()
    first = time.perf_counter()
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begin)
    return {
        "name": name,
        **facts,
        "random": random,
        "load_seconds": loaded - start,
        "first_seconds": first - loaded,
        "seconds": best,
        "peak_mb": peak_mb(),
    }


def free_mb() -> float:
    """Memory that is free, or infinity where the system does not tell."""
    info = Path("/proc/meminfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("MemAvailable"):
                return float(line.split()[1]) / 1e3
    return float("inf")


def in_own_process(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    from manymatch.features.registry import models

    model = models().get(name)
    needs = CONSTANT_MB + FACTOR * 4e-6 * ((model.parameters if model else None) or 0)
    if needs > free_mb():
        return {"name": name, "missing": f"needs about {needs / 1000:.0f} GB of memory"}
    variables = dict.fromkeys(VARIABLES, str(arguments.threads))
    values = [*arguments.size, arguments.threads, arguments.repeats]
    command = [sys.executable, __file__, "--worker", name, *map(str, values)]
    done = subprocess.run(  # noqa: S603
        command, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"name": name, "missing": lines[-1]}
    return json.loads(done.stdout)


def table(records: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "| | output | first image s | image s | peak MB | weights |",
        "|:---|:---|---:|---:|---:|:---|",
    ]
    for r in records:
        if "missing" in r:
            lines.append(f"| {r['name']} | {r['missing']} | | | | |")
            continue
        if "grid" in r:
            output = f"{r['grid'][0]} x {r['grid'][1]} x {r['dim']}"
        else:
            output = f"{r['keypoints']} x {r['dim']}"
        kinds = {
            (): "real",
            ("weights",): "random",
            ("detector_weights",): "random detector",
            ("detector_weights", "weights"): "random, both",
        }
        numbers = f"{r['first_seconds']:.2f} | {r['seconds']:.2f} | {r['peak_mb']:.0f}"
        kind = kinds[tuple(sorted(r["random"]))]
        lines.append(f"| {r['name']} | {output} | {numbers} | {kind} |")
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        json.dump(measure(sys.argv[2], *map(int, sys.argv[3:])), sys.stdout)
        return
    from benchmarks.speed.report import environment, installed
    from manymatch.features.feature_config import FEATURE_PRESETS
    from manymatch.features.registry import models

    backbones = [model.name for model in models().values() if model.kind == "backbone"]
    # A preset may bear the name of a detector or backbone; it is the preset that is measured.
    known = list(dict.fromkeys([*FEATURE_PRESETS, *backbones]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="presets and backbones; all")
    parser.add_argument("--size", type=int, nargs=2, default=[1024, 768], help="width and height")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeats", type=int, default=3, help="images after the first")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder of results")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in known:
            parser.error(f"{name} must be one of {', '.join(known)}")
    records = []
    for name in arguments.names or known:
        records.append(in_own_process(name, arguments))
        sys.stdout.write(table(records[-1:]).splitlines()[-1] + "\n")
        sys.stdout.flush()
    width, height = arguments.size
    versions = {name: installed(name) for name in ("torch", "transformers", "kornia")}
    facts = environment() | versions | {"threads": arguments.threads, "size": arguments.size}
    title = f"{width} x {height} pixels, {arguments.threads} threads, {facts['processor']}"
    text = f"{title}\n\n{table(records)}\n"
    sys.stdout.write(f"\n{text}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    content = {"environment": facts, "models": records}
    (arguments.out / "features.json").write_text(json.dumps(content, indent=1))
    (arguments.out / "features.md").write_text(text)


if __name__ == "__main__":
    main()
