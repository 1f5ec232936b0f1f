"""Files of the matches of a batch, made of its log when all pairs are finished.

One writer makes each of them, whole or not at all, of the pairs that the journal has then. A batch
that was killed therefore neither loses nor doubles a pair there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import require
from manymatch.batch.focals import SharedFocal, shared_focals
from manymatch.batch.journal import remove_left_overs
from manymatch.batch.rows import ERROR, plain_text
from manymatch.geometry.camera import Camera
from manymatch.io.colmap_matches import check_mirrored
from manymatch.io.files import make_folder, name_end
from manymatch.io.image import stored_orientation
from manymatch.io.match_parquet import ParquetMatchWriter
from manymatch.io.matches import ImageRecord
from manymatch.io.pairs import numbered, posed
from manymatch.matcher.result import FORMATS, WRITERS, check_formats

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from manymatch._validate import IndexArray
    from manymatch.batch import CameraPer
    from manymatch.batch.match_store import BatchJournal
    from manymatch.io.matches import PairMatches
    from manymatch.io.pairs import Pair, PairImage

#: Formats of the files of a batch; the first two take any pairs.
BATCH_FORMATS = ("parquet", *FORMATS)
ANY_PAIRS = frozenset(BATCH_FORMATS[:2])
# Of either image in the name of a pair's file, which the system limits in bytes, not letters.
_NAME_BYTES = 80


def checked_formats(formats: Iterable[str], pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Check in which formats matches are written, and whether these can hold the pairs.

    Files of hloc and COLMAP know an image by its name and have its keypoints and its camera once.
    The names must therefore be paths below a folder, each of one file, one quarter turn and one
    camera.
    """
    listed, numbers = numbered(pairs)
    names = dict.fromkeys(image.name for image in listed)
    chosen = check_batch_formats(formats, names)
    if ANY_PAIRS.issuperset(chosen):
        return chosen
    told = f"to be written as {' and '.join(chosen)}"
    places = {name: place for place, name in enumerate(names)}
    of_name = np.array([places[image.name] for image in listed])[numbers]
    twice = np.flatnonzero(of_name[:, 0] == of_name[:, 1])
    if twice.size:
        raise ValueError(
            f"pairs must have two images {told}, got {pairs[int(twice[0])].name0!r} twice"
        )
    images: dict[str, PairImage] = {}
    for image in listed:
        if images.setdefault(image.name, image) != image:
            raise ValueError(
                f"pairs must have one file and one quarter turn by the name {image.name!r} {told}, "
                "got several"
            )
    flat: dict[str, str] = {}
    for name in images if "h5" in chosen else ():
        if flat.setdefault(name.replace("/", "-"), name) != name:
            raise ValueError(
                f"pairs must have names that differ where hloc has - for / {told}, got {name!r} "
                f"and {flat[name.replace('/', '-')]!r}"
            )
    if "colmap-db" in chosen:
        _check_database(pairs, images, numbers, told)
    return chosen


def check_batch_formats(formats: Iterable[str], names: Iterable[str] = ()) -> tuple[str, ...]:
    """Check in which formats matches of named images are written; return each once."""
    chosen = check_formats(formats, names, "pairs", BATCH_FORMATS)
    if "parquet" in chosen:
        require("pyarrow", "a Parquet file of matches", "tables")
    return chosen


def _check_database(
    pairs: Sequence[Pair], images: Mapping[str, PairImage], numbers: IndexArray, told: str
) -> None:
    """Refuse several cameras of an image, those that COLMAP does not have, and mirrored pairs."""
    cameras: dict[str, Camera | None] = {}
    # Where no pair has a camera there is nothing to compare.
    for pair in pairs if len(posed(pairs)) else ():
        for name, camera in ((pair.name0, pair.camera0), (pair.name1, pair.camera1)):
            if cameras.setdefault(name, camera) != camera:
                raise ValueError(
                    f"pairs must have one camera of {name!r} {told}, got {camera} after "
                    f"{cameras[name]}"
                )
    for name, camera in cameras.items():
        if camera is not None:
            with _about(name):
                camera.to_colmap()
    stored = [
        ImageRecord(name, (1, 1), orientation=stored_orientation(image.path))
        for name, image in images.items()
    ]
    for first, second in numbers.tolist():
        check_mirrored(stored[first], stored[second])


@contextlib.contextmanager
def _about(name: str) -> Iterator[None]:
    """Say to which image an error belongs."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"pairs must have cameras that fit, but of {name!r}: {error}") from error


def matches_path(folder: Path, index: int, name0: str, name1: str) -> Path:
    """Name of the .npz file of a pair in the folder of a batch."""
    names = (re.sub(r"[^\w.-]+", "-", plain_text(name)) for name in (name0, name1))
    names = (name_end(name, _NAME_BYTES) for name in names)
    return folder / "matches" / f"{index:06d}_{'_'.join(names)}.npz"


def write_outputs(
    journal: BatchJournal, formats: Sequence[str], camera_per: CameraPer
) -> list[Path]:
    """Write the files of the matches of all finished pairs, and return the names of those of all.

    The folder of the batch gets ``matches.parquet`` and
    ``keypoints.parquet``; ``matches/`` with an .npz file for each pair; ``features.h5`` and
    ``matches.h5`` for hloc; ``colmap/`` with ``matches.txt`` and one text of keypoints per image;
    and ``database.db`` for COLMAP's mappers. Rows that are errors have no matches. An image has
    one camera in all of its pairs; if its focal length was unknown, that of EXIF, or what these
    pairs or those of its group say together.
    """
    files: list[Path] = []
    folder, rows = journal.folder, journal.records
    focals = shared_focals(rows()) if "colmap-db" in formats else {}
    with contextlib.ExitStack() as stack:
        writers = []
        table = None
        for form in formats:
            if form == "colmap":
                make_folder(folder / "colmap")
                remove_left_overs(folder, "colmap/**/")
            if form in WRITERS:
                writer = WRITERS[form](folder / "colmap" if form == "colmap" else folder)
                writers.append(stack.enter_context(writer))
                files += writer.files.values()
            elif form == "parquet":
                table = stack.enter_context(ParquetMatchWriter(folder))
                files += table.files
            else:
                make_folder(folder / "matches")
        for row in rows() if formats else ():
            if row["verdict"] == ERROR:
                continue
            names = row["name0"], row["name1"]
            if table is not None:
                table.add(row["index"], *names, journal.packed(row))
            if list(formats) == ["parquet"]:
                continue
            found = journal.matches(row)
            if "npz" in formats:
                found.write_npz(matches_path(folder, row["index"], *names))
            if writers:
                images, found = _for_others(row, found, focals, camera_per)
                for writer in writers:
                    writer.add(*images, found)
    return files


def _for_others(
    row: dict[str, Any],
    found: PairMatches,
    focals: Mapping[str, SharedFocal],
    camera_per: CameraPer,
) -> tuple[tuple[ImageRecord, ImageRecord], PairMatches]:
    """Make the records of the images of a pair, and add to its matches the cameras of its pose.

    Only a pose whose matches can be trusted is given to mappers.
    """
    config = found.config or {}
    cameras = tuple(Camera.from_dict(config["cameras"][side]) for side in (0, 1))
    first, second = (
        _image(name, side, cameras[side], config["orientations"][side], row, focals, camera_per)
        for side, name in enumerate((row["name0"], row["name1"]))
    )
    pose = found.pose if row["trusted"] else None
    known = dataclasses.replace(found, pose=pose, cameras=(cameras[0], cameras[1]))
    return (first, second), known


def _image(
    name: str,
    side: int,
    camera: Camera,
    orientation: int,
    row: dict[str, Any],
    focals: Mapping[str, SharedFocal],
    camera_per: CameraPer,
) -> ImageRecord:
    group = row.get(f"camera{side}_group")
    known = row.get(f"camera{side}_source") != "found"
    if group is not None:
        focal = row[f"prior_focal{side}_px"]
        if group in focals and not (known and camera_per == "pair"):
            focal = focals[group].focal_px
        camera = camera.with_focal(focal)
    shared = None if camera_per == "pair" else group
    return ImageRecord(
        name, camera=camera, focal_known=known, orientation=orientation, camera_name=shared
    )
