"""The photographs of a scene, from a folder or a video, and which pairs of them to match."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import count, require
from manymatch.io.files import limit, local_path, make_folder, too_large, whole_file, write_text
from manymatch.io.matches import image_name
from manymatch.io.pairs import IMAGE_SUFFIXES
from manymatch.io.remote import is_remote
from manymatch.reconstruct.mapping import FEWEST_IMAGES
from manymatch.reconstruct.pair_graph import by_number
from manymatch.reconstruct.retrieval import image_vectors, look_alikes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from manymatch._validate import IndexArray
    from manymatch.features.extractor import Features
    from manymatch.reconstruct.mapping import Model

#: Which pairs are matched; "auto" is "all" up to 60 photographs.
PAIR_CHOICES = ("auto", "all", "sequence", "look-alikes")
VIDEO_SUFFIXES = frozenset({".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpg", ".mpeg", ".webm"})
# Up to this number of photographs, all pairs are matched: 1,770 of them.
_ALL = 60
# Photographs that follow each other are matched up to this distance, then at its doubles.
_WINDOW, _DOUBLED = 10, 5
# Share of names whose numbers follow each other in a sequence.
_FOLLOWING = 0.8
# The last number of a name.
_NUMBER = re.compile(r"^(.*?)(\d+)(\D*)$")
# Frames taken per second of a video, and their quality as JPEG.
_FRAMES_PER_SECOND, _QUALITY = 2.0, 95
# Sharpness is measured on frames whose longer edge is at most this.
_SHARPNESS_EDGE = 480
# Directions of view in which two photographs may still show the same, degrees.
_SUGGEST_DEG = 60.0


@dataclasses.dataclass(frozen=True)
class Photos:
    """A folder of photographs, their names below it, and whether they follow each other."""

    folder: Path
    names: tuple[str, ...]
    sequence: bool


def find_photos(
    photos: object,
    frames: Path,
    most_frames: int = 150,
    progress: Callable[[int, int], object] | None = None,
) -> Photos:
    """Find the images in a folder and the folders below it, or take frames of a video.

    Of each stretch of half a second of a video, or more for long ones, the sharpest frame is
    written into the folder `frames`, `most_frames` at most. `progress` is called with the number of
    frames read and their total.
    """
    place = local_path(photos, "photos")
    if place.is_file() and place.suffix.lower() in VIDEO_SUFFIXES:
        _take_frames(place, frames, most_frames, progress)
        found = Photos(frames, tuple(names_below(frames, "photos")), sequence=True)
    elif place.is_dir():
        names = names_below(place, "photos")
        found = Photos(place, tuple(names), _is_sequence(names))
    else:
        kinds = ", ".join(sorted(VIDEO_SUFFIXES))
        raise ValueError(
            f"photos must be a folder of images or a video ({kinds}), got {str(place)!r}"
            f"{'' if place.exists() else ' (there is no such file)'}"
        )
    if len(found.names) < FEWEST_IMAGES:
        given = f"{count(len(found.names), 'image')} in {str(place)!r}"
        two = "; for two images there is manymatch match" if len(found.names) == 2 else ""
        raise ValueError(f"photos must have at least {FEWEST_IMAGES} images, got {given}{two}")
    if len(found.names) > limit("records"):
        raise too_large(f"photos must not have more images than {len(found.names)}", "records")
    return found


def names_below(folder: Path, argument: str) -> list[str]:
    """List the images in a folder and the folders below it, "9.jpg" before "10.jpg".

    Files and folders whose names begin with a dot are left out, as are links.
    """
    found, waiting = list[str](), [("", folder)]
    while waiting:
        prefix, place = waiting.pop()
        for path in place.iterdir():
            if path.name.startswith(".") or (not is_remote(path) and path.is_symlink()):
                continue
            if path.is_dir():
                waiting.append((f"{prefix}{path.name}/", path))
            elif path.suffix.lower() in IMAGE_SUFFIXES:
                found.append(image_name(prefix + path.name, argument))
    return sorted(found, key=by_number)


def _is_sequence(names: Sequence[str]) -> bool:
    """Whether most names are numbers, one after the other, between equal words."""
    found = [_NUMBER.match(name) for name in names]
    follows = 0
    for one, two in itertools.pairwise(found):
        if one is not None and two is not None and (one[1], one[3]) == (two[1], two[3]):
            follows += 0 < int(two[2]) - int(one[2]) <= _WINDOW
    return len(names) > 2 and follows >= _FOLLOWING * (len(names) - 1)


def _take_frames(
    video: Path, frames: Path, most: int, progress: Callable[[int, int], object] | None
) -> None:
    """Write the sharpest frame of each stretch of a video, unless that was done before."""
    cv2 = require("cv2", "reading a video", "images")
    done, stamp = frames / "complete.txt", f"{video.name} {video.stat().st_size} {most}\n"
    if done.exists():
        if done.read_text(encoding="utf-8") == stamp:
            return
        raise ValueError(
            f"out must be a new folder or one of the same run, but {str(frames)!r} holds the "
            "frames of another video, or of other --most-frames; choose another --out"
        )
    make_folder(frames)
    for old in frames.glob("*.jpg"):
        old.unlink()
    source = cv2.VideoCapture(str(video))
    rate, total = source.get(cv2.CAP_PROP_FPS), int(source.get(cv2.CAP_PROP_FRAME_COUNT))
    stretch = max(1, round((rate if 0 < rate < 1000 else 30.0) / _FRAMES_PER_SECOND))
    stretch = max(stretch, math.ceil(max(total, 0) / most))
    number, best, chosen = 0, -1.0, None
    while True:
        read, frame = source.read()
        if read:
            sharpness = _sharpness(cv2, frame)
            if sharpness > best:
                best, chosen = sharpness, frame
            number += 1
        if chosen is not None and (not read or number % stretch == 0):
            _, data = cv2.imencode(".jpg", chosen, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
            with whole_file(frames / f"{number:06d}.jpg") as temporary:
                temporary.write_bytes(data.tobytes())
            best, chosen = -1.0, None
            if progress is not None:
                progress(number, max(total, number))
        if not read:
            break
    source.release()
    if number == 0:
        raise ValueError(f"photos must be a video that OpenCV can read, got {str(video)!r}")
    write_text(done, stamp)


def _sharpness(cv2: Any, frame: Any) -> float:
    """Variance of the Laplacian of a frame, which blur lowers."""
    grey = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
    scale = _SHARPNESS_EDGE / max(grey.shape)
    if scale < 1.0:
        grey = cv2.resize(grey, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return float(cv2.Laplacian(grey, cv2.CV_64F).var())


# ------------------------------------------------------------------------------------ pairs


def choose_pairs(
    photos: Photos,
    choice: str,
    features: Callable[[], Iterable[Sequence[Features]]],
    similar: int,
    seed: int = 0,
) -> IndexArray:
    """Choose the pairs to match, (N, 2) places of names, the smaller one first, in order.

    "all" are all pairs. "sequence" pairs photographs with those that follow within ten, then at
    distances of 20, 40 and so on, and with `similar` photographs that look alike, which closes
    loops. "look-alikes" pairs each with `similar` others, by the pooled features of all images,
    which `features` computes. "auto" is "all" up to 60 photographs, then one of the others.
    """
    number = len(photos.names)
    if choice == "auto":
        beyond = "sequence" if photos.sequence else "look-alikes"
        choice = "all" if number <= _ALL else beyond
    if choice == "all" or number <= similar + 1:
        if math.comb(number, 2) > limit("records"):
            raise too_large(f"photos must not have more pairs of its {number} images", "records")
        return np.column_stack(np.triu_indices(number, 1))
    near = look_alikes(image_vectors(features(), seed), similar)
    found = [np.column_stack([np.repeat(np.arange(number), near.shape[1]), near.ravel()])]
    if choice == "sequence":
        steps = [*range(1, _WINDOW + 1), *(_WINDOW << k for k in range(1, _DOUBLED + 1))]
        first = np.arange(number)
        found += [np.column_stack([first[:-step], first[step:]]) for step in steps if step < number]
    return np.unique(np.sort(np.concatenate(found), axis=1), axis=0)


def suggested_pairs(
    names: Sequence[str],
    tried: IndexArray,
    models: Iterable[Model],
    most: int,
    accepted: Iterable[tuple[str, str]] = (),
) -> IndexArray:
    """Choose pairs that were not tried and look at the same part of a model, (N, 2) in order.

    Of each image these are the `most` others with which it shares most of what it looks at: the
    nearest ones of those whose directions of view differ by less than 60 degrees. Pairs of images
    that accepted pairs join to one third image are left out: they close no loop.
    """
    places = {name: place for place, name in enumerate(names)}
    near: list[set[int]] = [set() for _ in names]
    for one, two in accepted:
        near[places[one]].add(places[two])
        near[places[two]].add(places[one])
    found = set[tuple[int, int]]()
    for model in models:
        own = np.array([places[name] for name in model.poses])
        centres = np.array([pose.center for pose in model.poses.values()])
        views = np.array([pose.R[2] for pose in model.poses.values()])
        for place, view in enumerate(views):
            distance = np.linalg.norm(centres - centres[place], axis=1)
            distance[views @ view <= math.cos(math.radians(_SUGGEST_DEG))] = np.inf
            distance[place] = np.inf
            nearest = np.argsort(distance, kind="stable")[:most]
            for other in own[nearest[np.isfinite(distance[nearest])]].tolist():
                if near[own[place]].isdisjoint(near[other]):
                    found.add((min(own[place], other), max(own[place], other)))
    return np.array(sorted(found - set(map(tuple, tried.tolist()))), np.int64).reshape(-1, 2)
