"""Accuracy of the scorers where structure repeats, and where it does not.

    python benchmarks/accuracy/ordering.py --pairs 200 --config ordering --config control

Prints pose AUC by method with 95 % bootstrap intervals over pairs, and the paired differences
between methods that follow one another. ``--out FOLDER`` also writes Markdown and JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

import manymatch
from manymatch.geometry.pose import pose_auc, pose_error_deg
from manymatch_lab.datasets.synthetic import CONFIGS, make_scenes
from manymatch_lab.evaluate.statistics import Interval, bootstrap_interval

METHODS = ("cm", "hcm", "mcm", "hcm-mcm")
STEPS = (("hcm", "cm"), ("mcm", "hcm"), ("hcm-mcm", "mcm"), ("hcm-mcm", "cm"))
THRESHOLDS_DEG = (5, 10, 20)


def measure(
    config: str, pairs: int, seeds: int, first_scene: int, options: manymatch.Options
) -> dict[str, np.ndarray]:
    """Pose errors in degrees (pairs, seeds) of every method."""
    scenes = list(make_scenes(CONFIGS[config], pairs, seed=first_scene))
    problems = [(scene.graph, scene.camera0, scene.camera1) for scene in scenes]
    errors = {method: np.empty((pairs, seeds)) for method in METHODS}
    for method in METHODS:
        for repetition in range(seeds):
            estimates = manymatch.estimate_many(
                problems, method=method, options=dataclasses.replace(options, seed=repetition)
            )
            errors[method][:, repetition] = [
                pose_error_deg(estimate.pose, scene.pose.R, scene.pose.t)
                for estimate, scene in zip(estimates, scenes, strict=True)
            ]
    return errors


def mean_auc(errors: np.ndarray, threshold: float) -> float:
    """AUC of each repetition (columns), averaged."""
    return float(np.mean([pose_auc(column, (threshold,))[0] for column in errors.T]))


def summarise(
    errors: dict[str, np.ndarray],
) -> tuple[dict[str, list[Interval]], dict[str, list[Interval]]]:
    """AUC intervals by method, and intervals of the paired differences, by threshold."""

    def statistic(threshold: float) -> Any:
        return lambda values: mean_auc(values, threshold)

    def difference(threshold: float) -> Any:
        return lambda both: mean_auc(both[:, 0], threshold) - mean_auc(both[:, 1], threshold)

    auc = {
        method: [bootstrap_interval(errors[method], statistic(tau)) for tau in THRESHOLDS_DEG]
        for method in METHODS
    }
    steps = {
        f"{a} - {b}": [
            bootstrap_interval(np.stack([errors[a], errors[b]], axis=1), difference(tau))
            for tau in THRESHOLDS_DEG
        ]
        for a, b in STEPS
    }
    return auc, steps


def markdown(
    config: str,
    errors: dict[str, np.ndarray],
    auc: dict[str, list[Interval]],
    steps: dict[str, list[Interval]],
) -> str:
    pairs, seeds = next(iter(errors.values())).shape
    heads = " | ".join(f"AUC@{tau}" for tau in THRESHOLDS_DEG)
    rule = "|---" * (len(THRESHOLDS_DEG) + 1) + "|"
    lines = [
        f"### {config}: {pairs} pairs, {seeds} seed{'s' if seeds > 1 else ''}",
        "",
        f"| method | {heads} |",
        rule,
        *(f"| {name} | {' | '.join(f'{x:.1f}' for x in row)} |" for name, row in auc.items()),
        "",
        f"| paired difference | {heads} |",
        rule,
        *(f"| {name} | {' | '.join(f'{x:+.1f}' for x in row)} |" for name, row in steps.items()),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    # The configurations were chosen on scenes below 2,000; these are others.
    parser.add_argument("--first-scene", type=int, default=2_000)
    parser.add_argument("--config", action="append", choices=sorted(CONFIGS))
    parser.add_argument("--min-iterations", type=int, default=1_000)
    parser.add_argument("--max-iterations", type=int, default=20_000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    options = manymatch.Options(
        min_iterations=arguments.min_iterations, max_iterations=arguments.max_iterations
    )
    texts, records = [], {}
    for config in arguments.config or ["ordering", "control"]:
        errors = measure(config, arguments.pairs, arguments.seeds, arguments.first_scene, options)
        auc, steps = summarise(errors)
        texts.append(markdown(config, errors, auc, steps))
        print(texts[-1])
        records[config] = {
            "scene": dataclasses.asdict(CONFIGS[config]),
            "first_scene": arguments.first_scene,
            "options": dataclasses.asdict(options),
            "auc": {name: [dataclasses.asdict(x) for x in row] for name, row in auc.items()},
            "difference": {
                name: [dataclasses.asdict(x) for x in row] for name, row in steps.items()
            },
            "errors_deg": {name: values.round(4).tolist() for name, values in errors.items()},
        }
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "ordering.md").write_text("\n".join(texts), encoding="utf-8")
        text = json.dumps(records, indent=1)
        (arguments.out / "ordering.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
