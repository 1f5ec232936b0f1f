"""Detectors with their own descriptors and mutual nearest neighbours."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch.associate.candidates import candidates
from manymatch.features.device import choose_device, weights_hash
from manymatch.features.registry import find_model, load_detector
from manymatch_paper.systems.base import System

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from manymatch.features.detectors.base import Detector, Keypoints
    from manymatch.features.registry import Model

#: The paper's limits: keypoints of an image, and associations that reach the estimator.
MAX_KEYPOINTS, KEEP = 2048, 1024


class NativeSystem(System):
    """One detector, its descriptors, rank-one mutual neighbours.

    Parameters
    ----------
    detector : str
        Of the catalogue.
    title, paper : str
        As in `System`.
    device, offline
        As in `System`.
    """

    keep = KEEP

    def __init__(
        self,
        detector: str,
        title: str,
        paper: str = "",
        device: str = "auto",
        *,
        offline: bool = False,
    ) -> None:
        super().__init__(device, offline=offline)
        self.name, self.title, self.paper = f"{detector}-mnn", title, paper
        self.model = find_model(detector)
        self.packages = self.model.libraries

    @property
    def models(self) -> Sequence[Model]:
        """Weights of the detector, where it has any."""
        return (self.model,) if self.model.needs_weights else ()

    @functools.cached_property
    def detector(self) -> Detector:
        """The detector, loaded when first used."""
        detector = load_detector(self.model.name, max_keypoints=MAX_KEYPOINTS, offline=self.offline)
        if detector.module is not None:
            detector.module.to(choose_device(self.device))
        return detector

    def settings(self) -> dict[str, Any]:
        """Return settings and weights of the detector."""
        return {
            "detector": self.detector.settings(),
            "weights": weights_hash(self.detector.module),
            "matching": "mutual nearest neighbours",
        }

    def _match(
        self, image0: NDArray[np.uint8], image1: NDArray[np.uint8]
    ) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
        arguments: dict[str, Any] = {}
        for side, image in enumerate((image0, image1)):
            found = self.detector.detect(image)
            arguments[f"points{side}"] = found.points
            arguments[f"size{side}"] = (image.shape[1], image.shape[0])
            arguments[f"desc{side}"], arguments[f"owners{side}"] = _descriptors(found)
        graph = candidates(**arguments, k=1, max_edges=None, gms=False, keep=None).graph
        scores = np.zeros(len(graph)) if graph.similarity is None else graph.similarity
        return graph.points0[graph.edges[:, 0]], graph.points1[graph.edges[:, 1]], scores


def _descriptors(found: Keypoints) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """All descriptors of an image's keypoints and whose they are; SIFT has several of some."""
    if found.descriptors is None:
        raise RuntimeError("the detector has no descriptors")
    own = np.arange(len(found))
    if found.further is None or found.owners is None:
        return found.descriptors, own
    return np.concatenate([found.descriptors, found.further]), np.concatenate([own, found.owners])
