"""Where an evaluation gets its graphs: files, images with features, synthetic scenes."""

from __future__ import annotations

import abc
import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from manymatch import __version__
from manymatch.associate.candidates import NEAREST, Association
from manymatch.associate.merge import merge_graphs
from manymatch.batch.batch import local_order, pairs_identity
from manymatch.batch.work import Views
from manymatch.features.device import PRECISIONS
from manymatch.features.extractor import Features
from manymatch.features.feature_config import FEATURE_PRESETS, FeatureConfig
from manymatch.features.registry import find_model, models
from manymatch.features.weight_files import sha256_of, weight_files
from manymatch.features.weights import RANDOM, locate
from manymatch.graph import AssociationGraph
from manymatch.io.files import as_folder, read_bytes
from manymatch.io.pairs import Pair
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.matcher import Matcher, Source
from manymatch_lab.checks import integer, suggest
from manymatch_lab.datasets import registry
from manymatch_lab.datasets.dataset import Dataset
from manymatch_lab.datasets.folder import SET_FILE, list_of
from manymatch_lab.datasets.registry import SetSettings
from manymatch_lab.datasets.synthetic import CONFIGS, make_scene
from manymatch_lab.evaluate.posed_graph import PosedGraph, is_posed_graph, read_posed_graph

#: Scenes of a synthetic set.
NUM_SCENES = 100

# Pairs of a set of which at least one image must exist.
_FIRST = 20
_SYNTHETIC = "synthetic:"
_FORMS = (
    "the name of a data set (manymatch datasets), NAME:FOLDER, a folder with a list of pairs, such "
    "a list, a set's TOML file, a folder of posed graphs, or synthetic:CONFIGURATION"
)


class GraphReader(abc.ABC):
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

    def about(self, index: int) -> dict[str, str]:
        """Return the names, scene and bin of a pair, also of one that cannot be read."""
        del index
        return dict.fromkeys(("name0", "name1", "scene", "bin"), "")

    def order(self) -> Iterable[int]:
        """Return the pairs in the order in which they should be processed."""
        return range(len(self))


class FileGraphs(GraphReader):
    """The posed graphs of one folder, one .npz a pair, in the order of their names."""

    def __init__(self, folder: Path, representation: str) -> None:
        self.name = self.title = folder.resolve().name
        self.representation = representation
        self._paths = sorted(folder.glob("*.npz"))

    @classmethod
    def find(cls, spec: str) -> list[FileGraphs]:
        """Find the folders of posed graphs at or below a folder.

        A set is a folder of .npz files; its representation is the name of the folder above. Given
        the folder above, or the one above that, all sets in it are found.
        """
        folder = Path(spec)
        if not folder.is_dir():
            return []
        for places in ([folder], folder.glob("*"), folder.glob("*/*")):
            found = []
            for path in sorted(places):
                first = min(path.glob("*.npz"), default=None)
                if first is not None and is_posed_graph(first):
                    found.append(cls(path, path.resolve().parent.name))
            if found:
                return found
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

    def about(self, index: int) -> dict[str, str]:
        """Return the names that a file without any has, by its own."""
        stem = self._paths[index].stem
        return {**super().about(index), "name0": f"{stem}-0", "name1": f"{stem}-1"}


class SyntheticGraphs(GraphReader):
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
            f"{index}-0",
            f"{index}-1",
            *(scene.graph, scene.camera0, scene.camera1, scene.size, scene.size),
            *(scene.pose.R, scene.pose.t),
            seed_index=index + 1,
            scene=str(index),
            true_edges=scene.is_true,
        )


class ImageGraphs(GraphReader):
    """Raw candidate graphs of a data set with true poses, with the features of a matcher.

    Features are associated by the operator of the matcher, with k candidates per keypoint; its
    caps, filter and estimator are not used. Candidates are kept in its cache, if it has one, and
    `memory_mb` of features in memory.
    """

    def __init__(self, dataset: Dataset, matcher: Matcher, k: int = 5, memory_mb: int = 512):
        dataset.require_truth()
        self.name = dataset.set_name
        self.title = dataset.title
        self.representation = representation_of(matcher.config)
        self.notes = dataset.notes
        self._dataset = dataset
        self._matcher = matcher
        self._k = k
        self._views = Views(matcher, memory_mb * 1_000_000)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that decides the graphs: features, association, pairs and versions."""
        dataset, config = self._dataset, self._matcher.config
        found, sources = self._matcher.extractor.device, config.sources
        device = "auto" if found is None else found.type
        made_of: dict[str, Any]
        if len(sources) > 1 or sources[0].name not in FEATURE_PRESETS:
            of_graph = ("name", "k", "operator", "matcher", *FeatureConfig.__dataclass_fields__)
            whole = [source.to_dict() | self._how(source.association) for source in sources]
            made_of = {
                "sources": [{n: v for n, v in one.items() if n in of_graph} for one in whole]
            }
        else:
            association = sources[0].association
            made_of = {"features": sources[0].features.to_dict(), **self._how(association)}
            if association.matcher != NEAREST:
                made_of["matcher"] = association.matcher
        return {
            "representation": self.representation,
            "preset": config.preset,
            **made_of,
            "other_weights": other_weights(
                sources[0].features.descriptor, sources[0].features.weights
            ),
            **pair_list(dataset),
            **pairs_identity(dataset.pairs, device, network=config.needs_torch),
        }

    def _how(self, association: Association) -> dict[str, Any]:
        """Arguments of the association: a source of several has at most its own candidates."""
        several = len(self._matcher.sources) > 1
        k = min(self._k, association.k) if several else self._k
        return {"k": k, "operator": association.operator}

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> PosedGraph:
        dataset, sources = self._dataset, self._matcher.sources
        pair = dataset.pairs[index]
        view0 = self._views.get(pair.path0, pair.rot0, dataset.longest0)
        view1 = self._views.get(pair.path1, pair.rot1, dataset.longest1)
        each = zip(sources, view0.features, view1.features, strict=True)
        graphs = [self._graph(pair, *one) for one in each]
        names = [source.config.name for source in sources]
        features0, features1 = view0.features[0], view1.features[0]
        return PosedGraph.of_pair(
            pair,
            index,
            graph=graphs[0] if len(graphs) == 1 else merge_graphs(graphs, names),
            camera0=view0.camera_in(pair, 0).camera,
            camera1=view1.camera_in(pair, 1).camera,
            size0=features0.size,
            size1=features1.size,
            working0=features0.working_size,
            working1=features1.working_size,
            debiased=min(features0.debiased, features1.debiased) or None,
        )

    def _graph(
        self, pair: Pair, source: Source, features0: Features, features1: Features
    ) -> AssociationGraph:
        """Associate, or find the candidates beside the features that they were made of."""
        how = self._how(source.config.association)
        key: dict[str, Any] = {
            "kind": "candidates",
            "features": [features0.provenance, features1.provenance],
            "turns": [pair.rot0, pair.rot1],
            "version": __version__,
        }
        cache = source.extractor.cache
        if source.matcher is None:
            key |= how
        elif (settings := source.matcher.settings()) is None:
            cache = None
        else:
            key |= {"matcher": source.matcher.name, "settings": settings}
        kept = None if cache is None else cache.read(key)
        if kept is not None:
            return AssociationGraph(
                kept.get("points0", features0.points),
                kept.get("points1", features1.points),
                *(kept["edges"], kept["similarity"], kept["rank"]),
                prior=kept.get("prior"),
            )
        whole = Association(**how, max_edges=None, gms=False, keep=None)
        graph = source.candidates(features0, features1, whole).graph
        names = ["edges", "similarity", "rank"]
        if source.matcher is not None:
            names += ["prior", "points0", "points1"][: 3 if source.config.takes_images else 1]
        arrays = {name: getattr(graph, name) for name in names}
        if cache is not None and all(array is not None for array in arrays.values()):
            cache.write(key, arrays)
        return graph

    def about(self, index: int) -> dict[str, str]:
        """Return the names, scene and bin of a pair."""
        return about_pair(self._dataset.pairs[index])

    def order(self) -> Iterable[int]:
        """Put pairs of the same images close to each other, as features are kept for a while."""
        return local_order(self._dataset.pairs)


def representation_of(config: MatcherConfig) -> str:
    """Name the features of a configuration as tables and folders do: preset, other precisions."""
    precisions = {source.features.precision for source in config.sources}
    return "-".join([config.preset, *sorted(precisions - {PRECISIONS[0]})])


def pair_list(dataset: Dataset) -> dict[str, Any]:
    """Return the part of an identity that says which pairs of a set there are, at which sizes."""
    pairs = pairs_identity(dataset.pairs, "cpu", network=False)
    return {
        "set": dataset.set_name,
        "paper_list": dataset.paper_list,
        "longest": [dataset.longest0, dataset.longest1],
        **{name: pairs[name] for name in ("pair_count", "pair_list_hash")},
    }


def other_weights(descriptor: str, weights: str | None) -> list[str]:
    """Name the file of a backbone if it matters that it is not the one of the paper's code."""
    if descriptor not in models() or weights == RANDOM:
        return []
    model = find_model(descriptor)
    place = locate(model) if weights is None else Path(weights)
    if place is None or not model.checkpoint_why:
        return []
    files = weight_files(place) if place.is_dir() else [place]
    wanted = model.sha256.get(model.published or "", "")
    if any(sha256_of(file).startswith(wanted) for file in files):
        return []
    return [f"weights {', '.join(f.name for f in files)} instead of {model.published}"]


def about_pair(pair: Pair) -> dict[str, str]:
    """Return the names, scene and bin of a pair of a data set, as `GraphReader.about` does."""
    about = {"name0": pair.name0, "name1": pair.name1, "scene": pair.scene}
    return {**about, "bin": str(pair.extra.get("bin", ""))}


def open_graphs(
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
    images: object = None,
) -> list[GraphReader]:
    """Open sets by what a user calls them, image sets once for every preset.

    Parameters
    ----------
    specs : sequence of str
        Each the name of a data set, ``NAME:FOLDER``, a folder with a list of pairs or such a list,
        a file of settings of a set, a folder of posed graphs (or of folders of them, by set or by
        representation and set), or ``synthetic:CONFIGURATION``.
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
        Working size of the first and of the second images in place of the sets' own.
    images : path, optional
        Folder of the images of lists of pairs, if they are not beside the list.
    """
    integer(k, "k", 1)
    if not specs:
        raise ValueError(f"sets must name at least one set, got none; a set is {_FORMS}")
    sources: list[GraphReader] = []
    named: list[SetSettings] = []
    below: list[SetSettings] = []
    for spec in dict.fromkeys(specs):
        if spec.startswith(_SYNTHETIC):
            sources.append(SyntheticGraphs(spec.removeprefix(_SYNTHETIC), k))
        elif folders := FileGraphs.find(spec):
            sources += folders
        else:
            found = registry.find(spec, root)
            if found is not None:
                named.append(found)
            else:
                below += _below(spec)
    # A set that is named itself, maybe with settings, is not also one of those below a folder.
    places = {_place(one) for one in named}
    chosen = [one for one in below if _place(one) not in places] + named
    if images is not None:
        place = as_folder(images, "images").absolute()
        chosen = [
            dataclasses.replace(one, options={**one.options, "images": place}) for one in chosen
        ]
    datasets = [_resized(one.load(), longest) for one in chosen]
    for dataset in datasets:
        dataset.require_truth()
        first = [path for pair in dataset.pairs[:_FIRST] for path in (pair.path0, pair.path1)]
        if not any(path.is_file() for path in first):
            raise ValueError(
                f"images of {dataset.set_name} must be files, got {str(first[0])!r}, which is not "
                "there; --images names the folder of the images of a list"
            )
    refuse_namesakes([(source.representation, source.name) for source in sources])
    refuse_namesakes([("", dataset.set_name) for dataset in datasets])
    if datasets:
        for preset in presets:
            matcher = Matcher(preset, device=device, offline=offline, cache=cache)
            # A missing package or missing weights concern all pairs.
            matcher.load()
            sources += [ImageGraphs(dataset, matcher, k, memory_mb) for dataset in datasets]
    return sources


def open_datasets(
    spec: str, root: object = None, longest: tuple[int | None, int | None] = (None, None)
) -> list[Dataset]:
    """Open what a text names: a data set, or all folders with a list of pairs below a folder.

    Parameters are those of `open_graphs`.
    """
    found = registry.find(spec, root)
    return [_resized(one.load(), longest) for one in ([found] if found else _below(spec))]


def _resized(dataset: Dataset, longest: tuple[int | None, int | None]) -> Dataset:
    """Give a set the working sizes that a caller wants; notes say which they replace."""
    given: dict[str, Any] = {
        f"longest{side}": value for side, value in enumerate(longest) if value is not None
    }
    replaced = [
        f"{dataset.set_name}: {name} {value} as asked for, instead of the set's own {own}"
        for name, value in given.items()
        if (own := getattr(dataset, name)) not in (None, value)
    ]
    return dataclasses.replace(dataset, **given, notes=(*dataset.notes, *replaced))


def _below(spec: str) -> list[SetSettings]:
    """Find the sets in a folder of sets; a list of pairs by another name makes it one itself."""
    folder = Path(spec)
    if spec.startswith(_SYNTHETIC):
        raise ValueError(f"set must have images, got {spec!r}, which has candidates only")
    if not folder.is_dir():
        known = [*registry.names(), *(f"{_SYNTHETIC}{name}" for name in CONFIGS)]
        raise ValueError(f"set must be {_FORMS}, got {spec!r}{suggest(spec, known)}")
    below = (registry.find(path) for path in sorted(folder.iterdir()) if path.is_dir())
    if several := [one for one in below if one is not None]:
        return several
    try:
        list_of(folder)
    except ValueError as error:
        raise ValueError(f"set must be {_FORMS}, got the folder {spec!r} ({error})") from error
    return [SetSettings(root=folder)]


def _place(found: SetSettings) -> tuple[str, Path]:
    return found.dataset, Path(str(found.root)).resolve()


def refuse_namesakes(keys: Sequence[tuple[str, str]]) -> None:
    """Refuse two sets whose results would be kept in one folder."""
    for place, (_, name) in enumerate(keys):
        if keys[place] in keys[:place]:
            raise ValueError(
                "sets must have different names, by which their results are kept, got two called "
                f"{name!r}; a file {SET_FILE} can give another (docs/reference/datasets.md)"
            )
