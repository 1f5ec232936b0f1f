"""Reconstruction of whole scenes with true cameras, beside COLMAP's own front end.

    python benchmarks/accuracy/reconstruction.py --out out/scenes
    python benchmarks/accuracy/reconstruction.py --scenes temple fox/every6 --systems colmap classic
    python benchmarks/accuracy/reconstruction.py --folder out/places --scenes cup0 --unknown

A scene is a folder with ``images/``, ``cameras.json`` ({"name": {"K", "R", "t", "size"}}, with
``x = K (R X + t)``) and lists of images such as ``every6.txt``. "colmap" is pycolmap: SIFT with
8,192 keypoints, all pairs, the incremental mapper (the better of 15 and 30 points that an image
needs) and the global one. The others are presets of `manymatch.reconstruct`. AUC is that of the
relative poses of ALL pairs of images, of the best single model; images without a pose count as
failures. A pair that the mapper got is wrong if its pose is off by more than 10 degrees or most of
its matches are far from the true epipolar lines. Every result is kept in --out, and a run that was
interrupted resumes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pycolmap

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import manymatch as mm
from benchmarks.accuracy.all_pairs import read_cameras
from manymatch.geometry.pose import rotation_error_deg
from manymatch.reconstruct.pair_graph import PairGraph
from tests.support.data_folder import data_folder

THRESHOLDS = (1, 3, 5, 10)
WRONG_DEG, FAR_PX, FEWEST = 10.0, 4.0, 15
COLUMNS = ("scene", "cameras", "system", "mapper", "images", *(f"@{t}" for t in THRESHOLDS))
MORE = ("wrong / right pairs", "points", "track", "error px", "CPU s")


def scenes_of(folder: Path, wanted: list[str]) -> list[tuple[str, list[str] | None]]:
    """Scenes, and variants of them as name/list, with the names of the images of a variant."""
    if not wanted:
        for place in sorted(folder.iterdir()):
            if (place / "cameras.json").is_file():
                lists = sorted(path.stem for path in place.glob("every*.txt"))
                wanted += [place.name, *(f"{place.name}/{one}" for one in lists)]
    found = []
    for name in wanted:
        scene, _, variant = name.partition("/")
        listed = (folder / scene / f"{variant}.txt").read_text().split() if variant else None
        found.append((name, listed))
    return found


def relative(first: dict[str, Any], second: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    R = second["R"] @ first["R"].T
    return R, second["t"] - R @ first["t"]


def error_deg(R: np.ndarray, t: np.ndarray, true: tuple[np.ndarray, np.ndarray]) -> float:
    """Larger one of the angles of rotation and direction, which has a sign in a model."""
    lengths = np.linalg.norm(t), np.linalg.norm(true[1])
    turned = rotation_error_deg(R, true[0])
    if lengths[1] < 1e-9:
        return turned
    cosine = float(t @ true[1]) / (lengths[0] * lengths[1]) if lengths[0] > 1e-12 else -1.0
    return max(turned, float(np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0)))))


def judge_model(model: Any, cameras: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Compare the relative poses of all pairs of images with the true ones."""
    poses = {}
    for image in model.images.values():
        if image.has_pose:
            rigid = image.cam_from_world()
            poses[image.name] = {"R": rigid.rotation.matrix(), "t": rigid.translation}
    errors = [
        error_deg(*relative(poses[a], poses[b]), relative(cameras[a], cameras[b]))
        if a in poses and b in poses
        else 180.0
        for a, b in itertools.combinations(names, 2)
    ]
    return {
        "registered": sum(name in poses for name in names),
        "auc": mm.pose_auc(errors, THRESHOLDS).tolist(),
        "points": model.num_points3D(),
        "track": model.compute_mean_track_length(),
        "error_px": model.compute_mean_reprojection_error(),
    }


def judge_models(models: list[Any], cameras: dict[str, Any], names: list[str]) -> dict[str, Any]:
    judged = [judge_model(model, cameras, names) for model in models]
    nothing = {"registered": 0, "auc": [0.0] * 4, "points": 0, "track": 0.0, "error_px": 0.0}
    best = max(judged, key=lambda one: one["auc"][2], default=nothing)
    return {**best, "models": len(models), "images": len(names)}


def judge_pairs(path: Path, cameras: dict[str, Any]) -> tuple[int, int]:
    """Count wrong and right pairs of a database."""
    graph, wrong, right = PairGraph.from_database(path), 0, 0
    for pair in graph.pairs:
        one, two = graph.photos[pair.first], graph.photos[pair.second]
        if len(pair.matches) < FEWEST or pair.pose is None:
            continue
        first, second = cameras[one.name], cameras[two.name]
        R, t = relative(first, second)
        skew = np.cross(np.eye(3), t)
        F = np.linalg.inv(second["K"]).T @ skew.T @ R @ np.linalg.inv(first["K"])
        x0 = np.c_[one.points[pair.matches[:, 0]], np.ones(len(pair.matches))]
        x1 = np.c_[two.points[pair.matches[:, 1]], np.ones(len(pair.matches))]
        l1, l0 = x0 @ F.T, x1 @ F
        value = np.abs((x1 * l1).sum(1))
        far = np.maximum(value / np.hypot(*l1[:, :2].T), value / np.hypot(*l0[:, :2].T)) > FAR_PX
        lies = far.mean() > 0.5 or error_deg(pair.pose.R, pair.pose.t, (R, t)) > WRONG_DEG
        wrong, right = wrong + lies, right + (not lies)
    return int(wrong), int(right)


def cpu_seconds() -> float:
    """CPU time of this process and of its children that have ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(kind) for kind in kinds]
    return sum(one.ru_utime + one.ru_stime for one in used)


def true_camera(camera: dict[str, Any]) -> mm.Camera:
    return mm.Camera.from_matrix(camera["K"], *map(int, camera["size"]))


def run_colmap(
    images: Path, place: Path, cameras: dict[str, Any], names: list[str], *, known: bool, seed: int
) -> list[dict[str, Any]]:
    """COLMAP's own SIFT, matching and mappers."""
    start, database = cpu_seconds(), place / "database.db"
    one = {"num_threads": 1}
    extraction = pycolmap.FeatureExtractionOptions(use_gpu=False, **one)
    mode = pycolmap.CameraMode.PER_IMAGE if known else pycolmap.CameraMode.AUTO
    pycolmap.set_random_seed(seed)
    pycolmap.extract_features(database, images, camera_mode=mode, extraction_options=extraction)
    if known:
        opened = pycolmap.Database.open(str(database))
        for image in opened.read_all_images():
            values = true_camera(cameras[image.name]).to_colmap()
            camera = pycolmap.Camera(**values, camera_id=image.camera_id)
            camera.has_prior_focal_length = True
            opened.update_camera(camera)
        opened.close()
    matching = pycolmap.FeatureMatchingOptions(use_gpu=False, **one)
    pycolmap.match_exhaustive(database, matching_options=matching)
    front, pairs, rows = cpu_seconds() - start, judge_pairs(database, cameras), []
    for mapper in ("incremental 30", "incremental 15", "global"):
        start, out = cpu_seconds(), place / mapper.replace(" ", "-")
        out.mkdir()
        if mapper == "global":
            options = pycolmap.GlobalPipelineOptions(num_threads=1, random_seed=seed)
            options.mapper.global_positioning.use_gpu = False
            options.mapper.bundle_adjustment.ceres.use_gpu = False
            options.mapper.bundle_adjustment.refine_focal_length = not known
            options.mapper.bundle_adjustment.refine_extra_params = not known
            models = pycolmap.global_mapping(database, images, out, options)
        else:
            options = pycolmap.IncrementalPipelineOptions(num_threads=1, random_seed=seed)
            options.min_model_size = 3
            options.mapper.abs_pose_min_num_inliers = int(mapper.split()[1])
            options.ba_refine_focal_length = options.ba_refine_extra_params = not known
            options.mapper.abs_pose_refine_focal_length = not known
            options.mapper.abs_pose_refine_extra_params = not known
            models = pycolmap.incremental_mapping(database, images, out, options)
        judged = judge_models(list(models.values()), cameras, names)
        seconds = front + cpu_seconds() - start
        rows.append({"mapper": mapper, **judged, "pairs": pairs, "cpu": seconds})
    better = max(rows[:2], key=lambda row: row["auc"][2])
    return [{**better, "mapper": "incremental"}, rows[2]]


def run_ours(
    images: Path,
    place: Path,
    cameras: dict[str, Any],
    names: list[str],
    *,
    known: bool,
    seed: int,
    preset: str,
    cache: Path,
) -> list[dict[str, Any]]:
    """Our own command, with cameras known by a COLMAP model of the true ones."""
    given = None
    if known:
        given = place / "cameras"
        given.mkdir()
        model = pycolmap.Reconstruction()
        for number, name in enumerate(names, 1):
            values = true_camera(cameras[name]).to_colmap()
            model.add_camera_with_trivial_rig(pycolmap.Camera(**values, camera_id=number))
            image = pycolmap.Image(name=name, camera_id=number, image_id=number)
            model.add_image_with_trivial_frame(image, pycolmap.Rigid3d())
        model.write_text(str(given))
    start = cpu_seconds()
    found = mm.reconstruct(
        images, place / "model", given, preset, seed=seed, workers=1, cache=cache
    )
    seconds = cpu_seconds() - start
    models = [pycolmap.Reconstruction(str(model.folder)) for model in found.models]
    judged = judge_models(models, cameras, names)
    databases = (place / "model/mapping").glob("*/database.db")
    accepted = min(databases, key=lambda path: path.stat().st_mtime_ns, default=None)
    pairs = (0, 0) if accepted is None else judge_pairs(accepted, cameras)
    mapper = found.models[0].mapper if found.models else "none"
    stages = found.seconds
    return [{"mapper": mapper, **judged, "pairs": pairs, "cpu": seconds, "stages": stages}]


def run_one(
    job: dict[str, Any], folder: Path, names: list[str], cache: Path
) -> list[dict[str, Any]]:
    scene = job["scene"].split("/")[0]
    cameras = read_cameras(folder / scene / "cameras.json")
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        images = place / "images"
        images.mkdir()
        for name in names:
            shutil.copyfile(folder / scene / "images" / name, images / name)
        how = {"known": job["cameras"] == "known", "seed": job["seed"]}
        if job["system"] == "colmap":
            return run_colmap(images, place, cameras, names, **how)
        own = {"preset": job["system"], "cache": cache}
        return run_ours(images, place, cameras, names, **how, **own)


def table(rows: list[dict[str, Any]]) -> str:
    """Means over seeds as a table in Markdown."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        # With both mappers, ours is whichever was better.
        mapper = row["mapper"] if row["system"] == "colmap" else "better"
        key = (row["scene"], row["cameras"], row["system"], mapper)
        groups.setdefault(key, []).append(row)
    lines = ["| " + " | ".join([*COLUMNS, *MORE]) + " |", "|---" * len([*COLUMNS, *MORE]) + "|"]
    for key, own in groups.items():
        mean = {name: np.mean([row[name] for row in own]) for name in ("registered", "points")}
        mean |= {name: np.mean([row[name] for row in own]) for name in ("track", "error_px", "cpu")}
        auc = np.mean([row["auc"] for row in own], axis=0)
        wrong, right = np.mean([row["pairs"] for row in own], axis=0)
        cells = [
            *key,
            f"{mean['registered']:g} / {own[0]['images']}",
            *(f"{value:.1f}" for value in auc),
            f"{wrong:.0f} / {right:.0f}",
            f"{mean['points']:,.0f}",
            f"{mean['track']:.1f}",
            f"{mean['error_px']:.2f}",
            f"{mean['cpu']:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="folder of scenes; by default the data here")
    parser.add_argument("--scenes", nargs="*", default=[], help="scenes, or scene/list")
    parser.add_argument("--systems", nargs="*", default=["colmap", "classic", "fused"])
    parser.add_argument("--unknown", action="store_true", help="cameras are not known")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/scenes"))
    parser.add_argument("--cache", type=Path, help="folder of features")
    given = parser.parse_args()
    pycolmap.logging.minloglevel = 2
    folder = given.folder
    if folder is None:
        data = data_folder()
        folder = None if data is None else data / "scenes"
    if folder is None or not folder.is_dir():
        print("The scenes are not here (MANYMATCH_DATA, --folder).")
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for (scene, listed), system, seed in itertools.product(
        scenes_of(folder, given.scenes), given.systems, range(given.seeds)
    ):
        cameras = "unknown" if given.unknown else "known"
        job = {"scene": scene, "cameras": cameras, "system": system, "seed": seed}
        path = given.out / ("-".join(map(str, job.values())).replace("/", "-") + ".json")
        if not path.exists():
            known = read_cameras(folder / scene.split("/")[0] / "cameras.json")
            names = sorted(known if listed is None else listed)
            found = run_one(job, folder, names, given.cache or given.out / "features")
            path.write_text(json.dumps([{**job, **row} for row in found], indent=1))
        own = json.loads(path.read_text())
        for row in own:
            auc = " / ".join(f"{value:.1f}" for value in row["auc"])
            print(
                scene,
                cameras,
                system,
                row["mapper"],
                row["registered"],
                auc,
                row["pairs"],
                flush=True,
            )
        rows += own
    (given.out / "reconstruction.md").write_text(table(rows))
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
