"""Files of a reconstruction: models for COLMAP and for radiance fields, points, and the page."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch.io.files import whole_files
from manymatch.reconstruct.mapping import read_reconstruction
from manymatch.viz.model_page import (
    PageCamera,
    PageImage,
    PageModel,
    PagePair,
    write_model_page,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from manymatch._validate import FloatArray
    from manymatch.io.matches import ImageRecord
    from manymatch.reconstruct.mapping import Model
    from manymatch.reconstruct.pair_graph import PairGraph, PhotoPair
    from manymatch.reconstruct.photos import Photos

# Matches of a pair that the page shows.
_PAGE_LINES = 60


@dataclasses.dataclass(frozen=True, eq=False)
class ReconstructedPair:
    """A pair of photographs: what matching said of it, and whether it is true in the scene.

    `probability` is that of the pair being true, `accepted` whether a mapper got it, and `reason`
    says why not. `agrees` is None if its photographs are not in one model.
    """

    name0: str
    name1: str
    verdict: str
    matches: int
    probability: float
    accepted: bool
    reason: str
    agrees: bool | None


def write_files(
    folder: Path,
    photos: Photos,
    models: Sequence[Model],
    graph: PairGraph,
    pairs: Sequence[ReconstructedPair],
    seconds: Mapping[str, float],
    notes: Sequence[str],
    text: bool,
) -> tuple[dict[str, Path], list[Model]]:
    """Write the files of models, all at once, and return them and the models there.

    Files of models of an earlier run are removed. The largest model is the first one.
    """
    names = ("sparse/*/*", "transforms*.json", "points*.ply")
    old = [path for name in names for path in folder.glob(name) if path.is_file()]
    with whole_files(folder, [path.relative_to(folder).as_posix() for path in old]) as place:
        for number, model in enumerate(models):
            found = read_reconstruction(model.folder)
            own = place / "sparse" / str(number)
            own.mkdir(parents=True)
            found.write_binary(os.fspath(own))
            if text:
                found.write_text(os.fspath(own))
            ending = f"-{number}" if number else ""
            write_transforms(place / f"transforms{ending}.json", found, photos.folder, folder)
            found.export_PLY(os.fspath(place / f"points{ending}.ply"))
        if models:
            # The guided matches where there are any, else what the mappers got.
            guided = models[0].folder.parent.with_suffix(".db")
            mapped = guided.with_name("database.db")
            shutil.copyfile(guided if guided.exists() else mapped, place / "database.db")
        record = json.dumps([dataclasses.asdict(pair) for pair in pairs], indent=1)
        (place / "pairs.json").write_text(f"{record}\n", encoding="utf-8")
        _write_page(place / "index.html", photos, models, graph, pairs, seconds, notes)
    files = {
        "model": folder / "sparse",
        "database": folder / "database.db",
        "radiance": folder / "transforms.json",
        "points": folder / "points.ply",
        "pairs": folder / "pairs.json",
        "page": folder / "index.html",
    }
    moved = [
        dataclasses.replace(model, folder=folder / "sparse" / str(number))
        for number, model in enumerate(models)
    ]
    return {name: path for name, path in files.items() if models or path.is_file()}, moved


def _write_page(
    path: Path,
    photos: Photos,
    models: Sequence[Model],
    graph: PairGraph,
    pairs: Sequence[ReconstructedPair],
    seconds: Mapping[str, float],
    notes: Sequence[str],
) -> None:
    records = {photo.name: photo.record for photo in graph.photos}
    places = {name: place for place, name in enumerate(photos.names)}
    shown, facts = list[PageModel](), dict[str, str]()
    for number, model in enumerate(models):
        shown.append(_page_model(read_reconstruction(model.folder), places, records))
        ending = f" {number}" if len(models) > 1 else ""
        facts |= {
            f"model{ending}": f"{len(model.poses):,} photographs, {model.points:,} points",
            f"reprojection error{ending}": f"{model.reprojection_px:.2f} px",
            f"photographs of a point{ending}": f"{model.track_length:.1f}",
            f"mapper{ending}": model.mapper,
        }
    facts |= {name: f"{value:.1f} s" for name, value in seconds.items()}
    page_pairs = [
        PagePair(
            places[pair.name0],
            places[pair.name1],
            pair.verdict,
            pair.probability,
            pair.accepted,
            pair.reason,
            pair.matches,
            _lines(graph, own),
        )
        for pair, own in zip(pairs, graph.pairs, strict=True)
    ]
    images = [
        PageImage(name, photos.folder / name, records[name].size or (1, 1))
        if name in records
        else PageImage(name, None, (1, 1))
        for name in photos.names
    ]
    title = photos.folder.absolute()
    name = title.parent.name if title.name in ("images", "frames") else title.name
    write_model_page(path, name, shown, images, page_pairs, facts, notes)


def _lines(graph: PairGraph, pair: PhotoPair) -> FloatArray:
    """Return the ends (L, 4) of some matches of a pair, spread over its list."""
    some = pair.matches[:: 1 + len(pair.matches) // _PAGE_LINES]
    ends = graph.photos[pair.first].points, graph.photos[pair.second].points
    return np.column_stack([ends[0][some[:, 0]], ends[1][some[:, 1]]])


def _page_model(
    found: Any, places: Mapping[str, int], records: Mapping[str, ImageRecord]
) -> PageModel:
    """Take from a model of pycolmap what the page shows, photographs as they are shown."""
    numbers = {number: place for place, number in enumerate(found.points3D)}
    points = [point.xyz for point in found.points3D.values()]
    colors = [point.color for point in found.points3D.values()]
    cameras, seen = list[PageCamera](), list[tuple[int, int]]()
    for image in found.images.values():
        if not image.has_pose:
            continue
        record = records[image.name]
        pose = record.axes.T @ image.cam_from_world().matrix()
        focal = found.cameras[image.camera_id].mean_focal_length()
        size = record.size or (1, 1)
        own = [numbers[point.point3D_id] for point in image.points2D if point.has_point3D()]
        seen += [(len(cameras), place) for place in own]
        cameras.append(PageCamera(places[image.name], pose[:, :3], pose[:, 3], focal, size))
    return PageModel(
        np.array(points, dtype=np.float64).reshape(-1, 3),
        np.array(colors, dtype=np.uint8).reshape(-1, 3),
        cameras,
        np.array(seen, dtype=np.int64).reshape(-1, 2),
    )


def write_transforms(path: Path, model: Any, images: Path, folder: Path) -> None:
    """Write the cameras of a model as tools for radiance fields read them.

    Paths of images are relative to `folder`. A frame has its intrinsics, in pixels with the centre
    of the top-left one at (0.5, 0.5), and a matrix (4, 4) from the camera, with y up and z
    backwards, to the world.
    """
    frames = []
    placed = sorted((i for i in model.images.values() if i.has_pose), key=lambda image: image.name)
    for image in placed:
        camera = model.cameras[image.camera_id]
        matrix = np.eye(4)
        matrix[:3] = image.cam_from_world().inverse().matrix() * [1.0, -1.0, -1.0, 1.0]
        K = camera.calibration_matrix()
        own = dict(zip(camera.params_info.split(", "), camera.params.tolist(), strict=True))
        frames.append(
            {
                "file_path": os.path.relpath(images / image.name, folder),
                "w": camera.width,
                "h": camera.height,
                "fl_x": K[0, 0],
                "fl_y": K[1, 1],
                "cx": K[0, 2],
                "cy": K[1, 2],
                "k1": own.get("k1", own.get("k", 0.0)),
                **{name: own.get(name, 0.0) for name in ("k2", "p1", "p2")},
                "transform_matrix": matrix.tolist(),
            }
        )
    record = {"camera_model": "OPENCV", "ply_file_path": "points.ply", "frames": frames}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
