"""Rows that were read in parallel while they changed, and archived changes, make the table as it is at one place."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from datastores.memory.source import MemorySource
from datastores.memory.tables import MemoryTables
from spark_replay.archive.store import open_store
from spark_replay.baseline.baseline import write_baseline
from spark_replay.baseline.log_archives import ScanPace
from spark_replay.baseline.scan import Portion, Scan, ScanOutcome, TableLog
from spark_replay.tables.snapshot import write_snapshot
from tests.support.archives import write_file
from tests.support.seed import SEED
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.ports.changes import Change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime(2026, 5, 1, tzinfo=UTC)
ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "0")) // 4
NAMES = ("shop.orders", "shop.users")


@dataclass
class Source:
    """Two tables, whose rows are whole or partial images in the log; its archive begins when they have rows.

    ``left``: so many transactions come while the rows are read.
    """

    choice: random.Random
    folder: Path
    left: int

    def __post_init__(self) -> None:
        sharding = self.choice.choice([Sharding("log"), Sharding("hash", 2)])
        self.log = MemorySource("db", sharding)
        self.tables = MemoryTables(self.log)
        for name in NAMES:
            self.log.commit([Change(Op.INSERT, name, (key,), self.whole()) for key in range(0, 40, 2)])
        start = self.log.latest()
        self.store = open_store(str(self.folder / "archive"), "orders", copy="main", create=True)
        self.reader = self.log.open(start)
        self.ends = {start.order: start}
        for shard in self.log.shards():
            write_file(self.store, shard, [], start, begin=start, whole=False)
        self.tables.on_snapshot = self.meanwhile

    def value(self) -> Value:
        return self.choice.choice(["x", "y", "", None])

    def whole(self) -> dict[str, Value]:
        return {"a": self.value(), "b": self.value(), "c": self.value()}

    def image(self) -> dict[str, Value]:
        """The image of an update or an insert, at times without all columns."""
        part = self.choice.random() < 0.5
        return {
            name: UNAVAILABLE if part and self.choice.random() < 0.5 else value for name, value in self.whole().items()
        }

    def change(self) -> Change:
        name = self.choice.choice(NAMES)
        keys = sorted(key for (key,) in self.tables.all_rows()[name] if isinstance(key, int))
        chance = self.choice.random()
        free = self.choice.choice([key for key in range(60) if key not in keys])
        if not keys or chance < 0.3:
            return Change(Op.INSERT, name, (free,), self.image())
        key = self.choice.choice(keys)
        if chance < 0.5:
            return Change(Op.DELETE, name, (key,))
        if chance < 0.505:
            return Change(Op.TRUNCATE, name)
        if chance < 0.53:
            return Change(Op.MERGE, name, (key,), {"a": "+", "b": UNAVAILABLE, "c": UNAVAILABLE})
        if chance < 0.7:
            return Change(Op.UPDATE, name, (free,), self.image(), old_key=(key,))
        return Change(Op.UPDATE, name, (key,), self.image())

    def meanwhile(self) -> None:
        """What others do while a chunk is read, or the archive is waited for."""
        while self.left and self.choice.random() < 0.7:
            self.left -= 1
            self.log.commit([self.change()])
        if self.choice.random() < 0.3:
            self.archive()

    def archive(self, *_: float) -> None:
        """All of the log is archived now."""
        pieces = []
        while (segment := self.reader.read(1 << 20, 0)) is not None:
            pieces.append(segment)
        end = self.log.latest()
        self.ends[end.order] = end
        for shard in self.log.shards():
            write_file(self.store, shard, pieces, end)

    def run(self, scan: Scan, portions: Sequence[Portion]) -> list[ScanOutcome]:
        """In this process, where the log is."""
        return [scan(portion) for portion in portions]

    @property
    def end(self) -> Datamarker:
        """Where the archive ends."""
        (order,) = {manifest.end.order for manifest in self.store.manifests().values()}
        return self.ends[order]

    def rows(self, name: str) -> dict[int, dict[str, Value]]:
        return {key: row for (key,), row in self.tables.all_rows(self.end)[name].items()}  # type: ignore[misc]


def table(folder: Path, name: str) -> dict[int, tuple[dict[str, Any], list[str]]]:
    """By key: the columns, and those of which the value is not known."""
    found = {}
    for row in pq.read_table(folder / "tables" / name).to_pylist():
        own = {column: row[column] for column in ("a", "b", "c")}
        assert row["key"] not in found
        found[row["key"]] = own, list(row["_unavailable"] or [])
    return found


def check_round(spark: SparkSession, number: int, base: Path) -> bool:
    """Whether every row became known."""
    base.mkdir(exist_ok=True)
    source = Source(random.Random(number), base, left=60)
    pace = ScanPace(range_rows=source.choice.choice([3, 7, 1000]), pause=source.archive, run=source.run)
    logs = [TableLog("db", lambda folder: source.tables)]
    written = write_baseline(spark, source.store, str(base / "first"), logs, now=NOW, pace=pace)
    for name in written.tables:
        found, wanted = table(base / "first", name), source.rows(name)
        assert found.keys() == wanted.keys(), f"{name}: other rows than at {source.end}"
        for key, (row, unknown) in found.items():
            for column, value in row.items():
                assert column in unknown or value == wanted[key][column], (name, key, column)
        assert written.tables[name].problems or not any(unknown for _, unknown in found.values())
    assert written.tables.keys() | written.left_out.keys() == {*NAMES}
    places = [row["place"] for row in pq.read_table(base / "first" / "updates", columns=["place", "shard"]).to_pylist()]
    assert len(places) == len({*places}), "a replay goes on behind a place"
    if written.problems:
        return False
    # The next snapshots go on from it.
    for _ in range(10):
        source.log.commit([Change(Op.UPDATE, NAMES[0], (key,), source.whole()) for key in source.rows(NAMES[0])])
    source.log.commit([Change(Op.INSERT, NAMES[1], (99,), source.whole())])
    source.archive()
    rolled = write_snapshot(spark, source.store, str(base / "next"), previous=str(base / "first"), now=NOW)
    assert not rolled.problems
    for name in NAMES:
        assert {key: row for key, (row, _) in table(base / "next", name).items()} == source.rows(name)
    return True


def test_rows_that_change_while_they_are_read(spark: SparkSession, tmp_path: Path) -> None:
    assert check_round(spark, 30, tmp_path), "two hash shards, read at once in ranges of three rows"


@pytest.mark.soak
@pytest.mark.parametrize("round_", range(ROUNDS))
def test_they_do_for_every_schedule(spark: SparkSession, round_: int, tmp_path: Path) -> None:
    check_round(spark, SEED + round_, tmp_path)
