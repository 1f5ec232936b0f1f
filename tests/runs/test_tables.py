import csv

import pytest

from manymatch.runs import tables


def test_long_tables_come_in_chunks(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(tables, "_CHUNK", 3)
    table = [{"index": i, "seed": 2**64 - 1, "name0": 'a,"b"\n'} for i in range(8)]
    columns = {"index": int, "seed": int, "name0": str, "chance": float}
    tables.write_parquet(tmp_path / "t.parquet", columns, lambda: iter(table), {})
    tables.write_csv(tmp_path / "t.csv", columns, lambda: iter(table))
    whole = [{**row, "chance": None} for row in table]
    assert parquet.read_table(tmp_path / "t.parquet").to_pylist() == whole
    with (tmp_path / "t.csv").open(newline="") as file:
        texts = list(csv.DictReader(file))
    assert [row["name0"] for row in texts] == [row["name0"] for row in table]
    assert texts[0]["seed"] == str(2**64 - 1)
