"""Backbones: pixels in, one map for each asked layer out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from manymatch.features.resize import Resize

if TYPE_CHECKING:
    import torch

    from manymatch.features.network import Network

#: Maps by layer.
Maps: TypeAlias = "dict[int, torch.Tensor]"
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Backbone:
    """A frozen network that turns an image into dense descriptors.

    A subclass sets the attributes and writes `forward`, or has a network that is a list of
    operators; resizing, normalising, padding, device,
    dtype, debiasing, sampling and caching are done once, outside.
    """

    #: Under which it is registered.
    name: str
    #: Input pixels per cell.
    patch_size: int
    #: Length of a descriptor.
    dim: int
    #: Blocks, counted from 1; layer `num_layers` is the last.
    num_layers: int
    #: Normalisation of RGB values in [0, 1].
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    #: Licence of the weights.
    licence: str = "unknown"
    #: Resize policy that the weights were made for.
    resize: Resize = Resize()
    #: Centre of cell 0 along either axis, in input pixels (the first pixel's centre is 0); by
    #: default that of a cell which starts at pixel 0, ``(stride - 1) / 2``.
    origin: float | None = None
    #: Whether a final norm exists that `norm=True` applies to every layer.
    has_norm: bool = True
    #: Pixels by which the image is mirrored on every side before the network sees it, where
    #: convolutions would otherwise meet zeros; padding to whole patches is mirrored too.
    margin: int = 0
    #: Width and height of the input are multiples of this, and of the strides asked for.
    multiple: int = 1
    #: Whether layers may differ in `dim`; then `dim` is that of the last one.
    dim_varies: ClassVar[bool] = False
    #: The network: moved between devices, and hashed for the cache.
    module: torch.nn.Module | Network
    #: Names of the layers' values, where the network is a list of operators that takes "pixels".
    values: dict[int, str] = {}  # noqa: RUF012 - never changed

    def forward(self, pixels: torch.Tensor, layers: Sequence[int], norm: bool) -> Maps:
        """Compute maps.

        Parameters
        ----------
        pixels : (B, 3, H, W) tensor
            Normalised images, padded to whole patches, on the module's device.
        layers : sequence of int
            Which blocks, from 1 to `num_layers`, ascending. Blocks after the last one asked for
            should not be computed.
        norm : bool
            Apply the final norm, where the network has one.

        Returns
        -------
        dict of int to (B, D, H / patch_size, W / patch_size) tensors
            CLS, register and other prefix tokens dropped.
        """
        raise NotImplementedError

    def stride_of(self, layer: int) -> int:  # noqa: ARG002
        """Input pixels per cell of a layer, for networks whose layers differ."""
        return self.patch_size

    def origin_of(self, layer: int) -> float:
        """Centre of the first cell of a layer in input pixels."""
        return (self.stride_of(layer) - 1) / 2 if self.origin is None else self.origin
