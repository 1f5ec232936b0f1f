"""LightGlue: a transformer that matches the keypoints of a detector, in the code of kornia.

Detections are those of this package, so that all sources with one detector share them. The network
runs at full depth with all keypoints, unless `adaptive` is set.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import require
from manymatch.features.device import choose_device, inference, require_torch, weights_hash
from manymatch.features.matchers import PairMatcher
from manymatch.features.registry import Model, models
from manymatch.features.weights import fill

if TYPE_CHECKING:
    import torch

    from manymatch.features.extractor import Features

# Matches must be more probable than this, as published.
_THRESHOLD = 0.1
_WHOLE = (-1.0, -1.0)
# Sizes of the smaller network.
_LIGHTER = {"descriptor_dim": 96, "n_layers": 6, "num_heads": 1}

_Matches = tuple["NDArray[np.int64]", "NDArray[np.int64]", "NDArray[np.float64]"]


class LightGlue(PairMatcher):
    """The LightGlue that was trained for a detector; LighterGlue, a smaller one, for XFeat."""

    name = "lightglue"
    weights: ClassVar[dict[str, Model]] = {
        model.detector: model
        for model in models().values()
        if model.family == "lightglue" and model.detector is not None
    }

    #: Confidences at which layers stop and keypoints are left out; below 0 for never.
    adaptive: tuple[float, float] = _WHOLE

    def build(self, source: Path | str, model: Model) -> torch.nn.Module:
        """Make kornia's network."""
        network = require("kornia.feature", f"the matcher {model.name!r}", "features").LightGlue(
            None,
            input_dim=model.dim,
            **(_LIGHTER if model.detector == "xfeat" else {}),
            depth_confidence=self.adaptive[0],
            width_confidence=self.adaptive[1],
            filter_threshold=_THRESHOLD,
        )
        return fill(network, source, model)

    def settings(self) -> dict[str, Any]:
        """Return the hash of the weights and the threshold."""
        weights = weights_hash(self.network)
        found = {"matching": "LightGlue", "matcher_weights": weights, "threshold": _THRESHOLD}
        return found if self.adaptive == _WHOLE else {**found, "adaptive": list(self.adaptive)}

    def match(self, first: Features, second: Features) -> _Matches:
        """Match the keypoints of two images; `match` of `PairMatcher`."""
        if not (len(first) and len(second)):
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        torch, device, network = require_torch(), choose_device(self.device), self.network
        data = {
            f"image{side}": {
                "keypoints": torch.from_numpy(found.points).float()[None].to(device),
                "descriptors": torch.from_numpy(found.descriptors)[None].to(device),
                "image_size": torch.tensor([found.size], dtype=torch.float32, device=device),
            }
            for side, found in enumerate((first, second))
        }
        with inference(device):
            answer = network(data)  # type: ignore[misc]
        index0, index1 = answer["matches"][0].cpu().numpy().T
        return index0, index1, answer["scores"][0].cpu().numpy().astype(np.float64)
