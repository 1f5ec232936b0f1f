"""The log of the matches of a batch: read at any time, resumed after any damage."""

import json
import os
import shutil

import numpy as np
import pytest

import manymatch
from manymatch import read_matches
from manymatch.batch import match_store
from manymatch.batch.append_log import AppendLog
from manymatch.batch.batch import run_batch
from manymatch.batch.match_store import LOG, LogMatches
from manymatch.batch.outputs import matches_path
from manymatch.io import read_matches_npz
from manymatch.io.match_parquet import ParquetMatches
from manymatch_lab.datasets import exhaustive_pairs
from tests.support.pair_matches import same
from tests.support.small_batch import CONFIG, rows
from tests.support.synthetic_images import make_images

pytest.importorskip("cv2")
pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def kept(pairs, tmp_path_factory):
    """A batch with its matches as single files and as Parquet."""
    folder = tmp_path_factory.mktemp("kept")
    summary = run_batch(CONFIG, pairs, folder, workers=1, formats=["npz", "parquet"])
    assert summary.files[-2:] == (folder / "matches.parquet", folder / "keypoints.parquet")
    return folder


@pytest.fixture
def copy(kept, tmp_path):
    shutil.copytree(kept, tmp_path / "copy")
    return tmp_path / "copy"


def test_the_reader_gives_what_the_single_files_have(kept, pairs):
    assert manymatch.read_matches is read_matches
    for path in (kept, kept / "matches.parquet"):
        with read_matches(path) as store:
            assert store.indices.tolist() == list(range(len(pairs)))
            for index, pair in enumerate(pairs):
                wanted = read_matches_npz(matches_path(kept, index, pair.name0, pair.name1))
                same(store[index], wanted)
                same(store.by_names(pair.name0, pair.name1), wanted)
            found = [(index, name0, name1) for index, name0, name1, _ in store.items()]
            assert found == [(k, pair.name0, pair.name1) for k, pair in enumerate(pairs)]


def test_the_log_holds_keypoints_once(kept):
    log = (kept / LOG).read_bytes()
    with read_matches(kept) as store:
        assert isinstance(store, LogMatches)
        for index in (0, 5, 20):
            assert log.count(store[index].keypoints0.tobytes()) == 1
    assert log.count(b'"versions"') == 1


def test_without_the_log_there_is_parquet(copy):
    (copy / LOG).unlink()
    with read_matches(copy) as store:
        assert isinstance(store, ParquetMatches)
        assert len(store) == 21


def test_a_batch_can_be_read_while_it_runs(kept, pairs, tmp_path):
    seen = []

    def look(progress):
        if progress.finished:
            with read_matches(tmp_path) as store:
                seen.append(len(store))
                assert len(store) == progress.finished
                index = int(store.indices[-1])
                with read_matches(kept) as whole:
                    same(store[index], whole[index])

    run_batch(CONFIG, pairs, tmp_path, workers=2, formats=["parquet"], progress=look)
    assert seen[-1] == 21


def test_pairs_without_matches(tmp_path):
    make_images(tmp_path / "views", 3)
    pairs = exhaustive_pairs(tmp_path / "views")
    (tmp_path / "views" / "view002.png").write_bytes(b"no image")
    run_batch(CONFIG, pairs, tmp_path / "out", formats=["parquet"])
    for path in (tmp_path / "out", tmp_path / "out" / "matches.parquet"):
        with read_matches(path) as store:
            assert list(store) == [0]
            with pytest.raises(KeyError):
                store[1]
            with pytest.raises(KeyError):
                store.by_names("view000.png", "view002.png")


def test_what_has_no_matches_is_refused(pairs, copy, tmp_path):
    run_batch(CONFIG, pairs, tmp_path / "bare", limit=1)
    for place in (tmp_path / "bare", tmp_path / "nowhere", tmp_path, copy / "pairs.csv"):
        with pytest.raises(ValueError, match=r"^path must be the folder of a batch that keeps its"):
            read_matches(place)
    journal = copy / "journal.jsonl"
    header, *lines = journal.read_text().splitlines()
    for change, says in (
        ({"format": 4}, "results are of format 4"),
        ({"pair_count": 10**9}, "pair_count must be"),
        ({"matches": False}, "did not keep the matches"),
    ):
        changed = json.dumps({**json.loads(header), **change})
        journal.write_text("\n".join([changed, *lines, ""]))
        with pytest.raises(ValueError, match=says):
            read_matches(copy)


def same_outputs(folder, kept):
    assert rows(folder) == rows(kept)
    for name in ("matches.parquet", "keypoints.parquet"):
        assert (folder / name).read_bytes() == (kept / name).read_bytes()
    for path in (kept / "matches").iterdir():
        assert path.read_bytes() == (folder / "matches" / path.name).read_bytes()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("damage", ["torn", "a byte", "zeros"])
def test_damaged_matches_are_done_again(copy, kept, pairs, damage, seed):
    """Only pairs that need what is damaged; and the output says so."""
    data = bytearray((copy / LOG).read_bytes())
    at = int(np.random.default_rng(seed).integers(len(data) // 5, len(data)))
    if damage == "torn":
        del data[at:]
    elif damage == "a byte":
        data[at] ^= 0x40
    else:
        data[at : at + 50] = bytes(50)
    (copy / LOG).write_bytes(data)
    summary = run_batch(CONFIG, pairs, copy, workers=1, formats=["npz", "parquet"])
    assert 1 <= summary.computed <= len(pairs)
    number = "1 pair" if summary.computed == 1 else f"{summary.computed} pairs"
    assert any(f"The matches of {number} in {LOG} were damaged" in n for n in summary.notes)
    same_outputs(copy, kept)
    again = run_batch(CONFIG, pairs, copy, workers=1, formats=["npz", "parquet"])
    assert again.computed == 0
    assert not any("damaged" in note for note in again.notes)


def test_a_missing_log_is_done_again(copy, kept, pairs):
    (copy / LOG).unlink()
    assert run_batch(CONFIG, pairs, copy, formats=["npz", "parquet"]).computed == len(pairs)
    same_outputs(copy, kept)


def test_what_a_killed_run_left_is_dropped(copy, kept, pairs):
    """Records of which the journal does not know were not finished."""
    size = (copy / LOG).stat().st_size
    with (copy / LOG).open("ab") as log:
        log.write(os.urandom(1000))
    assert run_batch(CONFIG, pairs, copy, formats=["npz", "parquet"]).computed == 0
    assert (copy / LOG).stat().st_size == size
    same_outputs(copy, kept)


@pytest.mark.parametrize("number", [0, 1, 2, 5, 8])
def test_a_fault_at_any_write_loses_nothing(kept, pairs, tmp_path, monkeypatch, number):
    """Of the log or the journal, before or after its bytes are there."""
    plain, calls = AppendLog.append, []

    def append(log, parts):
        calls.append(log.path.name)
        if len(calls) == number + 1:
            log._opened().write(b"".join(parts)[: -1 - number])
            raise KeyboardInterrupt
        return plain(log, parts)

    monkeypatch.setattr(AppendLog, "append", append)
    with pytest.raises(KeyboardInterrupt):
        run_batch(CONFIG, pairs, tmp_path, workers=1, formats=["npz", "parquet"])
    assert calls[:2] == [LOG, "journal.jsonl"][: len(calls)]
    monkeypatch.undo()
    summary = run_batch(CONFIG, pairs, tmp_path, workers=2, formats=["npz", "parquet"])
    assert summary.finished == len(pairs)
    assert not any("damaged" in note for note in summary.notes)
    same_outputs(tmp_path, kept)


def test_a_row_that_says_wrong_where_its_matches_are(copy, pairs):
    journal = copy / "journal.jsonl"
    header, *lines = journal.read_text().splitlines()
    found = [json.loads(line) for line in lines]
    found[0]["stored"] = [2**61, 2**61]
    found[1]["stored"] = found[2]["stored"]
    found[3]["stored"] = [1, -3]
    del found[4]["stored"]
    journal.write_text("\n".join([header, *map(json.dumps, found), ""]))
    summary = run_batch(CONFIG, pairs, copy, workers=1, formats=["npz", "parquet"])
    # That of another pair is a whole record, so that one is believed.
    assert summary.computed == 3
    assert "2 lines of journal.jsonl" in summary.notes[0]


def test_matches_are_given_to_the_log_before_the_journal(pairs, tmp_path, monkeypatch):
    order = []
    plain = AppendLog.append

    def append(log, parts):
        order.append(log.path.name)
        return plain(log, parts)

    monkeypatch.setattr(AppendLog, "append", append)
    run_batch(CONFIG, pairs, tmp_path, workers=1, formats=["parquet"])
    assert order[::2] == [match_store.LOG] * (len(order) // 2)
    assert order[1::2] == ["journal.jsonl"] * (len(order) // 2)
