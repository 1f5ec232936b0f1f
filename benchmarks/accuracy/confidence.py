"""Claimed against observed: pose probability, covariance and verdict of `manymatch.assess`.

    python benchmarks/accuracy/confidence.py --out out/accuracy

Synthetic scenes: clutter without any pose (is any of it called solved?), solvable scenes (how often
is the true pose inside the claimed ellipsoid?), and all kinds (how good are poses by verdict?).
With the reference data also the graphs of real images (verdict against truth by representation and
set, reliability of the pose probability, time) and images of different sets, which have no pose.
Practical pipeline: 2048 edges for "auto", for other methods what GMS leaves of them, at most 1024.
Estimator: ``--method``, 1 px, 1,000 to 20,000 iterations. Intervals are 95 % Wilson intervals.
Writes ``confidence.md``, ``confidence.json`` and, with ``--figure FILE``, the reliability diagram.
"""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch
from benchmarks.accuracy import protocol
from manymatch import pose_error_deg
from manymatch.associate.candidates import Association
from manymatch.estimate.confidence import Confidence, Verdict, assess
from manymatch.estimate.evidence import ERROR_LIMIT_DEG
from manymatch.geometry.pose import rotation_error_deg, translation_error_deg
from manymatch.io.pairs import read_pairs
from manymatch.matcher.matcher import Matcher
from manymatch_lab.datasets.synthetic import (
    EASY,
    LOW_PARALLAX,
    ORDERING,
    PLANAR,
    SceneConfig,
    make_scene,
)
from manymatch_lab.evaluate.inputs import open_graphs
from manymatch_lab.evaluate.tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from manymatch.matcher.match_result import MatchResult

OPTIONS = protocol.OPTIONS
K = np.array([[800.0, 0.0, 511.5], [0.0, 800.0, 383.5], [0.0, 0.0, 1.0]])
SIZE = np.array([1023.0, 767.0])
# Probabilities and the squared radii of five-dimensional normal ellipsoids.
ELLIPSOIDS = {50: 4.3515, 90: 9.2364, 95: 11.0705}
VERDICTS = get_args(Verdict)
# The sets that the coefficients were fitted on; the others judge them.
FITTED = ("tum_fr3_office", "middlebury_temple", "kitti_vo")
JUDGED = ("7scenes_tsdf", "metu_vistir_pseudo", "ngp_fox", "strecha_fountain_herzjesu")
BINS = np.linspace(0.0, 1.0, 11)
# Few true points, and enough clutter that some searches fail.
HARD = replace(EASY, num_points=40, num_outliers=60, descriptor_noise=0.3)
HARDER = replace(EASY, num_points=30, num_outliers=30, descriptor_noise=0.3, noise_px=1.0)
FEW = replace(EASY, num_points=15, num_outliers=10, descriptor_noise=0.3)
TINY = replace(EASY, num_points=10, num_outliers=5, k=1)
COVARIANCE_SCENES = {
    "easy, noise 0.25 px": replace(EASY, noise_px=0.25),
    "easy, noise 0.5 px": EASY,
    "easy, noise 1 px": replace(EASY, noise_px=1.0),
    "easy, half of the points": replace(EASY, num_points=40),
    "ordering": ORDERING,
    "planar": PLANAR,
}
VERDICT_SCENES = {
    "easy": EASY,
    "ordering": ORDERING,
    "planar": PLANAR,
    "low parallax": LOW_PARALLAX,
    "40 points, 60 outliers": HARD,
    "30 points, 30 outliers, noise 1 px": HARDER,
    "15 points, 10 outliers": FEW,
    "10 points, 5 outliers, rank one": TINY,
}


def scattered(rng: np.random.Generator, count: int, k: int, cap: int | None = None) -> Any:
    """Keypoints anywhere, descriptors of nothing."""
    points = [rng.uniform((0, 0), SIZE, (count, 2)) for _ in range(2)]
    looks = [rng.standard_normal((count, 32)) for _ in range(2)]
    return manymatch.AssociationGraph(*points, *manymatch.associate(*looks, k=k, max_edges=cap))


def plain_matches(rng: np.random.Generator, count: int) -> Any:
    """One candidate per keypoint, all wrong."""
    return manymatch.AssociationGraph.from_matches(
        *(rng.uniform((0, 0), SIZE, (count, 2)) for _ in range(2))
    )


def clustered(rng: np.random.Generator) -> Any:
    """Keypoints in eight clusters, descriptors of nothing."""
    points = []
    for _ in range(2):
        middles = rng.uniform(50, SIZE - 50, (8, 2))
        where = middles[rng.integers(0, 8, 200)] + rng.normal(0, 40, (200, 2))
        points.append(np.clip(where, 0, SIZE))
    looks = [rng.standard_normal((200, 32)) for _ in range(2)]
    return manymatch.AssociationGraph(*points, *manymatch.associate(*looks, k=5))


def rows(rng: np.random.Generator, num_rows: int, scattered_points: int) -> Any:
    """Rows of six look-alikes, the same ones in both images, at unrelated places."""
    steps = 40.0 * (np.arange(6) - 2.5)[:, None]
    points = []
    for _ in range(2):
        angle = rng.uniform(0, np.pi)
        along = np.array([np.cos(angle), np.sin(angle)])
        reach = 100.0 * np.abs(along)
        middles = rng.uniform(reach, SIZE - reach, (num_rows, 2))
        members = (middles[:, None] + steps * along).reshape(-1, 2)
        loose = rng.uniform((0, 0), SIZE, (scattered_points, 2))
        noise = 0.5 * rng.standard_normal((len(members) + len(loose), 2))
        points.append(np.concatenate([members, loose]) + noise)
    common = np.repeat(rng.standard_normal((num_rows, 64)), 6, axis=0)
    looks = [
        np.concatenate(
            [
                common + 0.1 * rng.standard_normal(common.shape),
                rng.standard_normal((scattered_points, 64)),
            ]
        )
        for _ in range(2)
    ]
    return manymatch.AssociationGraph(*points, *manymatch.associate(*looks, k=5, max_edges=1024))


CLUTTER: dict[str, Callable[[np.random.Generator], Any]] = {
    "6 to 40 plain matches": lambda rng: plain_matches(rng, int(rng.integers(6, 41))),
    "40 scattered points": lambda rng: scattered(rng, 40, 5),
    "200 scattered points": lambda rng: scattered(rng, 200, 5),
    "600 scattered points, 1024 edges": lambda rng: scattered(rng, 600, 5, 1024),
    "600 scattered points, rank one": lambda rng: scattered(rng, 600, 1),
    "200 points in clusters": clustered,
    "20 rows of look-alikes": lambda rng: rows(rng, 20, 80),
    "60 rows of look-alikes": lambda rng: rows(rng, 60, 40),
}


def unrelated_images(
    folder: Path, sets: Sequence[str], options: manymatch.Options, per_set: int = 8
) -> Iterator[MatchResult]:
    """Match images of different sets, which show nothing in common, with three features."""
    kinds: list[dict[str, Any]] = [
        {"preset": "classic"},
        {"preset": "embedded"},
        {"preset": "classic", "descriptor": "efficientnet-lite0", "layer": 10},
    ]
    for kind in kinds:
        matcher = Matcher(offline=True, options=options, **kind)
        known = []
        for name in sets:
            pairs = read_pairs(folder / name / "pairs.txt", folder / name)
            images = {pair.name0: pair.camera0 for pair in pairs}
            for image in sorted(images)[:: max(1, len(images) // per_set)][:per_set]:
                path = folder / name / image
                known.append((name, matcher.extractor.extract(str(path)), images[image]))
        for i, (set0, features0, camera0) in enumerate(known):
            for j, (set1, features1, camera1) in enumerate(known):
                if set0 < set1 and (7 * i + 3 * j) % 4 == 0:
                    yield matcher.match_features(
                        features0, features1, camera0, camera1, options=options.replace(seed=i)
                    )


def wilson(hits: int, count: int) -> str:
    """Share in percent with its 95 % interval."""
    if count == 0:
        return "-"
    z, share = 1.96, hits / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2) / (1 + z * z / count)
    low, high = max(middle - half, 0.0), min(middle + half, 1.0)
    return f"{100 * share:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


class Clock:
    """Seconds of processor time that estimating and assessing took, one entry a pair."""

    def __init__(self) -> None:
        self.estimate: list[float] = []
        self.assess: list[float] = []

    def clear(self) -> None:
        self.estimate.clear()
        self.assess.clear()

    def __str__(self) -> str:
        parts = []
        for name, values in (("estimate", self.estimate), ("assess", self.assess)):
            mean, high = 1e3 * np.mean(values), 1e3 * np.quantile(values, 0.95)
            parts.append(f"{name} {mean:.1f} ms on average (95th percentile {high:.0f} ms)")
        share = sum(self.assess) / max(sum(self.estimate), 1e-9)
        return ", ".join([*parts, f"assess over estimate {share:.2f}"])


CLOCK = Clock()


def solve(method: Any, graph: Any, camera0: Any, camera1: Any, seed: int) -> tuple[Any, Confidence]:
    """Estimate and assess one pair, and note what it costs."""
    start = time.process_time()
    estimate = manymatch.estimate_relative_pose(
        graph, camera0, camera1, method, OPTIONS.replace(seed=seed)
    )
    middle = time.process_time()
    sure = assess(estimate)
    CLOCK.estimate.append(middle - start)
    CLOCK.assess.append(time.process_time() - middle)
    return estimate, sure


def step_to(estimate: Any, confidence: Confidence, truth: Any) -> np.ndarray:
    """Parameters (5,) that lead from the estimated to the true pose."""
    R, t = estimate.pose.R, estimate.pose.t
    turn = R.T @ truth.R
    vector = np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
    sine = 0.5 * np.linalg.norm(vector)
    angle = np.arctan2(sine, 0.5 * (np.trace(turn) - 1.0))
    across = confidence.translation_basis @ (truth.t * np.sign(truth.t @ t))
    return np.concatenate([0.5 * vector * (angle / sine if sine > 1e-12 else 1.0), across])


def measure_clutter(
    method: str, scenes: int, first: int, tick: Callable[[str], None]
) -> dict[str, list[dict[str, Any]]]:
    """Probability and verdict on clutter, by kind."""
    claimed: dict[str, list[dict[str, Any]]] = {}
    for kind, make in CLUTTER.items():
        claimed[kind] = []
        for seed in range(first, first + scenes):
            graph = make(np.random.default_rng([seed, 17]))
            sure = solve(method, graph, K, K, seed)[1]
            claimed[kind].append({"probability": sure.pose_probability, "verdict": sure.verdict})
            tick(f"clutter: {kind}")
    return claimed


def measure_scenes(
    method: str,
    configs: dict[str, SceneConfig],
    scenes: int,
    first: int,
    tick: Callable[[str], None],
) -> dict[str, list[dict[str, Any]]]:
    """Verdict, error and squared normalised error of every scene, by kind."""
    records: dict[str, list[dict[str, Any]]] = {}
    for kind, config in configs.items():
        records[kind] = []
        for seed in range(first, first + scenes):
            scene = make_scene(config, seed)
            estimate, sure = solve(method, scene.graph, scene.camera0, scene.camera1, seed)
            record = {
                "verdict": sure.verdict,
                "pose_probability": sure.pose_probability,
                "error_deg": pose_error_deg(estimate.pose, scene.pose.R, scene.pose.t),
            }
            if np.isfinite(sure.covariance).all():
                step = step_to(estimate, sure, scene.pose)
                record |= {
                    "distance2": float(step @ np.linalg.solve(sure.covariance, step)),
                    "rotation_deg": float(np.degrees(np.linalg.norm(step[:3]))),
                    "translation_deg": float(np.degrees(np.linalg.norm(step[3:]))),
                    "rotation_sd_deg": sure.rotation.sd_deg,
                    "translation_sd_deg": sure.translation.sd_deg,
                }
            records[kind].append(record)
            tick(f"scenes: {kind}")
    return records


def measure_real(method: str, folder: Path, tick: Callable[[str], None]) -> list[dict[str, Any]]:
    """Verdict and error of every pair of a representation; seeds as in the other benchmarks."""
    association = Association().for_method(method)
    records = []
    for source in open_graphs([str(folder)]):
        for index in range(len(source)):
            pair = source[index]
            graph = association.apply(pair.graph, **pair.sizes)
            estimate, sure = solve(method, graph, pair.camera0, pair.camera1, pair.seed_index)
            error = pose_error_deg(estimate.pose, pair.R, pair.t)
            name = {"representation": folder.name, "set": source.name}
            parts = {}
            if estimate.pose is not None:
                parts["rotation_error_deg"] = rotation_error_deg(estimate.pose.R, pair.R)
                parts["translation_error_deg"] = translation_error_deg(estimate.pose.t, pair.t)
            records.append({**name, "error_deg": error, **parts, **sure.to_dict()})
        tick(f"real: {folder.name} {source.name}")
    return records


def clutter_table(claimed: dict[str, list[dict[str, Any]]]) -> Table:
    table_rows = []
    for kind, records in claimed.items():
        counts = [str(sum(r["verdict"] == verdict for r in records)) for verdict in VERDICTS]
        largest = max(record["probability"] for record in records)
        table_rows.append([kind, str(len(records)), *counts, f"{largest:.3f}"])
    return Table("No pose exists", ["", "pairs", *VERDICTS, "largest probability"], table_rows)


def covariance_table(records: dict[str, list[dict[str, Any]]]) -> Table:
    """Coverage of all solved and likely scenes; root mean square errors of the right ones."""
    table_rows = []
    for kind, entries in records.items():
        used = [e for e in entries if e["verdict"] in ("solved", "likely") and "distance2" in e]
        right = [e for e in used if e["error_deg"] < 5.0]
        distances = np.array([e["distance2"] for e in used])
        cells = [wilson(int(np.sum(distances < r2)), len(used)) for r2 in ELLIPSOIDS.values()]
        for part in ("rotation", "translation"):
            squares = [(e[f"{part}_deg"] ** 2, e[f"{part}_sd_deg"] ** 2) for e in right]
            observed, said = np.sqrt(np.mean(squares, axis=0))
            cells.append(f"{said:.2f}° / {observed:.2f}°")
        table_rows.append([kind, str(len(used)), str(len(used) - len(right)), *cells])
    header = ["scenes", "solved or likely", "off by 5° or more", *(f"in {p} %" for p in ELLIPSOIDS)]
    header += ["rotation: claimed / observed", "translation: claimed / observed"]
    return Table("Covariance", header, table_rows)


def verdict_table(records: dict[str, list[dict[str, Any]]]) -> Table:
    table_rows = []
    for kind, entries in records.items():
        cells = []
        for verdict in VERDICTS:
            errors = [e["error_deg"] for e in entries if e["verdict"] == verdict]
            good = sum(error < 5.0 for error in errors)
            cells.append(f"{len(errors)}: {wilson(good, len(errors))}" if errors else "0")
        table_rows.append([kind, *cells])
    title = "Verdict, synthetic scenes: number, and percent with an error below 5°"
    return Table(title, ["", *VERDICTS], table_rows)


def real_table(records: Iterable[dict[str, Any]]) -> Table:
    """Real pairs: how many right and wrong poses get which verdict, by representation and set."""
    entries = list(records)
    table_rows = []
    names = sorted({(e["representation"], e["set"]) for e in entries})
    groups = [(f"{rep}, {name}", (rep,), (name,)) for rep, name in names]
    every = tuple(sorted({rep for rep, _ in names}))
    groups += [(f"{rep}, sets not fitted", (rep,), JUDGED) for rep in every]
    groups += [("all, sets not fitted", every, JUDGED), ("all, fitted sets", every, FITTED)]
    for title, representations, sets in groups:
        own = [e for e in entries if e["representation"] in representations and e["set"] in sets]
        for name, low, high in (("right, < 5°", 0, 5), ("5° to 20°", 5, 20), ("> 20°", 20, 181)):
            some = [e for e in own if low <= e["error_deg"] < high]
            counts = [sum(e["verdict"] == verdict for e in some) for verdict in VERDICTS]
            passed = wilson(counts[0] + counts[1], len(some))
            table_rows.append([title, name, str(len(some)), passed, *map(str, counts)])
    header = ["representation, set", "error", "pairs", "solved or likely, %", *VERDICTS]
    return Table("Verdict against truth, real pairs", header, table_rows)


def deviation_table(records: Iterable[dict[str, Any]]) -> Table:
    """Errors of right poses against the claimed standard deviations, by set."""
    entries = [e for e in records if e["verdict"] in ("solved", "likely")]
    table_rows = []
    for name in sorted({e["set"] for e in entries}):
        cells = []
        for representation in sorted({e["representation"] for e in entries}):
            ratios = [
                e["error_deg"] / max(e["rotation_sd_deg"], e["translation_sd_deg"])
                for e in entries
                if (e["set"], e["representation"]) == (name, representation)
            ]
            low, high = np.quantile(ratios, [0.5, 0.9]) if ratios else (math.nan, math.nan)
            cells.append(f"{low:.2f} / {high:.2f}" if ratios else "-")
        table_rows.append([name, *cells])
    header = ["set", *sorted({e["representation"] for e in entries})]
    title = "Error over the larger claimed standard deviation: median / 90th percentile"
    return Table(f"{title}, solved and likely real pairs", header, table_rows)


def reliability(
    entries: list[dict[str, Any]], said: str = "pose_probability", error: str = "error_deg"
) -> list[tuple[float, int, int]]:
    """Mean probability, right poses and poses of every bin that is not empty."""
    p = np.array([e[said] for e in entries])
    right = np.array([e[error] < ERROR_LIMIT_DEG for e in entries])
    place = np.clip(np.digitize(p, BINS) - 1, 0, len(BINS) - 2)
    return [
        (float(p[place == k].mean()), int(right[place == k].sum()), int(np.sum(place == k)))
        for k in range(len(BINS) - 1)
        if np.any(place == k)
    ]


def reliability_table(groups: dict[str, list[dict[str, Any]]]) -> Table:
    table_rows = []
    for name, entries in groups.items():
        for mean, right, number in reliability(entries):
            table_rows.append([name, f"{mean:.2f}", str(number), wilson(right, number)])
        for part in ("rotation", "translation"):
            known = [e for e in entries if f"{part}_error_deg" in e]
            of_part = f"{part}_probability", f"{part}_error_deg"
            for mean, right, number in reliability(known, *of_part) if known else []:
                cells = [f"{name}, {part}", f"{mean:.2f}", str(number), wilson(right, number)]
                table_rows.append(cells)
    header = ["pairs", "mean probability", "number", "right, %"]
    return Table("Reliability of the pose probability", header, table_rows)


def draw_reliability(groups: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Draw the reliability diagram: claimed against observed, with the size of each bin."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(groups), figsize=(3.4 * len(groups), 3.4), sharey=True)
    for axis, (name, entries) in zip(np.atleast_1d(axes), groups.items(), strict=True):
        points = reliability(entries)
        axis.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
        mean, share = [m for m, _, _ in points], [right / n for _, right, n in points]
        size = [12.0 + 1.5 * math.sqrt(n) * 4 for _, _, n in points]
        axis.plot(mean, share, color="#1f5fa8", linewidth=1.0)
        axis.scatter(mean, share, s=size, color="#1f5fa8", zorder=3)
        axis.set_title(f"{name} ({len(entries):,})", fontsize=9)
        axis.set_xlabel("pose_probability", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.set_xlim(-0.03, 1.03)
        axis.set_ylim(-0.03, 1.03)
    np.atleast_1d(axes)[0].set_ylabel("share of right poses (< 5°)", fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def main() -> None:
    parser = protocol.arguments(__doc__.splitlines()[0])
    parser.add_argument("--method", default="auto")
    parser.add_argument("--scenes", type=int, default=150, help="scenes of each kind")
    # The coefficients were fitted on scenes below 1,000; these are others.
    parser.add_argument("--first-scene", type=int, default=5_000)
    parser.add_argument("--real", nargs="*", default=["effnet", "superpoint", "sift", "sam2"])
    parser.add_argument("--unrelated", action="store_true", help="also images of different sets")
    parser.add_argument("--figure", type=Path, help="file of the reliability diagram")
    arguments = parser.parse_args()
    graphs = protocol.reference_data("graphs")
    real = [] if graphs is None else [graphs / name for name in arguments.real]
    real = [folder for folder in real if folder.is_dir()]
    kinds = COVARIANCE_SCENES | VERDICT_SCENES
    with Progress(transient=True) as progress:
        total = arguments.scenes * (len(CLUTTER) + len(kinds))
        total += sum(1 for folder in real for path in folder.iterdir() if path.is_dir())
        task = progress.add_task("confidence", total=total)

        def tick(what: str) -> None:
            progress.update(task, description=what, advance=1)

        method = arguments.method
        claimed = measure_clutter(method, arguments.scenes, arguments.first_scene, tick)
        if arguments.unrelated and graphs is not None:
            found = unrelated_images(graphs.parent / "posed_pairs", JUDGED, OPTIONS)
            claimed["images of different sets"] = [
                {"probability": r.confidence.pose_probability, "verdict": r.confidence.verdict}
                for r in found
            ]
        scenes = measure_scenes(method, kinds, arguments.scenes, arguments.first_scene, tick)
        CLOCK.clear()
        pairs = [entry for folder in real for entry in measure_real(method, folder, tick)]
    tables = [
        clutter_table(claimed),
        covariance_table({kind: scenes[kind] for kind in COVARIANCE_SCENES}),
        verdict_table({kind: scenes[kind] for kind in VERDICT_SCENES}),
    ]
    groups = {"synthetic scenes": [e for kind in VERDICT_SCENES for e in scenes[kind]]}
    if pairs:
        groups["real, sets not fitted"] = [e for e in pairs if e["set"] in JUDGED]
        exact = [e for e in groups["real, sets not fitted"] if e["set"] != "7scenes_tsdf"]
        groups["the same without 7scenes_tsdf"] = exact
        tables += [real_table(pairs), deviation_table(pairs)]
    tables.append(reliability_table(groups))
    cost = f"{method}; processor time of {'the real pairs' if pairs else 'the scenes'}: {CLOCK}."
    tables[-1] = replace(tables[-1], notes=[*tables[-1].notes, cost])
    arguments.out.mkdir(parents=True, exist_ok=True)
    protocol.write(arguments.out, "confidence", tables)
    if arguments.figure is not None:
        draw_reliability(groups, arguments.figure)
    content = {
        "method": method,
        "options": OPTIONS.to_dict(),
        "version": manymatch.__version__,
        "first_scene": arguments.first_scene,
        "clutter": claimed,
        "scenes": scenes,
        "real": pairs,
    }
    (arguments.out / "confidence.json").write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    main()
