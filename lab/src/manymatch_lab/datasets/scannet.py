"""ScanNet-1500: SuperGlue's list of indoor pairs, or LoFTR's files for the same pairs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np

from manymatch.geometry.camera import Camera, as_camera
from manymatch.io.files import npz_names, read_bytes, read_npz, reading, unreadable
from manymatch.io.image import image_size
from manymatch.io.pairs import Pair, read_pairs
from manymatch_lab.datasets.dataset import Dataset, published, spread
from manymatch_lab.datasets.loading import list_note, paper_list

# How files are called: by ScanNet's two exporters, and all in one folder.
_FILES = (
    "{scene}/sens/frame-{frame:06d}.color.jpg",
    "{scene}/color/{frame}.jpg",
    "{scene}/frame-{frame:06d}.color.jpg",
    "{scene}/frame-{frame:06d}.jpg",
    "{scene}_frame-{frame:06d}.jpg",
)
# How lists name images.
_IMAGE = re.compile(
    r"(?P<scene>scene\d{4}_\d{2})(?:_frame-|/color/|/(?:sens/)?frame-)(?P<frame>\d+)\D*$"
)
_LOFTR_INTRINSICS = (
    "intrinsics of the depth camera, as LoFTR calls them: those of the colour camera for its "
    "frames at the depth camera's 640 x 480"
)
# Sizes the intrinsics are for: ScanNet's colour frames, and those frames as LoFTR resizes them.
_COLOUR_SIZE, _DEPTH_SIZE = (1296, 968), (640, 480)


def load(root: object = None) -> Dataset:
    """Read the pairs from SuperGlue's list if it is there, else from LoFTR's index."""
    folder, path = INFO.layout.locate(root, INFO.name)
    loftr = path.suffix == ".npz"
    pairs = _loftr_pairs(path) if loftr else read_pairs(path, folder)
    parts = [_parts(pair.name0, path) for pair in pairs], [_parts(p.name1, path) for p in pairs]
    # Where the images are: the first pattern by which one of a few exists.
    bases = INFO.layout.parts[1].homes
    patterns = ["{name}", *(base + file for base in bases for file in _FILES)]
    some = spread([*parts[0], *parts[1]], 20)
    existing = (
        one for one in patterns if any((folder / one.format(**part)).is_file() for part in some)
    )
    file = next(existing, patterns[0])
    # One image tells the size of all.
    size, image = _DEPTH_SIZE if loftr else _COLOUR_SIZE, folder / file.format(**parts[0][0])
    given = image_size(image) if image.is_file() else size
    scale = given[0] / size[0], given[1] / size[1]
    resized = f"intrinsics of {size[0]} x {size[1]} scaled to the images' {given[0]} x {given[1]}"
    note = [] if given == size else [resized]
    found = []
    for i, (pair, one, two) in enumerate(zip(pairs, *parts, strict=True), 1):
        if not pair.has_truth:
            raise unreadable(path, "ScanNet's list", f"pair {i} has no pose")
        found.append(
            dataclasses.replace(
                pair,
                path0=folder / file.format(**one),
                path1=folder / file.format(**two),
                camera0=_scaled(pair.camera0, scale, edges=not loftr),
                camera1=_scaled(pair.camera1, scale, edges=not loftr),
                scene=str(one["scene"]),
                extra={"seed_index": i},
            )
        )
    paper = paper_list(INFO.name, [path])
    source = list_note(len(pairs), path, paper)
    kind = _LOFTR_INTRINSICS if loftr else "intrinsics of the colour camera"
    notes = (source, kind, *note)
    return Dataset(INFO.name, INFO.title, tuple(found), notes=notes, paper_list=paper)


def _parts(name: str, path: Path) -> dict[str, str | int]:
    match = _IMAGE.search(name)
    if match is None:
        want = "a list of ScanNet's images"
        raise unreadable(path, want, f"{name!r} does not name a scene and a frame")
    return {"name": name, "scene": match["scene"], "frame": int(match["frame"])}


def _scaled(camera: Camera | None, scale: tuple[float, float], *, edges: bool) -> Camera | None:
    """Scale a camera: about the corner of the image, or as LoFTR did, about the first centre."""
    if camera is None or scale == (1.0, 1.0):
        return camera
    if edges:
        return camera.scaled(*scale)
    return as_camera(np.diag([*scale, 1.0]) @ camera.K, "K")


def _loftr_pairs(path: Path) -> list[Pair]:
    """Read test.npz (scene, part and two frames a row; relative poses) and intrinsics.npz."""
    want = "LoFTR's test.npz"
    index = read_npz(read_bytes(path, want), path, want, ["name", "rel_pose"])
    names, poses = index["name"], index["rel_pose"]
    for key, columns, kinds in (("name", 4, "iu"), ("rel_pose", 12, "f")):
        array = index[key]
        shape = (len(names), columns) if names.ndim else None
        if array.shape != shape or array.dtype.kind not in kinds or not array.size:
            raise unreadable(path, want, f"{key} is {array.dtype} of shape {array.shape}")
    scenes = [f"scene{scene:04d}_{part:02d}" for scene, part, _, _ in names.tolist()]
    place, wanted = path.with_name("intrinsics.npz"), "LoFTR's intrinsics.npz"
    data = read_bytes(place, wanted)
    lacks = sorted(set(scenes) - npz_names(data, place, wanted))
    if lacks:
        raise unreadable(place, wanted, f"it lacks the scene {lacks[0]}")
    arrays = read_npz(data, place, wanted, set(scenes))
    with reading(place, wanted, ValueError):
        cameras = {scene: as_camera(K.reshape(3, 3), "K") for scene, K in arrays.items()}
    pairs = []
    for number, (scene, frames) in enumerate(zip(scenes, names[:, 2:].tolist(), strict=True)):
        name0, name1 = (f"{scene}/color/{frame}.jpg" for frame in frames)
        T, camera = poses[number].reshape(3, 4), cameras[scene]
        try:
            pair = Pair(name0, name1, path, path, camera, camera, T[:, :3], T[:, 3], scene=scene)
        except ValueError as error:
            raise unreadable(path, want, f"pair {number + 1}: {error}") from error
        pairs.append(pair)
    return pairs


(INFO,) = published("scannet", load)
