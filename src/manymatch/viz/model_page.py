"""The page of a reconstruction: its models, images and pairs in one HTML file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import count
from manymatch.viz.report import page_json, photo_of_file, write_html

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from manymatch._validate import FloatArray, IndexArray

# What a page holds at most, of all models and pairs together; lines also of each pair.
_MOST_POINTS, _MOST_SEEN, _MOST_LINES, _LINES_OF_PAIR = 100_000, 600_000, 600_000, 60
# Bytes of a page, of which the photographs get what is left, and the least bytes of each.
_PAGE_BYTES, _LEAST_IMAGE_BYTES = 20_000_000, 2_000
# The longer edge of a photograph in pixels: all photographs together have about 25 million pixels.
_LEAST_PX, _MOST_PX, _ALL_PX = 160, 800, 5_000.0
# Shares of points and of cameras, from each end of an axis, that do not decide the first view.
_FAR_POINTS, _FAR_CAMERAS = 8.0, 3.0


@dataclass(frozen=True, eq=False)
class PageCamera:
    """A camera of a model: ``x = R X + t``, where it looks along +z and +y is down.

    `image` is the place of its photograph in the page's images; `focal_px` is in pixels of a
    photograph of `size` (width, height).
    """

    image: int
    R: FloatArray
    t: FloatArray
    focal_px: float
    size: tuple[int, int]


@dataclass(frozen=True, eq=False)
class PageModel:
    """A connected model: `points` (P, 3) in any unit, and their `colors` (P, 3), RGB to 255.

    Rows of `seen` (S, 2) are places in `cameras` and `points`: which camera sees which point.
    """

    points: FloatArray
    colors: NDArray[np.uint8]
    cameras: Sequence[PageCamera]
    seen: IndexArray = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))


@dataclass(frozen=True, eq=False)
class PageImage:
    """A photograph: its name, the file to show (None: no picture), and its width and height."""

    name: str
    path: Path | None
    size: tuple[int, int]


@dataclass(frozen=True, eq=False)
class PagePair:
    """What became of two images, `first` and `second` of the page's, that were matched.

    `verdict` is that of the matching, such as "solved"; `probability` that of the pair being true;
    `reason` a sentence on why it was accepted or refused. `matches` is their number; rows of
    `lines` (L, 4) are some of them, x and y in the first and in the second image, in pixels.
    """

    first: int
    second: int
    verdict: str
    probability: float
    accepted: bool
    reason: str
    matches: int
    lines: FloatArray


def write_model_page(
    path: str | os.PathLike[str],
    title: str,
    models: Sequence[PageModel],
    images: Sequence[PageImage],
    pairs: Sequence[PagePair],
    facts: Mapping[str, str],
    notes: Sequence[str],
) -> None:
    """Write a reconstruction into one HTML file that needs nothing else.

    Models are shown by their number of images, the largest first. The page shows at most 100,000
    points, a random choice that is the same every time, and has about 20 MB at most: photographs
    become smaller the more of them there are. A photograph that cannot be read is left out. The
    file appears only when it is complete. Photographs need Pillow.

    Parameters
    ----------
    path : path
        The file.
    title : str
        What was reconstructed.
    models, images, pairs : sequences of PageModel, PageImage and PagePair
        Images may be in no model, and in several.
    facts : mapping
        Names and values of the table of numbers.
    notes : sequence of str
        Sentences about the reconstruction.
    """
    ordered = sorted(models, key=lambda model: -len(model.cameras))
    total = sum(len(model.points) for model in ordered)
    share = min(1.0, _MOST_POINTS / max(total, 1))
    data: dict[str, Any] = {
        "models": [_packed_model(model, share) for model in ordered],
        "pairs": _packed_pairs(pairs, images),
        "sizes": [image.size for image in images],
    }
    longest = int(np.clip(_ALL_PX / max(len(images), 1) ** 0.5, _LEAST_PX, _MOST_PX))
    # Base64 turns three bytes into four.
    room = int(0.75 * (_PAGE_BYTES - len(page_json(data))) / max(len(images), 1))
    most = max(room, _LEAST_IMAGE_BYTES)
    placed = {camera.image for model in ordered for camera in model.cameras}
    shown = sum(model["shown"] for model in data["models"])
    write_html(
        path,
        "model",
        title=title,
        data=data,
        kind="bad" if not ordered else "good" if len(placed) == len(images) else "doubt",
        headline=_headline(ordered, len(placed), len(images), total),
        notes=[*notes, *[f"{shown:,} of {total:,} points are shown, at random."] * (shown < total)],
        facts=facts,
        tabs=[(len(model.cameras), len(model.points)) for model in ordered],
        images=[
            (image.name, image.path and photo_of_file(image.path, longest, most), k in placed)
            for k, image in enumerate(images)
        ],
        accepted=sum(bool(pair.accepted) for pair in pairs),
        num_pairs=len(pairs),
    )


def _headline(models: Sequence[PageModel], placed: int, number: int, total: int) -> str:
    """Say how many images are in how many models."""
    if not models:
        return f"There is no model: none of {count(number, 'image')} could be placed."
    part = f"All {number:,}" if placed == number else f"{placed:,} of {number:,}"
    where = "one model" if len(models) == 1 else f"{len(models)} separate models"
    return f"{part} images are in {where}, with {total:,} points."


def _some(number: int, most: int) -> IndexArray:
    """Choose `most` of `number` places at random, in order; the choice is always the same."""
    if number <= most:
        return np.arange(number)
    return np.sort(np.random.default_rng(0).permutation(number)[:most])


def _packed_model(model: PageModel, share: float) -> dict[str, Any]:
    points, cameras, number = model.points, model.cameras, len(model.cameras)
    image = np.array([camera.image for camera in cameras])
    R, t = (np.array([getattr(camera, name) for camera in cameras]) for name in ("R", "t"))
    # Half the width and the height of the image plane, at distance 1.
    half = np.array([[0.5 * n / camera.focal_px for n in camera.size] for camera in cameras])
    centres = -np.einsum("nij,ni->nj", R, t)
    axes, middle, scale = first_view(points, centres, R)
    kept = _some(len(points), round(share * len(points)))
    place = np.full(len(points), -1)
    place[kept] = np.arange(len(kept))
    seen = np.column_stack([model.seen[:, 0], place[model.seen[:, 1]]])
    seen = seen[seen[:, 1] >= 0]
    seen = seen[_some(len(seen), int(_MOST_SEEN * share))]
    seen = seen[np.lexsort(seen.T[::-1])]
    centres = (centres - middle) @ axes.T / scale
    some = _some(number, 500)
    apart = np.linalg.norm(centres[some, None] - centres, axis=2)
    apart[np.arange(len(some)), some] = np.inf
    columns = [image, centres, (R @ axes.T).reshape(-1, 9), half]
    return {
        "points": (points[kept] - middle) @ axes.T / scale,
        "colors": model.colors[kept],
        "cameras": np.column_stack(columns),
        "seen": seen[:, 1],
        "seenBy": np.bincount(seen[:, 0], minlength=number),
        "shown": len(kept),
        # So that cameras do not cover each other.
        "depth": float(np.clip(0.6 * np.median(apart.min(axis=1)), 0.015, 0.1)),
    }


def first_view(
    points: FloatArray, centres: FloatArray, R: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Return the frame of the page for a model: its axes (3, 3) as rows, its origin and its unit.

    Up is the opposite of the cameras' mean down axis, and the second axis is where they look on
    average. The box around points and cameras, without those that are far off, is centred at the
    origin and has half a diagonal of length 1.
    """
    up, ahead = -R[:, 1].mean(axis=0), R[:, 2].mean(axis=0)
    up = up if np.linalg.norm(up) > 0.1 else -R[0, 1]
    up /= np.linalg.norm(up)
    # Cameras all around, or that look down, have no direction in common; those of the first one
    # are never all parallel to up.
    level = (v - (v @ up) * up for v in (ahead, R[0, 2], R[0, 0], R[0, 1]))
    ahead = next(v for v in level if np.linalg.norm(v) > 0.3)
    ahead /= np.linalg.norm(ahead)
    axes = np.array([np.cross(ahead, up), ahead, up])
    boxes = [
        np.percentile(place @ axes.T, (far, 100.0 - far), axis=0)
        for place, far in ((points, _FAR_POINTS), (centres, _FAR_CAMERAS))
        if len(place)
    ]
    low, high = np.min(boxes, axis=0)[0], np.max(boxes, axis=0)[1]
    scale = 0.5 * float(np.linalg.norm(high - low))
    return axes, axes.T @ (0.5 * (low + high)), scale if scale > 0.0 else 1.0


def _packed_pairs(pairs: Sequence[PagePair], images: Sequence[PageImage]) -> dict[str, Any]:
    """Pack pairs column by column; ends of lines are shares of an image's width and height."""
    reasons = list(dict.fromkeys(pair.reason for pair in pairs))
    verdicts = list(dict.fromkeys(pair.verdict for pair in pairs))
    place = {text: k for k, text in enumerate(reasons)}
    most = min(_LINES_OF_PAIR, _MOST_LINES // max(len(pairs), 1))
    drawn = [np.empty((0, 4))]
    for pair in pairs:
        shown = np.linspace(0, len(pair.lines) - 1, min(most, len(pair.lines))).astype(int)
        lines = pair.lines[shown]
        drawn.append((lines + 0.5) / (*images[pair.first].size, *images[pair.second].size))
    return {
        "first": np.asarray([pair.first for pair in pairs]),
        "second": np.asarray([pair.second for pair in pairs]),
        "probability": np.asarray([pair.probability for pair in pairs]),
        "accepted": np.asarray([pair.accepted for pair in pairs]),
        "matches": np.asarray([pair.matches for pair in pairs]),
        "verdict": np.asarray([verdicts.index(pair.verdict) for pair in pairs]),
        "reason": np.asarray([place[pair.reason] for pair in pairs]),
        "verdicts": verdicts,
        "reasons": reasons,
        "lines": np.rint(65535 * np.clip(np.vstack(drawn), 0.0, 1.0)).astype(int),
        "linesOf": np.asarray([len(lines) for lines in drawn[1:]]),
    }
