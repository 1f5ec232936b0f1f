import csv

import pytest

from manymatch.batch import outputs as tables


def test_long_tables_come_in_chunks(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(tables, "_CHUNK", 3)
    table = [{"index": i, "seed": 2**64 - 1, "name0": 'a,"b"\n'} for i in range(8)]
    columns = {"index": int, "seed": int, "name0": str, "chance": float}
    tables.write_tables(tmp_path, columns, lambda: iter(table), {})
    whole = [{**row, "chance": None} for row in table]
    assert parquet.read_table(tmp_path / "pairs.parquet").to_pylist() == whole
    with (tmp_path / "pairs.csv").open(newline="") as file:
        texts = list(csv.DictReader(file))
    assert [row["name0"] for row in texts] == [row["name0"] for row in table]
    assert texts[0]["seed"] == str(2**64 - 1)


def test_sentences_that_differ_in_names_and_numbers_are_one_reason():
    sentences = [
        "image must be an image file, got 'a.jpg' (there is no such file)",
        "no keypoints in image 0",
        "image must be an image file, got 'b 2.jpg' (there is no such file)",
        "camera0 must be 320 x 240, got 1,640 x 480?",
        "camera0 must be 320 x 240, got 1,641 x 481?",
        "image must be an image file, got 'c.jpg' (it is empty)",
        "image must be an image file, got 'd.jpg' (there is no such file)",
    ]
    found = tables.count_reasons(sentences)
    assert [(reason.sentence, reason.count, reason.same) for reason in found] == [
        (sentences[0], 3, False),
        (sentences[3], 2, False),
        (sentences[1], 1, True),
        (sentences[5], 1, True),
    ]
    assert tables.reasons_sentence(found, "could not be run", 1200) == (
        f"7 of 1,200 pairs could not be run; 3 pairs: {sentences[0]} (and others alike); "
        f"2 pairs: {sentences[3]} (and others alike); 1 pair: {sentences[1]}; "
        f"1 pair: {sentences[5]}."
    )
    one = tables.count_reasons(["is it so?"])
    assert tables.reasons_sentence(one, "failed", 1, "trial") == "1 of 1 trial failed: is it so?"
    assert tables.count_reasons([]) == []
