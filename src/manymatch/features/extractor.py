"""Images in, keypoints with descriptors out."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import FloatArray, IndexArray, count, refusal
from manymatch.features.debias import PositionalBasis, positional_bases
from manymatch.features.detectors import Detector, Keypoints
from manymatch.features.device import (
    PRECISIONS,
    check_precision,
    choose_device,
    library_versions,
    to_device,
    weights_hash,
)
from manymatch.features.feature_cache import FeatureCache, content_hash
from manymatch.features.feature_config import NATIVE, NO_DETECTOR, FeatureConfig, feature_config
from manymatch.features.maps import FeatureMap, dense_maps, unit_rows
from manymatch.features.registry import load_backbone, load_detector
from manymatch.features.resize import Frame, Resize, resize_image, turned_back
from manymatch.io.image import load_image
from manymatch.options import usable_cores

if TYPE_CHECKING:
    from manymatch.features.backbones import Backbone

# Raised when this package computes other numbers from the same settings.
_REVISION = 5
_BASES_KEPT = 16
# Pixels of an image at working size, for which SIFT takes a gigabyte.
_LARGE = 4_000_000
_ARRAYS = ("points", "scores", "descriptors", "further", "owners")


@dataclasses.dataclass(frozen=True, eq=False)
class Features:
    """Keypoints of one image with their descriptors, best first.

    Attributes
    ----------
    points : (N, 2) float64 ndarray
        Pixels (x, y) of the user's image; the centre of its top-left pixel is (0, 0).
    scores : (N,) float32 ndarray
        The detector's, falling.
    descriptors : (N, D) float32 or uint8 ndarray
        Of length one, or packed bits (ORB).
    size : (int, int)
        Width and height of the user's image.
    working : (int, int) or None
        Width and height at which the keypoints were found; None where that is the image's own.
    further, owners : (M, D) float32 and (M,) int64 ndarrays, or None
        More descriptors of some keypoints (SIFT with several orientations), and whose they are.
    provenance : dict
        Everything that went into them.
    turns : int
        Quarter turns of the image (`np.rot90`) before anything was computed. Points and sizes are
        those of the image as it is.
    image : (H, W, 3) uint8 ndarray or None
        The resized and turned image, for matchers that take images; there are no keypoints then.
    debiased : int
        Directions of position that were removed: as many as asked for, or all that there are.
    """

    points: FloatArray
    scores: NDArray[np.float32]
    descriptors: NDArray[np.float32]
    size: tuple[int, int]
    working: tuple[int, int] | None = None
    further: NDArray[np.float32] | None = None
    owners: IndexArray | None = None
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    turns: int = 0
    image: NDArray[np.uint8] | None = None
    debiased: int = 0

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        width, height = self.size
        if self.image is not None:
            return f"Features(no keypoints, image {width} x {height})"
        return (
            f"Features({count(len(self), 'keypoint')}, descriptors of length "
            f"{self.descriptors.shape[1]}, image {width} x {height})"
        )

    @property
    def working_size(self) -> tuple[int, int]:
        """The size in `working`, or the image's own."""
        return self.size if self.working is None else self.working

    @property
    def working_scale(self) -> FloatArray:
        """Length at working size over that of the user's image, along x and y."""
        return np.divide(self.working_size, self.size)

    @property
    def nbytes(self) -> int:
        """Memory of the arrays in bytes."""
        arrays = (getattr(self, name) for name in (*_ARRAYS, "image"))
        return sum(array.nbytes for array in arrays if array is not None)

    def turned(self, turns: int) -> Features:
        """Say that the image was turned before: points and sizes become those of before."""
        size, working = self._sizes(turns)
        points = turned_back(self.points, turns, size)
        return dataclasses.replace(self, points=points, size=size, working=working, turns=turns)

    def as_seen(self) -> Features:
        """Return the same in pixels of the resized and turned image, as the detector saw it."""
        size, working = self._sizes(self.turns)
        # Turning the turned image by the opposite gives the image as it is.
        points = turned_back(self.points, -self.turns, size)
        seen = (points + 0.5) * np.divide(working, size) - 0.5
        return dataclasses.replace(self, points=seen, size=working, working=None, turns=0)

    def from_seen(self, points: FloatArray) -> FloatArray:
        """Map (N, 2) pixels of the resized and turned image to the image as it is."""
        size, working = self._sizes(self.turns)
        found = (points + 0.5) / np.divide(working, size) - 0.5
        return turned_back(found, self.turns, self.size)

    def _sizes(self, turns: int) -> list[tuple[int, int]]:
        """Return the image's own size and the working one after quarter turns."""
        sizes = (self.size, self.working_size)
        return [(size[1], size[0]) if turns % 2 else size for size in sizes]

    def all_descriptors(self) -> tuple[NDArray[np.float32], IndexArray]:
        """Return all rows, (N + M, D), and the keypoint that each belongs to."""
        own = np.arange(len(self))
        if self.further is None or self.owners is None:
            return self.descriptors, own
        return np.concatenate([self.descriptors, self.further]), np.concatenate([own, self.owners])


class Extractor:
    """Computes features as a `FeatureConfig` says.

    Parameters
    ----------
    config : FeatureConfig or str
        Settings, or the name of a preset.
    device : str
        "auto", "cuda", "cuda:<n>", "mps" or "cpu".
    offline : bool
        Never download weights.
    cache : path or FeatureCache, optional
        Folder in which features are kept and found again.
    networks : dict, optional
        Detectors and backbones that are loaded; extractors with the same dict share them.

    Examples
    --------
    >>> extractor = Extractor("classic")                             # doctest: +SKIP
    >>> extractor.extract("a.jpg")                                   # doctest: +SKIP
    Features(2048 keypoints, descriptors of length 128, image 1024 x 768)
    """

    def __init__(
        self,
        config: FeatureConfig | str = "embedded",
        *,
        device: str = "auto",
        offline: bool = False,
        cache: object = None,
        networks: dict[object, Any] | None = None,
    ) -> None:
        self.config = config if isinstance(config, FeatureConfig) else feature_config(config)
        self.device = choose_device(device) if self.config.needs_torch else None
        if self.device == "cpu" and self.config.precision != PRECISIONS[0]:
            # ONNX Runtime has float32 only.
            self.device = choose_device("torch")
        check_precision(self.config.precision, self.device)
        self.offline = offline
        if not isinstance(cache, FeatureCache | None):
            cache = FeatureCache(cache)
        self.cache: FeatureCache | None = cache
        self._networks = {} if networks is None else networks
        self._bases: dict[tuple[object, ...], PositionalBasis] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # Networks and bases are loaded again where a copy or another process needs them.
        settings: Any = {"device": str(self.device or "auto"), "offline": self.offline}
        return functools.partial(Extractor, self.config, **settings, cache=self.cache), ()

    def __repr__(self) -> str:
        return f"Extractor({self.config.detector} + {self.config.descriptor}, {self.device})"

    @functools.cached_property
    def detector(self) -> Detector:
        """The detector, loaded when first used; a matcher that takes images has none."""
        if self.config.detector == NO_DETECTOR:
            raise ValueError(f"detector must be one that finds keypoints, got {NO_DETECTOR!r}")
        detector: Detector = self._loaded(load_detector, self.config.detection)
        return detector

    @functools.cached_property
    def backbone(self) -> Backbone | None:
        """The backbone, loaded when first used; None where the descriptors are the detector's."""
        name = self.config.descriptor
        if name == NATIVE and self.detector.dim is None:
            raise ValueError(
                f"descriptor must be a backbone, as the detector {self.config.detector!r} has "
                f"no descriptors of its own, got {NATIVE!r}"
            )
        if name == NATIVE:
            return None
        found: Backbone = self._loaded(
            load_backbone, (("name", name), ("weights", self.config.weights))
        )
        return found

    def _loaded(self, load: Callable[..., Any], how: tuple[tuple[str, Any], ...]) -> Any:
        """Return a detector or backbone that is loaded, or load it to the device."""
        if how not in self._networks:
            made = load(**dict(how), offline=self.offline)
            if made.module is not None and self.device is not None:
                to_device(made.module, self.device)
            self._networks[how] = made
        return self._networks[how]

    def load(self) -> None:
        """Load the networks, which are otherwise loaded when first used."""
        if self.config.detector != NO_DETECTOR:
            _ = self.detector, self.backbone

    def extract(self, image: object, *, longest: int | None = None) -> Features:
        """Compute the features of one image.

        Parameters
        ----------
        image : path, array or PIL image
            As `manymatch.io.load_image` takes them.
        longest : int, optional
            Another length of the longer edge for this image; 0 leaves it as it is.
        """
        return self.extract_many([image], longest=[longest])[0]

    def extract_many(
        self, images: Sequence[object], *, longest: Sequence[int | None] | None = None
    ) -> list[Features]:
        """Compute the features of several images; `longest` as in `extract`, by image."""
        return [features for (features,) in extract_all([self], images, longest=longest)]

    def _extract(self, image: _Given, longest: int | None) -> Features:
        """Compute features, with what other extractors have made of the same image."""
        config = self.config if longest is None else self.config.replace(longest=longest)
        frame = config.resizing.plan(image.size)
        if config.detector == NO_DETECTOR:
            # For a matcher that takes images; the cache keeps none.
            nothing = np.zeros((0, 2)), np.zeros(0, np.float32), np.zeros((0, 0), np.float32)
            key = {"kind": "image", "image": image.hash, "resize": config.resizing.to_dict()}
            resized = np.ascontiguousarray(resize_image(image.array, frame))
            return Features(*nothing, image.size, frame.content, provenance=key, image=resized)
        # Networks in torch take turns, and so do large images; others are worked on at once.
        large = math.prod(frame.content) > _LARGE
        torch = self.device is not None and not self.device.runs_onnx
        with self._lock if large or torch or config.debias else contextlib.nullcontext():
            key = {"kind": "features", "image": image.hash, **self._model_key(config)}
            arrays = self._kept(key, lambda: self._compute(image, config, frame))
        sizes = {name: tuple(arrays[name].tolist()) for name in ("size", "working")}
        debiased = int(arrays.get("debiased", 0))
        return Features(**arrays | sizes | {"debiased": debiased}, provenance=key)

    def _kept(self, key: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """Return arrays by name from the cache, or compute and keep them."""
        if self.cache is None:
            return compute()
        found = self.cache.read(key)
        if found is None:
            found = compute()
            self.cache.write(key, found)
        return found

    def _compute(self, image: _Given, config: FeatureConfig, frame: Frame) -> dict[str, Any]:
        """Compute the arrays of features, as a cache keeps them."""
        kind = (config.detection, config.resizing)
        if kind not in image.detections:
            found = self.detector.detect(resize_image(image.array, frame))
            points = frame.to_original(found.points)
            image.detections[kind] = dataclasses.replace(found, points=points)
        keypoints, debiased = image.detections[kind], 0
        if self.backbone is not None:
            keypoints, debiased = self._describe(keypoints, image, config, self.backbone)
        arrays = {name: getattr(keypoints, name) for name in _ARRAYS}
        sizes = {"size": np.array(image.size), "working": np.array(frame.content)}
        sizes["debiased"] = np.array(debiased)
        return sizes | {name: array for name, array in arrays.items() if array is not None}

    def _describe(
        self, keypoints: Keypoints, image: _Given, config: FeatureConfig, backbone: Backbone
    ) -> tuple[Keypoints, int]:
        """Sample the map of an image at the keypoints that lie on it.

        Also returns how many directions of position were removed.
        """
        layer = config.layer or backbone.num_layers
        has_budget = backbone.resize.patches is not None
        resize = Resize.budget(config.patches) if has_budget else config.resizing
        how: dict[str, Any] = {"resize": resize, "precision": config.precision}
        made = (id(backbone), layer, config.norm, *how.values())
        if made not in image.maps:
            maps = dense_maps([image.array], backbone, [layer], norm=config.norm, **how)
            image.maps[made] = maps[0][layer]
        dense = image.maps[made]
        places = keypoints.points
        if config.sampling == "paper" and not has_budget:
            # Half a pixel of the resized image to the upper left, in pixels of the user's image.
            places = places - 0.5 / config.resizing.plan(image.size).scale
        inside = dense.inside(places)
        kept, sampled = keypoints.take(inside), dense.sample(places[inside])
        if not config.debias:
            return Keypoints(kept.points, kept.scores, unit_rows(sampled)), 0
        basis = self._basis(backbone, layer, config, dense)
        rows = basis.apply(sampled, config.debias)
        return Keypoints(kept.points, kept.scores, rows), min(config.debias, basis.rank)

    def _basis(
        self, backbone: Backbone, layer: int, config: FeatureConfig, dense: FeatureMap
    ) -> PositionalBasis:
        """Basis for one input size: from memory, else from the cache, else from the probe."""
        key = (dense.input_size, dense.grid, layer, config)
        if key not in self._bases:
            seen = {"layer": layer, "grid": dense.grid, "input_size": dense.input_size}
            probe: dict[str, Any] = {"probe": config.probe, "norm": config.norm}
            arrays = self._kept(
                {"kind": "basis", **seen, **self._model_key(config)},
                lambda: vars(positional_bases({layer: dense}, backbone, **probe)[layer]),
            )
            while len(self._bases) >= _BASES_KEPT:
                self._bases.pop(next(iter(self._bases)))
            self._bases[key] = PositionalBasis(**arrays)
        return self._bases[key]

    @functools.cached_property
    def _hashes(self) -> dict[str, str]:
        modules = {
            "detector": self.detector.module,
            "backbone": getattr(self.backbone, "module", None),
        }
        return {f"{part}_weights": weights_hash(module) for part, module in modules.items()}

    def _model_key(self, config: FeatureConfig) -> dict[str, Any]:
        """Everything that changes a number, apart from the image."""
        settings = dataclasses.asdict(config)
        # Where the weights came from does not matter, which ones they are does.
        del settings["weights"], settings["detector_weights"]
        return {
            "revision": _REVISION,
            "settings": settings,
            "detector": self.detector.settings(),
            "weights": self._hashes,
            "device": None if self.device is None else self.device.type,
            "versions": library_versions(),
        }


class _Given:
    """An image and its hash; for several extractors, detections and maps by settings."""

    def __init__(self, array: NDArray[np.uint8]) -> None:
        self.array, self.size = array, (array.shape[1], array.shape[0])
        self.detections: dict[tuple[object, Resize], Keypoints] = {}
        self.maps: dict[tuple[object, ...], FeatureMap] = {}

    @functools.cached_property
    def hash(self) -> str:
        return content_hash(self.array)


def extract_all(
    extractors: Sequence[Extractor],
    images: Sequence[object],
    *,
    longest: Sequence[int | None] | None = None,
) -> list[tuple[Features, ...]]:
    """Compute several kinds of features of the same images, what they have in common once.

    Images are read once, and keypoints of equal settings at equal sizes are detected once. The
    cache has an entry for every kind, which does not depend on the others. Images are worked on at
    the same time, as many as there are cores. Arguments are as in `Extractor.extract_many`; the
    result has for each image the features of each extractor.
    """
    edges: list[int | None] = [None] * len(images) if longest is None else list(longest)
    if len(edges) != len(images):
        raise refusal("longest", f"one length per image ({len(images)})", edges)
    for extractor in extractors if images else ():
        extractor.load()

    def extracted(image: object, edge: int | None) -> tuple[Features, ...]:
        given = _Given(load_image(image))
        found = (extractor._extract(given, edge) for extractor in extractors)  # noqa: SLF001
        return tuple(found)

    threads = min(len(images), usable_cores())
    if threads < 2:
        return [extracted(*pair) for pair in zip(images, edges, strict=True)]
    pool = ThreadPoolExecutor(threads, "manymatch-features")
    try:
        return list(pool.map(extracted, images, edges))
    finally:
        # Ctrl-C does not wait for images in work.
        pool.shutdown(wait=False, cancel_futures=True)
