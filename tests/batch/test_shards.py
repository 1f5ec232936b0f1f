"""Order and shards of pairs; shards joined are the batch that one run makes."""

import json
import shutil

import numpy as np
import pytest

from manymatch import read_matches
from manymatch.batch.batch import run_batch
from manymatch.batch.match_store import LOG
from manymatch.batch.merge import merge_batch
from manymatch.batch.shards import Shard, local_order
from manymatch_lab.datasets import Pair, exhaustive_pairs
from tests.support.importers import database_content
from tests.support.pair_matches import same as same_matches
from tests.support.small_batch import CONFIG, rows

FORMATS = ["parquet", "npz", "h5", "colmap", "colmap-db"]
SHARDS = 4


def loads(pairs, order, kept=60):
    """How often an image is read where the latest ones are kept."""
    recent, count = {}, 0
    for index in order:
        for path in (pairs[index].path0, pairs[index].path1):
            count += path not in recent
            recent.pop(path, None)
            recent[path] = None
            if len(recent) > kept:
                del recent[next(iter(recent))]
    return count


def listed_pairs(tmp_path, kind):
    places = {
        "all": [(i, j) for i in range(90) for j in range(i + 1, 90)],
        "sequence": [(i, i + step) for i in range(400) for step in range(1, 11)],
    }[kind]
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(places)
    names = rng.permutation(np.max(places) + 1)
    return [Pair(str(i), str(j), tmp_path / str(i), tmp_path / str(j)) for i, j in names[shuffled]]


@pytest.mark.parametrize(("kind", "most", "shards"), [("all", 240, 1.7), ("sequence", 900, 1.5)])
def test_the_order_keeps_images_together(tmp_path, kind, most, shards):
    """Going through all pairs, few images come in however small the memory is, or the part."""
    pairs = listed_pairs(tmp_path, kind)
    order = local_order(pairs)
    assert sorted(order) == list(range(len(pairs)))
    assert loads(pairs, order) <= most < loads(pairs, range(len(pairs))) / 5
    images = {pair.path0 for pair in pairs} | {pair.path1 for pair in pairs}
    parts = [
        {path for i in part for path in (pairs[i].path0, pairs[i].path1)}
        for part in np.array_split(order, 4)
    ]
    # Shuffled pairs, cut as they are listed, need all images in every part.
    assert sum(map(len, parts)) <= shards * len(images) * (1 if kind == "sequence" else 2)


def test_the_order_is_that_of_the_pairs_not_of_their_container(tmp_path):
    for name in "abcde":
        (tmp_path / f"{name}.png").write_bytes(b"")
    pairs = exhaustive_pairs(tmp_path)
    assert local_order(pairs).tolist() == local_order(list(pairs)).tolist()


@pytest.mark.parametrize("text", ["0/4", "5/4", "a/b", "3", "3/", "-1/4", "1/0", 3, "1/4/2", ""])
def test_shards_that_are_none(text):
    with pytest.raises(ValueError, match='shard must be a text such as "3/16"'):
        Shard.of(text)


@pytest.mark.parametrize("count", [1, 3, 16, 40])
def test_shards_are_all_pairs_once(pairs, count):
    parts = [Shard(k + 1, count).indices(pairs) for k in range(count)]
    assert sorted(np.concatenate(parts)) == list(range(len(pairs)))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert Shard(3, 16).folder(pairs[0].path0.parent).name == "03-of-16"


# ---------------------------------------------------------------- joined


@pytest.fixture(scope="module")
def whole(pairs, tmp_path_factory):
    """The batch of one run, with all files."""
    for package in ("h5py", "pycolmap", "pyarrow"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("whole")
    run_batch(CONFIG, pairs, folder, formats=FORMATS)
    return folder


@pytest.fixture(scope="module")
def apart(pairs, tmp_path_factory):
    """Four shards, run in another order than theirs."""
    folder = tmp_path_factory.mktemp("apart")
    for number in (3, 1, 4, 2):
        summary = run_batch(CONFIG, pairs, folder, formats=["npz"], shard=f"{number}/{SHARDS}")
        assert summary.total == summary.finished in (5, 6)
    return folder


@pytest.fixture
def shards(apart, tmp_path):
    shutil.copytree(apart, tmp_path, dirs_exist_ok=True)
    return tmp_path


def same(folder, whole):
    """Whether two batches have the same tables and matches."""
    assert rows(folder) == rows(whole)
    for name in ("matches", "colmap"):
        files = sorted(path.name for path in (whole / name).iterdir())
        assert files == sorted(path.name for path in (folder / name).iterdir())
        for file in files:
            assert (folder / name / file).read_bytes() == (whole / name / file).read_bytes()
    for name in ("features.h5", "matches.h5", "matches.parquet", "keypoints.parquet"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    assert database_content(folder / "database.db") == database_content(whole / "database.db")


def test_shards_joined_are_the_batch_of_one_run(shards, whole, pairs):
    summary = merge_batch(shards, formats=FORMATS)
    assert (summary.total, summary.finished, summary.computed) == (21, 21, 21)
    assert not any("not given" in note or "not finished" in note for note in summary.notes)
    same(shards, whole)
    # Again: nothing to add, the same result. Without the shards it is complete as well.
    assert merge_batch(shards, formats=FORMATS).computed == 0
    same(shards, whole)
    shutil.rmtree(shards / "shards")
    assert run_batch(CONFIG, pairs, shards, formats=FORMATS).computed == 0
    same(shards, whole)


def test_shards_come_one_by_one_from_anywhere(shards, whole, tmp_path_factory):
    out = tmp_path_factory.mktemp("joined")
    folders = sorted((shards / "shards").iterdir())
    summary = merge_batch(out, folders[2:3])
    assert "16 of 21 pairs are not finished yet." in summary.notes
    assert "Of 4 shards these were not given: 1, 2, 4." in summary.notes
    assert len(rows(out)) == summary.finished == 5
    merge_batch(out, folders[:1])
    merge_batch(out, folders, FORMATS)
    same(out, whole)


def test_a_batch_finishes_what_the_shards_lack(shards, whole, pairs):
    shutil.rmtree(shards / "shards" / "2-of-4")
    assert merge_batch(shards).finished < 21
    summary = run_batch(CONFIG, pairs, shards, formats=FORMATS)
    assert (summary.finished, summary.computed) == (21, len(Shard(2, 4).indices(pairs)))
    same(shards, whole)


def test_an_error_is_replaced_by_a_later_try(shards, pairs):
    journal = shards / "shards" / "1-of-4" / "journal.jsonl"
    header, first, *rest = journal.read_text().splitlines()
    index = json.loads(first)["index"]
    names = {"name0": pairs[index].name0, "name1": pairs[index].name1}
    failed = {"index": index, **names, "success": False, "verdict": "error", "error": "no file",
              "seed": 0, "seconds": 0.1}  # fmt: skip
    journal.write_text("\n".join([header, json.dumps(failed), *rest]) + "\n")
    summary = merge_batch(shards)
    assert summary.reasons[0].sentence == "no file"
    journal.write_text("\n".join([header, json.dumps(failed), *rest, first]) + "\n")
    summary = merge_batch(shards)
    assert (summary.computed, summary.reasons) == (1, ())


def test_a_torn_or_damaged_line_is_a_pair_that_is_missing(shards):
    journal = shards / "shards" / "1-of-4" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], b"{}\n", *lines[2:-1], lines[-1][:30]]))
    summary = merge_batch(shards)
    assert "2 of 21 pairs are not finished yet." in summary.notes


@pytest.mark.parametrize("missing", [False, True])
def test_damaged_matches_of_a_shard_are_said(shards, whole, pairs, missing):
    """Its other pairs are joined; run again, and joined again, it has all."""
    folder = shards / "shards" / "1-of-4"
    data = (folder / LOG).read_bytes()
    if missing:
        (folder / LOG).unlink()
    else:
        (folder / LOG).write_bytes(data[:-1] + b"\xff")
    summary = merge_batch(shards, formats=["parquet"])
    lost = len(Shard(1, 4).indices(pairs)) if missing else 1
    assert summary.finished == len(pairs) - lost
    said = f"{lost} pairs" if missing else "1 pair"
    assert f"The matches of {said} in {folder} are damaged; its shard run again" in str(summary)
    assert run_batch(CONFIG, pairs, shards, formats=["npz"], shard="1/4").computed == lost
    assert merge_batch(shards, formats=FORMATS).computed == lost
    same(shards, whole)


def test_a_shard_can_be_read_alone(shards, whole, pairs):
    wanted = Shard(2, 4).indices(pairs)
    with read_matches(shards / "shards" / "2-of-4") as store, read_matches(whole) as all_pairs:
        assert list(store) == sorted(wanted.tolist())
        for index in store:
            same_matches(store[index], all_pairs[index])


def test_mixtures_are_refused(shards, pairs, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    folders = sorted((shards / "shards").iterdir())
    run_batch(CONFIG.of(CONFIG, k=3), pairs, other, formats=["npz"], shard="2/4")
    with pytest.raises(ValueError, match=r"of one batch.*association.k was 5 and is 3"):
        merge_batch(shards, [folders[0], other / "shards" / "2-of-4"])
    run_batch(CONFIG, pairs, other, formats=["npz"], shard="2/5")
    with pytest.raises(ValueError, match='shard was "of 4" and is "of 5"'):
        merge_batch(shards, [folders[0], other / "shards" / "2-of-5"])
    run_batch(CONFIG, pairs[:3], other / "whole")
    with pytest.raises(ValueError, match="got the whole batch"):
        merge_batch(shards, [other / "whole"])
    with pytest.raises(ValueError, match="out must have shards below it"):
        merge_batch(tmp_path_factory.mktemp("empty"))
    with pytest.raises(ValueError, match="shards must be an existing folder"):
        merge_batch(shards, [other / "nowhere"])
    assert not (shards / "journal.jsonl").exists()


def test_what_a_shard_cannot_do(pairs, tmp_path):
    run_batch(CONFIG, pairs[:4], tmp_path, shard="1/2")
    with pytest.raises(ValueError, match="formats must be left out where the shards did not keep"):
        merge_batch(tmp_path, formats=["h5"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": 3}, "results are of format 3"),
        ({"pair_count": 10**15}, "pair_count must be"),
        ({"pair_count": None}, "pair_count must be"),
        ({"matches": "yes"}, "matches must be"),
        ({"with_rank_one": 2}, "with_rank_one must be"),
        ({"camera_per": "planet"}, "camera_per must be"),
        ({"shard": "9/4"}, "shard must be a text"),
    ],
)
def test_a_header_from_elsewhere_is_not_believed(shards, change, says):
    for journal in shards.glob("shards/*/journal.jsonl"):
        header, *rest = journal.read_text().splitlines()
        journal.write_text("\n".join([json.dumps(json.loads(header) | change), *rest]) + "\n")
    with pytest.raises(ValueError, match=says):
        merge_batch(shards)
    assert not (shards / "journal.jsonl").exists()
