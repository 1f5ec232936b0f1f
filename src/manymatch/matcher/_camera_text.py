"""Cameras as people write them on a command line or in a small file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from manymatch.geometry.camera import Camera, as_camera
from manymatch.io.colmap import find_camera, is_cameras_text

_WANTED = (
    'four numbers "fx,fy,cx,cy", a text "MODEL,width,height,params...", a .txt or .json file or a '
    "COLMAP model (its folder, cameras.txt or cameras.bin)"
)


def is_colmap(path: Path) -> bool:
    """Tell whether a path is a COLMAP model or its file of cameras, not a text of our own."""
    try:
        if path.is_dir() or path.suffix.lower() == ".bin":
            return True
        return path.suffix.lower() == ".txt" and is_cameras_text(path)
    except (OSError, ValueError):
        # A text of numbers may be no name that a file can have.
        return False


def parse_camera(text: str, name: str) -> Camera:
    """Read a camera argument.

    Accepted are ``fx,fy,cx,cy``; ``MODEL,width,height,params...`` with a COLMAP model name; a .json
    file with a dict of model, width, height and params or a 3x3 matrix; a .txt file with one of
    the two texts or a 3x3 matrix; a COLMAP model with one camera: its folder, ``cameras.txt``
    (recognised by the camera number in front) or ``cameras.bin``. Pixels are as everywhere here,
    the centre of the top-left one at (0, 0); only COLMAP's files follow COLMAP and are converted.

    Raises
    ------
    ValueError
        Naming ``name``, if the text is none of these.
    """
    path = Path(text)
    if is_colmap(path):
        try:
            return find_camera(path, None).camera
        except ValueError as error:
            raise ValueError(name + str(error).removeprefix("path")) from error
    if path.suffix.lower() in {".txt", ".json"}:
        return _from_file(path, name)
    return _from_words(text.replace(",", " ").split(), name, text)


def _from_file(path: Path, name: str) -> Camera:
    try:
        content = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ValueError(f"{name} must name an existing file, got {str(path)!r}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{name} must name a text file, got {str(path)!r} ({error})") from None
    if path.suffix.lower() == ".json":
        try:
            value: Any = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name} must be valid JSON, got {str(path)!r} ({error})") from None
        return as_camera(value, name)
    lines = [line.replace(",", " ").split() for line in content.splitlines()]
    lines = [words for words in lines if words and not words[0].startswith("#")]
    if len(lines) == 3 and all(len(words) == 3 for words in lines):
        return as_camera([_numbers(words, name, str(path)) for words in lines], name)
    if len(lines) != 1:
        raise ValueError(f"{name} must hold one camera, got {len(lines)} lines in {str(path)!r}")
    return _from_words(lines[0], name, str(path))


def _from_words(words: list[str], name: str, given: str) -> Camera:
    if len(words) == 4 and _is_number(words[0]):
        fx, fy, cx, cy = _numbers(words, name, given)
        return as_camera({"model": "PINHOLE", "params": [fx, fy, cx, cy]}, name)
    return as_camera(_to_dict(words, name, given), name)


def _to_dict(words: list[str], name: str, given: str) -> dict[str, Any]:
    if len(words) < 4 or _is_number(words[0]) or not (words[1] + words[2]).isdecimal():
        raise ValueError(f"{name} must be {_WANTED}, got {given!r}")
    width, height = int(words[1]), int(words[2])
    params = _numbers(words[3:], name, given)
    return {"model": words[0], "width": width, "height": height, "params": params}


def _numbers(words: list[str], name: str, given: str) -> list[float]:
    if not all(map(_is_number, words)):
        raise ValueError(f"{name} must be {_WANTED}, got {given!r}")
    return [float(word) for word in words]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
