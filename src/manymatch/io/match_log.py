"""Matches of many pairs as records of bytes: what a run keeps of a pair until files are written.

A pair is packed into bytes of its own and parts that other pairs have as well: the keypoints of
either image, and the configuration. Parts are known by a digest, so that each is kept once. Arrays
are written as they are in memory, after a header in JSON; nothing is a pickle.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from manymatch._files import Sizes
from manymatch.geometry.pose import RelativePose
from manymatch.io.matches import (
    ALTERNATIVE_ARRAYS,
    PairMatches,
    alternative_arrays,
    alternatives_of,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

# Entries of a configuration that belong to the pair; the others are the same for all pairs.
_OWN_ENTRIES = ("cameras", "camera_priors", "shared_focal", "orientations")
_LENGTH = struct.Struct("<I")
# Types of numbers, as NumPy names them, by which arrays are kept.
_TYPES = ("<f8", "<f4", "<i4")
_SOURCES = ("source", "inlier_source")
_ARRAYS = ("matches", "confidence", "pose", "inliers", *ALTERNATIVE_ARRAYS, *_SOURCES)


class PackedMatches(NamedTuple):
    """Matches of a pair as bytes: what is its own, and the parts that it shares with other pairs.

    The parts are keypoints 0, keypoints 1 and the configuration, each after its digest.
    """

    own: bytes
    parts: tuple[tuple[bytes, bytes], ...]


def pack_matches(pair: PairMatches) -> PackedMatches:
    """Turn the matches of a pair into bytes; confidences are kept in single precision."""
    config = pair.config or {}
    own = {name: config[name] for name in _OWN_ENTRIES if name in config}
    common = {name: value for name, value in config.items() if name not in _OWN_ENTRIES}
    arrays = {
        "matches": pair.matches.astype("<i4"),
        "confidence": None if pair.confidence is None else pair.confidence.astype("<f4"),
        "pose": None if pair.pose is None else pair.pose.matrix(),
        "inliers": None if pair.inliers is None else pair.inliers.astype("<i4"),
        **alternative_arrays(pair.alternatives),
        **{name: getattr(pair, name) for name in _SOURCES},
    }
    header = {"config": own, **({"names": pair.source_names} if pair.source_names else {})}
    parts = (
        _join({}, {"points": pair.keypoints0}),
        _join({}, {"points": pair.keypoints1}),
        to_json(None if pair.config is None else common, "config").encode(),
    )
    return PackedMatches(
        _join(header, {name: a for name, a in arrays.items() if a is not None}),
        tuple((hashlib.blake2b(part, digest_size=16).digest(), part) for part in parts),
    )


def unpack_matches(own: bytes, parts: Sequence[bytes]) -> PairMatches:
    """Return what `pack_matches` was given; `ValueError` for bytes that are no such matches."""
    try:
        first, second, common = parts
        header, arrays = _split(own, _ARRAYS)
        points0, points1 = (_split(part, ("points",))[1]["points"] for part in (first, second))
        config = json.loads(common)
        if config is not None:
            config = {**config, **header["config"]}
        pose = None
        if "pose" in arrays:
            matrix = arrays["pose"].reshape(4, 4)
            pose = RelativePose(matrix[:3, :3], matrix[:3, 3])
        others = alternatives_of(arrays)
        rest = (arrays.get("confidence"), pose, arrays.get("inliers"), config, others)
        sources: dict[str, Any] = {name: arrays.get(name) for name in _SOURCES}
        names = header.get("names", ())
        return PairMatches(
            points0, points1, arrays["matches"], *rest, **sources, source_names=names
        )
    except (LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"it has no matches of a pair ({error})") from error


def _join(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Write a header and arrays as bytes."""
    kept = {}
    for name, array in arrays.items():
        kind = "<i4" if array.dtype.kind == "i" else array.dtype.newbyteorder("<").str
        kept[name] = np.ascontiguousarray(array, dtype=kind)
    listed = [[name, array.dtype.str, array.shape] for name, array in kept.items()]
    text = to_json({**header, "arrays": listed}, "config", separators=(",", ":")).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *(array.tobytes() for array in kept.values())])


def _split(data: bytes, names: Sequence[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read what `_join` wrote, arrays of these names only."""
    if len(data) < _LENGTH.size:
        raise ValueError("it is cut off")
    end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    header = json.loads(data[_LENGTH.size : end])
    arrays: dict[str, NDArray[Any]] = {}
    sizes = Sizes()
    for name, kind, shape in header["arrays"]:
        if name not in names or kind not in _TYPES or not 1 <= len(shape) <= 3:
            raise ValueError("it has an array of another kind")
        if not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError("it has an array of no size")
        sizes.add(shape, np.dtype(kind), f"the array {name!r}")
        start, number = end, int(np.prod(shape, dtype=object))
        end += number * np.dtype(kind).itemsize
        if end > len(data):
            raise ValueError("it is cut off")
        arrays[name] = np.frombuffer(data, kind, number, start).reshape(shape)
    if end != len(data):
        raise ValueError("it is longer than it says")
    return header, arrays
