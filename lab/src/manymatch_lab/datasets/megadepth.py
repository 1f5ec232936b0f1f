"""MegaDepth-1500: the text list of 1,491 evaluable pairs, or LoFTR's five files of 1,500."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

from manymatch.geometry.camera import as_camera
from manymatch.io.files import unreadable
from manymatch.io.pairs import Pair, read_pairs
from manymatch_lab.checks import count
from manymatch_lab.datasets import loading
from manymatch_lab.datasets.dataset import Dataset, published

_SCENE_INFO = tuple(
    f"{scene}_{low}_{high}.npz"
    for scene, low, high in (
        ("0015", 0.1, 0.3),
        ("0015", 0.3, 0.5),
        ("0022", 0.1, 0.3),
        ("0022", 0.3, 0.5),
        ("0022", 0.5, 0.7),
    )
)
_WANT = "one of LoFTR's files of MegaDepth-1500"


def load(root: object = None) -> Dataset:
    """Read the pairs from the text list if it is there, else from LoFTR's files."""
    folder, path = INFO.layout.locate(root, INFO.name)
    if path.name == _SCENE_INFO[0]:
        return _from_loftr(folder, path.parent)
    pairs = read_pairs(path, folder)
    base = loading.place(folder, INFO.layout.parts[1].homes, [pair.name0 for pair in pairs])
    found = []
    for i, pair in enumerate(pairs, 1):
        if not pair.has_truth:
            raise unreadable(path, "MegaDepth's list", f"pair {i} has no pose")
        scene = re.search(r"(?:^|/)(\d{4})(?:/|_)", pair.name0)
        if scene is None:
            reason = f"{pair.name0!r} does not name a scene of four digits"
            raise unreadable(path, "MegaDepth's list", reason)
        about: dict[str, Any] = {"scene": scene[1], "extra": {"seed_index": i}}
        path0, path1 = base / pair.name0, base / pair.name1
        found.append(dataclasses.replace(pair, path0=path0, path1=path1, **about))
    paper = loading.paper_list(INFO.name, [path])
    notes = [loading.list_note(len(pairs), path, paper)]
    if dataclasses.replace(INFO.layout.parts[0], places=_SCENE_INFO).find(folder) is not None:
        notes.append("the text list was read, not LoFTR's files beside it")
    return Dataset(INFO.name, INFO.title, tuple(found), notes=tuple(notes), paper_list=paper)


def _from_loftr(folder: Path, infos: Path) -> Dataset:
    pairs: list[Pair] = []
    for file in _SCENE_INFO:
        pairs += _pairs_of(infos / file, len(pairs) + 1)
    base = loading.place(folder, INFO.layout.parts[1].homes, [pair.name0 for pair in pairs])
    placed = tuple(
        dataclasses.replace(pair, path0=base / pair.name0, path1=base / pair.name1)
        for pair in pairs
    )
    note = (
        f"{count(len(pairs), 'pair')} from LoFTR's five files; the paper used a list of "
        f"{INFO.num_pairs:,}"
    )
    return Dataset(INFO.name, INFO.title, placed, notes=(note,), paper_list=False)


def _pairs_of(path: Path, first_index: int) -> list[Pair]:
    """Read one file: paths, intrinsics and world-to-camera poses by image, pairs by index.

    The paths of the pairs are that of the file until the folder of the images is known.
    """
    scene = path.name.partition("_")[0]

    def pair_of(info: dict[str, Any], row: Any, number: int) -> Pair:
        ends, overlap = row[0], float(row[1])
        i, j, R, t = loading.indexed_ends(info, ends)
        name0, name1 = (info["image_paths"][k] for k in (i, j))
        camera0, camera1 = (as_camera(info["intrinsics"][k], "K") for k in (i, j))
        extra = {"seed_index": first_index + number - 1, "overlap": overlap}
        return Pair(name0, name1, path, path, camera0, camera1, R, t, scene=scene, extra=extra)

    return loading.indexed_pairs(path, _WANT, ["intrinsics"], pair_of)


(INFO,) = published("megadepth", load)
