"""Pose AUC of EfficientNet-Lite0 features at the keypoints of free detectors, on posed pairs.

    python benchmarks/accuracy/embedded.py --out out/accuracy

Chooses the detector of the "embedded" preset: dense features of block 10 at the keypoints of SIFT,
DISK, ALIKED and XFeat, all from weights that install as packages, and for comparison the detectors'
own descriptors (``--own``). Longer edge 1024 px (thermal frames as they are), at most 2048
keypoints. Two systems: mutual nearest neighbours with PoseLib's consensus, and K = 5, first 2048,
GMS, first 1024, two-stage; 1 px, 1,000 to 20,000 iterations, five seeds. Features are kept in
``<out>/features``; ``embedded_<representation>.json`` has every error, from which an
interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy import protocol
from benchmarks.accuracy.protocol import Method, Pair, Store
from benchmarks.accuracy.real_graphs import OPTIONS
from manymatch.datasets import read_pairs
from manymatch.evaluate import paired_bootstrap_interval, pose_auc
from manymatch.features import Extractor, FeatureConfig, Features
from tests.support.data_folder import data_folder

DETECTORS = ("sift", "disk", "aliked", "xfeat")
SETS = (
    "7scenes_tsdf",
    "kitti_vo",
    "metu_vistir_pseudo",
    "middlebury_temple",
    "ngp_fox",
    "strecha_fountain_herzjesu",
    "tum_fr3_office",
)
# Thermal frames are small and stay as they are.
THERMAL = "metu_vistir_pseudo"
KEPT = 1024
RANK_ONE = Method("rank-one, PoseLib", "poselib")
TWO_STAGE = Method("K = 5, GMS, two-stage", "hcm-mcm")


def systems(
    pair: Any, features: tuple[Features, Features], config: FeatureConfig, thermal: bool
) -> tuple[Pair, Pair]:
    """Graphs of both systems in pixels at working size."""
    points, cameras = [], []
    for side, (found, camera) in enumerate(
        zip(features, (pair.camera0, pair.camera1), strict=True)
    ):
        resize = config.replace(longest=0).resize if thermal and side else config.resize
        frame = resize.plan(found.size)
        points.append(frame.to_resized(found.points))
        cameras.append(camera.scaled(*frame.scale))
    sizes = [found.size for found in features]
    descriptors = [found.descriptors for found in features]
    plain = manymatch.candidates(*points, *descriptors, *sizes, k=1, gms=False, keep=KEPT)
    many = manymatch.candidates(*points, *descriptors, *sizes, method="hcm-mcm", keep=KEPT)
    R = protocol.nearest_rotation(pair.R)
    first, second = (Pair(found.graph, *cameras, R, pair.t) for found in (plain, many))
    return first, second


def load(
    folder: Path, extractor: Extractor, name: str, limit: int | None, progress: Any
) -> tuple[list[Pair], list[Pair]]:
    """Graphs of all pairs of a set."""
    pairs = read_pairs(folder / name / "pairs.txt", folder / name)[:limit]
    known: dict[tuple[Path, bool], Features] = {}
    task = progress.add_task(f"  features: {name}", total=len(pairs))
    both = []
    for pair in pairs:
        found = []
        for side, path in enumerate((pair.path0, pair.path1)):
            native = name == THERMAL and side == 1
            if (path, native) not in known:
                known[path, native] = extractor.extract(path, longest=0 if native else None)
            found.append(known[path, native])
        both.append(systems(pair, (found[0], found[1]), extractor.config, name == THERMAL))
        progress.advance(task)
    progress.remove_task(task)
    return [a for a, _ in both], [b for _, b in both]


def run(
    folder: Path,
    config: FeatureConfig,
    store: Store,
    out: Path,
    sets: list[str],
    seeds: int,
    limit: int | None,
) -> dict[str, Any]:
    """Errors of both systems on every set, {set: {method: (seeds, pairs)}}."""
    extractor = Extractor(config, cache=out / "features")
    errors: dict[str, Any] = {}
    with protocol.progress_bar() as progress:
        task = progress.add_task(f"{config.detector} + {config.descriptor}", total=len(sets))
        for name in sets:
            keys = {method.name: f"{name}/{method.name}" for method in (RANK_ONE, TWO_STAGE)}
            if any(store.get(key) is None for key in keys.values()):
                graphs = load(folder, extractor, name, limit, progress)
                for method, pairs in zip((RANK_ONE, TWO_STAGE), graphs, strict=True):
                    done = protocol.errors_by_seed(method, pairs, OPTIONS, KEPT, seeds)
                    store.put(keys[method.name], done)
            errors[name] = {method: store.get(key) for method, key in keys.items()}
            progress.advance(task)
    return errors


def table(results: dict[str, Any]) -> str:
    """Markdown: one line a representation and system, one column a set, the macro average first."""
    rows = []
    sets = list(next(iter(results.values())))
    for representation, errors in results.items():
        for method in (RANK_ONE.name, TWO_STAGE.name):
            aucs = [protocol.auc_by_seed(errors[name][method]) for name in sets]
            macro = protocol.mean_and_sd(np.mean(aucs, axis=0))
            cells = [protocol.plain(auc.mean(axis=0)) for auc in aucs]
            rows.append([representation, method, macro, *cells])
    return protocol.markdown_table(["features", "system", "macro average", *sets], rows)


def differences(results: dict[str, Any]) -> str:
    """Markdown: gain of the second system over the first, pair by pair, with its interval."""
    rows = []
    for representation, errors in results.items():
        first, second = (
            np.concatenate([np.array(errors[name][m]) for name in errors], axis=1).T
            for m in (RANK_ONE.name, TWO_STAGE.name)
        )
        rows.append([representation, *(paired(first, second, at) for at in protocol.THRESHOLDS)])
    return protocol.markdown_table(["features", "AUC@5", "AUC@10", "AUC@20"], rows)


def paired(first: np.ndarray, second: np.ndarray, threshold: float) -> str:
    """Difference of AUC over all pairs, averaged over seeds, with a bootstrap interval."""

    def auc(errors: np.ndarray) -> float:
        return float(np.mean([pose_auc(column, (threshold,))[0] for column in errors.T]))

    return f"{paired_bootstrap_interval(second, first, auc, resamples=500):+.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/accuracy"), help="folder of results")
    parser.add_argument("--only", choices=DETECTORS, nargs="+", default=DETECTORS)
    parser.add_argument("--sets", choices=SETS, nargs="+", default=list(SETS))
    parser.add_argument("--own", action="store_true", help="also the detectors' own descriptors")
    parser.add_argument("--seeds", type=int, default=protocol.SEEDS, help="repetitions")
    parser.add_argument("--limit", type=int, help="only that many pairs of every set")
    arguments = parser.parse_args()
    data = data_folder()
    if data is None or not (data / "posed_pairs").is_dir():
        sys.stdout.write("posed pairs: not here, set MANYMATCH_DATA to the folder that has them\n")
        return
    results: dict[str, Any] = {}
    settings = {
        "options": OPTIONS.to_dict(),
        "kept": KEPT,
        "seeds": arguments.seeds,
        "limit": arguments.limit,
        "version": manymatch.__version__,
    }
    for detector in arguments.only:
        configs = [FeatureConfig(detector, "efficientnet-lite0", layer=10)]
        if arguments.own:
            configs.append(FeatureConfig(detector))
        for config in configs:
            name = f"{config.detector}+{config.descriptor}"
            store = Store(
                arguments.out / f"embedded_{name}.json", {**settings, "features": config.to_dict()}
            )
            results[name] = run(
                data / "posed_pairs",
                config,
                store,
                arguments.out,
                arguments.sets,
                arguments.seeds,
                arguments.limit,
            )
            text = (
                f"# EfficientNet-Lite0 at free keypoints\n\nPose AUC@5/10/20, mean ± standard "
                f"deviation over {arguments.seeds} seeds.\n\n{table(results)}\n\n"
                "Gain of the second system, all pairs together, 95 % interval:\n\n"
                f"{differences(results)}\n"
            )
            (arguments.out / "embedded.md").write_text(text)
            (arguments.out / "embedded.json").write_text(json.dumps(results))
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
