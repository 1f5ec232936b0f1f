"""Matches as records of a log: packed and unpacked, shared parts once, damage found."""

import dataclasses
import json
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manymatch.io import PairMatches
from manymatch.io.match_log import (
    LogReader,
    LogWriter,
    PackedMatches,
    Recent,
    pack_matches,
    unpack_matches,
)
from tests.support.pair_matches import random_pair, same


@pytest.mark.parametrize("whole", [False, True])
def test_a_pair_comes_back(whole):
    pair = random_pair(3, whole=whole)
    same(unpack_matches(pack_matches(pair)), pair)
    same(unpack_matches(pack_matches(dataclasses.replace(pair, config=None))),
         dataclasses.replace(pair, config=None))  # fmt: skip


def test_points_in_space_and_nothing_at_all():
    empty = np.zeros((0, 2))
    for points in (np.zeros((4, 3)), empty):
        pair = PairMatches(points, points, np.zeros((0, 2), dtype=int))
        same(unpack_matches(pack_matches(pair)), pair)


def log_of(pairs):
    """Return a log as bytes, and the places of the pairs in it."""
    writer, data, places = LogWriter(), b"", []
    for pair in pairs:
        made, found = writer.records([pack_matches(pair)], len(data))
        data += b"".join(made)
        places += found
    return data, places


def reader(data):
    return LogReader(lambda offset, length: data[offset : offset + length])


PAIRS = [random_pair(k, images) for k, images in enumerate([(0, 1), (0, 2), (1, 2), (3, 4)])]
LOG, PLACES = log_of(PAIRS)


def test_a_log_has_every_list_of_keypoints_once():
    found = reader(LOG)
    for pair, place in zip(PAIRS, PLACES, strict=True):
        same(found.matches(*place), pair)
        same(unpack_matches(found.packed(*place)), pair)
    for image in range(5):
        points = np.random.default_rng(image).uniform(0, 900, (20 + image, 2))
        assert LOG.count(points.tobytes()) == 1
    assert LOG.count(b'"versions"') == 1
    assert not found.damaged(np.array(PLACES)).any()


def test_a_part_is_written_again_after_a_while(monkeypatch):
    """What is damaged concerns few pairs then."""
    monkeypatch.setattr("manymatch.io.match_log._REACH", 2000)
    data, places = log_of([PAIRS[0]] * 9)
    points = PAIRS[0].keypoints0.tobytes()
    assert 2 < data.count(points) < 9
    for place in places:
        same(reader(data).matches(*place), PAIRS[0])
    at = data.index(points)
    damaged = reader(data[:at] + b"\0" + data[at + 1 :]).damaged(np.array(places))
    assert damaged.any()
    assert not damaged.all()


@pytest.mark.parametrize("size", [1, 7, 1000, 10**6])
def test_blocks_do_not_matter(monkeypatch, size):
    monkeypatch.setattr("manymatch.io.match_log._BLOCK", size)
    assert not reader(LOG).damaged(np.array(PLACES)).any()
    assert reader(LOG[:-1]).damaged(np.array(PLACES)).tolist() == [False] * 3 + [True]


def test_a_writer_that_failed_writes_all_parts_again():
    writer = LogWriter()
    first, _ = writer.records([pack_matches(PAIRS[0])], 0)
    writer.forget()
    assert writer.records([pack_matches(PAIRS[0])], 0)[0] == first
    again, (place,) = writer.records([pack_matches(PAIRS[0])], sum(map(len, first)))
    assert len(again) == 1
    same(reader(b"".join([*first, *again])).matches(*place), PAIRS[0])


def test_a_copied_log_is_the_same():
    old, writer, data = reader(LOG), LogWriter(), b""
    for place in PLACES:
        made, _ = writer.records([old.packed(*place)], len(data))
        data += b"".join(made)
    assert data == LOG


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(LOG) - 1), st.integers(1, 255))
def test_a_wrong_byte_is_noticed(at, change):
    """Every pair is either as it was, or known to be damaged."""
    data = bytearray(LOG)
    data[at] ^= change
    found = reader(bytes(data))
    damaged = found.damaged(np.array(PLACES))
    assert damaged.any()
    for pair, place, wrong in zip(PAIRS, PLACES, damaged, strict=True):
        if wrong:
            with pytest.raises(ValueError, match="record"):
                found.matches(*place)
        else:
            same(found.matches(*place), pair)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(LOG) - 1))
def test_a_torn_end_is_noticed(size):
    found = reader(LOG[:size])
    damaged = found.damaged(np.array(PLACES))
    assert damaged.tolist() == [sum(place) > size for place in PLACES]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 2**62))))
def test_any_bytes_are_refused(data, places):
    array = np.array(places, dtype=np.int64).reshape(-1, 2)
    assert reader(data).damaged(array).all()
    for place in places:
        with pytest.raises(ValueError, match="record"):
            reader(data).matches(*place)


def packed(header, content=b"", length=None):
    text = json.dumps(header).encode()
    return struct.pack("<I", len(text) if length is None else length) + text + content


GOOD = pack_matches(PAIRS[0])


@pytest.mark.parametrize(
    "own",
    [
        b"",
        b"\0",
        packed({}),
        packed([]),
        packed({"arrays": 3}),
        packed({"arrays": [["matches", "<i4", [10**9, 10**9]]], "config": {}}),
        packed({"arrays": [["matches", "<i4", [-1, 2]]], "config": {}}),
        packed({"arrays": [["matches", "<i4", [1.0, 2]]], "config": {}}),
        packed({"arrays": [["matches", "<i4", [1, 2]]], "config": {}}, b"\0" * 7),
        packed({"arrays": [["matches", "<i4", [1, 2]]], "config": {}}, b"\0" * 9),
        packed({"arrays": [["matches", "|O", [1]]], "config": {}}, b"\0" * 8),
        packed({"arrays": [["other", "<i4", [0, 2]]], "config": {}}),
        packed({"arrays": [["matches", "<i4", [0, 2]]]}),
        packed({"arrays": [["matches", "<i4", [0, 2]]], "config": 3}),
        packed({"arrays": [["matches", "<i4", [1, 2]]], "config": {}}, b"\xff" * 8),
        packed({"arrays": [["matches", "<i4", [0, 2]], ["pose", "<f8", [0]]], "config": {}}),
        packed({}, length=2**31),
    ],
)  # fmt: skip
def test_content_that_is_no_pair_is_refused(own):
    """Its checksum may be right, if it comes from elsewhere."""
    with pytest.raises(ValueError, match=r".+"):
        unpack_matches(GOOD._replace(own=own))
    parts = ((b"", own), *GOOD.parts[1:])
    with pytest.raises(ValueError, match=r".+"):
        unpack_matches(PackedMatches(GOOD.own, parts))


def test_a_record_may_not_declare_more_than_it_may_have(monkeypatch):
    length = struct.pack("<4sIQ", b"mmM1", zlib.crc32(b""), 2**40)
    read = []

    def reads(offset, size):
        read.append(size)
        return length[offset : offset + size]

    with pytest.raises(ValueError, match="MANYMATCH_MAX_ARRAY_MB"):
        LogReader(reads).matches(0, 2**40)
    assert read == []
    monkeypatch.setenv("MANYMATCH_MAX_ARRAY_MB", "1")
    assert LogReader(reads).damaged(np.array([[2**41, 16]])).all()
    assert max(read) <= 8_000_000


def test_the_oldest_entry_goes():
    recent = Recent(2)
    for key in "aba":
        recent.find(key, lambda key=key: key)
    recent.put("c", 3)
    assert list(recent) == ["a", "c"]
