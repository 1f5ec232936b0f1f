"""Systems made of the matchers of the library: LightGlue on its detectors, Efficient LoFTR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manymatch.features.device import weights_hash
from manymatch.features.extractor import Features
from manymatch.features.registry import Model, load_matcher
from manymatch_lab.systems.base import NativeSystem, System


class LightGlueSystem(NativeSystem):
    """One detector of the catalogue, and the LightGlue that was trained for it."""

    keep = None

    def __init__(self, detector: str, title: str, paper: str = "", **where: Any) -> None:
        super().__init__(detector, title, paper, **where)
        self.matcher = load_matcher("lightglue", detector, **where)
        if self.matcher.model is None:
            raise RuntimeError("LightGlue has weights for every detector that it takes")
        self._weights = self.matcher.model
        self.name = self._weights.name

    @property
    def models(self) -> Sequence[Model]:
        """Weights of the detector and of the matcher."""
        return self.model, self._weights

    def settings(self) -> dict[str, Any]:
        """Return settings and weights of both networks."""
        return {
            "detector": self.detector.settings(),
            "detector_weights": weights_hash(self.detector.module),
            **(self.matcher.settings() or {}),
        }

    def _match(
        self, image0: NDArray[np.uint8], image1: NDArray[np.uint8]
    ) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
        seen = []
        for image in (image0, image1):
            found = self.detector.detect(image)
            if found.descriptors is None:
                raise RuntimeError("the detector has no descriptors")
            size = (image.shape[1], image.shape[0])
            seen.append(Features(found.points, found.scores, found.descriptors, size))
        index0, index1, scores = self.matcher.match(*seen)
        return seen[0].points[index0], seen[1].points[index1], scores


class ImageMatcherSystem(System):
    """A matcher of the library that takes images."""

    packages: Sequence[str] = ("torch", "transformers")

    def __init__(self, matcher: str, title: str, paper: str = "", **where: Any) -> None:
        super().__init__(**where)
        self.name, self.title, self.paper = matcher, title, paper
        self.matcher = load_matcher(matcher, **where)

    @property
    def models(self) -> Sequence[Model]:
        """Weights of the matcher."""
        return () if self.matcher.model is None else (self.matcher.model,)

    def settings(self) -> dict[str, Any]:
        """Return settings and weights of the matcher."""
        return self.matcher.settings() or {}

    def _match(
        self, image0: NDArray[np.uint8], image1: NDArray[np.uint8]
    ) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
        return self.matcher.match(image0, image1)
