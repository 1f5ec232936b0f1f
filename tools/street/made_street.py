"""Made photographs of made streets, with true pose and depth: no data needed."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from manymatch._files import as_path, read_bytes, unreadable, write_whole
from manymatch._validate import integer, refusal
from manymatch.datasets import _tree
from manymatch.datasets.dataset import Dataset
from manymatch.datasets.depth import DepthView
from manymatch.io.image import require_pillow
from manymatch.io.pairs import read_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from manymatch.io.pair import Pair
    from tools.street.rendered import RenderedScene

NAME, TITLE, NUM_PAIRS = "made-street", "Made street", 12
ABOUT = "rendered streets, exact pose and depth; needs no data"
GET = "Nothing to get: the photographs are computed, a few seconds each, and kept."
TREE = """\
made-street/              (made where it is missing; without a root in the user's cache)
├── made.json             what the photographs were made from
├── pairs.txt, pairs/     SuperGlue's format, translations in metres
├── images/000_0.png, 000_1.png ...
└── depth/000_0.npy ...   metres, float32, NaN in the sky"""

SIZE = (640, 480)
_VERSION = 1


def load(
    root: object = None,
    *,
    pairs: int = NUM_PAIRS,
    size: Sequence[int] = SIZE,
    progress: Callable[[int, int], None] | None = None,
) -> Dataset:
    """Make what is not there yet, then read it.

    Parameters
    ----------
    root : path, optional
        Folder for the photographs; without it one in the user's cache, ``$XDG_CACHE_HOME`` or
        ``~/.cache``.
    pairs : int
        Number of scenes, seeds 0 to pairs - 1.
    size : (int, int)
        Width and height in pixels.
    progress : callable, optional
        Called with (done, all) before each scene that has to be made.
    """
    count = integer(pairs, "pairs", 1, 1000)
    if np.shape(size) != (2,):
        raise refusal("size", "a pair (width, height)", size)
    width, height = (integer(n, "size", 8, 4096) for n in size)
    folder = _home(width, height) if root is None else as_path(root, "root")
    _prepare(folder, (width, height))
    missing = [
        seed for seed in range(count) if not (folder / "pairs" / f"{seed:03d}.txt").is_file()
    ]
    for done, seed in enumerate(missing):
        if progress is not None:
            progress(done, len(missing))
        _make(folder, seed, (width, height))
    if missing:
        # For other programs: everything that is here.
        lines = [path.read_bytes() for path in sorted((folder / "pairs").glob("*.txt"))]
        write_whole(folder / "pairs.txt", lambda file: file.writelines(lines))
    found = []
    for seed in range(count):
        (pair,) = read_pairs(folder / "pairs" / f"{seed:03d}.txt", folder / "images")
        extra = {"seed_index": seed + 1}
        found.append(dataclasses.replace(pair, scene=f"street-{seed:03d}", extra=extra))
    notes = (f"{count} made pairs of {width} x {height} pixels in {folder}",)
    return Dataset(NAME, TITLE, tuple(found), depth=_depth, notes=notes)


def check(root: object) -> str | None:
    """Name the first thing that is missing from a folder of made pairs, or None."""
    folder = as_path(root, "root")
    for needed in ("made.json", "pairs.txt"):
        if not (folder / needed).is_file():
            return f"the file {folder / needed} is missing; it is made when the data set is used"

    def known() -> Dataset:
        pairs = read_pairs(folder / "pairs.txt", folder / "images")
        return Dataset(NAME, TITLE, tuple(pairs), depth=_depth)

    return _tree.first_fault(known, _tree.missing_image, _tree.missing_depth)


def _home(width: int, height: int) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    home = Path(cache) if cache else Path.home() / ".cache"
    return home / "manymatch" / f"made-street-{width}x{height}"


def _prepare(folder: Path, size: tuple[int, int]) -> None:
    """Make the folders; a folder made otherwise is refused, not mixed."""
    wanted = {"version": _VERSION, "size": list(size)}
    path = folder / "made.json"
    if path.is_file():
        try:
            given = json.loads(read_bytes(path, "the record of made streets"))
        except ValueError as error:
            raise unreadable(path, "the record of made streets", str(error)) from error
        if given != wanted:
            raise ValueError(f"root must hold streets made with {wanted}, got {given} in {folder}")
        return
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"root must be a new or empty folder or one of made streets, got {folder}")
    for inner in ("images", "depth", "pairs"):
        (folder / inner).mkdir(parents=True, exist_ok=True)
    text = json.dumps(wanted).encode() + b"\n"
    write_whole(path, lambda file: file.write(text))


def _make(folder: Path, seed: int, size: tuple[int, int]) -> None:
    """Render one scene; its line of the list comes last and says that it is complete."""
    from tools.street.rendered import render_scene

    scene = render_scene(seed, size)
    photographs = (scene.image0, scene.depth0), (scene.image1, scene.depth1)
    for side, (image, depth) in enumerate(photographs):
        stem = f"{seed:03d}_{side}"
        save = functools.partial(require_pillow().fromarray(image).save, format="PNG")
        write_whole(folder / "images" / f"{stem}.png", save)
        metres = np.where(np.isfinite(depth), depth, np.nan).astype(np.float32)
        write_whole(folder / "depth" / f"{stem}.npy", functools.partial(np.save, arr=metres))
    line = _line(scene)
    write_whole(folder / "pairs" / f"{seed:03d}.txt", lambda file: file.write(line))


def _line(scene: RenderedScene) -> bytes:
    T = np.eye(4)
    T[:3, :3] = scene.pose.R
    T[:3, 3] = scene.baseline * scene.pose.t
    numbers = np.concatenate([scene.camera0.K.ravel(), scene.camera1.K.ravel(), T.ravel()])
    words = " ".join(repr(float(number)) for number in numbers)
    return f"{scene.seed:03d}_0.png {scene.seed:03d}_1.png 0 0 {words}\n".encode()


def _depth(pair: Pair, side: int) -> DepthView:
    """Read the depth of one photograph; the common frame is the first camera's."""
    image, camera = ((pair.path0, pair.camera0), (pair.path1, pair.camera1))[side]
    if camera is None or pair.R is None or pair.t is None:
        raise ValueError(f"pair must have cameras and a pose for its depth, got {pair!r}")
    path = image.parent.parent / "depth" / f"{image.stem}.npy"
    try:
        depth = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise unreadable(path, "the depth of a made street", str(error)) from error
    to_common = np.eye(4)
    if side == 1:
        to_common[:3, :3] = pair.R
        to_common[:3, 3] = pair.t
        to_common = _tree.rigid_inverse(to_common)
    return DepthView(depth, None, camera, to_common)
