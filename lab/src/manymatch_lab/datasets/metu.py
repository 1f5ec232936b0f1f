"""METU-VisTIR: visible and thermal images, both cloudy (CC) or cloudy and sunny (CS)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from manymatch.geometry.camera import Camera, as_camera
from manymatch.io.pairs import Pair
from manymatch_lab.checks import count, float_array
from manymatch_lab.datasets.dataset import Dataset, published
from manymatch_lab.datasets.loading import indexed_ends, indexed_pairs

_WEATHER = {"metu-cc": "cloudy_cloudy", "metu-cs": "cloudy_sunny"}
_WANT = "a scene index of METU-VisTIR"


def load(name: str, root: object = None) -> Dataset:
    """Read all scenes of one weather, in the order of their numbers."""
    layout = next(info.layout for info in INFOS if info.name == name)
    folder, _ = layout.locate(root, name)
    prefix = f"{_WEATHER[name]}_scene_"
    scenes = {
        int(number): path
        for path in (folder / "index" / "scene_info_test").glob(f"{prefix}*.npz")
        if (number := path.stem.removeprefix(prefix)).isdecimal()
    }
    pairs: list[Pair] = []
    for scene, path in sorted(scenes.items()):
        pairs += _read_scene(path, folder, f"scene_{scene}", len(pairs))
    note = (
        f"{count(len(pairs), 'pair')} of {count(len(scenes), 'scene')}; thermal frames keep their "
        "own size"
    )
    # Thermal frames are small; enlarging them would only invent pixels.
    return Dataset(name, name.upper(), tuple(pairs), longest1=0, notes=(note,))


def _read_scene(path: Path, folder: Path, scene: str, before: int) -> list[Pair]:
    """Read the pairs of one file; `before` pairs are in the files before it."""

    def view(info: dict[str, Any], image: int, kind: int) -> tuple[str, Camera]:
        K = np.asarray(info["intrinsics"][image][kind], dtype=np.float64)
        k = np.asarray(info["distortion_coefs"][image][kind], dtype=np.float64)
        return str(info["image_paths"][image][kind]), opencv_camera(K, k)

    def pair_of(info: dict[str, Any], row: Any, number: int) -> Pair:
        i, j, R, t = indexed_ends(info, row)
        (name0, camera0), (name1, camera1) = view(info, i, 0), view(info, j, 1)
        place = (folder / name0, folder / name1, camera0, camera1, R, t)
        return Pair(name0, name1, *place, scene=scene, extra={"seed_index": before + number})

    return indexed_pairs(path, _WANT, ("intrinsics", "distortion_coefs"), pair_of)


def opencv_camera(K: object, coefficients: object) -> Camera:
    """Make a camera of OpenCV's matrix and its k1, k2, p1, p2[, k3[, k4, k5, k6]].

    The model is the simplest that is exact: PINHOLE, OPENCV, or FULL_OPENCV if a coefficient after
    the fourth is not zero.
    """
    base = as_camera(K, "K")
    k = float_array(np.ravel(np.asarray(coefficients)), "distortion", "numbers", (None,))
    if k.size not in (0, 4, 5, 8):
        raise ValueError(f"distortion must have 4, 5 or 8 coefficients, got {k.size}")
    focal = (base.fx, base.fy, base.cx, base.cy)
    if not k.any():
        return Camera("PINHOLE", None, None, focal, base.skew)
    if not k[4:].any():
        return Camera("OPENCV", None, None, (*focal, *k[:4]), base.skew)
    return Camera("FULL_OPENCV", None, None, (*focal, *k, *np.zeros(8 - k.size)), base.skew)


INFOS = published("metu", load)
