"""LightGlue: a transformer that matches the keypoints of a detector.

With ALIKED, DISK and XFeat in the implementation of kornia, whose weights come with packages; with
SuperPoint in that of transformers. Detections are those of this package, so that all sources with
one detector share them. The networks run at full depth with all keypoints: what they otherwise
leave out for speed differs between the implementations.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from manymatch._validate import require
from manymatch.features.device import choose_device, inference, require_torch, weights_hash
from manymatch.features.matchers import PairMatcher, hub_network
from manymatch.features.registry import models
from manymatch.features.weights import load_state, load_strictly

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import torch
    from numpy.typing import NDArray

    from manymatch.features.extractor import Features
    from manymatch.features.registry import Model

# Matches must be more probable than this, as published.
_THRESHOLD = 0.1
# A constant of kornia's module, which the published files do not hold.
_CONSTANT = "confidence_thresholds"
# A factor of an earlier version, one in all files and read by none; a detector beside the matcher.
_UNUSED = re.compile(r"log_assignment\.\d+\.r|extractor\..*")
# Sizes of the smaller network.
_LIGHTER = {"descriptor_dim": 96, "n_layers": 6, "num_heads": 1}
# Blocks as earlier files name them.
_EARLIER = re.compile(r"^(self_attn|cross_attn)\.(\d+)\.")


class LightGlue(PairMatcher):
    """The LightGlue that was trained for a detector; LighterGlue, a smaller one, for XFeat."""

    name = "lightglue"
    weights: ClassVar[dict[str, Model]] = {
        model.detector: model
        for model in models().values()
        if model.family == "lightglue" and model.detector is not None
    }

    def build(self, source: Path | str, model: Model) -> torch.nn.Module:
        """Make the network of either library."""
        return (_transformers_network if model.hub_id else _kornia_network)(source, model)

    def settings(self) -> dict[str, Any]:
        """Return the hash of the weights and the threshold."""
        weights = weights_hash(self.network)
        return {"matching": "LightGlue", "matcher_weights": weights, "threshold": _THRESHOLD}

    def match(self, first: Features, second: Features) -> _Matches:
        """Match the keypoints of two images; `match` of `PairMatcher`."""
        if not (len(first) and len(second)):
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        run = _run_transformers if self.model and self.model.hub_id else _run_kornia
        device = choose_device(self.device)
        with inference(device):
            return run(self.network, [first, second], [first.size, second.size], device)


def normalised(points: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.float64]:
    """Map (N, 2) pixels to where the networks expect them: the longer edge from -1 to 1."""
    return (points - np.divide(size, 2.0)) / (max(size) / 2.0)


_Matches = tuple["NDArray[np.int64]", "NDArray[np.int64]", "NDArray[np.float64]"]


def _kornia_network(source: object, model: Model) -> torch.nn.Module:
    network = require("kornia.feature", f"the matcher {model.name!r}", "features").LightGlue(
        None,
        input_dim=model.dim,
        **(_LIGHTER if model.detector == "xfeat" else {}),
        depth_confidence=-1,
        width_confidence=-1,
        filter_threshold=_THRESHOLD,
    )
    published = {key.removeprefix("matcher."): t for key, t in load_state(source).items()}
    state = {
        _EARLIER.sub(r"transformers.\2.\1.", key): value
        for key, value in published.items()
        if not _UNUSED.fullmatch(key)
    }
    constant = {_CONSTANT: network.state_dict()[_CONSTANT]}
    return load_strictly(network, constant | state, model.name)


def _run_kornia(
    network: Any, found: Sequence[Features], sizes: Sequence[tuple[int, int]], device: torch.device
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


def _transformers_network(source: Path | str, model: Model) -> torch.nn.Module:
    network: Any = hub_network("LightGlueForKeypointMatching", source, model.name)
    network.depth_confidence = network.width_confidence = -1.0
    network.filter_threshold = _THRESHOLD
    return network


def _run_transformers(
    network: Any, found: Sequence[Features], sizes: Sequence[tuple[int, int]], device: torch.device
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
    network.keypoint_detector = torch.nn.Module()
    network.keypoint_detector.forward = lambda _pixels: detections
    answer = network(torch.zeros(1, 2, 1, 2, 2, device=device))
    matches = answer.matches.reshape(2, -1)[0, : len(found[0])].cpu().numpy().astype(np.int64)
    scores = answer.matching_scores.reshape(2, -1)[0, : len(found[0])].cpu().numpy()
    valid = (matches >= 0) & (matches < len(found[1]))
    return np.flatnonzero(valid), matches[valid], scores[valid].astype(np.float64)
