"""Where an evaluation gets its graphs: files, images with features, synthetic scenes."""

from __future__ import annotations

import abc
import dataclasses
import hashlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manymatch import __version__, datasets
from manymatch._files import read_bytes
from manymatch._validate import integer, suggest
from manymatch.associate.candidates import candidates
from manymatch.datasets.synthetic import CONFIGS, make_scene
from manymatch.evaluate.posed_graph import PosedGraph, is_posed_graph, read_posed_graph
from manymatch.features.device import PRECISIONS
from manymatch.graph import AssociationGraph
from manymatch.matcher.matcher import Matcher, association_arguments
from manymatch.runs.batch import pairs_identity
from manymatch.runs.views import Views, tiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from manymatch.datasets.dataset import Dataset
    from manymatch.features.extractor import Features
    from manymatch.io.pairs import Pair

#: Scenes of a synthetic set.
NUM_SCENES = 100

_SYNTHETIC = "synthetic:"
_FORMS = (
    "the name of a data set (manymatch datasets), NAME:FOLDER, a folder with a list of pairs, a "
    "folder of posed graphs, or synthetic:CONFIGURATION"
)


class GraphSource(abc.ABC):
    """Posed graphs of one set in one representation; safe to use from several threads.

    The set has a name for files and a title for people; the representation is what the candidates
    come from, such as a preset. Notes are remarks, to be shown with the results.
    """

    name: str
    title: str
    representation: str
    notes: tuple[str, ...] = ()

    @property
    @abc.abstractmethod
    def identity(self) -> dict[str, Any]:
        """Everything that decides the graphs, in JSON types."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def __getitem__(self, index: int) -> PosedGraph: ...

    def order(self, indices: Sequence[int]) -> Sequence[int]:
        """Return the pairs in the order in which they should be processed."""
        return indices


class FileSource(GraphSource):
    """The posed graphs of one folder, one .npz a pair, in the order of their names."""

    def __init__(self, folder: Path, representation: str) -> None:
        self.name = self.title = folder.resolve().name
        self.representation = representation
        self._paths = sorted(folder.glob("*.npz"))

    @classmethod
    def find(cls, spec: str) -> list[FileSource]:
        """Find the folders of posed graphs at or below a folder.

        A set is a folder of .npz files; its representation is the name of the folder above. Given
        the folder above, or the one above that, all sets in it are found.
        """
        folder = Path(spec)
        if not folder.is_dir():
            return []
        for places in ([folder], folder.glob("*"), folder.glob("*/*")):
            found = sorted(path for path in places if _has_graphs(path))
            if found:
                return [cls(path, path.resolve().parent.name) for path in found]
        return []

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that decides the graphs: the files' names and contents."""
        digest = hashlib.sha256()
        for path in self._paths:
            content = read_bytes(path, "a graph file")
            digest.update(path.name.encode() + b"\0" + hashlib.sha256(content).digest())
        return {
            "set": self.name,
            "representation": self.representation,
            "pair_count": len(self._paths),
            "graph_files_hash": digest.hexdigest(),
        }

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> PosedGraph:
        return read_posed_graph(self._paths[index], index + 1)


def _has_graphs(folder: Path) -> bool:
    first = min(folder.glob("*.npz"), default=None)
    return first is not None and is_posed_graph(first)


class SyntheticSource(GraphSource):
    """Scenes of one of the `CONFIGS`, of the seeds 0, 1, 2 and so on; graphs without any image."""

    representation = "synthetic"

    def __init__(self, name: str, k: int = 5) -> None:
        if name not in CONFIGS:
            raise ValueError(
                f"{_SYNTHETIC} must be followed by one of {', '.join(CONFIGS)}, got "
                f"{name!r}{suggest(name, CONFIGS)}"
            )
        self.name, self.title = f"synthetic-{name}", f"synthetic, {name}"
        self._config = dataclasses.replace(CONFIGS[name], k=k)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that decides the graphs."""
        return {"set": self.name, "scene": dataclasses.asdict(self._config)}

    def __len__(self) -> int:
        return NUM_SCENES

    def __getitem__(self, index: int) -> PosedGraph:
        if not 0 <= index < NUM_SCENES:
            raise IndexError(index)
        scene = make_scene(self._config, index)
        return PosedGraph(
            name0=f"{index}-0",
            name1=f"{index}-1",
            graph=scene.graph,
            camera0=scene.camera0,
            camera1=scene.camera1,
            size0=scene.size,
            size1=scene.size,
            R=scene.pose.R,
            t=scene.pose.t,
            seed_index=index + 1,
            scene=str(index),
            true_edges=scene.is_true,
        )


class ImageSource(GraphSource):
    """Raw candidate graphs of a data set with true poses, with the features of a matcher.

    Features are associated by the operator of the matcher, with k candidates per keypoint; its
    caps, filter and estimator are not used. Candidates are kept in its cache, if it has one, and
    `memory_mb` of features in memory.
    """

    def __init__(self, dataset: Dataset, matcher: Matcher, k: int = 5, memory_mb: int = 512):
        dataset.require_truth()
        self.name = dataset.set_name
        self.title = dataset.title
        precision = matcher.config.features.precision
        self.representation = matcher.config.preset
        if precision != PRECISIONS[0]:
            # Tables and folders name it.
            self.representation += f"-{precision}"
        self.notes = dataset.notes
        self._dataset = dataset
        self._matcher = matcher
        self._k = k
        self._views = Views(matcher, memory_mb * 1_000_000)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that decides the graphs: features, association, pairs and versions."""
        dataset, config = self._dataset, self._matcher.config
        device = self._matcher.extractor.device
        return {
            "set": self.name,
            "representation": self.representation,
            "preset": config.preset,
            "features": config.features.to_dict(),
            "k": self._k,
            "operator": config.association.operator,
            "longest": [dataset.longest0, dataset.longest1],
            **pairs_identity(
                dataset.pairs,
                "auto" if device is None else device.type,
                network=config.features.needs_torch,
            ),
        }

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> PosedGraph:
        dataset = self._dataset
        pair = dataset.pairs[index]
        view0 = self._views.get(pair.path0, pair.rot0, dataset.longest0)
        view1 = self._views.get(pair.path1, pair.rot1, dataset.longest1)
        camera0, camera1 = view0.camera_in(pair, 0).camera, view1.camera_in(pair, 1).camera
        features0, features1 = view0.features, view1.features
        return PosedGraph.of_pair(
            pair,
            index,
            graph=self._graph(pair, features0, features1),
            camera0=camera0,
            camera1=camera1,
            size0=features0.size,
            size1=features1.size,
            working0=features0.working_size,
            working1=features1.working_size,
        )

    def _graph(self, pair: Pair, features0: Features, features1: Features) -> AssociationGraph:
        """Associate, or find the candidates beside the features that they were made of."""
        cache = self._matcher.extractor.cache
        how: dict[str, Any] = {"k": self._k, "operator": self._matcher.config.association.operator}
        key = {
            "kind": "candidates",
            "features": [features0.provenance, features1.provenance],
            "turns": [pair.rot0, pair.rot1],
            "version": __version__,
            **how,
        }
        kept = None if cache is None else cache.read(key)
        if kept is not None:
            edges = (kept["edges"], kept["similarity"], kept["rank"])
            return AssociationGraph(features0.points, features1.points, *edges)
        graph = candidates(
            **association_arguments(features0, features1),
            **how,
            max_edges=None,
            gms=False,
            keep=None,
        ).graph
        if cache is not None and graph.similarity is not None and graph.rank is not None:
            cache.write(
                key, {"edges": graph.edges, "similarity": graph.similarity, "rank": graph.rank}
            )
        return graph

    def order(self, indices: Sequence[int]) -> Sequence[int]:
        """Put pairs of the same images close to each other, as features are kept for a while."""
        return tiled(indices, self._dataset.pairs)


def open_sources(
    specs: Sequence[str],
    presets: Sequence[object] = (None,),
    *,
    root: object = None,
    k: int = 5,
    device: str = "auto",
    offline: bool = False,
    cache: object = None,
    memory_mb: int = 512,
    longest: tuple[int | None, int | None] = (None, None),
) -> list[GraphSource]:
    """Open sets by what a user calls them, image sets once for every preset.

    Parameters
    ----------
    specs : sequence of str
        Each the name of a data set, ``NAME:FOLDER``, a folder with a list of pairs, a folder of
        posed graphs (or of folders of them, by set or by representation and set), or
        ``synthetic:CONFIGURATION``.
    presets : sequence
        Presets, configurations or .toml files, as `Matcher` takes them, for sets of images.
    root : path, optional
        Folder of data sets that are given by name only: ``root/NAME`` if that exists, else
        `root` itself.
    k : int
        Candidates per keypoint of the raw graphs.
    device, offline, cache, memory_mb
        As in `run_batch`.
    longest : (int or None, int or None)
        Another working size of the first and of the second images, as in `Matcher.match`, for
        sets that do not say it themselves.

    Raises
    ------
    ValueError
        If a text is none of these, or a data set is not complete; the first missing thing is
        named.
    """
    integer(k, "k", 1)
    if not specs:
        raise ValueError(f"sets must name at least one set, got none; a set is {_FORMS}")
    sources: list[GraphSource] = []
    images: list[Dataset] = []
    for spec in specs:
        if spec.startswith(_SYNTHETIC):
            sources.append(SyntheticSource(spec.removeprefix(_SYNTHETIC), k))
        elif folders := FileSource.find(spec):
            sources += folders
        else:
            images += open_datasets(spec, root, longest)
    if images:
        for preset in presets:
            matcher = Matcher(preset, device=device, offline=offline, cache=cache)
            # A missing package or missing weights concern all pairs.
            _ = matcher.extractor.detector, matcher.extractor.backbone
            sources += [ImageSource(dataset, matcher, k, memory_mb) for dataset in images]
    return sources


def open_datasets(
    spec: str, root: object = None, longest: tuple[int | None, int | None] = (None, None)
) -> list[Dataset]:
    """Open what a text names: a data set, or all folders with a list of pairs below a folder.

    Parameters are those of `open_sources`.
    """
    found = []
    for dataset in _datasets(spec, root):
        own = (dataset.longest0, dataset.longest1)
        first, second = (b if a is None else a for a, b in zip(own, longest, strict=True))
        found.append(dataclasses.replace(dataset, longest0=first, longest1=second))
    return found


def _datasets(spec: str, root: object) -> list[Dataset]:
    name, colon, place = spec.partition(":")
    if colon and name in datasets.names():
        return [datasets.load(name, place)]
    if spec in datasets.names():
        if root is None:
            return [datasets.load(spec, None)]
        own = Path(str(root)) / spec
        return [datasets.load(spec, own if own.is_dir() else root)]
    folder = Path(spec)
    if folder.is_dir():
        below = [folder] if _has_list(folder) else sorted(filter(_has_list, folder.iterdir()))
        if below:
            return [datasets.load("folder", path) for path in below]
        raise ValueError(
            f"set must be {_FORMS}, got the folder {spec!r}, in which there is neither"
        )
    known = [*datasets.names(), *(f"{_SYNTHETIC}{name}" for name in CONFIGS)]
    raise ValueError(f"set must be {_FORMS}, got {spec!r}{suggest(spec, known)}")


def _has_list(folder: Path) -> bool:
    return (folder / "pairs.txt").is_file()
