"""A map: a COLMAP model with the photographs it was made of, and its picture from above."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import count
from manymatch.geometry.pose import AbsolutePose
from manymatch.io import files
from manymatch.io.colmap import check_cameras, read_images, read_points
from manymatch.io.matches import image_name
from manymatch.matcher.config import PRESETS
from manymatch.viz.figure import (
    GREY,
    Dots,
    Lines,
    Page,
    Panel,
    Text,
    as_image,
    picture_path,
    rgba,
    write_page,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    from manymatch._validate import FloatArray, IndexArray
    from manymatch.reconstruct.localize import LocalizedImage

_MODEL = "a COLMAP model with points: the folder of cameras, images and points3D"
# Of the picture: width and height, points drawn at most, length of a camera, and the colours of
# photographs whose pose can be relied on and of others.
_PICTURE, _MOST_POINTS, _CONE = (1000, 760), 8000, 16.0
_SURE, _UNSURE = "#2563eb", "#ea580c"


@dataclasses.dataclass(frozen=True, eq=False)
class MapImage:
    """A photograph of a map: its pose, its file, and which points it observes where.

    `pixels` (N, 2) are those of the file as it is stored, the centre of the top-left one at (0, 0),
    and `seen` (N,) are places in `SceneMap.points`.
    """

    name: str
    path: Path
    pose: AbsolutePose
    pixels: FloatArray
    seen: IndexArray


@dataclasses.dataclass(frozen=True, eq=False)
class SceneMap:
    """A COLMAP model and the photographs it was made of.

    `points` (P, 3) are in its unit of length. `preset` is the one that ``manymatch reconstruct``
    recorded, or None.
    """

    folder: Path
    points: FloatArray
    images: tuple[MapImage, ...]
    preset: str | None = None

    @property
    def name(self) -> str:
        """Name of the folder that a reconstruction wrote, or of the model's own folder."""
        inside = self.folder.parent.name == "sparse"
        return (self.folder.parents[1] if inside else self.folder).name

    @classmethod
    def read(cls, model: object, images: object = None) -> SceneMap:
        """Read a model, binary or text, or the folder that ``manymatch reconstruct`` wrote.

        `images` is the folder of its photographs; by default the one that ``summary.json`` of
        ``manymatch reconstruct`` names.
        """
        folder = _model_folder(model)
        check_cameras(folder)
        numbers, points = read_points(folder)
        posed = read_images(folder, observed=True)
        summary = _summary(folder)
        photos = summary.get("photos_folder") if images is None else images
        if photos is None:
            raise ValueError(
                "images must be the folder of the model's photographs, got None, and there is no "
                f"summary.json of {str(folder)!r} that names it"
            )
        place = files.as_folder(photos, "images")
        settings = summary.get("settings")
        preset = settings.get("preset") if isinstance(settings, dict) else None
        order = np.argsort(numbers)
        found = []
        with files.reading(folder, _MODEL, ValueError):
            for name, image in sorted(posed.items()):
                if image.points is None or image.pixels is None or not len(image.points):
                    continue
                at = np.searchsorted(numbers, image.points, sorter=order).clip(max=len(order) - 1)
                if not len(order) or not np.array_equal(numbers[order[at]], image.points):
                    raise ValueError(f"image {name!r:.80} observes points that it does not have")
                path = place / image_name(name, "name of an image")
                pose = AbsolutePose(image.R, image.t)
                found.append(MapImage(name, path, pose, image.pixels, order[at]))
            if not found:
                raise ValueError("none of its images observes a point")
        missing = [image.name for image in found if not image.path.is_file()]
        if missing:
            more = f" and {len(missing) - 1:,} others" if len(missing) > 1 else ""
            lacks = f"images must be the folder of the model's photographs, got {str(place)!r}"
            raise files.MissingFileError(f"{lacks}, which has no {missing[0]!r}{more}")
        return cls(folder, points, tuple(found), preset if preset in PRESETS else None)


def _model_folder(model: object) -> Path:
    """Return the folder of cameras, images and points: the one given, or sparse/0 in it."""
    given = files.as_folder(model, "model")
    inside = given / "sparse" / "0"
    return inside if inside.is_dir() and not list(given.glob("images.*")) else given


def _summary(folder: Path) -> dict[str, Any]:
    """Return what ``manymatch reconstruct`` recorded of a model; empty where it did not make it."""
    if folder.parent.name == "sparse":
        with contextlib.suppress(ValueError, RecursionError):
            text = files.read_text(folder.parents[1] / "summary.json", "a summary")
            if isinstance(record := json.loads(text), dict):
                return record
    return {}


def plot_map(
    scene: SceneMap,
    found: Sequence[LocalizedImage],
    path: str | os.PathLike[str] | None = None,
) -> Any:
    """Draw a map from above with its cameras in grey, and the photographs found in it.

    Photographs whose pose can be relied on are blue, others orange. The ending of `path` decides
    the format; without a path the Pillow image is returned.
    """
    placed = [(one.name, one.pose, bool(one)) for one in found if one.pose is not None]
    title = f"{len(placed):,} of {count(len(found), 'photograph')} found in {scene.name}"
    own = [image.pose for image in scene.images]
    poses = [*own, *(pose for _, pose, _ in placed)]
    # Most cameras move and look horizontally: down is across their places and axes, and to the
    # side of their second axes, as seen from above.
    spread = np.cov(np.array([pose.center for pose in own]).T, bias=True)
    axes = np.mean([np.outer(pose.R[2], pose.R[2]) for pose in own], axis=0)
    down, *_, side = np.linalg.eigh(spread / max(np.trace(spread), 1e-12) + axes)[1].T
    if down @ np.mean([pose.R[1] for pose in own], axis=0) < 0.0:
        down = -down
    flat = np.stack([side, np.cross(down, side)])
    points = scene.points[:: max(len(scene.points) // _MOST_POINTS, 1)] @ flat.T
    centres = np.array([pose.center for pose in poses]) @ flat.T
    inner = np.concatenate([np.percentile(points, (2, 98), axis=0), centres])
    low, high = inner.min(axis=0), inner.max(axis=0)
    scale = 0.9 * np.min(np.divide(_PICTURE, np.maximum(high - low, 1e-12)))
    points, at = (
        (places - 0.5 * (low + high)) * scale + np.divide(_PICTURE, 2.0)
        for places in (points, centres)
    )
    ahead = np.array([pose.R[2] for pose in poses]) @ flat.T
    ahead *= _CONE / np.maximum(np.linalg.norm(ahead, axis=1, keepdims=True), 1e-12)
    across = 0.5 * ahead[:, ::-1] * (1, -1)
    corners = at + ahead + across, at + ahead - across
    ends = [np.stack(pair, axis=1) for pair in ((at, corners[0]), (at, corners[1]), corners)]
    colours = [GREY] * len(own) + [_SURE if sure else _UNSURE for *_, sure in placed]
    width, height = _PICTURE
    page = Page(width, height + 40, [Panel((0, 40, width, height), [])])
    page.panels[0].marks.append(Dots(points, 1.0, rgba(GREY, 0.4)))
    page.panels[0].marks.append(Lines(np.concatenate(ends), rgba(3 * colours), 2.0))
    page.texts.append(Text(12, 28, title, 20, bold=True))
    for (name, _, sure), place in zip(placed, at[len(own) :], strict=True):
        colour = _SURE if sure else _UNSURE
        page.texts.append(Text(place[0] + 8, place[1] + 40, name, 14, colour=colour))
    return as_image(page) if path is None else write_page(page, picture_path(path))
