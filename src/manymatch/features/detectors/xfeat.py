"""XFeat: a small network for processors without a GPU, in the implementation of kornia."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from manymatch._optional import require
from manymatch.features.detectors._network import NetworkDetector, pad_to

if TYPE_CHECKING:
    import torch

_CELL = 8


class XFeat(NetworkDetector):
    """Keypoints at whole pixels, sorted by score times reliability.

    The published code resizes images to multiples of 32; here they are padded, so that positions
    need no second scale. A peak's pixel is taken as its position; measured as for DISK, an offset
    is within half a pixel and not consistent, as positions spread by more than that.
    """

    default_threshold: ClassVar[float] = 0.05
    default_nms_radius: ClassVar[int] = 2

    def build(self) -> torch.nn.Module:
        """Make the network without weights."""
        network: torch.nn.Module = (
            require("kornia.feature", f"the detector {self.name!r}", "features").XFeat().net
        )
        return network

    def maps(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Score and reliability of every pixel, features of every cell of the padded image."""
        from torch.nn.functional import interpolate, normalize, pixel_shuffle

        height, width = pixels.shape[-2:]
        padded = pad_to(pixels, 32)
        features, logits, reliability = self.module(padded)
        # 64 places of a cell, row by row, and one for "none".
        scores = pixel_shuffle(logits.softmax(dim=1)[:, :-1], _CELL)
        reliability = interpolate(reliability, padded.shape[-2:], mode="bilinear")
        ranking = scores * reliability
        whole = (0, 0, slice(height), slice(width))
        return scores[whole], ranking[whole], normalize(features, dim=1)

    def describe(
        self, features: torch.Tensor, points: torch.Tensor, size: tuple[int, int]
    ) -> torch.Tensor:
        """Descriptors, bicubic between cells."""
        from torch.nn.functional import grid_sample, normalize

        del size
        # As the network was trained: pixels count from edge to edge here, though they are centres,
        # which reads all descriptors half a pixel off in the same direction.
        last = points.new_tensor([length * _CELL - 1 for length in features.shape[:1:-1]])
        where = (2.0 * points / last - 1.0)[None, None]
        sampled = grid_sample(features, where, mode="bicubic", align_corners=False)
        return normalize(sampled[0, :, 0].T, dim=1)
