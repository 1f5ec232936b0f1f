"""A COLMAP model of rendered photographs whose points are exact."""

import dataclasses

import numpy as np
from PIL import Image

import manymatch
from manymatch import Camera
from manymatch.io.matches import ImageRecord
from tests.support.synthetic_views import posed_views

SIZE, FOCAL = (320, 240), 300.0
QUICK = {"preset": "classic", "max_keypoints": 500, "longest": 320, "max_iterations": 2000}


@dataclasses.dataclass(frozen=True)
class Place:
    folder: object
    views: dict
    queries: tuple

    @property
    def model(self):
        return self.folder / "model"

    @property
    def photos(self):
        return self.folder / "photos"

    def query(self, number=0):
        return self.folder / "new" / self.queries[number]


def save(path, image, orientation=1):
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = {1: image, 6: np.rot90(image)}[orientation]
    Image.fromarray(np.ascontiguousarray(stored)).save(path, exif=exif, quality=97)


def make_place(folder, count=9, seed=0, turned=()):
    """Photographs on an arc: every third is a query in "new", the others make the map.

    The names of `turned` are stored turned by EXIF. Every keypoint of the map is a point.
    """
    matcher = manymatch.Matcher(**QUICK)
    views, queries, images, points = {}, [], [], []
    for k, view in enumerate(posed_views(count, SIZE, FOCAL, seed)):
        name = f"v{k}.jpg"
        views[name] = view
        if k % 3 == 1:
            queries.append(name)
            save(folder / "new" / name, view.image)
            continue
        orientation = 6 if name in turned else 1
        save(folder / "photos" / name, view.image, orientation)
        (kinds,) = matcher.extract([folder / "photos" / name])
        pixels = kinds[0].points
        at = view.points(pixels)
        seen = np.isfinite(at).all(axis=1)
        record = ImageRecord(name, SIZE, camera=view.camera, orientation=orientation)
        stored, pixels = record.stored(pixels[seen])
        pose = record.axes @ view.pose.R, record.axes @ view.pose.t
        images.append((name, stored.camera, pose, pixels))
        points.append(at[seen])
    place = Place(folder, views, tuple(queries))
    write_text_model(place.model, images, points)
    return place


def write_text_model(folder, images, points):
    """Write COLMAP's text files; its pixels have the centre of the top-left one at (0.5, 0.5)."""
    folder.mkdir(parents=True, exist_ok=True)
    cameras, poses, tracks, first = [], [], [], 1
    for number, ((name, camera, (R, t), pixels), at) in enumerate(
        zip(images, points, strict=True), 1
    ):
        values = camera.to_colmap()
        words = (number, values["model"], values["width"], values["height"], *values["params"])
        cameras.append(" ".join(map(str, words)))
        pose = manymatch.AbsolutePose(R, t)
        words = (number, *pose.quaternion().tolist(), *pose.t.tolist(), number, name)
        poses.append(" ".join(map(str, words)))
        ids = range(first, first + len(at))
        both = zip((pixels + 0.5).tolist(), ids, strict=True)
        poses.append(" ".join(f"{x} {y} {key}" for (x, y), key in both))
        tracks += [
            f"{key} {x} {y} {z} 0 0 0 0 {number} {place}"
            for place, (key, (x, y, z)) in enumerate(zip(ids, at.tolist(), strict=True))
        ]
        first += len(at)
    for name, lines in {"cameras": cameras, "images": poses, "points3D": tracks}.items():
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))


def camera_of(view):
    return Camera(view.camera.model, *SIZE, view.camera.params)
