"""Matches of a batch: one .npz per pair as it is finished, hloc's and COLMAP's files at the end.

The .npz files are the only ones that are written while pairs are worked on, each whole and before
its pair counts as finished. The files that hold all pairs are made of them by one writer, whole as
well, so that a batch that was killed neither loses nor doubles a pair there.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

from manymatch._files import make_folder, name_end
from manymatch.io.colmap_import import ColmapWriter, colmap_name
from manymatch.io.hloc import HlocWriter
from manymatch.io.image import image_size
from manymatch.io.matches import image_name, read_matches_npz
from manymatch.matcher.result import check_formats
from manymatch.runs.journal import remove_left_overs
from manymatch.runs.rows import ERROR

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from manymatch.io.pairs import Pair

# Of either image in the name of a pair's file, which the system limits in bytes, not letters.
_NAME_BYTES = 80


def checked_formats(formats: Iterable[str], pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Check in which formats matches are written, and whether these can hold the pairs.

    Files of hloc and COLMAP know an image by its name and have its keypoints once. The names must
    therefore be paths below a folder, each of one file and one quarter turn, and no two images may
    be paired twice.
    """
    chosen = check_formats(formats)
    if not set(chosen) - {"npz"}:
        return chosen
    images: dict[str, tuple[Path, int]] = {}
    seen: set[frozenset[str]] = set()
    for pair in pairs:
        for name, image in (
            (pair.name0, (pair.path0, pair.rot0)),
            (pair.name1, (pair.path1, pair.rot1)),
        ):
            _check_name(name, chosen)
            if images.setdefault(name, image) != image:
                raise ValueError(
                    f"pairs must have one file and one quarter turn by the name {name!r} to be "
                    f"written as {' and '.join(chosen)}, got several"
                )
        # hloc has "-" for "/" in the names of a pair.
        key = frozenset(name.replace("/", "-") for name in (pair.name0, pair.name1))
        if key in seen:
            raise ValueError(
                f"pairs must have any two images once to be written as {' and '.join(chosen)}, "
                f"got {pair.name0!r} and {pair.name1!r} twice"
            )
        seen.add(key)
    return chosen


def _check_name(name: str, formats: Sequence[str]) -> None:
    image_name(name, "pairs")
    if "colmap" in formats:
        colmap_name(name, "pairs")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"pairs must have names that are text to be written as {' and '.join(formats)}, got "
            f"{name!r}"
        ) from None


def matches_path(folder: Path, index: int, pair: Pair) -> Path:
    """Name of the .npz file of a pair in the folder of a batch."""
    names = (re.sub(r"[^\w.-]+", "-", name) for name in (pair.name0, pair.name1))
    names = (name_end(name, _NAME_BYTES) for name in names)
    return folder / "matches" / f"{index:06d}_{'_'.join(names)}.npz"


def write_outputs(
    folder: Path, formats: Sequence[str], rows: Iterable[dict[str, Any]], pairs: Sequence[Pair]
) -> list[Path]:
    """Write the files that hold the matches of all finished pairs, and return their names.

    The folder of the batch gets ``features.h5`` and ``matches.h5`` for hloc, and ``colmap/`` with
    ``matches.txt`` and one text of keypoints per image. Rows that are errors have no matches.
    """
    files: list[Path] = []
    sizes: dict[Path, tuple[int, int]] = {}
    with contextlib.ExitStack() as stack:
        hloc = colmap = None
        if "h5" in formats:
            files += [folder / "features.h5", folder / "matches.h5"]
            hloc = stack.enter_context(HlocWriter(*files))
        if "colmap" in formats:
            make_folder(folder / "colmap")
            remove_left_overs(folder, "colmap/**/")
            colmap = stack.enter_context(ColmapWriter(folder / "colmap"))
            files.append(colmap.path)
        if not files:
            return files
        for row in rows:
            if row["verdict"] == ERROR:
                continue
            pair = pairs[row["index"]]
            found = read_matches_npz(matches_path(folder, row["index"], pair))
            if hloc is not None:
                for path in (pair.path0, pair.path1):
                    if path not in sizes:
                        sizes[path] = image_size(path)
                size0, size1 = sizes[pair.path0], sizes[pair.path1]
                hloc.add(pair.name0, pair.name1, found, size0=size0, size1=size1)
            if colmap is not None:
                colmap.add(pair.name0, pair.name1, found)
    return files
