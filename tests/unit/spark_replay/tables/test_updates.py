"""A snapshot's files without Spark: written whole or not at all, read by shard, by table, and with a flipped bit.

On Spark: tests/integration/test_spark_tables.py."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_replay.archive.checksums import NO_BLOCKS, SummingSink
from spark_replay.archive.open_storage import open_storage
from spark_replay.selected import PLAIN
from spark_replay.tables import updates
from spark_replay.tables.updates import (
    TableRows,
    UpdatesFile,
    WrittenFile,
    file_from_json,
    file_rows,
    file_to_json,
    write_rows,
)
from wormhole.model.errors import ArchiveError, ArchiveUnavailable


def plain(number: int, shard: str, table: str) -> dict[str, Any]:
    texts = {"tx_source": "s", "op": "insert", "table": table, "shard": shard}
    numbers = {"tx_number": number, "tx_index": 0, "schema_id": 1, "ends_tx": True, "partial": False}
    return {"place": b"%025d" % number, "key": b"k", "old_key": None, "update": b"u%d" % number, **texts, **numbers}


def written(folder: Path, rows: list[dict[str, Any]]) -> WrittenFile:
    made = {**PLAIN.empty_table().to_pydict(), **{name: [one.get(name) for one in rows] for name in PLAIN.names}}
    batches = pa.table(made, schema=PLAIN).to_batches(max_chunksize=5)
    return write_rows(open_storage(str(folder)), "updates", PLAIN, batches)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UpdatesFile:
    """A file of twenty rows in four row groups."""
    monkeypatch.setattr(updates, "_ROW_GROUP", 1)
    rows = [plain(number, shard, table) for shard in ("a", "b") for table in ("t", "u") for number in range(5)]
    return written(tmp_path, rows).file


def read(folder: Path, file: UpdatesFile, **only: str) -> list[dict[str, Any]]:
    return [one for batch in file_rows(open_storage(str(folder)), file, **only) for one in batch.to_pylist()]


def test_what_a_file_holds_of_each_table(tmp_path: Path) -> None:
    rows = [plain(number, "a", table) for table in ("t", "u") for number in range(10)]
    found = written(tmp_path, [*rows, {**plain(1, "a", "t"), "partial": True, "schema_id": -2}])
    assert found.rows == 21
    assert found.tables == {
        "t": TableRows(11, 1, frozenset({1, (1 << 64) - 2})),
        "u": TableRows(10, 0, frozenset({1})),
    }


def test_a_file_that_was_not_finished_is_not_there(tmp_path: Path) -> None:
    whole = written(tmp_path, [plain(1, "a", "t")])

    def batches() -> Iterator[pa.RecordBatch]:
        yield from pq.read_table(tmp_path / whole.file.path).to_batches()
        raise ValueError("a bad row")

    with pytest.raises(ValueError, match="a bad row"):
        write_rows(open_storage(str(tmp_path)), "updates", PLAIN, batches())
    assert [f"updates/{path.name}" for path in (tmp_path / "updates").iterdir()] == [whole.file.path]


def test_a_storage_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(sink: SummingSink, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SummingSink, "write", full)
    with pytest.raises(ArchiveUnavailable, match=r"cannot write .*updates/.*\.parquet: .*No space left"):
        written(tmp_path, [plain(1, "a", "t")])
    assert list((tmp_path / "updates").iterdir()) == []


def test_a_file_has_the_columns_that_it_is_to_have(tmp_path: Path) -> None:
    shape = pa.schema([pa.field("at", pa.timestamp("us", tz="UTC")), pa.field("n", pa.int64())])
    hour = pa.array([3_600_000_000], pa.timestamp("us", tz="Europe/Rome"))
    batch = pa.RecordBatch.from_pydict({"n": pa.array([1], pa.int32()), "more": ["x"], "at": hour})
    found = write_rows(open_storage(str(tmp_path)), "t", shape, [batch])
    assert (found.rows, found.tables) == (1, {})
    assert pq.read_table(tmp_path / found.file.path) == pa.table([hour, [1]], schema=shape)
    empty = write_rows(open_storage(str(tmp_path)), "t", shape, ())
    assert pq.read_schema(tmp_path / empty.file.path) == shape


def test_rows_of_a_shard_or_of_a_table(tmp_path: Path, file: UpdatesFile) -> None:
    assert pq.read_metadata(tmp_path / file.path).num_row_groups == 4
    assert file_from_json(file_to_json(file)) == file
    assert len(read(tmp_path, file)) == 20
    assert [(one["shard"], one["table"]) for one in read(tmp_path, file, shard="b")] == [("b", "t")] * 5 + [
        ("b", "u")
    ] * 5
    assert [one["shard"] for one in read(tmp_path, file, table="u")] == ["a"] * 5 + ["b"] * 5
    assert read(tmp_path, file, shard="c") == []


def test_a_file_of_an_earlier_release_has_no_checksums(tmp_path: Path, file: UpdatesFile) -> None:
    assert len(read(tmp_path, replace(file, blocks=NO_BLOCKS))) == 20


def test_a_flipped_bit_is_an_error_that_names_the_file(tmp_path: Path, file: UpdatesFile) -> None:
    path, chance = tmp_path / file.path, Random(3)
    whole = path.read_bytes()
    for _ in range(100):
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        with pytest.raises(ArchiveError, match=rf"{path.name} cannot be read as a part of the snapshot") as caught:
            read(tmp_path, file)
        assert "write the snapshot anew" in str(caught.value.hint)
    path.write_bytes(whole + b"x")
    with pytest.raises(ArchiveError, match=r"snapshot\.json says"):
        read(tmp_path, file)
