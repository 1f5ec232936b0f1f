"""The positional bases of a backbone, from an image without content on the same grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from manymatch.features.debias import PositionalBasis, probe_image
from manymatch.features.dense import dense_maps
from manymatch.features.resize import Resize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from manymatch.features.backbone import Backbone
    from manymatch.features.feature_map import FeatureMap


def positional_bases(
    maps: Mapping[int, FeatureMap],
    backbone: Backbone,
    *,
    probe: object = "black",
    norm: bool = True,
    precision: str = "auto",
) -> dict[int, PositionalBasis]:
    """Find the positional subspace of every layer.

    The probe is as large as the whole cells of the maps, so that nothing is padded and nothing but
    the grid counts: images of one grid share their bases.

    Parameters
    ----------
    maps : dict of int to FeatureMap
        Maps to be corrected, by layer.
    backbone : Backbone
        That computed them.
    probe : {"black", "grey", "noise"}, array or pathlib.Path
        See `probe_image`.
    norm, precision
        As they were computed with.

    Returns
    -------
    dict of int to PositionalBasis
    """
    layers_of: dict[tuple[int, int], list[int]] = {}
    for layer, dense in maps.items():
        rows, columns = dense.grid
        stride = backbone.stride_of(layer)
        layers_of.setdefault((columns * stride, rows * stride), []).append(layer)
    bases = {}
    for size, layers in layers_of.items():
        image = probe_image(probe, size)
        (found,) = dense_maps(
            [image], backbone, layers, norm=norm, resize=Resize.none(), precision=precision
        )
        bases.update({k: PositionalBasis.from_map(value.values) for k, value in found.items()})
    return bases
