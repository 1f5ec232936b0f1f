"""Images in, keypoints with descriptors out, kept in a cache.

A cache is a folder with one HDF5 file per entry, named by the hash of its key, which is everything
that went into it. An entry is written under another name and renamed when complete, so several
processes may share a folder without locks and a killed one leaves nothing half-written. What was
damaged afterwards is noticed by a checksum, and computed again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import json
import threading
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from manymatch._environment import require
from manymatch._files import Sizes, as_path, h5_item, read_bytes, read_h5, write_whole
from manymatch._validate import count, integer, refusal
from manymatch.features.config import NATIVE, FeatureConfig, feature_config
from manymatch.features.debias import PositionalBasis, positional_bases
from manymatch.features.detectors.base import Keypoints
from manymatch.features.device import choose_device, library_versions, to_device, weights_hash
from manymatch.features.maps import FeatureMap, dense_maps, unit_rows
from manymatch.features.registry import load_backbone, load_detector
from manymatch.features.resize import Resize, resize_image
from manymatch.io.image import load_image

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from manymatch._validate import FloatArray, IndexArray
    from manymatch.features.backbone import Backbone
    from manymatch.features.detectors.base import Detector

# Raised when this package computes other numbers from the same settings.
_REVISION = 4
# Raised when the meaning of an entry of the cache changes; others are never read.
_CACHE_FORMAT = 1
_BASES_KEPT = 16
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, eq=False)
class Features:
    """Keypoints of one image with their descriptors, best first.

    Attributes
    ----------
    points : (N, 2) float64 ndarray
        Pixels (x, y) of the user's image; the centre of its top-left pixel is (0, 0).
    scores : (N,) float32 ndarray
        The detector's, falling.
    descriptors : (N, D) float32 ndarray
        Of length one.
    size : (int, int)
        Width and height of the user's image.
    working : (int, int) or None
        Width and height at which the keypoints were found; None where that is the image's own.
    further, owners : (M, D) float32 and (M,) int64 ndarrays, or None
        More descriptors of some keypoints (SIFT with several orientations), and whose they are.
    provenance : dict
        Everything that went into them.
    """

    points: FloatArray
    scores: NDArray[np.float32]
    descriptors: NDArray[np.float32]
    size: tuple[int, int]
    working: tuple[int, int] | None = None
    further: NDArray[np.float32] | None = None
    owners: IndexArray | None = None
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        width, height = self.size
        return (
            f"Features({count(len(self), 'keypoint')}, descriptors of length "
            f"{self.descriptors.shape[1]}, image {width} x {height})"
        )

    @property
    def working_size(self) -> tuple[int, int]:
        """Width and height at which the keypoints were found."""
        return self.size if self.working is None else self.working

    @property
    def working_scale(self) -> FloatArray:
        """Length at working size over that of the user's image, along x and y."""
        return np.divide(self.working_size, self.size)

    def all_descriptors(self) -> tuple[NDArray[np.float32], IndexArray]:
        """Return all rows, (N + M, D), and the keypoint that each belongs to."""
        own = np.arange(len(self))
        if self.further is None or self.owners is None:
            return self.descriptors, own
        return np.concatenate([self.descriptors, self.further]), np.concatenate([own, self.owners])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what a cache keeps."""
        names = ("points", "scores", "descriptors", "further", "owners")
        arrays = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        sizes = {"size": self.size, "working": self.working_size}
        return {**arrays, **{name: np.array(size) for name, size in sizes.items()}}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], provenance: dict[str, Any]
    ) -> Features:
        """Make features of what `to_arrays` returned."""
        known: dict[str, Any] = dict(arrays)
        for name in ("size", "working"):
            known[name] = tuple(known[name].tolist())
        return cls(**known, provenance=provenance)


class FeatureCache:
    """A folder of arrays by key.

    Parameters
    ----------
    folder : path
        Made when the first entry is written.
    """

    def __init__(self, folder: object) -> None:
        self.folder = as_path(folder, "cache")
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"cache must be a folder, got the file {str(self.folder)!r}")
        #: False after an entry could not be written.
        self.writable = True

    def __repr__(self) -> str:
        return f"FeatureCache({str(self.folder)!r}, {count(len(self), 'entry', 'entries')})"

    def __len__(self) -> int:
        return sum(1 for _ in self.folder.glob("??/*.h5"))

    def path(self, key: Mapping[str, Any]) -> Path:
        """Name of the file of an entry, there or not."""
        name = hashlib.sha256(_text(key).encode()).hexdigest()
        return self.folder / name[:2] / f"{name}.h5"

    def read(self, key: Mapping[str, Any]) -> dict[str, NDArray[Any]] | None:
        """Return the arrays of an entry; None when it is missing, damaged or of another key."""
        h5py = _h5py()
        path = self.path(key)
        if not path.is_file():
            return None
        try:
            content, sizes = read_bytes(path, "an entry of the cache"), Sizes()
            with h5py.File(io.BytesIO(content), "r") as file:
                attributes = {name: file.attrs.get(name) for name in ("key", "checksum")}
                arrays = {name: read_h5(h5_item(file, name), name, sizes) for name in file}
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError):
            # What h5py raises for a damaged file.
            return None
        expected = {"key": _text(key), "checksum": _checksum(arrays)}
        # An attribute may also be an array, of which a comparison is one.
        same = all(
            isinstance(value, str) and value == expected[name] for name, value in attributes.items()
        )
        return arrays if same else None

    def write(self, key: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write an entry, in place of one that is there.

        A folder that cannot be written to is warned of once, and serves as it is from then on.
        """
        if not self.writable:
            return
        h5py = _h5py()
        memory = io.BytesIO()
        with h5py.File(memory, "w") as file:
            file.attrs["key"] = _text(key)
            file.attrs["checksum"] = _checksum(arrays)
            for name, array in arrays.items():
                file.create_dataset(name, data=array)
        path = self.path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, lambda file: file.write(memory.getbuffer()))
        except OSError as error:
            self.writable = False
            reason = error.strerror or str(error)
            warnings.warn(
                f"the cache {str(self.folder)!r} cannot be written to ({reason}); features that it "
                "lacks are not kept",
                stacklevel=2,
            )


def content_hash(array: NDArray[Any]) -> str:
    """Hash an array by its values, shape and type."""
    whole = np.ascontiguousarray(array)
    digest = hashlib.sha256(f"{whole.shape} {whole.dtype.str} ".encode())
    digest.update(whole.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> str:
    parts = [f"{name} {content_hash(np.asarray(arrays[name]))}" for name in sorted(arrays)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _text(key: Mapping[str, Any]) -> str:
    return json.dumps({"format": _CACHE_FORMAT, **key}, sort_keys=True, allow_nan=False)


def _h5py() -> Any:
    return require("h5py", "a feature cache", "images")


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
    batch_size : int
        Images of equal size that go through a backbone together. More than one is faster on GPUs;
        the last bits may then depend on which images those are.

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
        batch_size: int = 1,
    ) -> None:
        self.config = config if isinstance(config, FeatureConfig) else feature_config(config)
        self.device = choose_device(device) if self.config.needs_torch else None
        self.offline = offline
        self.batch_size = integer(batch_size, "batch_size", 1)
        self.cache = (
            cache if cache is None or isinstance(cache, FeatureCache) else FeatureCache(cache)
        )
        self._bases: dict[tuple[object, ...], PositionalBasis] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # Networks and bases are loaded again where a copy or another process needs them.
        make = functools.partial(
            Extractor,
            self.config,
            device="auto" if self.device is None else str(self.device),
            offline=self.offline,
            cache=self.cache,
            batch_size=self.batch_size,
        )
        return make, ()

    def __repr__(self) -> str:
        return f"Extractor({self.config.detector} + {self.config.descriptor}, {self.device})"

    @functools.cached_property
    def detector(self) -> Detector:
        """The detector, loaded when first used."""
        config = self.config
        detector = load_detector(
            config.detector,
            max_keypoints=config.max_keypoints,
            nms_radius=config.nms_radius,
            border=config.border,
            threshold=config.threshold,
            weights=config.detector_weights,
            offline=self.offline,
        )
        if detector.module is not None:
            to_device(detector.module, _not_none(self.device))
        return detector

    @functools.cached_property
    def backbone(self) -> Backbone | None:
        """The backbone, loaded when first used; None where the descriptors are the detector's."""
        if self.config.descriptor == NATIVE:
            if self.detector.dim is None:
                raise ValueError(
                    f"descriptor must be a backbone, as the detector {self.config.detector!r} has "
                    f"no descriptors of its own, got {NATIVE!r}"
                )
            return None
        backbone = load_backbone(
            self.config.descriptor, weights=self.config.weights, offline=self.offline
        )
        to_device(backbone.module, _not_none(self.device))
        return backbone

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
        """Compute the features of several images, those of equal size together.

        Parameters
        ----------
        images : sequence of paths, arrays or PIL images
            All are held in memory at once.
        longest : sequence of int or None, optional
            For each image another length of the longer edge.
        """
        edges: list[int | None] = [None] * len(images) if longest is None else list(longest)
        if len(edges) != len(images):
            raise refusal("longest", f"one length per image ({len(images)})", edges)
        configs = [
            self.config if edge is None else self.config.replace(longest=edge) for edge in edges
        ]
        arrays = [load_image(image) for image in images]
        with self._lock:
            keys = [self._key(a, c) for a, c in zip(arrays, configs, strict=True)]
            found = [self._read(key) for key in keys]
            missing = [i for i, features in enumerate(found) if features is None]
            made = self._compute([arrays[i] for i in missing], [configs[i] for i in missing])
        for i, keypoints in zip(missing, made, strict=True):
            height, width = arrays[i].shape[:2]
            features = Features(
                keypoints.points,
                keypoints.scores,
                _not_none(keypoints.descriptors),
                (width, height),
                configs[i].resizing.plan((width, height)).content,
                keypoints.further,
                keypoints.owners,
                keys[i],
            )
            found[i] = features
            if self.cache is not None:
                self.cache.write(keys[i], features.to_arrays())
        return [_not_none(features) for features in found]

    def maps(
        self, images: Sequence[object], layers: Sequence[int] | None = None, *, debias: int = 0
    ) -> list[dict[int, FeatureMap]]:
        """Compute dense maps of several layers, corrected by a positional basis if asked for."""
        backbone = self.backbone
        if backbone is None:
            raise ValueError(
                f"descriptor must be a backbone to have maps, got {self.config.descriptor!r}"
            )
        arrays = [load_image(image) for image in images]
        results = self._dense(arrays, backbone, layers, self.config)
        if not debias:
            return results
        for maps in results:
            for layer, raw in maps.items():
                basis = self._basis(backbone, layer, self.config, raw)
                flat = raw.values.reshape(raw.dim, -1).T
                corrected = np.ascontiguousarray(basis.apply(flat, debias).T)
                maps[layer] = dataclasses.replace(raw, values=corrected.reshape(raw.values.shape))
        return results

    def _compute(
        self, arrays: list[NDArray[np.uint8]], configs: list[FeatureConfig]
    ) -> list[Keypoints]:
        detected = [
            self._detect(array, config.resizing)
            for array, config in zip(arrays, configs, strict=True)
        ]
        backbone = self.backbone
        if backbone is None:
            return detected
        maps: list[FeatureMap | None] = [None] * len(arrays)
        for config in dict.fromkeys(configs):
            which = [i for i, other in enumerate(configs) if other == config]
            layers = None if config.layer is None else [config.layer]
            dense = self._dense([arrays[i] for i in which], backbone, layers, config)
            for i, by_layer in zip(which, dense, strict=True):
                (maps[i],) = by_layer.values()
        return [
            self._describe(keypoints, _not_none(dense_map), config, backbone)
            for keypoints, dense_map, config in zip(detected, maps, configs, strict=True)
        ]

    def _detect(self, array: NDArray[np.uint8], resize: Resize) -> Keypoints:
        frame = resize.plan((array.shape[1], array.shape[0]))
        found = self.detector.detect(resize_image(array, frame))
        return dataclasses.replace(found, points=frame.to_original(found.points))

    def _dense(
        self,
        arrays: list[NDArray[np.uint8]],
        backbone: Backbone,
        layers: Sequence[int] | None,
        config: FeatureConfig,
    ) -> list[dict[int, FeatureMap]]:
        resize = config.resizing
        if backbone.resize.patches is not None:
            resize = Resize.budget(config.patches)
        return dense_maps(
            arrays,
            backbone,
            layers,
            norm=config.norm,
            resize=resize,
            batch_size=self.batch_size,
            precision=config.precision,
        )

    def _describe(
        self,
        keypoints: Keypoints,
        dense: FeatureMap,
        config: FeatureConfig,
        backbone: Backbone,
    ) -> Keypoints:
        """Sample the map at the keypoints that lie on it."""
        kept = keypoints.take(dense.inside(keypoints.points))
        sampled = dense.sample(kept.points)
        if config.debias:
            layer = backbone.num_layers if config.layer is None else config.layer
            basis = self._basis(backbone, layer, config, dense)
            return Keypoints(kept.points, kept.scores, basis.apply(sampled, config.debias))
        return Keypoints(kept.points, kept.scores, unit_rows(sampled))

    def _basis(
        self, backbone: Backbone, layer: int, config: FeatureConfig, dense: FeatureMap
    ) -> PositionalBasis:
        """Basis for one input size: from memory, else from the cache, else from the probe."""
        key = (dense.input_size, dense.grid, layer, config)
        if key in self._bases:
            return self._bases[key]
        seen = {"layer": layer, "grid": dense.grid, "input_size": dense.input_size}
        disk = {"kind": "basis", **seen, **self._model_key(config)}
        kept = None if self.cache is None else self.cache.read(disk)
        if kept is not None:
            basis = PositionalBasis(kept["vectors"], kept["singular_values"])
        else:
            basis = positional_bases(
                {layer: dense}, backbone, probe=config.probe, norm=config.norm
            )[layer]
            if self.cache is not None:
                arrays: dict[str, NDArray[Any]] = {
                    "vectors": basis.vectors,
                    "singular_values": basis.singular_values,
                }
                self.cache.write(disk, arrays)
        while len(self._bases) >= _BASES_KEPT:
            self._bases.pop(next(iter(self._bases)))
        self._bases[key] = basis
        return basis

    @functools.cached_property
    def _hashes(self) -> dict[str, str]:
        return {
            "detector_weights": weights_hash(self.detector.module),
            "backbone_weights": weights_hash(self.backbone.module if self.backbone else None),
        }

    def _model_key(self, config: FeatureConfig) -> dict[str, Any]:
        """Everything that changes a number, apart from the image."""
        settings = config.to_dict()
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

    def _key(self, array: NDArray[np.uint8], config: FeatureConfig) -> dict[str, Any]:
        return {"kind": "features", "image": content_hash(array), **self._model_key(config)}

    def _read(self, key: dict[str, Any]) -> Features | None:
        kept = None if self.cache is None else self.cache.read(key)
        return None if kept is None else Features.from_arrays(kept, key)


def _not_none(value: _T | None) -> _T:
    if value is None:
        raise RuntimeError("a step of the extraction returned nothing")
    return value
