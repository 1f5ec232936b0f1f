"""Runs made of parts: what exists is finished, what is damaged is done again."""

import os
import signal
import threading
from collections import Counter

import numpy as np
import pytest

from manymatch.batch.parts import (
    DamagedPart,
    RunInterrupted,
    cut,
    open_run,
    read_run,
    run_blocks,
    stop_point,
)

HEADER = {"config": {"power": 2, "names": ["a"]}, "pair_list_hash": "0" * 64}
COLUMNS = {"index": "int64", "value": "float64", "points": "binary"}


def squares(folder, size=4, **header):
    """Open a run of ten numbers, and the function that computes a block."""
    run = open_run(folder, HEADER | header, cut(range(10), size), COLUMNS)

    def do_block(block):
        rows = [{"index": int(i), "value": float(i) ** 2} for i in run.blocks[block]]
        run.write(block, rows)
        return Counter("odd" if row["index"] % 2 else "even" for row in rows)

    return run, do_block


def finished(folder, **more):
    run, do_block = squares(folder, **more)
    run_blocks(run.sizes(run.missing()), do_block, workers=2)
    return run


def test_missing_blocks_are_done_and_rows_come_in_order(tmp_path):
    run, do_block = squares(tmp_path)
    assert run.missing() == [0, 1, 2]
    do_block(1)
    assert [row["value"] for row in run.rows()] == [16.0, 25.0, 36.0, 49.0]
    seen = []
    blocks = run.sizes(run.missing())
    outcome = run_blocks(blocks, do_block, workers=2, progress=seen.append, earlier=4)
    assert run.missing() == []
    assert (outcome.computed, outcome.counts["even"], outcome.interrupted) == (6, 3, False)
    assert (seen[0].finished, seen[0].total, seen[0].seconds_left) == (4, 10, None)
    assert (seen[-1].finished, seen[-1].seconds_left) == (10, 0.0)
    assert [row["value"] for row in run.rows()] == [float(i) ** 2 for i in range(10)]


def test_parts_are_the_same_bytes_whoever_computes_them(tmp_path):
    first, second = finished(tmp_path / "a"), finished(tmp_path / "b")
    for block in range(3):
        assert first.path(block).read_bytes() == second.path(block).read_bytes()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"pair_list_hash": "1" * 64}, "the folder holds results for a different pair list"),
        (
            {"config": {"power": 3, "names": ["a"]}},
            r"the folder holds results of other settings \(config.power was 2 and is 3 now\)",
        ),
        (
            {"config": {"power": 2, "names": []}},
            r"config.names was \[\"a\"\] and is \[\] now",
        ),
    ],
)
def test_folder_of_other_settings_is_refused(tmp_path, changed, sentence):
    finished(tmp_path)
    with pytest.raises(ValueError, match=f"{sentence}.*; choose another --out"):
        squares(tmp_path, **changed)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("run.json", b"{", "a run must have a whole run.json, got .* remove it and run the same"),
        ("run.json", b"[]", "there is no format"),
    ],
)
def test_folder_that_is_no_run_is_refused(tmp_path, name, content, sentence):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        squares(tmp_path)
    assert read_run(tmp_path / "empty") is None


def flipped(whole, number):
    """Copies of a file, each with one other bit flipped."""
    for bit in np.linspace(0, 8 * len(whole) - 1, number).astype(int):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bytes(damaged)


def test_none_of_200_flipped_bits_changes_a_row(tmp_path):
    """Those of a part are noticed; without it its block is done again."""
    run, do_block = squares(tmp_path)
    run_blocks(run.sizes(run.missing()), do_block)
    whole = run.path(1).read_bytes()
    for damaged in flipped(whole, 200):
        run.path(1).write_bytes(damaged)
        with pytest.raises(DamagedPart, match=r"parts/000001.parquet' \(its checksum does not fit"):
            run.read(1)
    with pytest.raises(DamagedPart, match="remove it and run the same command again"):
        list(run.rows())
    run.path(1).unlink()
    assert len(list(run.rows())) == 6
    assert run.missing() == [1]
    run_blocks(run.sizes(run.missing()), do_block)
    assert run.path(1).read_bytes() == whole


def test_none_of_200_flipped_bits_changes_the_settings(tmp_path):
    finished(tmp_path)
    path, known, refused = tmp_path / "run.json", read_run(tmp_path), 0
    for damaged in flipped(path.read_bytes(), 200):
        path.write_bytes(damaged)
        try:
            found = read_run(tmp_path)
        except ValueError as error:
            assert "a run must have a whole run.json, got" in str(error)  # noqa: PT017
            refused += 1
        else:
            assert {name: found[name] for name in known} == known
    assert refused > 150


@pytest.mark.parametrize("length", [0, 1, 100, -1])
def test_truncated_part_is_refused(tmp_path, length):
    run = finished(tmp_path)
    run.path(0).write_bytes(run.path(0).read_bytes()[:length])
    with pytest.raises(DamagedPart, match=r"parts/000000\.parquet"):
        list(run.rows())


@pytest.mark.parametrize(
    ("other", "sentence"),
    [({"seed": 1}, "a run with other settings"), ({"size": 3}, "other items than its block")],
)
def test_part_of_another_run_is_refused(tmp_path, other, sentence):
    run, foreign = finished(tmp_path / "a"), finished(tmp_path / "b", **other)
    run.path(0).write_bytes(foreign.path(0).read_bytes())
    with pytest.raises(DamagedPart, match=sentence):
        list(run.rows())


@pytest.mark.parametrize("kind", ["string", "binary", "list"])
def test_text_that_many_rows_share_is_refused(tmp_path, kind):
    """A dictionary of the file has the text once: 11 KB could become gigabytes."""
    pyarrow, parquet = (pytest.importorskip(f"pyarrow{name}") for name in ("", ".parquet"))
    one = pyarrow.string() if kind == "list" else kind
    schema = {"index": "int64", "text": pyarrow.list_(one) if kind == "list" else kind}
    run = open_run(tmp_path, HEADER, cut(range(80), 80), schema)
    text = b"a" * 2000 if kind == "binary" else "a" * 2000
    value = [text] if kind == "list" else text
    run.write(0, [{"index": i, "text": value if i else None} for i in range(80)])
    table = run.read(0)
    assert table["text"].to_pylist() == [None] + [value] * 79

    class Writer(parquet.ParquetWriter):
        def __init__(self, *where, **how):
            super().__init__(*where, **how | {"use_dictionary": True})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "ParquetWriter", Writer)
        run.write(0, table.to_pylist())
    with pytest.raises(DamagedPart, match="its texts are packed in another way"):
        run.read(0)


def test_error_ends_the_run_and_finished_blocks_stay(tmp_path):
    run, do_block = squares(tmp_path)

    def full_disk(block):
        if block == 1:
            raise OSError(28, "No space left on device")
        return do_block(block)

    with pytest.raises(OSError, match="No space left"):
        run_blocks(run.sizes(run.missing()), full_disk)
    assert run.missing() == [1, 2]


def test_ctrl_c_ends_blocks_between_items_and_keeps_finished_ones(tmp_path):
    run, do_block = squares(tmp_path)
    threads = threading.active_count()

    def do(block):
        if block == 1:
            os.kill(os.getpid(), signal.SIGINT)
            while True:
                stop_point()
        return do_block(block)

    outcome = run_blocks(run.sizes(run.missing()), do)
    assert (outcome.interrupted, outcome.busy, outcome.computed) == (True, False, 4)
    assert run.missing() == [1, 2]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert threading.active_count() <= threads + 1
    with pytest.raises(RunInterrupted) as stop:
        outcome.raise_stop("so far", 4, 10)
    assert (stop.value.finished, stop.value.total, stop.value.result) == (4, 10, "so far")


def test_files_of_killed_processes_are_removed_when_they_are_old(tmp_path):
    run = finished(tmp_path)
    old, new = run.parts / f".{'a' * 32}.tmp", run.parts / f".{'b' * 32}.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    squares(tmp_path)
    assert (old.exists(), new.exists()) == (False, True)
