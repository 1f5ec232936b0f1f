"""The camera of an image: as text or file, from a COLMAP model, from EXIF, or to be found."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from manymatch._validate import integer, refusal
from manymatch.geometry.camera import Camera, as_camera
from manymatch.io.colmap import check_cameras, find_camera, is_cameras_text
from manymatch.io.files import brief, error_type, read_json, read_text
from manymatch.io.image import exif_focal, orientation_axes, stored_orientation
from manymatch.io.remote import located, masked

#: Standard deviation of the logarithm of a focal length from EXIF: EXIF rounds it to millimetres,
#: not all cameras follow its definition by the diagonal, and a lens changes as it focuses. Exact
#: values lose a little accuracy by it, wrong ones are corrected
#: (benchmarks/results/unknown_focal.md).
EXIF_SIGMA = 0.025
#: Where a focal length comes from; "found" is from the images themselves, together with the pose.
Origin = Literal["given", "colmap", "exif", "found"]
#: Text for a camera whose focal length is to be found.
UNKNOWN = "unknown"
_TEXT_FILES = (".txt", ".json")
_WANTED = (
    'a focal length in pixels, "fx,fy,cx,cy", "MODEL,width,height,params...", '
    '"unknown,width,height", a .txt or .json file or a COLMAP model (its folder, cameras.txt or '
    "cameras.bin)"
)


@dataclasses.dataclass(frozen=True)
class ResolvedCamera:
    """A camera with the size of its image, and where it comes from, also as a sentence.

    The focal length of a camera of any origin may be unknown, with a prior.
    """

    camera: Camera
    origin: Origin
    sentence: str


def resolve_camera(
    camera: object,
    image_path: str | os.PathLike[str] | None,
    size: tuple[int, int],
    name: str = "camera0",
) -> ResolvedCamera:
    """Find the camera of an image of a width and height in pixels, after EXIF has turned it.

    `camera` is what `as_camera` takes, a text or file as `parse_camera` takes it, a COLMAP model
    with one camera or with this image, or a `ResolvedCamera`. With None the focal length is to be
    found, with a narrow prior around that of EXIF or, without it, the wide one of `Camera.unknown`;
    with "unknown" EXIF is ignored. Sentences and errors begin with `name`. A camera for another
    size, or without size and with its principal point outside the image, is a ValueError.
    """
    if isinstance(camera, ResolvedCamera):
        return camera
    if np.shape(size) != (2,):
        raise refusal("size", "a pair (width, height) of whole numbers", size)
    width, height = (integer(value, "size", 1) for value in size)
    if camera is None or (isinstance(camera, str) and camera == UNKNOWN):
        known = exif_focal(image_path) if camera is None and image_path is not None else None
        taken = "principal point at the centre, no distortion."
        if known is None:
            sentence = f"{name}: unknown focal length, {taken}"
            return ResolvedCamera(Camera.unknown(width, height), "found", sentence)
        right = f"right to about {100.0 * EXIF_SIGMA:g} %"
        sentence = f"{name}: focal length {known:.0f} px from EXIF, {right}; {taken}"
        return ResolvedCamera(Camera.unknown(width, height, known, EXIF_SIGMA), "exif", sentence)
    found, origin, words = _read(camera, image_path, (width, height), name)
    turn = stored_orientation(image_path) if origin == "colmap" else 1
    stored = (height, width) if turn >= 5 else (width, height)
    if turn != 1 and stored == (found.width, found.height):
        # COLMAP has the camera of the photograph as it is stored.
        found = found.turned(orientation_axes(turn).T)
        words += ", turned as EXIF says"
    _check_size(found, (width, height), image_path, name)
    if found.width is None:
        found = dataclasses.replace(found, width=width, height=height)
    focal = f"focal length {found.focal:.0f} px"
    if not found.known_focal:
        focal = f"unknown focal length, about {found.focal:.0f} px"
    return ResolvedCamera(found, origin, f"{name} is {words}: {found.model}, {focal}.")


def camera_sentences(first: ResolvedCamera, second: ResolvedCamera) -> list[str]:
    """Return where the cameras of a pair come from; one sentence if it is the same for both."""
    both = [first.sentence.removeprefix("camera0"), second.sentence.removeprefix("camera1")]
    if both[0] != both[1]:
        return [first.sentence, second.sentence]
    return [f"Both cameras{both[0].replace(' is ', ' are ', 1)}"]


def check_camera(camera: object, name: str) -> None:
    """Check a camera argument as far as possible without an image; None is valid."""
    if isinstance(camera, str | os.PathLike) and _is_colmap(located(camera)):
        # Whether the model has a camera for an image is checked for each image.
        with _about(name):
            check_cameras(camera)
    elif camera is not None and not (isinstance(camera, str) and camera == UNKNOWN):
        _read(camera, None, (1, 1), name)


def parse_camera(text: str, name: str) -> Camera:
    """Read a camera argument; an error names the argument `name`.

    Accepted are ``fx,fy,cx,cy``; ``MODEL,width,height,params...`` with a COLMAP model name;
    ``unknown,width,height`` and maybe focal_px and sigma, the arguments of `Camera.unknown`; a
    .json file with a dict as `Camera.from_dict` takes it or a 3x3 matrix; a .txt file with one of
    the texts or a 3x3 matrix; a COLMAP model with one camera: its folder, ``cameras.txt``
    (recognised by the camera number in front) or ``cameras.bin``. Where the size of the image is
    known, a single number is the focal length, with the principal point at the centre. Pixels are
    as everywhere here, the centre of the top-left one at (0, 0); only COLMAP's files follow COLMAP
    and are converted.
    """
    return _read(text, None, None, name)[0]


def _read(
    camera: object,
    image_path: str | os.PathLike[str] | None,
    size: tuple[int, int] | None,
    name: str,
) -> tuple[Camera, Origin, str]:
    """Read a camera argument; return also where it comes from, as a word and as a phrase."""
    words = "given"
    if isinstance(camera, str | os.PathLike):
        text = os.fspath(camera)
        if not isinstance(text, str) or not text.strip():
            raise refusal(name, "a camera or the name of a file with one", camera)
        path = located(text)
        if _is_colmap(path):
            with _about(name):
                found = find_camera(text, image_path)
            which = "its only one" if found.image is None else f"that of {found.image!r}"
            words = f"camera {found.camera_id} of the COLMAP model {masked(text)!r}, {which}"
            return found.camera, "colmap", words
        if path.suffix.lower() in _TEXT_FILES:
            words = f"read from {masked(text)!r}"
            try:
                camera = _from_file(path, name, size)
            except ValueError as error:
                if str(path) in str(error):
                    raise
                raise ValueError(f"{brief(error)}, in the file {str(path)!r}") from error
        else:
            camera = _from_words(text.replace(",", " ").split(), name, text, size)
    read = as_camera(camera, name)
    return read, "given" if read.known_focal else "found", words


def _check_size(
    camera: Camera,
    size: tuple[int, int],
    image_path: str | os.PathLike[str] | None,
    name: str,
) -> None:
    """Refuse a camera that cannot belong to an image of this size."""
    image = "the image" if image_path is None else f"image {str(image_path)!r}"
    image += f" of {size[0]} x {size[1]} pixels"
    given = (camera.width, camera.height)
    if None in given:
        if not (-0.5 <= camera.cx <= size[0] - 0.5 and -0.5 <= camera.cy <= size[1] - 0.5):
            raise ValueError(
                f"{name} must have its principal point within {image}, got ({camera.cx:g}, "
                f"{camera.cy:g}): is it for another resolution?"
            )
    elif given != size:
        reason = ""
        if given == size[::-1] and stored_orientation(image_path) >= 5:
            reason = (
                ": EXIF turns this image by a quarter, so give the camera of the turned image, or "
                "remove the orientation from the file"
            )
        elif given == size[::-1]:
            reason = ": width and height are exchanged"
        raise ValueError(f"{name} must be for {image}, got one for {given[0]} x {given[1]}{reason}")


def _is_colmap(path: Path) -> bool:
    """Tell whether a path is a COLMAP model or its file of cameras, not a text of our own."""
    try:
        if path.is_dir() or path.suffix.lower() == ".bin":
            return True
        return path.suffix.lower() == ".txt" and is_cameras_text(path)
    except (OSError, ValueError):  # a text of numbers that cannot be the name of a file
        return False


@contextlib.contextmanager
def _about(name: str) -> Iterator[None]:
    """Let errors about a path begin with the name of the argument."""
    try:
        yield
    except ValueError as error:
        raise error_type(error)(name + str(error).removeprefix("path")) from error


def _from_file(path: Path, name: str, size: tuple[int, int] | None) -> Camera:
    if path.suffix.lower() == ".json":
        with _about(name):
            value = read_json(path, "a JSON file")
        return as_camera(value, name)
    with _about(name):
        content = read_text(path, "a text file")
    lines = [line for line in content.splitlines() if not line.lstrip().startswith("#")]
    return _from_words(" ".join(lines).replace(",", " ").split(), name, str(path), size)


def _from_words(words: list[str], name: str, given: str, size: tuple[int, int] | None) -> Camera:
    numbers, params = _numbers(words), _numbers(words[3:])
    sized = len(words) >= 3 and (words[1] + words[2]).isdecimal()
    if words[:1] == [UNKNOWN]:
        if params is None or not sized or len(words) > 5:
            wanted = "unknown,width,height, maybe with focal length in pixels and sigma"
            raise ValueError(f"{name} must be {wanted}, got {given!r}")
        try:
            return Camera.unknown(int(words[1]), int(words[2]), *params)
        except ValueError as error:
            raise ValueError(f"{name} must be a valid camera, but its {error}") from error
    if numbers is not None and len(numbers) == 4:
        return as_camera({"model": "PINHOLE", "params": numbers}, name)
    if numbers is not None and len(numbers) == 9:
        return as_camera(np.reshape(numbers, (3, 3)), name)
    if numbers is not None and len(numbers) == 1 and size is not None:
        width, height = size
        words, params = ["SIMPLE_PINHOLE"], [*numbers, (width - 1) / 2, (height - 1) / 2]
    elif numbers is None and params and sized:
        width, height = int(words[1]), int(words[2])
    else:
        wanted = _WANTED
        if numbers is not None and len(numbers) == 1:
            wanted = "fx,fy,cx,cy where there is no image, whose size a focal length alone needs"
        raise ValueError(f"{name} must be {wanted}, got {given!r}")
    camera = {"model": words[0], "width": width, "height": height, "params": params}
    return as_camera(camera, name)


def _numbers(words: list[str]) -> list[float] | None:
    try:
        return [float(word) for word in words]
    except ValueError:
        return None
