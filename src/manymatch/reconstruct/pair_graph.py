"""Everything that matching says of a set of photographs: keypoints, and poses between pairs."""

from __future__ import annotations

import dataclasses
import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import IndexArray, refusal, require
from manymatch.batch.outputs import read_matches
from manymatch.geometry.camera import COLMAP_PIXEL_CENTRE, Camera
from manymatch.geometry.pose import RelativePose
from manymatch.io.colmap_matches import DATABASE, MAGIC, ColmapDatabaseWriter
from manymatch.io.files import local_path, open_regular, reading
from manymatch.io.matches import ImageRecord, PairMatches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from manymatch._validate import BoolArray, FloatArray
    from manymatch.io.files import PathLike

#: What a pair of a COLMAP database counts for, which has no probabilities.
_DATABASE_LOG_ODDS = 2.0


def by_number(name: str) -> tuple[list[Any], str]:
    """Sort key of names, by which "frame10.jpg" comes after "frame9.jpg"."""
    parts: list[Any] = re.split(r"([0-9]+)", name)
    parts[1::2] = [(len(digits), digits) for digits in (part.lstrip("0") for part in parts[1::2])]
    return parts, name


@dataclasses.dataclass(frozen=True, eq=False)
class Photo:
    """A photograph of the scene: its camera and its keypoints.

    `record` has the name, relative to the folder of photographs, and the camera, in pixels of the
    image as shown. `points` (N, 2) are keypoints in those pixels, the centre of the top-left pixel
    at (0, 0). `source` (N,) is the number of the source of each keypoint, -1 where it is unknown
    because no pair matched the keypoint; None if there is one source only.
    """

    record: ImageRecord
    points: FloatArray
    source: IndexArray | None = None

    @property
    def name(self) -> str:
        """Path below the folder of photographs, with "/"."""
        return self.record.name

    @property
    def camera(self) -> Camera:
        """Camera of the photograph; every photograph of a graph has one."""
        camera = self.record.camera
        if camera is None:
            raise ValueError(f"photo {self.name!r} must have a camera, got None")
        return camera

    def rays(self, places: IndexArray | slice = slice(None)) -> FloatArray:
        """Keypoints (N, 3), or some of them, as points of the plane z = 1 of the camera."""
        plane = self.camera.unproject(self.points[places])
        return np.column_stack([plane, np.ones(len(plane))])


@dataclasses.dataclass(frozen=True, eq=False)
class PhotoPair:
    """What matching says of two photographs.

    Parameters
    ----------
    first, second : int
        Places in `PairGraph.photos`.
    pose : RelativePose, optional
        ``x_second = R @ x_first + t``; None if none was found.
    matches : (M, 2) int64
        Places of keypoints of the first and the second photograph, one-to-one.
    match_probability : (M,) float64
        Of each match being right if the pose is.
    probability, log_odds : float
        Of the pose being right, as `manymatch.assess` says of this pair alone.
    verdict : str
        "solved", "likely" and so on.
    trusted : bool
        Whether the pair alone would be given to a mapper.
    """

    first: int
    second: int
    pose: RelativePose | None
    matches: IndexArray
    match_probability: FloatArray
    probability: float
    log_odds: float
    verdict: str = "solved"
    trusted: bool = True


@dataclasses.dataclass(frozen=True, eq=False)
class PairGraph:
    """Photographs and the pairs of them that were matched."""

    photos: tuple[Photo, ...]
    pairs: tuple[PhotoPair, ...]

    def __post_init__(self) -> None:
        number = len(self.photos)
        seen = set[tuple[int, int]]()
        for pair in self.pairs:
            both = (min(pair.first, pair.second), max(pair.first, pair.second))
            if not 0 <= both[0] < both[1] < number:
                want = f"two different photographs, numbers from 0 to {number - 1}"
                raise refusal("pairs", want, (pair.first, pair.second))
            if both in seen:
                raise refusal("pairs", "every two photographs once at most", both)
            seen.add(both)

    @classmethod
    def from_batch(cls, *folders: PathLike) -> PairGraph:
        """Read the pairs of finished batches of the same photographs that kept their matches.

        Of two pairs with the same photographs the first one counts; pairs that could not be tried
        are left out. Photographs are ordered by name. Where several sources have a keypoint at the
        same place, all matches are those of the first, so that tracks are not torn.
        """
        photos, first = dict[str, Photo](), dict[str, IndexArray]()
        found: dict[frozenset[str], tuple[tuple[int, int], str, str, PhotoPair]] = {}
        for number, folder in enumerate(folders):
            with read_matches(folder) as store:
                for index in store.as_stored:
                    row, matched = store.pair(index)
                    names = name0, name1 = row["name0"], row["name1"]
                    both, place = frozenset(names), (number, index)
                    if name0 == name1 or (both in found and found[both][0] < place):
                        continue
                    points = (matched.keypoints0, matched.keypoints1)
                    for side, record in enumerate(store.images(row, matched)):
                        if record.name not in photos:
                            several = len(matched.source_names) > 1
                            unknown = np.full(len(points[side]), -1) if several else None
                            # A copy, as the array is a view of all keypoints of a part.
                            photos[record.name] = Photo(record, points[side].copy(), unknown)
                            first[record.name] = _first_at_place(points[side])
                        photo = photos[record.name]
                        if photo.source is not None and matched.source is not None:
                            photo.source[matched.matches[:, side]] = matched.source
                    given = matched.confidence
                    sure = np.ones(len(matched.matches)) if given is None else given
                    sides = zip(names, matched.matches.T, strict=True)
                    matches = np.column_stack([first[name][ends] for name, ends in sides])
                    # Of several matches of one place the most probable stays.
                    order = np.argsort(-sure, kind="stable")
                    kept = np.sort(order[one_to_one(matches[order])])
                    pair = PhotoPair(
                        0,
                        0,
                        matched.pose,
                        matches[kept],
                        sure[kept].astype(np.float64),
                        row.get("pose_probability", 0.0),
                        row.get("log_odds", 0.0),
                        row["verdict"],
                        row["trusted"],
                    )
                    found[both] = place, name0, name1, pair
        for name, photo in photos.items():
            if photo.source is not None:
                known = photo.source >= 0
                photo.source[first[name][known]] = photo.source[known]
        places = {name: place for place, name in enumerate(sorted(photos, key=by_number))}
        pairs = (
            dataclasses.replace(pair, first=places[name0], second=places[name1])
            for _, name0, name1, pair in found.values()
        )
        ordered = sorted(pairs, key=lambda pair: (pair.first, pair.second))
        return cls(tuple(photos[name] for name in places), tuple(ordered))

    @classmethod
    def from_database(cls, path: PathLike) -> PairGraph:
        """Read the verified pairs of a COLMAP database; needs pycolmap.

        Its matches are the inliers; pairs without a relative pose get the one of their essential
        or fundamental matrix. There are no probabilities in a database, so all pairs count alike.
        """
        colmap = require("pycolmap", "reading COLMAP's database", "colmap")
        source = local_path(path)
        with reading(source, DATABASE, ValueError, OSError, RuntimeError):
            with open_regular(source) as file:
                if file.read(len(MAGIC)) != MAGIC:
                    raise ValueError("it is something else")
            database = colmap.Database.open(os.fspath(source))
            try:
                return cls._read_database(colmap, database)
            finally:
                database.close()

    @classmethod
    def _read_database(cls, colmap: Any, database: Any) -> PairGraph:
        cameras = {one.camera_id: one for one in database.read_all_cameras()}
        images = sorted(database.read_all_images(), key=lambda image: by_number(image.name))
        places = {image.image_id: place for place, image in enumerate(images)}
        photos, pixels = [], []
        for image in images:
            own = cameras[image.camera_id]
            record = ImageRecord(
                image.name,
                camera=Camera.from_colmap(own),
                focal_known=own.has_prior_focal_length,
                camera_name=str(image.camera_id),
            )
            points = np.asarray(database.read_keypoints(image.image_id), np.float64)
            pixels.append(points.reshape(len(points), -1)[:, :2])
            photos.append(Photo(record, pixels[-1] - COLMAP_PIXEL_CENTRE))
        kinds = colmap.TwoViewGeometryConfiguration
        unusable = {int(kinds.UNDEFINED), int(kinds.DEGENERATE), int(kinds.WATERMARK)}
        pairs = []
        for number, geometry in zip(*database.read_two_view_geometries(), strict=True):
            ids = colmap.pair_id_to_image_pair(number)
            matches = np.asarray(geometry.inlier_matches, np.int64).reshape(-1, 2)
            if int(geometry.config) in unusable or not len(matches):
                continue
            first, second = (places[i] for i in ids)
            pose = geometry.cam2_from_cam1
            if pose is None:
                own = [cameras[images[place].camera_id] for place in (first, second)]
                sides = (own[0], pixels[first], own[1], pixels[second])
                solved = colmap.estimate_two_view_geometry_pose(*sides, geometry)
                pose = geometry.cam2_from_cam1 if solved else None
            found = None
            if pose is not None and np.any(pose.translation):
                found = RelativePose(pose.rotation.matrix(), pose.translation)
            odds = -_DATABASE_LOG_ODDS if found is None else _DATABASE_LOG_ODDS
            pairs.append(
                PhotoPair(
                    first,
                    second,
                    found,
                    matches,
                    np.ones(len(matches)),
                    float(1.0 / (1.0 + np.exp(-odds))),
                    odds,
                    trusted=found is not None,
                )
            )
        return cls(tuple(photos), tuple(pairs))

    def between(self, exact: Mapping[str, BoolArray]) -> PairGraph:
        """Keep the matches between exact keypoints, masks by the names of photographs.

        A photograph that is not named keeps its matches.
        """
        if not exact:
            return self
        pairs = []
        for pair in self.pairs:
            names = self.photos[pair.first].name, self.photos[pair.second].name
            keep = np.ones(len(pair.matches), dtype=bool)
            if all(name in exact for name in names):
                for side, name in enumerate(names):
                    keep &= exact[name][pair.matches[:, side]]
            matches, sure = pair.matches[keep], pair.match_probability[keep]
            pairs.append(dataclasses.replace(pair, matches=matches, match_probability=sure))
        return PairGraph(self.photos, tuple(pairs))

    def write_database(self, path: PathLike, keep: Iterable[bool]) -> None:
        """Write the kept pairs that have a pose as a database for COLMAP's mappers."""
        with ColmapDatabaseWriter(path) as writer:
            for pair, kept in zip(self.pairs, keep, strict=True):
                if kept and pair.pose is not None:
                    one, two = self.photos[pair.first], self.photos[pair.second]
                    found = PairMatches.known(
                        keypoints0=one.points,
                        keypoints1=two.points,
                        matches=pair.matches,
                        pose=pair.pose,
                    )
                    writer.add(one.record, two.record, found)


def one_to_one(matches: IndexArray) -> IndexArray:
    """Return the places (K,) of matches (M, 2) that stay if each keypoint keeps its first match."""
    places = np.arange(len(matches))
    for side in (0, 1):
        _, first = np.unique(matches[places, side], return_index=True)
        places = places[np.sort(first)]
    return places


def _first_at_place(points: FloatArray) -> IndexArray:
    """Return for each of (N, 2) keypoints the first one that is at the same place."""
    _, first, inverse = np.unique(points, axis=0, return_index=True, return_inverse=True)
    return first[inverse.ravel()]
