"""Matches of many pairs as records of a log: what a run keeps until files are written of it.

A pair is packed into bytes of its own and parts that other pairs have as well: the keypoints of
either image, and the configuration. Parts are known by a digest, and are rarely written twice.
Arrays are written as they are in memory, after a header in JSON; nothing is a pickle. Every record
has its length and a checksum, and that of a pair says where in the log its parts are.
"""

from __future__ import annotations

import abc
import functools
import hashlib
import itertools
import json
import math
import struct
import zlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from manymatch._validate import count
from manymatch.geometry.pose import RelativePose
from manymatch.io.files import check_size, limit, too_large
from manymatch.io.matches import (
    ALTERNATIVE_ARRAYS,
    PairMatches,
    alternative_arrays,
    alternatives_of,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Self

    from numpy.typing import NDArray

    from manymatch._validate import FloatArray, IndexArray

    # Reads so many bytes from an offset on, fewer if the log ends before.
    Read = Callable[[int, int], bytes]

_K = TypeVar("_K")
_V = TypeVar("_V")

# Entries of a configuration that belong to the pair; the others are the same for all pairs.
_OWN_ENTRIES = ("cameras", "camera_priors", "shared_focal", "orientations")
_LENGTH = struct.Struct("<I")
_POINTS = {"points": None}
# Types of numbers, as NumPy names them, by which arrays are kept.
_TYPES = ("<f8", "<f4", "<i4")
_SOURCES = ("source", "inlier_source")
# Arrays of a pair, with the lengths of their further axes.
_ARRAYS: dict[str, tuple[int, ...]] = {
    "matches": (2,),
    "confidence": (),
    "pose": (4,),
    "inliers": (2,),
    **dict(zip(ALTERNATIVE_ARRAYS, ((4, 4), (), (3,)), strict=True)),
    **dict.fromkeys(_SOURCES, ()),
}

# Head of a record: what it is, checksum of all that follows, length of the content.
_HEAD = struct.Struct("<4sIQ")
_PART, _PAIR = b"mmP1", b"mmM1"
# Offset and length of the record of a part.
_PLACE = struct.Struct("<QQ")
# Parts: keypoints 0, keypoints 1, configuration.
_NUM_PARTS, _CONFIG = 3, 2
# Parts that a writer remembers and a reader holds.
_REMEMBERED, _HELD = 100_000, 256
# A part is written again after so many bytes of the log: if it is damaged, so are not all pairs.
_REACH = 64_000_000
# Read at once by a check of a whole log.
_BLOCK = 4_000_000


class MatchStore(abc.ABC):
    """Matches of many pairs, each read when it is asked for; a context manager.

    ``store[17]`` are the matches of the pair with this index in its batch, a `PairMatches`, and
    `by_names` those of two images. Iterating gives the indices, `items` all pairs one at a time.
    A pair that has no matches, as it could not be tried or was not finished when the store was
    opened, is a `KeyError`.
    """

    _by_names: tuple[NDArray[np.uint64], IndexArray] | None = None

    @property
    @abc.abstractmethod
    def indices(self) -> IndexArray:
        """Indices of the pairs that have matches, in increasing order."""

    @abc.abstractmethod
    def _names(self, place: int) -> tuple[str, str]:
        """Return the names of the images of a place in `indices`."""

    @abc.abstractmethod
    def _matches(self, place: int) -> PairMatches:
        """Return the matches of a place in `indices`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the files."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({count(len(self), 'pair')})"

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices.tolist())

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int | np.integer) and self._place(int(index)) is not None

    def __getitem__(self, index: int) -> PairMatches:
        place = self._place(index)
        if place is None:
            raise KeyError(index)
        return self._matches(place)

    def by_names(self, name0: str, name1: str) -> PairMatches:
        """Return the matches of two images, in this order; of several such pairs the first."""
        if self._by_names is None:
            names = map(self._names, range(len(self)))
            hashes = np.fromiter((_names_hash(*pair) for pair in names), np.uint64, len(self))
            order = np.argsort(hashes, kind="stable")
            self._by_names = hashes[order], order
        hashes, order = self._by_names
        wanted = np.uint64(_names_hash(name0, name1))
        first = int(np.searchsorted(hashes, wanted))
        for at in range(first, int(np.searchsorted(hashes, wanted, "right"))):
            if self._names(int(order[at])) == (name0, name1):
                return self._matches(int(order[at]))
        raise KeyError((name0, name1))

    def items(self) -> Iterator[tuple[int, str, str, PairMatches]]:
        """Go through index, names and matches of all pairs, one at a time."""
        for place, index in enumerate(self.indices.tolist()):
            yield index, *self._names(place), self._matches(place)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _place(self, index: int) -> int | None:
        place = int(np.searchsorted(self.indices, index))
        found = place < len(self.indices) and self.indices[place] == index
        return place if found else None


def _names_hash(name0: str, name1: str) -> int:
    text = f"{name0}\0{name1}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())


class Recent(OrderedDict[_K, _V]):
    """A dict of at most so many entries, without those that were used the longest time ago."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def find(self, key: _K, make: Callable[[], _V]) -> _V:
        """Return an entry, made if it is not there."""
        value = self[key] if key in self else make()
        self.put(key, value)
        return value

    def put(self, key: _K, value: _V) -> None:
        """Set an entry."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)


class PackedMatches(NamedTuple):
    """Matches of a pair as bytes: what is its own, and the parts that it shares with other pairs.

    The parts are keypoints 0, keypoints 1 and the configuration, each after its digest.
    """

    own: bytes
    parts: tuple[tuple[bytes, bytes], ...]


# --------------------------------------------------------------------------------- packing


def pack_matches(pair: PairMatches) -> PackedMatches:
    """Turn the matches of a pair into bytes; confidences are kept in single precision."""
    own, common = split_config(pair.config)
    arrays = {
        "matches": pair.matches,
        "confidence": None if pair.confidence is None else pair.confidence.astype(np.float32),
        "pose": None if pair.pose is None else pair.pose.matrix(),
        "inliers": pair.inliers,
        **alternative_arrays(pair.alternatives),
        **{name: getattr(pair, name) for name in _SOURCES},
    }
    header = {"config": own, **({"names": pair.source_names} if pair.source_names else {})}
    parts = (
        _join({}, {"points": pair.keypoints0}),
        _join({}, {"points": pair.keypoints1}),
        to_json(common, "config").encode(),
    )
    present = {name: array for name, array in arrays.items() if array is not None}
    return PackedMatches(_join(header, present), tuple((_digest(part), part) for part in parts))


def unpack_matches(packed: PackedMatches) -> PairMatches:
    """Return what `pack_matches` was given; `ValueError` for bytes that are no such matches."""
    return _assembled(
        packed.own, *(_unpacked(side, part) for side, (_, part) in enumerate(packed.parts))
    )


def _unpacked(side: int, part: bytes) -> Any:
    """Return the keypoints or the configuration that a part is."""
    try:
        return json.loads(part) if side == _CONFIG else _split(part, _POINTS)[1]["points"]
    except (LookupError, TypeError, RecursionError) as error:
        raise _no_matches(error) from error


def unpack_own(packed: PackedMatches) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return what belongs to the pair alone: a header, with its "config", and arrays."""
    try:
        header, arrays = _split(packed.own, _ARRAYS)
        if len({name in arrays for name in ALTERNATIVE_ARRAYS}) > 1:
            raise ValueError("it has a part of the alternatives only")
        _ = header["config"], arrays["matches"]
    except (LookupError, TypeError, RecursionError) as error:
        raise _no_matches(error) from error
    return header, arrays


def unpack_points(part: bytes) -> FloatArray:
    """Return the keypoints that a part of packed matches has."""
    return _unpacked(0, part)  # type: ignore[no-any-return]


def _assembled(own: bytes, points0: Any, points1: Any, common: Any) -> PairMatches:
    try:
        header, arrays = _split(own, _ARRAYS)
        pose = None
        if "pose" in arrays:
            matrix = arrays["pose"].reshape(4, 4)
            pose = RelativePose(matrix[:3, :3], matrix[:3, 3])
        config = join_config(header["config"], common)
        others = alternatives_of(arrays)
        rest = (arrays.get("confidence"), pose, arrays.get("inliers"), config, others)
        sources: dict[str, Any] = {name: arrays.get(name) for name in _SOURCES}
        sources["source_names"] = header.get("names", ())
        return PairMatches(points0, points1, arrays["matches"], *rest, **sources)
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _no_matches(error) from error


def _no_matches(error: Exception) -> ValueError:
    return ValueError(f"it has no matches of a pair ({type(error).__name__}: {error})")


def split_config(
    config: Mapping[str, Any] | None,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the entries of a configuration that belong to the pair, and all others."""
    if config is None:
        return {}, None
    own = {name: config[name] for name in _OWN_ENTRIES if name in config}
    return own, {name: value for name, value in config.items() if name not in own}


def join_config(own: Any, common: Any) -> dict[str, Any] | None:
    """Return what `split_config` was given."""
    if common is None:
        return None
    if not isinstance(own, dict) or not isinstance(common, dict):
        raise TypeError("no configuration")
    return {**common, **own}


def _digest(part: bytes) -> bytes:
    return hashlib.blake2b(part, digest_size=16).digest()


def _join(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Write a header and arrays as bytes; whole numbers have 32 bits."""
    kept = {
        name: np.ascontiguousarray(array, "<i4" if array.dtype.kind == "i" else array.dtype)
        for name, array in arrays.items()
    }
    listed = [[name, array.dtype.str, array.shape] for name, array in kept.items()]
    text = to_json({**header, "arrays": listed}, "config", separators=(",", ":")).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *(array.tobytes() for array in kept.values())])


def _split(
    data: bytes, known: Mapping[str, tuple[int, ...] | None]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read what `_join` wrote: arrays of these names, with these lengths of their further axes."""
    if len(data) < _LENGTH.size:
        raise ValueError("it is cut off")
    end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    header = json.loads(data[_LENGTH.size : end])
    arrays: dict[str, NDArray[Any]] = {}
    for name, kind, shape in header["arrays"]:
        if name not in known or kind not in _TYPES or not 1 <= len(shape) <= 3:
            raise ValueError("it has an array of another kind")
        if known[name] is not None and tuple(shape[1:]) != known[name]:
            raise ValueError(f"its {name} have another shape")
        if not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError("it has an array of no size")
        check_size(math.prod(shape))
        start, number = end, int(np.prod(shape, dtype=object))
        end += number * np.dtype(kind).itemsize
        if end > len(data):
            raise ValueError("it is cut off")
        arrays[name] = np.frombuffer(data, kind, number, start).reshape(shape)
    if end != len(data):
        raise ValueError("it is longer than it says")
    return header, arrays


# --------------------------------------------------------------------------------- records


def record(kind: bytes, content: bytes) -> bytes:
    """Make a record of a log."""
    return _HEAD.pack(kind, _checksum(content), len(content)) + content


def content_of(data: bytes, kind: bytes) -> bytes:
    """Return the content of a record; `ValueError` if it is damaged or of another kind."""
    if len(data) < _HEAD.size:
        raise ValueError("a record is cut off")
    found, checksum, length = _HEAD.unpack_from(data)
    content = data[_HEAD.size :]
    if found != kind or length != len(content):
        raise ValueError("there is no such record")
    if _checksum(content) != checksum:
        raise ValueError("a record is damaged")
    return content


def _checksum(content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(b"%d" % len(content)))


class LogWriter:
    """Makes the records of pairs for a log, parts that were written shortly before not again."""

    def __init__(self) -> None:
        self._known: Recent[bytes, tuple[int, int]] = Recent(_REMEMBERED)

    def records(
        self, pairs: Iterable[PackedMatches], size: int
    ) -> tuple[list[bytes], list[tuple[int, int]]]:
        """Return bytes to append to a log of this size, and offset and length of every pair.

        If they cannot be appended, `forget` must be called.
        """
        made: list[bytes] = []
        places = []
        for own, parts in pairs:
            refers = []
            for digest, part in parts:
                place = self._known.get(digest)
                if place is None or size - place[0] > _REACH:
                    made.append(record(_PART, part))
                    place = size, len(made[-1])
                    size += place[1]
                self._known.put(digest, place)
                refers.append(_PLACE.pack(*place))
            made.append(record(_PAIR, b"".join([*refers, own])))
            places.append((size, len(made[-1])))
            size += len(made[-1])
        return made, places

    def forget(self) -> None:
        """Write all parts again from now on."""
        self._known.clear()


class LogReader:
    """Reads the matches of pairs from a log, given how to read bytes of it.

    A record that is damaged, or not there, is a `ValueError`. The log may be from elsewhere.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        # Keypoints, or the configuration, by their place and what they are.
        self._parts: Recent[tuple[bool, tuple[int, int]], Any] = Recent(_HELD)
        self._packed: Recent[tuple[int, int], tuple[bytes, bytes]] = Recent(_HELD)

    def matches(self, offset: int, length: int) -> PairMatches:
        """Return the matches of the pair whose record is here."""

        def read(side: int, place: tuple[int, int]) -> Any:
            key = side == _CONFIG, place
            return self._parts.find(key, lambda: _unpacked(side, self._record(_PART, *place)))

        own, places = self._pair(offset, length)
        return _assembled(own, *itertools.starmap(read, enumerate(places)))

    def packed(self, offset: int, length: int) -> PackedMatches:
        """Return the same as bytes, to write them to another log."""

        def read(place: tuple[int, int]) -> tuple[bytes, bytes]:
            part = self._record(_PART, *place)
            return _digest(part), part

        own, places = self._pair(offset, length)
        parts = [self._packed.find(place, functools.partial(read, place)) for place in places]
        return PackedMatches(own, tuple(parts))

    def damaged(self, places: IndexArray) -> NDArray[np.bool_]:
        """Tell of which pairs something is damaged, by offset and length of their records (N, 2).

        The log is read once, more or less from its beginning to its end.
        """
        wrong = np.zeros(len(places), dtype=bool)
        read = _in_blocks(self._read)
        whole: Recent[tuple[int, int], bool] = Recent(_REMEMBERED)

        def check(place: tuple[int, int]) -> bool:
            try:
                self._record(_PART, *place, read)
            except ValueError:
                return False
            return True

        for row in np.argsort(places[:, 0], kind="stable").tolist():
            offset, length = places[row].tolist()
            try:
                _, parts = self._pair(offset, length, read)
            except ValueError:
                wrong[row] = True
            else:
                found = [whole.find(place, functools.partial(check, place)) for place in parts]
                wrong[row] = not all(found)
        return wrong

    def _pair(
        self, offset: int, length: int, read: Read | None = None
    ) -> tuple[bytes, list[tuple[int, int]]]:
        content = self._record(_PAIR, offset, length, read)
        size = _NUM_PARTS * _PLACE.size
        if len(content) < size:
            raise ValueError("a record is cut off")
        return content[size:], list(_PLACE.iter_unpack(content[:size]))

    def _record(self, kind: bytes, offset: int, length: int, read: Read | None = None) -> bytes:
        if length > limit("array_mb") * 1_000_000:
            raise too_large("a record of it has more megabytes", "array_mb")
        return content_of((read or self._read)(offset, length), kind)


def _in_blocks(read: Read) -> Read:
    """Read blocks of a fixed size, and hold the last ones."""
    blocks: Recent[int, bytes] = Recent(4)

    def reads(offset: int, length: int) -> bytes:
        first, last = offset // _BLOCK, (offset + max(length, 1) - 1) // _BLOCK
        found = []
        for number in range(first, last + 1):
            block = blocks.find(number, functools.partial(read, number * _BLOCK, _BLOCK))
            found.append(block)
            if len(block) < _BLOCK:
                break
        start = offset - first * _BLOCK
        return b"".join(found)[start : start + length]

    return reads
