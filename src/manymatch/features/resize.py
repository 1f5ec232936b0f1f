"""How an image is brought to the size a network wants, and how to get back.

Pixels follow OpenCV: the centre of the top-left pixel is (0, 0), so a resize by s maps x to
``(x + 0.5) * s - 0.5``. Every change between the user's image and a network's input goes through
`Frame`, and nowhere else.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manymatch._validate import FloatArray, choice, flag, integer, require

_LARGEST = 65_536

#: Rules by which the longer edge gets its length: exactly, areas averaged where the image shrinks
#: and interpolated linearly where it grows; or as in the paper's code, which truncates both edges
#: after the product with the scale in double precision (644 can become 1023), always by INTER_AREA.
RULES = ("exact", "paper")


@dataclasses.dataclass(frozen=True)
class Frame:
    """Geometry of one resized image; sizes are widths and heights."""

    #: Of the user's image.
    size: tuple[int, int]
    #: After the resize.
    content: tuple[int, int]
    #: With the padding at the right and the bottom.
    padded: tuple[int, int]
    #: "area or linear", "area" or "triangle", see `resize_image`.
    interpolation: str = "area or linear"

    @property
    def scale(self) -> FloatArray:
        """Resized over original length, per axis (x, y)."""
        return np.divide(self.content, self.size)

    def to_original(self, points: ArrayLike) -> FloatArray:
        """Map (N, 2) pixels of the resized image to the user's one."""
        return (np.asarray(points, dtype=np.float64) + 0.5) / self.scale - 0.5


@dataclasses.dataclass(frozen=True)
class Resize:
    """A resize policy.

    Parameters
    ----------
    longest : int, optional
        Length of the longer edge in pixels; None leaves the image as it is.
    enlarge : bool
        Whether a smaller image is enlarged to `longest`.
    patches : int, optional
        Instead of `longest`: a budget of patches. The image takes the largest size that keeps its
        shape as far as whole patches allow and stays within the budget, small images enlarged, by
        the rule of the image processor of SigLIP 2 NaFlex.
    rule : {"exact", "paper"}
        How `longest` is reached, see `RULES`.
    """

    longest: int | None = 1024
    enlarge: bool = True
    patches: int | None = None
    rule: str = RULES[0]

    def __post_init__(self) -> None:
        if self.longest is not None:
            integer(self.longest, "longest", 1, _LARGEST)
        flag(self.enlarge, "enlarge")
        choice(self.rule, "rule", RULES)
        if self.patches is not None:
            integer(self.patches, "patches", 1, 1_000_000)
            if self.longest is not None:
                raise ValueError(f"longest must be None where patches is given, got {self.longest}")

    @classmethod
    def none(cls) -> Resize:
        """Leave images as they are."""
        return cls(longest=None)

    @classmethod
    def budget(cls, patches: int) -> Resize:
        """Spend at most this many patches."""
        return cls(longest=None, patches=patches)

    def plan(self, size: tuple[int, int], patch: int = 1) -> Frame:
        """Plan the resize of an image of (width, height), padded to multiples of `patch` pixels."""
        width, height = size
        interpolation = "area" if self.rule == "paper" else "area or linear"
        if self.patches is not None:
            content, interpolation = _within_budget(size, patch, self.patches), "triangle"
        elif self.longest is None or (max(size) <= self.longest and not self.enlarge):
            content = (width, height)
        else:
            longest, scale = self.longest, self.longest / max(size)
            # A thin image keeps at least one row.
            content = (max(1, int(width * scale)), max(1, int(height * scale)))
            if self.rule == "exact":
                x, y = content
                content = (longest if width >= height else x, longest if height >= width else y)
        padded = (-(-content[0] // patch) * patch, -(-content[1] // patch) * patch)
        return Frame((width, height), content, padded, interpolation)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, for records and cache keys."""
        return dataclasses.asdict(self)


def _within_budget(size: tuple[int, int], patch: int, patches: int) -> tuple[int, int]:
    """Find the largest whole-patch size of about the same shape within the budget.

    The scale is found by bisection on edges rounded up to whole patches, as the NaFlex family
    prescribes, so the two axes end up with slightly different scales.
    """

    def edge(length: int, scale: float) -> int:
        return max(patch, math.ceil(length * scale / patch) * patch)

    low, high = 1e-6, 100.0
    while high - low >= 1e-5:
        middle = 0.5 * (low + high)
        if (edge(size[0], middle) // patch) * (edge(size[1], middle) // patch) <= patches:
            low = middle
        else:
            high = middle
    return edge(size[0], low), edge(size[1], low)


def resize_image(image: NDArray[np.uint8], frame: Frame) -> NDArray[np.uint8]:
    """Resize to `frame.content`, without the padding.

    By `frame.interpolation`: "area" is OpenCV's INTER_AREA. Where both axes shrink, a pixel is the
    mean of the area it covers. Otherwise OpenCV interpolates linearly with weights of its own,
    which repeat a pixel and mix two only where a new one covers both. "area or linear" is the mean
    where an axis shrinks, and else linear interpolation between the centres of pixels. "triangle"
    is Pillow's BILINEAR, a triangle as wide as two pixels of the coarser image.
    """
    if frame.content == frame.size:
        return image
    if frame.interpolation == "triangle":
        pillow = require("PIL.Image", "resizing images", "images")
        smooth = pillow.fromarray(image).resize(frame.content, pillow.Resampling.BILINEAR)
        return np.asarray(smooth)
    cv2 = require("cv2", "resizing images", "images")
    shrinks = frame.content[0] < frame.size[0] or frame.content[1] < frame.size[1]
    by_area = shrinks or frame.interpolation == "area"
    resized: NDArray[np.uint8] = cv2.resize(
        image, frame.content, interpolation=cv2.INTER_AREA if by_area else cv2.INTER_LINEAR
    )
    return resized.reshape(frame.content[1], frame.content[0], *image.shape[2:])


def turned_back(points: FloatArray, turns: int, size: tuple[int, int]) -> FloatArray:
    """Map pixels (N, 2) of ``np.rot90(image, turns)`` to pixels of an image of width and height."""
    x, y = points[:, 0], points[:, 1]
    width, height = size
    back = {
        0: (x, y),
        1: (width - 1 - y, x),
        2: (width - 1 - x, height - 1 - y),
        3: (y, height - 1 - x),
    }
    return np.column_stack(back[turns % 4])
