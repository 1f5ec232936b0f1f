"""ScanNet-1500: SuperGlue's list of indoor pairs, or LoFTR's files for the same pairs."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import numpy as np

from manymatch._files import npz_names, read_bytes, read_npz, unreadable
from manymatch._validate import FloatArray, float_array
from manymatch.datasets import loading
from manymatch.datasets.dataset import Dataset
from manymatch.geometry.camera import Camera, as_camera
from manymatch.io.image import image_size
from manymatch.io.pairs import Pair, read_pairs
from manymatch_paper.datasets import _lists

if TYPE_CHECKING:
    from pathlib import Path

NAME, TITLE, NUM_PAIRS = "scannet1500", "ScanNet-1500", 1500
ABOUT = "indoor, RGB; SuperGlue's test pairs"
GET = (
    "Images: http://www.scan-net.org, after signing its terms of use (research only). "
    "List: assets/scannet_test_pairs_with_gt.txt of "
    "https://github.com/magicleap/SuperGluePretrainedNetwork. "
    "LoFTR (https://github.com/zju3dv/LoFTR) offers the 1,500 pairs' images with poses as "
    "scannet_test_1500, and test.npz and intrinsics.npz in its assets."
)
TREE = """\
scannet1500/
├── scannet_test_pairs_with_gt.txt       (or pairs_scannet_test_pairs_with_gt.txt)
└── scene0707_00/color/15.jpg ...        (also below scannet_test_1500/ or scans_test/,
                                          or flat: scene0707_00_frame-000015.jpg)
or, with LoFTR's files,
scannet1500/
├── test.npz, intrinsics.npz             (also below scannet_test_1500/)
├── scene0707_00/color/15.jpg ...
└── scene0707_00/pose/15.txt ..."""

_LISTS = ("scannet_test_pairs_with_gt.txt", "pairs_scannet_test_pairs_with_gt.txt")
_BASES = (".", "scannet_test_1500", "scans_test", "scans")
# What a list calls an image, and what the file may be called.
_NAME = re.compile(r"(?P<scene>scene\d{4}_\d{2})(?:_frame-|/color/|/frame-)(?P<frame>\d+)\D*$")
_FILES = (
    "{name}",
    "{scene}/color/{frame}.jpg",
    "{scene}/frame-{frame:06d}.color.jpg",
    "{scene}/frame-{frame:06d}.jpg",
    "{scene}_frame-{frame:06d}.jpg",
)
# Sizes the intrinsics are for: ScanNet's colour frames, and LoFTR's after resizing.
_LIST_SIZE, _LOFTR_SIZE = (1296, 968), (640, 480)


def load(root: object = None) -> Dataset:
    """Read the pairs from the text list if it is there, else from LoFTR's files."""
    folder = loading.root_folder(root, NAME)
    if not any((folder / name).is_file() for name in _LISTS):
        for base in _BASES:
            if (folder / base / "test.npz").is_file():
                return _from_loftr(folder, folder / base)
    path = _lists.find_file(folder, _LISTS, "the list")
    pairs = read_pairs(path, folder)
    parts = [_parts(pair.name0, path) for pair in pairs], [_parts(p.name1, path) for p in pairs]
    file = _file_pattern(folder, [*parts[0], *parts[1]])
    scale, note = _rescale(folder / file.format(**parts[0][0]), _LIST_SIZE)
    found = []
    for i, pair in enumerate(pairs):
        if not pair.has_truth:
            raise unreadable(path, "ScanNet's list", f"pair {i + 1} has no pose")
        found.append(
            dataclasses.replace(
                pair,
                path0=folder / file.format(**parts[0][i]),
                path1=folder / file.format(**parts[1][i]),
                camera0=_scaled(pair.camera0, scale),
                camera1=_scaled(pair.camera1, scale),
                scene=str(parts[0][i]["scene"]),
                extra={"seed_index": i + 1},
            )
        )
    notes = [f"{len(pairs):,} pairs from {path.name} (SHA-256 {_lists.sha256(path)[:12]})", *note]
    return Dataset(NAME, TITLE, tuple(found), notes=tuple(notes))


def check(root: object) -> str | None:
    """Name the first missing thing, or None."""
    return loading.first_fault(
        lambda: load(root), loading.missing_image, lambda d: _lists.wrong_count(d, [NUM_PAIRS])
    )


def _parts(name: str, path: Path) -> dict[str, str | int]:
    match = _NAME.search(name)
    if match is None:
        want = "a list of ScanNet's images"
        raise unreadable(path, want, f"{name!r} does not name a scene and a frame")
    return {"name": name, "scene": match["scene"], "frame": int(match["frame"])}


def _file_pattern(folder: Path, parts: list[dict[str, str | int]]) -> str:
    """Find out where the images are: the first pattern by which one of a few exists."""
    patterns = [f"{base}/{file}" if base != "." else file for base in _BASES for file in _FILES]
    some = loading.spread(parts, 20)
    for pattern in patterns:
        if any((folder / pattern.format(**part)).is_file() for part in some):
            return pattern
    return _FILES[1]


def _rescale(image: Path, size: tuple[int, int]) -> tuple[tuple[float, float], list[str]]:
    """Factors from the size the intrinsics are for to that of the images, judged by one image."""
    if not image.is_file():
        return (1.0, 1.0), []
    given = image_size(image)
    if given == size:
        return (1.0, 1.0), []
    note = f"intrinsics of {size[0]} x {size[1]} scaled to the images' {given[0]} x {given[1]}"
    return (given[0] / size[0], given[1] / size[1]), [note]


def _scaled(camera: Camera | None, scale: tuple[float, float]) -> Camera | None:
    return camera if camera is None or scale == (1.0, 1.0) else camera.scaled(*scale)


def _from_loftr(folder: Path, lists: Path) -> Dataset:
    """Read test.npz (scene, part, two frames a row), intrinsics.npz and the pose files."""
    want = "LoFTR's test.npz"
    path = lists / "test.npz"
    names = read_npz(read_bytes(path, want), path, want, ["name"])["name"]
    if names.ndim != 2 or names.shape[1] != 4 or names.dtype.kind not in "iu" or not len(names):
        raise unreadable(path, want, f"name is {names.dtype} of shape {names.shape}")
    rows = [
        (f"scene{scene:04d}_{part:02d}", int(a), int(b)) for scene, part, a, b in names.tolist()
    ]
    place = _lists.place(folder, _BASES, [f"{scene}/color/{a}.jpg" for scene, a, _ in rows])
    scale, note = _rescale(place / f"{rows[0][0]}/color/{rows[0][1]}.jpg", _LOFTR_SIZE)
    cameras = _intrinsics(lists / "intrinsics.npz", {scene for scene, _, _ in rows})
    poses: dict[Path, FloatArray] = {}
    pairs = []
    for i, (scene, a, b) in enumerate(rows):
        camera = _scaled(cameras[scene], scale)
        files = [place / scene / "pose" / f"{frame}.txt" for frame in (a, b)]
        for file in files:
            if file not in poses:
                poses[file] = _world_to_camera(file)
        R, t = _lists.relative_pose(poses[files[0]], poses[files[1]], f"the pose of {files[1]}")
        name0, name1 = f"{scene}/color/{a}.jpg", f"{scene}/color/{b}.jpg"
        pair = Pair(name0, name1, place / name0, place / name1, camera, camera, R, t)
        pairs.append(dataclasses.replace(pair, scene=scene, extra={"seed_index": i + 1}))
    notes = (f"{len(pairs):,} pairs from LoFTR's test.npz, intrinsics of the depth camera", *note)
    return Dataset(NAME, TITLE, tuple(pairs), notes=notes)


def _intrinsics(path: Path, scenes: set[str]) -> dict[str, Camera]:
    want = "LoFTR's intrinsics.npz"
    data = read_bytes(path, want)
    lacks = sorted(scenes - npz_names(data, path, want))
    if lacks:
        raise unreadable(path, want, f"it lacks the scene {lacks[0]}")
    arrays = read_npz(data, path, want, scenes)
    try:
        return {scene: as_camera(K.reshape(3, 3), "K") for scene, K in arrays.items()}
    except ValueError as error:
        raise unreadable(path, want, str(error)) from error


def _world_to_camera(path: Path) -> FloatArray:
    """Read ScanNet's camera-to-world matrix and invert it."""
    want = "a camera-to-world matrix of 16 numbers"
    words = read_bytes(path, want).decode("ascii", "replace").split()
    try:
        T = float_array([float(word) for word in words], "it", want, (16,)).reshape(4, 4)
        return np.asarray(np.linalg.inv(T))
    except (ValueError, np.linalg.LinAlgError) as error:
        raise unreadable(path, want, str(error)) from error
