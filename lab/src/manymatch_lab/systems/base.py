"""Complete matchers: two images in, correspondences in pixels out; and their graphs."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import hashlib
import importlib.util
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manymatch.associate.candidates import candidates
from manymatch.batch.batch import pairs_identity
from manymatch.features.detectors import Detector
from manymatch.features.device import choose_device, to_device, weights_hash
from manymatch.features.extractor import Features
from manymatch.features.registry import Model, find_model, load_detector
from manymatch.features.resize import Resize, resize_image, turned_back
from manymatch.features.weight_files import WeightsError
from manymatch.features.weights import find_weights
from manymatch.graph import AssociationGraph
from manymatch.io.files import as_path, read_bytes, read_npz, write_npz
from manymatch.io.image import load_image
from manymatch.io.pairs import Pair
from manymatch.matcher.cameras import resolve_camera
from manymatch_lab.checks import FloatArray, float_array, read_only, refusal
from manymatch_lab.datasets.dataset import Dataset
from manymatch_lab.evaluate.inputs import GraphReader, about_pair, pair_list
from manymatch_lab.evaluate.posed_graph import PosedGraph
from manymatch_lab.systems.adaptive_lightglue import AdaptiveLightGlue
from manymatch_lab.systems.efficient_loftr import EfficientLoftr

_PIXELS = "an (M, 2) array of pixels"


@dataclasses.dataclass(frozen=True, eq=False)
class Correspondences:
    """Pairs of points (M, 2), best first, in pixels of the images as they were given.

    The centre of the top-left pixel is (0, 0). Scores (M,) are comparable within one pair only.
    """

    points0: FloatArray
    points1: FloatArray
    scores: FloatArray

    def __post_init__(self) -> None:
        points0 = float_array(self.points0, "points0", _PIXELS, (None, 2))
        count = len(points0)
        points1 = float_array(self.points1, "points1", f"{count} pixels, as points0", (count, 2))
        scores = float_array(self.scores, "scores", f"{count} numbers, as points0", (count,))
        order = np.argsort(-scores, kind="stable")
        for name, array in (("points0", points0), ("points1", points1), ("scores", scores)):
            object.__setattr__(self, name, read_only(array[order]))

    def __len__(self) -> int:
        return len(self.points0)


class System(abc.ABC):
    """A matcher with everything it needs, loaded when it is first used."""

    name: str  # under which it is chosen
    title: str  # as tables show it
    paper: str = ""  # its row in the paper's table, if it is there
    #: Trained for one kind of pair (visible and thermal), and therefore left out of rankings.
    specialist: bool = False
    #: What of its input is not known of the paper's comparison.
    assumed: Sequence[str] = ()
    #: Resizes images by a rule of its own, and gets them as the files have them.
    own_size: bool = False
    packages: Sequence[str] = ()  # that run it, as Python imports them

    def __init__(self, device: str = "auto", *, offline: bool = False) -> None:
        self.device = device
        self.offline = offline

    @property
    def models(self) -> Sequence[Model]:
        """Weights it needs."""
        return ()

    def missing(self, *, fetch: bool = False) -> str | None:
        """Say in one sentence what is not here and how to get it; None if all is here.

        With `fetch`, weights that are missing are downloaded, unless the system is offline.
        """
        absent = (package for package in self.packages if not is_installed(package))
        if (package := next(absent, None)) is not None:
            return self.without(package)
        for model in self.models:
            try:
                find_weights(model, offline=self.offline or not fetch)
            except WeightsError as error:
                return str(error)
        return None

    def without(self, package: str) -> str:
        """Say how to install a package that is missing."""
        extra = "images" if package == "cv2" else "features"
        named = package if package == "kornia" else f'"manymatch[{extra}]"'
        return f"{self.title} needs {package}: pip install {named}"

    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """Everything that changes a number, apart from the images; JSON types."""

    def match(self, image0: NDArray[np.uint8], image1: NDArray[np.uint8]) -> Correspondences:
        """Match two (H, W, 3) uint8 images, RGB, at the size at which they are to be matched.

        A system with `own_size` gets them as the files have them. Returns what is inside both.
        """
        for name, image in (("image0", image0), ("image1", image1)):
            shape, kind = np.shape(image), getattr(image, "dtype", None)
            if len(shape) != 3 or shape[2] != 3 or kind != np.uint8:
                raise refusal(name, "an (H, W, 3) array of bytes", image)
        points0, points1, scores = self._match(image0, image1)
        inside = _inside(points0, image0) & _inside(points1, image1)
        return Correspondences(
            np.asarray(points0)[inside], np.asarray(points1)[inside], np.asarray(scores)[inside]
        )

    @abc.abstractmethod
    def _match(
        self, image0: NDArray[np.uint8], image1: NDArray[np.uint8]
    ) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
        """Return (M, 2), (M, 2) pixels in this package's convention and (M,) scores."""


def is_installed(package: str) -> bool:
    """Whether a package can be imported, without importing it."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _inside(points: ArrayLike, image: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Whether points lie on the image, whose pixels reach half a pixel beyond their centres."""
    array = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    size = np.array([image.shape[1], image.shape[0]])
    return np.asarray(np.all((array >= -0.5) & (array <= size - 0.5), axis=1))


#: The paper's limit of the keypoints of an image.
MAX_KEYPOINTS = 2048


class NativeSystem(System):
    """One detector of the catalogue, its descriptors, rank-one mutual neighbours."""

    def __init__(self, detector: str, title: str, paper: str = "", **where: Any) -> None:
        super().__init__(**where)
        self.name, self.title, self.paper = f"{detector}-mnn", title, paper
        self.model = find_model(detector)
        self.packages = self.model.libraries

    @property
    def models(self) -> Sequence[Model]:
        """Weights of the detector, where it has any."""
        return (self.model,) if self.model.needs_weights else ()

    @functools.cached_property
    def detector(self) -> Detector:
        """The detector, loaded when first used."""
        detector = load_detector(self.model.name, max_keypoints=MAX_KEYPOINTS, offline=self.offline)
        if detector.module is not None:
            to_device(detector.module, choose_device(self.device))
        return detector

    def settings(self) -> dict[str, Any]:
        """Return settings and weights of the detector."""
        return {
            "detector": self.detector.settings(),
            "weights": weights_hash(self.detector.module),
            "matching": "mutual nearest neighbours",
        }

    def _match(
        self, image0: NDArray[np.uint8], image1: NDArray[np.uint8]
    ) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
        arguments: dict[str, Any] = {}
        for side, image in enumerate((image0, image1)):
            found = self.detector.detect(image)
            arguments[f"points{side}"] = found.points
            arguments[f"size{side}"] = (image.shape[1], image.shape[0])
            if found.descriptors is None:
                raise RuntimeError("the detector has no descriptors")
            descriptors, owners = found.descriptors, np.arange(len(found))
            # SIFT has several descriptors of some keypoints.
            if found.further is not None and found.owners is not None:
                descriptors = np.concatenate([descriptors, found.further])
                owners = np.concatenate([owners, found.owners])
            arguments[f"desc{side}"], arguments[f"owners{side}"] = descriptors, owners
        graph = candidates(**arguments, k=1, max_edges=None, gms=False, keep=None).graph
        scores = np.zeros(len(graph)) if graph.similarity is None else graph.similarity
        return graph.points0[graph.edges[:, 0]], graph.points1[graph.edges[:, 1]], scores


class LightGlueSystem(NativeSystem):
    """One detector of the catalogue, and the LightGlue that was trained for it."""

    def __init__(self, detector: str, title: str, paper: str = "", **where: Any) -> None:
        super().__init__(detector, title, paper, **where)
        self.packages = (*self.packages, "torch", "kornia")
        self.matcher = AdaptiveLightGlue(detector, **where)
        if self.matcher.model is None:
            raise RuntimeError("LightGlue has weights for every detector that it takes")
        self._weights = self.matcher.model
        self.name = self._weights.name

    @property
    def models(self) -> Sequence[Model]:
        """Weights of the detector and of the matcher."""
        return self.model, self._weights

    def settings(self) -> dict[str, Any]:
        """Return settings and weights of both networks."""
        return {
            "detector": self.detector.settings(),
            "detector_weights": weights_hash(self.detector.module),
            **(self.matcher.settings() or {}),
        }

    def _match(
        self, image0: NDArray[np.uint8], image1: NDArray[np.uint8]
    ) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
        seen = []
        for image in (image0, image1):
            found = self.detector.detect(image)
            if found.descriptors is None:
                raise RuntimeError("the detector has no descriptors")
            size = (image.shape[1], image.shape[0])
            seen.append(Features(found.points, found.scores, found.descriptors, size))
        index0, index1, scores = self.matcher.match(*seen)
        return seen[0].points[index0], seen[1].points[index1], scores


class EfficientLoftrSystem(System):
    """EfficientLoFTR at working size, padded to the multiples of pixels that it takes."""

    name, title, paper = "efficient-loftr", "ELoFTR", "eloftr"
    packages: Sequence[str] = ("torch", "transformers")
    assumed = ("ELoFTR gets images at working size",)

    def __init__(self, **where: Any) -> None:
        super().__init__(**where)
        self.matcher = EfficientLoftr(**where)

    @property
    def models(self) -> Sequence[Model]:
        """Weights of the matcher."""
        return () if self.matcher.model is None else (self.matcher.model,)

    def settings(self) -> dict[str, Any]:
        """Return settings and weights of the matcher."""
        return self.matcher.settings() or {}

    def _match(
        self, image0: NDArray[np.uint8], image1: NDArray[np.uint8]
    ) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
        return self.matcher.match(image0, image1)


_ARRAYS = ("points0", "points1", "scores", "sizes")
_WANT = "kept correspondences"


class SystemGraphs(GraphReader):
    """Graphs that are the correspondences of a system, all of rank one.

    Every pair of the data set has its true pose. Correspondences are kept below the folder, by
    settings, so that a resumed run does not match again.
    """

    def __init__(self, dataset: Dataset, system: System, folder: object) -> None:
        dataset.require_truth()
        self.name, self.title, self.notes = dataset.set_name, dataset.title, dataset.notes
        self.representation = system.name
        self._dataset, self._system = dataset, system
        self._kept = as_path(folder)
        # Networks take turns; other systems are safe to use from several threads.
        self._turn: Any = (
            threading.Lock() if "torch" in system.packages else contextlib.nullcontext()
        )

    @functools.cached_property
    def folder(self) -> Path:
        """Where the correspondences of these settings are kept."""
        text = json.dumps(self.identity, sort_keys=True)
        return self._kept / hashlib.sha256(text.encode()).hexdigest()[:16]

    @functools.cached_property
    def task(self) -> dict[str, Any]:
        """The part of the identity that does not need the system: the pairs and their size."""
        system = self._system
        resize = Resize.none() if system.own_size else self._resize()
        return {
            "system": system.name,
            "assumed": list(system.assumed),
            "resize": resize.to_dict(),
            **pair_list(self._dataset),
        }

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that decides the graphs: the system, its settings, pairs and versions."""
        system, pairs = self._system, self._dataset.pairs
        versions = pairs_identity(
            pairs, system.device, network=not {"torch", "onnxruntime"}.isdisjoint(system.packages)
        )
        return {**self.task, "settings": system.settings(), **versions}

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> PosedGraph:
        dataset = self._dataset
        pair = dataset.pairs[index]
        found, (size0, size1) = self._correspondences(index, pair)
        edges = np.column_stack([np.arange(len(found))] * 2)
        ranks = np.ones(len(found), dtype=np.int64)
        return PosedGraph.of_pair(
            pair,
            index,
            graph=AssociationGraph(found.points0, found.points1, edges, found.scores, ranks),
            camera0=resolve_camera(pair.camera0, pair.path0, size0, "camera0").camera,
            camera1=resolve_camera(pair.camera1, pair.path1, size1, "camera1").camera,
            size0=size0,
            size1=size1,
            working0=self._resize(dataset.longest0).plan(size0).content,
            working1=self._resize(dataset.longest1).plan(size1).content,
        )

    def about(self, index: int) -> dict[str, str]:
        """Return the names, scene and bin of a pair."""
        return about_pair(self._dataset.pairs[index])

    @staticmethod
    def _resize(longest: int | None = None) -> Resize:
        """Return the paper's way of resizing, with another length of the longer edge if given."""
        return Resize(rule="paper") if longest is None else Resize(longest or None, rule="paper")

    def _correspondences(
        self, index: int, pair: Pair
    ) -> tuple[Correspondences, list[tuple[int, int]]]:
        """Read the correspondences of a pair, in pixels of its files, or compute and keep them."""
        path = self.folder / f"{index:06d}.npz"
        if path.is_file():
            saved = read_npz(read_bytes(path, _WANT), path, _WANT, _ARRAYS)
            width0, height0, width1, height1 = map(int, saved["sizes"].ravel())
            kept = Correspondences(*(saved[name] for name in _ARRAYS[:3]))
            return kept, [(width0, height0), (width1, height1)]
        found, sizes = self._match(pair)
        values = (found.points0, found.points1, found.scores, np.array(sizes))
        self.folder.mkdir(parents=True, exist_ok=True)
        write_npz(path, dict(zip(_ARRAYS, values, strict=True)))
        return found, sizes

    def _match(self, pair: Pair) -> tuple[Correspondences, list[tuple[int, int]]]:
        """Match at working size, and map back to the pixels of the files."""
        images, frames, sizes = [], [], []
        sides = (
            (pair.path0, pair.rot0, self._dataset.longest0),
            (pair.path1, pair.rot1, self._dataset.longest1),
        )
        for path, turns, longest in sides:
            image = load_image(path)
            turned = np.rot90(image, turns)
            resize = Resize.none() if self._system.own_size else self._resize(longest)
            frames.append(resize.plan((turned.shape[1], turned.shape[0])))
            images.append(resize_image(np.ascontiguousarray(turned), frames[-1]))
            sizes.append((image.shape[1], image.shape[0]))
        with self._turn:
            found = self._system.match(images[0], images[1])
        points0 = turned_back(frames[0].to_original(found.points0), pair.rot0, sizes[0])
        points1 = turned_back(frames[1].to_original(found.points1), pair.rot1, sizes[1])
        return Correspondences(points0, points1, found.scores), sizes
