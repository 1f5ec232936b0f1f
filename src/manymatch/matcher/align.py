"""Two images of a plane, or of anything from one place: the second warped onto the first."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import FloatArray, choice
from manymatch.estimate.confidence import assess
from manymatch.estimate.homography import (
    PLANAR_MODELS,
    HomographyEstimate,
    PlanarModel,
    estimate_homography,
)
from manymatch.io.files import output_folder, whole_files, write_text, write_whole
from manymatch.io.image import load_image, require_pillow
from manymatch.io.matches import to_json
from manymatch.matcher.config import PRESETS
from manymatch.matcher.match_result import PairResult
from manymatch.matcher.matcher import Matcher, Stopwatch, image_names

if TYPE_CHECKING:
    from manymatch.features.extractor import Features

#: Threshold of the transfer error unless another is given, in pixels of the resized image.
THRESHOLD_PX = 3.0
#: Files of an alignment; without a homography only the first is written.
FILES = {"json": "alignment.json", "warped": "warped.png", "overlay": "overlay.html"}
_CONVENTION = "x1 ~ homography @ x0 in pixels; homography[2][2] is 1"
# Points along each side of image 0 at which the overlap is measured.
_SAMPLES = 64


@dataclasses.dataclass(eq=False, kw_only=True, repr=False)
class Alignment(PairResult):
    """Homography between two images, and the images on each other.

    The attributes are those of `PairResult`, and `model`, which is "homography" or "affine".
    ``estimate.homography`` (3, 3) maps pixels of image 0 to pixels of image 1, ``x1 ~ H x0``.
    """

    estimate: HomographyEstimate
    model: PlanarModel
    images: tuple[NDArray[np.uint8], NDArray[np.uint8]]

    @property
    def homography(self) -> FloatArray | None:
        """The homography of the estimate; None where none was found."""
        found: FloatArray | None = self.answer.homography
        return found

    def _own_lines(self) -> list[str]:
        if not self.success:
            return []
        return [f"{self.names[1]} covers {100.0 * self.covered():.0f} % of the other."]

    def warped(self) -> NDArray[np.uint8]:
        """Warp image 1 onto image 0: RGBA (H0, W0, 4), transparent where it does not reach."""
        from manymatch.viz.aligned import warp

        return warp(self.images[1], self.signed_homography(), self.images[0].shape[1::-1])

    def covered(self) -> float:
        """Share of image 0 that image 1 covers, from 0 to 1."""
        (h0, w0), (h1, w1) = (image.shape[:2] for image in self.images)
        grid = np.meshgrid(np.linspace(0, w0 - 1, _SAMPLES), np.linspace(0, h0 - 1, _SAMPLES))
        x = np.stack([*(axis.ravel() for axis in grid), np.ones(_SAMPLES**2)]).T
        u, v, w = (x @ self.signed_homography().T).T
        with np.errstate(all="ignore"):
            inside = (abs(u / w - 0.5 * (w1 - 1)) <= 0.5 * w1) & (
                abs(v / w - 0.5 * (h1 - 1)) <= 0.5 * h1
            )
        return float(np.mean(inside & (w > 0.0)))

    def signed_homography(self) -> FloatArray:
        """Return the homography with the sign that makes third coordinates positive at matches."""
        H = self.homography
        if H is None:
            raise ValueError(f"there is no homography to warp with: {self.answer.failure}")
        points = self.graph.points0[self.answer.matches[:, 0]]
        return H if np.median(points @ H[2, :2] + H[2, 2]) > 0.0 else -H

    def report(self, path: str | os.PathLike[str], command: str | None = None) -> Path:
        """Write one self-contained HTML file that compares the two images; return its path.

        With a slider, by blinking, blended, or as their difference. `command` is shown in it.
        """
        from manymatch.viz.aligned import write_overlay

        return write_overlay(self, path, command)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the images as plain values for JSON."""
        return {
            "convention": _CONVENTION,
            "model": self.model,
            "images": list(self.names),
            "sizes": [list(image.shape[1::-1]) for image in self.images],
            "homography": None,
            **self.answer.to_dict(),
            "covered": self.covered() if self.success else None,
            "confidence": self.confidence.to_dict(),
            "notes": list(self.notes),
            "timing_s": dict(self.timing),
            "config": self.config.to_dict(),
        }

    def save(self, folder: str | os.PathLike[str], command: str | None = None) -> dict[str, Path]:
        """Write ``alignment.json``, ``warped.png`` and ``overlay.html``; return their paths.

        Without a homography only the first.
        """
        place = output_folder(folder, "folder")
        files = dict(FILES) if self.success else {"json": FILES["json"]}
        with whole_files(place, FILES.values()) as temporary:
            if self.success:
                picture = require_pillow().fromarray(self.warped())
                write_whole(temporary / FILES["warped"], lambda file: picture.save(file, "PNG"))
                self.report(temporary / FILES["overlay"], command)
            record = to_json({**self.to_dict(), "files": list(files.values())}, "result", indent=2)
            write_text(temporary / FILES["json"], f"{record}\n")
        return {name: place / file for name, file in files.items()}


def align(
    image0: object,
    image1: object,
    model: PlanarModel = "homography",
    *,
    preset: object = None,
    longest0: int | None = None,
    longest1: int | None = None,
    **settings: Any,
) -> Alignment:
    """Align two images by a homography or an affine map.

    For images of a plane (a facade, a page, the ground from far above), images taken from one
    place, and images of different kinds of sensors side by side.

    Parameters
    ----------
    image0, image1, longest0, longest1
        As in `Matcher.match`.
    model : {"homography", "affine"}
        As in `estimate_homography`.
    preset, **settings
        As in `Matcher`. The threshold is 3 px of the resized image unless it is given.

    Returns
    -------
    Alignment
        In pixels of the images as given. A pair that cannot be solved raises no error:
        ``alignment.success`` is False.

    Examples
    --------
    >>> alignment = align("map.png", "photo.jpg")                    # doctest: +SKIP
    >>> alignment.save("out")                                        # doctest: +SKIP
    """
    choice(model, "model", PLANAR_MODELS)
    named = preset is None or (isinstance(preset, str) and preset in PRESETS)
    if named and settings.get("options") is None:  # a file has a threshold of its own
        settings.setdefault("threshold_px", THRESHOLD_PX)
    matcher = Matcher(preset, **settings)
    clock = Stopwatch()
    names = image_names(image0, image1)
    images = load_image(image0, "image0"), load_image(image1, "image1")
    clock.lap("load")
    features = matcher.extract(images, longest=(longest0, longest1))
    clock.lap("features")
    alignment = align_features(matcher, images, features, model)
    alignment.names = names
    alignment.timing = {**clock.seconds, **alignment.timing, "total": clock.total()}
    return alignment


def align_features(
    matcher: Matcher,
    images: tuple[NDArray[np.uint8], NDArray[np.uint8]],
    features: Sequence[Sequence[Features]],
    model: PlanarModel = "homography",
) -> Alignment:
    """Align two images by their features, as `Matcher.extract` returns them; see `align`."""
    config = matcher.config
    clock = Stopwatch()
    kinds0, kinds1 = features
    graph = matcher.candidates(kinds0, kinds1)[0].graph
    clock.lap("associate")
    # The threshold counts pixels of the resized images, of the first source.
    scales = [kinds0[0].working_scale, kinds1[0].working_scale]
    pixel = float(np.mean(1.0 / np.stack(scales)))
    method: Any = config.method
    estimate = estimate_homography(graph, method, config.options.with_pixels(pixel), model=model)
    clock.lap("estimate")
    return Alignment(
        graph=graph,
        estimate=estimate,
        confidence=assess(estimate),
        model=model,
        images=images,
        config=config,
        notes=list(matcher.notes),
        timing=clock.seconds,
    )
