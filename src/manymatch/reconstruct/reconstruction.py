"""What a reconstruction gives: models, pairs with their truth, and the files of both."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import count
from manymatch.io.files import whole_files
from manymatch.reconstruct.mapping import Model, read_reconstruction
from manymatch.viz.model_page import PageCamera, PageImage, PageModel, PagePair, write_model_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from manymatch._validate import FloatArray
    from manymatch.io.matches import ImageRecord
    from manymatch.reconstruct.pair_graph import PairGraph, PhotoPair

# Matches of a pair that the page shows.
_PAGE_LINES = 60
_FISHEYE = "OPENCV_FISHEYE"
# Files by what they are, and those that there are only with a model.
_FILES = {
    "model": "sparse",
    "database": "database.db",
    "radiance": "transforms.json",
    "points": "points.ply",
    "pairs": "pairs.json",
    "page": "index.html",
}
_OF_MODELS = ("sparse/*/*", "database*.db", "transforms*.json", "points*.ply")


def foreign_file(folder: Path) -> str | None:
    """Name a file of a folder that a reconstruction would replace."""
    return next((name for name in _FILES.values() if (folder / name).exists()), None)


@dataclasses.dataclass(frozen=True, eq=False)
class ReconstructedPair:
    """A pair of photographs, with the verdict of its matching and whether the scene confirms it.

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


@dataclasses.dataclass(frozen=True, eq=False)
class Reconstruction:
    """What `reconstruct` made of a folder of photographs.

    Attributes
    ----------
    folder : Path
        Of all files; ``sparse/0`` has the largest model.
    photos : tuple of str
        Names of all photographs.
    models : tuple of Model
        Largest first; several if the photographs fall apart into scenes that share no true pair.
    pairs : tuple of ReconstructedPair
        Every pair that was matched.
    seconds : dict of str to float
        Of each stage of this run, in seconds.
    files : dict of str to Path
        The files by what they are.
    notes : tuple of str
        Sentences about what is unusual.
    """

    folder: Path
    photos: tuple[str, ...]
    models: tuple[Model, ...]
    pairs: tuple[ReconstructedPair, ...]
    seconds: dict[str, float]
    files: dict[str, Path]
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.models)

    @property
    def missing(self) -> tuple[str, ...]:
        """Photographs that are in no model."""
        placed = {name for model in self.models for name in model.poses}
        return tuple(name for name in self.photos if name not in placed)

    def __str__(self) -> str:
        accepted = sum(pair.accepted for pair in self.pairs)
        tried = f"{accepted:,} of {count(len(self.pairs), 'pair')} accepted"
        if not self.models:
            return f"No model of {count(len(self.photos), 'photograph')}: {tried}."
        lines = []
        for place, model in enumerate(self.models):
            name = "Model" if len(self.models) == 1 else f"Model {place}"
            images = f"{len(model.poses):,} of {count(len(self.photos), 'photograph')}"
            lines.append(
                f"{name}: {images}, {count(model.points, 'point')} seen in "
                f"{model.track_length:.1f} photographs each, reprojection error "
                f"{model.reprojection_px:.2f} px."
            )
        if len(self.models) > 1:
            lines.append("The models share no true pair, so their scales and places are unrelated.")
        return "\n".join([*lines, f"{tried}."])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        models = [
            {
                "folder": str(model.folder),
                "images": len(model.poses),
                "points": model.points,
                "reprojection_px": model.reprojection_px,
                "track_length": model.track_length,
                "mapper": model.mapper,
                "agreeing_pairs": model.agreeing,
            }
            for model in self.models
        ]
        return {
            "folder": str(self.folder),
            "photographs": len(self.photos),
            "registered": len(self.photos) - len(self.missing),
            "missing": list(self.missing),
            "models": models,
            "pairs": len(self.pairs),
            "accepted_pairs": sum(pair.accepted for pair in self.pairs),
            "seconds": self.seconds,
            "files": {name: str(path) for name, path in self.files.items()},
            "notes": list(self.notes),
        }

    def written(self, images: Path, graph: PairGraph, *, text: bool) -> Reconstruction:
        """Write the files, all at once, and return the reconstruction with its models there.

        Files of models of an earlier run are removed. `images` is the folder of the photographs,
        and `graph` has the pairs in the order of `pairs`.
        """
        records = {photo.name: photo.record for photo in graph.photos}
        old = [path for name in _OF_MODELS for path in self.folder.glob(name) if path.is_file()]
        names = [path.relative_to(self.folder).as_posix() for path in old]
        shown, models = list[PageModel](), list[Model]()
        with whole_files(self.folder, names) as place:
            for number, model in enumerate(self.models):
                own, ending = f"sparse/{number}", f"-{number}" if number else ""
                found = read_reconstruction(model.folder)
                shutil.copytree(model.folder, place / own)
                if text:
                    found.write_text(os.fspath(place / own))
                found.export_PLY(os.fspath(place / f"points{ending}.ply"))
                transforms = _transforms(found, images.resolve(), self.folder.resolve())
                transforms["ply_file_path"] = f"points{ending}.ply"
                _write_json(place / f"transforms{ending}.json", transforms)
                # The guided matches where there are any, else what the mappers got.
                guided = model.folder.parent.with_suffix(".db")
                mapped = guided.with_name("database.db")
                database = guided if guided.exists() else mapped
                shutil.copyfile(database, place / f"database{ending}.db")
                shown.append(_page_model(found, self.photos, records))
                models.append(dataclasses.replace(model, folder=self.folder / own))
            _write_json(place / "pairs.json", [dataclasses.asdict(pair) for pair in self.pairs])
            self._write_page(place / "index.html", images, graph, shown, records)
        known = {name: self.folder / path for name, path in _FILES.items()}
        files = {name: path for name, path in known.items() if path.exists()}
        return dataclasses.replace(self, models=tuple(models), files=files)

    def _write_page(
        self,
        path: Path,
        images: Path,
        graph: PairGraph,
        models: Sequence[PageModel],
        records: Mapping[str, ImageRecord],
    ) -> None:
        facts = dict[str, str]()
        for number, model in enumerate(self.models):
            ending = f" {number}" if len(self.models) > 1 else ""
            facts |= {
                f"model{ending}": f"{len(model.poses):,} photographs, {model.points:,} points",
                f"reprojection error{ending}": f"{model.reprojection_px:.2f} px",
                f"photographs of a point{ending}": f"{model.track_length:.1f}",
                f"mapper{ending}": model.mapper,
            }
        facts |= {name: f"{value:.1f} s" for name, value in self.seconds.items()}
        places = {name: place for place, name in enumerate(self.photos)}
        pairs = [
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
            for pair, own in zip(self.pairs, graph.pairs, strict=True)
        ]
        shown = [
            PageImage(name, images / name, records[name].size or (1, 1))
            if name in records
            else PageImage(name, None, (1, 1))
            for name in self.photos
        ]
        title = images.absolute()
        name = title.parent.name if title.name in ("images", "frames") else title.name
        write_model_page(path, name, models, shown, pairs, facts, self.notes)


def _write_json(path: Path, record: object) -> None:
    path.write_text(f"{json.dumps(record, indent=1)}\n", encoding="utf-8")


def _lines(graph: PairGraph, pair: PhotoPair) -> FloatArray:
    """Return the ends (L, 4) of some matches of a pair, spread over its list."""
    some = pair.matches[:: 1 + len(pair.matches) // _PAGE_LINES]
    ends = graph.photos[pair.first].points, graph.photos[pair.second].points
    return np.column_stack([ends[0][some[:, 0]], ends[1][some[:, 1]]])


def _page_model(found: Any, names: Sequence[str], records: Mapping[str, ImageRecord]) -> PageModel:
    """Take from a model of pycolmap what the page shows, photographs as they are shown."""
    places = {name: place for place, name in enumerate(names)}
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


def _transforms(model: Any, images: Path, folder: Path) -> dict[str, Any]:
    """Describe the cameras of a model of pycolmap as tools for radiance fields read them.

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
        bent = ("k2", "k3", "k4") if camera.model.name == _FISHEYE else ("k2", "p1", "p2")
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
                **{name: own.get(name, 0.0) for name in bent},
                "transform_matrix": matrix.tolist(),
            }
        )
    fisheye = all(camera.model.name == _FISHEYE for camera in model.cameras.values())
    return {"camera_model": _FISHEYE if fisheye else "OPENCV", "frames": frames}
