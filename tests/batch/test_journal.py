import json
import os

import pytest

from manymatch.batch.append_log import AppendLog
from manymatch.batch.journal import (
    DAMAGED,
    FORMAT,
    NAME,
    Journal,
    check_folder,
    read_journal,
)

HEADER = {
    "config": {"features": {"max_keypoints": 512, "layer": None}},
    "pair_count": 9,
    "pair_list_hash": "abc",
}


def record(index, **more):
    return {"index": index, "verdict": "solved", "name0": "ä b\n", **more}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "deep" / "run"
    with Journal(folder, HEADER) as journal:
        journal.append([record(3, hcm=0.1 + 0.2), record(1)])
        journal.append([record(7)])
    return folder


def indices(folder):
    with Journal(folder, HEADER) as journal:
        return [row["index"] for row in journal.records()]


def test_records_come_back_by_index(folder):
    with Journal(folder, HEADER) as journal:
        journal.append([record(0)])
        assert list(journal.records()) == [
            record(0),
            record(1),
            record(3, hcm=0.1 + 0.2),
            record(7),
        ]


def test_every_cut_keeps_whole_records(folder, monkeypatch):
    """Whatever length the file is cut to, whole records are kept and the rest can be added."""
    monkeypatch.setattr("os.fsync", lambda _: None)  # hundreds of them
    path = folder / NAME
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    order = [3, 1, 7]
    for length in range(ends[0], len(whole) + 1):
        path.write_bytes(whole[:length])
        kept = order[: sum(end <= length for end in ends[1:])]
        with Journal(folder, HEADER) as journal:
            assert [row["index"] for row in journal.records()] == sorted(kept)
            journal.append([record(i) for i in order if i not in kept])
        assert indices(folder) == [1, 3, 7]
        assert all(json.loads(line) for line in path.read_bytes().splitlines())


@pytest.mark.parametrize("tail", [b"\0" * 40, b'{"index":'])
def test_a_torn_end_is_dropped(folder, tail):
    path = folder / NAME
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    assert indices(folder) == [1, 3, 7]
    assert path.read_bytes() == whole
    assert not (folder / DAMAGED).exists()


def test_the_last_record_of_a_pair_counts(folder):
    with Journal(folder, HEADER) as journal:
        journal.append([record(3, verdict="likely")])
    with Journal(folder, HEADER) as journal:
        assert [row["verdict"] for row in journal.records()] == ["solved", "likely", "solved"]


DAMAGE = {
    "no JSON": b"garbage",
    "no object": b"[1, 2]",
    "no index": b'{"verdict":"solved"}',
    "a negative index": b'{"index":-1}',
    "an index that is no number": b'{"index":"1"}',
    "an index that is a truth value": b'{"index":true}',
    "nested": b'{"index":1,"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a number that is too long": b'{"index":' + b"9" * 10_000 + b"}",
    "no text": b'{"index":1,"name0":"\xff"}',
    "zeros": b"\0" * 100,
    "refused by the run": b'{"index":1,"verdict":"no verdict"}',
}


def check(row):
    if row.get("verdict") not in ("solved", "likely"):
        raise ValueError("another verdict")


@pytest.mark.parametrize("line", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_line_is_set_aside_and_its_pair_done_again(folder, line):
    path = folder / NAME
    lines = path.read_bytes().splitlines(keepends=True)
    # The line of pair 1, and another one at the end.
    path.write_bytes(b"".join([*lines[:2], line, b"\n", lines[3], b"once more\n"]))
    with Journal(folder, HEADER, check) as journal:
        assert [row["index"] for row in journal.records()] == [3, 7]
        assert len(journal.notes) == 1
        assert "2 lines of journal.jsonl (number 3, 5) were" in journal.notes[0]
        journal.append([record(1)])
    assert (folder / DAMAGED).read_bytes() == line + b"\nonce more\n"
    assert path.read_bytes() == b"".join([*lines[:2], lines[3], lines[2]])
    with Journal(folder, HEADER, check) as journal:
        assert [row["index"] for row in journal.records()] == [1, 3, 7]
        assert journal.notes == []


def test_a_long_line_is_not_held_in_memory(folder, monkeypatch):
    monkeypatch.setattr("manymatch.batch.journal._LONGEST_LINE", 100)
    path = folder / NAME
    whole = path.read_bytes()
    # The header is longer than that here.
    monkeypatch.setattr("manymatch.batch.journal._LONGEST_LINE", len(whole.splitlines()[0]) + 1)
    path.write_bytes(whole + b"x" * 1000 + b"\n")
    assert indices(folder) == [1, 3, 7]
    assert path.read_bytes() == whole
    assert (folder / DAMAGED).read_bytes() == b"x" * 1000 + b"\n"


def test_reading_alone_changes_nothing(folder):
    path = folder / NAME
    path.write_bytes(path.read_bytes() + b"garbage\n")
    with pytest.raises(ValueError, match=r"whole journal, got .*line 5 is no record"):
        read_journal(folder)
    assert not (folder / DAMAGED).exists()


def test_a_journal_without_header_is_an_error(folder):
    path = folder / NAME
    for content in (b"garbage\n", b"", b'{"index":0}\n', b"[" * 100_000 + b"\n"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="its first line is no header"):
            Journal(folder, HEADER)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match="it is a FIFO"):
        Journal(folder, HEADER)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"config": {"features": {"max_keypoints": 256, "layer": None}}},
            "config.features.max_keypoints was 512 and is 256 now",
        ),
        (
            {"config": {"features": {"max_keypoints": 512, "layer": 3}}},
            "config.features.layer was null and is 3 now",
        ),
        ({"config": {"features": {}}}, "config.features.max_keypoints was 512 and is null now"),
        ({"pair_count": 10}, "pair_count was 9 and is 10 now"),
        ({"pair_list_hash": "abd"}, "the pair list was another one"),
        ({"further": 1}, "further was null and is 1 now"),
    ],
)
def test_other_headers_are_refused(folder, change, says):
    before = (folder / NAME).read_bytes()
    with pytest.raises(ValueError, match=r"^out must be a new folder or one of the same run") as e:
        Journal(folder, {**HEADER, **change})
    assert str(e.value).endswith(f"where {says}")
    assert (folder / NAME).read_bytes() == before


def test_results_of_an_older_format_are_refused(folder):
    """Their verdicts were others, so that rows of both would not mean the same."""
    old = (folder / NAME).read_bytes().replace(b'"format":%d' % FORMAT, b'"format":1', 1)
    (folder / NAME).write_bytes(old)
    for start in (Journal, check_folder):
        with pytest.raises(ValueError, match=r"^out must be a new folder or one of the same") as e:
            start(folder, HEADER)
        assert str(e.value).endswith(
            f"where results are of format 1, and this version writes format {FORMAT}"
        )
    assert (folder / NAME).read_bytes() == old


def test_one_run_at_a_time(folder):
    with (
        Journal(folder, HEADER),
        pytest.raises(ValueError, match="that no other run is using"),
    ):
        Journal(folder, HEADER)
    assert indices(folder) == [1, 3, 7]


def test_a_file_is_no_folder(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="out must be a folder, got the file"):
        Journal(path, HEADER)


def test_left_overs_of_a_killed_run_are_removed(folder):
    (folder / "matches").mkdir()
    left_over = f".{'0a' * 16}.tmp"
    keep = [folder / "notes.tmp", folder / ".mine.tmp", folder / "matches" / "000001_a_b.npz"]
    gone = [folder / left_over, folder / "matches" / left_over]
    for path in keep + gone:
        path.write_bytes(b"x")
    assert indices(folder) == [1, 3, 7]
    assert all(path.exists() for path in keep)
    assert not any(path.exists() for path in gone)


def test_what_cannot_be_written_is_not_counted(folder, monkeypatch):
    with Journal(folder, HEADER) as journal:
        real = journal._log._file

        class Full:
            def write(self, data):
                real.write(data[:7])
                raise OSError(28, "No space left on device")

            def fileno(self):
                return real.fileno()

        with monkeypatch.context() as patch:
            patch.setattr(journal._log, "_file", Full())
            with pytest.raises(OSError, match="No space left"):
                journal.append([record(5)])
        assert len(list(journal.records())) == 3
        # Nothing is left of it that the next line could follow.
        journal.append([record(2)])
        assert [line["index"] for line in journal.records()] == [1, 2, 3, 7]
    assert indices(folder) == [1, 2, 3, 7]


def test_short_writes_are_completed(folder, monkeypatch):
    with Journal(folder, HEADER) as journal:
        real = journal._log._file

        class Slow:
            def write(self, data):
                return real.write(data[:7])

            def fileno(self):
                return real.fileno()

        with monkeypatch.context() as patch:
            patch.setattr(journal._log, "_file", Slow())
            journal.append([record(5), record(2)])
    assert indices(folder) == [1, 2, 3, 5, 7]


def test_a_log_gives_back_what_was_appended(tmp_path):
    parts = [b"one", b"", b"three" * 1000]
    with AppendLog(tmp_path / "log") as log:
        offsets = log.append(parts) + log.append([b"four\n"])
        assert offsets == [0, 3, 3, 5003]
        assert log.size == 5008
        assert [log.read(*place) for place in zip(offsets, [3, 0, 5000, 99], strict=True)] == [
            *parts,
            b"four\n",
        ]
        assert log.append([]) == []
    with pytest.raises(RuntimeError, match="log is closed"):
        log.append([b"more"])
    # The end that its user calls torn is dropped.
    with AppendLog(tmp_path / "log", 5003) as log:
        assert log.append([b"again"]) == [5003]
    assert (tmp_path / "log").read_bytes() == b"".join(parts) + b"again"
