"""What a backbone is: pixels in, one map for each asked layer out."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, ClassVar

from manymatch.features.resize import Resize

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Backbone(abc.ABC):
    """A frozen network that turns an image into dense descriptors.

    A subclass sets the attributes and writes `forward`; resizing, normalising, padding, device,
    dtype, debiasing, sampling and caching are done once, outside.

    Attributes
    ----------
    name : str
        Under which it is registered.
    patch_size : int
        Input pixels per cell.
    dim : int
        Length of a descriptor.
    num_layers : int
        Blocks, counted from 1; layer `num_layers` is the last.
    mean, std : (3,) floats
        Normalisation of RGB values in [0, 1].
    licence : str
        Of the weights.
    resize : Resize
        Policy the weights were made for.
    origin : float, optional
        Centre of cell 0 along either axis, in input pixels (the first pixel's centre is 0); by
        default that of a patch which starts at pixel 0, ``(patch_size - 1) / 2``.
    has_norm : bool
        Whether a final norm exists that `norm=True` applies to every layer.
    margin : int
        Pixels by which the image is continued as in a mirror on every side before the network sees
        it, where convolutions would otherwise meet the zeros around it; what is added to fill
        whole patches is mirrored too.
    multiple : int
        Width and height of the input are multiples of this, besides of the strides asked for.
    module : torch.nn.Module
        The network: moved between devices, and hashed for the cache.
    """

    name: str
    patch_size: int
    dim: int
    num_layers: int
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    licence: str = "unknown"
    resize: Resize = Resize()
    origin: float | None = None
    has_norm: bool = True
    margin: int = 0
    multiple: int = 1
    #: Whether layers may differ in `dim`; then `dim` is that of the last one.
    dim_varies: ClassVar[bool] = False
    module: torch.nn.Module

    @abc.abstractmethod
    def forward(
        self, pixels: torch.Tensor, layers: Sequence[int], norm: bool
    ) -> dict[int, torch.Tensor]:
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

    @property
    def cell_origin(self) -> float:
        """Centre of the first cell in input pixels."""
        return (self.patch_size - 1) / 2 if self.origin is None else self.origin

    def stride_of(self, layer: int) -> int:  # noqa: ARG002
        """Input pixels per cell of a layer, for networks whose layers differ."""
        return self.patch_size

    def origin_of(self, layer: int) -> float:  # noqa: ARG002
        """Centre of the first cell of a layer in input pixels."""
        return self.cell_origin
