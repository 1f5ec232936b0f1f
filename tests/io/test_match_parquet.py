"""Matches of many pairs as Parquet: one group of rows is read to get a pair."""

import contextlib
import dataclasses
import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from manymatch.io import PairMatches, match_parquet
from manymatch.io.match_log import pack_matches
from manymatch.io.match_parquet import ParquetMatches, ParquetMatchWriter
from tests.support.pair_matches import random_pair, same

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

IMAGES = list(itertools.combinations(range(6), 2))
# As a batch has them: some pairs have no matches.
PAIRS = {
    3 * k: dataclasses.replace(
        random_pair(k, images, whole=k % 2 == 0), inliers=None, inlier_source=None
    )
    for k, images in enumerate(IMAGES)
}
NAMES = {3 * k: (f"im/{a}.jpg", f"ä {b}.jpg") for k, (a, b) in enumerate(IMAGES)}


def write(folder, pairs=PAIRS):
    with ParquetMatchWriter(folder) as writer:
        for index, pair in pairs.items():
            writer.add(index, *NAMES[index], pack_matches(pair))
    return folder / "matches.parquet"


@pytest.fixture(scope="module")
def matches_file(tmp_path_factory):
    return write(tmp_path_factory.mktemp("matches"))


@pytest.fixture
def small_groups(monkeypatch):
    monkeypatch.setattr(match_parquet, "_GROUP_PAIRS", 4)
    monkeypatch.setattr(match_parquet, "_GROUP_IMAGES", 2)


@pytest.mark.usefixtures("small_groups")
def test_all_pairs_come_back(tmp_path):
    with ParquetMatches(write(tmp_path)) as store:
        assert list(store) == store.indices.tolist() == list(PAIRS)
        assert len(store) == len(PAIRS)
        assert repr(store) == "ParquetMatches(15 pairs)"
        for index, pair in PAIRS.items():
            same(store[index], pair)
            same(store.by_names(*NAMES[index]), pair)
        for (index, *names, pair), wanted in zip(store.items(), PAIRS, strict=True):
            assert (index, tuple(names)) == (wanted, NAMES[wanted])
            same(pair, PAIRS[wanted])
        assert 3 in store
        assert np.int64(3) in store
        assert 4 not in store
        for missing in (4, -1, 10**12):
            with pytest.raises(KeyError):
                store[missing]
        for names in (NAMES[3][::-1], ("im/0.jpg", "x"), ("", "")):
            with pytest.raises(KeyError):
                store.by_names(*names)
    assert parquet.read_metadata(tmp_path / "matches.parquet").num_row_groups == 4
    table = parquet.read_table(tmp_path / "keypoints.parquet")
    # Each list of keypoints once.
    assert table["id"].to_pylist() == list(range(6))
    assert sorted(len(x) for x in table["x"].to_pylist()) == list(range(20, 26))


@pytest.mark.usefixtures("small_groups")
def test_one_pair_needs_one_group(tmp_path, monkeypatch):
    store = ParquetMatches(write(tmp_path))
    read = []
    plain = match_parquet._Groups.read

    def counted(self, number, columns=None):
        read.append((number, columns))
        return plain(self, number, columns)

    monkeypatch.setattr(match_parquet._Groups, "read", counted)
    same(store[15], PAIRS[15])
    assert [number for number, columns in read if columns is None] == [1]
    assert len(read) <= 3
    same(store[12], PAIRS[12])
    assert [number for number, columns in read if columns is None] == [1]
    store.close()


@pytest.mark.usefixtures("small_groups")
def test_parts_of_files_at_an_address_are_read(tmp_path, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    rng = np.random.default_rng(0)
    points = [rng.uniform(0, 900, (20_000, 2)) for _ in range(6)]
    pairs = {
        3 * k: PairMatches(points[a], points[b], [[0, 1], [2, 3]])
        for k, (a, b) in enumerate(IMAGES)
    }
    path = write(tmp_path, pairs)
    memory, fetched = fsspec.filesystem("memory"), []
    sizes = {}
    for file in (path, path.with_name("keypoints.parquet")):
        memory.pipe_file(f"/parquet/{file.name}", file.read_bytes())
        sizes[file.name] = file.stat().st_size
    plain = type(memory).cat_file

    def cat_file(self, name, start=None, end=None, **more):
        fetched.append((name, start, end))
        return plain(self, name, start, end, **more)

    monkeypatch.setattr(type(memory), "cat_file", cat_file)
    with ParquetMatches("memory://parquet/matches.parquet") as store:
        same(store[0], pairs[0])
    read = sum(end - start for name, start, end in fetched if "keypoints" in name)
    assert 0 < read < sizes["keypoints.parquet"] / 2
    memory.rm("/parquet/keypoints.parquet")
    with pytest.raises(ValueError, match=r"^path must be a Parquet file of matches.*no such file"):
        ParquetMatches("memory://parquet/matches.parquet")
    memory.rm("/parquet", recursive=True)


def test_large_pairs_make_small_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(match_parquet, "_GROUP_BYTES", 1000)
    path = write(tmp_path)
    assert parquet.read_metadata(path).num_row_groups > 3
    with ParquetMatches(path) as store:
        same(store[42], PAIRS[42])


def test_no_pair_at_all(tmp_path):
    with ParquetMatches(write(tmp_path, {})) as store:
        assert list(store.items()) == []
        with pytest.raises(KeyError):
            store.by_names("a", "b")


def test_pairs_without_anything(tmp_path):
    pair = PairMatches(np.zeros((0, 2)), np.zeros((3, 2)), np.zeros((0, 2), dtype=int))
    with ParquetMatches(write(tmp_path, {0: pair})) as store:
        same(store[0], pair)


def test_a_fault_leaves_the_old_files(tmp_path):
    write(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def interrupted():
        with ParquetMatchWriter(tmp_path) as writer:
            writer.add(0, "a", "b", pack_matches(PAIRS[0]))
            raise RuntimeError("power")

    with pytest.raises(RuntimeError, match="power"):
        interrupted()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_keypoints_of_other_matches_are_refused(tmp_path):
    (tmp_path / "other").mkdir()
    path = write(tmp_path)
    few = write(tmp_path / "other", {0: PAIRS[0]})
    (tmp_path / "keypoints.parquet").write_bytes(few.with_name("keypoints.parquet").read_bytes())
    with ParquetMatches(path) as store, pytest.raises(ValueError, match="keypoints must be"):
        store[42]


def test_what_is_no_such_file_is_refused(tmp_path):
    path = write(tmp_path)
    for content in (b"", b"PAR1" * 20, path.read_bytes()[:-20]):
        (tmp_path / "x.parquet").write_bytes(content)
        with pytest.raises(ValueError, match=r"^path must be a Parquet file of matches.*\(it"):
            ParquetMatches(tmp_path / "x.parquet")
    parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="it has other columns"):
        ParquetMatches(tmp_path / "x.parquet")
    (tmp_path / "keypoints.parquet").unlink()
    with pytest.raises(ValueError, match=r"keypoints.parquet.*no such file"):
        ParquetMatches(path)


@pytest.mark.usefixtures("small_groups")
def test_sizes_are_those_that_pyarrow_tells(tmp_path):
    for path in (write(tmp_path), tmp_path / "keypoints.parquet"):
        metadata = parquet.read_metadata(path)
        groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
        with path.open("rb") as file:
            assert match_parquet._declared_sizes(file) == [
                sum(
                    max(part.total_uncompressed_size, 8 * part.num_values)
                    for part in map(group.column, range(group.num_columns))
                )
                for group in groups
            ]


@given(st.data())
def test_damaged_descriptions_are_refused(matches_file, data):
    """Damage of the description of the groups, where pyarrow would end the process."""
    content = bytearray(matches_file.read_bytes())
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for place in data.draw(st.lists(st.integers(start, len(content) - 9), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    damaged = matches_file.with_name("damaged.parquet")
    damaged.write_bytes(content)
    with contextlib.suppress(ValueError), ParquetMatches(damaged) as store:
        for index, _, _, pair in store.items():
            assert index >= 0
            assert pair.matches.max(initial=-1) < len(pair.keypoints0) + len(pair.keypoints1)


def test_limits(tmp_path, monkeypatch):
    path = write(tmp_path)
    with monkeypatch.context() as patch:
        patch.setenv("MANYMATCH_MAX_RECORDS", "3")
        with pytest.raises(ValueError, match="MANYMATCH_MAX_RECORDS"):
            ParquetMatches(path)
    # Runs of equal numbers are tiny on disk.
    (tmp_path / "big").mkdir()
    schemas = match_parquet._schemas()[1:]
    column = pyarrow.array([np.zeros(300_000)], pyarrow.list_(pyarrow.float64()))
    points = pyarrow.Table.from_arrays(
        [pyarrow.array([0]), pyarrow.array(["a"]), column, column], schema=schemas[1]
    )
    pair = PairMatches(np.zeros((1, 2)), np.zeros((1, 2)), [[0, 0]])
    big = write(tmp_path / "big", {0: pair})
    parquet.write_table(points, big.with_name("keypoints.parquet"))
    assert big.with_name("keypoints.parquet").stat().st_size < 10_000
    with ParquetMatches(big) as store:
        assert len(store[0].keypoints0) == 300_000
        monkeypatch.setenv("MANYMATCH_MAX_ARRAY_MB", "1")
    with ParquetMatches(big) as store, pytest.raises(ValueError, match="MANYMATCH_MAX_ARRAY_MB"):
        store[0]


@pytest.mark.parametrize("seed", range(40))
def test_damage_is_an_error_or_nothing(tmp_path, seed):
    """What is read is what was written, or refused in one sentence."""
    rng = np.random.default_rng(seed)
    path = write(tmp_path)
    target = path if seed % 2 else path.with_name("keypoints.parquet")
    data = bytearray(target.read_bytes())
    for at in rng.integers(0, len(data), 1 + seed % 5):
        data[at] ^= int(rng.integers(1, 256))
    target.write_bytes(data)
    said = ""
    try:
        with ParquetMatches(path) as store:
            for index, *names, pair in store.items():
                assert tuple(names) == NAMES[index]
                same(pair, PAIRS[index])
    except ValueError as error:
        said = str(error)
    assert not said or said.startswith("path must be a Parquet file of matches")
