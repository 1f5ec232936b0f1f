"""Dense features of image pairs with depth: descriptors of patches, and what their graphs recall.

Patches have a place in space by depth, and descriptors by layer and debias rank. Curves of recall
are computed pair by pair, resumably, and averaged by viewpoint bin.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import manymatch
from manymatch.batch.parts import num_pairs
from manymatch.features.debias import PositionalBasis, positional_bases, shortfall
from manymatch.features.device import (
    PRECISIONS,
    choose_device,
    library_versions,
    to_device,
    weights_hash,
)
from manymatch.features.maps import FeatureMap, checked_layers, dense_maps, module_device
from manymatch.features.registry import load_backbone
from manymatch.features.resize import RULES, Resize, turned_back
from manymatch.geometry.pose import rotation_error_deg
from manymatch.io.files import safe_name
from manymatch.io.image import load_image
from manymatch.io.pairs import Pair
from manymatch_lab.checks import FloatArray, count, integer, refusal
from manymatch_lab.checks import choice as checked_choice
from manymatch_lab.datasets.dataset import Dataset
from manymatch_lab.evaluate.inputs import open_datasets, other_weights
from manymatch_lab.evaluate.protocol import unequal
from manymatch_lab.evaluate.records import Records, run_pairs
from manymatch_lab.evaluate.tables import Table
from manymatch_lab.flags import Limit, Root, whole_numbers
from manymatch_lab.measures.recall import TAUS_CM, PatchTruth, RecallCurve, macro_mean
from manymatch_lab.pose_runs import RunSets

#: Identifies a curve: (layer, rank) or (operator,).
Key: TypeAlias = tuple[Any, ...]
Backbone = Annotated[str, "A name of manymatch models, hf:<id> or timm:<model>."]
Layer = Annotated[int | None, "Block, from 1; by default the paper's, or the last one."]
Debias = Annotated[
    int | None, "Rank of the positional subspace to remove; by default the paper's, or 0."
]
Bins = Annotated[
    tuple[float, ...], "Bounds of the viewpoint bins in degrees; a bin holds its lower bound."
]
Taus = Annotated[
    tuple[float, ...],
    "Distances in cm below which patches are partners; recall is averaged over them.",
]

#: Text of a cell without a number.
NOTHING = "–"
#: Numbers of candidates whose recall stands in tables.
SHOWN_KS = (1, 2, 3, 5, 8, 16)
#: The layer and the debias rank that the paper fixed for its backbone.
PAPER_BACKBONE, PAPER_LAYER, PAPER_RANK = "dinov3-vitl16", 19, 200

# Grids whose bases are kept.
_KEPT_BASES = 8
_CHOICE = re.compile(r"(?P<name>.+?)(:(?P<layers>[\d,\-]+))?(:(?P<ranks>[\d,]+))?")


@dataclasses.dataclass(frozen=True)
class Choice:
    """A backbone, blocks from 1 and ascending ranks of the subspace; None stands for a default."""

    name: str
    layers: tuple[int, ...] | None = None
    ranks: tuple[int, ...] | None = None

    def __str__(self) -> str:
        layers, ranks = (",".join(map(str, part or ())) for part in (self.layers, self.ranks))
        return f"{self.name}:{layers}:{ranks}"


def parsed_choice(text: str) -> Choice:
    """Read ``NAME[:LAYERS[:RANKS]]``, such as ``dinov3-vitl16:16-24:0,100,200``."""
    match = _CHOICE.fullmatch(text)
    if match is None:
        raise refusal("--backbone", "NAME, NAME:LAYERS or NAME:LAYERS:RANKS", text)
    layers, ranks = (
        whole_numbers(match[part], f"the {part} of --backbone") if match[part] else None
        for part in ("layers", "ranks")
    )
    return Choice(match["name"], layers, ranks)


@dataclasses.dataclass(frozen=True)
class PatchSettings:
    """How the descriptors of patches are computed, for any backbone."""

    longest: Annotated[
        int,
        "Longer edge of the images in pixels; 0 is their own. A backbone with a budget of patches "
        "keeps its own.",
    ] = 1024
    resize: Annotated[str, "Rule of the resize, exact or paper."] = "paper"
    norm: Annotated[bool, "Apply the network's final norm."] = True
    probe: Annotated[
        str, "Image without content for the positional subspace: black, grey or noise."
    ] = "black"
    precision: Annotated[
        str,
        "Precision of the backbone's products and convolutions; that of the positional subspace is "
        "float32 always.",
    ] = PRECISIONS[0]
    weights: Annotated[str | None, 'File or folder of weights, or "random".'] = None
    device: Annotated[str, "Where networks run: auto, cuda, cuda:<n>, mps or cpu."] = "auto"
    offline: Annotated[bool, "Never download weights."] = False

    def one_layer(self, backbone: str, layer: int | None, rank: int | None) -> PatchExtractor:
        """Load a backbone with one layer and rank, by default the paper's or the last one and 0."""
        papers = backbone == PAPER_BACKBONE
        block = PAPER_LAYER if layer is None and papers else layer
        if rank is None:
            rank = PAPER_RANK if papers else 0
        return PatchExtractor(Choice(backbone, None if block is None else (block,), (rank,)), self)


class PatchExtractor:
    """Computes the patches of pairs with one backbone, by default its last layer and rank 0."""

    def __init__(self, choice: Choice, settings: PatchSettings | None = None) -> None:
        how = settings or PatchSettings()
        self.backbone = load_backbone(choice.name, weights=how.weights, offline=how.offline)
        to_device(self.backbone.module, choose_device(how.device))
        self.layers = tuple(checked_layers(choice.layers, self.backbone))
        self.ranks = tuple(choice.ranks or (0,))
        self.longest = integer(how.longest, "longest", 0, 65_536)
        self.resize = checked_choice(how.resize, "resize", RULES)
        self.precision = checked_choice(how.precision, "precision", PRECISIONS)
        self.norm, self.probe = how.norm, how.probe
        self._weights = choice.name, how.weights
        #: Limits of layers and ranks that were met, each sentence once.
        self.notes: dict[str, None] = {}
        self._bases: dict[Any, dict[int, PositionalBasis]] = {}

    def header(self) -> dict[str, Any]:
        """Return everything that decides the descriptors."""
        return {
            "backbone": self.backbone.name,
            "weights_hash": weights_hash(self.backbone.module),
            "layers": list(self.layers),
            "ranks": list(self.ranks),
            "longest": self.longest,
            "resize": self.resize,
            "precision": self.precision,
            "norm": self.norm,
            "probe": self.probe,
            "device": module_device(self.backbone.module).type,
            "versions": library_versions(),
        }

    @property
    def other_weights(self) -> list[str]:
        """The file of the weights, if it matters that it is not the one of the paper's code."""
        return other_weights(*self._weights)

    def differences(self) -> list[str]:
        """Say in which points one layer and rank differ from the paper's."""
        return [
            *unequal("backbone", self.backbone.name, PAPER_BACKBONE),
            *unequal("layer", self.layers[0], PAPER_LAYER),
            *unequal("debias", self.ranks[0], PAPER_RANK),
        ]

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
        """Remove position, and note where there are fewer directions than asked for."""
        result = []
        for values, basis in zip(rows, bases, strict=True):
            if basis is None:
                result.append(values)
                continue
            result.append(basis.apply(values, rank))
            self.notes.update(dict.fromkeys(shortfall(basis.rank, rank)))
        return result

    def maps(
        self, image: NDArray[np.uint8], longest: int | None = None, resize: Resize | None = None
    ) -> dict[int, FeatureMap]:
        """Compute the maps of an image by layer, at another working size if one is given.

        `resize` replaces the whole rule, also of a backbone with a budget of patches.
        """
        if resize is None:
            edge = self.longest if longest is None else longest
            resize = Resize(edge or None, rule=self.resize)
            if self.backbone.resize.patches is not None:
                resize = self.backbone.resize
        (maps,) = dense_maps(
            [image],
            self.backbone,
            self.layers,
            norm=self.norm,
            resize=resize,
            precision=self.precision,
            complete_only=True,
        )
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
        size = (image.shape[1], image.shape[0])
        return {
            layer: (*whole_patches(dense, size, turns), bases.get(layer))
            for layer, dense in maps.items()
        }

    def _positional(self, maps: dict[int, FeatureMap]) -> dict[int, PositionalBasis]:
        """Find the bases of the maps' grids, or take them from earlier."""
        key = tuple((dense.input_size, dense.grid) for dense in maps.values())
        if key not in self._bases:
            self._bases[key] = positional_bases(
                maps, self.backbone, probe=self.probe, norm=self.norm
            )
            if len(self._bases) > _KEPT_BASES:
                del self._bases[next(iter(self._bases))]
        return self._bases[key]


def whole_patches(
    dense: FeatureMap, size: tuple[int, int], turns: int = 0
) -> tuple[FloatArray, NDArray[np.float32]]:
    """Centres (N, 2) and descriptors (N, D) of the cells of a map that lie on the image.

    The image of `size` (width, height) was turned by `turns` quarters for the map. A backbone that
    mirrors the image has cells beyond its edge, which are not patches.
    """
    centres = turned_back(dense.centres(), turns, size)
    inside = ((centres >= -0.5) & (centres <= np.subtract(size, 0.5))).all(axis=1)
    return centres[inside], np.ascontiguousarray(dense.values.reshape(dense.dim, -1).T[inside])


def with_depth(dataset: Dataset) -> Dataset:
    """Keep the pairs whose depth is known; a set without any is refused."""
    known = tuple(pair for pair in dataset.pairs if pair.extra.get("depth", True))
    if dataset.depth is None or not known:
        raise ValueError(f"sets must have depth, got {dataset.title!r}, which has none")
    return dataclasses.replace(dataset, pairs=known)


class DepthSets(RunSets):
    """Sets of pairs with depth and true poses; every set and backbone has a run of its own."""

    @classmethod
    def from_flags(
        cls,
        sets: Annotated[
            Sequence[str],
            "Data sets with depth, by name (see manymatch datasets) or NAME:FOLDER, or folders "
            "with a list of pairs and depth/.",
        ],
        folder: Path,
        *,
        root: Root = None,
        limit: Limit = None,
        progress: Any = None,
    ) -> DepthSets:
        """Open sets."""
        found = [with_depth(dataset) for spec in sets for dataset in open_datasets(spec, root)]
        return cls(found, folder, limit=limit, progress=progress)

    def measure(
        self,
        experiment: str,
        dataset: Dataset,
        patches: PatchExtractor,
        curves_of: Callable[..., Iterable[tuple[Key, RecallCurve]]],
        *,
        k: int,
        taus_cm: Sequence[float],
        bins: Sequence[float],
    ) -> dict[str, Any]:
        """Compute the curves of a set that are not there yet, and average them by bin.

        `curves_of` computes curves from what `PatchExtractor.patches` gives. A folder of another
        experiment or with other settings is refused.
        """
        bin_names(bins)
        name = patches.backbone.name
        total = num_pairs(len(dataset), self.limit)
        kept = Records(
            self.folder / "runs" / safe_name(dataset.title) / safe_name(name),
            {
                "manymatch": manymatch.__version__,
                "set": dataset.name,
                "pair_list_hash": _hash(dataset),
                **patches.header(),
                "experiment": experiment,
                "k": k,
                "taus_cm": list(taus_cm),
            },
        )

        def work(index: int, _: object) -> dict[str, dict[str, Any]]:
            pair = dataset.pairs[index]
            found = patches.patches(dataset, pair, taus_cm)
            curves = [_written(*curve) for one in found for curve in curves_of(*one)]
            about = {"index": index, "scene": pair.scene, "angle_deg": angle_deg(pair)}
            return {"curves": {**about, "curves": curves, "notes": list(patches.notes)}}

        label = f"{dataset.title}, {name}"
        outcome = run_pairs({"curves": kept}, total, work, progress=self.progress, label=label)
        records = kept.first(total)
        outcome.raise_stop(records, len(records), total)
        patches.notes.update(dict.fromkeys(note for record in records for note in record["notes"]))
        return {
            "set": dataset.name,
            "title": dataset.title,
            "pairs": len(records),
            **by_bin(records, bins),
            "notes": [*dataset.notes, *patches.notes],
            "paper_list": dataset.paper_list,
            "differences": [*patches.other_weights, *patches.notes],
        }


@dataclasses.dataclass(frozen=True)
class OneSet:
    """One set of pairs, with depth or without."""

    dataset: Dataset

    @classmethod
    def from_flags(
        cls,
        data_set: Annotated[
            str,
            "A data set by name (see manymatch datasets) or NAME:FOLDER, or a folder with a list "
            "of pairs.",
        ],
        *,
        root: Root = None,
    ) -> OneSet:
        """Open a set."""
        found = open_datasets(data_set, root)
        if len(found) != 1:
            titles = ", ".join(dataset.title for dataset in found)
            raise ValueError(f"DATA_SET must be one set, got a folder of {len(found)}: {titles}")
        return cls(found[0])

    def pair(self, index: int) -> Pair:
        """Return a pair by its number."""
        return self.dataset.pairs[integer(index, "pair", 0, len(self.dataset) - 1)]


def angle_deg(pair: Pair) -> float:
    """Angle between two views in degrees, as the data set says or by the true rotation."""
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


def by_bin(records: Sequence[dict[str, Any]], bounds: Sequence[float]) -> dict[str, Any]:
    """Average the curves of pairs over objects in every bin [low, high).

    Returns ``bins`` (names, numbers of pairs and objects), ``left_out`` (pairs in no bin) and
    ``curves``, one entry a key and bin, with ``edges`` and ``recall`` at K = 1, 2, ... and
    ``recall_by_tau``. Recall is None where no pair of the bin has a true partner.
    """
    groups: list[list[tuple[str, dict[Key, RecallCurve]]]] = [[] for _ in bounds[1:]]
    for record in records:
        place = int(np.searchsorted(np.asarray(bounds), record["angle_deg"], "right")) - 1
        if 0 <= place < len(groups):
            groups[place].append((record["scene"], dict(map(_read, record["curves"]))))
    bins, entries = [], []
    for place, (name, group) in enumerate(zip(bin_names(bounds), groups, strict=True)):
        firsts = [next(iter(curves.values())).recall for _, curves in group if curves]
        # Pairs that have nothing to recall, one number a threshold.
        without = np.sum([np.isnan(recall[:, 0]) for recall in firsts], axis=0) if firsts else ()
        bins.append(
            {
                "name": name,
                "pairs": len(group),
                "objects": len({scene for scene, _ in group}),
                "without_partners": [int(number) for number in without],
            }
        )
        for key in dict.fromkeys(key for _, curves in group for key in curves):
            own = [(curves[key], scene) for scene, curves in group if key in curves]
            mean = macro_mean(*zip(*own, strict=True))
            entries.append(
                {
                    "key": list(key),
                    "bin": place,
                    "edges": mean.edges.tolist(),
                    "recall": _plain(mean.mean),
                    "recall_by_tau": [_plain(row) for row in mean.recall],
                }
            )
    left_out = len(records) - sum(map(len, groups))
    return {"bins": bins, "left_out": left_out, "curves": entries}


def _hash(dataset: Dataset) -> str:
    digest = hashlib.sha256()
    for pair in dataset.pairs:
        pose = [None if value is None else value.tolist() for value in (pair.R, pair.t)]
        cameras = [c and c.to_dict() for c in (pair.camera0, pair.camera1)]
        line = [pair.name0, pair.name1, pair.rot0, pair.rot1, *pose, *cameras]
        digest.update(json.dumps(line).encode() + b"\n")
    return digest.hexdigest()


def _plain(values: Any) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def _written(key: Key, curve: RecallCurve) -> dict[str, Any]:
    recall = list(map(_plain, curve.recall))
    return {"key": list(key), "edges": curve.edges.tolist(), "recall": recall}


def _read(entry: dict[str, Any]) -> tuple[Key, RecallCurve]:
    # None becomes NaN.
    recall = np.array(entry["recall"], dtype=np.float64)
    return tuple(entry["key"]), RecallCurve(np.array(entry["edges"], dtype=np.float64), recall)


def recall_table(where: str, curves: Iterable[tuple[str, dict[str, Any] | None]], k: int) -> Table:
    """Recall in percent and, in brackets, the number of edges at some K, a row a labelled curve."""
    ks = [n for n in SHOWN_KS if n <= k]
    rows = []
    for label, curve in curves:
        texts = [NOTHING] * len(ks)
        if curve is not None:
            points = [(curve["recall"][n - 1], curve["edges"][n - 1]) for n in ks]
            texts = [f"{100 * recall:.1f} ({edges:,.0f})" for recall, edges in points]
        rows.append([label, *texts])
    return Table(
        f"Recall in percent (edges a pair), {where}", ["", *(f"K = {n}" for n in ks)], rows
    )


def filled_bins(entry: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """Return the bins that have pairs, with their numbers."""
    return [(place, info) for place, info in enumerate(entry["bins"]) if info["pairs"]]


def known_curve(entry: dict[str, Any], place: int, **key: Any) -> dict[str, Any] | None:
    """Find the curve of a bin with these values of its key; None if its recall is not known."""
    for curve in entry["curves"]:
        if curve["bin"] == place and all(curve[name] == value for name, value in key.items()):
            return None if None in curve["recall"] else curve
    return None


def bin_notes(entry: dict[str, Any], taus_cm: Sequence[float], where: str) -> list[str]:
    """Say how many pairs and objects each bin of a set has, and what is missing from it."""
    bins = ", ".join(
        f"{place['name']} {count(place['pairs'], 'pair')} of {count(place['objects'], 'object')}"
        for _, place in filled_bins(entry)
    )
    left = f"; {count(entry['left_out'], 'pair')} in no bin" if entry["left_out"] else ""
    result = [f"{where}: {bins}{left}."]
    for place in entry["bins"]:
        empty = [
            f"{number} at {tau:g} cm"
            for tau, number in zip(taus_cm, place["without_partners"], strict=False)
            if number
        ]
        if empty:
            result.append(
                f"{where}, {place['name']}: pairs without a single true partner, of which only the "
                f"edges count: {', '.join(empty)}."
            )
    return result + [f"{where}: {note}" for note in entry["notes"]]
