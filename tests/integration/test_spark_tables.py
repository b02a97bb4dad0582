"""Snapshot, history and the streaming source against the true state of a store, read by Spark SQL, DuckDB and pandas."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pytest

from spark_replay.tables.chosen import Reading
from spark_replay.tables.folder import table_folder
from spark_replay.tables.history import write_history
from spark_replay.tables.snapshot import start_rows, write_snapshot
from tests.support.archives import Change, Tx, tx, write_archive
from wormhole.errors import ReplayError, UsageError
from wormhole.schema import Column, Schema
from wormhole.values import UNAVAILABLE, Op, Value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime(2026, 5, 1, tzinfo=UTC)
ID = Column("id", "int")
FIRST = (ID, Column("name", "text"), Column("price", "decimal"), Column("seen", "uint"), Column("raw", "bytes"))
ORDERS = Schema("shop.orders", (ID,), FIRST)
WIDER = Schema("shop.orders", (ID,), (*FIRST, Column("doc", "text")))
KEYLESS = Schema("shop.events", (), (Column("text", "text"),))
NAMES = [column.name for column in WIDER.columns]

Row = tuple[Value, ...]


class Server:
    """A table as a MySQL server has it, and the transactions that its log holds: with ``binlog_row_image=MINIMAL`` from time to time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.schema = ORDERS
        self.rows: dict[int, Row] = {}
        self.states: list[dict[int, Row]] = [{}]
        self.log: list[Tx] = []

    def commit(self, *changes: Change) -> None:
        self.log.append(tx(*changes))
        self.states.append(dict(self.rows))

    def values(self) -> Row:
        choose = self.random.choice
        found: list[Value] = [
            choose(["ann", "Bö", "", None]),
            choose([Decimal("0.10"), Decimal("-12345678901234567890.55"), None]),
            choose([0, 5, (1 << 64) - 1, None]),
            choose([b"\x00\xff", b"", None]),
        ]
        return (*found, choose(['{"a": 1}', None])) if self.schema is WIDER else tuple(found)

    def write(self) -> Change:
        if not self.rows or self.random.random() < 0.3:
            key = self.random.randrange(1000, 2000)
            if key not in self.rows:
                self.rows[key] = (key, *self.values())
                return Change(Op.INSERT, (key,), self.rows[key], schema=self.schema)
        key = self.random.choice(sorted(self.rows))
        before = self.rows.pop(key)
        if self.random.random() < 0.2:
            return Change(Op.DELETE, (key,), before=before, schema=self.schema)
        to = key if self.random.random() < 0.8 else self.random.randrange(2000, 2040)
        to = key if to in self.rows else to
        new: list[Value] = [to, *self.values()]
        full = before + (UNAVAILABLE,) * (len(new) - len(before))
        kept = [i for i in range(1, len(new)) if self.random.random() < 0.4]
        logged = [UNAVAILABLE if i in kept else value for i, value in enumerate(new)]
        self.rows[to] = tuple(full[i] if i in kept else value for i, value in enumerate(new))
        old = (key,) if to != key else ()
        return Change(Op.UPDATE, (to,), tuple(logged), old_key=old, schema=self.schema)

    def run(self, transactions: int) -> None:
        for number in range(transactions):
            if number == transactions // 2:
                self.rows.clear()
                self.commit(Change(Op.TRUNCATE, (), schema=Schema("shop.orders", (), ())))
            if number == transactions * 2 // 3:
                self.schema = WIDER
            self.commit(*(self.write() for _ in range(self.random.randrange(1, 4))))

    def state(self, at: int) -> dict[int, dict[str, Any]]:
        """What a reader of Parquet should see after so many transactions: ``None`` also for what no log says."""
        return {key: seen(row) for key, row in self.states[at].items()}


def seen(row: Row) -> dict[str, Any]:
    full = row + (UNAVAILABLE,) * (len(NAMES) - len(row))
    cells: dict[str, Any] = {}
    for name, value in zip(NAMES, full, strict=True):
        plain = None if value is UNAVAILABLE else value
        if name == "price" and isinstance(plain, Decimal):
            plain = format(plain, "f")
        cells[name] = Decimal(plain) if name == "seen" and isinstance(plain, int) else plain
    cells["_unavailable"] = sorted(name for name, value in zip(NAMES, full, strict=True) if value is UNAVAILABLE)
    return cells


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as every reader has it: pandas has NaN for no value, Spark bytearrays, DuckDB lists."""
    cells = {}
    for name in NAMES:
        value = row[name]
        missing = value is None or (isinstance(value, float) and value != value)
        cells[name] = None if missing else bytes(value) if name == "raw" else value
    unknown = row["_unavailable"]
    listed = [] if unknown is None or isinstance(unknown, float) else unknown
    return {**cells, "_unavailable": sorted(listed)}


def by_spark(spark: SparkSession, folder: Path, query: str) -> list[dict[str, Any]]:
    spark.read.parquet(f"file://{folder}").createOrReplaceTempView("t")
    return [row.asDict() for row in spark.sql(query).collect()]


def by_duckdb(folder: Path, query: str) -> list[dict[str, Any]]:
    with duckdb.connect() as db:
        db.execute(f"create view t as select * from read_parquet('{folder}/*.parquet')")
        found = db.execute(query)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def by_pandas(folder: Path, current: bool) -> list[dict[str, Any]]:
    frame = pd.read_parquet(folder)
    if current:
        frame = frame[frame["_valid_to"].isna()]
    return list(frame.to_dict("records"))


def state(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    found = {int(row["id"]): plain(row) for row in rows}
    assert len(found) == len(rows), "a key stands twice"
    return found


@pytest.fixture(scope="module")
def server() -> Server:
    made = Server(7)
    made.run(150)
    return made


@pytest.fixture(scope="module")
def archive(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Any:
    log = server.log
    events = [tx(Change(Op.INSERT, (), ("x",), schema=KEYLESS))]
    files = [log[:40], log[40:41], log[41:110], log[110:]]
    return write_archive(tmp_path_factory.mktemp("archive"), {"a": files, "b": [events]})


def test_a_snapshot_is_the_table_for_every_reader(
    spark: SparkSession, server: Server, archive: Any, tmp_path: Path
) -> None:
    written = write_snapshot(spark, archive, str(tmp_path / "s"), now=NOW)
    true = server.state(len(server.log))
    folder = tmp_path / "s" / table_folder("shop.orders")
    assert written.tables["shop.orders"].rows == len(true) > 10
    assert any(row["_unavailable"] for row in true.values())  # rows older than the column
    assert state(by_spark(spark, folder, "select * from t")) == true
    assert state(by_duckdb(folder, "select * from t")) == true
    assert state(by_pandas(folder, current=False)) == true
    assert by_duckdb(folder, "select max(seen) as n from t")[0]["n"] == Decimal((1 << 64) - 1)
    assert written.left_out.keys() == {"shop.events"}
    with pytest.raises(ReplayError, match=r"shop\.events is left out: it has no primary key"):
        start_rows(spark, str(tmp_path / "s"), "orders")
    with pytest.raises(UsageError, match="is not empty"):
        write_snapshot(spark, archive, str(tmp_path / "s"), now=NOW)


def test_history_has_every_version_and_the_snapshot_is_a_view_of_it(
    spark: SparkSession, server: Server, archive: Any, tmp_path: Path
) -> None:
    how = {"shop.orders": Reading(types={"price": "decimal(30,2)"})}
    written = write_history(spark, archive, str(tmp_path / "h"), tables=["shop.orders"], readings=how, now=NOW)
    folder = tmp_path / "h" / written.tables["shop.orders"].folder
    true = server.state(len(server.log))
    for row in true.values():
        row["price"] = None if row["price"] is None else Decimal(row["price"])
    current = "select * from t where _valid_to is null"
    assert state(by_spark(spark, folder, current)) == true
    assert state(by_duckdb(folder, current)) == true
    assert state(by_pandas(folder, current=True)) == true
    changes = [change for one in server.log for change in one.changes]
    assert written.tables["shop.orders"].rows == sum(one.op in (Op.INSERT, Op.UPDATE) for one in changes)
    for at in range(0, len(server.log) + 1, 10):
        # As of any commit: places and times order alike here.
        when = datetime.fromtimestamp(1_700_000_000 + at, UTC).isoformat()
        found = by_duckdb(
            folder,
            f"select * from t where _valid_from_time <= '{when}' and (_valid_to is null or _valid_to_time > '{when}')",
        )
        wanted = server.state(at)
        assert {key: row["name"] for key, row in state(found).items()} == {k: v["name"] for k, v in wanted.items()}
    ends = by_duckdb(folder, "select distinct _ended_by from t")
    assert {row["_ended_by"] for row in ends} == {None, "update", "delete", "truncate", "key_change"}
