"""A snapshot's updates, read without Spark: by shard, by table, and with a flipped bit.

On Spark: tests/integration/test_spark_tables.py."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_replay.archive.storage import open_storage
from spark_replay.selected import PLAIN
from spark_replay.tables.updates import TableRows, UpdatesFile, _Reading, _summed, file_from_json, file_to_json
from wormhole.model.errors import ArchiveError

NUMBER = pa.RecordBatch.from_pydict({"id": [0]})


def plain(number: int, shard: str, table: str) -> dict[str, Any]:
    texts = {"tx_source": "s", "op": "insert", "table": table, "shard": shard}
    numbers = {"tx_number": number, "tx_index": 0, "schema_id": 1, "ends_tx": True, "partial": False}
    return {"place": b"%025d" % number, "key": b"k", "old_key": None, "update": b"u%d" % number, **texts, **numbers}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [plain(number, shard, table) for shard in ("a", "b") for table in ("t", "u") for number in range(5)]
    made = {**PLAIN.empty_table().to_pydict(), **{name: [one.get(name) for one in rows] for name in PLAIN.names}}
    (tmp_path / "updates").mkdir()
    pq.write_table(pa.table(made, schema=PLAIN), tmp_path / "updates/1.parquet", row_group_size=5)
    return tmp_path


def read(folder: Path, file: UpdatesFile, **only: str) -> list[dict[str, Any]]:
    task = _Reading(open_storage(str(folder)), (file,), only)
    return [one for batch in task([NUMBER]) for one in batch.to_pylist()]


def summed(folder: Path) -> UpdatesFile:
    return _summed(open_storage(str(folder)), "updates/1.parquet")[0]


def test_what_a_file_holds_of_each_table(folder: Path) -> None:
    path = folder / "updates/1.parquet"
    rows = [*pq.read_table(path).to_pylist(), {**plain(1, "a", "t"), "partial": True, "schema_id": -2}]
    pq.write_table(pa.Table.from_pylist(rows, schema=PLAIN), path, row_group_size=5)
    assert _summed(open_storage(str(folder)), "updates/1.parquet")[1] == {
        "t": TableRows(11, 1, frozenset({1, (1 << 64) - 2})),
        "u": TableRows(10, 0, frozenset({1})),
    }


def test_rows_of_a_shard_or_of_a_table(folder: Path) -> None:
    file = summed(folder)
    assert file_from_json(file_to_json(file)) == file
    assert len(read(folder, file)) == 20
    assert [(one["shard"], one["table"]) for one in read(folder, file, shard="b")] == [("b", "t")] * 5 + [
        ("b", "u")
    ] * 5
    assert [one["shard"] for one in read(folder, file, table="u")] == ["a"] * 5 + ["b"] * 5
    assert read(folder, file, shard="c") == []


def test_a_flipped_bit_is_an_error_that_names_the_file(folder: Path) -> None:
    file, path, chance = summed(folder), folder / "updates/1.parquet", Random(3)
    whole = path.read_bytes()
    for _ in range(100):
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        with pytest.raises(
            ArchiveError, match=r"updates/1\.parquet cannot be read as a part of the snapshot"
        ) as caught:
            read(folder, file)
        assert "write the snapshot anew" in str(caught.value.hint)
    path.write_bytes(whole + b"x")
    with pytest.raises(ArchiveError, match=r"snapshot\.json says"):
        read(folder, file)
