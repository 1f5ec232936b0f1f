"""ALIKED: deformable descriptors and sub-pixel keypoints, in the implementation of kornia."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from manymatch._optional import require
from manymatch.features.detectors._network import NetworkDetector
from manymatch.features.detectors._peaks import positions

if TYPE_CHECKING:
    import torch

# Window and temperature of the soft maximum with which the network was trained.
_WINDOW, _TEMPERATURE = 2, 0.1
# A constant of kornia's module, which the published files do not hold.
_CONSTANT = "dkd.hw_grid"


class Aliked(NetworkDetector):
    """Keypoints between pixels, at the soft maximum of the score within two pixels of a peak.

    The suppression acts before that step, so keypoints may be nearer than its radius by up to
    four pixels. Positions are unbiased to about 0.1 px, measured as for DISK.
    """

    default_threshold: ClassVar[float] = 0.2
    default_nms_radius: ClassVar[int] = 2

    def build(self) -> torch.nn.Module:
        """Make the network without weights."""
        network: torch.nn.Module = require(
            "kornia.feature", f"the detector {self.name!r}", "features"
        ).ALIKED(self.name)
        return network

    def published(self, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Add the constant that the file lacks."""
        constant = self.build().state_dict()[_CONSTANT]
        return {_CONSTANT: constant, **state}

    def maps(self, pixels: torch.Tensor) -> tuple[torch.Tensor, None, torch.Tensor]:
        """Score and feature of every pixel; the module pads on all sides and cuts that off."""
        features, scores = self.module.extract_dense_map(pixels)
        return scores[0, 0], None, features

    def refine(self, scores: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        """Move peaks to the soft maximum of their windows."""
        import torch

        height, width = scores.shape
        peaks = positions(indices, width)
        offsets = torch.arange(-_WINDOW, _WINDOW + 1, device=scores.device)
        dy, dx = (d.reshape(-1) for d in torch.meshgrid(offsets, offsets, indexing="ij"))
        padded = torch.nn.functional.pad(scores, (_WINDOW,) * 4)
        window = padded[peaks[:, 1:] + dy + _WINDOW, peaks[:, :1] + dx + _WINDOW]
        weight = torch.softmax(window / _TEMPERATURE, dim=1)
        moved = peaks + weight @ torch.stack([dx, dy], dim=1).to(scores.dtype)
        last = torch.tensor([width - 1, height - 1], device=scores.device)
        return moved.clamp(min=0).minimum(last)

    def describe(
        self, features: torch.Tensor, points: torch.Tensor, size: tuple[int, int]
    ) -> torch.Tensor:
        """Descriptors from deformed windows."""
        # Positions go in as [-1, 1] from the first to the last pixel centre.
        last = points.new_tensor([max(length - 1, 1) for length in size])
        (descriptors,), _ = self.module.desc_head(features, [2.0 * points / last - 1.0])
        result: torch.Tensor = descriptors
        return result
