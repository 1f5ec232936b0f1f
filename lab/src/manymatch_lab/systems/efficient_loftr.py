"""Efficient LoFTR: semi-dense matching without a detector.

It has the networks of transformers, whose own matching (5.22) is not used: it lists coarse matches
by image 1 for one image and by image 0 for the other, so that windows which do not belong together
are compared, and it takes the first place of every window. `coarse_matches` and `fine_offsets` are
the published method.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manymatch.features.device import choose_device, inference, require_torch, weights_hash
from manymatch.features.matchers import PairMatcher
from manymatch.features.registry import Model
from manymatch.features.weights import freeze

if TYPE_CHECKING:
    import torch

    _Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

# Constants of Efficient LoFTR in its configuration: temperature of the coarse similarities, what a
# coarse match must be more probable than, cells along the edges without matches, and the channels
# of the fine features that the second stage compares, with its temperature.
_CONSTANTS = (
    *("coarse_matching_temperature", "coarse_matching_threshold"),
    "coarse_matching_border_removal",
    *("fine_matching_slice_dim", "fine_matching_regress_temperature"),
)
# Cells of 8 pixels; attention takes 4 x 4 of them at once.
_CELL, _MULTIPLE = 8, 32
_GREY = (0.299, 0.587, 0.114)
# Three halvings put the centre of a cell on its first pixel, and doubling bilinearly moves every
# place of its window back by half a cell less half a pixel; the network was trained so.
_WINDOW_START = -(_CELL - 1) / 2


_MODEL = Model(
    *("efficient-loftr", "matcher", "efficient-loftr"),
    hub_id="zju-community/efficientloftr",
    licence="Apache-2.0",
)


class EfficientLoftr(PairMatcher):
    """Every cell of 8 x 8 pixels may match one of the other image, then to a part of a pixel."""

    name, takes = _MODEL.name, "images"
    weights: ClassVar[dict[str, Model]] = {"": _MODEL}

    def build(self, source: Path | str, model: Model) -> torch.nn.Module:  # noqa: ARG002
        """Make the networks of transformers."""
        from transformers import EfficientLoFTRForKeypointMatching

        found = EfficientLoFTRForKeypointMatching.from_pretrained(source, local_files_only=True)
        return freeze(found)

    def settings(self) -> dict[str, Any]:
        """Weights and constants."""
        network: Any = self.network
        constants = {name: getattr(network.config, name) for name in _CONSTANTS}
        return {"matching": "Efficient LoFTR", "weights": weights_hash(network), **constants}

    def match(
        self, first: NDArray[np.uint8], second: NDArray[np.uint8]
    ) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
        """Match two images; `match` of `PairMatcher`. Some matches may lie beyond their edges."""
        device = choose_device(self.device).torch
        with inference(device):
            found = self._places(*(_grey(image).to(device) for image in (first, second)))
        points0, points1, scores = (tensor.cpu().numpy() for tensor in found)
        return points0, points1, scores

    def _places(self, first: torch.Tensor, second: torch.Tensor) -> _Tensors:
        """Match two images, (H, W) grey values in [0, 1]."""
        torch = require_torch()
        network: Any = self.network
        pixels = _padded(first, second)[None, :, None].expand(-1, -1, 3, -1, -1)
        coarse, *residual = network.efficientloftr(pixels).feature_maps
        cells0, cells1, scores = coarse_matches(coarse[0, 0], coarse[0, 1], network.config)
        if not len(cells0):
            return torch.zeros(0, 2), torch.zeros(0, 2), torch.zeros(0)
        windows0, windows1 = network.refinement_layer(
            coarse / network.config.hidden_size**0.5, residual
        )
        places = fine_offsets(windows0[0, cells0], windows1[0, cells1], network.config)
        columns = coarse.shape[-1]
        points0, points1 = (
            torch.stack([cells % columns, cells // columns], dim=1) * _CELL + place + _WINDOW_START
            for cells, place in zip((cells0, cells1), places, strict=True)
        )
        return points0, points1, scores


def _grey(image: NDArray[np.uint8]) -> torch.Tensor:
    """Grey values of an image in [0, 1], (H, W)."""
    grey = image.astype(np.float32) @ np.array(_GREY, dtype=np.float32) / 255.0
    return require_torch().from_numpy(grey)


def _padded(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Both images in one tensor (2, H, W), zero beyond their right and bottom edges.

    Coordinates stay. Cells beyond an image may match each other there; such matches are outside
    and are dropped.
    """
    sizes = (max(pair) for pair in zip(first.shape, second.shape, strict=True))
    pixels = first.new_zeros(2, *(-(-size // _MULTIPLE) * _MULTIPLE for size in sizes))
    for side, image in enumerate((first, second)):
        pixels[side, : image.shape[0], : image.shape[1]] = image
    return pixels


def coarse_matches(features0: torch.Tensor, features1: torch.Tensor, config: Any) -> _Tensors:
    """Find the cells of two (C, h, w) maps that match: mutual maxima of the dual softmax.

    Returns M cells of either map, counted row by row, and their probabilities.
    """
    torch = require_torch()
    channels, height, width = features0.shape
    flat0, flat1 = (f.reshape(channels, -1).T for f in (features0, features1))
    similarity = flat0 @ flat1.T / (channels * config.coarse_matching_temperature)
    confidence = similarity.softmax(dim=0).mul_(similarity.softmax(dim=1))
    best, cells1 = confidence.max(dim=1)
    mutual = confidence.argmax(dim=0)[cells1] == torch.arange(len(cells1), device=cells1.device)
    inner = torch.zeros(height, width, dtype=torch.bool, device=cells1.device)
    b = config.coarse_matching_border_removal
    inner[b : height - b, b : width - b] = True
    inner = inner.reshape(-1)
    (cells0,) = torch.where(
        mutual & (best > config.coarse_matching_threshold) & inner & inner[cells1]
    )
    return cells0, cells1[cells0], best[cells0]


def fine_offsets(
    windows0: torch.Tensor, windows1: torch.Tensor, config: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Find where in their windows cells match.

    The (M, n * n, C) features are those of the cells of image 0, row by row, and the
    (M, (n + 2) * (n + 2), C) ones those of image 1, with a margin of one place. Returns (M, 2)
    places (x, y) from the first one of the window without margin, whole numbers in image 0.
    """
    torch = require_torch()
    count, _, channels = windows0.shape
    n, m = (round(w.shape[1] ** 0.5) for w in (windows0, windows1))
    split = channels - config.fine_matching_slice_dim
    first = windows0[..., :split] @ windows1[..., :split].transpose(1, 2) / split
    first = first.softmax(dim=1) * first.softmax(dim=2)
    inner = first.reshape(count, n * n, m, m)[..., 1:-1, 1:-1].reshape(count, -1)
    best = inner.argmax(dim=1)
    place0, place1 = best // (n * n), best % (n * n)
    rows = torch.arange(count, device=best.device)
    second = windows0[rows, place0, None, split:] @ windows1[..., split:].transpose(1, 2)
    second = second[:, 0].reshape(count, m, m) / config.fine_matching_slice_dim**0.5
    step = torch.arange(3, device=best.device)
    y, x = place1 // n, place1 % n
    around = second[
        rows[:, None, None], (y[:, None] + step)[:, :, None], (x[:, None] + step)[:, None]
    ]
    weight = (around.reshape(count, 9) / config.fine_matching_regress_temperature).softmax(dim=1)
    weight = weight.reshape(count, 3, 3)
    towards = (step - 1).to(weight.dtype)
    shift = torch.stack([weight.sum(dim=1) @ towards, weight.sum(dim=2) @ towards], dim=1)
    whole0, whole1 = (
        torch.stack([place % n, place // n], dim=1).to(weight.dtype) for place in (place0, place1)
    )
    return whole0, whole1 + shift
