"""LightGlue as published: it stops early and leaves keypoints out, in the code of kornia."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manymatch.features.device import choose_device, inference, require_torch
from manymatch.features.extractor import Features
from manymatch.features.matchers.lightglue import LightGlue
from manymatch.features.registry import Model
from manymatch.features.weights import fill

#: Published defaults: confidence at which layers stop, and keypoints are left out.
LIGHTGLUE_ADAPTIVE = (0.95, 0.99)
# Sizes of the network for XFeat.
_LIGHTER = {"descriptor_dim": 96, "n_layers": 6, "num_heads": 1}


class AdaptiveLightGlue(LightGlue):
    """LightGlue that spends less on easy pairs and on keypoints without a partner."""

    def build(self, source: Path | str, model: Model) -> Any:
        """Make kornia's network."""
        from kornia.feature import LightGlue as Network

        network = Network(
            None,
            input_dim=model.dim,
            **(_LIGHTER if model.detector == "xfeat" else {}),
            depth_confidence=LIGHTGLUE_ADAPTIVE[0],
            width_confidence=LIGHTGLUE_ADAPTIVE[1],
            filter_threshold=0.1,
        )
        return fill(network, source, model)

    def settings(self) -> dict[str, Any]:
        """Return those of LightGlue and the confidences."""
        return {**super().settings(), "adaptive": list(LIGHTGLUE_ADAPTIVE)}

    def match(
        self, first: Features, second: Features
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Match the keypoints of two images."""
        if not (len(first) and len(second)):
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        torch, device = require_torch(), choose_device(self.device).torch
        data = {
            f"image{side}": {
                "keypoints": torch.from_numpy(found.points).float()[None].to(device),
                "descriptors": torch.from_numpy(found.descriptors)[None].to(device),
                "image_size": torch.tensor([found.size], dtype=torch.float32, device=device),
            }
            for side, found in enumerate((first, second))
        }
        with inference(device):
            answer = self.network(data)
        index0, index1 = answer["matches"][0].cpu().numpy().T
        return index0, index1, answer["scores"][0].cpu().numpy().astype(np.float64)
