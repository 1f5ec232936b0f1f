"""NAVI-Multi and NAVI-Wild: photographs of objects with cameras, depth and masks."""

from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from manymatch._files import as_path, read_bytes, unreadable
from manymatch._validate import real
from manymatch.datasets import loading
from manymatch.datasets.dataset import Dataset
from manymatch.io.pairs import Pair
from manymatch_paper.datasets.navi_annotations import Annotations

if TYPE_CHECKING:
    from pathlib import Path

    from manymatch.datasets.dataset import DepthView

TITLES = {
    "navi-multi": "NAVI-Multi",
    "navi-wild": "NAVI-Wild",
    "navi-wild-diagnostic": "NAVI-Wild, diagnostic split",
}
NUM_PAIRS = 1500
ABOUT = {
    "navi-multi": "objects, one setting; depth and masks",
    "navi-wild": "objects, any setting and camera; depth and masks",
    "navi-wild-diagnostic": "as navi-wild, other images of it; for recall",
}
GET = (
    "Images: https://navidataset.github.io (CC BY 4.0), release v1.0 or v1.5. "
    "Pair lists: data/splits/navi of https://github.com/LIAS-CUHKSZ/preserve_then_resolve. "
    "Image-disjoint lists for NAVI-Wild can also be made: "
    "manymatch datasets navi-wild --root DIR --make-split DIR/splits/navi."
)
TREE = """\
navi/                                         (also navi/navi_v1.5/ or navi/navi_v1/)
├── <object>/wild_set/annotations.json
│                    /{images,depth,masks}/000.{jpg,png,png} ...
├── <object>/multiview-00-<camera>/           the same
└── splits/navi/                              (or --splits DIR)
    ├── estimation/pairs_{multiview,wildset}_{0-40,40-80,80-120}.csv
    └── correspondence/pairs_wildset_{0-40,40-80,80-120}.csv"""

BINS = {"0-40": (0.0, 40.0), "40-80": (40.0, 80.0), "80-120": (80.0, 120.0)}
COLUMNS = (
    "image_1",
    "image_2",
    "angular_distance_degrees",
    "image_1_height",
    "image_1_width",
    "image_2_height",
    "image_2_width",
)
_FILES = {
    "navi-multi": ("estimation", "pairs_multiview_{}.csv"),
    "navi-wild": ("estimation", "pairs_wildset_{}.csv"),
    "navi-wild-diagnostic": ("correspondence", "pairs_wildset_{}.csv"),
}
_WANT = "a NAVI pair list"


def load(name: str, root: object = None, *, splits: object = None) -> Dataset:
    """Read the three lists of a split and the annotations of their images.

    Parameters
    ----------
    name : str
        "navi-multi", "navi-wild" or "navi-wild-diagnostic".
    root : path
        Folder of the objects.
    splits : path, optional
        Folder with ``estimation`` and ``correspondence``; else they are looked for in
        ``splits/navi``, ``splits`` and the root itself, and in ``../splits/navi``.
    """
    folder = data_root(loading.root_folder(root, name))
    lists = _lists_folder(name, folder, splits)
    annotations = Annotations(folder)
    pairs = [
        pair
        for bin_name in BINS
        for pair in _read_list(lists / _FILES[name][1].format(bin_name), bin_name, annotations)
    ]
    notes = (
        f"{len(pairs):,} pairs of {len({pair.scene for pair in pairs})} objects from {lists}",
        "seeds restart in each of the three lists; the AUC is that of all bins together",
        "principal points are the images' centres, half a pixel less than NAVI's w/2, h/2, "
        "as pixel centres are whole numbers here",
    )
    return Dataset(name, TITLES[name], tuple(pairs), depth=_Depth(annotations), notes=notes)


@dataclasses.dataclass(frozen=True)
class _Depth:
    """Depth of a pair's images; a class, so that other processes can be given it."""

    annotations: Annotations

    def __call__(self, pair: Pair, side: int) -> DepthView:
        return self.annotations.depth((pair.name0, pair.name1)[side])


def check(name: str, root: object, *, splits: object = None) -> str | None:
    """Name the first missing thing, or None."""
    return loading.first_fault(
        lambda: load(name, root, splits=splits),
        loading.missing_image,
        loading.missing_depth,
        lambda dataset: loading.wrong_count(dataset, [NUM_PAIRS]),
    )


def data_root(folder: Path) -> Path:
    """Folder with the objects: the root or what the release's archive makes in it."""
    if not any(folder.glob("*/*/annotations.json")):
        for inner in ("navi_v1.5", "navi_v1.0", "navi_v1"):
            if (folder / inner).is_dir():
                return folder / inner
    return folder


def _lists_folder(name: str, folder: Path, splits: object) -> Path:
    kind, pattern = _FILES[name]
    files = [pattern.format(bin_name) for bin_name in BINS]
    if splits is None:
        homes = [folder / "splits" / "navi", folder / "splits", folder]
        homes += [folder.parent / "splits" / "navi"]
        places = [home / kind for home in homes]
    else:
        home = as_path(splits, "splits")
        # A folder that is named outright may hold the lists without a folder between.
        places = [home / kind, home]
    for place in places:
        if any((place / file).is_file() for file in files):
            lacks = [file for file in files if not (place / file).is_file()]
            if lacks:
                raise ValueError(f"{place} must have the list {lacks[0]}, got the others only")
            return place
    looked = ", ".join(str(place) for place in places)
    raise ValueError(
        f"{'splits' if splits is not None else 'root'} must have the list {kind}/{files[0]}, "
        f"got none in {looked}"
    )


def _read_list(path: Path, bin_name: str, annotations: Annotations) -> list[Pair]:
    try:
        text = read_bytes(path, _WANT).decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise unreadable(path, _WANT, str(error)) from error
    header = [column.strip() for column in rows[0]] if rows else []
    for column in COLUMNS:
        if column not in header:
            raise unreadable(path, _WANT, f"it lacks the column {column}")
    pairs: list[Pair] = []
    for line, row in enumerate(rows[1:], 2):
        if not row:
            continue
        if len(row) != len(header):
            reason = f"line {line}: it must have {len(header)} columns, got {len(row)}"
            raise unreadable(path, _WANT, reason)
        fields = dict(zip(header, (field.strip() for field in row), strict=True))
        try:
            pairs.append(_pair(fields, bin_name, len(pairs) + 1, annotations))
        except ValueError as error:
            raise unreadable(path, _WANT, f"line {line}: {error}") from error
    if not pairs:
        raise unreadable(path, _WANT, "it has no pair")
    return pairs


def _pair(row: dict[str, str], bin_name: str, index: int, annotations: Annotations) -> Pair:
    word = row["angular_distance_degrees"]
    angle = real(_float(word), "angular_distance_degrees", 0.0, 180.0, closed=True)
    low, high = BINS[bin_name]
    if not low <= angle < high:
        raise ValueError(f"the angle must be in [{low:g}, {high:g}), got {angle:g}")
    names = row["image_1"], row["image_2"]
    for name in names:
        if ".." in PurePosixPath(name).parts or len(PurePosixPath(name).parts) < 3:
            raise ValueError(f"an image must be <object>/<scene>/images/<file>, got {name!r}")
    views = [annotations.image(name) for name in names]
    for side, view in enumerate(views, 1):
        given = row[f"image_{side}_height"], row[f"image_{side}_width"]
        if given != (str(view.height), str(view.width)):
            raise ValueError(
                f"image_{side} must be {view.height} x {view.width} (height x width) as the "
                f"annotations say, got {given[0]} x {given[1]}"
            )
    R, t = loading.relative_pose(views[0].to_camera, views[1].to_camera, "the pose")
    extra = {"bin": bin_name, "angle_deg": angle, "seed_index": index}
    files = [annotations.root / name for name in names]
    return Pair(
        *names,
        files[0],
        files[1],
        views[0].camera,
        views[1].camera,
        R,
        t,
        scene=PurePosixPath(names[0]).parts[0],
        extra=extra,
    )


def _float(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return float(np.nan)
