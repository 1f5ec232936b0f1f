"""METU-VisTIR: visible and thermal images, both cloudy (CC) or cloudy and sunny (CS)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from manymatch._files import unreadable
from manymatch._validate import FloatArray, float_array, integer
from manymatch.camera import Camera, as_camera
from manymatch.datasets import _tree
from manymatch.datasets._object_npz import read_object_npz
from manymatch.datasets.base import Pair
from manymatch.datasets.dataset import Dataset

if TYPE_CHECKING:
    from pathlib import Path

TITLES = {"metu-cc": "METU-CC", "metu-cs": "METU-CS"}
NUM_PAIRS = {"metu-cc": 1382, "metu-cs": 1208}
ABOUT = {
    "metu-cc": "visible-thermal, outdoor, both cloudy",
    "metu-cs": "visible-thermal, outdoor, cloudy and sunny",
}
GET = (
    "METU-VisTIR from https://github.com/OnderT/XoFTR (CC BY-NC-SA 4.0). Its cameras focus by "
    "themselves, so its authors call the ground truth slightly imperfect."
)
TREE = """\
METU_VisTIR/
├── index/scene_info_test/cloudy_cloudy_scene_1.npz ... cloudy_sunny_scene_1.npz ...
├── cloudy/scene_1/{visible,thermal}/images/...
└── sunny/scene_1/{visible,thermal}/images/..."""

_WEATHER = {"metu-cc": "cloudy_cloudy", "metu-cs": "cloudy_sunny"}
_WANT = "a scene index of METU-VisTIR"
_GRID = 25
_ITERATIONS = 100


def load(name: str, root: object = None) -> Dataset:
    """Read all scenes of one weather, in the order of their numbers."""
    folder = _tree.root_folder(root, name)
    if not (folder / "index").is_dir():
        inner = (folder / inside for inside in ("METU_VisTIR", "METU-VisTIR"))
        folder = next((place for place in inner if (place / "index").is_dir()), folder)
    index = folder / "index" / "scene_info_test"
    prefix = f"{_WEATHER[name]}_scene_"
    scenes = {
        int(number): path
        for path in index.glob(f"{prefix}*.npz")
        if (number := path.stem.removeprefix(prefix)).isdecimal()
    }
    if not scenes:
        raise ValueError(
            f"root must have index/scene_info_test/{prefix}1.npz and others, "
            f"got {str(folder)!r} without them"
        )
    pairs: list[Pair] = []
    worst = 0.0
    for scene, path in sorted(scenes.items()):
        off = _read_scene(path, folder, f"scene_{scene}", pairs)
        worst = max(worst, off)
    notes = [f"{len(pairs):,} pairs of {len(scenes)} scenes; thermal frames keep their own size"]
    if worst > 0.0:
        notes.append(
            "distortion of more than four coefficients replaced by the nearest of four, "
            f"{worst:.2g} pixels off at most"
        )
    # Thermal frames are small; enlarging them would only invent pixels.
    return Dataset(name, TITLES[name], tuple(pairs), longest1=0, notes=tuple(notes))


def check(name: str, root: object) -> str | None:
    """Name the first missing thing, or None."""
    return _tree.first_fault(
        lambda: load(name, root),
        _tree.missing_image,
        lambda dataset: _tree.wrong_count(dataset, [NUM_PAIRS[name]]),
    )


def _read_scene(path: Path, folder: Path, scene: str, pairs: list[Pair]) -> float:
    """Append the pairs of one file; return by how many pixels a camera is approximate."""
    names = ("image_paths", "intrinsics", "distortion_coefs", "poses", "pair_infos")
    info = read_object_npz(path, _WANT, names)
    count = len(info["image_paths"])

    @functools.cache
    def view(image: int, kind: int) -> tuple[str, Camera, float]:
        K = np.asarray(info["intrinsics"][image][kind], dtype=np.float64)
        k = np.asarray(info["distortion_coefs"][image][kind], dtype=np.float64)
        camera, off = opencv_camera(K, k)
        return str(info["image_paths"][image][kind]), camera, off

    worst = 0.0
    for number, row in enumerate(info["pair_infos"], 1):
        try:
            i, j = (integer(k, "an index", 0, count - 1) for k in row)
            (name0, camera0, off0), (name1, camera1, off1) = view(i, 0), view(j, 1)
            R, t = _tree.relative_pose(info["poses"][i], info["poses"][j], "a pose")
            files = folder / name0, folder / name1
            extra = {"seed_index": len(pairs) + 1}
            pair = Pair(
                name0, name1, *files, camera0, camera1, R, t, scene=scene, extra=extra
            )  # fmt: skip
        except (ValueError, TypeError, IndexError) as error:
            raise unreadable(path, _WANT, f"pair {number}: {error}") from error
        pairs.append(pair)
        worst = max(worst, off0, off1)
    return worst


def opencv_camera(K: object, coefficients: object) -> tuple[Camera, float]:
    """Make an OPENCV camera of OpenCV's k1, k2, p1, p2[, k3[, k4, k5, k6]].

    Returns
    -------
    camera : Camera
        Exact if all coefficients after the fourth are zero; else the k1, k2, p1, p2 that are
        nearest in pixels over the image, which the principal point is taken to be the middle of.
    off : float
        Largest error in pixels, 0 if exact.
    """
    base = as_camera(K, "K")
    k = float_array(np.ravel(np.asarray(coefficients)), "distortion", "numbers", (None,))
    if k.size not in (0, 4, 5, 8):
        raise ValueError(f"distortion must have 4, 5 or 8 coefficients, got {k.size}")
    k = np.concatenate([k, np.zeros(8 - k.size)])
    focal = (base.fx, base.fy, base.cx, base.cy)
    if not k[4:].any():
        model = "OPENCV" if k.any() else "PINHOLE"
        return Camera(model, None, None, (*focal, *k[:4]) if k.any() else focal), 0.0
    axes = (np.linspace(0.0, 2.0 * centre, _GRID) for centre in focal[2:])
    pixels = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    rays = _undistort((pixels - focal[2:]) / focal[:2], k)
    x, y = rays.T
    want = _distort(x, y, k) - rays
    s = x * x + y * y
    basis = np.stack(
        [
            np.stack([x * s, x * s * s, 2 * x * y, s + 2 * x * x], axis=1),
            np.stack([y * s, y * s * s, s + 2 * y * y, 2 * x * y], axis=1),
        ],
        axis=1,
    )
    scale = np.array(focal[:2])
    design = (basis * scale[None, :, None]).reshape(-1, 4)
    target = (want * scale).ravel()
    nearest = np.linalg.lstsq(design, target, rcond=None)[0]
    off = float(np.max(np.abs(design @ nearest - target)))
    return Camera("OPENCV", None, None, (*focal, *nearest)), off


def _undistort(points: FloatArray, k: FloatArray) -> FloatArray:
    """Invert the rational model by iteration, as OpenCV does; lenses for photographs converge."""
    rays = points.copy()
    for _ in range(_ITERATIONS):
        rays += points - _distort(rays[:, 0], rays[:, 1], k)
    return rays


def _distort(x: FloatArray, y: FloatArray, k: FloatArray) -> FloatArray:
    """OpenCV's rational model with k1, k2, p1, p2, k3, k4, k5, k6."""
    s = x * x + y * y
    top = 1 + s * (k[0] + s * (k[1] + s * k[4]))
    radial = top / (1 + s * (k[5] + s * (k[6] + s * k[7])))
    return np.stack(
        [
            x * radial + 2 * k[2] * x * y + k[3] * (s + 2 * x * x),
            y * radial + k[2] * (s + 2 * y * y) + 2 * k[3] * x * y,
        ],
        axis=1,
    )
