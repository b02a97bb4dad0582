"""A snapshot made of the previous one and the archive after it is the same as one made of the whole archive."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from spark_replay.archive.manifest import Manifest
from spark_replay.archive.newest_snapshot import needed_from
from spark_replay.archive.ranges import Asked
from spark_replay.archive.store import ArchiveStore
from spark_replay.tables.about import ABOUT
from spark_replay.tables.folder import Folder
from spark_replay.tables.snapshot import write_snapshot
from tests.support.archives import Change, Tx, chunk, marker_at, tx, write_archive
from tests.support.seed import SEED
from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op, Value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime(2026, 5, 1, tzinfo=UTC)
ID = Column("id", "int")
TRUNCATED = Schema("shop.orders", (), ())
ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "0")) // 4


def schema_of(*names: str) -> Schema:
    return Schema("shop.orders", (ID,), (ID, *(Column(name, "text") for name in names)))


class Server:
    """A table whose columns are added, dropped and renamed, and its log: at times with parts of rows only. ``rows``: by
    key, the values of the columns that it has now, as far as the log holds them."""

    def __init__(self, choice: random.Random) -> None:
        self.random = choice
        self.names = ["a", "b"]
        self.rows: dict[int, dict[str, Value]] = {}
        self.log: list[Tx] = []
        self.chunks = 0

    def alter(self) -> None:
        how = self.random.choice(["add", "drop", "rename"])
        name = f"c{len(self.log)}"
        if how == "add" or len(self.names) < 2:
            self.names.append(name)
        elif how == "drop":
            self.names.remove(self.random.choice(self.names))
        else:
            self.names[self.random.randrange(len(self.names))] = name
        for row in self.rows.values():
            for gone in row.keys() - {*self.names}:
                del row[gone]
            for new in {*self.names} - row.keys():
                row[new] = UNAVAILABLE

    def change(self) -> Change:
        chance = self.random.random()
        schema = schema_of(*self.names)
        if not self.rows or chance < 0.35:
            key = self.random.randrange(40)
            self.rows[key] = {name: self.value() for name in self.names}
            return Change(Op.INSERT, (key,), (key, *self.rows[key].values()), schema=schema)
        key = self.random.choice(sorted(self.rows))
        if chance < 0.5:
            del self.rows[key]
            return Change(Op.DELETE, (key,), schema=schema)
        if chance < 0.51:
            self.rows.clear()
            return Change(Op.TRUNCATE, (), schema=TRUNCATED)
        row = self.rows.pop(key)
        to = key if chance < 0.85 else self.random.randrange(40, 60)
        to = key if to in self.rows else to
        logged: list[Value] = []
        for name in self.names:
            known = self.random.random() < 0.5
            if known:
                row[name] = self.value()
            logged.append(row[name] if known else UNAVAILABLE)
        self.rows[to] = {name: row[name] for name in self.names}
        return Change(Op.UPDATE, (to,), (to, *logged), old_key=(key,) if to != key else (), schema=schema)

    def value(self) -> Value:
        return self.random.choice(["x", "y", "", None])

    def image(self, key: int) -> tuple[Value, ...]:
        return (key, *(self.rows[key][name] for name in self.names))

    def backfill(self) -> Tx:
        """A chunk of some of the rows: what the log does not hold of them becomes known."""
        keys = sorted(self.random.sample(sorted(self.rows), self.random.randrange(len(self.rows) + 1)))
        for row in map(self.rows.__getitem__, keys):
            row.update({name: self.value() for name, value in row.items() if value is UNAVAILABLE})
        schema = schema_of(*self.names)
        self.chunks += 1
        read = [Change(Op.READ, (key,), self.image(key), schema=schema) for key in keys]
        return chunk(self.chunks, *read)

    def run(self, transactions: int) -> None:
        for _ in range(transactions):
            if self.random.random() < 0.08:
                self.alter()
            self.log.append(tx(*(self.change() for _ in range(self.random.randrange(1, 4)))))
            if self.random.random() < 0.1 and self.rows:
                self.log.append(self.backfill())


def seen(rows: dict[int, dict[str, Value]]) -> dict[int, dict[str, Any]]:
    """The rows as a reader of Parquet has them."""
    return {
        key: {
            **{name: None if value is UNAVAILABLE else value for name, value in row.items()},
            "_unavailable": sorted(name for name, value in row.items() if value is UNAVAILABLE),
        }
        for key, row in rows.items()
    }


def table(folder: Path) -> dict[int, dict[str, Any]]:
    found = {}
    for row in pq.read_table(folder / "tables/shop.orders").to_pylist():
        own = {name: value for name, value in row.items() if not name.startswith("_") and name != "id"}
        found[row["id"]] = {**own, "_unavailable": sorted(row["_unavailable"] or [])}
    return found


def updates(folder: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in pq.read_table(folder / "updates").to_pylist())


def about(folder: Path) -> dict[str, Any]:
    given = Folder(str(folder), ABOUT).about()
    shards = {shard: (one["from"], one["place"], one["whole"]) for shard, one in given["shards"].items()}
    tables = {
        name: (one["rows"], one["problems"], {log: last["schema"] for log, last in one["newest"].items()})
        for name, one in given["tables"].items()
    }
    return {"shards": shards, "tables": tables, "schemas": sorted(given["schemas"]), "problems": given["problems"]}


def trim(store: ArchiveStore, shard: str, marker: int) -> None:
    """As retention does: the files before that place go."""

    def without(now: Manifest | None) -> Manifest:
        assert now is not None
        count = sum(one.end.order <= marker_at(marker, shard).order for one in now.files)
        for one in now.files[:count]:
            store.delete_data(shard, one.name)
        return now.without_first(count) if count else replace(now, version=now.version + 1)

    store.change(shard, without)


def check_round(spark: SparkSession, number: int, base: Path) -> Server:
    choice = random.Random(number)
    server = Server(choice)
    server.run(59)
    server.rows[99] = dict.fromkeys(server.names, "x")  # every column that it has now is in the log
    server.log.append(tx(Change(Op.INSERT, (99,), (99, *server.rows[99].values()), schema=schema_of(*server.names))))
    ends = [at for at, one in enumerate(server.log, 1) if not one.chunk]
    cuts = sorted(choice.sample(range(1, 60), 2))
    # Each file begins after so many transactions, and with the rows that were read there.
    starts = [0, *(ends[cut - 1] for cut in cuts), len(server.log)]
    files = [server.log[begin:end] for begin, end in pairwise(starts)]
    store = write_archive(base / "archive", {"a": files})
    written = write_snapshot(spark, store, str(base / "whole"), now=NOW)
    assert table(base / "whole") == seen(server.rows), "the columns of now, and no others"
    previous = ""
    for part, cut in enumerate(cuts):
        until = Asked("there", place=marker_at(cut).order)
        write_snapshot(spark, store, str(base / str(part)), until=until, previous=previous, now=NOW)
        if previous:
            shutil.rmtree(previous)
        previous = str(base / str(part))
        trim(store, "a", cut)
    rolled = write_snapshot(spark, store, str(base / "rolled"), previous=previous, now=NOW)
    assert updates(base / "rolled") == updates(base / "whole")
    assert table(base / "rolled") == table(base / "whole")
    assert about(base / "rolled") == about(base / "whole")
    assert replace(rolled, to="") == replace(written, to="")
    noted, needed = needed_from(store)
    assert noted is not None
    assert (noted.to, needed) == (str(base / "rolled"), {"a": marker_at(60).order}), "what retention may remove"
    return server


def test_a_rolling_snapshot_has_the_rows_of_one_of_the_whole_archive(spark: SparkSession, tmp_path: Path) -> None:
    server = check_round(spark, 4, tmp_path)
    assert len(server.rows) > 10
    assert any(value is UNAVAILABLE for row in server.rows.values() for value in row.values())


@pytest.mark.soak
@pytest.mark.parametrize("round_", range(ROUNDS))
def test_it_does_for_every_log(spark: SparkSession, round_: int, tmp_path: Path) -> None:
    check_round(spark, SEED + round_, tmp_path)
