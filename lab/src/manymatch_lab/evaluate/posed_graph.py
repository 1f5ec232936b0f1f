"""Graphs of candidates with cameras and true pose, in memory and as files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from manymatch.geometry.camera import Camera, working_pixel
from manymatch.geometry.pose import RelativePose
from manymatch.graph import AssociationGraph
from manymatch.io.files import npz_names, read_bytes, read_npz, unreadable, write_npz
from manymatch.io.pairs import Pair
from manymatch_lab.checks import BoolArray, FloatArray, bool_array, integer, read_only
from manymatch_lab.datasets.metu import opencv_camera

_WANT = "a posed graph"
_ARRAYS = ("points0", "points1", "edges", "rank", "K0", "K1", "R", "t", "size0", "size1")
_TEXTS = ("name0", "name1")
_SOURCES = ("source", "source_names", "prior")
_WORKING = ("working0", "working1")
_DISTORTION = ("distortion0", "distortion1")
_OPTIONAL = ("similarity", "scene", "bin", "seed_index", "true_edges", *_WORKING, *_DISTORTION)


@dataclasses.dataclass(frozen=True, eq=False)
class PosedGraph:
    """One pair of an evaluation: its candidates before any cap or filter, and its true pose."""

    name0: str
    name1: str
    graph: AssociationGraph  # all candidates with their ranks, in pixels, best first
    camera0: Camera  # in pixels of the graph's points
    camera1: Camera
    size0: tuple[int, int]  # width and height of the image in the same pixels
    size1: tuple[int, int]
    R: FloatArray  # (3, 3), of the true pose ``x1 = R @ x0 + t``
    t: FloatArray  # (3,), of any length
    seed_index: int  # number of the pair in its own list, from 1; the seeds start with it
    scene: str = ""  # pairs of one scene are not independent
    bin: str = ""  # group of the pair within its set, such as a range of viewpoint changes
    #: Width and height at working size, at which the filter and a threshold count in pixels; None
    #: where the pixels of the graph are these.
    working0: tuple[int, int] | None = None
    working1: tuple[int, int] | None = None
    #: (E,) edges that join two images of the same 3D point, where that is known.
    true_edges: BoolArray | None = None
    debiased: int | None = None  # directions of position that were removed, the fewer of both views

    @classmethod
    def of_pair(cls, pair: Pair, index: int, **known: Any) -> PosedGraph:
        """Take names, true pose, scene and bin of a pair of a data set; `known` are the others."""
        if pair.R is None or pair.t is None:
            raise ValueError(f"pair {index} must have a true pose, got none")
        return cls(
            name0=pair.name0,
            name1=pair.name1,
            R=pair.R,
            t=pair.t,
            seed_index=int(pair.extra.get("seed_index", index + 1)),
            scene=pair.scene,
            bin=str(pair.extra.get("bin", "")),
            **known,
        )

    def __post_init__(self) -> None:
        known = checked_true_edges(self.true_edges, self.graph)
        object.__setattr__(self, "true_edges", known)

    @property
    def sizes(self) -> dict[str, Any]:
        """The four sizes, as `Association.apply` takes them."""
        names = ("size0", "size1", "working0", "working1")
        return {name: getattr(self, name) for name in names}

    @property
    def working_scale(self) -> tuple[FloatArray, FloatArray]:
        """Length at working size over that in pixels of the graph, along x and y, of each image."""
        return (
            np.divide(self.working0 or self.size0, self.size0),
            np.divide(self.working1 or self.size1, self.size1),
        )

    @property
    def pixels(self) -> float:
        """Pixels of the graph that one pixel of a threshold is."""
        return working_pixel(self.camera0, self.camera1, *self.working_scale)

    @property
    def pose(self) -> RelativePose:
        """The true pose, with a unit translation."""
        return RelativePose(self.R, self.t)


def checked_true_edges(value: object, graph: AssociationGraph) -> BoolArray | None:
    """Check and copy the mask of true edges of a graph; None stays None."""
    if value is None:
        return None
    want = f"a boolean array of shape ({graph.num_edges},), one entry per edge"
    return read_only(bool_array(value, "true_edges", want, (graph.num_edges,)))


def is_posed_graph(path: Path) -> bool:
    """Whether a file has the arrays of a posed graph."""
    try:
        return npz_names(read_bytes(path, _WANT), path, _WANT).issuperset(_ARRAYS)
    except ValueError:
        return False


def read_posed_graph(path: object, seed_index: int = 1) -> PosedGraph:
    """Read a graph with its cameras and true pose.

    The file is an .npz with ``points0``, ``points1`` (pixels), ``edges``, ``rank``, ``K0``, ``K1``
    (3 x 3), ``R``, ``t`` (camera 0 to camera 1), ``size0``, ``size1`` (width, height), and
    optionally ``similarity``, ``source``, ``source_names``, ``prior``, ``name0``, ``name1``,
    ``scene``, ``bin``, ``true_edges`` (bool, one an edge), ``working0``, ``working1`` (width and
    height at working size, where that is another), ``distortion0``, ``distortion1`` (OpenCV's
    k1, k2, p1, p2 and, if any, k3 to k6) and ``seed_index``, in place of the argument.
    """
    data = read_bytes(path, _WANT)
    names = npz_names(data, path, _WANT)
    wanted = [*_ARRAYS, *(n for n in (*_OPTIONAL, *_SOURCES, *_TEXTS) if n in names)]
    arrays = read_npz(data, path, _WANT, wanted)
    try:
        sizes = [_size(arrays[name], name) for name in ("size0", "size1")]
        working = {name: _size(arrays[name], name) for name in _WORKING if name in arrays}
        cameras = []
        for K, name, (width, height) in zip(("K0", "K1"), _DISTORTION, sizes, strict=True):
            camera = opencv_camera(arrays[K].astype(float), arrays.get(name, ()))
            cameras.append(dataclasses.replace(camera, width=width, height=height))
        similarity = arrays.get("similarity")
        graph = AssociationGraph(
            arrays["points0"].astype(np.float64),
            arrays["points1"].astype(np.float64),
            arrays["edges"].astype(np.int64),
            None if similarity is None else similarity.astype(np.float32),
            arrays["rank"].astype(np.int32),
            **{name: arrays[name] for name in _SOURCES if name in arrays},
        )
        stem = Path(str(path)).stem
        name0, name1 = (
            str(arrays[name]) if name in arrays else f"{stem}-{name[-1]}" for name in _TEXTS
        )
        # A rounded rotation becomes the nearest exact one; anything else is refused.
        paths, scene = (Path(name0), Path(name1)), str(arrays.get("scene", ""))
        extra: dict[str, Any] = {"bin": str(arrays.get("bin", ""))}
        extra["seed_index"] = integer(arrays.get("seed_index", seed_index), "seed_index", 1)
        pair = Pair(name0, name1, *paths, R=arrays["R"], t=arrays["t"], scene=scene, extra=extra)
        true_edges = checked_true_edges(arrays.get("true_edges"), graph)
    except (ValueError, TypeError) as error:
        raise unreadable(path, _WANT, str(error)) from error
    known = {"camera0": cameras[0], "camera1": cameras[1], "size0": sizes[0], "size1": sizes[1]}
    return PosedGraph.of_pair(
        pair, seed_index - 1, graph=graph, true_edges=true_edges, **known, **working
    )


def write_posed_graph(path: object, posed: PosedGraph, *, with_seed: bool = False) -> None:
    """Write what `read_posed_graph` reads; cameras may have OpenCV's distortion only.

    Without `with_seed` the place of the file in its folder decides about the seed.
    """
    graph = posed.graph
    if graph.rank is None:
        raise ValueError("posed must have a graph with ranks, got one without")
    for name, camera in (("camera0", posed.camera0), ("camera1", posed.camera1)):
        if camera.distortion and camera.model not in ("OPENCV", "FULL_OPENCV"):
            raise ValueError(f"{name} must have OpenCV's distortion or none, got {camera!r}")
    of_graph = ("points0", "points1", "edges", "rank", "similarity", "source", "prior")
    of_pair = ("R", "t", "size0", "size1", "name0", "name1", "scene", "bin", "true_edges")
    of_pair += (*_WORKING, *(("seed_index",) if with_seed else ()))
    values: dict[str, Any] = {
        **{name: getattr(graph, name) for name in of_graph},
        "source_names": graph.source_names or None,
        **{name: getattr(posed, name) for name in of_pair},
        "K0": posed.camera0.K,
        "K1": posed.camera1.K,
        "distortion0": posed.camera0.distortion or None,
        "distortion1": posed.camera1.distortion or None,
    }
    arrays = {name: value for name, value in values.items() if value is not None}
    write_npz(path, arrays)


def _size(value: Any, name: str) -> tuple[int, int]:
    if np.shape(value) != (2,) or not np.all(np.asarray(value) > 0):
        raise ValueError(f"{name} must be a width and a height, got {np.asarray(value).tolist()}")
    width, height = np.asarray(value).tolist()
    return int(width), int(height)
