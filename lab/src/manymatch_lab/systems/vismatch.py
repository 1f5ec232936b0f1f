"""Matchers of the package vismatch: OmniGlue, MASt3R, XoFTR, RoMa."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manymatch.features.device import choose_device, weights_hash
from manymatch.features.registry import Model
from manymatch.features.weight_files import WeightsError
from manymatch.io.files import require
from manymatch_lab.systems.base import MAX_KEYPOINTS, NativeSystem, System, is_installed

_VERSION = "1.4.0"


def _weights(name: str, licence: str, hub_id: str | None = None, url: str | None = None) -> Model:
    return Model(name, "detector", "vismatch", hub_id=hub_id, url=url, licence=licence)


class VismatchSystem(System):
    """One matcher of vismatch."""

    model: str  # its name there
    weights: tuple[Model, ...]  # that it downloads
    beside: tuple[str, ...] = ()  # packages that it needs beside vismatch
    #: Added to its pixels, in x and y, to put the centre of the top-left pixel at (0, 0).
    offset = 0.0
    packages: Sequence[str] = ("torch", "vismatch")

    def missing(self, *, fetch: bool = False) -> str | None:
        """Say what is not here; vismatch fetches weights by itself when it is first used."""
        for package in (*self.packages, *self.beside):
            if not is_installed(package):
                return self.without(package)
        return None if fetch and not self.offline else super().missing()

    @property
    def models(self) -> Sequence[Model]:
        """Weights that it downloads."""
        return self.weights

    def without(self, package: str) -> str:
        """Say how to install what is missing, and what that changes."""
        if package == "vismatch":
            return (
                f"{self.title} needs the package vismatch: pip install vismatch=={_VERSION}, in an "
                "environment of its own, as it wants kornia below 0.8.3 and the features of this "
                "package want 0.9 or later"
            )
        if package in self.beside:
            return f"{self.title} needs {package} beside vismatch: pip install {package}"
        return super().without(package)

    @functools.cached_property
    def matcher(self) -> Any:
        """The matcher, loaded when first used."""
        why = self.missing() if self.offline else None
        if why is not None:
            # Its own code would download.
            raise WeightsError(why)
        vismatch = require("vismatch", self.title, "features")
        with _no_hub() if self.offline else contextlib.nullcontext():
            device = str(choose_device(self.device))
            matcher = vismatch.get_matcher(
                self.model, device=device, max_num_keypoints=MAX_KEYPOINTS
            )
        # It would fit a homography to the matches, which is not used and may fail.
        matcher.skip_ransac = True
        return matcher

    def settings(self) -> dict[str, Any]:
        """Name and version; the weights where they are a module's."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("vismatch")
        except PackageNotFoundError:
            number = "unknown"
        return {
            "matching": self.model,
            "vismatch": number,
            "weights": weights_hash(self.matcher) if hasattr(self.matcher, "state_dict") else "",
            "max_keypoints": MAX_KEYPOINTS,
        }

    def _match(
        self, image0: NDArray[np.uint8], image1: NDArray[np.uint8]
    ) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
        images = (
            np.ascontiguousarray(image.transpose(2, 0, 1), dtype=np.float32) / 255.0
            for image in (image0, image1)
        )
        answer = self.matcher(*images)
        points = [
            np.asarray(answer[f"matched_kpts{side}"], dtype=np.float64).reshape(-1, 2) + self.offset
            for side in (0, 1)
        ]
        scores = answer.get("matched_confidences")
        # Without a confidence the order is all there is.
        falling = np.linspace(1.0, 0.0, len(points[0])) if scores is None else scores
        return points[0], points[1], falling


class OmniGlue(VismatchSystem):
    """OmniGlue on our detections of SuperPoint, which all systems with SuperPoint share.

    Its own SuperPoint has other weights and another suppression. Pixels are those of our
    detections.
    """

    name, title, paper, model = "omniglue", "OmniGlue", "omniglue", "omniglue"
    weights = (_weights("omniglue", "Apache-2.0", hub_id="vismatch/omniglue"),)
    beside = ("tensorflow",)

    def __init__(self, **where: Any) -> None:
        super().__init__(**where)
        self._detections = NativeSystem("superpoint", self.title, **where)
        self.packages = tuple(dict.fromkeys([*self.packages, *self._detections.packages]))

    def missing(self, *, fetch: bool = False) -> str | None:
        """Say what is not here, of the matcher or of the detector."""
        return super().missing(fetch=fetch) or self._detections.missing(fetch=fetch)

    def settings(self) -> dict[str, Any]:
        """Return settings of the matcher and of the detector."""
        of_detector = self._detections.settings()
        return {
            **super().settings(),
            "detector": of_detector["detector"],
            "detector_weights": of_detector["weights"],
        }

    def _match(
        self, image0: NDArray[np.uint8], image1: NDArray[np.uint8]
    ) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
        found = [self._detections.detector.detect(image) for image in (image0, image1)]
        if not all(map(len, found)):
            return np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0)
        # Its code asks for the keypoints of image 0, then for those of image 1.
        given = iter([(one.points, one.descriptors, one.scores) for one in found])
        self.matcher.model.sp_extract = lambda _image: next(given)
        return super()._match(image0, image1)


class Mast3r(VismatchSystem):
    """MASt3R at the size of its checkpoint, prepared as its own loader does.

    Pixels are places of the pixel grid.
    """

    name, title, paper, model = "mast3r", "MASt3R", "mast3r", "master"
    _hub_id = "naver/MASt3R_ViTLarge_BaseDecoder_512_catmlpdpt_metric"
    weights = (_weights("mast3r", "CC BY-NC-SA 4.0", hub_id=_hub_id),)
    own_size = True
    assumed = ("MASt3R gets the file with a longer edge of 512 pixels, as its own loader has it",)

    def settings(self) -> dict[str, Any]:
        """Return settings with the size."""
        return {**super().settings(), "longest": _MAST3R_LONGEST, "multiple": _MAST3R_PATCH}

    def _match(
        self, image0: NDArray[np.uint8], image1: NDArray[np.uint8]
    ) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
        cropped, back = zip(*(mast3r_input(image) for image in (image0, image1)), strict=True)
        *points, scores = super()._match(*cropped)
        placed = [to_file(np.asarray(p)) for to_file, p in zip(back, points, strict=True)]
        return placed[0], placed[1], scores


class XoFTR(VismatchSystem):
    """XoFTR. Its cells have their first pixel as their centre.

    Where it resizes to multiples of 8 pixels, its way back leaves out half a pixel's share of the
    change, below 0.01 px at working size.
    """

    name, title, paper, model = "xoftr", "XoFTR", "xoftr", "xoftr"
    weights = (_weights("xoftr", "Apache-2.0", hub_id="vismatch/xoftr"),)
    specialist = True
    assumed = ("XoFTR gets images at working size",)


class RoMa(VismatchSystem):
    """RoMa, which counts pixels from the edge of the image."""

    name, title, model = "roma", "RoMa", "roma"
    _roma = "https://github.com/Parskatt/storage/releases/download/roma/roma_outdoor.pth"
    _dino = "https://dl.fbaipublicfiles.com/dinov2/dinov2_vitl14/dinov2_vitl14_pretrain.pth"
    weights = (
        _weights("roma-outdoor", "MIT", url=_roma),
        _weights("dinov2-vitl14-published", "Apache-2.0", url=_dino),
    )
    offset = -0.5


# Length of the images that the checkpoint is for, and size of its patches, in pixels.
_MAST3R_LONGEST, _MAST3R_PATCH = 512, 16


def mast3r_input(
    image: NDArray[np.uint8],
) -> tuple[NDArray[np.uint8], Callable[[NDArray[np.float64]], NDArray[np.float64]]]:
    """Resize and crop an image as MASt3R's own loader does.

    The longer edge becomes 512 pixels; around the centre all whole patches that fit are kept,
    and of a square image the middle three quarters of its height. Returns what the network sees,
    and a function that maps (M, 2) pixels of it to those of the image.
    """
    pil = require("PIL.Image", "MASt3R", "images")
    original = np.array([image.shape[1], image.shape[0]])
    longest = int(original.max())
    size = [round(int(n) * _MAST3R_LONGEST / longest) for n in original]
    filtering = pil.Resampling.LANCZOS if longest > _MAST3R_LONGEST else pil.Resampling.BICUBIC
    resized = pil.fromarray(image).resize(size, filtering)
    centre = [n // 2 for n in size]
    half = [2 * c // _MAST3R_PATCH * _MAST3R_PATCH // 2 for c in centre]
    if size[0] == size[1]:
        half[1] = 3 * half[0] // 4
    first = np.subtract(centre, half)
    box = (*first.tolist(), *np.add(centre, half).tolist())
    cropped = np.asarray(resized.crop(box))

    def to_image(points: NDArray[np.float64]) -> NDArray[np.float64]:
        # Edges of the images coincide, not the centres of their outermost pixels.
        moved: NDArray[np.float64] = (points + first + 0.5) * original / size - 0.5
        return moved

    return cropped, to_image


@contextlib.contextmanager
def _no_hub() -> Iterator[None]:
    """Forbid the hub's library to use the network."""
    constants = require("huggingface_hub.constants", "vismatch", "features")
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
