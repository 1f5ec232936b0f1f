"""What the detectors that are networks share."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from manymatch.features.detectors._peaks import find_peaks, positions
from manymatch.features.detectors.base import Detector, Keypoints
from manymatch.features.device import require_torch
from manymatch.features.weights import (
    RANDOM,
    find_weights,
    load_state,
    load_strictly,
    random_weights,
)

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from manymatch.features.catalogue import Model
    from manymatch.features.detectors.selection import Selection


class NetworkDetector(Detector):
    """A network that gives a score map of the image's size and descriptors at chosen pixels.

    A subclass writes `build`, `maps` and `describe`; the choice of keypoints is the same for all.

    Parameters
    ----------
    model : Model
        Entry of the catalogue.
    selection : Selection
        How keypoints are chosen.
    weights : path or "random", optional
        As `find_weights` takes it.
    offline : bool
        Never download.
    """

    #: Defaults, those of the published code.
    default_threshold: ClassVar[float]
    default_nms_radius: ClassVar[int]
    #: Entry of the file that holds the tensors, where there are several.
    state_key: ClassVar[str | None] = None
    #: How often peaks are looked for again beside those found.
    nms_rounds: ClassVar[int] = 0

    module: torch.nn.Module

    def __init__(
        self, model: Model, selection: Selection, weights: object = None, offline: bool = False
    ) -> None:
        require_torch()
        self.name, self.dim, self.licence = model.name, model.dim, model.licence
        self.selection = selection
        # The place before the network: a missing file is said at once, and by name.
        found = find_weights(model, weights, offline)
        network = self.build()
        if found == RANDOM:
            self.module = random_weights(network)
        else:
            state = self.published(load_state(found, self.state_key))
            self.module = load_strictly(network, state, model.name)

    @abc.abstractmethod
    def build(self) -> torch.nn.Module:
        """Make the network without weights."""

    def published(self, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Bring the keys of the published file to those of the network."""
        return state

    @abc.abstractmethod
    def maps(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Run the network.

        Parameters
        ----------
        pixels : (1, 3, H, W) tensor
            RGB in [0, 1].

        Returns
        -------
        scores : (h, w) tensor
            What peaks are looked for in; pixel (0, 0) is that of the image, h <= H, w <= W.
        ranking : (h, w) tensor or None
            What peaks are sorted by, where that is something else.
        features : tensor
            What `describe` needs.
        """

    def refine(self, scores: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        """Positions (N, 2) of peaks, whole pixels unless a subclass knows better."""
        return positions(indices, scores.shape[1]).to(scores.dtype)

    @abc.abstractmethod
    def describe(
        self, features: torch.Tensor, points: torch.Tensor, size: tuple[int, int]
    ) -> torch.Tensor:
        """Return (N, D) descriptors of length one at N > 0 pixels of a map of (width, height)."""

    def detect(self, image: NDArray[np.uint8]) -> Keypoints:
        """Find keypoints of an (H, W, 3) RGB image, on the device on which the module is."""
        torch = require_torch()
        device = next(self.module.parameters()).device
        with torch.inference_mode():
            whole = torch.from_numpy(np.ascontiguousarray(image)).to(device)
            pixels = whole.permute(2, 0, 1)[None].to(torch.float32) / 255.0
            scores, ranking, features = self.maps(pixels)
            chosen = find_peaks(
                scores, self.selection.nms_radius, self.selection.threshold, self.nms_rounds
            )
            values = (scores if ranking is None else ranking).reshape(-1)[chosen]
            if ranking is not None:
                values, order = torch.sort(values, descending=True, stable=True)
                chosen = chosen[order]
            points = self.refine(scores, chosen)
            size = (scores.shape[1], scores.shape[0])
            kept = torch.from_numpy(
                self.selection.choose(points.cpu().numpy().astype(np.float64), size)
            ).to(device)
            points = points[kept]
            if len(kept):
                descriptors = self.describe(features, points, size).cpu().numpy()
            else:
                descriptors = np.zeros((0, self.dim or 0))
        return Keypoints(
            points.cpu().numpy().astype(np.float64),
            values[kept].cpu().numpy().astype(np.float32),
            np.ascontiguousarray(descriptors, dtype=np.float32),
        )

    def settings(self) -> dict[str, object]:
        """Everything that changes a number, apart from the weights."""
        return {
            "name": self.name,
            "max_keypoints": self.selection.max_keypoints,
            "nms_radius": self.selection.nms_radius,
            "nms_rounds": self.nms_rounds,
            "border": self.selection.border,
            "threshold": self.selection.threshold,
        }


def pad_to(pixels: torch.Tensor, multiple: int, smallest: int = 1) -> torch.Tensor:
    """Repeat the last row and column of (B, C, H, W) pixels up to a multiple of some length.

    At the right and the bottom, so that coordinates stay; with repeated pixels, as an edge to black
    would attract keypoints and change the mean that these networks normalise by.
    """
    from torch.nn.functional import pad

    height, width = pixels.shape[-2:]
    right, bottom = (
        max(-(-length // multiple) * multiple, smallest) - length for length in (width, height)
    )
    return pad(pixels, (0, right, 0, bottom), mode="replicate") if right or bottom else pixels
