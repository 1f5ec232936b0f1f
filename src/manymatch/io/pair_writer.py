"""Images as other tools know them, and what the writers for those tools share."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from manymatch._validate import FloatArray, integer, refusal
from manymatch.geometry.camera import Camera
from manymatch.io.image import orientation_axes

if TYPE_CHECKING:
    from manymatch.io.matches import PairMatches


@dataclasses.dataclass(frozen=True)
class ImageRecord:
    """An image as files of other tools know it.

    COLMAP and hloc read images as they are stored. Everything here is for the image as it is shown,
    turned as EXIF says, and writers convert it by `orientation`.

    Parameters
    ----------
    name : str
        Path below the folder of images, with "/".
    size : (int, int), optional
        Width and height in pixels; by default those of the camera. An image that EXIF turns needs
        one of them.
    camera : Camera, optional
        Its intrinsics.
    focal_known : bool
        Whether the focal length is known, not found from the images.
    orientation : int
        EXIF orientation of the file, 1 to 8; see `manymatch.io.image.stored_orientation`.
    camera_name : str, optional
        Images with the same name of the camera and equal cameras have one, also if their focal
        length is not known; by default such an image has its own.
    """

    name: str
    size: tuple[int, int] | None = None
    camera: Camera | None = None
    focal_known: bool = True
    orientation: int = 1
    camera_name: str | None = None

    def __post_init__(self) -> None:
        image_name(self.name, "name")
        integer(self.orientation, "orientation", 1, 8)
        if not isinstance(self.camera, Camera | None):
            raise refusal("camera", "a Camera or None", self.camera)
        size = self.size
        if size is None and self.camera is not None and self.camera.width is not None:
            size = (self.camera.width, self.camera.height)  # type: ignore[assignment]
        if size is not None:
            if np.shape(size) != (2,):
                raise refusal("size", "a pair (width, height) of whole numbers", size)
            size = (integer(size[0], "size", 1), integer(size[1], "size", 1))
        elif self.orientation != 1:
            raise ValueError("size must be given for an image that EXIF turns, got None")
        object.__setattr__(self, "size", size)

    @property
    def axes(self) -> FloatArray:
        """Matrix (3, 3) from camera coordinates of the image as shown to those of its file."""
        axes = np.eye(3)
        axes[:2, :2] = orientation_axes(self.orientation)
        return axes

    @property
    def mirrored(self) -> bool:
        """Whether the file holds the mirror image of what is shown."""
        return self.orientation in (2, 4, 5, 7)

    def stored(self, points: FloatArray) -> tuple[ImageRecord, FloatArray]:
        """Convert the image and its keypoints (N, 2) to the pixels of the file."""
        if self.orientation == 1 or self.size is None:
            return self, points
        axes = self.axes[:2, :2]
        last = np.array(self.size) - 1.0
        turned = np.where(axes.sum(axis=0) < 0, last - points, points) @ np.abs(axes).T
        camera = None if self.camera is None else self.camera.turned(axes)
        size = self.size[::-1] if self.orientation >= 5 else self.size
        return dataclasses.replace(self, size=size, camera=camera, orientation=1), turned


class PairWriter(abc.ABC):
    """Writes any number of pairs in the format of another tool.

    Use it in a ``with`` statement, once for all pairs. Files get their names when the block ends
    without an error; until then, older ones stay as they were.
    """

    #: Files by what they are.
    files: dict[str, Path]

    def __init__(self) -> None:
        # Digests of the pairs that were written, and of the keypoints by image: a million names,
        # or all keypoints, may not fit into memory.
        self._pairs: set[bytes] = set()
        self._digests: dict[str, bytes] = {}

    @abc.abstractmethod
    def _open(self, stack: contextlib.ExitStack) -> None:
        """Open files, to be closed by `stack`."""

    @abc.abstractmethod
    def _add_image(self, image: ImageRecord, points: FloatArray) -> None:
        """Write a new image, in the pixels of its file."""

    @abc.abstractmethod
    def _add_pair(self, image0: ImageRecord, image1: ImageRecord, pair: PairMatches) -> None:
        """Write a new pair; its keypoints and its pose are still those of the images as shown."""

    def add(self, image0: ImageRecord | str, image1: ImageRecord | str, pair: PairMatches) -> bool:
        """Add one pair; return False if the two images were added before, in either order.

        The images may be given by their names: paths below the folder of images, with "/". Of the
        pair, whose keypoints are in pixels of the images as shown, everything is written that the
        format has a place for. An image has the same keypoints in all pairs.
        """
        images = []
        for argument, image in (("image0", image0), ("image1", image1)):
            if not isinstance(image, str | ImageRecord):
                raise refusal(argument, "the name of an image or an ImageRecord", image)
            name = self.check_name(image if isinstance(image, str) else image.name, argument)
            images.append(ImageRecord(name) if isinstance(image, str) else image)
        if images[0].name == images[1].name:
            raise ValueError(f"image1 must be another image than image0, got {images[1].name!r}")
        names = "\0".join(sorted(image.name for image in images)).encode()
        both = hashlib.blake2b(names, digest_size=16).digest()
        if both in self._pairs:
            return False
        for image, points in zip(images, (pair.keypoints0, pair.keypoints1), strict=True):
            digest = hashlib.sha256(points.tobytes()).digest()
            if image.name not in self._digests:
                self._add_image(*image.stored(points))
                self._digests[image.name] = digest
            elif self._digests[image.name] != digest:
                raise ValueError(
                    f"pair must have the same keypoints of {image.name!r} as the pairs before, "
                    "whose matches refer to them, got others"
                )
        self._add_pair(images[0], images[1], pair)
        self._pairs.add(both)
        return True

    @staticmethod
    def check_name(name: str, argument: str) -> str:
        """Check the name of an image; an error begins with `argument`."""
        return image_name(name, argument)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._open(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]


def image_name(name: object, argument: str) -> str:
    """Check the name of an image: a relative path with "/", which stays below its folder."""
    if not isinstance(name, str) or not name or "\0" in name or "\n" in name:
        raise refusal(argument, "the name of an image", name)
    if not name.isprintable() and name.encode("utf-8", "replace").decode() != name:
        raise ValueError(f"{argument} must be a name that is text, got {name!r}")
    if any(part in {"", ".", ".."} for part in name.split("/")):
        want = 'the path of an image below its folder, without leading "/", "." and ".."'
        raise refusal(argument, want, name)
    return name
