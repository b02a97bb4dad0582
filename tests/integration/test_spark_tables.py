"""Snapshot, history and the streaming source against the true state of a store, read by Spark SQL, DuckDB and
pandas."""

from __future__ import annotations

import random
import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from spark_replay import read
from spark_replay.archive.manifest import Manifest
from spark_replay.archive.reader import DataFile
from spark_replay.archive.shard_writer import ShardWriter
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.archive.writer import DataFileWriter
from spark_replay.tables.history import history, write_history
from spark_replay.tables.rows import rows
from spark_replay.tables.snapshot import write_snapshot
from spark_replay.tables.source import stream
from spark_replay.tables.start import start_rows
from tests.support.archives import KEYS as STORE
from tests.support.archives import Change, Tx, gone, manifest_of, marker_at, segments, tx, write_archive
from tests.support.archives import row as change_of
from tests.support.chunks import chunk, progressed
from tests.support.cli_schema import check
from tests.support.command_line import run
from tests.support.pages import Page
from wormhole.model.errors import ReplayError
from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.body import build_body, parse_body
from wormhole.wire.rows import decode_row
from wormhole.wire.update import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The first job of a session waits for the JVM to load its classes: minutes, where a machine has no time left.

ID = Column("id", "int")
FIRST = (ID, Column("name", "text"), Column("price", "decimal"), Column("seen", "uint"), Column("raw", "bytes"))
ORDERS = Schema("shop.orders", (ID,), FIRST)
WIDER = Schema("shop.orders", (ID,), (*FIRST, Column("doc", "text")))
KEYLESS = Schema("shop.events", (), (Column("text", "text"),))
NAMES = [column.name for column in WIDER.columns]

Row = tuple[Value, ...]


class Server:
    """A table as a MySQL server has it, and the transactions that its log holds: with ``binlog_row_image=MINIMAL``
    from time to time."""

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
            whole = before + (None,) * (len(self.schema.columns) - len(before))
            return Change(Op.DELETE, (key,), before=whole, schema=self.schema)
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
def page(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """docs/tables.md with the paths of an archive of the server's log, and its configuration."""
    base = tmp_path_factory.mktemp("tables")
    log = server.log
    events = [tx(Change(Op.INSERT, (), ("x",), schema=KEYLESS))]
    files = [log[:40], log[40:41], log[41:110], log[110:]]
    (base / "archive").mkdir()
    write_archive(base / "archive/orders", {"db1": files, "db2": [events]})
    configure(base, "orders", "archive/orders", "mysql://ann@localhost")
    return Page("docs/tables.md", {"/data/": f"{base}/", "-c shop.toml": f"-c {base}/shop.toml"})


def configure(base: Path, dataset: str, to: str, source: str, more: str = "") -> Path:
    file = base / "shop.toml"
    file.write_text(
        f"version = 1\n[coordinator]\nstatic = true\n[datasets.{dataset}]\n{more}\n"
        f"[datasets.{dataset}.archive]\nto = '{to}'\napplication = 'archive'\n"
        f"[datasets.{dataset}.copies.main.logs.db1]\nsource = '{source}'\n"
        f"[applications.archive]\ndataset = '{dataset}'\nstart = 'earliest'\n"
    )
    return file


def do(line: str) -> tuple[Any, Path]:
    """Run a line of the page; what it told, and the folder that it wrote."""
    words = shlex.split(line)[1:]
    code, out, err = run(*words, "--json")
    assert code == 0, err
    return check("tables-written", out), Path(words[words.index("--to") + 1])


def test_a_snapshot_is_the_table_for_every_reader(spark: SparkSession, server: Server, page: Page) -> None:
    told, base = do(page.command("snapshot orders --to"))
    true = server.state(len(server.log))
    folder = base / "tables/shop.orders"
    assert [(one["table"], one["rows"]) for one in told["tables"]] == [("shop.orders", len(true))]
    assert len(true) > 10
    assert any(row["_unavailable"] for row in true.values())  # rows older than the column
    assert state(by_spark(spark, folder, "select * from t")) == true
    assert state(by_duckdb(folder, "select * from t")) == true
    assert state(by_pandas(folder, current=False)) == true
    assert by_duckdb(folder, "select max(seen) as n from t")[0]["n"] == Decimal((1 << 64) - 1)
    assert [one["table"] for one in told["left_out"]] == ["shop.events"]
    with pytest.raises(ReplayError, match=r"shop\.events is left out: it has no primary key"):
        start_rows(spark, str(base), "orders")
    with pytest.raises(ReplayError, match=r"replay: \d+ rows of shop\.orders have values that the log"):
        start_rows(spark, str(base), "orders", wants="shop.orders".__eq__)
    start_rows(spark, str(base), "orders", wants="shop.customers".__eq__)  # all that there is of it comes later
    code, _, err = run(*shlex.split(page.command("snapshot orders --to"))[1:])
    assert (code, "is not empty" in err) == (2, True), err
    again, later = do(page.command("snapshot orders --from"))
    assert {**again, "to": ""} == {**told, "to": ""}
    assert state(by_duckdb(later / "tables/shop.orders", "select * from t")) == true


def test_history_has_every_version_and_the_snapshot_is_a_view_of_it(
    spark: SparkSession, server: Server, page: Page
) -> None:
    told, base = do(page.command("history orders --to"))
    folder = base / "tables/shop.orders"
    true = server.state(len(server.log))
    for row in true.values():
        row["price"] = None if row["price"] is None else Decimal(row["price"])
    current = "select * from t where _valid_to is null"
    assert state(by_spark(spark, folder, current)) == true
    assert state(by_duckdb(folder, current)) == true
    assert state(by_pandas(folder, current=True)) == true
    changes = [change for one in server.log for change in one.changes]
    assert told["tables"][0]["rows"] == sum(one.op in (Op.INSERT, Op.UPDATE) for one in changes)
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


def test_files_have_neighbouring_keys(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter on the key reads one file, and one percent of the keys that adjoin lies in two at the most."""
    for module in ("snapshot_writer", "history"):
        monkeypatch.setattr(f"spark_replay.tables.{module}.TASK_ROWS", 100, raising=False)
    settings = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "3"}
    before = {name: str(spark.conf.get(name)) for name in settings}
    ids = random.Random(21).sample(range(600), 600)
    log = [tx(*(change_of(Op.INSERT, (id_, "Ann", "Rome", 1)) for id_ in ids))]
    log.append(tx(change_of(Op.UPDATE, (7, "Bob", "Rome", 1), (7, "Ann", "Rome", 1))))
    store = write_archive(tmp_path / "archive", {"db1": [log]})
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        for to, write, count in (("snapshot", write_snapshot, 600), ("history", write_history, 601)):
            write(spark, store, str(tmp_path / to), now=datetime.now(UTC))
            files = [pq.ParquetFile(one) for one in (tmp_path / to / "tables/shop.customers").glob("*.parquet")]
            assert sum(one.metadata.num_rows for one in files) == count
            ends = [
                (min(each.min for each in groups), max(each.max for each in groups))
                for one in files
                for groups in [[one.metadata.row_group(at).column(0).statistics for at in range(one.num_row_groups)]]
            ]
            assert len(ends) >= 5
            for first in range(0, 600, 6):
                assert sum(low <= first <= high for low, high in ends) == 1
                assert sum(low <= first + 5 and first <= high for low, high in ends) <= 2
            assert all(one.read().column("id").to_pylist() == sorted(one.read()["id"].to_pylist()) for one in files)
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def test_queries_of_ones_own_as_the_page_has_them(
    spark: SparkSession, server: Server, page: Page, capsys: pytest.CaptureFixture[str]
) -> None:
    queries = [query for block in page.blocks("sql") for query in block.splitlines() if "read_parquet" in query]
    assert len(queries) == 2
    with duckdb.connect() as db:
        assert [len(db.execute(query).fetchall()) for query in queries] == [len(server.rows)] * 2
    (own,) = [block for block in page.blocks("python") if "open_store" in block]
    exec(own, {"spark": spark})
    changes = [change for one in server.log for change in one.changes]
    (as_format,) = [block for block in page.blocks("python") if 'format("wormhole")' in block]
    exec(as_format, {"spark": spark})
    assert capsys.readouterr().out == f"{sum(one.op is Op.UPDATE for one in changes)}\n" * 2
    live = Path(own.partition('"path", "')[2].partition('"')[0])
    found = by_duckdb(live, "select _op, count(*) as n from t group by _op")
    assert {row["_op"]: row["n"] for row in found} == Counter(change.op.value for change in changes)


def put(key: bytes, value: bytes) -> Change:
    return Change(Op.UPSERT, (key,), (value,), schema=STORE)


def test_a_store_of_bytes_by_the_command_line(spark: SparkSession, tmp_path: Path) -> None:
    """RocksDB: deletes, ranges, and JSON fields as columns; the snapshot begins a replay."""
    ranged = Change(Op.DELETE_RANGE, (b"b",), key_end=(b"d",), schema=STORE)
    log = [
        tx(put(b"a", b'{"city": "Ulm", "n": 1}'), put(b"b", b"{}"), put(b"c", b"{}")),
        tx(ranged, put(b"c", b'{"city": null}')),
        tx(put(b"d", b"no json"), put(b"e", b"{}"), Change(Op.DELETE, (b"e",), schema=STORE)),
    ]
    archive = write_archive(tmp_path / "archive", {"db1": [log[:2], log[2:]]}, dataset="cache")
    config = configure(tmp_path, "cache", "archive", "rocksdb:///store", "value_format = 'json'")
    fields = ["--field", "default:city=text", "--field", "default:n=int"]
    code, out, err = run("snapshot", "--to", str(tmp_path / "s"), "-c", str(config), *fields, "--json")
    assert code == 0, err
    told = check("tables-written", out)
    assert told["problems"] == []
    folder = tmp_path / "s" / told["tables"][0]["folder"]
    found = by_duckdb(folder, "select key, value, city, n, _bad_value is null as good from t order by key")
    assert [tuple(row.values()) for row in found] == [
        (b"a", b'{"city": "Ulm", "n": 1}', "Ulm", 1, True),
        (b"c", b'{"city": null}', None, None, True),
        (b"d", b"no json", None, None, False),
    ]
    start = start_rows(spark, str(tmp_path / "s"), "cache")
    assert start.places == {"db1": marker_at(3, "db1")}
    made = {bytes(row.key): decode_row(bytes(row.update)) for row in start.of("").collect()}
    assert [bytes(row.after[0].bytes) for _, row in sorted(made.items())] == [row["value"] for row in found]
    with pytest.raises(ReplayError, match="is of cache, not of orders"):
        start_rows(spark, str(tmp_path / "s"), "orders")
    # As it was after the first transaction; an archive that begins later is no start.
    changed(archive, "db1", lambda now: replace(now, version=now.version + 1, whole=False))
    code, out, err = run("snapshot", "--to", str(tmp_path / "s1"), "-c", str(config), "--until", "1/1/100")
    assert code == 0, err
    assert "db1 up to 1/1/100" in out
    assert "no start for a replay: the archive of db1 begins at 1/1/0, not at the shard's first row" in out
    assert [row["key"] for row in by_duckdb(tmp_path / "s1" / "tables/default", "select key from t order by key")] == [
        b"a",
        b"b",
        b"c",
    ]
    with pytest.raises(ReplayError, match="is no start for a replay"):
        start_rows(spark, str(tmp_path / "s1"), "cache")


def test_existing_rows_are_in_their_place(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that a backfill read where the archive ended, among changes: in queries, the snapshot and the history."""
    store = open_store(str(tmp_path / "archive"), "cache", copy="main", create=True)
    writer = ShardWriter.claim(store, "a", 1, marker_at(0))
    log = segments("a", [tx(put(b"k", b"1"), put(b"l", b"1")), tx(put(b"k", b"2"), gone(b"m"))])
    for number, rows_read in enumerate([[(b"a", b"0")], [(b"k", b"1"), (b"m", b"1")], [(b"l", b"1")]]):
        if number:
            body = build_body(log[number - 1].runs["a"], 1)
            assert body is not None
            writer.add(Batch(parse_body(body.data), "a", 1, False, {STORE.id: STORE}.__getitem__).updates())
            writer.commit(progressed(number))
        writer.add(chunk(number, number + 1, *rows_read))
        writer.commit(progressed(number, b"x"))
    found = rows(read(spark, store), STORE.table).orderBy("_place", "_index").collect()
    assert [(row["_op"], row["key"], row["_tx"]) for row in found] == [
        ("read", b"a", "read:1:1"), ("upsert", b"k", "source-a:1"), ("upsert", b"l", "source-a:1"),
        ("read", b"k", "read:1:2"), ("read", b"m", "read:1:2"),
        ("upsert", b"k", "source-a:2"), ("delete", b"m", "source-a:2"), ("read", b"l", "read:1:3"),
    ]  # fmt: skip
    assert {row["_committed_at"] is None for row in found if row["_op"] == "read"} == {True}
    versions = history(read(spark, store), STORE.table).orderBy("key", "_valid_from").collect()
    assert [(row["key"], row["value"], row["_op"], row["_ended_by"]) for row in versions] == [
        (b"a", b"0", "read", None),
        (b"k", b"1", "upsert", "read"), (b"k", b"1", "read", "upsert"), (b"k", b"2", "upsert", None),
        (b"l", b"1", "upsert", "read"), (b"l", b"1", "read", None),
        (b"m", b"1", "read", "delete"),
    ]  # fmt: skip
    config = configure(tmp_path, "cache", "archive", "rocksdb:///store", "")
    code, out, err = run("snapshot", "--to", str(tmp_path / "s"), "-c", str(config), "--json")
    assert code == 0, err
    folder = tmp_path / "s" / check("tables-written", out)["tables"][0]["folder"]
    kept = [tuple(row.values()) for row in by_duckdb(folder, "select key, value from t order by key")]
    assert kept == [(b"a", b"0"), (b"k", b"2"), (b"l", b"1")]


def changed(store: ArchiveStore, shard: str, how: Callable[[Manifest], Manifest]) -> None:
    def decide(now: Manifest | None) -> Manifest:
        assert now is not None
        return how(now)

    store.change(shard, decide)


def merge(store: ArchiveStore, shard: str) -> None:
    """All files of a shard become one."""
    manifest = manifest_of(store, shard)
    old = manifest.files
    with store.create_data(shard, "merged.parquet") as file:
        writer = DataFileWriter(
            file.sink, "merged.parquet", dataset=store.dataset, shard=shard, epoch=1, begin=manifest.begin
        )
        for entry in old:
            with DataFile(store.open_data(shard, entry.name), entry.name) as part:
                for batch in part.batches():
                    writer.write(batch, part.footer.schemas)
        merged = writer.finish(manifest.end)
    changed(store, shard, lambda now: now.swapped([entry.name for entry in old], merged))


def test_a_stream_over_the_archive_survives_merging_and_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    def numbers(first: int, last: int) -> list[Tx]:
        return [tx(put(b"%d" % i, b"v")) for i in range(first, last)]

    folder = tmp_path / "archive"
    store = write_archive(folder, {"db1": [numbers(0, 10), numbers(10, 20), numbers(20, 25)]})
    (folder / "db1" / "data" / "stranger.parquet").write_bytes(b"what no manifest names is never opened")
    received: list[tuple[int, bytes]] = []

    def take(batch: DataFrame, number: int) -> None:
        received.extend((number, bytes(row.key)) for row in batch.select("key").collect())

    def drain() -> None:
        changes = rows(stream(spark, store, max_files=2), "default")
        query = changes.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
        started = query.trigger(availableNow=True).start()
        assert started.awaitTermination(100)
        assert started.exception() is None

    drain()
    assert {number for number, _ in received} == {0, 1}  # two files in the first batch
    assert [int(key) for _, key in received[:20]] == list(range(20))
    # What was read and what was not are merged into one file, and more comes.
    merge(store, "db1")
    write_archive(folder, {"db1": [numbers(25, 30)], "db2": [numbers(30, 33)]})
    drain()
    assert sorted(int(key) for _, key in received) == list(range(33))
    # A query that was not finished in time, when its rows are let go, says so.
    write_archive(folder, {"db1": [numbers(33, 34), numbers(34, 35)]})
    changed(store, "db1", lambda now: now.without_first(len(now.files) - 1))
    with pytest.raises(StreamingQueryException, match="was let go before this query read it"):
        drain()
    assert len(received) == 33
