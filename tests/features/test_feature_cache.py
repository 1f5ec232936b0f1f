"""The feature cache: what it finds, what it refuses, who may share it."""

import multiprocessing
import os
import warnings

import numpy as np
import pytest

from manymatch.features.feature_cache import FeatureCache, content_hash

KEY = {"model": "a", "layer": 3, "nested": {"x": [1, 2.5, None]}}
ARRAYS = {
    "points": np.arange(8, dtype=np.float64).reshape(4, 2),
    "descriptors": np.ones((4, 3), np.float32),
    "empty": np.zeros((0, 2)),
}


def test_what_was_written_comes_back(tmp_path):
    cache = FeatureCache(tmp_path / "deep" / "cache")
    assert cache.read(KEY) is None
    cache.write(KEY, ARRAYS)
    back = FeatureCache(tmp_path / "deep" / "cache").read(KEY)
    assert set(back) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert np.array_equal(back[name], array)
        assert back[name].dtype == array.dtype
    assert len(list(cache.folder.glob("??/*.npz"))) == 1


@pytest.mark.parametrize(
    "other",
    [
        {**KEY, "layer": 4},
        {**KEY, "nested": {"x": [1, 2.5, 0]}},
        {**KEY, "more": 1},
        {"model": "a"},
    ],
)
def test_any_change_of_the_key_misses(tmp_path, other):
    cache = FeatureCache(tmp_path)
    cache.write(KEY, ARRAYS)
    assert cache.read(other) is None
    assert cache.read(dict(reversed(KEY.items()))) is not None


def test_an_entry_under_another_name_is_not_used(tmp_path):
    cache = FeatureCache(tmp_path)
    cache.write(KEY, ARRAYS)
    other = {**KEY, "layer": 4}
    cache.path(other).parent.mkdir(exist_ok=True)
    os.link(cache.path(KEY), cache.path(other))
    assert cache.read(other) is None


@pytest.mark.parametrize("cut", [0, 1, 7, 100, 600, -1, -40])
def test_a_half_written_entry_is_missing_and_can_be_replaced(tmp_path, cut):
    cache = FeatureCache(tmp_path)
    cache.write(KEY, ARRAYS)
    whole = cache.path(KEY).read_bytes()
    cache.path(KEY).write_bytes(whole[:cut])
    assert cache.read(KEY) is None
    cache.write(KEY, ARRAYS)
    assert cache.read(KEY) is not None


def test_every_changed_byte_of_the_data_is_noticed(tmp_path):
    cache = FeatureCache(tmp_path)
    cache.write(KEY, ARRAYS)
    whole = cache.path(KEY).read_bytes()
    start = whole.index(ARRAYS["points"].tobytes())
    for at in range(start, start + 64, 5):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        cache.path(KEY).write_bytes(damaged)
        assert cache.read(KEY) is None


def _write_many(folder, worker):
    cache = FeatureCache(folder)
    for i in range(20):
        cache.write({"i": i}, {"value": np.full(2000, i)})
        back = cache.read({"i": (i * 7) % 20})
        assert back is None or (back["value"] == (i * 7) % 20).all(), worker


def test_processes_share_a_folder(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write_many, args=(tmp_path, n)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert len(list(tmp_path.glob("??/*.npz"))) == 20
    assert not list(tmp_path.glob("**/.*.tmp"))


def test_content_hash_sees_values_shape_and_type():
    array = np.arange(6, dtype=np.int64)
    hashes = {
        content_hash(array),
        content_hash(array.reshape(2, 3)),
        content_hash(array.reshape(3, 2)),
        content_hash(array.astype(np.uint64)),
        content_hash(array[::-1]),
    }
    assert len(hashes) == 5
    assert content_hash(np.asfortranarray(array.reshape(2, 3))) in hashes


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="cache must be a folder"):
        FeatureCache(tmp_path / "file")
    with pytest.raises(ValueError, match="cache must be the name"):
        FeatureCache(3)


def test_a_folder_that_cannot_be_written_is_warned_of_once(tmp_path, monkeypatch):
    cache = FeatureCache(tmp_path)
    cache.write(KEY, ARRAYS)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("manymatch.features.feature_cache.write_whole", full)
    with pytest.warns(UserWarning, match="No space left on device"):
        cache.write({"other": 1}, ARRAYS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.write({"other": 2}, ARRAYS)
    assert cache.read({"other": 1}) is None
    assert cache.read(KEY) is not None


def test_a_file_of_other_arrays_is_damage(tmp_path):
    cache = FeatureCache(tmp_path)
    cache.write(KEY, ARRAYS)
    for content in ({"key": np.zeros(3)}, {"points": np.zeros(3)}, {"key": np.array({}, object)}):
        np.savez(cache.path(KEY), **content)
        assert cache.read(KEY) is None
