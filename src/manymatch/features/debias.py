"""Removal of the positional part of descriptors (INSID3).

A network is shown an image without content. What varies over its features then is position. The
strongest directions of that variation span the subspace that is projected out of all descriptors of
the same layer and input size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manymatch._validate import choice, float_array, integer, refusal
from manymatch.features.maps import FeatureMap, first_cell, normalised, run_backbone, unit_rows

if TYPE_CHECKING:
    from manymatch.features.backbones import Backbone

#: Probes by name.
PROBES = ("black", "grey", "noise")

# A direction along which the tokens of the probe, of length one, vary by less than this (root mean
# square) is the rounding of a float32 network, not position.
_ROUNDING = 32 * float(np.finfo(np.float32).eps)
# A descriptor of length one that is shorter than this afterwards lay in the subspace.
_NOTHING = 1e-6


@dataclasses.dataclass(frozen=True, eq=False)
class PositionalBasis:
    """Directions of the positional subspace of one network, layer and size, strongest first.

    One decomposition serves all ranks: the basis of rank s is the first s columns.

    Attributes
    ----------
    vectors : (D, R) float32 ndarray
        Orthonormal columns; R counts those above rounding.
    singular_values : (min(D, N),) float64 ndarray
        All of them, falling; N is the number of cells.
    """

    vectors: NDArray[np.float32]
    singular_values: NDArray[np.float64]

    @classmethod
    def from_map(cls, values: ArrayLike) -> PositionalBasis:
        """Decompose the features of a probe, (D, rows, columns) as in `FeatureMap.values`."""
        array = float_array(values, "values", "a (D, rows, columns) array", (None, None, None))
        if not array.size:
            raise refusal("values", "a (D, rows, columns) array without empty axes", array)
        tokens = unit_rows(np.ascontiguousarray(array.reshape(len(array), -1).T))
        centred = tokens - tokens.mean(axis=0)
        if len(centred) > len(array):
            # The triangle has the same right singular vectors, and fewer rows.
            centred = np.asarray(np.linalg.qr(centred, mode="r"))
        left, singular, _ = np.linalg.svd(centred.T, full_matrices=False)
        above = int(np.count_nonzero(singular > _ROUNDING * np.sqrt(len(tokens))))
        return cls(np.ascontiguousarray(left[:, :above], dtype=np.float32), singular)

    @property
    def dim(self) -> int:
        """Length of a descriptor."""
        return len(self.vectors)

    @property
    def rank(self) -> int:
        """Number of directions in which position shows, the largest rank of use."""
        return int(self.vectors.shape[1])

    def apply(self, descriptors: ArrayLike, rank: int) -> NDArray[np.float32]:
        """Project the first `rank` directions out of (N, D) descriptors of any length.

        The mean of the probe is not subtracted. The result is float32 of length one; a descriptor
        of zeros stays, and one that lies in the subspace becomes zeros. Rank 0 only normalises, and
        a rank beyond `self.rank` uses all directions, see `shortfall`.
        """
        want = f"an (N, {self.dim}) array of descriptors"
        checked = float_array(descriptors, "descriptors", want, (None, self.dim))
        units = unit_rows(checked).astype(np.float32)
        limit = len(self.singular_values)
        if integer(rank, "debias", 0) > limit:
            what = "descriptor length" if limit == self.dim else "number of cells"
            raise ValueError(f"debias must be at most the {what}, {limit}, got {rank}")
        if rank == 0:
            return units
        basis = self.vectors[:, :rank]
        left_over = units - (units @ basis) @ basis.T
        left_over[np.linalg.norm(left_over, axis=1) < _NOTHING] = 0.0
        # Where little is left, rounding is not small beside it: again, now at full length.
        left_over = unit_rows(left_over.astype(np.float32))
        return unit_rows((left_over - (left_over @ basis) @ basis.T).astype(np.float32))


def shortfall(removed: int, wanted: int) -> list[str]:
    """Say in one sentence that fewer directions were removed than asked for; nothing if not."""
    if removed >= wanted:
        return []
    return [
        f"debias {wanted} removed {removed} directions: position shows in no more above the "
        "rounding of the network."
    ]


def probe_image(probe: object, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Make an image of (width, height) without content: "black", "grey" or "noise".

    The noise is uniform, independent for every pixel and colour, and always the same.
    """
    width, height = (integer(n, "size", 1) for n in size)
    if choice(probe, "probe", PROBES) == "noise":
        return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return np.full((height, width, 3), 0 if probe == "black" else 128, dtype=np.uint8)


def positional_bases(
    maps: Mapping[int, FeatureMap],
    backbone: Backbone,
    *,
    probe: object = "black",
    norm: bool = True,
) -> dict[int, PositionalBasis]:
    """Find the positional subspace of every layer of maps that `dense_maps` made of one image.

    The probe is as large as the network's input, padding included, and all of its cells count, so
    images that are padded to one size share their bases. (With a margin, the cells of the map
    count.) It always runs in float32. `norm` must be as `backbone` computed the maps.
    """
    sizes = {dense.input_size for dense in maps.values()}
    size = sizes.pop() if len(sizes) == 1 else None
    if size is None:
        raise ValueError("maps must be what dense_maps made of one image, got others")
    pixels = normalised(probe_image(probe, size), backbone)[None]
    bases = {}
    for layer, (values,) in run_backbone(backbone, pixels, sorted(maps), norm=norm).items():
        first, (rows, columns) = first_cell(backbone, layer), maps[layer].grid
        cells = values[:, first : first + rows, first : first + columns]
        bases[layer] = PositionalBasis.from_map(cells if backbone.margin else values)
    return bases
