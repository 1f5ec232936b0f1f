"""Patches of image pairs: their places in space and their descriptors by layer and rank."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import FloatArray, integer, refusal
from manymatch.features.debias import PositionalBasis, SpectrumExhaustedWarning, positional_bases
from manymatch.features.device import choose_device, library_versions, weights_hash
from manymatch.features.maps import checked_layers, dense_maps, module_device
from manymatch.features.registry import load_backbone
from manymatch.features.resize import Resize
from manymatch.geometry.pose_error import rotation_error_deg
from manymatch.io.image import load_image
from manymatch.runs.views import turned_back
from manymatch_paper.measures.recall import TAUS_CM, PatchTruth

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from manymatch.datasets.dataset import Dataset
    from manymatch.features.maps import FeatureMap
    from manymatch.io.pairs import Pair

# Bases of that many grids are kept.
_KEPT_BASES = 8
_CHOICE = re.compile(r"(?P<name>.+?)(:(?P<layers>[\d,\-]+))?(:(?P<ranks>[\d,]+))?")


@dataclasses.dataclass(frozen=True)
class Choice:
    """A backbone with the layers and debias ranks to try; None stands for a default.

    Parameters
    ----------
    name : str
        As `load_backbone` takes it.
    layers : tuple of int, optional
        Blocks from 1.
    ranks : tuple of int, optional
        Ranks of the positional subspace, ascending.
    """

    name: str
    layers: tuple[int, ...] | None = None
    ranks: tuple[int, ...] | None = None


def parsed_choice(text: str) -> Choice:
    """Read ``NAME[:LAYERS[:RANKS]]``, such as ``dinov3-vitl16:16-24:0,100,200``."""
    match = _CHOICE.fullmatch(text)
    if match is None:
        raise refusal("--backbone", "NAME, NAME:LAYERS or NAME:LAYERS:RANKS", text)
    layers, ranks = match["layers"], match["ranks"]
    return Choice(
        match["name"],
        None if layers is None else numbers(layers, "the layers of --backbone"),
        None if ranks is None else numbers(ranks, "the ranks of --backbone"),
    )


def numbers(text: str, name: str) -> tuple[int, ...]:
    """Read ``1,3,5-8`` as ascending whole numbers without repetition."""
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise ValueError(
                f"{name} must be whole numbers or ranges separated by commas, got {text!r}"
            )
        found.update(range(int(low), int(high if dash else low) + 1))
    if not found:
        raise ValueError(f"{name} must hold at least one number, got {text!r}")
    return tuple(sorted(found))


class PatchSource:
    """Computes the patches of pairs with one backbone.

    Parameters
    ----------
    choice : Choice
        Backbone, layers (by default the last) and ranks (by default 0).
    longest : int
        Longer edge of the images in pixels; 0 leaves them as they are. A backbone with a budget
        of patches keeps its own.
    norm, probe
        As in `dense_maps` and `positional_bases`.
    weights, device, offline
        As in `load_backbone`, and where it runs.
    """

    def __init__(
        self,
        choice: Choice,
        *,
        longest: int = 1024,
        norm: bool = True,
        probe: str = "black",
        weights: object = None,
        device: str = "auto",
        offline: bool = False,
    ) -> None:
        self.backbone = load_backbone(choice.name, weights=weights, offline=offline)
        self.backbone.module.to(choose_device(device))
        self.layers = tuple(checked_layers(choice.layers, self.backbone))
        self.ranks = tuple(choice.ranks or (0,))
        self.longest = integer(longest, "longest", 0, 65_536)
        self.norm, self.probe = norm, probe
        #: What one should know about layers and ranks, each sentence once.
        self.notes: dict[str, None] = {}
        self._bases: collections.OrderedDict[Any, dict[int, PositionalBasis]] = (
            collections.OrderedDict()
        )

    def header(self) -> dict[str, Any]:
        """Everything that decides the descriptors, for the journal of a run."""
        return {
            "backbone": self.backbone.name,
            "weights_hash": weights_hash(self.backbone.module),
            "layers": list(self.layers),
            "ranks": list(self.ranks),
            "longest": self.longest,
            "norm": self.norm,
            "probe": self.probe,
            "device": module_device(self.backbone.module).type,
            "versions": library_versions(),
        }

    def patches(
        self, dataset: Dataset, pair: Pair, taus_cm: Sequence[float] = TAUS_CM
    ) -> Iterator[tuple[int, int, PatchTruth, NDArray[np.float32], NDArray[np.float32]]]:
        """Go through (layer, rank, truth, descriptors of image 0, of image 1).

        A rank that a layer has no room for is left out, with a note.
        """
        if dataset.depth is None:
            raise ValueError(f"sets must have depth, got {dataset.name!r}, which has none")
        views = [dataset.depth(pair, side) for side in (0, 1)]
        found = [self._side(dataset, pair, side) for side in (0, 1)]
        for layer in self.layers:
            centres, rows, bases = zip(*(side[layer] for side in found), strict=True)
            truth = PatchTruth.of(views[0].points(centres[0]), views[1].points(centres[1]), taus_cm)
            for rank in self.ranks:
                room = min(len(basis.singular_values) for basis in bases) if rank else 0
                # A subspace that holds everything leaves nothing to compare.
                if rank and rank >= room:
                    self.notes[
                        f"{self.backbone.name}: layer {layer} has room for ranks below {room} only."
                    ] = None
                    continue
                desc0, desc1 = self._corrected(rows, bases, rank)
                yield layer, rank, truth, desc0, desc1

    def _corrected(
        self,
        rows: Sequence[NDArray[np.float32]],
        bases: Sequence[PositionalBasis | None],
        rank: int,
    ) -> list[NDArray[np.float32]]:
        """Remove position, and keep what is warned of as a note."""
        result = []
        for values, basis in zip(rows, bases, strict=True):
            if basis is None:
                result.append(values)
                continue
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", SpectrumExhaustedWarning)
                result.append(basis.apply(values, rank))
            self.notes.update(dict.fromkeys(str(warning.message) for warning in caught))
        return result

    def maps(self, image: NDArray[np.uint8], longest: int | None = None) -> dict[int, FeatureMap]:
        """Compute the maps of an image by layer, at another working size if one is given."""
        edge = self.longest if longest is None else longest
        resize = Resize(edge) if edge else Resize.none()
        if self.backbone.resize.patches is not None:
            resize = self.backbone.resize
        (maps,) = dense_maps([image], self.backbone, self.layers, norm=self.norm, resize=resize)
        return maps

    def corrected_map(self, maps: dict[int, FeatureMap], layer: int, rank: int) -> FeatureMap:
        """Remove position from one of the maps of an image."""
        dense = maps[layer]
        if rank == 0:
            return dense
        rows = dense.values.reshape(dense.dim, -1).T
        (corrected,) = self._corrected([rows], [self._positional(maps)[layer]], rank)
        values = np.ascontiguousarray(corrected.T).reshape(dense.values.shape)
        return dataclasses.replace(dense, values=values)

    def _side(
        self, dataset: Dataset, pair: Pair, side: int
    ) -> dict[int, tuple[FloatArray, NDArray[np.float32], PositionalBasis | None]]:
        """Compute, by layer, centres in pixels of the image, descriptors, and the basis."""
        image = load_image(pair.path1 if side else pair.path0)
        turns = pair.rot1 if side else pair.rot0
        turned = np.ascontiguousarray(np.rot90(image, turns))
        maps = self.maps(turned, dataset.longest1 if side else dataset.longest0)
        bases = self._positional(maps) if any(self.ranks) else {}
        result = {}
        size = (image.shape[1], image.shape[0])
        for layer, dense in maps.items():
            centres = turned_back(dense.centres(), turns, size)
            # A backbone that mirrors the image has cells beyond its edge; they are no patches.
            inside = ((centres >= -0.5) & (centres <= np.subtract(size, 0.5))).all(axis=1)
            rows = np.ascontiguousarray(dense.values.reshape(dense.dim, -1).T[inside])
            result[layer] = (centres[inside], rows, bases.get(layer))
        return result

    def _positional(self, maps: dict[int, FeatureMap]) -> dict[int, PositionalBasis]:
        """Find the bases of the maps' grids, or take them from earlier."""
        key = tuple(dense.grid for dense in maps.values())
        if key not in self._bases:
            self._bases[key] = positional_bases(
                maps, self.backbone, probe=self.probe, norm=self.norm
            )
            if len(self._bases) > _KEPT_BASES:
                self._bases.popitem(last=False)
        return self._bases[key]


def with_depth(dataset: Dataset) -> Dataset:
    """Keep the pairs whose depth is known; a set without any is refused."""
    known = tuple(pair for pair in dataset.pairs if pair.extra.get("depth", True))
    if dataset.depth is None or not known:
        raise ValueError(f"sets must have depth, got {dataset.title!r}, which has none")
    return dataclasses.replace(dataset, pairs=known)


def angle_deg(pair: Pair) -> float:
    """Angle between two views in degrees: the data set's own, else that of the true rotation."""
    known = pair.extra.get("angle_deg")
    if known is not None:
        return float(known)
    if pair.R is None:
        raise ValueError(
            f"sets must have the true pose of their pairs, got {pair.name0} - {pair.name1} without"
        )
    return rotation_error_deg(pair.R, np.eye(3))


def bin_names(bounds: Sequence[float]) -> list[str]:
    """Names of the bins between ascending bounds."""
    if len(bounds) < 2 or any(b <= a for a, b in itertools.pairwise(bounds)):
        raise ValueError(f"bins must be two or more ascending angles, got {list(bounds)}")
    return [f"[{a:g}°, {b:g}°)" for a, b in itertools.pairwise(bounds)]


def bin_of(angle: float, bounds: Sequence[float]) -> int | None:
    """Find the number of the bin [low, high) an angle is in; None if it is in none."""
    place = int(np.searchsorted(np.asarray(bounds), angle, "right")) - 1
    return place if 0 <= place < len(bounds) - 1 else None
