"""Posed graphs in files: one .npz a pair, a folder a set."""

from __future__ import annotations

import dataclasses
import hashlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._files import npz_names, read_bytes, read_npz, unreadable, write_whole
from manymatch._validate import read_only
from manymatch.evaluate.posed_graph import PosedGraph, checked_true_edges
from manymatch.geometry.camera import Camera
from manymatch.graph import AssociationGraph
from manymatch.io.pairs import Pair

if TYPE_CHECKING:
    from collections.abc import Sequence

_WANT = "a posed graph"
_ARRAYS = ("points0", "points1", "edges", "rank", "K0", "K1", "R", "t", "size0", "size1")
_TEXTS = ("name0", "name1")
_OPTIONAL = ("similarity", "scene", "true_edges")


def graph_folders(spec: str) -> list[tuple[Path, str]]:
    """Find the folders of posed graphs at or below a folder, each with its representation.

    A set is a folder of .npz files; its representation is the name of the folder above. Given the
    folder above, or the one above that, all sets in it are found.
    """
    folder = Path(spec)
    if not folder.is_dir():
        return []
    for depth in ("", "*", "*/*"):
        found = sorted(
            path
            for path in ([folder] if not depth else folder.glob(depth))
            if path.is_dir() and _is_posed(path)
        )
        if found:
            return [(path, path.resolve().parent.name) for path in found]
    return []


def _is_posed(folder: Path) -> bool:
    first = min(folder.glob("*.npz"), default=None)
    if first is None:
        return False
    try:
        names = npz_names(read_bytes(first, _WANT), first, _WANT)
    except ValueError:
        return False
    return names.issuperset(_ARRAYS)


@dataclasses.dataclass(frozen=True)
class FileSource:
    """The posed graphs of one folder, in the order of their names."""

    folder: Path
    representation: str
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.resolve().name

    @property
    def title(self) -> str:
        """Name of the folder."""
        return self.name

    @cached_property
    def _paths(self) -> tuple[Path, ...]:
        return tuple(sorted(self.folder.glob("*.npz")))

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that decides the graphs: the files' names and contents."""
        digest = hashlib.sha256()
        for path in self._paths:
            digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
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

    def order(self, indices: Sequence[int]) -> Sequence[int]:
        """Leave the order as it is."""
        return indices


def read_posed_graph(path: object, seed_index: int = 1) -> PosedGraph:
    """Read a graph with its cameras and true pose.

    The file is an .npz with ``points0``, ``points1`` (pixels), ``edges``, ``rank``, ``K0``, ``K1``
    (3 x 3), ``R``, ``t`` (camera 0 to camera 1), ``size0``, ``size1`` (width, height), and
    optionally ``similarity``, ``name0``, ``name1``, ``scene`` and ``true_edges`` (bool, one an
    edge).
    """
    data = read_bytes(path, _WANT)
    names = npz_names(data, path, _WANT)
    wanted = [*_ARRAYS, *(n for n in (*_OPTIONAL, *_TEXTS) if n in names)]
    arrays = read_npz(data, path, _WANT, wanted)
    try:
        sizes = [_size(arrays[name], name) for name in ("size0", "size1")]
        cameras = [
            Camera.from_matrix(arrays[f"K{side}"].astype(float), *size)
            for side, size in enumerate(sizes)
        ]
        similarity = arrays.get("similarity")
        graph = AssociationGraph(
            arrays["points0"].astype(np.float64),
            arrays["points1"].astype(np.float64),
            arrays["edges"].astype(np.int64),
            None if similarity is None else similarity.astype(np.float32),
            arrays["rank"].astype(np.int32),
        )
        stem = Path(str(path)).stem
        name0, name1 = (
            str(arrays[name]) if name in arrays else f"{stem}-{name[-1]}" for name in _TEXTS
        )
        # Makes rounded rotations exact and refuses what is none.
        truth = Pair(name0, name1, Path(name0), Path(name1), R=arrays["R"], t=arrays["t"])
        true_edges = checked_true_edges(arrays.get("true_edges"), graph)
    except (ValueError, TypeError) as error:
        raise unreadable(path, _WANT, str(error)) from error
    if truth.R is None or truth.t is None:
        raise unreadable(path, _WANT, "it has no pose")
    return PosedGraph(
        name0=name0,
        name1=name1,
        graph=graph,
        camera0=cameras[0],
        camera1=cameras[1],
        size0=sizes[0],
        size1=sizes[1],
        R=truth.R,
        t=truth.t,
        seed_index=seed_index,
        scene=str(arrays.get("scene", "")),
        true_edges=true_edges,
    )


def write_posed_graph(path: object, posed: PosedGraph) -> None:
    """Write what `read_posed_graph` reads; cameras must have no distortion."""
    graph = posed.graph
    if graph.rank is None:
        raise ValueError("posed must have a graph with ranks, got one without")
    for name, camera in (("camera0", posed.camera0), ("camera1", posed.camera1)):
        if camera.distortion:
            raise ValueError(f"{name} must have no distortion to be written, got {camera!r}")
    arrays: dict[str, Any] = {
        "points0": graph.points0,
        "points1": graph.points1,
        "edges": graph.edges,
        "rank": graph.rank,
        "K0": posed.camera0.K,
        "K1": posed.camera1.K,
        "R": posed.R,
        "t": posed.t,
        "size0": posed.size0,
        "size1": posed.size1,
        "name0": posed.name0,
        "name1": posed.name1,
        "scene": posed.scene,
    }
    if graph.similarity is not None:
        arrays["similarity"] = graph.similarity
    if posed.true_edges is not None:
        arrays["true_edges"] = posed.true_edges
    write_whole(path, lambda file: np.savez_compressed(file, **arrays))


def _size(value: Any, name: str) -> tuple[int, int]:
    if np.shape(value) != (2,) or not np.all(np.asarray(value) > 0):
        raise ValueError(f"{name} must be a width and a height, got {np.asarray(value).tolist()}")
    width, height = read_only(np.asarray(value)).tolist()
    return int(width), int(height)
