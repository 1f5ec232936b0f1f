"""Detectors that are networks: SuperPoint, ALIKED, DISK, XFeat.

SuperPoint is implemented by transformers, the others by kornia. The choice of keypoints from their
score maps is the same for all.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from manymatch._validate import require
from manymatch.features.detectors import Detector, Keypoints, Selection
from manymatch.features.device import inference, works_now
from manymatch.features.weights import for_inference, load_weights

if TYPE_CHECKING:
    from manymatch.features.registry import Model

# Integers up to here are exact in float32, the fastest type for pooling.
_EXACT_IN_FLOAT32 = 2**24
# SuperPoint and XFeat have one score map of this many pixels squared per cell.
_CELL = 8
# Window and temperature of the soft maximum with which ALIKED was trained.
_WINDOW, _TEMPERATURE = 2, 0.1


class NetworkDetector(Detector):
    """A network that gives a score map of the image's size and descriptors at chosen pixels.

    A subclass writes `build`, `maps` and `describe`; the choice of keypoints is the same for all.
    """

    #: How often peaks are looked for again beside those found.
    nms_rounds: ClassVar[int] = 0
    #: Whether `for_inference` makes it faster; not where norms depend on the image.
    foldable: ClassVar[bool] = True

    module: torch.nn.Module

    def __init__(
        self, model: Model, selection: Selection, *, weights: object, offline: bool
    ) -> None:
        super().__init__(model, selection, weights=weights, offline=offline)
        module = load_weights(model, self.build, weights, offline)
        self.module = for_inference(module) if self.foldable else module

    @abc.abstractmethod
    def build(self) -> Any:
        """Make the network without weights."""

    def kornia(self) -> Any:
        """Import kornia's networks, or say how to get them."""
        return require("kornia.feature", f"the detector {self.name!r}", "features", works_now)

    @abc.abstractmethod
    def maps(self, pixels: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        """Run the network on (1, 3, H, W) pixels, RGB in [0, 1].

        Returns (h, w) scores with h <= H, w <= W in which peaks are found; scores by which peaks
        are sorted, or None if they are the same; and what `describe` needs.
        """

    def refine(self, scores: Tensor, indices: Tensor) -> Tensor:
        """Positions (N, 2) of peaks: whole pixels, unless a subclass refines them."""
        return positions(indices, scores.shape[1]).to(scores.dtype)

    @abc.abstractmethod
    def describe(self, features: Tensor, points: Tensor) -> Any:
        """Return (N, D) descriptors of length one at N > 0 pixels."""

    def detect(self, image: NDArray[np.uint8]) -> Keypoints:
        """Find keypoints of an (H, W, 3) RGB image, on the device on which the module is."""
        device = next(self.module.parameters()).device
        with inference(device):
            whole = torch.from_numpy(np.ascontiguousarray(image)).to(device)
            pixels = whole.permute(2, 0, 1)[None].to(torch.float32) / 255.0
            scores, ranking, features = self.maps(pixels)
            limits = self.selection.nms_radius, self.selection.threshold
            chosen = find_peaks(scores, *limits, self.nms_rounds)
            values = (scores if ranking is None else ranking).reshape(-1)[chosen]
            if ranking is not None:
                values, order = torch.sort(values, descending=True, stable=True)
                chosen = chosen[order]
            points = self.refine(scores, chosen)
            places = points.cpu().numpy().astype(np.float64)
            kept = self.selection.choose(places, (scores.shape[1], scores.shape[0]))
            which = torch.from_numpy(kept).to(device)
            descriptors = np.zeros((0, self.dim or 0))
            if len(kept):
                descriptors = self.describe(features, points[which]).cpu().numpy()
        return Keypoints(
            places[kept],
            values[which].cpu().numpy().astype(np.float32),
            np.ascontiguousarray(descriptors, dtype=np.float32),
        )

    def settings(self) -> dict[str, object]:
        """Everything that changes a number, apart from the weights."""
        return {**super().settings(), "nms_rounds": self.nms_rounds}


class SuperPoint(NetworkDetector):
    """Keypoints at whole pixels.

    As in the published code, the rows and columns beyond the last complete cell of 8 pixels are
    not looked at, and the border counts from there.
    """

    default_threshold = 0.0005
    default_nms_radius = 4
    nms_rounds = 2

    def build(self) -> Any:
        """Make the network without weights, and without a choice of keypoints of its own.

        That of transformers leaves the border at the right and the bottom, and keeps ties.
        """
        transformers = require("transformers", f"the detector {self.name!r}", "features", works_now)
        settings = transformers.SuperPointConfig(
            keypoint_threshold=-1.0, max_keypoints=-1, nms_radius=0, border_removal_distance=0
        )
        return transformers.SuperPointForKeypointDetection(settings)

    def maps(self, pixels: Tensor) -> tuple[Tensor, None, Tensor]:
        """Score of every pixel and the encoding of every cell."""
        rows, columns = (length // _CELL for length in pixels.shape[-2:])
        if rows == 0 or columns == 0:
            return pixels.new_zeros(0, 0), None, pixels
        weights = pixels.new_tensor((0.299, 0.587, 0.114)).reshape(1, 3, 1, 1)
        encoded = self.module.encoder((pixels * weights).sum(dim=1, keepdim=True))[0]
        _, scores = self.module.keypoint_decoder(encoded)
        return scores.reshape(rows * _CELL, columns * _CELL), None, encoded

    def describe(self, features: Tensor, points: Tensor) -> Any:
        """Descriptors, bilinear between cells."""
        return self.module.descriptor_decoder(features, points[None])


class Aliked(NetworkDetector):
    """Keypoints between pixels, at the soft maximum of the score within two pixels of a peak.

    The suppression acts before that step, so keypoints may be nearer than its radius by up to
    four pixels. Positions are unbiased to about 0.1 px, measured as for DISK.
    """

    default_threshold = 0.2
    default_nms_radius = 2

    def build(self) -> Any:
        """Make the network without weights."""
        return self.kornia().ALIKED(self.name)

    def maps(self, pixels: Tensor) -> tuple[Tensor, None, Tensor]:
        """Score and feature of every pixel; the module pads on all sides and cuts that off."""
        features, scores = self.module.extract_dense_map(pixels)
        return scores[0, 0], None, features

    def refine(self, scores: Tensor, indices: Tensor) -> Tensor:
        """Move peaks to the soft maximum of their windows."""
        height, width = scores.shape
        peaks = positions(indices, width)
        offsets = torch.arange(-_WINDOW, _WINDOW + 1, device=scores.device)
        dy, dx = (d.reshape(-1) for d in torch.meshgrid(offsets, offsets, indexing="ij"))
        padded = functional.pad(scores, (_WINDOW,) * 4)
        window = padded[peaks[:, 1:] + dy + _WINDOW, peaks[:, :1] + dx + _WINDOW]
        weight = torch.softmax(window / _TEMPERATURE, dim=1)
        moved = peaks + weight @ torch.stack([dx, dy], dim=1).to(scores.dtype)
        last = torch.tensor([width - 1, height - 1], device=scores.device)
        return moved.clamp(min=0).minimum(last)

    def describe(self, features: Tensor, points: Tensor) -> Any:
        """Descriptors from deformed windows."""
        # Positions go in as [-1, 1] from the first to the last pixel centre, x first.
        last = points.new_tensor([max(length - 1, 1) for length in features.shape[:1:-1]])
        (descriptors,), _ = self.module.desc_head(features, [2.0 * points / last - 1.0])
        return descriptors


class Disk(NetworkDetector):
    """Keypoints at whole pixels; the scores are logits.

    Measured on photographs and their halves, and by epipolar errors on pairs of known pose,
    positions are about 0.3 px too large in x and y. This effect of the training is far smaller than
    the spread of the positions, and is not corrected.
    """

    default_threshold = 0.0
    default_nms_radius = 2
    foldable = False

    def build(self) -> Any:
        """Make the network without weights."""
        return self.kornia().DISK()

    def maps(self, pixels: Tensor) -> tuple[Tensor, None, Tensor]:
        """Score and descriptor of every pixel."""
        height, width = pixels.shape[-2:]
        # Four halvings of the image; the normalisation of the smallest level needs more than one
        # pixel.
        padded = pad_to(pixels, 16, smallest=32)
        scores, descriptors = self.module.heatmap_and_dense_descriptors(padded)
        return scores[0, 0, :height, :width], None, descriptors[0]

    def describe(self, features: Tensor, points: Tensor) -> Any:
        """Descriptors of whole pixels."""
        x, y = points.long().T
        return functional.normalize(features[:, y, x].T, dim=1)


class XFeat(NetworkDetector):
    """Keypoints at whole pixels, sorted by score times reliability.

    The published code resizes images to multiples of 32; here they are padded, so that positions
    need no second scale. Measured as for DISK, an offset of positions is within half a pixel and
    not consistent.
    """

    default_threshold = 0.05
    default_nms_radius = 2

    def build(self) -> Any:
        """Make the network without weights."""
        return self.kornia().XFeat().net

    def maps(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Score and reliability of every pixel, features of every cell of the padded image."""
        height, width = pixels.shape[-2:]
        padded = pad_to(pixels, 32)
        features, logits, reliability = self.module(padded)
        # 64 places of a cell, row by row, and one for "none".
        scores = functional.pixel_shuffle(logits.softmax(dim=1)[:, :-1], _CELL)
        reliability = functional.interpolate(reliability, padded.shape[-2:], mode="bilinear")
        ranking = scores * reliability
        whole = (0, 0, slice(height), slice(width))
        return scores[whole], ranking[whole], functional.normalize(features, dim=1)

    def describe(self, features: Tensor, points: Tensor) -> Any:
        """Descriptors, bicubic between cells."""
        # As the network was trained: pixels count from edge to edge here, though they are centres,
        # which reads all descriptors half a pixel off in the same direction.
        last = points.new_tensor([length * _CELL - 1 for length in features.shape[:1:-1]])
        where = (2.0 * points / last - 1.0)[None, None]
        sampled = functional.grid_sample(features, where, mode="bicubic", align_corners=False)
        return functional.normalize(sampled[0, :, 0].T, dim=1)


def pad_to(pixels: Tensor, multiple: int, smallest: int = 1) -> Tensor:
    """Repeat the last row and column of (B, C, H, W) pixels up to a multiple of some length.

    An edge to black would attract keypoints and change the mean that these networks normalise by.
    """
    height, width = pixels.shape[-2:]
    right, bottom = (
        max(-(-length // multiple) * multiple, smallest) - length for length in (width, height)
    )
    return (
        functional.pad(pixels, (0, right, 0, bottom), mode="replicate")
        if right or bottom
        else pixels
    )


def find_peaks(scores: Tensor, radius: int, threshold: float, rounds: int = 0) -> Tensor:
    """Find the local maxima above a threshold of an (H, W) map, best first.

    A peak is larger than all others in the square of ``2 radius + 1`` pixels around it; of equal
    ones the first in reading order counts as the largest. Then, `rounds` times, peaks are looked
    for again outside the squares of those found, as SuperPoint does. Returns (N,) indices into the
    flattened map, by falling score, equal ones in reading order.
    """
    flat = scores.reshape(-1)
    candidates = torch.nonzero(flat > threshold)[:, 0]
    best = candidates[torch.sort(flat[candidates], descending=True, stable=True).indices]
    if radius == 0 or len(best) == 0:
        return best
    # Ranks instead of scores, so that there are no ties; 0 marks pixels below the threshold.
    exact = torch.float32 if len(best) < _EXACT_IN_FLOAT32 else torch.float64
    place = torch.zeros_like(flat, dtype=exact)
    place[best] = torch.arange(len(best), 0, -1, device=flat.device, dtype=exact)
    place = place.reshape(scores.shape)
    peaks = _largest(place, radius)
    for _ in range(rounds):
        outside = place.masked_fill(_pool(peaks.to(exact), radius) > 0, 0.0)
        peaks |= _largest(outside, radius)
    return best[peaks.reshape(-1)[best]]


def _largest(place: Tensor, radius: int) -> Tensor:
    """Tell which candidates are the largest of their squares."""
    return (place == _pool(place, radius)) & (place > 0)


def _pool(values: Tensor, radius: int) -> Tensor:
    """Maximum over squares, one axis after the other."""
    size = 2 * radius + 1
    along_x = functional.max_pool2d(values[None, None], (1, size), stride=1, padding=(0, radius))
    return functional.max_pool2d(along_x, (size, 1), stride=1, padding=(radius, 0))[0, 0]


def positions(indices: Tensor, width: int) -> Tensor:
    """Turn indices into a flattened map into (N, 2) pixels (x, y)."""
    return torch.stack([indices % width, indices // width], dim=1)
