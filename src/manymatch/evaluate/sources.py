"""Where an evaluation gets its graphs: files, images with features, made scenes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from manymatch import datasets
from manymatch._validate import integer, suggest
from manymatch.datasets.synthetic import CONFIGS
from manymatch.evaluate.source_files import FileSource, graph_folders
from manymatch.evaluate.source_images import ImageSource
from manymatch.evaluate.source_synthetic import MadeSource
from manymatch.matcher.matcher import Matcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from manymatch.datasets.dataset import Dataset
    from manymatch.evaluate.posed_graph import PosedGraph

_MADE = "made:"
_FORMS = (
    "the name of a data set (manymatch datasets), NAME:FOLDER, a folder with a list of pairs, a "
    "folder of posed graphs, or made:CONFIGURATION"
)


class GraphSource(Protocol):
    """Posed graphs of one set in one representation; safe to use from several threads."""

    @property
    def name(self) -> str:
        """Name of the set."""
        ...

    @property
    def title(self) -> str:
        """Name of the set for people."""
        ...

    @property
    def representation(self) -> str:
        """What the candidates come from, such as a preset."""
        ...

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that decides the graphs, in JSON types."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What one should know about the set."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> PosedGraph: ...

    def order(self, indices: Sequence[int]) -> Sequence[int]:
        """Put pairs into the order in which they are best worked on."""
        ...


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
        ``made:CONFIGURATION``.
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
        if spec.startswith(_MADE):
            sources.append(MadeSource.of(spec.removeprefix(_MADE), k))
            continue
        folders = graph_folders(spec)
        if folders:
            sources += [FileSource(folder, representation) for folder, representation in folders]
        else:
            images += open_datasets(spec, root, longest)
    if images:
        for preset in presets:
            matcher = Matcher(preset, device=device, offline=offline, cache=cache)
            # What is missing here is missing for all pairs, and no fault of any of them.
            _ = matcher.extractor.detector, matcher.extractor.backbone
            sources += [ImageSource(dataset, matcher, k, memory_mb) for dataset in images]
    return sources


def open_datasets(
    spec: str, root: object = None, longest: tuple[int | None, int | None] = (None, None)
) -> list[Dataset]:
    """Open what a text names: a data set, or all folders with a list of pairs below a folder.

    Parameters are those of `open_sources`.
    """
    return [_resized(dataset, longest) for dataset in _datasets(spec, root)]


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
        below = [folder] if _has_list(folder) else sorted(filter(_has_list, _folders(folder)))
        if below:
            return [datasets.load("folder", path) for path in below]
        raise ValueError(
            f"set must be {_FORMS}, got the folder {spec!r}, in which there is neither"
        )
    known = [*datasets.names(), *(f"{_MADE}{name}" for name in CONFIGS)]
    raise ValueError(f"set must be {_FORMS}, got {spec!r}{suggest(spec, known)}")


def _resized(dataset: Dataset, longest: tuple[int | None, int | None]) -> Dataset:
    """Give a data set working sizes where it has none of its own."""
    own = (dataset.longest0, dataset.longest1)
    first, second = (b if a is None else a for a, b in zip(own, longest, strict=True))
    return dataclasses.replace(dataset, longest0=first, longest1=second)


def _has_list(folder: Path) -> bool:
    return (folder / "pairs.txt").is_file()


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()]
